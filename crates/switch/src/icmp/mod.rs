// SPDX-License-Identifier: Apache-2.0
//! ICMP of the router itself: answers to echo requests, and errors about packets that cannot go on (RFC 792, RFC 1812,
//! section 4.3; RFC 4443). Packets come in and go out as bytes from their IP header on; the caller routes them.

#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use quietwire_packet::{
    Fragment, IPV6_EXTENSIONS_MAX, IPV6_HEADER_LENGTH, Ipv4Header, Ipv6Header, checksum,
};

use crate::neighbour::icmpv6_checksum;

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
/// Time to live of what the router sends itself (RFC 1340, 'IP TIME TO LIVE PARAMETER').
const TTL: u8 = 64;
/// Longest ICMP error of IPv4 (RFC 1812, section 4.3.2.3), and of IPv6 (RFC 4443, section 2.4 (c)), octets.
const ERROR_MAX_V4: usize = 576;
const ERROR_MAX_V6: usize = 1280;

/// What a sender is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Error {
    /// There is no route (type 3, code 0; type 1, code 0).
    NetUnreachable,
    /// The neighbour does not answer, or the route says so (type 3, code 1; type 1, code 3).
    HostUnreachable,
    /// Nobody here takes this protocol (type 3, code 2; of IPv6, a parameter problem: type 4, code 1).
    ProtocolUnreachable,
    /// Nobody here takes packets to this port (type 3, code 3; type 1, code 4).
    PortUnreachable,
    /// It may not (type 3, code 13; type 1, code 1).
    Prohibited,
    /// It is too large for a link of this MTU (type 3, code 4, RFC 1191; type 2).
    TooBig(u16),
    /// It was on its way for too long (type 11, code 0; type 3, code 0).
    TimeExceeded,
}

impl Error {
    /// Type, code, and the second word of the message.
    const fn v4(self) -> (u8, u8, u32) {
        match self {
            Self::NetUnreachable => (3, 0, 0),
            Self::HostUnreachable => (3, 1, 0),
            Self::ProtocolUnreachable => (3, 2, 0),
            Self::PortUnreachable => (3, 3, 0),
            Self::TooBig(mtu) => (3, 4, mtu as u32),
            Self::Prohibited => (3, 13, 0),
            Self::TimeExceeded => (11, 0, 0),
        }
    }

    const fn v6(self) -> (u8, u8, u32) {
        match self {
            Self::NetUnreachable => (1, 0, 0),
            Self::HostUnreachable => (1, 3, 0),
            // Where the next header is said, in the fixed header.
            Self::ProtocolUnreachable => (4, 1, 6),
            Self::PortUnreachable => (1, 4, 0),
            Self::TooBig(mtu) => (2, 0, mtu as u32),
            Self::Prohibited => (1, 1, 0),
            Self::TimeExceeded => (3, 0, 0),
        }
    }
}

/// The answer to an echo request to one address (RFC 1122, section 3.2.2.6; RFC 4443, section 4.2): `None` for what is none,
/// or is damaged. A request in fragments is not answered, since nothing is put together here.
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
    if payload.get(..2) != Some(&[8, 0]) || header.source().is_unspecified() {
        return None;
    }
    let mut message = payload.to_vec();
    message[0] = 0;
    put_checksum(&mut message, 2, checksum_without(payload, 2, 0));
    Some(ipv4(header.destination(), header.source(), &message))
}

/// The checksum of a message whose first octet is this, with its checksum field taken for zero.
fn checksum_without(message: &[u8], at: usize, first: u8) -> u16 {
    let mut copy = message.to_vec();
    copy[0] = first;
    put_checksum(&mut copy, at, 0);
    checksum(&copy)
}

fn echo_reply_v6(packet: &[u8]) -> Option<Vec<u8>> {
    let (header, payload) = Ipv6Header::split(packet).ok()?;
    let payload = payload.get(..usize::from(header.payload_length()))?;
    let (source, destination) = (header.source(), header.destination());
    if header.next_header().0 != ICMPV6 || payload.len() < 8 || source.is_unspecified() {
        return None;
    }
    if payload.get(..2) != Some(&[128, 0]) || icmpv6_checksum(source, destination, payload) != 0 {
        return None;
    }
    let mut message = payload.to_vec();
    message[0] = 129;
    Some(ipv6(destination, source, message))
}

fn put_checksum(message: &mut [u8], at: usize, sum: u16) {
    if let Some(place) = message.get_mut(at..at + 2) {
        place.copy_from_slice(&sum.to_be_bytes());
    }
}

fn ipv4(source: Ipv4Addr, destination: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let length = (20 + message.len()) as u16;
    let mut packet = vec![0x45, 0];
    packet.extend(length.to_be_bytes());
    packet.extend([0, 0, 0, 0, TTL, ICMP, 0, 0]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    let sum = checksum(&packet);
    put_checksum(&mut packet, 10, sum);
    packet.extend(message);
    packet
}

fn ipv6(source: Ipv6Addr, destination: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    put_checksum(&mut message, 2, 0);
    let sum = icmpv6_checksum(source, destination, &message);
    put_checksum(&mut message, 2, sum);
    let mut packet = vec![0x60, 0, 0, 0];
    packet.extend((message.len() as u16).to_be_bytes());
    packet.extend([ICMPV6, TTL]);
    packet.extend(source.octets());
    packet.extend(destination.octets());
    packet.extend(message);
    packet
}

/// The error about a packet, from this address of the router's; `None` where none may be sent (RFC 1122, section 3.2.2;
/// RFC 1812, section 4.3.2.7; RFC 4443, section 2.4 (e)), or of the other version of IP.
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
        || sender.is_unspecified()
        || sender.is_loopback()
        || sender.is_multicast()
        || sender.is_broadcast()
        || header.destination().is_multicast()
        || header.destination().is_broadcast();
    if may_not {
        return None;
    }
    let (kind, code, second) = error.v4();
    let length = usize::from(header.total_length()).min(packet.len());
    let quoted = packet.get(..length.min(ERROR_MAX_V4 - 28))?;
    let mut message = vec![kind, code, 0, 0];
    message.extend(second.to_be_bytes());
    message.extend(quoted);
    let sum = checksum(&message);
    put_checksum(&mut message, 2, sum);
    Some(ipv4(source, sender, &message))
}

/// Echo, router discovery, timestamp, information and address mask: questions and answers, not errors.
const fn is_query_v4(kind: Option<u8>) -> bool {
    matches!(kind, Some(0 | 8 | 9 | 10 | 13..=18))
}

fn error_v6(packet: &[u8], error: Error, source: Ipv6Addr) -> Option<Vec<u8>> {
    let (header, payload) = Ipv6Header::split(packet).ok()?;
    let sender = header.source();
    // Too big is told to groups' senders too (RFC 4443, section 2.4 (e.3)).
    let to_many = header.destination().is_multicast() && !matches!(error, Error::TooBig(_));
    if sender.is_unspecified() || sender.is_multicast() || to_many || is_error_v6(&header, payload)
    {
        return None;
    }
    let (kind, code, second) = error.v6();
    let length = (IPV6_HEADER_LENGTH + usize::from(header.payload_length())).min(packet.len());
    let quoted = packet.get(..length.min(ERROR_MAX_V6 - IPV6_HEADER_LENGTH - 8))?;
    let mut message = vec![kind, code, 0, 0];
    message.extend(second.to_be_bytes());
    message.extend(quoted);
    Some(ipv6(source, sender, message))
}

/// True when a packet is an ICMPv6 error or a redirect, behind whatever extension headers.
fn is_error_v6(header: &Ipv6Header<'_>, payload: &[u8]) -> bool {
    let mut next = header.next_header().0;
    let mut rest = payload;
    for _ in 0..=IPV6_EXTENSIONS_MAX {
        match (next, rest) {
            (ICMPV6, [kind, ..]) => return *kind < 128 || *kind == 137,
            // Hop-by-hop, routing, destination options; a fragment that is not the first one says nothing.
            (0 | 43 | 60, [after, units, ..]) => {
                next = *after;
                rest = rest.get(8 * (usize::from(*units) + 1)..).unwrap_or(&[]);
            }
            (44, [after, ..]) => {
                next = *after;
                rest = rest.get(8..).unwrap_or(&[]);
            }
            _ => return false,
        }
    }
    // So many headers are nobody's honest packet.
    true
}

/// How many errors may be sent: so many a second, and a tenth of that at once (RFC 1812, section 4.3.2.8; RFC 4443,
/// section 2.4 (f)).
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    per_second: u32,
    /// Millionths.
    tokens: u64,
    filled: Duration,
    suppressed: u64,
}

impl RateLimit {
    /// So many a second.
    #[must_use]
    pub const fn new(per_second: u32) -> Self {
        Self {
            per_second,
            tokens: per_second as u64 * 100_000,
            filled: Duration::ZERO,
            suppressed: 0,
        }
    }

    /// True when another may be sent now.
    pub fn take(&mut self, now: Duration) -> bool {
        // A tenth of a second's at once.
        let most = (u64::from(self.per_second) * 100_000).max(1_000_000);
        let since = now.saturating_sub(self.filled).as_micros() as u64;
        self.filled = now;
        let more = since.saturating_mul(u64::from(self.per_second));
        self.tokens = self.tokens.saturating_add(more).min(most);
        let may = self.tokens >= 1_000_000;
        if may {
            self.tokens -= 1_000_000;
        } else {
            self.suppressed += 1;
        }
        may
    }

    /// Errors that were not sent.
    #[must_use]
    pub const fn suppressed(&self) -> u64 {
        self.suppressed
    }
}
