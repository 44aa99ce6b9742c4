// SPDX-License-Identifier: Apache-2.0
//! Random numbers that follow from a seed, for fuzzing, for faults in tests and for permutation tests.

/// SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Returns a generator with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number below `end`, 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end.max(1)
    }

    /// Returns an index of a list with `length` elements, 0 if there are none.
    pub fn index(&mut self, length: usize) -> usize {
        self.below(length as u64) as usize
    }

    /// Returns one of the values.
    pub fn one_of<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let index = self.index(others.len() + 1);
        let other = index.checked_sub(1).and_then(|index| others.get(index));
        other.copied().unwrap_or(first)
    }
}
