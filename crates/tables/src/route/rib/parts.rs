// SPDX-License-Identifier: Apache-2.0
//! A map from prefixes, in many parts of similar size, so that a listing can read one part at a time. Growing moves the entries of
//! one part only.

use std::collections::HashMap;
use std::hash::Hash;

use ipnet::{Ipv4Net, Ipv6Net};

/// Number of parts. A million prefixes are some 4000 per part.
pub(super) const PARTS: usize = 256;

/// A prefix that determines its part.
pub(super) trait Prefix: Copy + Eq + Hash {
    /// Returns an index below [`PARTS`].
    fn part(&self) -> usize;
}

/// Mixes a number and a prefix length: the high bits of a product depend on all bits (Knuth's multiplicative hash).
#[allow(
    clippy::cast_possible_truncation,
    reason = "the upper eight bits of the product"
)]
fn mix(number: u64, length: u8) -> usize {
    let product = (number ^ (u64::from(length) << 56)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (product >> 56) as usize % PARTS
}

impl Prefix for Ipv4Net {
    fn part(&self) -> usize {
        mix(u64::from(self.addr().to_bits()), self.prefix_len())
    }
}

impl Prefix for Ipv6Net {
    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    fn part(&self) -> usize {
        let bits = self.addr().to_bits();
        let low = (bits as u64).rotate_left(29);
        mix((bits >> 64) as u64 ^ low, self.prefix_len())
    }
}

/// A value for each prefix.
#[derive(Debug)]
pub(super) struct Prefixes<P, V> {
    parts: Box<[HashMap<P, V>]>,
}

impl<P: Prefix, V> Prefixes<P, V> {
    pub(super) fn new() -> Self {
        Self {
            parts: (0..PARTS).map(|_| HashMap::new()).collect(),
        }
    }

    pub(super) fn get(&self, prefix: &P) -> Option<&V> {
        self.parts.get(prefix.part())?.get(prefix)
    }

    /// Replaces the value of a prefix.
    pub(super) fn set(&mut self, prefix: P, value: Option<V>) {
        if let Some(part) = self.parts.get_mut(prefix.part()) {
            match value {
                Some(value) => part.insert(prefix, value),
                None => part.remove(&prefix),
            };
        }
    }

    /// Returns all prefixes of one part.
    pub(super) fn part(&self, part: usize) -> impl Iterator<Item = (&P, &V)> {
        self.parts.get(part).into_iter().flatten()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&P, &V)> {
        self.parts.iter().flatten()
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = V> {
        self.parts.into_iter().flat_map(HashMap::into_values)
    }
}
