// SPDX-License-Identifier: Apache-2.0
//! Buffers that frames are written into where they lie in a ring.

use crate::Span;

/// The buffer of a ring's slot, to write a frame into.
#[derive(Debug)]
pub struct SlotBuffer<'ring> {
    /// The octets of the buffer, at least as many as the frame has.
    pub octets: Span<'ring>,
    /// Last note of the sender about the contents of the buffer: 0 for none. `None` if the buffer is the peer's, which may give
    /// another one for the slot each time.
    pub mark: Option<&'ring mut u32>,
}
