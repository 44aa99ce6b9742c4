// SPDX-License-Identifier: Apache-2.0
//! Positions in packed rings (virtio 1.2, section 2.8.1).

use super::layout::{packed, split};
use crate::narrow;

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
        let slot = u32::from(self.slot).wrapping_add(u32::from(slots));
        match slot.checked_sub(u32::from(size)) {
            None => Self {
                slot: narrow::low_u16(slot.into()),
                wrap: self.wrap,
            },
            Some(slot) => Self {
                slot: narrow::low_u16(slot.into()),
                wrap: !self.wrap,
            },
        }
    }

    /// Returns true if the last `slots` slots before this position include the one that the other side's event suppression structure
    /// names (section 2.8.14).
    #[inline(always)]
    pub(crate) fn has_passed(self, off_wrap: u16, slots: u16, size: u16) -> bool {
        let mut due = off_wrap & !packed::WRAP;
        if (off_wrap & packed::WRAP != 0) != self.wrap {
            due = due.wrapping_sub(size);
        }
        split::needs_event(due, self.slot, self.slot.wrapping_sub(slots))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes of small rings. Those of packed rings need not be powers of two.
    const SIZES: std::ops::RangeInclusive<u16> = 1..=9;

    /// Returns the position of a slot numbered from the start of the first turn.
    fn at(number: u32, size: u16) -> Position {
        let (turn, slot) = (number / u32::from(size), number % u32::from(size));
        Position {
            slot: u16::try_from(slot).unwrap(),
            wrap: turn.is_multiple_of(2),
        }
    }

    #[test]
    fn every_position_advances_by_every_number_of_slots() {
        for size in SIZES.chain([32_767, 32_768]) {
            let numbers: Vec<u32> = match size {
                0..=9 => (0..2 * u32::from(size)).collect(),
                _ => (0..4).map(|turn| turn * u32::from(size) / 2 + 1).collect(),
            };
            for number in numbers {
                let position = at(number, size);
                for slots in 0..=size {
                    let expected = at(number + u32::from(slots), size);
                    assert_eq!(position.advanced(slots, size), expected);
                }
                assert_eq!(Position::from_bits(position.bits(), size), Some(position));
            }
        }
    }

    #[test]
    fn all_bits_are_a_position_or_beyond_the_ring() {
        for size in SIZES.chain([32_767, 32_768]) {
            for bits in 0..=u16::MAX {
                let position = Position::from_bits(bits, size);
                assert_eq!(position.is_some(), bits & 0x7fff < size);
                assert!(position.is_none_or(|position| position.bits() == bits));
            }
        }
    }

    #[test]
    fn every_event_within_the_last_slots_is_due() {
        for size in SIZES {
            for end in u32::from(size)..3 * u32::from(size) {
                for slots in 0..=size {
                    // Up to a turn back and a turn ahead: the wrap counter names no others.
                    for event in end - u32::from(size)..end + u32::from(size) {
                        let named = at(event, size).bits();
                        let expected = (end - u32::from(slots)..end).contains(&event);
                        let due = at(end, size).has_passed(named, slots, size);
                        assert_eq!(due, expected, "{size} {end} {slots} {event}");
                    }
                }
            }
        }
    }
}
