// SPDX-License-Identifier: Apache-2.0
//! Driver side of packed rings (virtio 1.2, section 2.8).

use std::sync::Arc;

use quietwire_memory::atomic::{AtomicU32, AtomicU64, Ordering};
use quietwire_memory::{Mapping, SharedSlice};

use super::layout::QueueLayout;
use super::queue::{Fault, Queue, Used, address_at, sealed, second_word_at};
use crate::narrow;
use crate::ring::layout::{DESCRIPTOR_WORDS, PackedWord, packed};

/// Descriptors of a cache line.
const LINE: usize = 4;
/// Index of the event suppression structure in the slice that has nothing else.
const EVENT: usize = 0;

/// Packed ring.
///
/// Positions are counters that run past the end of the ring: the bits below the ring's size are the index, the bit above is
/// the wrap counter (inverted: the counter is 1 in the first turn). The device overwrites lengths, identifiers and flags, so
/// the second word of a descriptor is written each time; the first word, the address, is written only if another slot is
/// described at this position.
#[derive(Debug)]
pub struct Packed {
    ring: SharedSlice<AtomicU64>,
    device_event: SharedSlice<AtomicU32>,
    addresses: Box<[u64]>,
    /// The slot whose address each descriptor holds.
    slots: Box<[u16]>,
    /// Second words of the first descriptors since `published`, which are not written yet.
    ///
    /// The device polls the first of them. The words of its cache line are written together at the end, so that the line
    /// moves between the processors once; those of later lines are written at once, because the device reads them only after
    /// the first.
    withheld: [u64; LINE],
    size: u16,
    event_index: bool,
    offered: u16,
    published: u16,
    /// Position up to which the device's request for notifications is known.
    checked: u16,
    read: u16,
}

impl Packed {
    #[inline(always)]
    fn index(&self, position: u16) -> usize {
        usize::from(position & self.size.wrapping_sub(1))
    }

    #[inline(always)]
    fn wrap(&self, position: u16) -> bool {
        position & self.size == 0
    }

    #[inline(always)]
    fn second_word(&self, position: u16) -> Option<&AtomicU64> {
        self.ring.get(second_word_at(self.index(position)))
    }

    /// Returns true if the descriptors from position `old` up to `new` include the one that the device's event suppression structure
    /// names. An offset beyond the ring's end names another position: the device is then notified too often or too rarely, which harms
    /// only the device.
    #[inline(always)]
    fn passes(off_wrap: u16, old: u16, new: u16, size: u16) -> bool {
        let turn = if off_wrap & packed::WRAP == 0 {
            size
        } else {
            0
        };
        let position = (off_wrap & !packed::WRAP).wrapping_add(turn);
        // Positions are those of two turns of the ring.
        let two_turns = size.wrapping_mul(2).wrapping_sub(1);
        position.wrapping_sub(old) & two_turns < new.wrapping_sub(old)
    }
}

impl sealed::Sealed for Packed {}

impl Queue for Packed {
    const PACKED: bool = true;

    fn new(
        mapping: &Arc<Mapping>,
        queue: &QueueLayout,
        event_index: bool,
        address: impl Fn(u16) -> u64,
    ) -> Option<Self> {
        let size = usize::from(queue.size);
        let words = DESCRIPTOR_WORDS.saturating_mul(size);
        let ring = SharedSlice::<AtomicU64>::new(mapping, queue.descriptors, words)?;
        let addresses: Box<[u64]> = (0..queue.size).map(address).collect();
        for (slot, address) in addresses.iter().enumerate() {
            ring.get(address_at(slot))?
                .store(*address, Ordering::Relaxed);
        }
        // This side polls (section 2.8.14).
        let driver_event = SharedSlice::<AtomicU32>::new(mapping, queue.driver_area, 1)?;
        driver_event
            .get(EVENT)?
            .store(packed::event(0, packed::EVENT_DISABLE), Ordering::Relaxed);
        Some(Self {
            ring,
            device_event: SharedSlice::new(mapping, queue.device_area, 1)?,
            addresses,
            slots: (0..queue.size).collect(),
            withheld: [0; LINE],
            size: queue.size,
            event_index,
            offered: 0,
            published: 0,
            checked: 0,
            read: 0,
        })
    }

    #[inline(always)]
    fn poll(&mut self, _enough: u16) -> Result<u16, Fault> {
        Ok(self.published.wrapping_sub(self.read))
    }

    #[inline(always)]
    fn next_used(&self) -> Option<Used> {
        // Acquire: what the device wrote to the buffer before is read afterwards. The word is read at once, so that length
        // and identifier belong to the flags.
        let word = PackedWord(self.second_word(self.read)?.load(Ordering::Acquire));
        word.is_used(self.wrap(self.read)).then(|| Used {
            id: u32::from(word.id()),
            len: word.len(),
        })
    }

    #[inline(always)]
    fn advance(&mut self, slots: u16) {
        self.read = self.read.wrapping_add(slots);
    }

    #[inline(always)]
    fn prefetch_used(&self, skip: u16) {
        let at = self.index(self.read.wrapping_add(skip));
        if at.is_multiple_of(LINE) {
            self.ring.prefetch_write(address_at(at));
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, _count: u16) {}

    #[inline(always)]
    fn describe(&mut self, head: u16, slot: u16, len: u32, flags: u16, _next: u16) {
        let position = self.offered;
        let at = self.index(position);
        if let Some(former) = self.slots.get_mut(at)
            && *former != slot
        {
            *former = slot;
            let address = self.addresses.get(usize::from(slot));
            if let (Some(shared), Some(address)) = (self.ring.get(address_at(at)), address) {
                shared.store(*address, Ordering::Relaxed);
            }
        }
        // The identifier of the last descriptor of a chain counts (section 2.8.6).
        let flags = flags | packed::avail_flags(self.wrap(position));
        let word = PackedWord::new(len, head, flags).0;
        let number = position.wrapping_sub(self.published);
        if let Some(withheld) = self.withheld.get_mut(usize::from(number)) {
            *withheld = word;
        } else if let Some(shared) = self.second_word(position) {
            shared.store(word, Ordering::Release);
        }
        self.offered = position.wrapping_add(1);
    }

    #[inline(always)]
    fn offer(&mut self, _head: u16) {}

    #[inline(always)]
    fn offer_again(&mut self, slot: u16, len: u32, flags: u16) {
        self.describe(slot, slot, len, flags, 0);
    }

    #[inline(always)]
    fn unpublished(&self) -> u16 {
        self.offered.wrapping_sub(self.published)
    }

    #[inline(always)]
    fn offered(&self, at: u16) -> u16 {
        let at = self.index(self.published.wrapping_add(at));
        self.slots.get(at).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn make_visible(&mut self) -> bool {
        let (old, new) = (self.published, self.offered);
        if old == new {
            return false;
        }
        self.published = new;
        let count = new.wrapping_sub(old).min(narrow::slots(LINE));
        let [first, later @ ..] = self.withheld;
        for (number, word) in (1..count).zip(later) {
            if let Some(shared) = self.second_word(old.wrapping_add(number)) {
                shared.store(word, Ordering::Release);
            }
        }
        // The first word is written last, because it makes all of them available.
        if let Some(shared) = self.second_word(old) {
            shared.store(first, Ordering::Release);
        }
        true
    }

    #[inline(always)]
    fn unchecked(&self) -> (u16, u16) {
        (self.published.wrapping_sub(self.checked), self.size)
    }

    // Sections 2.8.10 and 2.8.14.
    #[inline(always)]
    fn wants_notification(&self) -> bool {
        let (old, new) = (self.checked, self.published);
        let Some(event) = self.device_event.get(EVENT) else {
            return false;
        };
        let event = event.load(Ordering::Relaxed);
        let (off_wrap, flags) = packed::event_fields(event);
        match flags {
            packed::EVENT_DISABLE => false,
            packed::EVENT_DESCRIPTOR if self.event_index => {
                Self::passes(off_wrap, old, new, self.size)
            }
            // The device wants all notifications, or the flags are unknown to the specification: a surplus notification is
            // harmless.
            _ => true,
        }
    }

    #[inline(always)]
    fn note_checked(&mut self) {
        self.checked = self.published;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Positions of a ring's driver count to 2^16, which is a whole number of turns of each ring.
    #[test]
    fn every_event_among_the_offered_descriptors_is_due() {
        for size in [2_u16, 4, 8] {
            for start in (0..40)
                .chain(0x8000 - 20..0x8000 + 20)
                .chain(0x1_0000 - 20..0x1_0000)
            {
                for (count, ahead) in
                    (0..=size).flat_map(|count| (0..size).map(move |at| (count, at)))
                {
                    // The descriptor `ahead` of the first, as the device names it.
                    let named = start + u32::from(ahead);
                    let slot = u16::try_from(named % u32::from(size)).unwrap();
                    let wrap = (named / u32::from(size)).is_multiple_of(2);
                    let off_wrap = slot | if wrap { packed::WRAP } else { 0 };
                    let old = u16::try_from(start).unwrap();
                    let new = old.wrapping_add(count);
                    let due = Packed::passes(off_wrap, old, new, size);
                    assert_eq!(due, ahead < count, "{size} {start} {count} {ahead}");
                }
            }
        }
    }
}
