// SPDX-License-Identifier: Apache-2.0
//! Rewriting of forwarded frames.

use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress, update_checksum_u16};

use super::decision::Adjacency;

/// Sets new MAC addresses in an untagged frame and decrements the packet's time to live (RFC 1812, section 5.3.1; RFC 8200, section 3);
/// updates the IPv4 checksum (RFC 1624). The caller has validated the packet, and its time to live is above 1. Returns false, without a
/// change, if the packet is not IP.
#[inline(always)]
pub fn rewrite(frame: &mut [u8], source: MacAddress, to: Adjacency) -> bool {
    let Some((ethernet, packet)) = frame.split_first_chunk_mut::<ETHERNET_HEADER_LENGTH>() else {
        return false;
    };
    match packet {
        [first, ..] if *first >> 4 == 4 => {
            let Some(header) = packet.first_chunk_mut::<20>() else {
                return false;
            };
            let [.., ttl, protocol, high, low, _, _, _, _, _, _, _, _] = header;
            let old = u16::from_be_bytes([*ttl, *protocol]);
            let new = old.wrapping_sub(1 << 8);
            let sum = update_checksum_u16(u16::from_be_bytes([*high, *low]), old, new);
            // One store, so that the next load of octets or words does not stall.
            let [a, b] = new.to_be_bytes();
            let [c, d] = sum.to_be_bytes();
            (*ttl, *protocol, *high, *low) = (a, b, c, d);
        }
        [first, _, _, _, _, _, _, hop_limit, ..] if *first >> 4 == 6 => {
            *hop_limit = hop_limit.wrapping_sub(1);
        }
        _ => return false,
    }
    let (from, to) = (source.to_u64(), to.mac_number());
    let [a, b, c, d, e, f, g, h] = (to << 16 | from >> 32).to_be_bytes();
    let [i, j, k, l] = ((from & 0xffff_ffff) as u32).to_be_bytes();
    if let Some(addresses) = ethernet.first_chunk_mut::<12>() {
        *addresses = [a, b, c, d, e, f, g, h, i, j, k, l];
    }
    true
}
