// SPDX-License-Identifier: Apache-2.0
//! Bounded hash index with open addressing: linear probing, and deletion by shifting back.

/// Number that stands for a free place.
const FREE: u32 = u32::MAX;
/// Places for each entry: at most half of them are in use, so that probes are short.
const PLACES_PER_ENTRY: usize = 2;

/// Index from hashes to the numbers of entries, which others store. It allocates when it is created, and never afterwards.
#[derive(Debug)]
pub(crate) struct Index {
    places: Box<[u32]>,
    mask: usize,
}

impl Index {
    /// Memory of an entry, octets, if the capacity is a power of two.
    #[cfg(test)]
    pub(crate) const OCTETS_PER_ENTRY: usize = PLACES_PER_ENTRY * size_of::<u32>();

    /// Creates an index of at most `capacity` entries.
    pub(crate) fn new(capacity: u32) -> Self {
        let places = (capacity as usize)
            .saturating_mul(PLACES_PER_ENTRY)
            .next_power_of_two();
        Self {
            places: vec![FREE; places].into_boxed_slice(),
            mask: places.wrapping_sub(1),
        }
    }

    fn first(&self, hash: u64) -> usize {
        usize::try_from(hash).unwrap_or(usize::MAX) & self.mask
    }

    fn at(&self, place: usize) -> u32 {
        self.places.get(place).copied().unwrap_or(FREE)
    }

    fn write(&mut self, place: usize, number: u32) {
        if let Some(to) = self.places.get_mut(place) {
            *to = number;
        }
    }

    /// Returns the place of the entry for which `is_it` is true, and its number.
    fn find_place(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<(usize, u32)> {
        let mut place = self.first(hash);
        // Half of the places are free, so the loop ends before it has read all.
        for _ in 0..self.places.len() {
            match self.at(place) {
                FREE => return None,
                number if is_it(number) => return Some((place, number)),
                _ => place = place.wrapping_add(1) & self.mask,
            }
        }
        None
    }

    /// Returns the number of the entry with this hash for which `is_it` is true.
    #[inline]
    pub(crate) fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        Some(self.find_place(hash, is_it)?.1)
    }

    /// Adds an entry that is not in the index. The caller keeps to the capacity.
    pub(crate) fn insert(&mut self, hash: u64, number: u32) {
        let mut place = self.first(hash);
        for _ in 0..self.places.len() {
            if self.at(place) == FREE {
                self.write(place, number);
                return;
            }
            place = place.wrapping_add(1) & self.mask;
        }
    }

    /// Removes an entry. `hash_of` returns the hash of any entry of the index.
    pub(crate) fn remove(&mut self, hash: u64, number: u32, hash_of: impl Fn(u32) -> u64) {
        let Some((mut hole, _)) = self.find_place(hash, |it| it == number) else {
            return;
        };
        self.write(hole, FREE);
        let mut place = hole;
        for _ in 0..self.places.len() {
            place = place.wrapping_add(1) & self.mask;
            let moved = self.at(place);
            if moved == FREE {
                return;
            }
            // An entry may move back to the hole only if its first place is not after the hole.
            let distance = place.wrapping_sub(self.first(hash_of(moved))) & self.mask;
            let to_hole = place.wrapping_sub(hole) & self.mask;
            if distance >= to_hole {
                self.write(hole, moved);
                self.write(place, FREE);
                hole = place;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_index_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..40, 0u64..4), 1..200)) {
            // Hashes of few values, so that entries collide and wrap around the end.
            const CAPACITY: u32 = 32;
            let (mut index, mut plain) = (Index::new(CAPACITY), BTreeMap::<u32, u64>::new());
            for (adds, number, hash) in steps {
                let hash = hash * 3 + 55;
                if adds && !plain.contains_key(&number) && plain.len() < CAPACITY as usize {
                    index.insert(hash, number);
                    plain.insert(number, hash);
                } else if let Some(hash) = plain.get(&number).copied() {
                    index.remove(hash, number, |other| plain[&other]);
                    plain.remove(&number);
                }
                for number in 0..40 {
                    let hash = plain.get(&number).copied();
                    let found = index.find(hash.unwrap_or(55), |it| it == number);
                    prop_assert_eq!(found, hash.map(|_| number));
                }
            }
        }
    }
}
