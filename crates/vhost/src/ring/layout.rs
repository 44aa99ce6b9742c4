// SPDX-License-Identifier: Apache-2.0
//! Layouts of split virtqueues (virtio 1.2, section 2.7) and packed virtqueues (section 2.8).
//!
//! All integers are little-endian. Descriptors of both kinds are two 64-bit words, and are accessed as such.

use crate::narrow::{low_u16, low_u32};

/// Octets of a descriptor of either kind (sections 2.7.5 and 2.8.13).
pub const DESCRIPTOR_LEN: usize = 16;
/// 64-bit words of a descriptor.
pub const DESCRIPTOR_WORDS: usize = 2;
/// Alignment of descriptor tables and packed rings in octets (sections 2.7 and 2.8.10.1).
pub const DESCRIPTOR_ALIGN: u64 = 16;
/// Largest number of entries of a ring of either kind (sections 2.7 and 2.8.10.1).
pub const RING_SIZE_MAX: u16 = 32_768;

/// The descriptor continues in another one (section 2.7.5, `VIRTQ_DESC_F_NEXT`).
pub const FLAG_NEXT: u16 = 1;
/// The device may write to the buffer and may not read it (`VIRTQ_DESC_F_WRITE`).
pub const FLAG_WRITE: u16 = 2;
/// The buffer is a table of descriptors (`VIRTQ_DESC_F_INDIRECT`).
pub const FLAG_INDIRECT: u16 = 4;
/// The driver's wrap counter when it made the descriptor available (section 2.8.1, `VIRTQ_DESC_F_AVAIL`).
pub const FLAG_AVAIL: u16 = 1 << 7;
/// Equal to [`FLAG_AVAIL`] when the descriptor is used (section 2.8.1, `VIRTQ_DESC_F_USED`).
pub const FLAG_USED: u16 = 1 << 15;

/// Split rings (section 2.7).
pub mod split {
    /// Alignment of the available ring in octets.
    pub const AVAIL_ALIGN: u64 = 2;
    /// Alignment of the used ring in octets.
    pub const USED_ALIGN: u64 = 4;
    /// `flags` of the available ring: the driver wants no notification (section 2.7.6).
    pub const AVAIL_NO_INTERRUPT: u16 = 1;
    /// `flags` of the used ring: the device wants no notification (section 2.7.8).
    pub const USED_NO_NOTIFY: u16 = 1;

    /// Index of `flags` in the available or used ring, in 16-bit words.
    pub const FLAGS: usize = 0;
    /// Index of `idx` in the available or used ring, in 16-bit words.
    pub const INDEX: usize = 1;
    /// Index of `ring[0]` in the available ring, in 16-bit words.
    pub const AVAIL_RING: usize = 2;
    /// Offset of `ring[0]` in the available ring, in octets.
    pub const AVAIL_RING_OFFSET: u64 = 2 * AVAIL_RING as u64;
    /// Offset of `ring[0]` in the used ring, in octets. An entry is `id` and `len`, of 32 bits each.
    pub const USED_RING_OFFSET: u64 = 4;
    /// Octets of an entry of the used ring.
    pub const USED_ENTRY_LEN: u64 = 8;

    /// Returns the octets of a descriptor table.
    #[must_use]
    pub const fn descriptors_len(size: u16) -> usize {
        super::DESCRIPTOR_LEN.saturating_mul(size as usize)
    }

    /// Returns the 16-bit words of an available ring, `used_event` included.
    #[must_use]
    pub const fn avail_words(size: u16) -> usize {
        (size as usize).saturating_add(3)
    }

    /// Returns the octets of an available ring, `used_event` included.
    #[must_use]
    pub const fn avail_len(size: u16) -> usize {
        avail_words(size).saturating_mul(2)
    }

    /// Returns the index of `used_event` in the available ring, in 16-bit words (section 2.7.10).
    #[must_use]
    pub const fn used_event(size: u16) -> usize {
        AVAIL_RING.saturating_add(size as usize)
    }

    /// Returns the 16-bit words of a used ring, `avail_event` included.
    #[must_use]
    pub const fn used_words(size: u16) -> usize {
        (size as usize).saturating_mul(4).saturating_add(3)
    }

    /// Returns the octets of a used ring, `avail_event` included.
    #[must_use]
    pub const fn used_len(size: u16) -> usize {
        used_words(size).saturating_mul(2)
    }

    /// Returns the index of `avail_event` in the used ring, in 16-bit words (section 2.7.10).
    #[must_use]
    pub const fn avail_event(size: u16) -> usize {
        (size as usize).saturating_mul(4).saturating_add(2)
    }

    /// Returns the number of entries from number `from` up to an index of the other side; `None` if they exceed `space`, the number of
    /// entries that the other side may have added. The result is smaller than an earlier one if the index moved back.
    #[inline(always)]
    #[must_use]
    pub const fn entries_up_to(index: u16, from: u16, space: u16) -> Option<u16> {
        let entries = index.wrapping_sub(from);
        if entries <= space {
            Some(entries)
        } else {
            None
        }
    }

    /// Returns true if a notification is due by the event index (section 2.7.10): the other side requested one for entry
    /// `event`, and it is among the entries from `old` up to `new`.
    #[inline(always)]
    #[must_use]
    pub const fn needs_event(event: u16, new: u16, old: u16) -> bool {
        new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old)
    }
}

/// Packed rings (section 2.8).
pub mod packed {
    /// Octets of an event suppression structure (section 2.8.14): `off_wrap` in the low, `flags` in the high 16 bits.
    pub const EVENT_LEN: usize = 4;
    /// Alignment of an event suppression structure in octets (section 2.8.10.1).
    pub const EVENT_ALIGN: u64 = 4;
    /// `flags`: notifications are wanted (`RING_EVENT_FLAGS_ENABLE`).
    pub const EVENT_ENABLE: u16 = 0;
    /// `flags`: no notification is wanted (`RING_EVENT_FLAGS_DISABLE`).
    pub const EVENT_DISABLE: u16 = 1;
    /// `flags`: a notification is wanted for the descriptor that `off_wrap` names (`RING_EVENT_FLAGS_DESC`).
    pub const EVENT_DESCRIPTOR: u16 = 2;
    /// The wrap counter in `off_wrap`; the offset is below it.
    pub const WRAP: u16 = 1 << 15;

    /// Returns the octets of a ring.
    #[must_use]
    pub const fn ring_len(size: u16) -> usize {
        super::DESCRIPTOR_LEN.saturating_mul(size as usize)
    }

    /// Returns an event suppression structure.
    #[inline(always)]
    #[must_use]
    pub const fn event(off_wrap: u16, flags: u16) -> u32 {
        off_wrap as u32 | (flags as u32) << 16
    }

    /// Returns `off_wrap` and `flags` of an event suppression structure.
    #[inline(always)]
    #[must_use]
    pub const fn event_fields(event: u32) -> (u16, u16) {
        let [a, b, c, d] = event.to_le_bytes();
        (u16::from_le_bytes([a, b]), u16::from_le_bytes([c, d]))
    }

    /// Returns the flags that make a descriptor available in a turn of the ring with this wrap counter (section 2.8.1).
    #[inline(always)]
    #[must_use]
    pub const fn avail_flags(wrap: bool) -> u16 {
        if wrap {
            super::FLAG_AVAIL
        } else {
            super::FLAG_USED
        }
    }

    /// Returns the flags that mark a descriptor as used in a turn of the ring with this wrap counter (section 2.8.1).
    #[inline(always)]
    #[must_use]
    pub const fn used_flags(wrap: bool) -> u16 {
        if wrap {
            super::FLAG_AVAIL | super::FLAG_USED
        } else {
            0
        }
    }
}

/// The second word of a descriptor of a split ring: `len`, `flags` and `next` (section 2.7.5). The first is `addr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SplitWord(pub u64);

impl SplitWord {
    /// Returns a word with these fields.
    #[inline(always)]
    #[must_use]
    pub const fn new(len: u32, flags: u16, next: u16) -> Self {
        Self(len as u64 | (flags as u64) << 32 | (next as u64) << 48)
    }

    /// Returns the octets of the buffer.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> u32 {
        low_u32(self.0)
    }

    /// Returns true if the buffer is empty.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the flags.
    #[inline(always)]
    #[must_use]
    pub const fn flags(self) -> u16 {
        low_u16(self.0 >> 32)
    }

    /// Returns the index of the next descriptor of the chain, which [`FLAG_NEXT`] makes valid.
    #[inline(always)]
    #[must_use]
    pub const fn next(self) -> u16 {
        low_u16(self.0 >> 48)
    }
}

/// The second word of a descriptor of a packed ring: `len`, `id` and `flags` (section 2.8.13). The first is `addr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedWord(pub u64);

impl PackedWord {
    /// Returns a word with these fields.
    #[inline(always)]
    #[must_use]
    pub const fn new(len: u32, id: u16, flags: u16) -> Self {
        Self(len as u64 | (id as u64) << 32 | (flags as u64) << 48)
    }

    /// Returns the octets of the buffer, or those that the device wrote.
    #[inline(always)]
    #[must_use]
    pub const fn len(self) -> u32 {
        low_u32(self.0)
    }

    /// Returns true if the buffer is empty.
    #[inline(always)]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// Returns the buffer's identifier.
    #[inline(always)]
    #[must_use]
    pub const fn id(self) -> u16 {
        low_u16(self.0 >> 32)
    }

    /// Returns the flags.
    #[inline(always)]
    #[must_use]
    pub const fn flags(self) -> u16 {
        low_u16(self.0 >> 48)
    }

    /// Returns true if the descriptor is available in a turn of the ring with this wrap counter.
    #[inline(always)]
    #[must_use]
    pub const fn is_available(self, wrap: bool) -> bool {
        self.flags() & (FLAG_AVAIL | FLAG_USED) == packed::avail_flags(wrap)
    }

    /// Returns true if the descriptor is used in a turn of the ring with this wrap counter.
    #[inline(always)]
    #[must_use]
    pub const fn is_used(self, wrap: bool) -> bool {
        self.flags() & (FLAG_AVAIL | FLAG_USED) == packed::used_flags(wrap)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_keep_their_fields() {
        let word = SplitWord::new(0xdead_beef, 5, 0xfffe);
        assert_eq!(
            (word.len(), word.flags(), word.next()),
            (0xdead_beef, 5, 0xfffe)
        );
        assert_eq!(word.0.to_le_bytes()[4..], [5, 0, 0xfe, 0xff]);
        let word = PackedWord::new(7, 0xabcd, 0x8080);
        assert_eq!((word.len(), word.id(), word.flags()), (7, 0xabcd, 0x8080));
        assert_eq!(word.0.to_le_bytes(), [7, 0, 0, 0, 0xcd, 0xab, 0x80, 0x80]);
    }

    #[test]
    fn a_packed_descriptor_is_available_or_used_in_one_turn_only() {
        for wrap in [false, true] {
            let avail = PackedWord::new(0, 0, packed::avail_flags(wrap));
            assert!(avail.is_available(wrap) && !avail.is_available(!wrap));
            assert!(!avail.is_used(true) && !avail.is_used(false));
            let used = PackedWord::new(0, 0, packed::used_flags(wrap));
            assert!(used.is_used(wrap) && !used.is_used(!wrap));
            assert!(!used.is_available(true) && !used.is_available(false));
        }
    }

    #[test]
    fn sizes_are_those_of_the_specification() {
        // Section 2.7: 16 * size, 6 + 2 * size, 6 + 8 * size octets.
        assert_eq!(split::descriptors_len(256), 4096);
        assert_eq!(split::avail_len(256), 6 + 2 * 256);
        assert_eq!(split::used_len(256), 6 + 8 * 256);
        assert_eq!(2 * split::used_event(256), split::avail_len(256) - 2);
        assert_eq!(2 * split::avail_event(256), split::used_len(256) - 2);
    }

    #[test]
    fn events_are_due_when_the_index_passes_them() {
        // From 3 to 7: entries 3, 4, 5 and 6 were processed.
        let due: Vec<u16> = (0..10)
            .filter(|event| split::needs_event(*event, 7, 3))
            .collect();
        assert_eq!(due, [3, 4, 5, 6]);
        let due = (0..=u16::MAX).filter(|event| split::needs_event(*event, 1, 65_534));
        assert_eq!(due.collect::<Vec<_>>(), [0, 65_534, 65_535]);
        assert!(!(0..=u16::MAX).any(|event| split::needs_event(event, 5, 5)));
    }

    /// Starts of small ranges around each wraparound of 16 bits.
    fn starts() -> impl Iterator<Item = u32> {
        (0x8000 - 10..0x8000 + 10).chain(0x1_0000 - 20..0x1_0000 + 20)
    }

    /// Returns the lowest 16 bits of a number that never wraps around.
    fn low(number: u32) -> u16 {
        (number % 0x1_0000).try_into().unwrap()
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow under Miri")]
    fn every_index_within_the_space_is_accepted_and_no_other() {
        for (start, space) in starts().flat_map(|start| (0..=8).map(move |space| (start, space))) {
            let mut expected = vec![None; 0x1_0000];
            for entries in 0..=space {
                expected[usize::from(low(start + u32::from(entries)))] = Some(entries);
            }
            for (index, expected) in (0..=u16::MAX).zip(expected) {
                assert_eq!(split::entries_up_to(index, low(start), space), expected);
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "too slow under Miri")]
    fn every_event_among_the_entries_is_due_and_no_other() {
        for (old, count) in starts().flat_map(|old| (0..=8).map(move |count| (old, count))) {
            let new = old + count;
            let passed: Vec<u16> = (old..new).map(low).collect();
            for event in 0..=u16::MAX {
                let due = split::needs_event(event, low(new), low(old));
                assert_eq!(due, passed.contains(&event), "{old} {new} {event}");
            }
        }
    }
}
