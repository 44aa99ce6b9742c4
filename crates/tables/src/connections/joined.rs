// SPDX-License-Identifier: Apache-2.0
//! Fragments: the connection of the first one is that of all.

use quietwire_packet::{IPV6_HEADER_LENGTH, IpProtocol, walk_ipv6_extensions};

use super::key::Key;
use super::packet::{Kind, Packet, Part};
use super::settings::Seconds;
use super::tcp::SYN;
use crate::filter::after_tags;
use crate::fragments::{Datagrams, FragmentPart};

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Offset of the header length in a TCP header, and of the next header in an IPv6 header.
const TCP_LENGTH_AT: usize = 12;
const NEXT_HEADER_AT: usize = 6;
/// Octets of the headers of UDP and of an ICMP echo.
const SHORT_HEADER: usize = 8;

/// Data of the first fragment of a datagram for the later ones.
#[derive(Clone, Copy, Debug)]
struct FirstFragment {
    key: Key,
    is_from_higher: bool,
    /// Octets of the payload up to the end of the transport header. No later fragment may contain some of them (RFC 1858, section 4).
    headers: u32,
    /// TCP sequence number that belongs to the first octet of the payload: that of the data less the header.
    sequence: Option<u32>,
}

/// Datagrams whose first fragment has arrived.
#[derive(Debug)]
pub(super) struct Joined {
    datagrams: Datagrams<FirstFragment>,
}

impl Joined {
    pub(super) fn new() -> Self {
        Self {
            datagrams: Datagrams::new(),
        }
    }

    /// Returns the memory of the table, octets.
    pub(super) fn octets(&self) -> usize {
        self.datagrams.octets()
    }

    /// Notes the connection of a first fragment, and gives a later one that of the first.
    pub(super) fn join(&mut self, packet: &mut Packet, frame: &[u8], zone: u16, now: Seconds) {
        let Some((ethertype, octets)) =
            after_tags(frame).and_then(|(_, rest)| rest.split_first_chunk::<2>())
        else {
            return;
        };
        let part = match *ethertype {
            IPV4 => FragmentPart::of_ipv4(octets, zone),
            IPV6 => FragmentPart::of_ipv6(octets, zone),
            _ => None,
        };
        let Some(part) = part else {
            return;
        };
        match packet.part {
            Part::Whole => {}
            Part::First => {
                let transport = match *ethertype {
                    IPV6 => transport_of(octets),
                    _ => Some(part.at),
                };
                let headers =
                    transport.and_then(|transport| headers_of(packet, &part, octets, transport));
                if let Some(first) = headers.and_then(|headers| first_of(packet, headers)) {
                    self.datagrams.note(part.id, first, now);
                }
            }
            Part::Later => {
                let first = self.datagrams.find(&part.id, now);
                if let Some(first) = first.filter(|first| part.offset >= first.headers) {
                    let end = part.offset.wrapping_add(part.length);
                    packet.key = first.key;
                    packet.is_from_higher = first.is_from_higher;
                    packet.kind = Kind::Later(first.sequence.map(|one| one.wrapping_add(end)));
                }
            }
        }
    }
}

/// Returns the offset of the transport header in an IPv6 packet.
fn transport_of(octets: &[u8]) -> Option<usize> {
    let (header, rest) = octets.split_first_chunk::<IPV6_HEADER_LENGTH>()?;
    let walked = walk_ipv6_extensions(IpProtocol(header[NEXT_HEADER_AT]), rest).ok()?;
    walked.length.checked_add(IPV6_HEADER_LENGTH)
}

/// Returns the octets of the payload up to the end of the transport header.
fn headers_of(
    packet: &Packet,
    part: &FragmentPart,
    octets: &[u8],
    transport: usize,
) -> Option<u32> {
    let header = match packet.kind {
        Kind::Tcp(_) => {
            let length = octets.get(transport.checked_add(TCP_LENGTH_AT)?)?;
            usize::from(length >> 4).saturating_mul(4)
        }
        Kind::Other => 0,
        _ => SHORT_HEADER,
    };
    let octets = transport.checked_sub(part.at)?.checked_add(header)?;
    u32::try_from(octets).ok()
}

/// Returns the properties of a first fragment that later ones lack. `None` for packets that belong to no connection, and for ICMP errors.
fn first_of(packet: &Packet, headers: u32) -> Option<FirstFragment> {
    let sequence = match packet.kind {
        Kind::Tcp(segment) => {
            let data = segment
                .sequence
                .wrapping_add(u32::from(segment.flags & SYN != 0));
            Some(data.wrapping_sub(headers))
        }
        Kind::Udp | Kind::EchoRequest | Kind::EchoReply | Kind::Other => None,
        Kind::Untracked | Kind::Invalid(_) | Kind::Error(_) | Kind::Later(_) => return None,
    };
    Some(FirstFragment {
        key: packet.key,
        is_from_higher: packet.is_from_higher,
        headers,
        sequence,
    })
}
