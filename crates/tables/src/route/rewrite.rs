// SPDX-License-Identifier: Apache-2.0
//! Rewriting of forwarded frames.

use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress};

use super::decision::Adjacency;
use super::header::IPV4_HEADER;

const HEADERS: usize = ETHERNET_HEADER_LENGTH + IPV4_HEADER;
/// Positions of the time to live, which the protocol and the checksum follow, and of the hop limit of IPv6.
const TTL: usize = ETHERNET_HEADER_LENGTH + 8;
const HOP_LIMIT: usize = ETHERNET_HEADER_LENGTH + 7;

/// Source address of rewritten frames, in the parts that are stored.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    /// The first two octets, as the lowest bits.
    first: u64,
    rest: [u8; 4],
}

impl Source {
    /// Creates the parts of an address.
    #[inline(always)]
    #[must_use]
    pub const fn new(mac: MacAddress) -> Self {
        let number = mac.to_u64();
        let [.., a, b, c, d] = number.to_be_bytes();
        Self {
            first: number >> 32,
            rest: [a, b, c, d],
        }
    }
}

/// Sets new MAC addresses in an untagged frame and decrements the packet's time to live (RFC 1812, section 5.3.1; RFC 8200, section 3);
/// updates the IPv4 checksum (RFC 1624). The caller has validated the packet, and its time to live is above 1. Returns false, without a
/// change, if the packet is not IP.
#[inline(always)]
pub fn rewrite(frame: &mut [u8], source: Source, to: Adjacency) -> bool {
    // An IPv6 header is longer.
    let Some(headers) = frame.first_chunk_mut::<HEADERS>() else {
        return false;
    };
    match headers[ETHERNET_HEADER_LENGTH] >> 4 {
        4 => {
            // One load and one store, so that the next load of octets or words does not stall.
            let Some(place) = headers.get_mut(TTL..).and_then(<[u8]>::first_chunk_mut) else {
                return false;
            };
            let word = u32::from_le_bytes(*place);
            let [lower, upper] = [word & 0xffff, word >> 16];
            // A word 0x100 lower requires a checksum 0x100 higher, in one's complement (RFC 1624, equation 3): 1 in this byte order.
            let sum = upper.wrapping_add(1);
            let sum = sum.wrapping_add(u32::from(sum >= 0xffff));
            *place = ((lower.wrapping_sub(1) & 0xffff) | sum << 16).to_le_bytes();
        }
        6 => headers[HOP_LIMIT] = headers[HOP_LIMIT].wrapping_sub(1),
        _ => return false,
    }
    // Two stores of words.
    let (first, rest) = headers.split_at_mut(8);
    first.copy_from_slice(&(to.mac_number() << 16 | source.first).to_be_bytes());
    if let Some(last) = rest.first_chunk_mut() {
        *last = source.rest;
    }
    true
}
