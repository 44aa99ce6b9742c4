// SPDX-License-Identifier: Apache-2.0
//! Frames with TCP or UDP data of up to 64 KiB: forwarded whole to peers that accept them, otherwise segmented.
//!
//! Only switches with a port that receives such frames run this code (`PortUri::has_segmentation`).

use quietwire_dpdk::{Burst, Eal, HeaderLengths, LargeKind, Mbuf, Mempool, TxQueue};
use quietwire_packet::{IPV6_HEADER_LENGTH, LargeFrame, SEGMENT_HEADERS_MAX, VLAN_TAG_LENGTH};

use super::lengths::measure;
use super::merge::{MergedKinds, Merger};
use crate::counters::PortCounters;
use quietwire_tables::drops::PortDrop;

/// Maximum number of segments of one frame. The limit bounds the work that a guest can cause with a small segment size. It corresponds to
/// 64 KiB in segments of 256 octets.
const SEGMENTS_MAX: usize = 256;

/// Resources for segmentation.
#[derive(Clone, Debug)]
pub(crate) struct Segmenter {
    /// Pool for segments.
    pool: Mempool,
    /// Maximum length of a frame on transmit, octets without FCS and tags.
    length_max: usize,
}

impl Segmenter {
    pub(crate) const fn new(pool: Mempool, length_max: usize) -> Self {
        Self { pool, length_max }
    }

    /// Returns true if a frame requires segmentation, by this switch or by the device.
    pub(super) fn concerns(frame: &Mbuf<'_>) -> bool {
        frame.segment_size().is_some()
    }

    /// Calls `sink` with each segment of a frame, in order. Returns false if the frame cannot be segmented, if there are too many segments,
    /// or if no buffer is available; the remaining data is lost in that case.
    pub(super) fn segment_into<'frame>(
        &self,
        frame: &'frame Mbuf<'_>,
        sink: impl FnMut(Mbuf<'frame>),
    ) -> bool {
        let headers = headers(frame);
        headers.is_some_and(|headers| self.cut(frame, &headers, LargeFrame::write, sink))
    }

    /// Calls `sink` with each segment like [`Self::segment_into`]. `write` writes the headers of a segment.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "segments lie within the data of a frame, of at most 64 KiB"
    )]
    fn cut<'frame>(
        &self,
        frame: &'frame Mbuf<'_>,
        headers: &LargeFrame,
        write: Write,
        mut sink: impl FnMut(Mbuf<'frame>),
    ) -> bool {
        let Some(size) = self.data_in_each(headers, frame) else {
            return false;
        };
        let (begin, data) = (headers.headers_length(), headers.data_length());
        let count = data.div_ceil(size);
        if count > SEGMENTS_MAX {
            return false;
        }
        for number in 0..count {
            let offset = number * size;
            let length = begin + size.min(data - offset);
            let segment = self.segment(frame, (headers, write), (number, offset), length);
            let Some(segment) = segment else {
                return false;
            };
            sink(segment);
        }
        true
    }

    /// Returns the segment of this number, whose data is at this offset of the frame's, with this length, octets.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "segments lie within the data of a frame, of at most 64 KiB, and are at most SEGMENTS_MAX"
    )]
    fn segment<'frame>(
        &self,
        frame: &'frame Mbuf<'_>,
        (headers, write): (&LargeFrame, Write),
        (number, offset): (usize, usize),
        length: usize,
    ) -> Option<Mbuf<'frame>> {
        let begin = headers.headers_length();
        let mut segment = frame.sibling(&self.pool, u16::try_from(length).ok()?)?;
        let octets = segment.octets_mut()?;
        let is_there = frame.read_at(begin + offset, octets.get_mut(begin..)?);
        if !is_there || !write(headers, octets, number as u16, offset) {
            return None;
        }
        segment.set_mark(frame.mark());
        Some(segment)
    }

    /// Returns the first segment of a frame, which stands for all of them: none is longer, and their addresses are the same. Returns `None`
    /// if the frame cannot be forwarded whole: it has too little data for two segments, its segments would be longer than a frame on
    /// transmit, its IPv4 header is damaged, or no buffer is available.
    pub(super) fn leader<'frame>(&self, frame: &'frame Mbuf<'_>) -> Option<Mbuf<'frame>> {
        let headers = headers(frame).filter(|headers| headers.is_sound())?;
        let size = self.data_in_each(&headers, frame)?;
        let is_as_requested = frame.segment_size() == u16::try_from(size).ok();
        if !is_as_requested || headers.data_length() <= size {
            return None;
        }
        let length = headers.headers_length().saturating_add(size);
        self.segment(frame, (&headers, LargeFrame::write), (0, 0), length)
    }

    /// Returns the frame to send whole, with a segmentation request if necessary. The error returns the frame unchanged.
    fn handed_on<'burst>(
        &self,
        tx: &TxQueue,
        frame: Mbuf<'burst>,
    ) -> Result<Mbuf<'burst>, Mbuf<'burst>> {
        let Some(headers) = headers(&frame) else {
            return Err(frame);
        };
        let kind = kind_of(&headers);
        if !tx.accepts_whole(kind, frame.length()) {
            return Err(frame);
        }
        if tx.cuts_frames() && !self.is_for_card(&headers, &frame) {
            return Err(frame);
        }
        let Some(sum) = headers.partial_checksum() else {
            return Err(frame);
        };
        let frame = frame.request_segments(lengths_of(&headers), kind, sum)?;
        tx.prepare(frame)
    }

    /// Returns a frame that is one segment or datagram as a complete frame: its checksum is left to the card of `tx`, or computed in place.
    /// The error returns the frame unchanged if it has to be cut, or is shared.
    pub(super) fn completed<'burst>(
        &self,
        tx: Option<&TxQueue>,
        mut frame: Mbuf<'burst>,
    ) -> Result<Mbuf<'burst>, Mbuf<'burst>> {
        let Some(headers) = self.headers_of_one(&frame) else {
            return Err(frame);
        };
        let card = tx.filter(|tx| is_summed_by(tx, &headers));
        let write: Write = match card {
            Some(_) => LargeFrame::write_partial,
            None => LargeFrame::write,
        };
        let octets = frame.octets_mut();
        if !octets.is_some_and(|octets| write(&headers, octets, 0, 0)) {
            return Err(frame);
        }
        frame.clear_segment_size();
        Ok(match card {
            Some(tx) => tx.leave_checksum(frame, lengths_of(&headers), kind_of(&headers)),
            None => frame,
        })
    }

    /// Returns the headers of a frame that is not shared, has all its data in one segment of the requested size, and no octets behind them.
    fn headers_of_one(&self, frame: &Mbuf<'_>) -> Option<LargeFrame> {
        let (length, size) = (frame.length() as usize, frame.segment_size()?);
        // Frames with many segments are left out before their headers are copied.
        let length_max = usize::from(size).saturating_add(SEGMENT_HEADERS_MAX);
        if length > length_max || !frame.is_exclusive() {
            return None;
        }
        let headers = headers(frame)?;
        let data = headers.data_length();
        let is_one = self.data_in_each(&headers, frame) == Some(usize::from(size))
            && data <= usize::from(size)
            && headers.headers_length().saturating_add(data) == length;
        is_one.then_some(headers)
    }

    /// Returns true if a card may cut a frame because it makes the same segments of it as [`Self::segment_into`]: at least two, with as much
    /// data as the sender requested, and no octets follow the data. Cards skip no extension headers of IPv6.
    fn is_for_card(&self, headers: &LargeFrame, frame: &Mbuf<'_>) -> bool {
        let Some(size) = self.data_in_each(headers, frame) else {
            return false;
        };
        let (begin, data) = (headers.headers_length(), headers.data_length());
        frame.segment_size() == u16::try_from(size).ok()
            && data > size
            && data.div_ceil(size) <= SEGMENTS_MAX
            && begin.saturating_add(data) == frame.length() as usize
            && (headers.is_ipv4() || headers.network_length() == IPV6_HEADER_LENGTH)
    }

    /// Returns the data per segment: as the sender requested. That of TCP is limited by the maximum frame length; datagrams keep their
    /// boundaries.
    fn data_in_each(&self, headers: &LargeFrame, frame: &Mbuf<'_>) -> Option<usize> {
        let tags = headers.ethernet_length().saturating_sub(14) / VLAN_TAG_LENGTH;
        let length_max = tags.saturating_mul(VLAN_TAG_LENGTH);
        let length_max = self.length_max.saturating_add(length_max);
        let space = length_max.checked_sub(headers.headers_length());
        let (requested, space) = (usize::from(frame.segment_size()?), space?);
        let size = requested.min(space);
        (size > 0 && (headers.is_tcp() || size == requested)).then_some(size)
    }
}

/// Writes the headers of a segment: [`LargeFrame::write`] or [`LargeFrame::write_partial`].
type Write = fn(&LargeFrame, &mut [u8], u16, usize) -> bool;

fn kind_of(headers: &LargeFrame) -> LargeKind {
    LargeKind {
        is_ipv4: headers.is_ipv4(),
        is_tcp: headers.is_tcp(),
        has_cwr: headers.has_cwr(),
    }
}

fn lengths_of(headers: &LargeFrame) -> HeaderLengths {
    HeaderLengths {
        ethernet: headers.ethernet_length(),
        network: headers.network_length(),
        transport: headers.transport_length(),
    }
}

/// Returns true if the card of a queue computes the checksum behind these headers. Drivers expect no extension headers of IPv6.
fn is_summed_by(tx: &TxQueue, headers: &LargeFrame) -> bool {
    let has_usual_network = headers.is_ipv4() || headers.network_length() == IPV6_HEADER_LENGTH;
    has_usual_network && tx.computes_checksum(kind_of(headers))
}

fn headers(frame: &Mbuf<'_>) -> Option<LargeFrame> {
    let octets = frame.octets();
    let front = octets.get(..SEGMENT_HEADERS_MAX).unwrap_or(octets);
    LargeFrame::read(front, frame.length() as usize)
}

/// A transmit queue to a port that gets frames in the form its peer accepts.
#[derive(Debug)]
pub(crate) struct SegmentingQueue {
    tx: TxQueue,
    segmenter: Segmenter,
    ready: Burst,
    /// True if segments must be merged.
    merges: bool,
}

impl SegmentingQueue {
    pub(crate) fn new(eal: &Eal, tx: TxQueue, segmenter: Segmenter) -> Self {
        Self {
            merges: tx.merges_segments(),
            tx,
            segmenter,
            ready: Burst::new(eal),
        }
    }

    pub(crate) fn into_queue(self) -> TxQueue {
        self.tx
    }

    /// Sends a burst and drops frames that the queue does not accept. Returns the number of frames sent, whole or in segments. If the burst
    /// has frames to segment, the number includes frames that the queue had no space for.
    #[inline(never)]
    pub(super) fn transmit(&mut self, burst: &mut Burst, counters: &PortCounters) -> usize {
        if self.merges && burst.len() > 1 {
            let accepts = MergedKinds::of(|kind| self.tx.accepts_whole(kind, 0));
            if !accepts.is_empty() {
                return self.transmit_merged(burst, accepts, counters);
            }
        }
        if !burst.has_tso_frames() {
            return send(&mut self.tx, burst, counters);
        }
        let mut sent = burst.len();
        for frame in burst.drain() {
            sent = sent.wrapping_sub(usize::from(!self.pass_on(frame, counters)));
        }
        send(&mut self.tx, &mut self.ready, counters);
        sent
    }

    /// Sends a burst whose segments are merged first.
    #[inline(never)]
    fn transmit_merged(
        &mut self,
        burst: &mut Burst,
        accepts: MergedKinds,
        counters: &PortCounters,
    ) -> usize {
        let mut sent = burst.len();
        let mut merger = Merger::new(accepts);
        let mut pass = |frame: Mbuf<'_>| {
            sent = sent.wrapping_sub(usize::from(!self.pass_on(frame, counters)));
        };
        for frame in burst.drain() {
            merger.push(frame, &mut pass);
        }
        merger.flush(&mut pass);
        counters.merged.add(merger.merged());
        send(&mut self.tx, &mut self.ready, counters);
        sent
    }

    /// Sends a frame in the form that the port accepts. Returns false if there is none and the frame is dropped.
    fn pass_on(&mut self, frame: Mbuf<'_>, counters: &PortCounters) -> bool {
        let Self {
            tx,
            segmenter,
            ready,
            ..
        } = self;
        if !Segmenter::concerns(&frame) {
            put(tx, ready, frame, counters);
            return true;
        }
        let frame = match segmenter.completed(Some(&*tx), frame) {
            Ok(frame) => {
                put(tx, ready, frame, counters);
                return true;
            }
            Err(frame) => frame,
        };
        let frame = match segmenter.handed_on(tx, frame) {
            Ok(frame) => {
                counters.tx_tso_frames.add(1);
                put(tx, ready, frame, counters);
                return true;
            }
            Err(frame) => frame,
        };
        let headers = headers(&frame);
        let is_cut = headers.is_some_and(|headers| {
            if !is_summed_by(tx, &headers) {
                let sink = |segment| put(tx, ready, segment, counters);
                return segmenter.cut(&frame, &headers, LargeFrame::write, sink);
            }
            let (lengths, kind) = (lengths_of(&headers), kind_of(&headers));
            segmenter.cut(&frame, &headers, LargeFrame::write_partial, |segment| {
                let segment = tx.leave_checksum(segment, lengths, kind);
                put(tx, ready, segment, counters);
            })
        });
        if is_cut {
            counters.segmented.add(1);
            true
        } else {
            counters.dropped(PortDrop::NotSegmented).add(1);
            false
        }
    }
}

/// Adds a frame to the ready burst, and sends the burst if it is full.
fn put(tx: &mut TxQueue, ready: &mut Burst, frame: Mbuf<'_>, counters: &PortCounters) {
    if ready.space() == 0 {
        send(tx, ready, counters);
    }
    // The burst has just been emptied.
    drop(ready.push(frame));
}

fn send(tx: &mut TxQueue, burst: &mut Burst, counters: &PortCounters) -> usize {
    let (mut octets, _) = measure(burst);
    let sent = tx.send(burst);
    octets = octets.saturating_sub(burst.take_refused());
    counters.tx_frames.add(sent as u64);
    if !burst.is_empty() {
        octets = octets.saturating_sub(measure(burst).0);
        counters.dropped(PortDrop::TxFull).add(burst.len() as u64);
        burst.free();
    }
    counters.tx_octets.add(octets);
    sent
}

#[cfg(test)]
mod tests {
    use quietwire_dpdk::MergedFrame;

    use super::*;
    use crate::testing::eal;

    /// Returns a frame with TCP data, the network header given, and octets behind the data.
    fn frame(network: &[u8], data: usize, behind: usize) -> Vec<u8> {
        let mut frame = vec![0_u8; 12];
        frame.extend(if network[0] >> 4 == 4 {
            [0x08, 0x00]
        } else {
            [0x86, 0xdd]
        });
        frame.extend(network);
        // 20 octets with ACK.
        frame.extend([0; 12]);
        frame.extend([0x50, 0x10, 0, 0, 0, 0, 0, 0]);
        frame.resize(frame.len() + data + behind, 0);
        let (at, length) = if network[0] >> 4 == 4 {
            (16, network.len() + 20 + data)
        } else {
            (18, network.len() - IPV6_HEADER_LENGTH + 20 + data)
        };
        frame[at..at + 2].copy_from_slice(&(length as u16).to_be_bytes());
        frame
    }

    #[test]
    fn a_card_gets_frames_that_it_cuts_as_the_switch_does() {
        let mut ipv4 = [0_u8; 20];
        (ipv4[0], ipv4[9]) = (0x45, 6);
        let mut ipv6 = [0_u8; IPV6_HEADER_LENGTH];
        (ipv6[0], ipv6[6]) = (0x60, 6);
        // Destination options (RFC 8200, section 4.6) with one PadN.
        let mut with_options = ipv6;
        with_options[6] = 60;
        let with_options = [&with_options[..], &[6, 0, 1, 4, 0, 0, 0, 0]].concat();
        let eal = eal();
        let pool = Mempool::new(&eal, "for-card", 511, 8192).unwrap();
        let segmenter = Segmenter::new(pool.clone(), 1514);
        for (network, data, behind, size, is_for_card) in [
            (&ipv4[..], 3000, 0, 1460, true),
            (&ipv4[..], 3000, 0, 1461, false),
            (&ipv4[..], 3000, 2, 1460, false),
            (&ipv4[..], 1001, 0, 1000, true),
            (&ipv4[..], 1000, 0, 1000, false),
            (&ipv4[..], 3000, 0, 12, true),
            (&ipv4[..], 3000, 0, 11, false),
            (&ipv6[..], 3000, 0, 1440, true),
            (&ipv6[..], 3000, 0, 1441, false),
            (&with_options[..], 3000, 0, 1000, false),
        ] {
            let octets = frame(network, data, behind);
            let frame = Mbuf::new(&eal, &pool, &octets).unwrap();
            let frame = MergedFrame::new(frame.into_exclusive().unwrap()).finish(size);
            let headers = headers(&frame).unwrap();
            assert_eq!(headers.data_length(), data);
            let is_so = segmenter.is_for_card(&headers, &frame);
            assert_eq!(is_so, is_for_card, "{data} + {behind} in {size}");
        }
    }

    #[test]
    fn a_frame_of_one_segment_is_completed_in_place() {
        let mut ipv4 = [0_u8; 20];
        (ipv4[0], ipv4[9]) = (0x45, 6);
        let eal = eal();
        let pool = Mempool::new(&eal, "one-segment", 511, 8192).unwrap();
        let segmenter = Segmenter::new(pool.clone(), 1514);
        for (data, behind, size, is_one) in [
            (1000, 0, 1000, true),
            (1000, 0, 1460, true),
            // Octets behind the data, two segments, and a segment longer than a frame.
            (1000, 2, 1000, false),
            (1000, 0, 999, false),
            (1461, 0, 1461, false),
        ] {
            let octets = frame(&ipv4, data, behind);
            let new = || {
                let frame = Mbuf::new(&eal, &pool, &octets).unwrap();
                MergedFrame::new(frame.into_exclusive().unwrap()).finish(size)
            };
            let completed = segmenter.completed(None, new());
            assert_eq!(completed.is_ok(), is_one, "{data} + {behind} in {size}");
            let Ok(completed) = completed else {
                continue;
            };
            assert_eq!(completed.segment_size(), None);
            // It equals the segment that a copy would be.
            let large = new();
            let mut segments = Vec::new();
            assert!(segmenter.segment_into(&large, |segment| segments.push(segment)));
            assert_eq!(segments.len(), 1);
            assert_eq!(segments[0].octets(), completed.octets());
            assert!(segmenter.completed(None, large.share()).is_err());
        }
    }
}
