// SPDX-License-Identifier: Apache-2.0
//! A sender's private bookkeeping: free slots, and the slots of each chain that the device has.

use crate::narrow::{low_u16, slots};

/// Slots of a ring: the free ones in the order of their use, and the chains of the others.
///
/// Slots return to the end of the free list. A device that uses buffers in order then sees them in the same order in each
/// turn of the ring, and neither descriptors nor the available ring have to be written again.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(super) struct Slots {
    /// A circular list: free from `head` to `tail`.
    free: Box<[u16]>,
    slots: Box<[Slot]>,
    head: u16,
    tail: u16,
    mask: u16,
}

/// State of a slot.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    /// Number of slots of the chain that begins with this one; 0 if the device has no such chain.
    chain: u16,
    /// Next slot of its chain.
    link: u16,
}

/// The slots that are taken next. A copy, which remains in registers while frames are written to memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<'slots> {
    free: &'slots [u16],
    head: u16,
    mask: u16,
}

impl Row<'_> {
    /// Returns the slot that is taken after `skip` others.
    #[inline(always)]
    pub(super) fn upcoming(&self, skip: usize) -> u16 {
        let at = usize::from(self.head).wrapping_add(skip) & usize::from(self.mask);
        self.free.get(at).copied().unwrap_or(0)
    }
}

impl Slots {
    /// Returns `size` free slots; `size` is a power of two of at most 32,768.
    pub(super) fn new(size: u16) -> Self {
        Self {
            free: (0..size).collect(),
            slots: vec![Slot::default(); usize::from(size)].into(),
            head: 0,
            tail: size,
            mask: size.wrapping_sub(1),
        }
    }

    /// Returns the number of free slots.
    #[inline(always)]
    pub(super) fn available(&self) -> u16 {
        self.tail.wrapping_sub(self.head)
    }

    /// Returns the slot that is taken after `skip` others, if none returns before.
    #[inline(always)]
    pub(super) fn upcoming(&self, skip: u16) -> u16 {
        self.row().upcoming(skip.into())
    }

    /// Returns the slots that are taken next, as [`Self::upcoming`] does, while nothing is taken or returned.
    #[inline(always)]
    pub(super) fn row(&self) -> Row<'_> {
        Row {
            free: &self.free,
            head: self.head,
            mask: self.mask,
        }
    }

    /// Takes the next slot as a chain. The caller has checked that it is free.
    #[inline(always)]
    pub(super) fn take_one(&mut self) {
        let slot = self.upcoming(0);
        if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
            slot.chain = 1;
        }
        self.head = self.head.wrapping_add(1);
    }

    /// Takes the next `count` slots as a chain. The caller has checked that as many are free.
    pub(super) fn take(&mut self, count: u16) {
        for number in 0..count {
            let next = number.wrapping_add(1);
            let (slot, link) = (self.upcoming(number), self.upcoming(next));
            if let Some(slot) = self.slots.get_mut(usize::from(slot)) {
                slot.link = link;
                slot.chain = if number == 0 { count } else { 0 };
            }
        }
        self.head = self.head.wrapping_add(count);
    }

    /// Reclaims the chain that begins with slot `id` from the device. Returns the number of its slots; `None` if the device
    /// has no such chain.
    #[inline(always)]
    pub(super) fn give_back(&mut self, id: u32) -> Option<u16> {
        let slot = self.slots.get_mut(usize::try_from(id).ok()?)?;
        let count = std::mem::take(&mut slot.chain);
        let mut link = slot.link;
        if count == 0 {
            return None;
        }
        self.free(low_u16(id.into()));
        for _ in 1..count {
            self.free(link);
            link = self.link(link);
        }
        Some(count)
    }

    #[inline(always)]
    fn free(&mut self, slot: u16) {
        if let Some(free) = self.free.get_mut(usize::from(self.tail & self.mask)) {
            *free = slot;
        }
        self.tail = self.tail.wrapping_add(1);
    }

    fn link(&self, slot: u16) -> u16 {
        self.slots
            .get(usize::from(slot))
            .map_or(0, |slot| slot.link)
    }

    /// Returns true if each slot is free or in one chain. For tests.
    pub(super) fn is_consistent(&self) -> bool {
        let mut places = vec![0_u32; self.free.len()];
        let mut count = |slot: u16| {
            if let Some(place) = places.get_mut(usize::from(slot)) {
                *place = place.saturating_add(1);
            }
        };
        for skip in 0..self.available() {
            count(self.upcoming(skip));
        }
        for (head, slot) in self.slots.iter().enumerate() {
            let mut member = slots(head);
            for _ in 0..slot.chain {
                count(member);
                member = self.link(member);
            }
        }
        places.iter().all(|place| *place == 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Takes and returns chains in every order for `steps` steps; returns the number of orders.
    fn explore(slots: &Slots, chains: &[Vec<u16>], steps: u32) -> u64 {
        assert!(slots.is_consistent(), "{slots:?} {chains:?}");
        let size = slots.free.len();
        let taken: usize = chains.iter().map(Vec::len).sum();
        assert_eq!(usize::from(slots.available()), size - taken);
        if steps == 0 {
            return 1;
        }
        let mut count = 0;
        for length in 1..=slots.available() {
            let (mut slots, mut chains) = (slots.clone(), chains.to_vec());
            chains.push((0..length).map(|skip| slots.upcoming(skip)).collect());
            match length {
                1 => slots.take_one(),
                _ => slots.take(length),
            }
            count += explore(&slots, &chains, steps - 1);
        }
        for id in 0..slots.free.len() as u32 + 1 {
            let (mut slots, mut chains) = (slots.clone(), chains.to_vec());
            let at = chains.iter().position(|chain| u32::from(chain[0]) == id);
            let length = at.map(|at| chains.swap_remove(at).len());
            let returned = slots.give_back(id);
            assert_eq!(returned.map(usize::from), length);
            if length.is_some() {
                count += explore(&slots, &chains, steps - 1);
            }
        }
        count
    }

    /// The counters of the free list start at 0, and shortly before they wrap around.
    #[test]
    #[cfg_attr(miri, ignore = "too slow under Miri")]
    fn every_order_of_chains_leaves_each_slot_in_one_place() {
        for (size, start) in [2, 4_u16]
            .into_iter()
            .flat_map(|size| [(size, 0), (size, 0_u16.wrapping_sub(size))])
        {
            let mut slots = Slots::new(size);
            slots.head = start;
            slots.tail = start.wrapping_add(size);
            assert!(explore(&slots, &[], 8) >= 100);
        }
    }

    proptest! {
        /// Returns chains of arbitrary lengths in arbitrary order, mixed with identifiers that the device made up.
        #[test]
        fn each_slot_is_free_or_in_one_chain(
            exponent in 1_u32..7,
            steps in prop::collection::vec((any::<bool>(), any::<u16>()), 0..300),
        ) {
            let size = 1_u16 << exponent;
            let mut slots = Slots::new(size);
            let mut chains: Vec<Vec<u16>> = Vec::new();
            for (take, number) in steps {
                if take {
                    let count = number % 5;
                    if count == 0 || count > slots.available() {
                        continue;
                    }
                    chains.push((0..count).map(|skip| slots.upcoming(skip)).collect());
                    slots.take(count);
                } else if let Some(at) = chains.iter().position(|chain| chain[0] == number % size) {
                    let chain = chains.swap_remove(at);
                    prop_assert_eq!(slots.give_back(u32::from(chain[0])), Some(chain.len() as u16));
                } else {
                    prop_assert_eq!(slots.give_back(u32::from(number)), None);
                    prop_assert_eq!(slots.give_back(u32::from(number) + 65_536), None);
                }
                let mut observed: HashSet<u16> = chains.iter().flatten().copied().collect();
                let taken = observed.len();
                prop_assert_eq!(taken, chains.iter().map(Vec::len).sum::<usize>());
                observed.extend((0..slots.available()).map(|skip| slots.upcoming(skip)));
                prop_assert_eq!(observed.len(), usize::from(size));
                prop_assert_eq!(taken + usize::from(slots.available()), usize::from(size));
                prop_assert!(slots.is_consistent());
            }
        }
    }
}
