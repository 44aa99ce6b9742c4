// SPDX-License-Identifier: Apache-2.0
//! Translation of headers, with incremental updates of all checksums that cover them (RFC 1624; RFC 3022, section 4.2).

use quietwire_packet::{
    IPV4_DESTINATION_AT, IPV4_SOURCE_AT, TCP_CHECKSUM_OFFSET, UDP_CHECKSUM_OFFSET, be16_at,
    be32_at, udp_checksum, update_checksum_u16, update_checksum_u32,
};

use super::names::NatProtocol;
use super::packet::{End, View};

/// Offsets in an IPv4 header.
const IP_IDENTIFICATION_AT: usize = 4;
const CHECKSUM_AT: usize = 10;
/// Offsets in an ICMP message.
const ICMP_CHECKSUM_AT: usize = 2;
const IDENTIFIER_AT: usize = 4;

/// End of a packet that is translated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Source.
    Source,
    /// Destination.
    Destination,
}

/// A packet under translation.
struct Editor<'a> {
    packet: &'a mut [u8],
    /// Offset of the checksum of the ICMP error that contains the translated packet.
    outer_sum_at: Option<usize>,
}

impl Editor<'_> {
    fn word(&self, at: usize) -> Option<u16> {
        be16_at(self.packet, at)
    }

    fn long(&self, at: usize) -> Option<u32> {
        be32_at(self.packet, at)
    }

    /// Writes a word at an even offset.
    fn put(&mut self, at: usize, new: u16) {
        let Some(old) = self.word(at) else {
            return;
        };
        self.write(at, new);
        if let Some(sum_at) = self.outer_sum_at
            && let Some(sum) = self.word(sum_at)
        {
            self.write(sum_at, update_checksum_u16(sum, old, new));
        }
    }

    fn write(&mut self, at: usize, new: u16) {
        let octets = self.packet.get_mut(at..);
        if let Some(octets) = octets.and_then(|octets| octets.first_chunk_mut()) {
            *octets = new.to_be_bytes();
        }
    }

    fn put_long(&mut self, at: usize, new: u32) {
        let [a, b, c, d] = new.to_be_bytes();
        self.put(at, u16::from_be_bytes([a, b]));
        self.put(at.saturating_add(2), u16::from_be_bytes([c, d]));
    }

    /// Replaces an end. A transport checksum behind the end of the packet, as in ICMP errors, stays away.
    fn translate(&mut self, view: &View, which: Which, end: End) -> Option<()> {
        let (address_at, port_at) = match which {
            Which::Source => (IPV4_SOURCE_AT, 0),
            Which::Destination => (IPV4_DESTINATION_AT, 2),
        };
        let address_at = view.at.saturating_add(address_at);
        let ip_sum_at = view.at.saturating_add(CHECKSUM_AT);
        let former = self.long(address_at)?;
        let sum = self.word(ip_sum_at)?;
        self.put_long(address_at, end.address);
        let sum = update_checksum_u32(sum, former, end.address);
        self.put(ip_sum_at, sum);
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
        let sum = match view.protocol {
            NatProtocol::Tcp => update_checksum_u32(sum, former, end.address),
            // Without checksum (RFC 768).
            NatProtocol::Udp if sum == 0 => return Some(()),
            NatProtocol::Udp => update_checksum_u32(sum, former, end.address),
            // No pseudo header.
            NatProtocol::Icmp => sum,
        };
        let sum = update_checksum_u16(sum, former_port, end.port);
        let sum = match view.protocol {
            NatProtocol::Udp => udp_checksum(sum),
            _ => sum,
        };
        self.put(sum_at, sum);
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

/// Replaces the source or the destination of the packet within an ICMP error, whose transport header is at `icmp`.
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

/// Replaces an address of a packet, and nothing behind its IP header.
pub(crate) fn translate_address(packet: &mut [u8], which: Which, address: u32) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    let at = match which {
        Which::Source => IPV4_SOURCE_AT,
        Which::Destination => IPV4_DESTINATION_AT,
    };
    if let (Some(former), Some(sum)) = (editor.long(at), editor.word(CHECKSUM_AT)) {
        editor.put_long(at, address);
        editor.put(CHECKSUM_AT, update_checksum_u32(sum, former, address));
    }
}

/// Replaces the identification of a packet.
pub(super) fn translate_identification(packet: &mut [u8], identification: u16) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    if let (Some(former), Some(sum)) = (editor.word(IP_IDENTIFICATION_AT), editor.word(CHECKSUM_AT))
    {
        editor.put(IP_IDENTIFICATION_AT, identification);
        editor.put(
            CHECKSUM_AT,
            update_checksum_u16(sum, former, identification),
        );
    }
}

/// Updates the transport checksum at an offset for a new address. A UDP datagram without checksum keeps none (RFC 768).
pub(crate) fn translate_sum(
    packet: &mut [u8],
    at: usize,
    protocol: u8,
    (former, address): (u32, u32),
) {
    let mut editor = Editor {
        packet,
        outer_sum_at: None,
    };
    let is_udp = protocol == 17;
    match editor.word(at) {
        Some(0) if is_udp => {}
        Some(sum) => {
            let sum = update_checksum_u32(sum, former, address);
            editor.put(at, if is_udp { udp_checksum(sum) } else { sum });
        }
        None => {}
    }
}
