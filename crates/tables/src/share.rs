// SPDX-License-Identifier: Apache-2.0
//! Shares of forwarding CPUs: which CPU has the state of an address, of a pair of addresses, and of a block of external ports.
//!
//! Every CPU computes the same answer from the packet alone, so no two CPUs have state of one connection, and none reads that of another.

use quietwire_base::random::mix;

/// Share of one of several forwarding CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    number: u16,
    of: u16,
}

impl Share {
    /// The share of the only CPU.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// Returns the share of the CPU with this number out of `of`, from 0 on. `None` if there is no such CPU.
    #[must_use]
    pub const fn new(number: u16, of: u16) -> Option<Self> {
        if number < of {
            Some(Self { number, of })
        } else {
            None
        }
    }

    /// Returns true if there is one CPU.
    #[must_use]
    pub const fn is_whole(self) -> bool {
        self.of == 1
    }

    /// Returns the number of this CPU, and that of all CPUs.
    pub(crate) const fn numbers(self) -> (u16, u16) {
        (self.number, self.of)
    }

    /// Returns this share of a number of entries, rounded up, at least 1.
    #[must_use]
    pub const fn part(self, total: u32) -> u32 {
        let part = total.div_ceil(self.of as u32);
        if part == 0 { 1 } else { part }
    }

    /// Returns a number for each counter that no other share returns.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "there is at least one CPU, and the number is below 2^16"
    )]
    #[must_use]
    pub const fn distinct(self, counter: u16) -> u16 {
        let numbers = (1 << 16) / self.of as u32;
        ((counter as u32 % numbers) * self.of as u32 + self.number as u32) as u16
    }

    /// Returns true if the state of a host is on this CPU.
    #[must_use]
    pub const fn has_host(self, address: u32) -> bool {
        owner_of_host(address, self.of) == self.number
    }

    /// Returns true if the state of an IPv6 host is on this CPU.
    #[must_use]
    pub const fn has_client(self, address: u128) -> bool {
        owner_of_client(address, self.of) == self.number
    }

    /// Returns an even number of bits that is sufficient for the numbers of all shares, and the number of this one.
    #[must_use]
    pub(crate) const fn tag(self) -> (u32, u32) {
        let bits = (self.of as u32).next_power_of_two().trailing_zeros();
        (bits.next_multiple_of(2), self.number as u32)
    }

    /// Returns true if a block of external ports belongs to this CPU. Blocks of all external addresses are numbered from 0 on.
    #[must_use]
    pub const fn has_block(self, block: usize) -> bool {
        owner_of_block(block, self.of) == self.number
    }
}

/// Maps a hash to a number below `of`.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "a product of 32 and 16 bits, of which the upper part is below the number of CPUs"
)]
#[inline(always)]
const fn reduced(hash: u64, of: u16) -> u16 {
    (((hash >> 32) * of as u64) >> 32) as u16
}

/// Returns a hash of an address that all CPUs compute.
#[expect(clippy::cast_possible_truncation, reason = "both halves count")]
#[inline(always)]
pub(crate) const fn folded(address: u128) -> u64 {
    mix((address >> 64) as u64 ^ mix(address as u64))
}

/// Returns the CPU out of `of` that has the state of an IPv4 host.
#[inline(always)]
pub(crate) const fn owner_of_host(address: u32, of: u16) -> u16 {
    reduced(folded(address as u128), of)
}

/// Returns the CPU out of `of` that has the state of an IPv6 client of NAT64, or of an inside host of NAT66.
#[inline(always)]
pub(crate) const fn owner_of_client(address: u128, of: u16) -> u16 {
    reduced(folded(address), of)
}

/// Returns the CPU out of `of` that has the state of connections between two addresses, in whichever order.
#[inline(always)]
pub(crate) const fn owner_of_pair(one: u128, other: u128, of: u16) -> u16 {
    reduced(mix(folded(one).wrapping_add(folded(other))), of)
}

/// Returns the CPU out of `of` that a block of external ports belongs to. If there are as many blocks as CPUs, each has one.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "the divisor is not 0, and the rest is below it"
)]
#[inline(always)]
pub(crate) const fn owner_of_block(block: usize, of: u16) -> u16 {
    // There is at least one CPU.
    let of = if of == 0 { 1 } else { of };
    (block % of as usize) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_those_of_existing_cpus() {
        assert_eq!(Share::new(0, 1), Some(Share::WHOLE));
        assert_eq!((Share::new(1, 1), Share::new(0, 0)), (None, None));
        let second = Share::new(1, 3).unwrap();
        assert!(!second.is_whole() && Share::WHOLE.is_whole());
        let parts = [0, 1, 3, 4, u32::MAX].map(|total| second.part(total));
        assert_eq!(parts, [1, 1, 1, 2, 1_431_655_765]);
        assert_eq!(Share::WHOLE.part(7), 7);
        assert_eq!(Share::WHOLE.distinct(u16::MAX), u16::MAX);
        let numbers = |share: Share| (0..=u16::MAX).map(move |counter| share.distinct(counter));
        assert!(numbers(second).all(|number| number % 3 == 1));
        assert_eq!((second.tag(), Share::WHOLE.tag()), ((2, 1), (0, 0)));
        assert_eq!(Share::new(16, 17).unwrap().tag(), (6, 16));
    }

    #[test]
    fn each_host_and_each_block_has_one_owner_and_owners_have_about_as_many() {
        let shares: Vec<Share> = (0..5)
            .map(|number| Share::new(number, 5).unwrap())
            .collect();
        let mut hosts = [0; 5];
        let mut pairs = [0; 5];
        for host in 0..10_000 {
            let address = 0x0a00_0000 + host;
            let owners: Vec<_> = shares.iter().filter(|one| one.has_host(address)).collect();
            assert_eq!(owners.len(), 1);
            hosts[usize::from(owner_of_host(address, 5))] += 1;
            let (one, other) = (u128::from(address), u128::from(host) << 70);
            let clients = shares.iter().filter(|share| share.has_client(other));
            assert_eq!(clients.count(), 1);
            let owner = owner_of_pair(one, other, 5);
            assert_eq!(owner, owner_of_pair(other, one, 5));
            pairs[usize::from(owner)] += 1;
        }
        for count in hosts.into_iter().chain(pairs) {
            assert!((1800..2200).contains(&count), "{hosts:?} {pairs:?}");
        }
        for block in 0..100 {
            let owners = shares.iter().filter(|one| one.has_block(block));
            assert_eq!(owners.count(), 1);
        }
        assert!(
            shares
                .iter()
                .all(|one| (0..5).any(|block| one.has_block(block)))
        );
        assert!(Share::WHOLE.has_host(7) && Share::WHOLE.has_block(7));
    }
}
