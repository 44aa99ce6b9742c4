// SPDX-License-Identifier: Apache-2.0
//! The hash of the address table: two multiplications' worth of mixing under a random seed.
//!
//! Whoever sends frames chooses their addresses. Without the seed nobody can tell which addresses share a
//! bucket; it is drawn from the system's randomness for each table.

use std::hash::{BuildHasher, RandomState};

use super::word::Key;

/// The secret of one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seed {
    add: u64,
    multiply: u64,
}

/// Hash of one key in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

impl Seed {
    pub(super) fn random() -> Self {
        // The standard library's only public source of the system's randomness.
        let draw = |n: u64| RandomState::new().hash_one(n);
        Self {
            add: draw(0),
            // Odd, so that no bit of the key is multiplied away.
            multiply: draw(1) | 1,
        }
    }

    /// Multiply, and fold the high half onto the low one ("mum" of wyhash), twice: once leaves runs of
    /// addresses visible.
    #[inline(always)]
    pub(super) const fn hash(self, key: Key) -> Hash {
        let once = fold(key.word() ^ self.add, self.multiply);
        Hash(fold(once ^ self.multiply, MIX))
    }
}

/// The golden ratio, odd: Knuth's multiplier.
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    (product >> 64) as u64 ^ product as u64
}

impl Hash {
    /// The bucket looked at first. `mask` is the number of buckets less one, that number a power of two.
    #[inline(always)]
    pub(super) const fn primary(self, mask: usize) -> usize {
        self.0 as usize & mask
    }

    /// The bucket looked at second; never the first one.
    #[inline(always)]
    pub(super) const fn secondary(self, mask: usize) -> usize {
        let second = (self.0 >> 32) as usize & mask;
        if second == self.primary(mask) {
            second ^ 1
        } else {
            second
        }
    }

    /// Sixteen bits that go with a value.
    #[inline(always)]
    pub(super) const fn tag(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quietwire_packet::MacAddress;

    #[test]
    fn two_tables_place_addresses_differently_and_one_does_not() {
        let (a, b) = (Seed::random(), Seed::random());
        let keys = (0..64).map(|n| Key::of(MacAddress::from_u64(n)));
        let differing = keys.filter(|key| {
            assert_eq!(a.hash(*key), a.hash(*key));
            a.hash(*key) != b.hash(*key)
        });
        assert!(differing.count() > 60);
    }

    #[test]
    fn runs_of_addresses_fill_buckets_evenly() {
        // A Poisson distribution with mean 1: a bucket in 65536 holds 10 or more with odds under 1 in 100.
        const BUCKETS: usize = 1 << 16;
        for (step, shift) in [(1u64, 0), (1, 24), (1, 32), (0x100, 0)] {
            let seed = Seed::random();
            let mut first = vec![0u8; BUCKETS];
            let mut second = vec![0u8; BUCKETS];
            for n in 0..BUCKETS as u64 {
                let hash = seed.hash(Key::of_number((n * step) << shift));
                first[hash.primary(BUCKETS - 1)] += 1;
                second[hash.secondary(BUCKETS - 1)] += 1;
                assert_ne!(hash.primary(BUCKETS - 1), hash.secondary(BUCKETS - 1));
            }
            for counts in [first, second] {
                assert!(counts.iter().all(|count| *count < 14));
                let empty = counts.iter().filter(|count| **count == 0).count();
                // 1/e of them, give or take ten standard deviations.
                assert!(
                    (23_000..25_300).contains(&empty),
                    "{empty} of {BUCKETS} empty"
                );
            }
        }
    }
}
