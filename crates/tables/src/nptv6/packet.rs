// SPDX-License-Identifier: Apache-2.0
//! Translation of packets.

use quietwire_packet::{Fragment, IPV6_HEADER_LENGTH, IpProtocol, walk_ipv6_extensions};

use super::NptDrop;
use super::prefix::PrefixPair;

/// Offsets in an IPv6 header (RFC 8200, section 3).
const PAYLOAD_LENGTH_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
const SOURCE_AT: usize = 8;
const DESTINATION_AT: usize = 24;
const ADDRESS: usize = 16;
/// Octets of an ICMPv6 error in front of the packet that it is about (RFC 4443, section 3).
const ERROR_HEADER: usize = 8;
/// Lowest type of ICMPv6 messages that are no errors (RFC 4443, section 2.1).
const INFORMATIONAL: u8 = 128;

/// Direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    /// From the inside: source addresses.
    Outbound,
    /// From the outside: destination addresses.
    Inbound,
}

/// Returns source and destination of a packet from its IPv6 header on.
#[inline(always)]
pub(super) fn ends(packet: &[u8]) -> Option<(u128, u128)> {
    Some((
        address(packet, SOURCE_AT)?,
        address(packet, DESTINATION_AT)?,
    ))
}

fn address(packet: &[u8], at: usize) -> Option<u128> {
    let octets = packet.get(at..)?.first_chunk()?;
    Some(u128::from_be_bytes(*octets))
}

fn set_address(packet: &mut [u8], at: usize, address: u128) {
    let field = packet.get_mut(at..);
    if let Some(field) = field.and_then(|rest| rest.first_chunk_mut()) {
        *field = address.to_be_bytes();
    }
}

/// Checks the IPv6 header, and returns the length of the packet.
fn checked(packet: &[u8], length: usize) -> Option<usize> {
    let header = packet.first_chunk::<IPV6_HEADER_LENGTH>()?;
    let payload = header.get(PAYLOAD_LENGTH_AT..)?.first_chunk()?;
    let payload = usize::from(u16::from_be_bytes(*payload));
    let total = payload.saturating_add(IPV6_HEADER_LENGTH);
    let is_ipv6 = header.first().is_some_and(|first| first >> 4 == 6);
    (is_ipv6 && total <= length).then_some(total)
}

/// Returns the offset of the packet within an ICMPv6 error; `None` for other packets, and if the first buffer ends before it.
fn packet_in_error(packet: &[u8], total: usize) -> Result<Option<usize>, NptDrop> {
    let end = total.min(packet.len());
    let rest = packet.get(IPV6_HEADER_LENGTH..end).unwrap_or_default();
    let next = packet.get(NEXT_HEADER_AT).copied().unwrap_or_default();
    let walked = walk_ipv6_extensions(IpProtocol(next), rest).map_err(|_| NptDrop::Malformed)?;
    if walked.fragment == Fragment::Later || walked.protocol != IpProtocol::ICMPV6 {
        return Ok(None);
    }
    let kind = rest.get(walked.length);
    let is_error = kind.is_some_and(|kind| *kind < INFORMATIONAL);
    let inner = walked
        .length
        .saturating_add(IPV6_HEADER_LENGTH + ERROR_HEADER);
    Ok(is_error.then_some(inner))
}

impl PrefixPair {
    /// Translates the source of a packet that leaves, from its IPv6 header on. `length` is the number of octets in the frame, of which the
    /// packet may have fewer (further buffers). Returns false if the source is not of the inside prefix.
    ///
    /// # Errors
    /// [`NptDrop`]: the packet must be dropped, and has not changed.
    pub fn send(&self, packet: &mut [u8], length: usize) -> Result<bool, NptDrop> {
        self.translate(packet, length, Direction::Outbound)
    }

    /// Translates the destination of a packet that arrives, as [`Self::send`] does. Returns false if the destination is not of the external
    /// prefix.
    ///
    /// # Errors
    /// [`NptDrop`]: the packet must be dropped, and has not changed.
    pub fn receive(&self, packet: &mut [u8], length: usize) -> Result<bool, NptDrop> {
        self.translate(packet, length, Direction::Inbound)
    }

    fn translated(&self, address: u128, direction: Direction) -> Result<Option<u128>, NptDrop> {
        match direction {
            Direction::Outbound => self.external_of(address),
            Direction::Inbound => self.internal_of(address),
        }
    }

    fn translate(
        &self,
        packet: &mut [u8],
        length: usize,
        direction: Direction,
    ) -> Result<bool, NptDrop> {
        let total = checked(packet, length).ok_or(NptDrop::Malformed)?;
        // The packet in an error goes in the other direction.
        let (at, inner_at) = match direction {
            Direction::Outbound => (SOURCE_AT, DESTINATION_AT),
            Direction::Inbound => (DESTINATION_AT, SOURCE_AT),
        };
        let before = address(packet, at).ok_or(NptDrop::Malformed)?;
        let Some(after) = self.translated(before, direction)? else {
            return Ok(false);
        };
        if let Some(inner) = packet_in_error(packet, total)? {
            let inner_at = inner.saturating_add(inner_at);
            self.translate_inner(packet, (inner_at, total), direction);
        }
        set_address(packet, at, after);
        Ok(true)
    }

    /// Translates an address of the packet within an error, if it is there. An impossible one stays.
    fn translate_inner(
        &self,
        packet: &mut [u8],
        (at, total): (usize, usize),
        direction: Direction,
    ) {
        let before = address(packet, at).filter(|_| at.saturating_add(ADDRESS) <= total);
        if let Some(before) = before
            && let Ok(Some(after)) = self.translated(before, direction)
        {
            set_address(packet, at, after);
        }
    }

    /// Translates the packet within an ICMPv6 error of the router itself to a host outside: its destination had an external address on the
    /// way here. Other packets stay.
    pub fn translate_own_error(&self, packet: &mut [u8], length: usize) {
        if let Some(total) = checked(packet, length)
            && let Ok(Some(inner)) = packet_in_error(packet, total)
        {
            let at = inner.saturating_add(DESTINATION_AT);
            self.translate_inner(packet, (at, total), Direction::Outbound);
        }
    }
}
