// SPDX-License-Identifier: Apache-2.0
//! Memory that frames are written into.

use quietwire_memory::Span;

/// Memory for one frame.
pub(super) trait FrameSpace {
    /// Writes octets from an offset on; nothing if they are not within the memory.
    fn put<const N: usize>(&mut self, at: usize, octets: [u8; N]);
}

/// Private memory.
impl FrameSpace for [u8] {
    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, octets: [u8; N]) {
        let place = self.get_mut(at..).and_then(<[u8]>::first_chunk_mut::<N>);
        if let Some(place) = place {
            *place = octets;
        }
    }
}

/// Memory shared with a peer. It is written only.
impl FrameSpace for Span<'_> {
    #[inline(always)]
    fn put<const N: usize>(&mut self, at: usize, octets: [u8; N]) {
        self.write_at(at, octets);
    }
}
