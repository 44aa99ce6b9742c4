// SPDX-License-Identifier: Apache-2.0
//! Endpoints of both IP versions, as the tables of load balancers have them.

use std::fmt::Debug;
use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use quietwire_base::random::mix;
use quietwire_packet::{IPV4_DESTINATION_AT, IPV4_SOURCE_AT, ipv4_address_at};

use crate::nat66::packet::{DESTINATION_AT, SOURCE_AT, address_at};

/// An endpoint of IPv4 ([`SocketAddrV4`]) or IPv6 ([`SocketAddrV6`], without flow label and scope).
pub trait BalanceEndpoint: Copy + Ord + Debug + Into<SocketAddr> {
    /// Its address in a table.
    type Address: Copy + Default + Ord + Debug + zerocopy::FromZeros;

    /// Returns the endpoint of an address and a port.
    fn of_parts(address: Self::Address, port: u16) -> Self;

    /// Returns address and port.
    fn parts(&self) -> (Self::Address, u16);

    /// Returns an endpoint of this IP version; `None` for one of the other.
    fn of_socket(socket: SocketAddr) -> Option<Self>;

    /// Returns a number of the endpoint, the same on all switches.
    fn identity(&self) -> u64;

    /// Returns a hash of the endpoint with a secret.
    fn keyed_hash(&self, secret: [u64; 2]) -> u64;

    /// Returns the source address of a packet, from its IP header on.
    fn source_of(packet: &[u8]) -> Option<Self::Address>;

    /// Returns the destination address of a packet, from its IP header on.
    fn destination_of(packet: &[u8]) -> Option<Self::Address>;
}

/// Multiplies a word by an odd factor, and returns both halves of the product in one word.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "the product of 64 and 64 bits fits in 128, and both halves count"
)]
#[inline(always)]
const fn folded_product(word: u64, factor: u64) -> u64 {
    let product = word as u128 * (factor | 1) as u128;
    (product >> 64) as u64 ^ product as u64
}

impl BalanceEndpoint for SocketAddrV4 {
    type Address = u32;

    #[inline(always)]
    fn of_parts(address: u32, port: u16) -> Self {
        Self::new(address.into(), port)
    }

    #[inline(always)]
    fn parts(&self) -> (u32, u16) {
        (self.ip().to_bits(), self.port())
    }

    fn of_socket(socket: SocketAddr) -> Option<Self> {
        match socket {
            SocketAddr::V4(socket) => Some(socket),
            SocketAddr::V6(_) => None,
        }
    }

    #[inline(always)]
    fn identity(&self) -> u64 {
        u64::from(self.ip().to_bits()) << 16 | u64::from(self.port())
    }

    #[inline(always)]
    fn keyed_hash(&self, [first, second]: [u64; 2]) -> u64 {
        folded_product(folded_product(self.identity() ^ first, second), first)
    }

    #[inline(always)]
    fn source_of(packet: &[u8]) -> Option<u32> {
        ipv4_address_at(packet, IPV4_SOURCE_AT)
    }

    #[inline(always)]
    fn destination_of(packet: &[u8]) -> Option<u32> {
        ipv4_address_at(packet, IPV4_DESTINATION_AT)
    }
}

impl BalanceEndpoint for SocketAddrV6 {
    type Address = u128;

    #[inline(always)]
    fn of_parts(address: u128, port: u16) -> Self {
        Self::new(address.into(), port, 0, 0)
    }

    #[inline(always)]
    fn parts(&self) -> (u128, u16) {
        (self.ip().to_bits(), self.port())
    }

    fn of_socket(socket: SocketAddr) -> Option<Self> {
        match socket {
            SocketAddr::V4(_) => None,
            SocketAddr::V6(socket) => Some(socket),
        }
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    #[inline(always)]
    fn identity(&self) -> u64 {
        let (address, port) = self.parts();
        mix((address >> 64) as u64 ^ mix(address as u64 ^ mix(port.into())))
    }

    #[expect(clippy::cast_possible_truncation, reason = "both halves count")]
    #[inline(always)]
    fn keyed_hash(&self, [first, second]: [u64; 2]) -> u64 {
        let (address, port) = self.parts();
        let of_network = folded_product((address >> 64) as u64 ^ first, second);
        let of_host = folded_product(of_network ^ address as u64 ^ second, first);
        folded_product(of_host ^ u64::from(port) ^ first, second)
    }

    #[inline(always)]
    fn source_of(packet: &[u8]) -> Option<u128> {
        address_at(packet, SOURCE_AT)
    }

    #[inline(always)]
    fn destination_of(packet: &[u8]) -> Option<u128> {
        address_at(packet, DESTINATION_AT)
    }
}
