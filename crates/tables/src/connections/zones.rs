// SPDX-License-Identifier: Apache-2.0
//! Zones: the number of connections of each, its limit, and the entries that may be dropped early.

use super::entry::{ByEviction, Entry, List};
use super::names::Eviction;

/// One zone.
#[derive(Clone, Copy, Debug)]
struct Zone {
    limit: u32,
    count: u32,
    /// Entries by the class of their state, in the order in which they entered it.
    lists: [List; CLASSES],
}

const CLASSES: usize = 2;

/// All zones.
#[derive(Debug)]
pub(super) struct Zones {
    zones: Box<[Zone]>,
    /// Embryonic entries of all zones.
    half_open: u32,
    /// Zones whose list of a class is not empty, one bit each.
    populated: [Box<[u64]>; CLASSES],
}

const fn class(eviction: Eviction) -> Option<usize> {
    match eviction {
        Eviction::Embryonic => Some(0),
        Eviction::Closed => Some(1),
        Eviction::Never => None,
    }
}

impl Zones {
    pub(super) fn new(limits: &[u32]) -> Self {
        let zone = |limit: &u32| Zone {
            limit: *limit,
            count: 0,
            lists: [List::EMPTY; CLASSES],
        };
        let words = vec![0; limits.len().div_ceil(64)].into_boxed_slice();
        Self {
            zones: limits.iter().map(zone).collect(),
            half_open: 0,
            populated: [words.clone(), words],
        }
    }

    /// Returns number and limit of the connections of a zone.
    pub(super) fn usage(&self, zone: u16) -> Option<(u32, u32)> {
        let zone = self.zones.get(usize::from(zone))?;
        Some((zone.count, zone.limit))
    }

    /// Returns the number of embryonic entries of all zones.
    pub(super) const fn half_open(&self) -> u32 {
        self.half_open
    }

    /// Counts a new connection.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "there are fewer connections than 2^32"
    )]
    pub(super) fn count(&mut self, zone: u16) {
        if let Some(zone) = self.zones.get_mut(usize::from(zone)) {
            zone.count += 1;
        }
    }

    /// Counts a removed connection.
    pub(super) fn discount(&mut self, zone: u16) {
        if let Some(zone) = self.zones.get_mut(usize::from(zone)) {
            zone.count = zone.count.saturating_sub(1);
        }
    }

    /// Adds an entry to the list of a class.
    pub(super) fn add(&mut self, entries: &mut [Entry], zone: u16, eviction: Eviction, index: u32) {
        let half_open = u32::from(eviction == Eviction::Embryonic);
        self.half_open = self.half_open.saturating_add(half_open);
        self.change(zone, eviction, |list| {
            list.push::<ByEviction>(entries, index)
        });
    }

    /// Removes an entry from the list of a class.
    pub(super) fn remove(
        &mut self,
        entries: &mut [Entry],
        zone: u16,
        eviction: Eviction,
        index: u32,
    ) {
        let half_open = u32::from(eviction == Eviction::Embryonic);
        self.half_open = self.half_open.saturating_sub(half_open);
        self.change(zone, eviction, |list| {
            list.remove::<ByEviction>(entries, index)
        });
    }

    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the class is below CLASSES, and shifts are below 64"
    )]
    fn change(&mut self, zone: u16, eviction: Eviction, change: impl FnOnce(&mut List)) {
        let zone = usize::from(zone);
        let Some(class) = class(eviction) else {
            return;
        };
        let Some(list) = self.zones.get_mut(zone).map(|zone| &mut zone.lists[class]) else {
            return;
        };
        change(list);
        let is_populated = u64::from(list.first().is_some());
        if let Some(word) = self.populated[class].get_mut(zone / 64) {
            *word = *word & !(1 << (zone % 64)) | is_populated << (zone % 64);
        }
    }

    /// Returns the entry of a zone to drop early: the oldest embryonic one, or the oldest closed one.
    pub(super) fn victim_in(&self, zone: u16) -> Option<u32> {
        let zone = self.zones.get(usize::from(zone))?;
        zone.lists.iter().find_map(List::first)
    }

    /// Returns the entry of another zone to drop early: the oldest embryonic one of the next zone by number that has one, or the oldest
    /// closed one of the next.
    #[expect(clippy::indexing_slicing, reason = "the class is below CLASSES")]
    pub(super) fn victim_elsewhere(&self, zone: u16) -> Option<u32> {
        (0..CLASSES).find_map(|class| {
            let next = self.next_populated(class, usize::from(zone))?;
            self.zones.get(next)?.lists[class].first()
        })
    }

    /// Returns the oldest embryonic entry of a zone, or of the next zone by number that has one.
    #[expect(clippy::indexing_slicing, reason = "the class is below CLASSES")]
    pub(super) fn half_open_victim(&self, zone: u16) -> Option<u32> {
        let class = class(Eviction::Embryonic)?;
        let zone = usize::from(zone);
        let own = self.zones.get(zone)?.lists[class].first();
        own.or_else(|| {
            let next = self.next_populated(class, zone)?;
            self.zones.get(next)?.lists[class].first()
        })
    }

    /// Returns the next zone behind this one, in a circle, with entries of a class.
    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the class is below CLASSES, bits are below 64, and words are those of zones"
    )]
    fn next_populated(&self, class: usize, zone: usize) -> Option<usize> {
        let words = &self.populated[class];
        let (at, bit) = (zone / 64, zone % 64);
        let behind = |word: u64| word & (u64::MAX << bit) & !(1 << bit);
        let current = behind(*words.get(at)?);
        if current != 0 {
            return Some(at * 64 + current.trailing_zeros() as usize);
        }
        // At most all words once, and the first once more, whose zones up to this one have not been searched.
        let mut others = (at + 1..words.len()).chain(0..=at);
        others.find_map(|at| match words.get(at)? {
            0 => None,
            word => Some(at * 64 + word.trailing_zeros() as usize),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_zone_with_entries_is_found_in_a_circle() {
        let mut entries = vec![Entry::default(); 3];
        let mut zones = Zones::new(&[1; 200]);
        assert_eq!(zones.victim_elsewhere(5), None);
        assert_eq!((zones.half_open(), zones.half_open_victim(5)), (0, None));
        for (index, zone) in [(0, 3), (1, 70), (2, 199)] {
            zones.add(&mut entries, zone, Eviction::Embryonic, index);
        }
        for (zone, victim) in [(0, 0), (3, 1), (69, 1), (70, 2), (198, 2), (199, 0)] {
            assert_eq!(zones.victim_elsewhere(zone), Some(victim), "zone {zone}");
        }
        let victims = [3, 69, 70, 198].map(|zone| zones.half_open_victim(zone));
        assert_eq!(victims, [0, 1, 1, 2].map(Some));
        assert_eq!(zones.half_open(), 3);
        zones.remove(&mut entries, 70, Eviction::Embryonic, 1);
        assert_eq!(zones.half_open(), 2);
        assert_eq!(zones.victim_elsewhere(3), Some(2));
        assert_eq!((zones.victim_in(70), zones.victim_in(3)), (None, Some(0)));
        zones.add(&mut entries, 70, Eviction::Closed, 1);
        assert_eq!(zones.victim_in(70), Some(1));
        assert_eq!(zones.half_open_victim(70), Some(2));
        assert_eq!(zones.victim_elsewhere(3), Some(2));
    }
}
