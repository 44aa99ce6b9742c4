// SPDX-License-Identifier: Apache-2.0
//! Plain frames written into the buffers of a ring. A buffer that has a frame of the same template already gets only what changes:
//! addresses if there are several, source port, checksum and signature.

use quietwire_dpdk::{FrameSource, FramesTaken, FreeSlots, SlotBuffer};
use quietwire_memory::Span;

use super::head::{IPV4, IPV6, Template, udp_checksum};
use super::{Cursor, FrameWriter, Signature, UDP_SOURCE_FIRST, Varied};
use crate::narrow::low_u32;
use crate::trial::IpVersion;

/// Bits of a mark that number the template of a writer.
const TEMPLATE_BITS: u32 = 8;
/// Mask of those bits.
const TEMPLATE_MASK: u64 = (1 << TEMPLATE_BITS) - 1;
/// Octets from the UDP checksum to the end of a head.
const TAIL: usize = 20;

/// The next frames of a writer, with one time stamp.
#[derive(Debug)]
pub(crate) struct PlainSource<'w> {
    writer: &'w FrameWriter,
    cursor: Cursor,
    tick: u64,
    row: Option<Row>,
    /// The buffers require more than the heads of a row.
    requires_more: bool,
}

/// Common parts of the frames of a burst that differ in nothing but flow and sequence number.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The mark of buffers that have such a frame.
    mark: u32,
    ip: IpVersion,
    /// Length of the frames, octets.
    length: usize,
    /// Sum of all words that the UDP checksum covers, without source port, flow and sequence number.
    sum: u64,
    /// Magic number, epoch and port at their places in the eight octets that begin with the UDP checksum.
    identity: u64,
    /// The flows of the writer: first, distance, and end.
    flows: (u16, u16, u16),
}

impl Row {
    /// Writes what differs from the frame that is in the buffer.
    #[inline(always)]
    fn write<const N: usize>(&self, cursor: &Cursor, octets: Span<'_>, tick: u64) {
        let source = cursor.flow.wrapping_add(UDP_SOURCE_FIRST).to_be_bytes();
        octets.write_at(const { N - TAIL - 6 }, source);
        let sequence = low_u32(cursor.sequence);
        write_tail::<N>(octets, self.first(cursor), sequence, tick);
    }

    /// Returns the eight octets of the next frame that begin with the UDP checksum, in little-endian order.
    #[inline(always)]
    fn first(&self, cursor: &Cursor) -> u64 {
        let source = cursor.flow.wrapping_add(UDP_SOURCE_FIRST).to_be_bytes();
        // Words of up to 32 bits.
        let sum = self
            .sum
            .wrapping_add(u64::from(u16::from_ne_bytes(source)))
            .wrapping_add(u64::from(cursor.flow.to_le()))
            .wrapping_add(u64::from(low_u32(cursor.sequence).to_le()));
        let checksum = u64::from(u16::from_le_bytes(udp_checksum(sum)));
        checksum | self.identity | (u64::from(cursor.flow) << 48)
    }

    /// Returns true if the frames from the next one on belong to one flow.
    #[inline(always)]
    fn has_one_flow(&self, cursor: &Cursor) -> bool {
        let (first, distance, end) = self.flows;
        cursor.flow == first && first.saturating_add(distance) >= end
    }

    #[inline(always)]
    fn advance(&self, cursor: &mut Cursor) {
        let (first, distance, end) = self.flows;
        cursor.written = cursor.written.wrapping_add(1);
        cursor.flow = cursor.flow.saturating_add(distance);
        if cursor.flow >= end {
            cursor.flow = first;
            cursor.sequence = cursor.sequence.wrapping_add(1);
        }
    }

    /// Returns true if a buffer has a frame that differs from the next one only in what [`Self::write`] writes.
    #[inline(always)]
    fn fits(&self, buffer: &SlotBuffer<'_>) -> bool {
        buffer.mark.as_deref() == Some(&self.mark)
    }
}

/// The heads of a row in the free slots of a ring.
#[derive(Debug)]
struct Heads<'row, const N: usize> {
    row: &'row Row,
    /// The head of a frame of the row's first flow.
    octets: [u8; N],
    /// Length of the frames, octets.
    length: usize,
    tick: u64,
    /// A buffer of the peer requires more than a head: frames are longer.
    requires_more: bool,
}

impl<'row, const N: usize> Heads<'row, N> {
    #[inline(always)]
    fn new(row: &'row Row, template: &Template, length: usize, tick: u64) -> Option<Self> {
        let mut octets = *template.head::<N>()?;
        let source = row.flows.0.wrapping_add(UDP_SOURCE_FIRST);
        octets[const { N - TAIL - 6 }..const { N - TAIL - 4 }]
            .copy_from_slice(&source.to_be_bytes());
        Some(Self {
            row,
            octets,
            length,
            tick,
            requires_more: false,
        })
    }

    /// Returns the head of a buffer, which has the octets that all frames of the row have; `None` if it has another frame.
    #[inline(always)]
    fn prepare<'ring>(&mut self, buffer: &SlotBuffer<'ring>) -> Option<Span<'ring>> {
        // The only check of the length.
        let head = buffer.octets.sub(0, N)?;
        match buffer.mark.as_deref() {
            Some(mark) => (*mark == self.row.mark).then_some(head),
            // The peer only reads the frame. Next time the slot may have another buffer.
            None if self.length == N => head.write_array(self.octets).then_some(head),
            None => {
                self.requires_more = true;
                None
            }
        }
    }

    /// Writes the next frames, at most `most`, up to a buffer that [`Self::prepare`] does not accept. Returns their number.
    #[inline(always)]
    fn write(&mut self, slots: &mut impl FreeSlots, most: usize, cursor: &mut Cursor) -> usize {
        let mut next = *cursor;
        let filled = slots.fill_each(
            most,
            self.length,
            #[inline(always)]
            |buffer| {
                let Some(head) = self.prepare(&buffer) else {
                    return false;
                };
                self.row.write::<N>(&next, head, self.tick);
                self.row.advance(&mut next);
                true
            },
        );
        *cursor = next;
        filled
    }

    /// As [`Self::write`], for frames of one flow. Their source port is in the buffers already: other flows have other writers, or come from
    /// packet buffers like the low-rate stream, which removes the marks.
    #[inline(always)]
    fn write_flow(
        &mut self,
        slots: &mut impl FreeSlots,
        most: usize,
        cursor: &mut Cursor,
    ) -> usize {
        let (mut first, mut sequence) = (self.row.first(cursor), low_u32(cursor.sequence));
        let filled = slots.fill_each(
            most,
            self.length,
            #[inline(always)]
            |buffer| {
                let Some(head) = self.prepare(&buffer) else {
                    return false;
                };
                write_tail::<N>(head, first, sequence, self.tick);
                first = following(first, sequence);
                sequence = sequence.wrapping_add(1);
                true
            },
        );
        cursor.written = cursor.written.wrapping_add(filled as u64);
        cursor.sequence = cursor.sequence.wrapping_add(filled as u64);
        filled
    }
}

/// Writes the octets of a head from the UDP checksum on.
#[inline(always)]
fn write_tail<const N: usize>(octets: Span<'_>, first: u64, sequence: u32, tick: u64) {
    let second = u64::from(sequence) | (tick << 32);
    let last = low_u32(tick >> 32);
    octets.write_at(const { N - TAIL }, first.to_le_bytes());
    octets.write_at(const { N - TAIL + 8 }, second.to_le_bytes());
    octets.write_at(const { N - TAIL + 16 }, last.to_le_bytes());
}

/// Returns what [`Row::first`] is for the frame after that of a sequence number in the same flow.
///
/// 2^16 is 1 modulo 2^16 - 1: with the sequence number, the ones' complement sum grows by 1, and the checksum in the lower 16 bits
/// shrinks by 1. Its values are 1 to 2^16 - 1, because 0 means that there is no checksum. The sum is the same for 2^32 - 1 and for 0.
#[inline(always)]
fn following(first: u64, sequence: u32) -> u64 {
    if sequence == u32::MAX {
        first
    } else if first & 0xffff == 1 {
        first.wrapping_add(0xfffe)
    } else {
        first.wrapping_sub(1)
    }
}

impl FrameWriter {
    /// Has `send` take up to `count` frames with the time stamp `tick`, and counts all of them as written: those that the ring has no
    /// space for are refused. Returns the number of frames sent.
    #[inline(always)]
    pub(crate) fn write_in_place(
        &mut self,
        count: usize,
        tick: u64,
        send: impl FnOnce(&mut PlainSource<'_>) -> FramesTaken,
    ) -> usize {
        let mut source = PlainSource {
            row: self.row(tick),
            cursor: self.cursor,
            writer: self,
            tick,
            requires_more: false,
        };
        let taken = send(&mut source);
        for _ in taken.written..count {
            source.writer.advance(&mut source.cursor);
        }
        self.cursor = source.cursor;
        taken.sent
    }

    /// Returns the mark of a buffer with the template at a position of the size pattern.
    #[inline(always)]
    fn mark(&self, position: usize) -> u32 {
        (self.number << TEMPLATE_BITS) | low_u32(position as u64 & TEMPLATE_MASK)
    }

    /// Makes a buffer of our own one of this writer: zeros behind the heads, and the mark of the template that is written next.
    #[cold]
    #[inline(never)]
    fn adopt<const N: usize>(&self, octets: Span<'_>, mark: &mut u32, position: usize) {
        // Behind the heads of this writer's frames, all buffers have zeros.
        if *mark == 0 || *mark >> TEMPLATE_BITS != self.number {
            octets.clear_from(N);
        }
        *mark = self.mark(position);
    }

    /// Returns the row of the next frames; `None` if more than flow and sequence number may differ.
    #[inline(always)]
    fn row(&self, tick: u64) -> Option<Row> {
        let [template] = &*self.pattern else {
            return None;
        };
        if self.addresses > 1 || self.destinations > 1 {
            return None;
        }
        let signature = Signature {
            epoch: self.epoch,
            port: self.port,
            flow: 0,
            sequence: 0,
            tick,
        };
        let [m, n, epoch, port, ..] = signature.octets();
        Some(Row {
            mark: self.mark(0),
            ip: self.ip,
            length: usize::from(template.length),
            sum: template.udp_sum().wrapping_add(signature.sum()),
            identity: u64::from_le_bytes([0, 0, m, n, epoch, port, 0, 0]),
            flows: (self.share.index, self.share.of, self.flows),
        })
    }

    /// Writes what differs from the frame that is in the buffer.
    #[inline(always)]
    fn write_changes<const N: usize>(
        &self,
        template: &Template,
        cursor: &Cursor,
        octets: Span<'_>,
        tick: u64,
    ) {
        if self.addresses > 1 {
            let number = cursor.address.to_be_bytes();
            if self.varied != Varied::Source {
                octets.write_at(2, number);
            }
            if self.varied != Varied::Destination {
                octets.write_at(8, number);
            }
        }
        let source = cursor.flow.wrapping_add(UDP_SOURCE_FIRST).to_be_bytes();
        octets.write_at(const { N - TAIL - 6 }, source);
        let signature = Signature {
            epoch: self.epoch,
            port: self.port,
            flow: cursor.flow,
            sequence: low_u32(cursor.sequence),
            tick,
        };
        let varied = u64::from(u16::from_ne_bytes(source)).wrapping_add(signature.sum());
        let [a, b] = udp_checksum(template.udp_sum().wrapping_add(varied));
        let (magic, numbers, tick) = signature.parts();
        let [m, n] = magic;
        octets.write_at(const { N - TAIL }, [a, b, m, n]);
        octets.write_at(const { N - TAIL + 4 }, numbers);
        octets.write_at(const { N - TAIL + 12 }, tick);
    }

    #[inline(always)]
    fn write_buffer<const N: usize>(&self, cursor: &Cursor, buffer: SlotBuffer<'_>, tick: u64) {
        let Some(template) = self.pattern.get(cursor.position) else {
            return;
        };
        let octets = buffer.octets;
        match buffer.mark {
            // A drawn destination changes most of the head.
            Some(mark) if *mark == self.mark(cursor.position) && self.destinations <= 1 => {
                self.write_changes::<N>(template, cursor, octets, tick);
                return;
            }
            Some(mark) if *mark == self.mark(cursor.position) => {}
            Some(mark) => self.adopt::<N>(octets, mark, cursor.position),
            // The peer only reads the frame. Next time the slot may have another buffer.
            None if usize::from(template.length) > N => {
                octets
                    .split_at(usize::from(template.length))
                    .0
                    .clear_from(N);
            }
            None => {}
        }
        let mut head = [0; N];
        self.write_head(template, cursor, &mut head, tick);
        octets.write_array(head);
    }
}

impl PlainSource<'_> {
    /// Writes a frame into a buffer that may have another one.
    #[inline]
    fn write_buffer(&mut self, buffer: SlotBuffer<'_>) {
        let (writer, cursor) = (self.writer, &self.cursor);
        match writer.ip {
            IpVersion::V4 => writer.write_buffer::<IPV4>(cursor, buffer, self.tick),
            IpVersion::V6 => writer.write_buffer::<IPV6>(cursor, buffer, self.tick),
        }
        writer.advance(&mut self.cursor);
    }

    /// Writes the next frames of a row, at most `most` of `length` octets each, into free slots. Returns their number.
    #[inline(always)]
    fn write_heads<const N: usize>(
        &mut self,
        row: &Row,
        slots: &mut impl FreeSlots,
        most: usize,
        length: usize,
    ) -> usize {
        let template = self.writer.pattern.first();
        let heads = template.and_then(|it| Heads::<N>::new(row, it, length, self.tick));
        let Some(mut heads) = heads else {
            return 0;
        };
        let written = if row.has_one_flow(&self.cursor) {
            heads.write_flow(slots, most, &mut self.cursor)
        } else {
            heads.write(slots, most, &mut self.cursor)
        };
        self.requires_more = heads.requires_more;
        written
    }
}

impl FrameSource for PlainSource<'_> {
    #[inline(always)]
    fn next_length(&self) -> usize {
        if let Some(row) = &self.row {
            return row.length;
        }
        let template = self.writer.pattern.get(self.cursor.position);
        template.map_or(0, |template| usize::from(template.length))
    }

    #[inline(always)]
    fn equally_long(&self) -> usize {
        if self.row.is_some() { usize::MAX } else { 1 }
    }

    #[inline(always)]
    fn changed_length(&self) -> usize {
        match self.writer.ip {
            IpVersion::V4 => IPV4,
            IpVersion::V6 => IPV6,
        }
    }

    #[inline(always)]
    fn write(&mut self, buffer: SlotBuffer<'_>) {
        if let Some(row) = &self.row
            && row.fits(&buffer)
        {
            match row.ip {
                IpVersion::V4 => row.write::<IPV4>(&self.cursor, buffer.octets, self.tick),
                IpVersion::V6 => row.write::<IPV6>(&self.cursor, buffer.octets, self.tick),
            }
            row.advance(&mut self.cursor);
            return;
        }
        self.write_buffer(buffer);
    }

    #[inline(always)]
    fn write_row(&mut self, slots: &mut impl FreeSlots, most: usize, length: usize) -> usize {
        let Some(row) = self.row.filter(|_| !self.requires_more) else {
            return slots.fill_each(
                most,
                length,
                #[inline(always)]
                |buffer| {
                    self.write(buffer);
                    true
                },
            );
        };
        match row.ip {
            IpVersion::V4 => self.write_heads::<IPV4>(&row, slots, most, length),
            IpVersion::V6 => self.write_heads::<IPV6>(&row, slots, most, length),
        }
    }

    fn write_apart(&mut self, frame: &mut [u8]) {
        let (writer, cursor) = (self.writer, &self.cursor);
        if let Some(template) = writer.pattern.get(cursor.position) {
            match writer.ip {
                IpVersion::V4 => writer.write_frame::<IPV4>(template, cursor, frame, self.tick),
                IpVersion::V6 => writer.write_frame::<IPV6>(template, cursor, frame, self.tick),
            };
        }
        writer.advance(&mut self.cursor);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use quietwire_memory::Mapping;

    use super::*;
    use crate::frame::Epoch;
    use crate::frame::tests::trial;
    use crate::trial::{FrameSizes, Trial};
    use crate::writer::Share;

    const SLOTS: usize = 5;
    const BUFFER: usize = 2048;

    /// A ring whose buffers are used again and again.
    struct Slots {
        memory: Mapping,
        marks: [u32; SLOTS],
        next: usize,
        /// True if the buffers have marks.
        is_own: bool,
        /// Frames written since the last burst began.
        written: Vec<Vec<u8>>,
    }

    impl FreeSlots for Slots {
        fn fill_each(
            &mut self,
            most: usize,
            length: usize,
            mut write: impl FnMut(SlotBuffer<'_>) -> bool,
        ) -> usize {
            for filled in 0..most {
                let start = (self.next * BUFFER) as u64;
                let octets = self.memory.span(start, BUFFER).unwrap();
                let mark = self.is_own.then_some(&mut self.marks[self.next]);
                if !write(SlotBuffer { octets, mark }) {
                    return filled;
                }
                let mut frame = vec![0; length];
                octets.copy_to(&mut frame);
                self.written.push(frame);
                self.next = (self.next + 1) % SLOTS;
            }
            most
        }
    }

    impl Slots {
        /// Writes `space` frames like a ring: in rows, or one by one.
        fn write(&mut self, source: &mut PlainSource<'_>, space: usize, in_rows: bool) {
            self.written.clear();
            while self.written.len() < space {
                let length = source.next_length();
                let left = space - self.written.len();
                if in_rows {
                    let row = source.equally_long().min(left);
                    if source.write_row(self, row, length) == row {
                        continue;
                    }
                }
                self.fill_each(1, length, |buffer| {
                    source.write(buffer);
                    true
                });
            }
        }
    }

    /// Writes the next frame like the writer of packet buffers.
    fn reference(writer: &mut FrameWriter, tick: u64) -> Vec<u8> {
        let mut cursor = writer.cursor;
        let template = &writer.pattern[cursor.position];
        let mut frame = vec![0; usize::from(template.length)];
        match writer.ip {
            IpVersion::V4 => writer.write_frame::<IPV4>(template, &cursor, &mut frame, tick),
            IpVersion::V6 => writer.write_frame::<IPV6>(template, &cursor, &mut frame, tick),
        };
        writer.advance(&mut cursor);
        writer.cursor = cursor;
        frame
    }

    /// The checksum takes each of its values, and sequence numbers begin again.
    #[test]
    fn frames_of_one_flow_are_those_of_packet_buffers_at_every_checksum() {
        for (ip, size, is_own) in [
            (IpVersion::V4, 64, true),
            (IpVersion::V6, 84, true),
            (IpVersion::V4, 64, false),
        ] {
            let trial = Trial {
                ip,
                ..trial(FrameSizes::Fixed(size), 1, 1)
            };
            let mut writer = FrameWriter::new(&trial, 0, 1, Share::WHOLE).unwrap();
            writer.begin(Epoch(4));
            writer.cursor.sequence = u64::from(u32::MAX) - 40_000;
            let mut expected = writer.clone();
            let mut slots = Slots {
                memory: Mapping::create("one-flow", SLOTS * BUFFER).unwrap().0,
                marks: [0; SLOTS],
                next: 0,
                is_own,
                written: Vec::new(),
            };
            for tick in 0..2_500 {
                let taken = writer.write_in_place(32, tick, |source| {
                    slots.write(source, 32, true);
                    FramesTaken {
                        sent: 32,
                        written: 32,
                    }
                });
                assert_eq!((taken, slots.written.len()), (32, 32));
                for frame in &slots.written {
                    assert_eq!(frame, &reference(&mut expected, tick));
                }
            }
            assert_eq!(writer.written_of_flow(0), expected.written_of_flow(0));
        }
    }

    proptest! {
        /// Buffers are used again and again, by two writers in turn, with and without marks, and some frames find no space.
        #[test]
        fn frames_in_place_are_those_of_packet_buffers(
            is_imix: bool,
            is_v6: bool,
            flows in 1u16..4,
            addresses in 1u32..4,
            destinations in 1u32..3,
            varied in 0usize..3,
            is_own: bool,
            in_rows: bool,
            is_longer: bool,
            bursts in prop::collection::vec((0usize..2, 1usize..7, 0usize..7), 1..20),
        ) {
            let ip = if is_v6 { IpVersion::V6 } else { IpVersion::V4 };
            let size = if is_v6 { 84 } else { 64 };
            let size = size + 300 * u16::from(is_longer);
            let sizes = if is_imix && !is_v6 { FrameSizes::Imix } else { FrameSizes::Fixed(size) };
            let trial = Trial { destinations, ip, ..trial(sizes, flows, addresses) };
            let varied = [Varied::Both, Varied::Source, Varied::Destination][varied];
            let make = |port| {
                let writer = FrameWriter::new(&trial, port, 1 - port, Share::WHOLE).unwrap();
                let mut writer = writer.varying(varied, addresses);
                writer.begin(Epoch(4));
                writer
            };
            let mut writers = [make(0), make(1)];
            let mut references = writers.clone();
            let memory = Mapping::create("in-place", SLOTS * BUFFER).unwrap().0;
            let dirt = vec![0xa5; SLOTS * BUFFER];
            memory.span(0, SLOTS * BUFFER).unwrap().copy_from(&dirt);
            let mut slots = Slots {
                memory,
                marks: [0; SLOTS],
                next: 0,
                is_own,
                written: Vec::new(),
            };
            for (number, (which, count, space)) in bursts.into_iter().enumerate() {
                let tick = 1000 + number as u64;
                let space = space.min(count);
                let sent = writers[which].write_in_place(count, tick, |source| {
                    slots.write(source, space, in_rows);
                    FramesTaken {
                        sent: space,
                        written: space,
                    }
                });
                prop_assert_eq!(sent, space);
                for index in 0..count {
                    let expected = reference(&mut references[which], tick);
                    if let Some(frame) = slots.written.get(index) {
                        prop_assert_eq!(frame, &expected);
                    }
                }
                prop_assert_eq!(writers[which].written(), references[which].written());
            }
        }
    }
}
