// SPDX-License-Identifier: Apache-2.0
//! Hash index of entries: buckets of one cache line, with tags of 16 bits and the numbers of entries.
//!
//! Each hash has two buckets, and the second is used only if the first is full. If both are full, one of their entries is moved to its own
//! other bucket, which the tag determines. Most lookups read one bucket, and one entry.

use quietwire_memory::prefetch;

use crate::arena::{NoMemory, zeroed};

const SLOTS: usize = 10;
/// Entries per bucket of a full table, at most.
const LOAD: usize = 8;
/// Fewer buckets would be full too often.
const BUCKETS_MIN: usize = 64;
/// Odd, so that the steps of different tags differ.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C, align(64))]
struct Bucket {
    /// Tag of each slot; 0 in an empty one.
    tags: [u16; SLOTS],
    /// Slots whose entry is in its second bucket, one bit each.
    second: u16,
    /// Number of entries whose first bucket is this one, and which are in their second.
    overflowed: u16,
    entries: [u32; SLOTS],
}

/// Position of an entry.
#[derive(Clone, Copy, Debug)]
struct Position {
    bucket: usize,
    slot: usize,
}

/// Index of a table.
#[derive(Debug)]
pub(crate) struct Index {
    buckets: Box<[Bucket]>,
    mask: usize,
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper 16 bits are the tag"
)]
#[inline(always)]
const fn tag(hash: u64) -> u16 {
    match (hash >> 48) as u16 {
        0 => 1,
        tag => tag,
    }
}

impl Bucket {
    /// Returns the slots with this tag, one bit each.
    #[allow(clippy::arithmetic_side_effects, reason = "slots are below 16")]
    #[inline(always)]
    fn slots_of(&self, tag: u16) -> u32 {
        let mut slots = 0;
        for (slot, one) in self.tags.iter().enumerate() {
            slots |= u32::from(*one == tag) << slot;
        }
        slots
    }

    fn empty_slot(&self) -> Option<usize> {
        self.tags.iter().position(|tag| *tag == 0)
    }
}

impl Index {
    /// Creates an index with space for this many entries.
    ///
    /// # Errors
    /// [`NoMemory`].
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "there are at least BUCKETS_MIN buckets"
    )]
    pub(crate) fn new(entries_max: u32) -> Result<Self, NoMemory> {
        let buckets = (entries_max as usize)
            .div_ceil(LOAD)
            .next_power_of_two()
            .max(BUCKETS_MIN);
        let mut buckets = zeroed::<Bucket>(buckets)?;
        // The kernel provides the pages now, and not when packets arrive.
        buckets.fill(Bucket::default());
        let mask = buckets.len() - 1;
        Ok(Self { buckets, mask })
    }

    /// Returns the memory of the index, octets.
    pub(crate) fn octets(&self) -> usize {
        size_of_val(&self.buckets[..])
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "masked to a bucket of the table"
    )]
    #[inline(always)]
    const fn first_bucket(&self, hash: u64) -> usize {
        hash as usize & self.mask
    }

    /// Returns the other bucket of an entry with this tag in a bucket; always a different one.
    #[allow(
        clippy::cast_possible_truncation,
        reason = "masked to a bucket of the table"
    )]
    #[inline(always)]
    const fn other_bucket(&self, bucket: usize, tag: u16) -> usize {
        let step = (tag as u64).wrapping_mul(STEP) >> 32;
        bucket ^ ((step as usize | 1) & self.mask)
    }

    /// Prefetches the first bucket.
    #[inline(always)]
    pub(crate) fn prefetch(&self, hash: u64) {
        if let Some(bucket) = self.buckets.get(self.first_bucket(hash)) {
            prefetch(bucket);
        }
    }

    /// Returns the entry that most likely belongs to a hash, for prefetching, and whether the hash may have an entry at all. Without a
    /// likely one, returns entry 0. There is no branch: which hashes have entries is as arbitrary as the traffic.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "the factor is 0 or 1, and SLOTS is not 0"
    )]
    #[inline(always)]
    pub(crate) fn candidate(&self, hash: u64) -> (u32, bool) {
        let Some(bucket) = self.buckets.get(self.first_bucket(hash)) else {
            return (0, false);
        };
        let slots = bucket.slots_of(tag(hash));
        let slot = (slots.trailing_zeros() as usize).min(SLOTS - 1);
        let entry = bucket.entries.get(slot).copied().unwrap_or_default();
        let may_have = (slots != 0) | (bucket.overflowed != 0);
        (entry * u32::from(slots != 0), may_have)
    }

    /// Finds the entry of a hash for which `is_entry` returns true.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, is_entry: impl Fn(u32) -> bool) -> Option<u32> {
        let position = self.position(hash, is_entry)?;
        self.entry_at(position)
    }

    #[inline(always)]
    fn entry_at(&self, position: Position) -> Option<u32> {
        let bucket = self.buckets.get(position.bucket)?;
        bucket.entries.get(position.slot).copied()
    }

    #[inline(always)]
    fn position(&self, hash: u64, is_entry: impl Fn(u32) -> bool) -> Option<Position> {
        let (first, tag) = (self.first_bucket(hash), tag(hash));
        if let Some(position) = self.position_in(first, tag, &is_entry) {
            return Some(position);
        }
        if self.buckets.get(first)?.overflowed == 0 {
            return None;
        }
        self.position_in(self.other_bucket(first, tag), tag, &is_entry)
    }

    #[expect(clippy::arithmetic_side_effects, reason = "not zero in the loop")]
    #[inline(always)]
    fn position_in(
        &self,
        bucket: usize,
        tag: u16,
        is_entry: &impl Fn(u32) -> bool,
    ) -> Option<Position> {
        let content = self.buckets.get(bucket)?;
        let mut slots = content.slots_of(tag);
        while slots != 0 {
            let slot = slots.trailing_zeros() as usize;
            if is_entry(*content.entries.get(slot)?) {
                return Some(Position { bucket, slot });
            }
            slots &= slots - 1;
        }
        None
    }

    /// Adds an entry. Returns false if there is no space in the buckets of its hash, nor for one of their entries elsewhere.
    #[must_use]
    pub(crate) fn insert(&mut self, hash: u64, entry: u32) -> bool {
        let (first, tag) = (self.first_bucket(hash), tag(hash));
        let second = self.other_bucket(first, tag);
        self.put(first, tag, entry, false)
            || self.put(second, tag, entry, true)
            || self.make_space(first) && self.put(first, tag, entry, false)
            || self.make_space(second) && self.put(second, tag, entry, true)
    }

    /// Puts an entry into an empty slot of a bucket.
    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the slot is below SLOTS, and far fewer than 2^16 entries of one bucket are in others, because the hash is secret"
    )]
    fn put(&mut self, bucket: usize, tag: u16, entry: u32, is_second: bool) -> bool {
        let Some(content) = self.buckets.get_mut(bucket) else {
            return false;
        };
        let Some(slot) = content.empty_slot() else {
            return false;
        };
        content.tags[slot] = tag;
        content.entries[slot] = entry;
        if is_second {
            content.second |= 1 << slot;
            let first = self.other_bucket(bucket, tag);
            if let Some(first) = self.buckets.get_mut(first) {
                first.overflowed += 1;
            }
        }
        true
    }

    /// Moves one entry of a full bucket to its other bucket.
    #[allow(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the slot is below SLOTS"
    )]
    fn make_space(&mut self, bucket: usize) -> bool {
        for slot in 0..SLOTS {
            let Some(content) = self.buckets.get(bucket) else {
                return false;
            };
            let (tag, entry) = (content.tags[slot], content.entries[slot]);
            let is_second = content.second >> slot & 1 == 1;
            if self.put(self.other_bucket(bucket, tag), tag, entry, !is_second) {
                self.clear(Position { bucket, slot });
                return true;
            }
        }
        false
    }

    #[expect(
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "the slot is below SLOTS, and the entry was counted when it was put there"
    )]
    fn clear(&mut self, position: Position) {
        let Position { bucket, slot } = position;
        let Some(content) = self.buckets.get_mut(bucket) else {
            return;
        };
        let tag = std::mem::take(&mut content.tags[slot]);
        if content.second >> slot & 1 == 1 {
            content.second &= !(1 << slot);
            let first = self.other_bucket(bucket, tag);
            if let Some(first) = self.buckets.get_mut(first) {
                first.overflowed -= 1;
            }
        }
    }

    /// Removes an entry.
    pub(crate) fn remove(&mut self, hash: u64, entry: u32) {
        if let Some(position) = self.position(hash, |one| one == entry) {
            self.clear(position);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns deterministic numbers (a linear congruential generator, which is enough for hashes).
    fn hashes(count: u32) -> Vec<u64> {
        let mut state = 1u64;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state ^ state >> 29
        };
        (0..count).map(|_| next()).collect()
    }

    #[test]
    fn a_full_index_finds_each_entry_and_a_removed_one_no_more() {
        const COUNT: u32 = 64 * 1024;
        let mut index = Index::new(COUNT).unwrap();
        assert_eq!(size_of::<Bucket>(), 64);
        assert_eq!(index.octets(), COUNT as usize * 8);
        let hashes = hashes(COUNT);
        for (entry, hash) in (0..).zip(&hashes) {
            assert!(index.insert(*hash, entry), "entry {entry}");
        }
        let overflowed: u32 = index
            .buckets
            .iter()
            .map(|one| u32::from(one.overflowed))
            .sum();
        let second: u32 = index
            .buckets
            .iter()
            .map(|one| one.second.count_ones())
            .sum();
        assert_eq!(overflowed, second);
        assert!(overflowed > 0);
        for (entry, hash) in (0..).zip(&hashes) {
            assert_eq!(index.find(*hash, |one| one == entry), Some(entry));
            assert!(index.candidate(*hash).1);
        }
        for (entry, hash) in (0..).zip(&hashes) {
            index.remove(*hash, entry);
            assert_eq!(index.find(*hash, |one| one == entry), None);
        }
        assert!(
            hashes
                .iter()
                .all(|hash| index.candidate(*hash) == (0, false))
        );
        for bucket in &index.buckets {
            assert_eq!(
                (bucket.tags, bucket.second, bucket.overflowed),
                ([0; SLOTS], 0, 0)
            );
        }
    }

    #[test]
    fn equal_hashes_fill_both_buckets_and_no_more() {
        let mut index = Index::new(1).unwrap();
        let count = (0..)
            .take_while(|entry| index.insert(7 << 48, *entry))
            .count();
        assert_eq!(count, 2 * SLOTS);
        for entry in 0..20 {
            assert_eq!(index.find(7 << 48, |one| one == entry), Some(entry));
        }
        index.remove(7 << 48, 3);
        assert!(index.insert(7 << 48, 99));
    }
}
