// SPDX-License-Identifier: Apache-2.0
//! Frames that are written and read where they lie in a ring in shared memory, without packet buffers ([`crate::Burst`]).

use quietwire_memory::Span;

pub use quietwire_memory::SlotBuffer;

use super::counters::QueueCounters;
use super::transfer::{Next, Outcome, Sink, Source, count_malformed, notify};
use crate::BURST_MAX;

/// Octets of a frame that is read from a cache line.
const SHORT: usize = 64;
/// Octets of the longest frame of any ring.
const LONGEST: usize = 65_535;

/// Source of frames, which writes them into the buffers of a ring.
pub trait FrameSource {
    /// Returns the length of the next frame, octets without FCS.
    fn next_length(&self) -> usize;

    /// Returns a number of frames, from the next one on, that have the same length; at least 1.
    #[inline(always)]
    fn equally_long(&self) -> usize {
        1
    }

    /// Writes the next frame to the start of a buffer, which has at least [`Self::next_length`] octets.
    fn write(&mut self, buffer: SlotBuffer<'_>);

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

    /// Returns room for a frame, at most the longest.
    pub(crate) fn room(&mut self, length: usize) -> &mut [u8] {
        self.0.get_mut(..length).unwrap_or_default()
    }

    /// Has a frame in several pieces read. Returns its length.
    pub(crate) fn read_pieces<'ring>(
        &mut self,
        pieces: impl Iterator<Item = Span<'ring>>,
        reader: &mut impl FrameReader,
    ) -> usize {
        let mut length = 0;
        for piece in pieces {
            let room = self.0.get_mut(length..).unwrap_or_default();
            length += piece.copy_to(room);
        }
        reader.read(self.0.get(..length).unwrap_or_default());
        length
    }
}

/// The sending end of a ring whose buffers frames are written into.
pub(crate) trait BufferSink: Sink {
    /// Returns the buffer of the next free slot, for a frame of `length` octets. [`Self::fill`] makes it the next frame.
    ///
    /// # Errors
    /// [`Outcome::Full`] if no slot is free, [`Outcome::Refused`] if the frame does not fit into one buffer.
    fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, Outcome>;

    /// Makes the first `length` octets of the buffer that [`Self::buffer`] returned the next frame.
    fn fill(&mut self, length: usize);

    /// Fills up to `most` free slots with frames of `length` octets each, which `write` writes into their buffers. Ends early at a slot
    /// for which [`Self::buffer`] has an error. Returns the number of frames.
    #[inline(always)]
    fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        mut write: impl FnMut(SlotBuffer<'_>),
    ) -> usize {
        let mut filled = 0;
        while filled < most {
            let Ok(buffer) = self.buffer(length) else {
                break;
            };
            write(buffer);
            self.fill(length);
            filled += 1;
        }
        filled
    }

    /// Copies a frame into as many buffers as it requires.
    fn put_octets(&mut self, frame: &[u8]) -> Outcome;
}

/// Writes up to `count` frames of a source into free slots, and publishes them.
// Not inlined, so that the loop has all registers.
#[inline(never)]
pub(crate) fn write<S: BufferSink>(
    sink: &mut S,
    count: usize,
    source: &mut impl FrameSource,
    scratch: &mut Scratch,
    counters: &QueueCounters,
) -> FramesTaken {
    sink.ready(count);
    let (mut taken, mut octets) = (FramesTaken::default(), 0);
    while taken.written < count {
        let length = source.next_length();
        let row = source.equally_long().min(count - taken.written);
        let filled = sink.fill_each(row, length, |buffer| source.write(buffer));
        taken.written += filled;
        taken.sent += filled;
        octets += (filled * length) as u64;
        if filled == row {
            continue;
        }
        match sink.buffer(length) {
            // A slot became free meanwhile.
            Ok(buffer) => {
                source.write(buffer);
                sink.fill(length);
            }
            Err(Outcome::Full) => break,
            Err(Outcome::Refused | Outcome::Accepted) => {
                let frame = scratch.room(length);
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
        notify(sink, counters);
        counters.frames.add(taken.sent as u64);
        counters.octets.add(octets);
    }
    count_malformed(sink.take_malformed(), counters);
    taken
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
/// Frames longer than `limit` octets (without FCS), and those with an offload, which a ring read in place does not negotiate, are
/// dropped and counted.
#[inline(never)]
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
    let (mut frames, mut octets) = (0, 0);
    let mut passed = 0;
    while passed < ready {
        passed += source.take_contiguous(
            ready - passed,
            limit as usize,
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
        if passed < ready {
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
