// SPDX-License-Identifier: Apache-2.0
//! Checksums of TCP and UDP, and ICMP echoes, for the addresses of the other version (RFC 7915, sections 4.5 and 5.5).

use quietwire_packet::{
    IpProtocol, TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET, UDP_HEADER_LENGTH, udp_checksum,
    update_checksum_u16,
};

use super::header::{Ip, pseudo_v6, put, sum_v4, sum_v6, word};
use super::icmp::{ECHO_REPLY_V4, ECHO_REPLY_V6, ECHO_V4, ECHO_V6};
use crate::nat::NatDrop;

/// Offset of the checksum in an ICMP message.
const ICMP_CHECKSUM_OFFSET: usize = 2;
/// Offset of the length in a UDP header.
const UDP_LENGTH_OFFSET: usize = 4;

/// Whether a packet is within an ICMP error, which may have a part of it only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Nesting {
    /// The packet itself.
    Outer,
    /// A packet within an error.
    InError,
}

/// Updates a checksum for a change of the summed words.
fn update(
    buffer: &mut [u8],
    at: usize,
    old: u16,
    new: u16,
    nesting: Nesting,
) -> Result<(), NatDrop> {
    match word(buffer, at) {
        Some(sum) => put(buffer, at, update_checksum_u16(sum, old, new).to_be_bytes()),
        // Behind the end of the error.
        None if nesting == Nesting::InError => Ok(()),
        None => Err(NatDrop::Malformed),
    }
}

/// Updates the checksum of UDP. A datagram without checksum stays without one (RFC 6935).
fn update_udp(
    buffer: &mut [u8],
    at: usize,
    old: u16,
    new: u16,
    nesting: Nesting,
) -> Result<(), NatDrop> {
    match word(buffer, at) {
        Some(0) => Ok(()),
        Some(sum) => {
            let sum = udp_checksum(update_checksum_u16(sum, old, new));
            put(buffer, at, sum.to_be_bytes())
        }
        None if nesting == Nesting::InError => Ok(()),
        None => Err(NatDrop::Malformed),
    }
}

/// Returns the sum of the pseudo header and of the first word of an ICMPv6 message.
fn echo_sum(ip: &Ip<u128>, kind: u8) -> u16 {
    let icmpv6 = Ip {
        protocol: IpProtocol::ICMPV6.0,
        ..*ip
    };
    let mut sum = pseudo_v6(&icmpv6, ip.end.saturating_sub(ip.payload));
    sum.add(&[kind, 0]);
    !sum.finish()
}

/// Changes the type of an echo. The word with it changes its sum from `old` to `new`.
fn translate_echo(
    buffer: &mut [u8],
    at: usize,
    kind: u8,
    (old, new): (u16, u16),
    nesting: Nesting,
) -> Result<(), NatDrop> {
    put(buffer, at, [kind])?;
    let sum_at = at.saturating_add(ICMP_CHECKSUM_OFFSET);
    update(buffer, sum_at, old, new, nesting)
}

/// Translates the transport header of an IPv6 packet for new addresses. Returns the protocol of IPv4.
pub(super) fn transport_to_v4(
    buffer: &mut [u8],
    from: &Ip<u128>,
    to: &Ip<u32>,
    nesting: Nesting,
) -> Result<u8, NatDrop> {
    let at = from.payload;
    let protocol = IpProtocol(from.protocol);
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP if from.is_later() => {}
        IpProtocol::TCP => {
            let at = at.saturating_add(TCP_CHECKSUM_OFFSET);
            update(buffer, at, sum_v6(from), sum_v4(to), nesting)?;
        }
        IpProtocol::UDP => {
            let at = at.saturating_add(UDP_CHECKSUM_OFFSET);
            update_udp(buffer, at, sum_v6(from), sum_v4(to), nesting)?;
        }
        // The length of the whole datagram, which the checksum covers, is not known.
        IpProtocol::ICMPV6 if from.part.is_some() => return Err(NatDrop::Fragment),
        IpProtocol::ICMPV6 => {
            let kind = word(buffer, at).ok_or(NatDrop::Malformed)?.to_be_bytes();
            let kinds = match kind {
                [ECHO_V6, 0] => (ECHO_V6, ECHO_V4),
                [ECHO_REPLY_V6, 0] => (ECHO_REPLY_V6, ECHO_REPLY_V4),
                _ => return Err(NatDrop::IcmpType),
            };
            let sums = (echo_sum(from, kinds.0), u16::from_be_bytes([kinds.1, 0]));
            translate_echo(buffer, at, kinds.1, sums, nesting)?;
            return Ok(IpProtocol::ICMP.0);
        }
        _ => return Err(NatDrop::Protocol),
    }
    Ok(protocol.0)
}

/// Translates the transport header of an IPv4 packet for new addresses. `to` has the payload and the end of the packet. Returns the
/// protocol of IPv6.
pub(super) fn transport_to_v6(
    buffer: &mut [u8],
    from: &Ip<u32>,
    to: &Ip<u128>,
    nesting: Nesting,
) -> Result<u8, NatDrop> {
    let at = from.payload;
    let protocol = IpProtocol(from.protocol);
    match protocol {
        IpProtocol::TCP | IpProtocol::UDP if from.is_later() => {}
        IpProtocol::TCP => {
            let at = at.saturating_add(TCP_CHECKSUM_OFFSET);
            update(buffer, at, sum_v4(from), sum_v6(to), nesting)?;
        }
        IpProtocol::UDP => {
            let sum_at = at.saturating_add(UDP_CHECKSUM_OFFSET);
            if nesting == Nesting::Outer && word(buffer, sum_at) == Some(0) {
                return sum_udp(buffer, from, to).map(|()| protocol.0);
            }
            update_udp(buffer, sum_at, sum_v4(from), sum_v6(to), nesting)?;
        }
        IpProtocol::ICMP if from.part.is_some() => return Err(NatDrop::Fragment),
        IpProtocol::ICMP => {
            let kind = word(buffer, at).ok_or(NatDrop::Malformed)?.to_be_bytes();
            let kinds = match kind {
                [ECHO_V4, 0] => (ECHO_V4, ECHO_V6),
                [ECHO_REPLY_V4, 0] => (ECHO_REPLY_V4, ECHO_REPLY_V6),
                _ => return Err(NatDrop::IcmpType),
            };
            let sums = (u16::from_be_bytes([kinds.0, 0]), echo_sum(to, kinds.1));
            translate_echo(buffer, at, kinds.1, sums, nesting)?;
            return Ok(IpProtocol::ICMPV6.0);
        }
        _ => return Err(NatDrop::Protocol),
    }
    Ok(protocol.0)
}

/// Computes the checksum of a UDP datagram without one, which IPv6 requires (RFC 7915, section 4.5). That of a fragment would cover the
/// others too.
fn sum_udp(buffer: &mut [u8], from: &Ip<u32>, to: &Ip<u128>) -> Result<(), NatDrop> {
    if from.part.is_some() {
        return Err(NatDrop::Fragment);
    }
    let after = |offset: usize| from.payload.saturating_add(offset);
    let length = word(buffer, after(UDP_LENGTH_OFFSET)).ok_or(NatDrop::Malformed)?;
    let length = usize::from(length);
    let end = after(length);
    if length < UDP_HEADER_LENGTH || end > from.end {
        return Err(NatDrop::Malformed);
    }
    let datagram = buffer.get(from.payload..end).ok_or(NatDrop::Malformed)?;
    let udp = Ip {
        protocol: IpProtocol::UDP.0,
        ..*to
    };
    let mut sum = pseudo_v6(&udp, length);
    sum.add(datagram);
    let sum = udp_checksum(sum.finish());
    put(buffer, after(UDP_CHECKSUM_OFFSET), sum.to_be_bytes())
}
