// SPDX-License-Identifier: Apache-2.0
//! Positions in packed rings (virtio 1.2, section 2.8.1).

use super::layout::packed;

/// A slot of the ring, and the wrap counter there (section 2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) slot: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// Returns the position of 15 bits and a wrap counter; `None` if the ring has no such slot.
    pub(crate) fn from_bits(bits: u16, size: u16) -> Option<Self> {
        let slot = bits & !packed::WRAP;
        (slot < size).then_some(Self {
            slot,
            wrap: bits & packed::WRAP != 0,
        })
    }

    pub(crate) fn bits(self) -> u16 {
        self.slot | if self.wrap { packed::WRAP } else { 0 }
    }

    /// Returns the position some slots ahead, at most the size of the ring.
    #[inline(always)]
    pub(crate) fn advanced(self, slots: u16, size: u16) -> Self {
        let slot = u32::from(self.slot) + u32::from(slots);
        if slot < u32::from(size) {
            return Self {
                slot: slot as u16,
                wrap: self.wrap,
            };
        }
        Self {
            slot: (slot - u32::from(size)) as u16,
            wrap: !self.wrap,
        }
    }
}
