// SPDX-License-Identifier: Apache-2.0
//! Random numbers that follow from a seed: SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).

/// Difference of consecutive states.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// Returns the word of a state: 64 bits that differ for each number.
#[inline(always)]
#[must_use]
pub const fn word_of(state: u64) -> u64 {
    let word = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Returns the first word of a seed. As [`word_of`], and not 0 for 0.
#[inline(always)]
#[must_use]
pub const fn mix(seed: u64) -> u64 {
    word_of(seed.wrapping_add(STEP))
}

/// Returns a number in \[0, 1) for each seed and index: the word of the seed at this index, from 0.
#[must_use]
pub fn fraction(seed: u64, index: u64) -> f64 {
    let word = mix(seed.wrapping_add(index.wrapping_mul(STEP)));
    (word >> 11) as f64 / (1u64 << 53) as f64
}

/// Generator of random numbers.
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
        let word = mix(self.0);
        self.0 = self.0.wrapping_add(STEP);
        word
    }

    /// Returns a number below `end`, 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word().checked_rem(end).unwrap_or(0)
    }

    /// Returns an index of a list with `length` elements, 0 if there are none.
    pub fn index(&mut self, length: usize) -> usize {
        // Below a `usize`.
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    /// Returns one of the values.
    pub fn one_of<T: Copy>(&mut self, first: T, others: &[T]) -> T {
        let index = self.index(others.len().saturating_add(1));
        let other = index.checked_sub(1).and_then(|index| others.get(index));
        other.copied().unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_those_of_splitmix64() {
        // First published number of SplitMix64 from seed 0.
        assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
        let mut random = Random::new(7);
        for index in 0..100 {
            let word = random.word();
            assert_eq!(
                fraction(7, index),
                (word >> 11) as f64 / (1u64 << 53) as f64
            );
        }
    }
}
