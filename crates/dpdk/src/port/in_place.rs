// SPDX-License-Identifier: Apache-2.0
//! Frames that are written and read where they lie in a ring in shared memory, without packet buffers ([`crate::Burst`]).

use quietwire_memory::Span;

pub use quietwire_memif::ring::SlotBuffer;

/// Octets of a frame that is read from a cache line.
const SHORT: usize = 64;
/// Octets of the longest frame of any ring.
const LONGEST: usize = 65_535;

/// Source of frames, which writes them into the buffers of a ring.
pub trait FrameSource {
    /// Returns the length of the next frame, octets without FCS.
    fn next_length(&self) -> usize;

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

    /// Called with each frame, octets without FCS.
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
