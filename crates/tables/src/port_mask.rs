// SPDX-License-Identifier: Apache-2.0
//! Sets of ports of the switch, as bit masks.

/// Words of a mask.
const WORDS: usize = 4;

/// A set of ports: a bit for each number below [`PortMask::PORTS`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortMask([u64; WORDS]);

impl PortMask {
    /// Maximum number of ports of a switch: a mask has a bit for each.
    pub const PORTS: usize = WORDS * u64::BITS as usize;

    /// Adds a port. Returns false for a number that no port has.
    #[allow(clippy::arithmetic_side_effects, reason = "the bit is below 64")]
    #[inline(always)]
    pub fn insert(&mut self, port: u16) -> bool {
        match self.0.get_mut(usize::from(port >> 6)) {
            Some(word) => {
                *word |= 1u64 << (port & 63);
                true
            }
            None => false,
        }
    }

    /// Returns true if no port is in the set.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self == Self::default()
    }

    /// Returns the ports that are in one of both sets.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        self.ports().chain(other.ports()).collect()
    }

    /// Returns the numbers of the ports, lowest first.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "ports are below PORTS, and a word is not zero"
    )]
    #[inline(always)]
    pub fn ports(self) -> impl Iterator<Item = u16> {
        let Self(mut words) = self;
        let mut place = 0;
        std::iter::from_fn(move || {
            while let Some(word) = words.get_mut(place) {
                if *word != 0 {
                    let bit = word.trailing_zeros() as u16;
                    *word &= *word - 1;
                    return Some((place as u16 * 64) + bit);
                }
                place += 1;
            }
            None
        })
    }
}

impl FromIterator<u16> for PortMask {
    /// Leaves numbers out that no port has.
    fn from_iter<I: IntoIterator<Item = u16>>(ports: I) -> Self {
        let mut mask = Self::default();
        for port in ports {
            mask.insert(port);
        }
        mask
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_mask_is_a_set_of_numbers(
            ports in prop::collection::vec(0..300u16, 0..40),
            others in prop::collection::vec(0..300u16, 0..40),
        ) {
            let expected = |ports: &[u16]| -> BTreeSet<u16> {
                let valid = ports.iter().copied();
                valid.filter(|port| usize::from(*port) < PortMask::PORTS).collect()
            };
            let mask: PortMask = ports.iter().copied().collect();
            prop_assert!(mask.ports().eq(expected(&ports)));
            prop_assert_eq!(mask.is_empty(), expected(&ports).is_empty());
            let both = mask.union(others.iter().copied().collect());
            prop_assert!(both.ports().eq(&expected(&ports) | &expected(&others)));
        }
    }

    #[test]
    fn each_port_has_a_bit_of_its_own() {
        let mut all = PortMask::default();
        for port in 0..PortMask::PORTS as u16 {
            let mut one = PortMask::default();
            assert!(one.insert(port) && all.insert(port));
            assert!(one.ports().eq([port]));
        }
        assert!(all.ports().eq(0..PortMask::PORTS as u16));
        assert!(!all.insert(PortMask::PORTS as u16) && !all.insert(u16::MAX));
    }
}
