// SPDX-License-Identifier: Apache-2.0
//! Frames that are written and read where they lie in a ring in shared memory, without packet buffers ([`crate::Burst`]).

use quietwire_memory::Span;

pub use quietwire_memory::SlotBuffer;

use super::counters::QueueCounters;
use super::transfer::{Next, Outcome, Sink, Source, count_malformed};
use crate::BURST_MAX;

/// Octets of a frame that is read from a cache line.
const SHORT: usize = 64;
/// Octets of the longest frame of any ring.
const LONGEST: usize = 65_535;

/// Free slots of a ring.
pub trait FreeSlots {
    /// Fills up to `most` free slots with frames of `length` octets each, which `write` writes into their buffers. Ends early if no slot
    /// is free, a frame does not fit into one buffer, or `write` returns false: that slot stays free. Returns the number of frames.
    fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        write: impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize;
}

/// Source of frames, which writes them into the buffers of a ring.
pub trait FrameSource {
    /// Returns the length of the next frame, octets without FCS.
    fn next_length(&self) -> usize;

    /// Returns a number of frames, from the next one on, that have the same length; at least 1.
    #[inline(always)]
    fn equally_long(&self) -> usize {
        1
    }

    /// Returns the number of octets, from the first on, that [`Self::write`] writes into a buffer with a mark of the source. Default:
    /// [`Self::next_length`].
    #[inline(always)]
    fn changed_length(&self) -> usize {
        self.next_length()
    }

    /// Writes the next frame to the start of a buffer, which has at least [`Self::next_length`] octets.
    fn write(&mut self, buffer: SlotBuffer<'_>);

    /// Writes the next frames, at most `most` of `length` octets each, into free slots, up to a frame that only [`Self::write`] can write.
    /// Returns their number. A source that keeps its state in local variables meanwhile has it in registers: frames are written to memory
    /// that could be the source's own for all that the compiler knows.
    #[inline(always)]
    fn write_row(&mut self, slots: &mut impl FreeSlots, most: usize, length: usize) -> usize {
        slots.fill_each(
            most,
            length,
            #[inline(always)]
            |buffer| {
                self.write(buffer);
                true
            },
        )
    }

    /// Writes the next frame into private memory of [`Self::next_length`] octets. The ring distributes it over several buffers.
    fn write_apart(&mut self, frame: &mut [u8]);
}

/// Frames of a source that a ring took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FramesTaken {
    /// Frames that were sent.
    pub sent: usize,
    /// Frames that the source wrote. One that was not sent may be among them.
    pub written: usize,
}

/// Filled slots of a ring.
pub trait FilledSlots {
    /// Calls `take` with each next frame, octets without FCS, at most `most`, up to the first that is not read in place, or for which
    /// `take` returns false. That frame stays. Returns their number.
    fn take_while(&mut self, most: usize, take: impl FnMut(Span<'_>) -> bool) -> usize;
}

/// Frames of a row that a reader took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RowTaken {
    /// Number of frames.
    pub frames: usize,
    /// Octets of these frames.
    pub octets: u64,
}

/// Reader of the frames of a ring.
pub trait FrameReader {
    /// Called before the first frame of a burst, which has arrived by now.
    fn begin(&mut self);

    /// Called with each frame that lies in one piece, octets without FCS. Returns true if the frame was handled. Otherwise, it is copied
    /// and passed to [`Self::read`], and may have changed: nothing that was read here may count.
    #[inline(always)]
    fn read_in_place(&mut self, frame: Span<'_>) -> bool {
        let _ = frame;
        false
    }

    /// Called with the copy of each other frame, octets without FCS.
    fn read(&mut self, frame: &[u8]);

    /// Reads the next frames where they lie, at most `most`, as long as they are those that the reader expects. The other frames stay.
    #[inline(always)]
    fn read_row(&mut self, slots: &mut impl FilledSlots, most: usize) -> RowTaken {
        let _ = (slots, most);
        RowTaken::default()
    }

    /// Returns the number of frames, at least 1, that are read one by one before the next call of [`Self::read_row`].
    #[inline(always)]
    fn one_by_one(&self) -> usize {
        usize::MAX
    }
}

/// The filled slots of a ring, for a reader.
struct Filled<'ring, S> {
    source: &'ring mut S,
    /// Octets of the longest frame.
    longest: usize,
}

impl<S: Source> FilledSlots for Filled<'_, S> {
    #[inline(always)]
    fn take_while(&mut self, most: usize, take: impl FnMut(Span<'_>) -> bool) -> usize {
        self.source.take_while(most, self.longest, take)
    }
}

/// Private memory for one frame of a ring.
#[derive(Debug)]
pub struct Scratch(Box<[u8]>);

impl Default for Scratch {
    fn default() -> Self {
        Self(vec![0; LONGEST].into_boxed_slice())
    }
}

impl Scratch {
    /// Has a frame read. Returns its length.
    #[inline(always)]
    pub(crate) fn read(&mut self, frame: Span<'_>, reader: &mut impl FrameReader) -> usize {
        let length = frame.len();
        if reader.read_in_place(frame) {
            return length;
        }
        if length <= SHORT {
            let mut octets = [0; SHORT];
            frame.copy_to(&mut octets);
            reader.read(octets.get(..length).unwrap_or_default());
        } else {
            frame.copy_to(&mut self.0);
            reader.read(self.0.get(..length).unwrap_or_default());
        }
        length
    }

    /// Returns space for a frame, at most the longest.
    pub(crate) fn space(&mut self, length: usize) -> &mut [u8] {
        self.0.get_mut(..length).unwrap_or_default()
    }

    /// Has a frame in several pieces read. Returns its length.
    pub(crate) fn read_pieces<'ring>(
        &mut self,
        pieces: impl Iterator<Item = Span<'ring>>,
        reader: &mut impl FrameReader,
    ) -> usize {
        let mut length = 0_usize;
        for piece in pieces {
            let space = self.0.get_mut(length..).unwrap_or_default();
            length = length.saturating_add(piece.copy_to(space));
        }
        reader.read(self.0.get(..length).unwrap_or_default());
        length
    }
}

/// The sending end of a ring whose buffers frames are written into.
pub(crate) trait BufferSink: Sink {
    /// Announces frames of `length` octets, of which the first `changed` are written into a buffer that keeps its frame.
    #[inline(always)]
    fn announce(&mut self, length: usize, changed: usize) {
        let _ = (length, changed);
    }

    /// Returns the buffer of the next free slot, for a frame of `length` octets. [`Self::fill`] makes it the next frame.
    ///
    /// # Errors
    /// [`Outcome::Full`] if no slot is free, [`Outcome::Refused`] if the frame does not fit into one buffer.
    fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, Outcome>;

    /// Makes the first `length` octets of the buffer that [`Self::buffer`] returned the next frame.
    fn fill(&mut self, length: usize);

    /// Fills up to `most` free slots with frames of `length` octets each, which `write` writes into their buffers. Ends early at a slot
    /// for which [`Self::buffer`] has an error or `write` returns false. Returns the number of frames.
    #[inline(always)]
    fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        mut write: impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize {
        let mut filled = 0_usize;
        while filled < most {
            let Ok(buffer) = self.buffer(length) else {
                break;
            };
            if !write(buffer) {
                break;
            }
            self.fill(length);
            // At most `most`.
            filled = filled.wrapping_add(1);
        }
        filled
    }

    /// Copies a frame into as many buffers as it requires.
    fn put_octets(&mut self, frame: &[u8]) -> Outcome;

    /// Notifies the peer if its request is known without a barrier. Returns the number of notifications. [`Self::settle`] makes up for
    /// a request that was missed.
    #[inline(always)]
    fn notify_known(&mut self) -> u64 {
        self.notify()
    }

    /// Notifies the peer if [`Self::notify_known`] missed its request. Returns the number of notifications.
    #[inline(always)]
    fn settle(&mut self) -> u64 {
        0
    }
}

/// The free slots of a ring, for a source.
struct Free<'ring, S>(&'ring mut S);

impl<S: BufferSink> FreeSlots for Free<'_, S> {
    #[inline(always)]
    fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        write: impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize {
        self.0.fill_each(most, length, write)
    }
}

/// Writes up to `count` frames of a source into free slots, and publishes them. The peer may miss a notification until [`settle`]: a
/// barrier after each burst would wait until all of its writes have reached the cache.
// Not inlined, so that the loop has all registers.
#[inline(never)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "counts of one call: at most `count` frames, which have at most 64 KiB each"
)]
pub(crate) fn write<S: BufferSink>(
    sink: &mut S,
    count: usize,
    source: &mut impl FrameSource,
    scratch: &mut Scratch,
    counters: &QueueCounters,
) -> FramesTaken {
    sink.announce(source.next_length(), source.changed_length());
    sink.ready(count);
    let (mut taken, mut octets) = (FramesTaken::default(), 0);
    while taken.written < count {
        let length = source.next_length();
        let row = source.equally_long().min(count - taken.written);
        let filled = source.write_row(&mut Free(sink), row, length);
        taken.written += filled;
        taken.sent += filled;
        octets += (filled * length) as u64;
        if filled == row {
            continue;
        }
        match sink.buffer(length) {
            // A slot became free meanwhile, or the source has to write the frame in another way.
            Ok(buffer) => {
                source.write(buffer);
                sink.fill(length);
            }
            Err(Outcome::Full) => break,
            Err(Outcome::Refused | Outcome::Accepted) => {
                let frame = scratch.space(length);
                source.write_apart(frame);
                if !put(sink, frame, counters) {
                    taken.written += 1;
                    continue;
                }
            }
        }
        taken.written += 1;
        taken.sent += 1;
        octets += length as u64;
    }
    if taken.sent > 0 {
        sink.publish();
        count_notifications(sink.notify_known(), counters);
        counters.frames.add(taken.sent as u64);
        counters.octets.add(octets);
    }
    count_malformed(sink.take_malformed(), counters);
    taken
}

/// Notifies the peer of frames written by [`write()`] if it requests that, and that is not known yet.
pub(crate) fn settle<S: BufferSink>(sink: &mut S, counters: &QueueCounters) {
    count_notifications(sink.settle(), counters);
}

#[inline(always)]
fn count_notifications(count: u64, counters: &QueueCounters) {
    if count > 0 {
        counters.notifications.add(count);
    }
}

/// Puts a frame that is longer than a buffer into the ring. Returns false if it was not sent.
#[cold]
#[inline(never)]
fn put<S: BufferSink>(sink: &mut S, frame: &[u8], counters: &QueueCounters) -> bool {
    match sink.put_octets(frame) {
        Outcome::Accepted => true,
        Outcome::Full => false,
        Outcome::Refused => {
            counters.refused.add(1);
            false
        }
    }
}

/// Reads up to `most` frames: where they lie, or from a copy, because the peer can change them at any time. Returns the number of frames.
/// Frames longer than `limit` octets (without FCS), and those with an offload, which a port read in place does not negotiate
/// ([`crate::PortOptions::uses_card_offloads`]), are dropped and counted.
#[inline(never)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "counts of a burst: at most BURST_MAX frames, which have at most 64 KiB each"
)]
pub(crate) fn read<S: Source>(
    source: &mut S,
    most: usize,
    scratch: &mut Scratch,
    reader: &mut impl FrameReader,
    limit: u32,
    counters: &QueueCounters,
) -> usize {
    let ready = source.ready(most.min(BURST_MAX));
    if ready == 0 {
        count_malformed(source.take_malformed(), counters);
        return 0;
    }
    reader.begin();
    let longest = limit as usize;
    let (mut frames, mut octets) = (0, 0);
    let mut passed = 0;
    while passed < ready {
        let row = reader.read_row(&mut Filled { source, longest }, ready - passed);
        frames += row.frames;
        octets += row.octets;
        passed += row.frames;
        let apart = reader.one_by_one().min(ready - passed);
        let taken = source.take_contiguous(
            apart,
            longest,
            #[inline(always)]
            |frame, offload| match offload {
                None => {
                    octets += scratch.read(frame, reader) as u64;
                    frames += 1;
                }
                Some(offload) if S::is_complete(offload) => counters.too_long.add(1),
                Some(_) => counters.malformed.add(1),
            },
        );
        passed += taken;
        if taken < apart {
            match read_pieces(source, scratch, reader, limit) {
                Pieces::Frame(length) => {
                    octets += length as u64;
                    frames += 1;
                }
                Pieces::TooLong => counters.too_long.add(1),
                Pieces::Malformed => counters.malformed.add(1),
                Pieces::Missing => break,
            }
            passed += 1;
        }
    }
    source.release();
    counters.frames.add(frames as u64);
    counters.octets.add(octets);
    count_malformed(source.take_malformed(), counters);
    frames
}

/// A frame in several pieces.
enum Pieces {
    /// It was read and has this number of octets.
    Frame(usize),
    TooLong,
    Malformed,
    /// There is none, or not all of it.
    Missing,
}

/// Reads a frame in several pieces.
#[cold]
#[inline(never)]
fn read_pieces<S: Source>(
    source: &mut S,
    scratch: &mut Scratch,
    reader: &mut impl FrameReader,
    limit: u32,
) -> Pieces {
    let frame = match source.next() {
        Some(Next::Frame(frame)) => frame,
        Some(Next::Malformed) => return Pieces::Malformed,
        None => return Pieces::Missing,
    };
    if !S::is_complete(frame.offload) {
        return Pieces::Malformed;
    }
    let pieces = std::iter::once(frame.first).chain(frame.rest);
    let length: usize = pieces.clone().map(|piece| piece.len()).sum();
    if length > limit as usize {
        return Pieces::TooLong;
    }
    Pieces::Frame(scratch.read_pieces(pieces, reader))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use quietwire_memory::Mapping;

    use super::*;
    use crate::port::transfer::Outgoing;

    /// Octets of a slot's buffer.
    const BUFFER: usize = 128;

    /// A ring with free slots, all with the same buffer, that records its calls.
    struct Slots {
        memory: Mapping,
        free: usize,
        calls: Vec<&'static str>,
    }

    impl Slots {
        fn new(free: usize) -> Self {
            Self {
                memory: Mapping::create("slots", BUFFER).unwrap().0,
                free,
                calls: Vec::new(),
            }
        }
    }

    impl Sink for Slots {
        fn ready(&mut self, _: usize) {}

        fn put(&mut self, _: &Outgoing<'_>) -> Outcome {
            Outcome::Full
        }

        fn publish(&mut self) {
            self.calls.push("publish");
        }

        fn notify(&mut self) -> u64 {
            self.calls.push("notify");
            1
        }

        fn take_malformed(&mut self) -> u64 {
            0
        }
    }

    impl BufferSink for Slots {
        fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, Outcome> {
            match (self.free, length) {
                (0, _) => Err(Outcome::Full),
                (_, 1..=BUFFER) => Ok(SlotBuffer {
                    octets: self.memory.span(0, BUFFER).unwrap(),
                    mark: None,
                }),
                _ => Err(Outcome::Refused),
            }
        }

        fn fill(&mut self, _: usize) {
            self.free -= 1;
        }

        fn put_octets(&mut self, frame: &[u8]) -> Outcome {
            match self.free.checked_sub(frame.len().div_ceil(BUFFER)) {
                Some(free) => {
                    self.free = free;
                    Outcome::Accepted
                }
                None => Outcome::Full,
            }
        }
    }

    /// Frames of these lengths, and those written so far: the length, and whether it was written into a slot.
    struct Frames {
        next: VecDeque<usize>,
        written: Vec<(usize, bool)>,
    }

    impl Frames {
        fn take(&mut self, is_in_place: bool) {
            let length = self.next.pop_front().unwrap();
            self.written.push((length, is_in_place));
        }
    }

    impl FrameSource for Frames {
        fn next_length(&self) -> usize {
            self.next[0]
        }

        fn equally_long(&self) -> usize {
            let first = self.next[0];
            self.next
                .iter()
                .take_while(|length| **length == first)
                .count()
        }

        fn write(&mut self, _: SlotBuffer<'_>) {
            self.take(true);
        }

        fn write_apart(&mut self, frame: &mut [u8]) {
            assert_eq!(frame.len(), self.next[0]);
            self.take(false);
        }
    }

    /// Frames that end each row at its second frame.
    struct Interrupted(Frames);

    impl FrameSource for Interrupted {
        fn next_length(&self) -> usize {
            self.0.next_length()
        }

        fn equally_long(&self) -> usize {
            self.0.equally_long()
        }

        fn write(&mut self, buffer: SlotBuffer<'_>) {
            self.0.write(buffer);
        }

        fn write_row(&mut self, slots: &mut impl FreeSlots, most: usize, length: usize) -> usize {
            let mut is_first = true;
            slots.fill_each(most, length, |buffer| {
                let is_written = std::mem::take(&mut is_first);
                if is_written {
                    self.0.write(buffer);
                }
                is_written
            })
        }

        fn write_apart(&mut self, frame: &mut [u8]) {
            self.0.write_apart(frame);
        }
    }

    #[test]
    fn frames_that_a_source_leaves_out_of_a_row_are_written_one_by_one() {
        let mut source = Interrupted(Frames {
            next: [60; 7].into(),
            written: Vec::new(),
        });
        let (mut slots, counters) = (Slots::new(6), QueueCounters::default());
        let mut scratch = Scratch::default();
        let taken = write(&mut slots, 7, &mut source, &mut scratch, &counters);
        assert_eq!((taken.sent, taken.written), (6, 6));
        assert_eq!(source.0.written, [(60, true); 6]);
        assert_eq!((counters.frames.get(), counters.octets.get()), (6, 360));
        assert_eq!(slots.calls, ["publish", "notify"]);
    }

    /// Slots with a frame each, all in the same place. The octets of a frame are its length.
    struct FilledWith {
        memory: Mapping,
        lengths: VecDeque<u8>,
    }

    impl FilledWith {
        fn next_place(&self) -> Option<Span<'_>> {
            let length = *self.lengths.front()?;
            let place = self.memory.span(0, usize::from(length)).unwrap();
            place.copy_from(&[length; BUFFER]);
            Some(place)
        }
    }

    impl Source for FilledWith {
        type Offload = ();
        type Rest<'ring> = std::iter::Empty<Span<'ring>>;

        fn ready(&mut self, most: usize) -> usize {
            self.lengths.len().min(most)
        }

        fn take_contiguous(
            &mut self,
            most: usize,
            longest: usize,
            mut take: impl FnMut(Span<'_>, Option<()>),
        ) -> usize {
            let mut taken = 0;
            while taken < most
                && let Some(place) = self.next_place()
            {
                take(place, (place.len() > longest).then_some(()));
                self.lengths.pop_front();
                taken += 1;
            }
            taken
        }

        fn take_while(
            &mut self,
            most: usize,
            longest: usize,
            mut take: impl FnMut(Span<'_>) -> bool,
        ) -> usize {
            let mut taken = 0;
            while taken < most
                && let Some(place) = self.next_place()
                && place.len() <= longest
                && take(place)
            {
                self.lengths.pop_front();
                taken += 1;
            }
            taken
        }

        fn next(&mut self) -> Option<Next<'_, Self::Rest<'_>, ()>> {
            None
        }

        fn release(&mut self) {}

        fn take_malformed(&mut self) -> u64 {
            0
        }

        fn length_max((): (), limit: u32) -> u32 {
            limit
        }

        fn is_complete((): ()) -> bool {
            true
        }

        fn complete((): (), _: &mut crate::burst::Mbuf<'_>, _: u32) -> bool {
            true
        }
    }

    /// Expects frames that are as long as the last one. Records lengths: of rows, or of single frames with their number.
    #[derive(Default)]
    struct Rows {
        last: usize,
        one_by_one: usize,
        observed: Vec<(usize, usize)>,
    }

    impl FrameReader for Rows {
        fn begin(&mut self) {}

        fn read_in_place(&mut self, frame: Span<'_>) -> bool {
            self.last = frame.len();
            self.observed.push((1, frame.len()));
            true
        }

        fn read(&mut self, _: &[u8]) {}

        fn read_row(&mut self, slots: &mut impl FilledSlots, most: usize) -> RowTaken {
            let last = self.last;
            let frames = slots.take_while(most, |frame| frame.len() == last);
            self.observed.extend((frames > 0).then_some((frames, last)));
            RowTaken {
                frames,
                octets: (frames * last) as u64,
            }
        }

        fn one_by_one(&self) -> usize {
            self.one_by_one
        }
    }

    #[test]
    fn rows_that_a_reader_expects_are_read_together_and_other_frames_one_by_one() {
        let observed = |one_by_one| {
            let mut source = FilledWith {
                memory: Mapping::create("filled", BUFFER).unwrap().0,
                lengths: [60, 60, 60, 100, 70, 70, 100, 100, 70].into(),
            };
            let mut reader = Rows {
                one_by_one,
                ..Rows::default()
            };
            let (mut scratch, counters) = (Scratch::default(), QueueCounters::default());
            // One frame is left; those of 100 octets are too long.
            let read = read(&mut source, 8, &mut scratch, &mut reader, 90, &counters);
            assert_eq!((read, source.lengths.len()), (5, 1));
            assert_eq!((counters.frames.get(), counters.octets.get()), (5, 320));
            assert_eq!(counters.too_long.get(), 3);
            reader.observed
        };
        assert_eq!(observed(1), [(1, 60), (2, 60), (1, 70), (1, 70)]);
        let all = [(1, 60), (1, 60), (1, 60), (1, 70), (1, 70)];
        assert_eq!(observed(usize::MAX), all);
    }

    /// Writes six frames, the fourth of which requires two slots.
    fn write_six(free: usize) -> (FramesTaken, Slots, Vec<(usize, bool)>, [u64; 3]) {
        let mut slots = Slots::new(free);
        let mut frames = Frames {
            next: [60, 60, 60, 200, 60, 60].into(),
            written: Vec::new(),
        };
        let counters = QueueCounters::default();
        let mut scratch = Scratch::default();
        let taken = write(&mut slots, 6, &mut frames, &mut scratch, &counters);
        let counts = [
            counters.frames.get(),
            counters.octets.get(),
            counters.notifications.get(),
        ];
        (taken, slots, frames.written, counts)
    }

    #[test]
    fn rows_of_equally_long_frames_are_written_until_the_ring_is_full() {
        let (short, long) = ((60, true), (200, false));
        let (taken, slots, written, counts) = write_six(7);
        assert_eq!((taken.sent, taken.written), (6, 6));
        assert_eq!(written, [short, short, short, long, short, short]);
        assert_eq!((counts, slots.free), ([6, 500, 1], 0));
        assert_eq!(slots.calls, ["publish", "notify"]);
        // The frame of two slots takes the last ones.
        let (taken, _, written, counts) = write_six(5);
        assert_eq!((taken.sent, taken.written), (4, 4));
        assert_eq!(written, [short, short, short, long]);
        assert_eq!(counts, [4, 380, 1]);
        // It finds one only, which the frame after it takes.
        let (taken, _, written, counts) = write_six(4);
        assert_eq!((taken.sent, taken.written), (4, 5));
        assert_eq!(written, [short, short, short, long, short]);
        assert_eq!(counts, [4, 240, 1]);
        let (taken, slots, written, _) = write_six(0);
        assert_eq!(taken, FramesTaken::default());
        assert!(written.is_empty() && slots.calls.is_empty());
    }
}
