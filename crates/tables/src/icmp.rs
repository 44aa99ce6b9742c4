// SPDX-License-Identifier: Apache-2.0
//! ICMP of the router itself: replies to echo requests, and errors about packets (RFC 792, RFC 1812, section 4.3; RFC 4443). Packets are
//! bytes from their IP header on; the caller routes them.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quietwire_packet::{
    Fragment, IPV6_HEADER_LENGTH, IpProtocol, Ipv4Header, Ipv6Header, checksum,
    walk_ipv6_extensions,
};

use crate::neighbour::icmpv6_checksum;

pub use crate::rate_limit::{InterfaceRateLimits, RateLimit};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// TTL of the router's own packets (RFC 1340, 'IP TIME TO LIVE PARAMETER').
pub(crate) const TTL: u8 = 64;
/// Precedence of errors (RFC 1812, section 4.3.2.5).
pub(crate) const INTERNETWORK_CONTROL: u8 = 6 << 5;
/// ECN bits, copied from the request (RFC 3168, section 5).
const ECN: u8 = 3;
/// Maximum length of an ICMP error, of IPv4 (RFC 1812, section 4.3.2.3) and of IPv6 (RFC 4443, section 2.4 (c)), octets.
const ERROR_MAX_V4: usize = 576;
const ERROR_MAX_V6: usize = 1280;
/// Maximum number of octets of a packet in an error about it.
pub(crate) const QUOTED_MAX_V4: usize = ERROR_MAX_V4 - 28;
pub(crate) const QUOTED_MAX_V6: usize = ERROR_MAX_V6 - IPV6_HEADER_LENGTH - 8;

/// Rate limit of errors of the router about the packets of an interface, and of answers to rejected packets of each forwarding thread, per
/// second.
pub const ERRORS_PER_SECOND: u32 = 1000;

/// ICMP error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Error {
    /// No route (type 3, code 0; ICMPv6 type 1, code 0).
    NetUnreachable,
    /// Neighbour does not answer, or unreachable route (type 3, code 1; ICMPv6 type 1, code 3).
    HostUnreachable,
    /// Protocol unreachable (type 3, code 2; ICMPv6 parameter problem: type 4, code 1).
    ProtocolUnreachable,
    /// Port unreachable (type 3, code 3; ICMPv6 type 1, code 4).
    PortUnreachable,
    /// Communication administratively prohibited (type 3, code 13; ICMPv6 type 1, code 1).
    Prohibited,
    /// Packet too big for a link of this MTU (type 3, code 4, RFC 1191; ICMPv6 type 2).
    TooBig(u16),
    /// Time exceeded (type 11, code 0; ICMPv6 type 3, code 0).
    TimeExceeded,
    /// Parameter problem at this octet of the packet (type 12, code 0; ICMPv6 type 4, code 0).
    ParameterProblem(u8),
}

impl Error {
    /// Returns type, code, and the second word of the message.
    const fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::NetUnreachable => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::ProtocolUnreachable => (3, 2, 0),
            Self::PortUnreachable => (3, 3, 0),
            Self::TooBig(mtu) => (3, 4, mtu as u32),
            Self::Prohibited => (3, 13, 0),
            Self::TimeExceeded => (11, 0, 0),
            Self::ParameterProblem(at) => (12, 0, (at as u32) << 24),
        }
    }

    /// Returns type, code, and the second word. `protocol_at` is the offset of the next header field.
    const fn v6(self, protocol_at: u32) -> (u8, u8, u32) {
        match self {
            Self::NetUnreachable => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            Self::ProtocolUnreachable => (4, 1, protocol_at),
            Self::PortUnreachable => (1, 4, 0),
            Self::TooBig(mtu) => (2, 0, mtu as u32),
            Self::Prohibited => (1, 1, 0),
            Self::TimeExceeded => (3, 0, 0),
            Self::ParameterProblem(at) => (4, 0, at as u32),
        }
    }
}

/// Returns the reply to an echo request to a unicast address (RFC 1122, section 3.2.2.6; RFC 4443, section 4.2). `None` for other packets
/// and for damaged ones. A fragmented request gets no reply, since the router does not reassemble.
#[must_use]
pub fn echo_reply(packet: &[u8]) -> Option<Vec<u8>> {
    match packet.first()? >> 4 {
        4 => echo_reply_v4(packet),
        6 => echo_reply_v6(packet),
        _ => None,
    }
}

fn echo_reply_v4(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = Ipv4Header::split(packet).ok()?;
    let is_whole = header.fragment() == Fragment::Whole;
    let payload =
        payload.get(..usize::from(header.total_length()).checked_sub(header.length())?)?;
    if header.protocol().0 != ICMP || !is_whole || payload.len() < 8 || checksum(payload) != 0 {
        return None;
    }
    if payload.get(..2) != Some(&[8, 0]) || !is_host_v4(header.source()) {
        return None;
    }
    let mut message = payload.to_vec();
    put_type(&mut message, 0);
    put_checksum(&mut message, 2, checksum_without(payload, 2, 0));
    // The reply has the type of service of the request (RFC 1812, section 4.3.2.5). Its fragments require a unique identification (RFC
    // 6864, section 4.3), and the request's is unique between these two hosts.
    let (service, [high, low]) = (header.dscp() << 2, header.identification().to_be_bytes());
    let flags = u8::from(header.dont_fragment()) << 6;
    let start = [service, high, low, flags];
    Some(ipv4(header.destination(), header.source(), start, &message))
}

/// Returns the checksum of a message with this first octet and a zeroed checksum field.
fn checksum_without(message: &[u8], at: usize, first: u8) -> u16 {
    let mut copy = message.to_vec();
    put_type(&mut copy, first);
    put_checksum(&mut copy, at, 0);
    checksum(&copy)
}

fn echo_reply_v6(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = Ipv6Header::split(packet).ok()?;
    let walked = walk_ipv6_extensions(header.next_header(), payload).ok()?;
    let payload = payload.get(walked.length..)?;
    let (source, destination) = (header.source(), header.destination());
    let is_whole = walked.fragment == Fragment::Whole;
    if walked.protocol != IpProtocol::ICMPV6
        || !is_whole
        || payload.len() < 8
        || !is_host_v6(source)
    {
        return None;
    }
    if payload.get(..2) != Some(&[128, 0]) || icmpv6_checksum(source, destination, payload) != 0 {
        return None;
    }
    let mut message = payload.to_vec();
    put_type(&mut message, 129);
    let class = header.traffic_class() & !ECN;
    Some(ipv6(destination, source, class, message))
}

fn put_checksum(message: &mut [u8], at: usize, sum: u16) {
    let rest = message.get_mut(at..).unwrap_or_default();
    if let Some(place) = rest.first_chunk_mut::<2>() {
        *place = sum.to_be_bytes();
    }
}

fn put_type(message: &mut [u8], kind: u8) {
    if let Some(first) = message.first_mut() {
        *first = kind;
    }
}

/// Returns whether an address is a unicast host address that can be a destination (RFC 1122, section 3.2.1.3).
pub(crate) const fn is_host_v4(address: Ipv4Addr) -> bool {
    // From 224 on: multicast, reserved, broadcast.
    !matches!(address.octets()[0], 0 | 127 | 224..)
}

pub(crate) const fn is_host_v6(address: Ipv6Addr) -> bool {
    !(address.is_unspecified() || address.is_loopback() || address.is_multicast())
}

/// Builds an IPv4 packet. `start` contains the type of service, the identification, and the flags.
fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, start: [u8; 4], message: &[u8]) -> Vec<u8> {
    let [service, high, low, flags] = start;
    // A reply is as long as its request, and an error shorter than ERROR_MAX_V4.
    let length = u16::try_from(message.len().saturating_add(20)).unwrap_or(u16::MAX);
    let mut packet = vec![0x45, service];
    packet.extend(length.to_be_bytes());
    packet.extend([high, low, flags, 0, TTL, ICMP, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet);
    put_checksum(&mut packet, 10, sum);
    packet.extend(message);
    packet
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, class: u8, mut message: Vec<u8>) -> Vec<u8> {
    put_checksum(&mut message, 2, 0);
    let sum = icmpv6_checksum(source, destination, &message);
    put_checksum(&mut message, 2, sum);
    let mut packet = vec![0x60 | class >> 4, class << 4, 0, 0];
    // A reply is as long as its request, and an error shorter than ERROR_MAX_V6.
    let length = u16::try_from(message.len()).unwrap_or(u16::MAX);
    packet.extend(length.to_be_bytes());
    packet.extend([ICMPV6, TTL]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    packet
}

/// Returns the error about a packet, from this address of the router. `None` if no error may be sent (RFC 1122, section 3.2.2; RFC 1812,
/// section 4.3.2.7; RFC 4443, section 2.4 (e)), or if the packet is of the other IP version.
#[must_use]
pub fn error(packet: &[u8], error: Error, source: IpAddr) -> Option<Vec<u8>> {
    match source {
        IpAddr::V4(source) => error_v4(packet, error, source),
        IpAddr::V6(source) => error_v6(packet, error, source),
    }
}

fn error_v4(packet: &[u8], error: Error, source: Ipv4Addr) -> Option<Vec<u8>> {
    let (header, payload) = Ipv4Header::split(packet).ok()?;
    let is_error = header.protocol().0 == ICMP && !is_query_v4(payload.first().copied());
    let sender = header.source();
    let may_not = is_error
        || header.fragment() == Fragment::Later
        || !is_host_v4(sender)
        || header.destination().is_multicast()
        || header.destination().is_broadcast();
    if may_not {
        return None;
    }
    let (kind, code, second) = error.v4();
    let length = usize::from(header.total_length()).min(packet.len());
    let quoted = packet.get(..length.min(QUOTED_MAX_V4))?;
    let mut message = vec![kind, code, 0, 0];
    message.extend(second.to_be_bytes());
    message.extend(quoted);
    let sum = checksum(&message);
    put_checksum(&mut message, 2, sum);
    Some(ipv4(
        source,
        sender,
        [INTERNETWORK_CONTROL, 0, 0, 0],
        &message,
    ))
}

/// Returns true for echo, router discovery, timestamp, information and address mask: requests and replies, not errors.
pub(crate) const fn is_query_v4(kind: Option<u8>) -> bool {
    matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18))
}

fn error_v6(packet: &[u8], error: Error, source: Ipv6Addr) -> Option<Vec<u8>> {
    let (header, payload) = Ipv6Header::split(packet).ok()?;
    let sender = header.source();
    // Packet Too Big is also sent about multicast packets (RFC 4443, section 2.4 (e.3)).
    let to_many = header.destination().is_multicast() && !matches!(error, Error::TooBig(_));
    // Behind damaged or too many headers, the payload may be an ICMP error.
    let walked = walk_ipv6_extensions(header.next_header(), payload).ok()?;
    let carried = payload.get(walked.length..).unwrap_or(&[]);
    let is_icmp = walked.protocol == IpProtocol::ICMPV6;
    let is_error = is_icmp && (walked.fragment == Fragment::Later || !is_query_v6(carried.first()));
    if !is_host_v6(sender) || to_many || is_error {
        return None;
    }
    let (kind, code, second) = error.v6(u32::try_from(walked.protocol_at).ok()?);
    let length = usize::from(header.payload_length())
        .saturating_add(IPV6_HEADER_LENGTH)
        .min(packet.len());
    let quoted = packet.get(..length.min(QUOTED_MAX_V6))?;
    let mut message = vec![kind, code, 0, 0];
    message.extend(second.to_be_bytes());
    message.extend(quoted);
    Some(ipv6(source, sender, 0, message))
}

/// Returns true for informational messages (RFC 4443, section 2.1) except redirects (section 2.4 (e.2)).
pub(crate) const fn is_query_v6(kind: Option<&u8>) -> bool {
    matches!(kind, Some(128..=136 | 138..))
}
