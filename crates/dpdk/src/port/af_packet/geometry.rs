// SPDX-License-Identifier: Apache-2.0
//! Number and size of the slots of a packet ring (Documentation/networking/packet_mmap.rst).

// The kernel refuses a ring that is too large.

use nix::libc;

/// Slots per block. A block consists of whole pages and has no remainder, so all slots of a ring are contiguous.
const SLOTS_PER_BLOCK: u32 = 16;
/// linux/if_packet.h, TPACKET_ALIGNMENT.
pub(super) const ALIGNMENT: usize = 16;
/// Number and size of a ring's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) slots: u32,
    pub(super) slot_size: u32,
}

impl Geometry {
    /// Returns a geometry of at least `slots` slots (a power of two) with space for `space` octets each.
    pub(super) fn new(slots: u16, space: usize, page_size: usize) -> Self {
        let step = page_size.checked_div(SLOTS_PER_BLOCK as usize);
        let step = step.unwrap_or_default().max(ALIGNMENT);
        let slots = u32::from(slots).next_power_of_two().max(SLOTS_PER_BLOCK);
        Self {
            slots,
            slot_size: u32::try_from(space.next_multiple_of(step)).unwrap_or(u32::MAX),
        }
    }

    /// Returns the request for the kernel.
    pub(super) const fn request(self) -> libc::tpacket_req {
        libc::tpacket_req {
            tp_block_size: SLOTS_PER_BLOCK.saturating_mul(self.slot_size),
            tp_block_nr: self.slots / SLOTS_PER_BLOCK,
            tp_frame_size: self.slot_size,
            tp_frame_nr: self.slots,
        }
    }

    /// Returns the size of the ring, octets.
    pub(super) const fn length(self) -> usize {
        (self.slots as usize).saturating_mul(self.slot_size as usize)
    }
}
