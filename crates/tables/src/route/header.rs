// SPDX-License-Identifier: Apache-2.0
//! Header parsing before the route look-up: validity, source and destination of a packet.

use quietwire_packet::{ETHERNET_HEADER_LENGTH, checksum};

use super::decision::{Decision, Punt};
use super::interfaces::Interface;
use crate::drops::RouterDrop;

pub(super) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(super) const ETHERTYPE_ARP: u16 = 0x0806;
pub(super) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
/// Loose and strict source routing (RFC 791, section 3.1).
const OPTION_LSRR: u8 = 131;
const OPTION_SSRR: u8 = 137;

/// Header fields besides the addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PacketSummary {
    /// Length of the packet, octets.
    pub(super) length: u16,
    /// TTL or hop limit.
    pub(super) ttl: u8,
    /// Whether fragmentation is allowed.
    pub(super) may_fragment: bool,
    /// Whether one of its addresses is link-local, which routers do not forward.
    pub(super) is_of_a_link: bool,
}

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    V4(u32),
    V6(u128),
}

/// Parses an untagged frame of an interface. Returns the fields for routing, or the decision if it needs no route.
#[inline(always)]
pub(super) fn read(
    frame: &[u8],
    interface: &Interface,
) -> Result<(PacketSummary, Destination), Decision> {
    let Some((ethernet, packet)) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>() else {
        return Err(Decision::Drop(RouterDrop::HeaderError));
    };
    let [a, b, c, d, e, f, .., g, h] = *ethernet;
    let destination = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let to_many = a & 1 == 1;
    if destination != interface.mac.to_u64() && !to_many {
        return Err(Decision::Drop(RouterDrop::NotForUs));
    }
    match u16::from_be_bytes([g, h]) {
        ETHERTYPE_IPV4 if interface.ipv4 => read_v4(packet, to_many),
        ETHERTYPE_IPV6 if interface.ipv6 => read_v6(packet, to_many),
        ETHERTYPE_ARP if interface.ipv4 => Err(Decision::Punt(Punt::Arp)),
        _ => Err(Decision::Drop(RouterDrop::UnknownProtocol)),
    }
}

/// Parses an IPv4 packet (RFC 1812, sections 5.2.2, 5.3.4, 5.3.7).
#[inline(always)]
fn read_v4(packet: &[u8], to_many: bool) -> Result<(PacketSummary, Destination), Decision> {
    let wrong = Err(Decision::Drop(RouterDrop::HeaderError));
    let Some(header) = packet.first_chunk::<IPV4_HEADER>() else {
        return wrong;
    };
    let header_length = usize::from(header[0] & 0xf).wrapping_mul(4);
    let length = u16::from_be_bytes([header[2], header[3]]);
    if header[0] >> 4 != 4
        || header_length < IPV4_HEADER
        || usize::from(length) < header_length
        || usize::from(length) > packet.len()
    {
        return wrong;
    }
    let is_sound = if header_length == IPV4_HEADER {
        is_sound(
            [0, 8].map(|at| word_at(header, at)),
            half_word_at(header, 16),
        )
    } else {
        packet.get(..header_length).map(checksum) == Some(0)
    };
    if !is_sound {
        return Err(Decision::Drop(RouterDrop::ChecksumError));
    }
    if header_length > IPV4_HEADER && has_source_route(packet.get(IPV4_HEADER..header_length)) {
        return Err(Decision::Drop(RouterDrop::SourceRoute));
    }
    let [.., a, b, c, d, e, f, g, h] = *header;
    let source = u32::from_be_bytes([a, b, c, d]);
    let destination = u32::from_be_bytes([e, f, g, h]);
    if is_martian_source(source) {
        return Err(Decision::Drop(RouterDrop::Martian));
    }
    match e {
        224..=239 => return Err(multicast_v4(destination)),
        0 | 127 => return Err(Decision::Drop(RouterDrop::Martian)),
        240..=255 if destination == u32::MAX => return Err(Decision::Punt(Punt::ForUs)),
        240..=255 => return Err(Decision::Drop(RouterDrop::Martian)),
        _ => {}
    }
    if to_many {
        return Err(Decision::Drop(RouterDrop::BroadcastFrame));
    }
    let brief = PacketSummary {
        length,
        ttl: header[8],
        may_fragment: header[6] & 0x40 == 0,
        is_of_a_link: is_link_local_v4(source) || is_link_local_v4(destination),
    };
    Ok((brief, Destination::V4(destination)))
}

/// Returns the octets of headers from a position on, as a number: the first octet in the lowest bits.
#[inline(always)]
pub(super) fn word_at<const HEADERS: usize>(headers: &[u8; HEADERS], at: usize) -> u64 {
    let octets = headers.get(at..).and_then(<[u8]>::first_chunk);
    u64::from_le_bytes(octets.copied().unwrap_or_default())
}

/// Returns four octets of headers from a position on, in the same way.
#[inline(always)]
pub(super) fn half_word_at<const HEADERS: usize>(headers: &[u8; HEADERS], at: usize) -> u32 {
    let octets = headers.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(octets.copied().unwrap_or_default())
}

/// Returns true if the checksum of a header without options is correct (RFC 1071). The header is in words of 64, 64 and 32 bits, in any
/// byte order (section 2 (B) and (C)).
#[inline(always)]
pub(super) fn is_sound([first, second]: [u64; 2], third: u32) -> bool {
    let (sum, carry) = first.overflowing_add(second);
    let third = u64::from(third).wrapping_add(u64::from(carry));
    let (sum, carry) = sum.overflowing_add(third);
    let sum = sum.wrapping_add(u64::from(carry));
    // Two words of 32 bits carry at most 1, 17 bits then at most 2, and that does not carry if the sum is correct. Rotations would be fewer
    // operations, but the compiler makes slow ones of them.
    let sum = (sum & 0xffff_ffff).wrapping_add(sum >> 32);
    let sum = (sum & 0xffff).wrapping_add(sum >> 16);
    (sum & 0xffff).wrapping_add(sum >> 16) == 0xffff
}

/// Decides on a multicast packet. Link-local groups go to the router itself (224.0.0.0/24: RFC 5771, section 4); others are not forwarded.
fn multicast_v4(destination: u32) -> Decision {
    if destination >> 8 == 0xe0_0000 {
        Decision::Punt(Punt::ForUs)
    } else {
        Decision::Drop(RouterDrop::Multicast)
    }
}

/// Returns true for an address that is not a valid source of forwarded packets (RFC 1812, section 5.3.7; RFC 6890, table of section 2.2.2).
#[inline(always)]
const fn is_martian_source(address: u32) -> bool {
    matches!(address >> 24, 0 | 127 | 224..)
}

#[cold]
fn has_source_route(options: Option<&[u8]>) -> bool {
    let mut rest = options.unwrap_or(&[]);
    // At most forty octets of options.
    while let [kind, after @ ..] = rest {
        rest = match (*kind, after) {
            (0, _) => return false,
            (1, after) => after,
            (OPTION_LSRR | OPTION_SSRR, _) => return true,
            (_, [length, ..]) if *length >= 2 => rest.get(usize::from(*length)..).unwrap_or(&[]),
            _ => return false,
        };
    }
    false
}

/// Returns the source of a parsed packet: its location in the header.
#[inline(always)]
pub(super) fn source_of(frame: &[u8]) -> Option<Destination> {
    let packet = frame.get(ETHERNET_HEADER_LENGTH..)?;
    if packet.first()? >> 4 == 4 {
        let source = packet.get(12..)?.first_chunk()?;
        return Some(Destination::V4(u32::from_be_bytes(*source)));
    }
    let source = packet.get(8..)?.first_chunk()?;
    Some(Destination::V6(u128::from_be_bytes(*source)))
}

/// Parses an IPv6 packet (RFC 8200, section 3; RFC 4291, sections 2.5 to 2.7).
#[inline(always)]
fn read_v6(packet: &[u8], to_many: bool) -> Result<(PacketSummary, Destination), Decision> {
    let wrong = Err(Decision::Drop(RouterDrop::HeaderError));
    let Some(header) = packet.first_chunk::<IPV6_HEADER>() else {
        return wrong;
    };
    let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
    let Ok(length) = u16::try_from(payload.wrapping_add(IPV6_HEADER)) else {
        return wrong;
    };
    if header[0] >> 4 != 6 || usize::from(length) > packet.len() {
        return wrong;
    }
    let (Some(source), Some(destination)) = (address(header, 8), address(header, 24)) else {
        return wrong;
    };
    if header[24] == 0xff {
        return Err(multicast_v6(source, header[25] & 0xf));
    }
    if is_martian_v6(source) || is_martian_v6(destination) || header[8] == 0xff {
        return Err(Decision::Drop(RouterDrop::Martian));
    }
    if to_many {
        return Err(Decision::Drop(RouterDrop::BroadcastFrame));
    }
    // Link-local addresses are never forwarded (RFC 4291, section 2.5.6); the service thread knows whether the packet is for us.
    if is_link_local(destination) {
        return Err(Decision::Punt(Punt::ForUs));
    }
    let brief = PacketSummary {
        length,
        ttl: header[7],
        may_fragment: false,
        is_of_a_link: is_link_local(source),
    };
    Ok((brief, Destination::V6(destination)))
}

#[inline(always)]
fn address(header: &[u8; IPV6_HEADER], at: usize) -> Option<u128> {
    let octets = header.get(at..)?.first_chunk::<16>()?;
    Some(u128::from_be_bytes(*octets))
}

/// Decides on a multicast packet. Link-local groups go to the router itself, wider ones are not forwarded (RFC 4291, section 2.7).
fn multicast_v6(source: u128, scope: u8) -> Decision {
    if source >> 120 == 0xff {
        Decision::Drop(RouterDrop::Martian)
    } else if scope == 2 {
        Decision::Punt(Punt::ForUs)
    } else {
        Decision::Drop(RouterDrop::Multicast)
    }
}

/// Returns true for unspecified, loopback and IPv4-mapped addresses: `::`, `::1`, and IPv4 addresses in IPv6 notation (RFC 6890, section
/// 2.2.3).
#[inline(always)]
const fn is_martian_v6(address: u128) -> bool {
    let high = (address >> 64) as u64;
    let low = (address & 0xffff_ffff_ffff_ffff) as u64;
    high == 0 && (low <= 1 || low >> 32 == 0xffff)
}

#[inline(always)]
pub(super) const fn is_link_local(address: u128) -> bool {
    (address >> 64) as u64 >> 54 == 0xfe80 >> 6
}

/// Returns true for addresses in 169.254.0.0/16.
#[inline(always)]
pub(super) const fn is_link_local_v4(address: u32) -> bool {
    address >> 16 == 0xa9fe
}
