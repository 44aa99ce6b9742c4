// SPDX-License-Identifier: Apache-2.0
//! Answers to rejected packets: a TCP reset, or an ICMP error. The answer leaves by the port that received the packet, with the tags of
//! its frame, from the destination of the packet to its source, so that it also works in a bridge, which has no addresses.

use quietwire_packet::{
    Checksum, Fragment, IPV6_HEADER_LENGTH, IpProtocol, Ipv4Header, Ipv6Header, LargeFrame,
    SEGMENT_HEADERS_MAX, TcpHeader, checksum, walk_ipv6_extensions,
};
use serde::{Deserialize, Serialize};

use super::pattern::{ADDRESSES, IPV4, IPV4_HEADER, IPV6};
use super::rewrite::network_at;
use crate::icmp;

const TCP: u8 = 6;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const TCP_HEADER: usize = 20;
const ICMP_HEADER: usize = 8;
/// TCP flags (RFC 9293, section 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;
/// Type and code of 'communication administratively prohibited' (RFC 1812, section 5.2.7.1; RFC 4443, section 3.1).
const PROHIBITED_V4: [u8; 2] = [3, 13];
const PROHIBITED_V6: [u8; 2] = [1, 1];
/// Don't fragment. A packet that is never fragmented requires no identification (RFC 6864, section 4.1).
const DONT_FRAGMENT: u8 = 0x40;

/// ICMP error about a rejected packet, also of TCP (`reject with icmpx` and `reject with icmp` of nftables).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RejectWith {
    /// Port unreachable.
    PortUnreachable,
    /// Host unreachable; IPv6: address unreachable.
    HostUnreachable,
    /// Network unreachable; IPv6: no route.
    NoRoute,
    /// Communication administratively prohibited.
    AdminProhibited,
    /// Communication with the host prohibited; IPv6: as [`Self::AdminProhibited`].
    HostProhibited,
    /// Communication with the network prohibited; IPv6: as [`Self::AdminProhibited`].
    NetProhibited,
}

impl RejectWith {
    /// All errors.
    pub const ALL: [Self; 6] = [
        Self::PortUnreachable,
        Self::HostUnreachable,
        Self::NoRoute,
        Self::AdminProhibited,
        Self::HostProhibited,
        Self::NetProhibited,
    ];

    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PortUnreachable => "port-unreachable",
            Self::HostUnreachable => "host-unreachable",
            Self::NoRoute => "no-route",
            Self::AdminProhibited => "admin-prohibited",
            Self::HostProhibited => "host-prohibited",
            Self::NetProhibited => "net-prohibited",
        }
    }

    /// Returns type and code in IPv4 (RFC 1122, section 3.2.2.1; RFC 1812, section 5.2.7.1).
    const fn v4(self) -> [u8; 2] {
        match self {
            Self::NoRoute => [3, 0],
            Self::HostUnreachable => [3, 1],
            Self::PortUnreachable => [3, 3],
            Self::NetProhibited => [3, 9],
            Self::HostProhibited => [3, 10],
            Self::AdminProhibited => PROHIBITED_V4,
        }
    }

    /// Returns type and code in IPv6 (RFC 4443, section 3.1).
    const fn v6(self) -> [u8; 2] {
        match self {
            Self::NoRoute => [1, 0],
            Self::HostUnreachable => [1, 3],
            Self::PortUnreachable => [1, 4],
            Self::AdminProhibited | Self::HostProhibited | Self::NetProhibited => PROHIBITED_V6,
        }
    }
}

/// Answer to a rejected packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    is_ipv4: bool,
    /// Offset of the IP header.
    network: usize,
    answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Source and destination port of the answer, sequence and acknowledgement number, flags.
    Reset {
        ports: [u16; 2],
        sequence: u32,
        acknowledgement: u32,
        flags: u8,
    },
    /// Number of octets of the packet in the error; type and code.
    Error { quoted: usize, message: [u8; 2] },
}

impl Rejection {
    /// Returns the answer to a frame, whose headers are in `frame`, its first buffer. `to_cut` is the length of a frame with data that are
    /// still to be cut into segments, octets: the checksum of TCP is not complete yet there, and counts as correct. `with` is the error about
    /// all packets. Without it, TCP gets a reset, and other packets get [`RejectWith::AdminProhibited`].
    ///
    /// `None` if there may be none: about a frame to or from a group address, a packet from or to other than one host, a later fragment, an
    /// ICMP error, a damaged packet, or anything but IP (RFC 1122, section 3.2.2; RFC 1812, section 4.3.2.7; RFC 4443, section 2.4 (e)). There
    /// is no reset about a TCP reset, and TCP data in fragments or with a wrong checksum (RFC 9293, sections 3.1 and 3.5.2).
    #[must_use]
    pub fn of(frame: &[u8], to_cut: Option<usize>, with: Option<RejectWith>) -> Option<Self> {
        let is_group = |at: usize| frame.get(at).is_none_or(|octet| octet & 1 == 1);
        if is_group(0) || is_group(6) {
            return None;
        }
        let (ethertype, network) = network_at(frame)?;
        let packet = frame.get(network..)?;
        let front = frame.get(..SEGMENT_HEADERS_MAX).unwrap_or(frame);
        let large = to_cut
            .and_then(|length| LargeFrame::read(front, length))
            .filter(|large| large.is_tcp() && large.ethernet_length() == network);
        let answer = match (large, ethertype) {
            (Some(large), _) => answer_large(&large, packet, with)?,
            (None, IPV4) => answer_v4(packet, with)?,
            (None, IPV6) => answer_v6(packet, with)?,
            _ => return None,
        };
        Some(Self {
            is_ipv4: ethertype == IPV4,
            network,
            answer,
        })
    }

    /// Returns true for a TCP reset.
    #[must_use]
    pub const fn is_reset(&self) -> bool {
        matches!(self.answer, Answer::Reset { .. })
    }

    /// Returns the length of the answer's frame, octets.
    #[must_use]
    pub const fn frame_length(&self) -> usize {
        let payload = self.payload_length();
        let header = match self.is_ipv4 {
            true => IPV4_HEADER,
            false => IPV6_HEADER_LENGTH,
        };
        self.network.saturating_add(header).saturating_add(payload)
    }

    const fn payload_length(&self) -> usize {
        match self.answer {
            Answer::Reset { .. } => TCP_HEADER,
            Answer::Error { quoted, .. } => ICMP_HEADER.saturating_add(quoted),
        }
    }

    /// Writes the answer to a frame, the same as for [`Self::of`], into `out`, which has [`Self::frame_length`] octets. Returns false if it
    /// has fewer, or if the frame is another one.
    #[must_use]
    pub fn write(&self, frame: &[u8], out: &mut [u8]) -> bool {
        self.fill(frame, &mut Writer(out)).is_some()
    }

    fn fill(&self, frame: &[u8], out: &mut Writer<'_>) -> Option<()> {
        let (destination, rest) = frame.split_first_chunk::<6>()?;
        let source = rest.first_chunk::<6>()?;
        out.put(source)?;
        out.put(destination)?;
        out.put(frame.get(ADDRESSES..self.network)?)?;
        let packet = frame.get(self.network..)?;
        let protocol = match (self.answer, self.is_ipv4) {
            (Answer::Reset { .. }, _) => TCP,
            (Answer::Error { .. }, true) => ICMP,
            (Answer::Error { .. }, false) => ICMPV6,
        };
        let payload = u16::try_from(self.payload_length()).ok()?;
        let mut sum = Checksum::new();
        if self.is_ipv4 {
            let (destination, source) = packet.get(12..20)?.split_at_checked(4)?;
            let is_error = protocol == ICMP;
            let length = payload.checked_add(20)?.to_be_bytes();
            let (service, flags) = match is_error {
                true => (icmp::INTERNETWORK_CONTROL, 0),
                false => (0, DONT_FRAGMENT),
            };
            let start = [0x45, service, length[0], length[1], 0, 0, flags, 0];
            let mut fixed = [0; IPV4_HEADER];
            let mut writer = Writer(&mut fixed);
            writer.put(&start)?;
            writer.put(&[icmp::TTL, protocol, 0, 0])?;
            writer.put(source)?;
            writer.put(destination)?;
            let sum_of_header = checksum(&fixed);
            let [.., high, low, _, _, _, _, _, _, _, _] = &mut fixed;
            [*high, *low] = sum_of_header.to_be_bytes();
            out.put(&fixed)?;
            if !is_error {
                // The pseudo-header (RFC 9293, section 3.1).
                sum.add(source);
                sum.add(destination);
                sum.add(&u32::from(payload).to_be_bytes());
                sum.add(&[0, 0, 0, protocol]);
            }
        } else {
            let (destination, source) = packet.get(8..40)?.split_at_checked(16)?;
            let length = payload.to_be_bytes();
            out.put(&[0x60, 0, 0, 0, length[0], length[1], protocol, icmp::TTL])?;
            out.put(source)?;
            out.put(destination)?;
            // The pseudo-header (RFC 8200, section 8.1).
            sum.add(source);
            sum.add(destination);
            sum.add(&u32::from(payload).to_be_bytes());
            sum.add(&[0, 0, 0, protocol]);
        }
        match self.answer {
            Answer::Reset {
                ports: [source, destination],
                sequence,
                acknowledgement,
                flags,
            } => {
                let mut header = [0; TCP_HEADER];
                let mut writer = Writer(&mut header);
                writer.put(&source.to_be_bytes())?;
                writer.put(&destination.to_be_bytes())?;
                writer.put(&sequence.to_be_bytes())?;
                writer.put(&acknowledgement.to_be_bytes())?;
                writer.put(&[5 << 4, flags, 0, 0])?;
                sum.add(&header);
                let [.., high, low, _, _] = &mut header;
                [*high, *low] = sum.finish().to_be_bytes();
                out.put(&header)
            }
            Answer::Error {
                quoted,
                message: [kind, code],
            } => {
                let quoted = packet.get(..quoted)?;
                sum.add(&[kind, code]);
                sum.add(quoted);
                let [high, low] = sum.finish().to_be_bytes();
                out.put(&[kind, code, high, low, 0, 0, 0, 0])?;
                out.put(quoted)
            }
        }
    }
}

fn answer_v4(packet: &[u8], with: Option<RejectWith>) -> Option<Answer> {
    let (header, payload) = Ipv4Header::split(packet).ok()?;
    let is_between_hosts =
        icmp::is_host_v4(header.source()) && icmp::is_host_v4(header.destination());
    if !is_between_hosts || !header.checksum_is_right() || header.fragment() == Fragment::Later {
        return None;
    }
    match (header.protocol().0, with) {
        (TCP, None) => {
            let addresses = [header.source().octets(), header.destination().octets()];
            reset(header.fragment(), payload)
                .filter(|_| has_correct_checksum(addresses.as_flattened(), payload))
        }
        (ICMP, _) if !icmp::is_query_v4(payload.first().copied()) => None,
        _ => Some(Answer::Error {
            quoted: usize::from(header.total_length()).min(icmp::QUOTED_MAX_V4),
            message: with.map_or(PROHIBITED_V4, RejectWith::v4),
        }),
    }
}

fn answer_v6(packet: &[u8], with: Option<RejectWith>) -> Option<Answer> {
    let (header, payload) = Ipv6Header::split(packet).ok()?;
    let is_between_hosts =
        icmp::is_host_v6(header.source()) && icmp::is_host_v6(header.destination());
    let walked = walk_ipv6_extensions(header.next_header(), payload).ok()?;
    if !is_between_hosts || walked.fragment == Fragment::Later {
        return None;
    }
    let carried = payload.get(walked.length..)?;
    match (walked.protocol, with) {
        (IpProtocol(TCP), None) => {
            let addresses = [header.source().octets(), header.destination().octets()];
            reset(walked.fragment, carried)
                .filter(|_| has_correct_checksum(addresses.as_flattened(), carried))
        }
        (IpProtocol(ICMPV6), _) if !icmp::is_query_v6(carried.first()) => None,
        _ => {
            let length = usize::from(header.payload_length()).checked_add(IPV6_HEADER_LENGTH)?;
            Some(Answer::Error {
                quoted: length.min(icmp::QUOTED_MAX_V6),
                message: with.map_or(PROHIBITED_V6, RejectWith::v6),
            })
        }
    }
}

/// Returns the answer to TCP data that are still to be cut, and of which the packet has the headers. They have neither SYN nor RST.
fn answer_large(large: &LargeFrame, packet: &[u8], with: Option<RejectWith>) -> Option<Answer> {
    let are_hosts = if large.is_ipv4() {
        let (source, destination) = packet.get(12..20)?.split_at_checked(4)?;
        [source, destination].map(|octets| {
            let octets: Option<&[u8; 4]> = octets.first_chunk();
            octets.is_some_and(|octets| icmp::is_host_v4((*octets).into()))
        })
    } else {
        let (source, destination) = packet.get(8..40)?.split_at_checked(16)?;
        [source, destination].map(|octets| {
            let octets: Option<&[u8; 16]> = octets.first_chunk();
            octets.is_some_and(|octets| icmp::is_host_v6((*octets).into()))
        })
    };
    if are_hosts != [true; 2] || !large.is_sound() {
        return None;
    }
    if let Some(with) = with {
        let (most, message) = match large.is_ipv4() {
            true => (icmp::QUOTED_MAX_V4, with.v4()),
            false => (icmp::QUOTED_MAX_V6, with.v6()),
        };
        // The headers are in the packet, and some of the data may be in further buffers.
        let quoted = packet.len().min(most);
        return Some(Answer::Error { quoted, message });
    }
    let segment = packet.get(large.network_length()..)?;
    let (header, _) = TcpHeader::split(segment).ok()?;
    // Only an acknowledgement has the number.
    reset(Fragment::Whole, segment).filter(|_| header.flags() & ACK != 0)
}

/// Returns true if the checksum of a segment between these addresses is correct (RFC 9293, section 3.1).
fn has_correct_checksum(addresses: &[u8], segment: &[u8]) -> bool {
    let Ok(length) = u32::try_from(segment.len()) else {
        return false;
    };
    let mut sum = Checksum::new();
    sum.add(addresses);
    sum.add(&length.to_be_bytes());
    sum.add(&[0, 0, 0, TCP]);
    sum.add(segment);
    sum.finish() == 0
}

/// Returns the reset of a segment (RFC 9293, section 3.10.7.1: the reset of a connection that does not exist). There is none of a fragment:
/// checksum and length of its segment are those of all fragments.
fn reset(fragment: Fragment, segment: &[u8]) -> Option<Answer> {
    let (header, data) = TcpHeader::split(segment).ok()?;
    let flags = header.flags();
    let ports = [header.destination_port(), header.source_port()];
    if flags & RST != 0 || fragment != Fragment::Whole {
        return None;
    }
    if flags & ACK != 0 {
        return Some(Answer::Reset {
            ports,
            sequence: header.acknowledgement(),
            acknowledgement: 0,
            flags: RST,
        });
    }
    let controls = u32::from(flags & SYN != 0).checked_add(u32::from(flags & FIN != 0))?;
    let length = u32::try_from(data.len()).ok()?.checked_add(controls)?;
    Some(Answer::Reset {
        ports,
        sequence: 0,
        acknowledgement: header.sequence().wrapping_add(length),
        flags: RST | ACK,
    })
}

/// Octets to fill from the front.
struct Writer<'out>(&'out mut [u8]);

impl Writer<'_> {
    fn put(&mut self, octets: &[u8]) -> Option<()> {
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut_checked(octets.len())?;
        place.copy_from_slice(octets);
        self.0 = rest;
        Some(())
    }
}

#[cfg(test)]
mod tests;
