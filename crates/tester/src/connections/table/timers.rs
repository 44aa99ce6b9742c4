// SPDX-License-Identifier: Apache-2.0
//! Timer wheel: one timer for each entry of a table.
//!
//! A timer that moves to a later time stays in its slot. It fires early there, and its owner sets it again. So acknowledgements, which
//! move timers all the time, cost nothing.

/// Number that stands for no entry, and for no time.
const NONE: u32 = u32::MAX;
/// Slots of the wheel, a power of two: a turn lasts 69 s.
const SLOTS: u32 = 1 << 16;
/// Nanoseconds of a slot, as a power of two: about 1 ms.
const SLOT_SHIFT: u32 = 20;

/// Place of an entry in its slot's list.
#[derive(Clone, Copy, Debug)]
struct Link {
    next: u32,
    previous: u32,
    /// Slot since time 0, [`NONE`] if the timer is not set.
    slot: u32,
}

impl Link {
    const UNSET: Self = Self {
        next: NONE,
        previous: NONE,
        slot: NONE,
    };
}

/// Timers of the entries of a table. It allocates when it is created, and never afterwards.
#[derive(Debug)]
pub(crate) struct Timers {
    first: Box<[u32]>,
    links: Box<[Link]>,
    /// Slot that fires next.
    current: u32,
}

/// Returns the slot of a time since time 0. It is after the time, so that no timer fires early.
fn slot_after(ns: u64) -> u32 {
    // The last slots of 32 bits are 52 days away.
    u32::try_from((ns >> SLOT_SHIFT).saturating_add(1)).unwrap_or(NONE - 1)
}

impl Timers {
    /// Memory of an entry, octets.
    #[cfg(test)]
    pub(crate) const OCTETS_PER_ENTRY: usize = size_of::<Link>();

    /// Creates the timers of entries 0 to `capacity - 1`, from time 0 on.
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            first: vec![NONE; SLOTS as usize].into_boxed_slice(),
            links: vec![Link::UNSET; capacity as usize].into_boxed_slice(),
            current: 0,
        }
    }

    fn link(&mut self, entry: u32) -> Option<&mut Link> {
        self.links.get_mut(entry as usize)
    }

    fn first(&mut self, slot: u32) -> Option<&mut u32> {
        self.first.get_mut((slot % SLOTS) as usize)
    }

    /// Sets the timer of an entry. It fires at `deadline` (nanoseconds) at the latest, to the millisecond. It may fire before.
    #[inline]
    pub(crate) fn set(&mut self, entry: u32, deadline: u64) {
        // A time beyond the turn of the wheel fires early.
        let last = self.current.saturating_add(SLOTS - 1);
        let slot = slot_after(deadline).clamp(self.current, last);
        let Some(link) = self.links.get(entry as usize) else {
            return;
        };
        if link.slot <= slot && link.slot != NONE {
            return;
        }
        self.clear(entry);
        let Some(first) = self.first(slot) else {
            return;
        };
        let next = std::mem::replace(first, entry);
        if let Some(link) = self.link(next) {
            link.previous = entry;
        }
        if let Some(link) = self.link(entry) {
            *link = Link {
                next,
                previous: NONE,
                slot,
            };
        }
    }

    /// Clears the timer of an entry.
    pub(crate) fn clear(&mut self, entry: u32) {
        let Some(link) = self.link(entry) else {
            return;
        };
        let Link {
            next,
            previous,
            slot,
        } = std::mem::replace(link, Link::UNSET);
        if slot == NONE {
            return;
        }
        if let Some(link) = self.link(next) {
            link.previous = previous;
        }
        if let Some(link) = self.link(previous) {
            link.next = next;
        } else if let Some(first) = self.first(slot) {
            *first = next;
        }
    }

    /// Returns an entry whose timer fires, and clears the timer; `None` if there is none until `now`, nanoseconds. A call passes at most
    /// one turn of the wheel.
    pub(crate) fn fire(&mut self, now: u64) -> Option<u32> {
        let until = u32::try_from(now >> SLOT_SHIFT).unwrap_or(NONE - 1);
        for _ in 0..=SLOTS {
            if self.current > until {
                return None;
            }
            let current = self.current;
            match self.first(current).map(|first| *first) {
                Some(entry) if entry != NONE => {
                    self.clear(entry);
                    return Some(entry);
                }
                _ => self.current = current.saturating_add(1),
            }
        }
        // All slots are empty.
        self.current = until;
        None
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const SLOT_NS: u64 = 1 << SLOT_SHIFT;

    proptest! {
        #[test]
        fn every_timer_fires_in_time_and_once(steps in prop::collection::vec((0u8..4, 0u32..20, 0u64..200_000_000_000), 1..100)) {
            let (mut timers, mut plain) = (Timers::new(20), BTreeMap::<u32, u64>::new());
            let mut now = 0;
            for (step, entry, ns) in steps {
                match step {
                    0 => {
                        timers.clear(entry);
                        plain.remove(&entry);
                    }
                    1 => {
                        now += ns / 4;
                        let mut fired = Vec::new();
                        while let Some(entry) = timers.fire(now) {
                            let deadline = plain.remove(&entry);
                            prop_assert!(deadline.is_some(), "{} fires twice", entry);
                            fired.push((entry, deadline.unwrap()));
                            prop_assert!(fired.len() <= 20);
                        }
                        prop_assert!(plain.values().all(|deadline| deadline + SLOT_NS > now), "{:?} at {}", plain, now);
                        // Those that fired early are set again, as their owner does.
                        for (entry, deadline) in fired.into_iter().filter(|(_, deadline)| *deadline > now) {
                            timers.set(entry, deadline);
                            plain.insert(entry, deadline);
                        }
                    }
                    _ => {
                        timers.set(entry, now + ns);
                        plain.insert(entry, now + ns);
                    }
                }
            }
        }
    }

    #[test]
    fn a_stall_of_hours_is_passed_in_one_turn() {
        let mut timers = Timers::new(2);
        timers.set(1, 5_000_000);
        let now = 20_000_000_000_000;
        assert_eq!(timers.fire(now), Some(1));
        assert_eq!(timers.fire(now), None);
        timers.set(0, now + 10_000_000);
        assert_eq!(timers.fire(now + 5_000_000), None);
        assert_eq!(timers.fire(now + 20_000_000), Some(0));
    }
}
