// SPDX-License-Identifier: Apache-2.0
//! Hash of the address table: a permutation of the keys under a random seed.
//!
//! A permutation loses no information: the bucket number is part of the key, and the entry stores only the rest of the key (Knuth, The Art
//! of Computer Programming, volume 3, section 6.4, exercise 13: quotienting).
//!
//! Senders choose their addresses. Without the seed they cannot predict which addresses share a bucket. The seed of each table comes from
//! the operating system's randomness.

use std::hash::{BuildHasher, RandomState};

use super::word::{Identity, KEY_BITS, Key, REST_BITS};

const KEY_MASK: u64 = (1 << KEY_BITS) - 1;
/// A shift by at least half the bits: such a step is its own inverse. Two of them between three multiplications leave no pattern of address
/// runs or of one address in many VLANs. One was observed to be insufficient.
const FOLD: u32 = 32;

/// Minimum number of buckets, as a power of two: with fewer, the rest of a key does not fit into an entry.
pub(super) const BUCKET_BITS_MIN: u32 = KEY_BITS - REST_BITS;

/// Secret of one table, and its number of buckets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    add: u64,
    multiply: [u64; 3],
    divide: [u64; 3],
    step: u64,
    bucket_bits: u32,
}

/// Hash of one key in one table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(u64);

impl Hash {
    /// Returns the hash as a number, for tables of other sizes.
    pub(super) const fn folded(self) -> u64 {
        self.0
    }
}

impl Permutation {
    /// Creates a secret for a table of two to the power of `bucket_bits` buckets.
    pub(super) fn random(bucket_bits: u32) -> Self {
        // The standard library has no other public source of the operating system's randomness.
        let draw = |n: u64| RandomState::new().hash_one(n);
        // Odd, so that the multiplication loses no bit of the key.
        let multiply = [draw(1) | 1, draw(2) | 1, draw(3) | 1];
        Self {
            add: draw(0) & KEY_MASK,
            multiply,
            divide: multiply.map(inverse),
            step: draw(4) | 1,
            bucket_bits: bucket_bits.max(BUCKET_BITS_MIN),
        }
    }

    #[allow(
        clippy::arithmetic_side_effects,
        reason = "a table has far fewer than 2^32 buckets"
    )]
    pub(super) const fn buckets(self) -> usize {
        1 << self.bucket_bits
    }

    #[inline(always)]
    pub(super) const fn hash(self, key: Key) -> Hash {
        let mut number = key.number() ^ self.add;
        number = number.wrapping_mul(self.multiply[0]) & KEY_MASK;
        number ^= number >> FOLD;
        number = number.wrapping_mul(self.multiply[1]) & KEY_MASK;
        number ^= number >> FOLD;
        Hash(number.wrapping_mul(self.multiply[2]) & KEY_MASK)
    }

    /// Returns the first bucket: the highest bits, which depend on all bits of the key.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "the upper bits of the hash are a bucket of the table"
    )]
    #[inline(always)]
    pub(super) const fn first_bucket(self, hash: Hash) -> usize {
        (hash.0 >> self.rest_bits()) as usize
    }

    /// Returns the key's identity in its first bucket.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a key has more bits than a bucket number"
    )]
    #[inline(always)]
    pub(super) const fn identity(self, hash: Hash) -> Identity {
        Identity::first(hash.0 & ((1 << self.rest_bits()) - 1))
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a key has more bits than a bucket number"
    )]
    #[inline(always)]
    const fn rest_bits(self) -> u32 {
        KEY_BITS - self.bucket_bits
    }

    /// Returns the other bucket of the key, given one of them; always a different one.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "the upper bits of the product are a bucket of the table"
    )]
    #[inline(always)]
    pub(super) const fn other_bucket(self, bucket: usize, identity: Identity) -> usize {
        let step = identity.rest().wrapping_mul(self.step) >> (u64::BITS - self.bucket_bits);
        bucket ^ (step as usize | 1)
    }

    /// Returns the key of an entry in a bucket.
    pub(super) const fn key(self, bucket: usize, identity: Identity) -> Key {
        let first = if identity.is_in_second_bucket() {
            self.other_bucket(bucket, identity)
        } else {
            bucket
        };
        let mut number = (first as u64) << self.rest_bits() | identity.rest();
        number = number.wrapping_mul(self.divide[2]) & KEY_MASK;
        number ^= number >> FOLD;
        number = number.wrapping_mul(self.divide[1]) & KEY_MASK;
        number ^= number >> FOLD;
        number = number.wrapping_mul(self.divide[0]) & KEY_MASK;
        Key::from_number(number ^ self.add)
    }
}

/// Returns the multiplicative inverse of an odd number modulo two to the power of 64: Newton's iteration, which doubles the number of
/// correct bits each time, from the 3 that the number itself has.
#[expect(clippy::arithmetic_side_effects, reason = "at most 64")]
const fn inverse(odd: u64) -> u64 {
    let mut inverse = odd;
    let mut right_bits = 3;
    while right_bits < u64::BITS {
        inverse = inverse.wrapping_mul(2u64.wrapping_sub(odd.wrapping_mul(inverse)));
        right_bits *= 2;
    }
    inverse
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use quietwire_packet::MacAddress;

    #[test]
    fn two_tables_place_addresses_differently_and_one_does_not() {
        let (a, b) = (Permutation::random(16), Permutation::random(16));
        let keys = (0..64).map(|n| Key::of(MacAddress::from_u64(n)));
        let differing = keys.filter(|key| {
            assert_eq!(a.hash(*key), a.hash(*key));
            a.hash(*key) != b.hash(*key)
        });
        assert!(differing.count() > 60);
    }

    proptest! {
        #[test]
        fn a_key_is_known_by_its_place(vlan in 0..4095u16, address: u64, bucket_bits in 0..25u32) {
            let permutation = Permutation::random(bucket_bits);
            let key = Key::in_vlan(vlan, address);
            let hash = permutation.hash(key);
            let (first, identity) = (permutation.first_bucket(hash), permutation.identity(hash));
            let second = permutation.other_bucket(first, identity);
            prop_assert!(first < permutation.buckets() && second < permutation.buckets() && first != second);
            prop_assert_eq!(permutation.key(first, identity), key);
            prop_assert_eq!(permutation.key(second, identity.in_second_bucket()), key);
            prop_assert_eq!(permutation.other_bucket(second, identity.in_second_bucket()), first);
        }
    }

    #[test]
    fn runs_of_addresses_fill_buckets_evenly() {
        // Poisson distribution with mean 1: the probability that any of 65536 buckets holds 10 or more is below 1 in 100.
        const BUCKETS: usize = 1 << 16;
        for (step, shift) in [(1u64, 0), (1, 24), (1, 32), (0x100, 0), (1, 44)] {
            let permutation = Permutation::random(16);
            let mut first = vec![0u8; BUCKETS];
            let mut second = vec![0u8; BUCKETS];
            for n in 0..BUCKETS as u64 {
                let key = Key::from_number((n * step) << shift & KEY_MASK);
                let hash = permutation.hash(key);
                let bucket = permutation.first_bucket(hash);
                first[bucket] += 1;
                second[permutation.other_bucket(bucket, permutation.identity(hash))] += 1;
            }
            for counts in [first, second] {
                assert!(counts.iter().all(|count| *count < 16), "{step} << {shift}");
                let empty = counts.iter().filter(|count| **count == 0).count();
                // At most 1/e of them, within ten standard deviations: runs may be distributed better than random keys.
                assert!(
                    empty < 25_300,
                    "{empty} of {BUCKETS} empty, {step} << {shift}"
                );
            }
        }
    }
}
