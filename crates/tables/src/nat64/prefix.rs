// SPDX-License-Identifier: Apache-2.0
//! IPv6 addresses that stand for IPv4 hosts (RFC 6052).

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::Ipv6Net;

/// The well-known prefix, 64:ff9b::/96 (RFC 6052, section 2.1).
const WELL_KNOWN: u128 = 0x0064_ff9b << 96;
/// Lengths of prefixes (RFC 6052, section 2.2).
const LENGTHS: [u8; 6] = [32, 40, 48, 56, 64, 96];
/// Number of the octet that is always 0, bits 64 to 71 (RFC 6052, section 2.2).
const RESERVED: usize = 8;
/// Prefixes that are not of the Internet (RFC 6890, section 2.2.2), as address and number of bits.
const NOT_GLOBAL: [(Ipv4Addr, u32); 10] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
];

/// Prefixes of private networks, of shared addresses and of links (RFC 1918, section 3; RFC 6598; RFC 3927), as above.
const PRIVATE: [(Ipv4Addr, u32); 5] = [
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
];

/// An IPv6 prefix, in which each IPv4 host has an address: the well-known one, or one of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix64 {
    prefix: u128,
    length: u8,
    has_private: bool,
}

/// Error of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Prefix64Error {
    /// The length is none of RFC 6052.
    #[error("{0} has no length for IPv4 addresses (use /32, /40, /48, /56, /64 or /96)")]
    Length(Ipv6Net),
    /// Bits 64 to 71 are not 0.
    #[error("{0} has bits in the octet behind the first 64, which must be 0 (use another prefix)")]
    Reserved(Ipv6Net),
    /// No prefix of unicast addresses.
    #[error(
        "{0} is not a prefix of unicast addresses (use 64:ff9b::/96, or a prefix of your network)"
    )]
    NotUnicast(Ipv6Net),
}

/// Returns true for an address that can be a host's: not 0.0.0.0/8, loopback, multicast, or reserved.
const fn is_host(address: u32) -> bool {
    !matches!((address >> 24) as u8, 0 | 127 | 224..)
}

/// Returns true for an address of one of these prefixes.
fn is_of(address: u32, prefixes: &[(Ipv4Addr, u32)]) -> bool {
    let mut prefixes = prefixes.iter();
    prefixes.any(|(prefix, bits)| (address ^ prefix.to_bits()).leading_zeros() >= *bits)
}

impl Prefix64 {
    /// Creates a prefix with private IPv4 addresses, unless it is the well-known one.
    ///
    /// # Errors
    /// [`Prefix64Error`].
    pub fn new(net: Ipv6Net) -> Result<Self, Prefix64Error> {
        let (prefix, length) = (net.network(), net.prefix_len());
        if !LENGTHS.contains(&length) {
            return Err(Prefix64Error::Length(net));
        }
        if prefix.octets()[RESERVED] != 0 {
            return Err(Prefix64Error::Reserved(net));
        }
        let is_unicast =
            !prefix.is_multicast() && !prefix.is_unspecified() && !prefix.is_unicast_link_local();
        if !is_unicast {
            return Err(Prefix64Error::NotUnicast(net));
        }
        Ok(Self {
            prefix: prefix.to_bits(),
            length,
            has_private: true,
        })
    }

    /// Returns the prefix without private IPv4 addresses: no host reaches a private network by it.
    #[must_use]
    pub const fn without_private(self) -> Self {
        Self {
            has_private: false,
            ..self
        }
    }

    /// Returns true if an address is of the prefix.
    #[inline(always)]
    #[must_use]
    pub const fn contains(&self, address: u128) -> bool {
        (address ^ self.prefix).leading_zeros() >= self.length as u32
    }

    /// Returns the numbers of the four octets that contain the IPv4 address (RFC 6052, section 2.2).
    fn places(&self) -> impl Iterator<Item = usize> {
        let first = usize::from(self.length / 8);
        (first..16).filter(|place| *place != RESERVED).take(4)
    }

    /// Returns true if an IPv4 address may be one of the prefix: that of a host, and in the well-known prefix only a global one (RFC 6052,
    /// section 3.1).
    fn allows(&self, address: u32) -> bool {
        is_host(address)
            && (self.prefix != WELL_KNOWN || !is_of(address, &NOT_GLOBAL))
            && (self.has_private || !is_of(address, &PRIVATE))
    }

    /// Returns the IPv6 address of an IPv4 host; `None` for an address that the prefix must not contain.
    #[must_use]
    pub fn ipv6_of(&self, address: u32) -> Option<u128> {
        if !self.allows(address) {
            return None;
        }
        let mut octets = self.prefix.to_be_bytes();
        for (place, octet) in self.places().zip(address.to_be_bytes()) {
            *octets.get_mut(place)? = octet;
        }
        Some(u128::from_be_bytes(octets))
    }

    /// Returns the IPv4 address in an IPv6 one. `None` if that is not of the prefix, has bits behind the IPv4 address, or is one that the
    /// prefix must not contain.
    #[must_use]
    pub fn ipv4_of(&self, address: u128) -> Option<u32> {
        if !self.contains(address) {
            return None;
        }
        let octets = address.to_be_bytes();
        let mut found = [0; 4];
        for (place, octet) in self.places().zip(&mut found) {
            *octet = *octets.get(place)?;
        }
        let found = u32::from_be_bytes(found);
        // Another address of the same host would get no answers.
        (self.ipv6_of(found) == Some(address)).then_some(found)
    }
}

impl fmt::Display for Prefix64 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", Ipv6Addr::from_bits(self.prefix), self.length)
    }
}
