// SPDX-License-Identifier: Apache-2.0
//! Types and codes of ICMP errors in both versions (RFC 7915, sections 4.2 and 5.2).

use super::header::FRAGMENT_HEADER;

/// Types and codes of echoes.
pub(super) const ECHO_REPLY_V4: u8 = 0;
pub(super) const ECHO_V4: u8 = 8;
pub(super) const ECHO_V6: u8 = 128;
pub(super) const ECHO_REPLY_V6: u8 = 129;

/// Octets by which a header of IPv6 is longer than one of IPv4, without a fragment header and with one.
const LONGER: u32 = 20;
const LONGER_IN_FRAGMENT: u32 = 28;
const _: () = assert!(LONGER_IN_FRAGMENT as usize == LONGER as usize + FRAGMENT_HEADER);
/// Smallest MTU of IPv6 (RFC 8200, section 5).
const MTU_V6_MIN: u32 = 1280;
/// Lengths of packets that paths have in practice, for routers that report no MTU (RFC 1191, section 7).
const PLATEAUS: [u16; 11] = [
    65535, 32000, 17914, 8166, 4352, 2002, 1492, 1006, 508, 296, 68,
];

/// Type, code, and second word of an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Error {
    pub(super) kind: u8,
    pub(super) code: u8,
    pub(super) word: u32,
}

impl Error {
    /// Reads the first eight octets of a message.
    pub(super) const fn of(message: [u8; 8]) -> Self {
        let [kind, code, _, _, a, b, c, d] = message;
        Self {
            kind,
            code,
            word: u32::from_be_bytes([a, b, c, d]),
        }
    }

    /// Returns the eight octets of a message without checksum.
    pub(super) const fn octets(self) -> [u8; 8] {
        let [a, b, c, d] = self.word.to_be_bytes();
        [self.kind, self.code, 0, 0, a, b, c, d]
    }

    const fn new(kind: u8, code: u8, word: u32) -> Option<Self> {
        Some(Self { kind, code, word })
    }

    /// Returns the ICMPv4 error of an ICMPv6 one about a packet with or without a fragment header; `None` for messages without translation
    /// (RFC 7915, section 5.2).
    pub(super) fn to_v4(self, is_fragment: bool) -> Option<Self> {
        match (self.kind, self.code) {
            // Destination unreachable: no route, beyond scope, address unreachable.
            (1, 0 | 2 | 3) => Self::new(3, 1, 0),
            // Administratively prohibited.
            (1, 1) => Self::new(3, 10, 0),
            (1, 4) => Self::new(3, 3, 0),
            // Packet too big.
            (2, 0) => {
                let longer = match is_fragment {
                    true => LONGER_IN_FRAGMENT,
                    false => LONGER,
                };
                let mtu = self.word.saturating_sub(longer).min(0xffff);
                Self::new(3, 4, mtu)
            }
            // Time exceeded.
            (3, code) => Self::new(11, code, 0),
            // Parameter problem, whose pointer is an octet in IPv4.
            (4, 0) => Self::new(12, 0, u32::from(pointer_to_v4(self.word)?) << 24),
            // Unknown next header.
            (4, 1) => Self::new(3, 2, 0),
            _ => None,
        }
    }

    /// Returns the ICMPv6 error of an ICMPv4 one about a packet of `length` octets; `None` for messages without translation (RFC 7915,
    /// section 4.2).
    pub(super) fn to_v6(self, length: u16) -> Option<Self> {
        match (self.kind, self.code) {
            // Destination unreachable: of the network, of the host, source route failed, unknown, isolated, type of service.
            (3, 0 | 1 | 5 | 6 | 7 | 8 | 11 | 12) => Self::new(1, 0, 0),
            // Protocol unreachable: the next header field of IPv6.
            (3, 2) => Self::new(4, 1, 6),
            (3, 3) => Self::new(1, 4, 0),
            (3, 4) => {
                let reported = (self.word & 0xffff) as u16;
                let mtu = match reported {
                    0 => plateau_below(length),
                    reported => reported,
                };
                let mtu = u32::from(mtu).saturating_add(LONGER);
                Self::new(2, 0, mtu.max(MTU_V6_MIN))
            }
            // Administratively prohibited, precedence cutoff.
            (3, 9 | 10 | 13 | 15) => Self::new(1, 1, 0),
            (11, code) => Self::new(3, code, 0),
            (12, 0 | 2) => Self::new(4, 0, pointer_to_v6((self.word >> 24) as u8)?),
            _ => None,
        }
    }
}

/// Returns the octets of the packet in an ICMPv4 error that has extensions behind it (RFC 4884, section 4).
pub(super) fn quoted_v4(message: [u8; 8]) -> Option<usize> {
    let words = usize::from(message[5]);
    (matches!(message[0], 3 | 11 | 12) && words > 0).then_some(words.saturating_mul(4))
}

/// Returns the octets of the packet in an ICMPv6 error that has extensions behind it (RFC 4884, section 4).
pub(super) fn quoted_v6(message: [u8; 8]) -> Option<usize> {
    let words = usize::from(message[4]);
    (matches!(message[0], 1 | 3) && words > 0).then_some(words.saturating_mul(8))
}

/// Returns the largest plateau below a length (RFC 1191, section 7.1).
fn plateau_below(length: u16) -> u16 {
    let mut plateaus = PLATEAUS.iter();
    plateaus.find(|mtu| **mtu < length).copied().unwrap_or(68)
}

/// Returns the octet of an IPv4 header that is the one of an IPv6 header (RFC 7915, figure 6).
const fn pointer_to_v4(pointer: u32) -> Option<u8> {
    match pointer {
        0 => Some(0),
        1 => Some(1),
        // Payload length.
        4 | 5 => Some(2),
        // Next header, hop limit.
        6 => Some(9),
        7 => Some(8),
        8..=23 => Some(12),
        24..=39 => Some(16),
        _ => None,
    }
}

/// Returns the octet of an IPv6 header that is the one of an IPv4 header (RFC 7915, figure 3).
const fn pointer_to_v6(pointer: u8) -> Option<u32> {
    match pointer {
        0 | 1 => Some(pointer as u32),
        // Total length.
        2 | 3 => Some(4),
        // Time to live, protocol.
        8 => Some(7),
        9 => Some(6),
        12..=15 => Some(8),
        16..=19 => Some(24),
        _ => None,
    }
}
