// SPDX-License-Identifier: Apache-2.0
//! Words of descriptors, and the buffers that a client's descriptors refer to.

/// Returns the first word of a descriptor.
#[inline(always)]
pub(super) fn filled(region: u16, length: u32, has_next: bool) -> u64 {
    u64::from(has_next) | (u64::from(region) << 16) | (u64::from(length) << 32)
}

/// The buffers of a client's ring: one per slot, at fixed offsets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) region: u16,
    pub(super) start: u32,
    pub(super) stride: u32,
    pub(super) size: u32,
}

impl Buffers {
    /// Returns the offset of a slot's buffer.
    #[inline(always)]
    pub(super) fn offset(&self, slot: u16) -> u32 {
        self.start
            .wrapping_add(u32::from(slot).wrapping_mul(self.stride))
    }
}
