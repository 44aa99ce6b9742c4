// SPDX-License-Identifier: Apache-2.0
//! The plain model of translated headers: what a packet carries, built from the start in either version of IP.

use std::net::{Ipv4Addr, Ipv6Addr};

/// Content of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Tcp {
        ports: (u16, u16),
        flags: u8,
        data: Vec<u8>,
    },
    Udp {
        ports: (u16, u16),
        data: Vec<u8>,
        has_checksum: bool,
    },
    Echo {
        is_reply: bool,
        identifier: u16,
        sequence: u16,
        data: Vec<u8>,
    },
}

/// Fields that both versions have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header<A> {
    pub(crate) source: A,
    pub(crate) destination: A,
    pub(crate) class: u8,
    pub(crate) ttl: u8,
}

impl<A> Header<A> {
    pub(crate) fn plain(source: A, destination: A) -> Self {
        Self {
            source,
            destination,
            class: 0,
            ttl: 64,
        }
    }
}

/// Returns the checksum by RFC 1071, section 1: words are added in one's complement.
pub(crate) fn obvious_sum(octets: &[u8]) -> u16 {
    let mut sum = 0u16;
    for pair in octets.chunks(2) {
        let word = u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]);
        let (added, carry) = sum.overflowing_add(word);
        sum = added + u16::from(carry);
    }
    !sum
}

pub(crate) fn put(octets: &mut [u8], at: usize, word: u16) {
    octets[at..at + 2].copy_from_slice(&word.to_be_bytes());
}

impl Content {
    /// Returns the content with other ports, or another identifier, of its source or its destination.
    pub(crate) fn with_port(mut self, is_source: bool, port: u16) -> Self {
        match &mut self {
            Self::Tcp { ports, .. } | Self::Udp { ports, .. } if is_source => ports.0 = port,
            Self::Tcp { ports, .. } | Self::Udp { ports, .. } => ports.1 = port,
            Self::Echo { identifier, .. } => *identifier = port,
        }
        self
    }

    /// Returns what a server sends back: ports exchanged, a reply to an echo.
    pub(crate) fn answer(mut self) -> Self {
        match &mut self {
            Self::Tcp { ports, .. } | Self::Udp { ports, .. } => *ports = (ports.1, ports.0),
            Self::Echo { is_reply, .. } => *is_reply = !*is_reply,
        }
        self
    }

    pub(crate) const fn protocol(&self, is_v6: bool) -> u8 {
        match self {
            Self::Tcp { .. } => 6,
            Self::Udp { .. } => 17,
            Self::Echo { .. } if is_v6 => 58,
            Self::Echo { .. } => 1,
        }
    }

    /// Returns header and data with a checksum over the pseudo header that begins with these addresses.
    fn octets(&self, addresses: &[u8], is_v6: bool) -> Vec<u8> {
        let (mut octets, sum_at) = match self {
            Self::Tcp { ports, flags, data } => {
                let start = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes()].concat();
                let rest = [0, 0, 0, 1, 0, 0, 0, 2, 0x50, *flags, 1, 0, 0, 0, 0, 0];
                ([&start[..], &rest, data].concat(), 16)
            }
            Self::Udp { ports, data, .. } => {
                let length = 8 + data.len() as u16;
                let words = [ports.0, ports.1, length, 0].map(u16::to_be_bytes);
                ([&words.concat()[..], data].concat(), 6)
            }
            Self::Echo {
                is_reply,
                identifier,
                sequence,
                data,
            } => {
                let kind = match (is_v6, is_reply) {
                    (true, false) => 128,
                    (true, true) => 129,
                    (false, false) => 8,
                    (false, true) => 0,
                };
                let words = [kind << 8, 0, *identifier, *sequence].map(u16::to_be_bytes);
                ([&words.concat()[..], data].concat(), 2)
            }
        };
        let has_pseudo = is_v6 || !matches!(self, Self::Echo { .. });
        let length = (octets.len() as u32).to_be_bytes();
        let pseudo = match has_pseudo {
            true => [addresses, &length, &[0, 0, 0, self.protocol(is_v6)]].concat(),
            false => Vec::new(),
        };
        let mut sum = obvious_sum(&[&pseudo[..], &octets].concat());
        match self {
            Self::Udp {
                has_checksum: false,
                ..
            } => sum = 0,
            Self::Udp { .. } if sum == 0 => sum = 0xffff,
            _ => {}
        }
        put(&mut octets, sum_at, sum);
        octets
    }
}

/// Returns an IPv6 packet around a payload.
pub(crate) fn v6_around(header: Header<Ipv6Addr>, next: u8, payload: &[u8]) -> Vec<u8> {
    let [high, low] = (payload.len() as u16).to_be_bytes();
    let class = header.class;
    let start = [
        0x60 | class >> 4,
        class << 4,
        0,
        0,
        high,
        low,
        next,
        header.ttl,
    ];
    [
        &start[..],
        &header.source.octets(),
        &header.destination.octets(),
        payload,
    ]
    .concat()
}

/// Returns an IPv4 packet around a payload, with a word of flags and offset.
pub(crate) fn v4_around(
    header: Header<Ipv4Addr>,
    (identification, field): (u16, u16),
    protocol: u8,
    payload: &[u8],
) -> Vec<u8> {
    let words = [payload.len() as u16 + 20, identification, field].map(u16::to_be_bytes);
    let mut octets = [
        &[0x45, header.class][..],
        &words.concat(),
        &[header.ttl, protocol, 0, 0],
        &header.source.octets(),
        &header.destination.octets(),
        payload,
    ]
    .concat();
    let sum = obvious_sum(&octets[..20]);
    put(&mut octets, 10, sum);
    octets
}

/// Returns the payload of an IPv6 packet.
pub(crate) fn payload_v6(header: &Header<Ipv6Addr>, content: &Content) -> Vec<u8> {
    let addresses = [header.source.octets(), header.destination.octets()].concat();
    content.octets(&addresses, true)
}

/// Returns the payload of an IPv4 packet.
pub(crate) fn payload_v4(header: &Header<Ipv4Addr>, content: &Content) -> Vec<u8> {
    let addresses = [header.source.octets(), header.destination.octets()].concat();
    content.octets(&addresses, false)
}

/// Returns an IPv6 packet.
pub(crate) fn v6(header: Header<Ipv6Addr>, content: &Content) -> Vec<u8> {
    let payload = payload_v6(&header, content);
    v6_around(header, content.protocol(true), &payload)
}

/// Returns an IPv4 packet that must not be fragmented.
pub(crate) fn v4(header: Header<Ipv4Addr>, content: &Content) -> Vec<u8> {
    v4_with(header, (0, 0x4000), content)
}

/// Returns an IPv4 packet with this identification, and this word of flags.
pub(crate) fn v4_with(header: Header<Ipv4Addr>, field: (u16, u16), content: &Content) -> Vec<u8> {
    let payload = payload_v4(&header, content);
    v4_around(header, field, content.protocol(false), &payload)
}

fn word(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

/// Returns the ports in front of a payload; those of an echo are its identifier.
fn ports(protocol: u8, payload: &[u8]) -> (u16, u16) {
    match protocol {
        1 | 58 => (word(payload, 4), word(payload, 4)),
        _ => (word(payload, 0), word(payload, 2)),
    }
}

/// Returns source and destination of an IPv4 packet without options.
pub(crate) fn ends_v4(octets: &[u8]) -> ((Ipv4Addr, u16), (Ipv4Addr, u16)) {
    let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&octets[at..at + 4]).unwrap());
    let (from, to) = ports(octets[9], &octets[20..]);
    ((address(12), from), (address(16), to))
}

/// Returns source and destination of an IPv6 packet without extension headers.
pub(crate) fn ends_v6(octets: &[u8]) -> ((Ipv6Addr, u16), (Ipv6Addr, u16)) {
    let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&octets[at..at + 16]).unwrap());
    let (from, to) = ports(octets[6], &octets[40..]);
    ((address(8), from), (address(24), to))
}

/// Returns identification and word of flags of an IPv4 packet.
pub(crate) fn fields_v4(octets: &[u8]) -> (u16, u16) {
    (word(octets, 4), word(octets, 6))
}

/// Returns an ICMPv6 error about a packet.
pub(crate) fn error_v6(
    header: Header<Ipv6Addr>,
    (kind, code, second): (u8, u8, u32),
    inner: &[u8],
) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0][..], &second.to_be_bytes(), inner].concat();
    let pseudo = [
        &header.source.octets()[..],
        &header.destination.octets(),
        &(message.len() as u32).to_be_bytes(),
        &[0, 0, 0, 58],
    ]
    .concat();
    let sum = obvious_sum(&[&pseudo[..], &message].concat());
    put(&mut message, 2, sum);
    v6_around(header, 58, &message)
}

/// Returns an ICMPv4 error about a packet, with this identification and this word of flags.
pub(crate) fn error_v4(
    header: Header<Ipv4Addr>,
    field: (u16, u16),
    (kind, code, second): (u8, u8, u32),
    inner: &[u8],
) -> Vec<u8> {
    let mut message = [&[kind, code, 0, 0][..], &second.to_be_bytes(), inner].concat();
    let sum = obvious_sum(&message);
    put(&mut message, 2, sum);
    v4_around(header, field, 1, &message)
}
