// SPDX-License-Identifier: Apache-2.0
//! One-to-one translations: an external address for all packets of an inside host, without state.

use quietwire_packet::{TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET};

use super::names::NatDrop;
use super::packet::{End, Header, Kind, header, read};
use super::rewrite::{Which, translate_address, translate_inner, translate_sum};
use super::settings::Pair;

const ICMP: u8 = 1;

/// Addresses of the one-to-one translations, in ascending order of the first.
#[derive(Debug)]
pub(super) struct Pairs {
    /// Inside and external address.
    by_internal: Box<[(u32, u32)]>,
    /// External and inside address.
    by_external: Box<[(u32, u32)]>,
}

fn find(pairs: &[(u32, u32)], address: u32) -> Option<u32> {
    let at = pairs.binary_search_by_key(&address, |pair| pair.0).ok()?;
    pairs.get(at).map(|pair| pair.1)
}

impl Pairs {
    pub(super) fn new(pairs: &[Pair]) -> Self {
        let sorted = |of: fn(&Pair) -> (u32, u32)| {
            let mut all: Vec<(u32, u32)> = pairs.iter().map(of).collect();
            all.sort_unstable();
            all.into_boxed_slice()
        };
        Self {
            by_internal: sorted(|pair| (pair.internal.to_bits(), pair.external.to_bits())),
            by_external: sorted(|pair| (pair.external.to_bits(), pair.internal.to_bits())),
        }
    }

    /// Returns the external address of an inside host.
    #[inline(always)]
    pub(super) fn external_of(&self, address: u32) -> Option<u32> {
        if self.by_internal.is_empty() {
            return None;
        }
        find(&self.by_internal, address)
    }

    /// Returns the inside host of an external address.
    #[inline(always)]
    pub(super) fn internal_of(&self, address: u32) -> Option<u32> {
        if self.by_external.is_empty() {
            return None;
        }
        find(&self.by_external, address)
    }
}

/// Replaces the source or the destination address of a packet, and in an ICMP error the address of the same host in the packet that it is
/// about. Later fragments have no transport header.
pub(super) fn translate_pair(
    packet: &mut [u8],
    length: usize,
    which: Which,
    address: u32,
) -> Result<(), NatDrop> {
    let header = header(packet, 0).ok_or(NatDrop::Malformed)?;
    if header.total > length {
        return Err(NatDrop::Malformed);
    }
    let former = match which {
        Which::Source => header.source,
        Which::Destination => header.destination,
    };
    let end = header.total.min(packet.len());
    let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
    if header.protocol == ICMP && !header.is_fragment {
        translate_error(packet, header.total, which, (former, address))?;
    }
    if let Some(sum_at) = sum_at(&header) {
        let is_there = sum_at.saturating_add(2) <= packet.len();
        if !is_there {
            return Err(NatDrop::Malformed);
        }
        translate_sum(packet, sum_at, header.protocol, (former, address));
    }
    translate_address(packet, which, address);
    Ok(())
}

/// Returns the offset of a checksum that covers the addresses, if the packet has one.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the header is in a packet of less than 2^16 octets"
)]
fn sum_at(header: &Header) -> Option<usize> {
    if header.is_later_fragment {
        return None;
    }
    match header.protocol {
        6 => Some(header.length + TCP_CHECKSUM_OFFSET),
        // UDP, DCCP (RFC 4340, section 5.1), UDP-Lite (RFC 3828, section 3.1).
        17 | 33 | 136 => Some(header.length + UDP_CHECKSUM_OFFSET),
        _ => None,
    }
}

/// Replaces the host's address in the packet within an ICMP error. Other ICMP messages have no addresses.
fn translate_error(
    packet: &mut [u8],
    length: usize,
    which: Which,
    (former, address): (u32, u32),
) -> Result<(), NatDrop> {
    let (view, inner) = match read(packet, length) {
        Ok((view, Kind::Error(inner))) => (view, inner),
        // Echoes, and messages that have no mapping: all ICMP messages of the host pass.
        Ok(_) | Err(NatDrop::IcmpType) => return Ok(()),
        Err(reason) => return Err(reason),
    };
    // The error goes the other way than the packet in it.
    let (inner_which, inner_end) = match which {
        Which::Source => (Which::Destination, inner.destination),
        Which::Destination => (Which::Source, inner.source),
    };
    if inner_end.address == former {
        let end = End {
            address,
            ..inner_end
        };
        translate_inner(packet, view.transport, &inner, inner_which, end);
    }
    Ok(())
}
