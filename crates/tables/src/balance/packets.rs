// SPDX-License-Identifier: Apache-2.0
//! Packets of both IP versions, as load balancers read and translate them.

use std::net::{SocketAddrV4, SocketAddrV6};

use super::endpoint::BalanceEndpoint;
use crate::nat::packet::{End, Kind, View};
use crate::nat::rewrite::Which;
use crate::nat::{NatDrop, packet as ipv4, rewrite as ipv4_rewrite};
use crate::nat66::{packet as ipv6, rewrite as ipv6_rewrite};

/// A packet, and the one in an ICMP error.
type Read<A> = Result<(View<A>, Kind<A>), NatDrop>;

/// Packets of the IP version of an endpoint.
pub(super) trait Packets: BalanceEndpoint {
    /// Parses a packet from its IP header on that is not a fragment. `length` is the number of octets in the frame.
    fn read(packet: &[u8], length: usize) -> Read<Self::Address>;

    /// Replaces an endpoint of a packet.
    fn translate(
        packet: &mut [u8],
        view: &View<Self::Address>,
        which: Which,
        end: End<Self::Address>,
    );

    /// Replaces an endpoint of the packet within an ICMP error, whose transport header is at `icmp`.
    fn translate_inner(
        packet: &mut [u8],
        icmp: usize,
        inner: &View<Self::Address>,
        which: Which,
        end: End<Self::Address>,
    );

    /// Replaces an address of an ICMP error, whose transport header is at `icmp`.
    fn translate_error(packet: &mut [u8], icmp: usize, which: Which, address: Self::Address);
}

impl Packets for SocketAddrV4 {
    #[inline(always)]
    fn read(packet: &[u8], length: usize) -> Read<u32> {
        ipv4::read(packet, length)
    }

    #[inline(always)]
    fn translate(packet: &mut [u8], view: &View, which: Which, end: End) {
        ipv4_rewrite::translate(packet, view, which, end);
    }

    fn translate_inner(packet: &mut [u8], icmp: usize, inner: &View, which: Which, end: End) {
        ipv4_rewrite::translate_inner(packet, icmp, inner, which, end);
    }

    /// The checksum of ICMP does not contain the addresses (RFC 792).
    fn translate_error(packet: &mut [u8], _icmp: usize, which: Which, address: u32) {
        ipv4_rewrite::translate_address(packet, which, address);
    }
}

impl Packets for SocketAddrV6 {
    #[inline(always)]
    fn read(packet: &[u8], length: usize) -> Read<u128> {
        ipv6::read_whole(packet, length)
    }

    #[inline(always)]
    fn translate(packet: &mut [u8], view: &View<u128>, which: Which, end: End<u128>) {
        ipv6_rewrite::translate(packet, view, which, end);
    }

    fn translate_inner(
        packet: &mut [u8],
        icmp: usize,
        inner: &View<u128>,
        which: Which,
        end: End<u128>,
    ) {
        ipv6_rewrite::translate_inner(packet, icmp, inner, which, end);
    }

    /// The checksum of ICMPv6 contains the addresses (RFC 8200, section 8.1).
    fn translate_error(packet: &mut [u8], icmp: usize, which: Which, address: u128) {
        ipv6_rewrite::translate_error(packet, icmp, which, address);
    }
}
