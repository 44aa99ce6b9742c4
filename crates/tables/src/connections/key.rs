// SPDX-License-Identifier: Apache-2.0
//! Keys: one for both directions of a connection, and their hash.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Address and port of one side. For ICMP echoes, the port is the identifier; for protocols without ports, 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address.
    pub address: IpAddr,
    /// Port.
    pub port: u16,
}

const WORDS: usize = 5;
/// Bits of the last word, from the least significant one: protocol, zone, and the flags below.
const ZONE: u32 = 8;
const IS_IPV6: u64 = 1 << 24;
/// The higher endpoint sent the echo request. Echoes of both sides with one identifier are two connections.
const IS_HIGHER_REQUESTING: u64 = 1 << 25;
/// Ports of the lower and of the higher endpoint.
const LOWER_PORT: u32 = 48;
const HIGHER_PORT: u32 = 32;

/// Bits of the port behind the address of an IPv4 endpoint.
const PORT_BITS: u32 = 16;
const PORT: u64 = (1 << PORT_BITS) - 1;

/// Key of a connection: both endpoints in ascending order, the protocol and the zone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C)]
pub(super) struct Key {
    words: [u64; WORDS],
}

/// A packet's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sorted {
    pub(super) key: Key,
    /// True if the packet's source is the higher endpoint.
    pub(super) is_from_higher: bool,
}

/// Addresses of a packet as numbers, source first.
#[derive(Clone, Copy, Debug)]
pub(super) enum Addresses {
    /// IPv4.
    V4(u32, u32),
    /// IPv6.
    V6(u128, u128),
}

/// Side of an echo that sent the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Echo {
    /// No echo.
    None,
    /// The sender of the request.
    Request,
    /// The sender of the reply.
    Reply,
}

impl Sorted {
    /// The key of a packet that has none.
    pub(super) const NONE: Self = Self {
        key: Key::NONE,
        is_from_higher: false,
    };
}

impl Key {
    /// No key.
    pub(super) const NONE: Self = Self { words: [0; WORDS] };

    /// Creates the key of a packet with these ports, source first.
    #[inline(always)]
    pub(super) fn sort(
        addresses: Addresses,
        ports: (u16, u16),
        protocol: u8,
        zone: u16,
        echo: Echo,
    ) -> Sorted {
        let (source, destination, version) = match addresses {
            Addresses::V4(source, destination) => (u128::from(source), u128::from(destination), 0),
            Addresses::V6(source, destination) => (source, destination, IS_IPV6),
        };
        let (from, to) = ((source, ports.0), (destination, ports.1));
        let is_from_higher = from > to;
        let (lower, higher) = if is_from_higher {
            (to, from)
        } else {
            (from, to)
        };
        let is_higher_requesting = match echo {
            Echo::None => false,
            Echo::Request => is_from_higher,
            Echo::Reply => !is_from_higher,
        };
        let last = u64::from(lower.1) << LOWER_PORT
            | u64::from(higher.1) << HIGHER_PORT
            | version
            | if is_higher_requesting {
                IS_HIGHER_REQUESTING
            } else {
                0
            }
            | u64::from(zone) << ZONE
            | u64::from(protocol);
        let words = [
            high(lower.0),
            low(lower.0),
            high(higher.0),
            low(higher.0),
            last,
        ];
        Sorted {
            key: Self { words },
            is_from_higher,
        }
    }

    /// Creates the key of an IPv4 packet that is no echo, as [`Self::sort`] does. An endpoint is the address in front of the 16 bits of the
    /// port, source first.
    #[inline(always)]
    pub(super) const fn of_ipv4((from, to): (u64, u64), protocol: u8, zone: u16) -> Sorted {
        let is_from_higher = from > to;
        let (lower, higher) = if is_from_higher {
            (to, from)
        } else {
            (from, to)
        };
        let last = (lower & PORT) << LOWER_PORT
            | (higher & PORT) << HIGHER_PORT
            | (zone as u64) << ZONE
            | protocol as u64;
        Sorted {
            key: Self {
                words: [0, lower >> PORT_BITS, 0, higher >> PORT_BITS, last],
            },
            is_from_higher,
        }
    }

    /// Returns true if both are the same. Unlike the derived comparison, it is no call and has no branch.
    #[inline(always)]
    pub(super) const fn is(&self, other: &Self) -> bool {
        let ([a, b, c, d, e], [f, g, h, i, j]) = (self.words, other.words);
        (a ^ f) | (b ^ g) | (c ^ h) | (d ^ i) | (e ^ j) == 0
    }

    /// Returns true if both endpoints are the same.
    #[inline(always)]
    pub(super) const fn has_one_endpoint(&self) -> bool {
        let [a, b, c, d, last] = self.words;
        a == c && b == d && port(last, LOWER_PORT) == port(last, HIGHER_PORT)
    }

    /// Returns both endpoints, the lower one first.
    pub(super) fn endpoints(&self) -> [Endpoint; 2] {
        let [a, b, c, d, last] = self.words;
        let address = |high: u64, low: u64| match last & IS_IPV6 {
            0 => IpAddr::V4(Ipv4Addr::from_bits((low & 0xffff_ffff) as u32)),
            _ => IpAddr::V6(Ipv6Addr::from_bits(
                u128::from(high) << 64 | u128::from(low),
            )),
        };
        [
            Endpoint {
                address: address(a, b),
                port: port(last, LOWER_PORT),
            },
            Endpoint {
                address: address(c, d),
                port: port(last, HIGHER_PORT),
            },
        ]
    }

    /// Returns the IP protocol.
    pub(super) const fn protocol(&self) -> u8 {
        (self.words[4] & 0xff) as u8
    }

    /// Returns the zone.
    #[inline(always)]
    pub(super) const fn zone(&self) -> u16 {
        port(self.words[4], ZONE)
    }
}

/// Secret of one table, so that no sender can choose connections of one bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Secret {
    words: [u64; WORDS + 1],
}

impl Secret {
    /// Draws a secret.
    pub(super) fn random() -> Self {
        // The standard library has no other public source of the operating system's randomness.
        let draw = |n: usize| RandomState::new().hash_one(n);
        Self {
            words: std::array::from_fn(draw),
        }
    }

    /// Returns the hash of a key: a sum of products of key and secret (the function NH of RFC 4418, section 5.2, with wider words).
    #[inline(always)]
    pub(super) const fn hash(&self, key: &Key) -> u64 {
        let [a, b, c, d, e] = key.words;
        let [k0, k1, k2, k3, k4, k5] = self.words;
        let sum = product(a.wrapping_add(k0), b.wrapping_add(k1))
            .wrapping_add(product(c.wrapping_add(k2), d.wrapping_add(k3)))
            .wrapping_add(product(e.wrapping_add(k4), k5 | 1));
        let folded = high(sum) ^ low(sum);
        // The high half of a product depends on all bits of its factors, the low half on the lower ones only.
        let mixed = product(folded, k5 | 1);
        high(mixed) ^ low(mixed)
    }
}

#[inline(always)]
const fn high(value: u128) -> u64 {
    (value >> 64) as u64
}

#[inline(always)]
const fn low(value: u128) -> u64 {
    (value & 0xffff_ffff_ffff_ffff) as u64
}

/// Returns the 16 bits of a word from a bit on.
#[inline(always)]
const fn port(word: u64, from: u32) -> u16 {
    ((word >> from) & 0xffff) as u16
}

#[inline(always)]
const fn product(a: u64, b: u64) -> u128 {
    // A product of two words has at most 128 bits.
    (a as u128).wrapping_mul(b as u128)
}
