// SPDX-License-Identifier: Apache-2.0
//! Translation of headers, with incremental updates of all checksums that cover them (RFC 1624; RFC 8200, section 8.1).

use quietwire_packet::{
    TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET, be16_at, fold_sum, udp_checksum, update_checksum_u16,
};

use super::packet::{DESTINATION_AT, End, SOURCE_AT, View, address_at};
use crate::nat::NatProtocol;
use crate::nat::rewrite::Which;

/// Offsets in an ICMPv6 message.
const ICMP_CHECKSUM_AT: usize = 2;
const IDENTIFIER_AT: usize = 4;

/// Returns the offset of the address in an IPv6 header.
const fn place_of(which: Which) -> usize {
    match which {
        Which::Source => SOURCE_AT,
        Which::Destination => DESTINATION_AT,
    }
}

fn words(address: u128) -> u64 {
    let octets = address.to_be_bytes();
    let (words, _) = octets.as_chunks::<2>();
    let words = words
        .iter()
        .map(|word| u64::from(u16::from_be_bytes(*word)));
    words.sum()
}

/// Returns a checksum after an address and a port, or other word, have changed (RFC 1624, section 3, equation 3).
fn updated(sum: u16, (former, address): (u128, u128), (former_port, port): (u16, u16)) -> u16 {
    // Nineteen numbers of 16 bits.
    let numbers = [
        words(!former),
        words(address),
        u64::from(!former_port),
        u64::from(port),
    ];
    let change = numbers.into_iter().fold(0, u64::wrapping_add);
    !fold_sum(u64::from(!sum).wrapping_add(change))
}

/// A packet under translation.
struct Editor<'a> {
    packet: &'a mut [u8],
    /// Offset of the checksum of the ICMPv6 error that contains the translated packet.
    outer_sum_at: Option<usize>,
}

impl Editor<'_> {
    fn word(&self, at: usize) -> Option<u16> {
        be16_at(self.packet, at)
    }

    fn write<const N: usize>(&mut self, at: usize, new: [u8; N]) {
        let octets = self.packet.get_mut(at..);
        if let Some(octets) = octets.and_then(|octets| octets.first_chunk_mut()) {
            *octets = new;
        }
    }

    /// Writes a word at an even offset.
    fn put(&mut self, at: usize, new: u16) {
        let Some(old) = self.word(at) else {
            return;
        };
        self.write(at, new.to_be_bytes());
        if let Some(sum_at) = self.outer_sum_at
            && let Some(sum) = self.word(sum_at)
        {
            self.write(sum_at, update_checksum_u16(sum, old, new).to_be_bytes());
        }
    }

    /// Writes an address at an even offset, and returns the former one.
    fn put_address(&mut self, at: usize, address: u128) -> Option<u128> {
        let former = address_at(self.packet, at)?;
        self.write(at, address.to_be_bytes());
        if let Some(sum_at) = self.outer_sum_at {
            let sum = self.word(sum_at)?;
            let sum = updated(sum, (former, address), (0, 0));
            self.write(sum_at, sum.to_be_bytes());
        }
        Some(former)
    }

    /// Replaces an end. A transport checksum behind the end of the packet, as in ICMPv6 errors, stays away.
    fn translate(&mut self, view: &View, which: Which, end: End) -> Option<()> {
        let address_at = view.at.saturating_add(place_of(which));
        let former = self.put_address(address_at, end.address)?;
        let port_at = match which {
            Which::Source => 0,
            Which::Destination => 2,
        };
        let (port_at, sum_at) = match view.protocol {
            NatProtocol::Tcp => (port_at, TCP_CHECKSUM_OFFSET),
            NatProtocol::Udp => (port_at, UDP_CHECKSUM_OFFSET),
            NatProtocol::Icmp => (IDENTIFIER_AT, ICMP_CHECKSUM_AT),
        };
        let port_at = view.transport.saturating_add(port_at);
        let former_port = self.word(port_at)?;
        self.put(port_at, end.port);
        let sum_at = view.transport.saturating_add(sum_at);
        let sum = self.word(sum_at)?;
        let new = updated(sum, (former, end.address), (former_port, end.port));
        let new = match view.protocol {
            // Without checksum (RFC 6935).
            NatProtocol::Udp if sum == 0 => return Some(()),
            NatProtocol::Udp => udp_checksum(new),
            NatProtocol::Tcp | NatProtocol::Icmp => new,
        };
        self.put(sum_at, new);
        Some(())
    }
}

/// Replaces the source or the destination of a packet.
pub(crate) fn translate(packet: &mut [u8], view: &View, which: Which, end: End) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    // Ends early behind the available octets, which `read` has checked.
    let _ = editor.translate(view, which, end);
}

/// Replaces the source or the destination of the packet within an ICMPv6 error, whose transport header is at `icmp`.
pub(crate) fn translate_inner(
    packet: &mut [u8],
    icmp: usize,
    inner: &View,
    which: Which,
    end: End,
) {
    let mut editor = Editor {
        packet,
        outer_sum_at: Some(icmp.saturating_add(ICMP_CHECKSUM_AT)),
    };
    // The inner packet is truncated.
    let _ = editor.translate(inner, which, end);
}

/// Replaces an address of an ICMPv6 error, whose transport header is at `icmp`.
pub(crate) fn translate_error(packet: &mut [u8], icmp: usize, which: Which, address: u128) {
    let mut editor = Editor {
        packet,
        outer_sum_at: Some(icmp.saturating_add(ICMP_CHECKSUM_AT)),
    };
    let _ = editor.put_address(place_of(which), address);
}

/// Replaces an address of a fragment without transport header.
pub(super) fn translate_address(packet: &mut [u8], which: Which, address: u128) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    let _ = editor.put_address(place_of(which), address);
}

/// Replaces the identification of a fragment, whose payload is at an offset (RFC 8200, section 4.5).
pub(super) fn translate_identification(packet: &mut [u8], payload: usize, identification: u32) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    if let Some(at) = payload.checked_sub(size_of::<u32>()) {
        editor.write(at, identification.to_be_bytes());
    }
}
