// SPDX-License-Identifier: Apache-2.0
//! Frames of conversations: Ethernet, IPv4 or IPv6, TCP or UDP.

use std::net::{Ipv4Addr, Ipv6Addr};

use quietwire_packet::{
    Checksum, Damage, ETHERNET_HEADER_LENGTH, EtherType, Fragment, IPV4_HEADER_MIN,
    IPV6_HEADER_LENGTH, IpProtocol, MacAddress, TCP_CHECKSUM_OFFSET, TcpHeader,
    UDP_CHECKSUM_OFFSET, UDP_HEADER_LENGTH, UdpHeader, parse, udp_checksum,
};

use super::octets::put;
use super::piece::Piece;
use super::request::Contents;
use super::tcp::{HEADER_MAX, Segment};

/// Shortest frame, octets without FCS.
const FRAME_MIN: usize = 60;
/// Hop limit and time to live of all packets.
const TTL: u8 = 64;
/// Next header of the fragment header of IPv6, and its length (RFC 8200, section 4.5).
const FRAGMENT_HEADER: u8 = 44;
const FRAGMENT_HEADER_LENGTH: usize = 8;
/// More fragments (RFC 791, section 3.1).
const MORE_FRAGMENTS: u16 = 0x2000;

/// Addresses of both ends of a packet. IPv4 addresses are mapped (RFC 4291, section 2.5.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addresses {
    pub(crate) source: Ipv6Addr,
    pub(crate) destination: Ipv6Addr,
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
}

/// Part of the data that one end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Payload {
    pub(crate) contents: Contents,
    pub(crate) offset: u32,
    pub(crate) length: u16,
}

/// Transport header of a packet to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp(Segment),
    Udp,
    /// A fragment of a datagram.
    Fragment(Piece),
}

/// A packet to send. Its payload is generated when it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) addresses: Addresses,
    pub(crate) transport: Transport,
    pub(crate) payload: Option<Payload>,
}

/// MAC addresses of the frames of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) source: MacAddress,
    pub(crate) destination: MacAddress,
}

impl Packet {
    fn payload_length(&self) -> usize {
        usize::from(self.payload.map_or(0, |payload| payload.length))
    }

    /// Returns the octets of the transport header, and their number. The checksum is zero.
    fn transport_header(&self) -> ([u8; HEADER_MAX], usize) {
        let mut header = [0; HEADER_MAX];
        let Addresses {
            source_port,
            destination_port,
            ..
        } = self.addresses;
        let length = match &self.transport {
            Transport::Tcp(segment) => segment.write(source_port, destination_port, &mut header),
            Transport::Udp => {
                let length = self.payload_length().saturating_add(UDP_HEADER_LENGTH);
                let fields = [source_port, destination_port, limited(length), 0];
                let octets = fields.into_iter().flat_map(u16::to_be_bytes);
                header
                    .iter_mut()
                    .zip(octets)
                    .for_each(|(to, from)| *to = from);
                UDP_HEADER_LENGTH
            }
            Transport::Fragment(_) => 0,
        };
        (header, length)
    }

    fn ip_length(&self) -> usize {
        match self.addresses.source.to_ipv4_mapped() {
            Some(_) => IPV4_HEADER_MIN,
            None => IPV6_HEADER_LENGTH,
        }
    }

    fn protocol(&self) -> IpProtocol {
        match self.transport {
            Transport::Tcp(_) => IpProtocol::TCP,
            Transport::Udp | Transport::Fragment(_) => IpProtocol::UDP,
        }
    }

    /// Returns the length of the frame, octets without FCS.
    pub(crate) fn length(&self) -> u16 {
        let (header, payload) = match &self.transport {
            Transport::Tcp(segment) => (segment.header_length(), self.payload_length()),
            Transport::Udp => (UDP_HEADER_LENGTH, self.payload_length()),
            Transport::Fragment(piece) => (self.fragment_header(), piece.length()),
        };
        self.frame_length(header.saturating_add(payload))
    }

    /// Returns the length of a frame with so many octets after the IP header, octets without FCS.
    fn frame_length(&self, payload: usize) -> u16 {
        let headers = self.ip_length().saturating_add(ETHERNET_HEADER_LENGTH);
        limited(headers.saturating_add(payload).max(FRAME_MIN))
    }

    /// Writes the frame. `frame` has the length of [`Self::length`].
    pub(crate) fn write(&self, link: &Link, frame: &mut [u8]) {
        let ethertype = match self.ip_length() {
            IPV4_HEADER_MIN => EtherType::IPV4,
            _ => EtherType::IPV6,
        };
        let mut rest = put(frame, &link.destination.0);
        rest = put(rest, &link.source.0);
        rest = put(rest, &ethertype.0.to_be_bytes());
        if let Transport::Fragment(piece) = &self.transport {
            self.write_fragment(piece, rest);
            return;
        }
        let (header, header_length) = self.transport_header();
        let transport_length = header_length.saturating_add(self.payload_length());
        rest = self.write_ip(rest, transport_length);
        let Some((segment, padding)) = rest.split_at_mut_checked(transport_length) else {
            return;
        };
        padding.fill(0);
        let data = put(segment, header.get(..header_length).unwrap_or_default());
        if let Some(payload) = &self.payload {
            payload.contents.fill(payload.offset, data);
        }
        let sum = transport_sum(&self.addresses, self.protocol(), segment);
        let (sum, at) = match self.transport {
            Transport::Tcp(_) => (sum, TCP_CHECKSUM_OFFSET),
            Transport::Udp | Transport::Fragment(_) => (udp_checksum(sum), UDP_CHECKSUM_OFFSET),
        };
        if let Some(place) = segment.get_mut(at..) {
            put(place, &sum.to_be_bytes());
        }
    }

    /// Returns the octets of the fragment header that is not part of the IP header.
    fn fragment_header(&self) -> usize {
        match self.ip_length() {
            IPV4_HEADER_MIN => 0,
            _ => FRAGMENT_HEADER_LENGTH,
        }
    }

    /// Writes a fragment from its IP header on.
    fn write_fragment(&self, piece: &Piece, octets: &mut [u8]) {
        let more = piece.has_more();
        let [.., a, b, c, d] = piece.number.to_be_bytes();
        let rest = match self.fragment_header() {
            0 => {
                let flags = if more { MORE_FRAGMENTS } else { 0 };
                let [high, low] = ((piece.offset() / 8) | flags).to_be_bytes();
                self.write_header(octets, piece.length(), [c, d, high, low])
            }
            length => {
                let payload = length.saturating_add(piece.length());
                let rest = self.write_ip6(octets, payload, FRAGMENT_HEADER);
                // The offset is a multiple of 8, whose last bits are flags.
                let [high, low] = (piece.offset() | u16::from(more)).to_be_bytes();
                put(rest, &[IpProtocol::UDP.0, 0, high, low, a, b, c, d])
            }
        };
        let Some((data, padding)) = rest.split_at_mut_checked(piece.length()) else {
            return;
        };
        padding.fill(0);
        data.fill(0);
        let data = match piece.index {
            0 => put(data, &self.datagram_header(piece)),
            _ => data,
        };
        put(data, &piece.shape.mark(piece.number, piece.index));
    }

    /// Returns the UDP header of a datagram in fragments.
    fn datagram_header(&self, piece: &Piece) -> [u8; UDP_HEADER_LENGTH] {
        let length = piece.datagram_length();
        let [a, b] = self.addresses.source_port.to_be_bytes();
        let [c, d] = self.addresses.destination_port.to_be_bytes();
        let [e, f] = limited(length).to_be_bytes();
        let mut sum = pseudo_sum(&self.addresses, IpProtocol::UDP, length);
        sum.add(&[a, b, c, d, e, f, 0, 0]);
        for index in 0..piece.shape.count {
            // The other octets are zero.
            sum.add(&piece.shape.mark(piece.number, index));
        }
        let [g, h] = udp_checksum(sum.finish()).to_be_bytes();
        [a, b, c, d, e, f, g, h]
    }

    /// Writes the IP header. Returns the octets after it.
    fn write_ip<'a>(&self, octets: &'a mut [u8], payload: usize) -> &'a mut [u8] {
        match self.ip_length() {
            // Don't fragment: such a packet needs no unique identification (RFC 6864, section 4.1).
            IPV4_HEADER_MIN => self.write_header(octets, payload, [0, 0, 0x40, 0]),
            _ => self.write_ip6(octets, payload, self.protocol().0),
        }
    }

    /// Writes an IPv6 header. Returns the octets after it.
    fn write_ip6<'a>(&self, octets: &'a mut [u8], payload: usize, next: u8) -> &'a mut [u8] {
        let [high, low] = limited(payload).to_be_bytes();
        let rest = put(octets, &[0x60, 0, 0, 0, high, low, next, TTL]);
        let rest = put(rest, &self.addresses.source.octets());
        put(rest, &self.addresses.destination.octets())
    }

    /// Writes an IPv4 header with this identification and fragment field. Returns the octets after it.
    fn write_header<'a>(
        &self,
        octets: &'a mut [u8],
        payload: usize,
        [i, j, k, l]: [u8; 4],
    ) -> &'a mut [u8] {
        let IpProtocol(protocol) = self.protocol();
        let Addresses {
            source,
            destination,
            ..
        } = self.addresses;
        let mapped = source.to_ipv4_mapped().zip(destination.to_ipv4_mapped());
        let Some((source, destination)) = mapped else {
            return self.write_ip6(octets, payload, protocol);
        };
        let length = limited(payload.saturating_add(IPV4_HEADER_MIN));
        let [high, low] = length.to_be_bytes();
        let words = [[0x45, 0, high, low], [i, j, k, l], [TTL, protocol, 0, 0]];
        // Sums of numbers: octets that were just written one by one would have to be waited for.
        let mut sum = Checksum::new();
        for word in words {
            sum.add_u32(u32::from_be_bytes(word));
        }
        sum.add_u32(source.to_bits());
        sum.add_u32(destination.to_bits());
        let [x, y] = sum.finish().to_be_bytes();
        let [first, second, [ttl, protocol, ..]] = words;
        let rest = put(put(octets, &first), &second);
        let rest = put(rest, &[ttl, protocol, x, y]);
        put(put(rest, &source.octets()), &destination.octets())
    }
}

/// Returns a length. Frames have less than 2^16 octets.
fn limited(length: usize) -> u16 {
    u16::try_from(length).unwrap_or(u16::MAX)
}

/// Returns the checksum of a segment or datagram with its pseudo header (RFC 9293, section 3.1; RFC 768; RFC 8200, section 8.1). It is
/// zero over octets that include a correct checksum.
fn transport_sum(addresses: &Addresses, protocol: IpProtocol, octets: &[u8]) -> u16 {
    let mut sum = pseudo_sum(addresses, protocol, octets.len());
    sum.add(octets);
    sum.finish()
}

/// Returns the sum of the pseudo header of so many octets.
fn pseudo_sum(addresses: &Addresses, protocol: IpProtocol, length: usize) -> Checksum {
    let mut sum = Checksum::new();
    for address in [addresses.source, addresses.destination] {
        match address.to_ipv4_mapped() {
            Some(address) => sum.add_u32(address.to_bits()),
            None => sum.add(&address.octets()),
        }
    }
    sum.add_u32(protocol.0.into());
    sum.add_u32(u32::try_from(length).unwrap_or(u32::MAX));
    sum
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrived<'a> {
    pub(crate) addresses: Addresses,
    pub(crate) content: Content<'a>,
}

/// Contents of a packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content<'a> {
    /// A segment and its data.
    Tcp(Segment, &'a [u8]),
    /// The data of a datagram.
    Udp(&'a [u8]),
}

/// Why a frame is not of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// It is neither TCP nor UDP, or a fragment.
    Foreign,
    /// A length, a checksum or an option is wrong.
    Damaged,
}

impl From<Damage> for Rejected {
    fn from(_: Damage) -> Self {
        Self::Damaged
    }
}

/// Reads a frame, and verifies its checksums.
///
/// # Errors
/// [`Rejected`].
pub(crate) fn read(frame: &[u8]) -> Result<Arrived<'_>, Rejected> {
    let parsed = parse(frame)?;
    let ip = parsed.ip().ok_or(Rejected::Foreign)?;
    if ip.fragment != Fragment::Whole {
        return Err(Rejected::Foreign);
    }
    let (source, destination) = match (parsed.ipv4(frame), parsed.ipv6(frame)) {
        (Some(header), _) => {
            if !header.checksum_is_right() {
                return Err(Rejected::Damaged);
            }
            let mapped = Ipv4Addr::to_ipv6_mapped;
            (mapped(&header.source()), mapped(&header.destination()))
        }
        (None, Some(header)) => (header.source(), header.destination()),
        (None, None) => return Err(Rejected::Foreign),
    };
    let (start, end) = (usize::from(ip.transport_offset), usize::from(ip.end));
    let octets = frame.get(start..end).ok_or(Rejected::Damaged)?;
    let of_ports = |source_port, destination_port| Addresses {
        source,
        destination,
        source_port,
        destination_port,
    };
    match ip.protocol {
        IpProtocol::TCP => {
            let (header, data) = TcpHeader::split(octets)?;
            let addresses = of_ports(header.source_port(), header.destination_port());
            if transport_sum(&addresses, IpProtocol::TCP, octets) != 0 {
                return Err(Rejected::Damaged);
            }
            let segment = Segment::read(&header).ok_or(Rejected::Damaged)?;
            Ok(Arrived {
                addresses,
                content: Content::Tcp(segment, data),
            })
        }
        IpProtocol::UDP => {
            let (header, rest) = UdpHeader::split(octets)?;
            let data = header.payload(rest)?;
            let addresses = of_ports(header.source_port(), header.destination_port());
            let datagram = octets.get(..usize::from(header.length()));
            let datagram = datagram.ok_or(Rejected::Damaged)?;
            // Zero means that the sender computed none, which only IPv4 permits.
            let has_none = header.checksum() == 0 && source.to_ipv4_mapped().is_some();
            if !has_none && transport_sum(&addresses, IpProtocol::UDP, datagram) != 0 {
                return Err(Rejected::Damaged);
            }
            Ok(Arrived {
                addresses,
                content: Content::Udp(data),
            })
        }
        _ => Err(Rejected::Foreign),
    }
}

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::super::tcp::ACK;
    use super::*;

    fn packet(is_ipv4: bool, is_tcp: bool, number: u64, length: u16) -> Packet {
        let address = |last: u8| {
            if is_ipv4 {
                Ipv4Addr::new(198, 18, 0, last).to_ipv6_mapped()
            } else {
                Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, u16::from(last))
            }
        };
        Packet {
            addresses: Addresses {
                source: address(1),
                destination: address(2),
                source_port: 1024,
                destination_port: 80,
            },
            transport: if is_tcp {
                Transport::Tcp(Segment {
                    sequence: 5,
                    flags: ACK,
                    ..Segment::default()
                })
            } else {
                Transport::Udp
            },
            payload: (length > 0).then(|| Payload {
                contents: Contents::of_server(1, number),
                offset: 3,
                length,
            }),
        }
    }

    const LINK: Link = Link {
        source: MacAddress([2, 0, 0, 0, 0, 1]),
        destination: MacAddress([2, 0, 0, 0, 0, 2]),
    };

    fn written(packet: &Packet) -> Vec<u8> {
        let mut frame = vec![0xee; usize::from(packet.length())];
        packet.write(&LINK, &mut frame);
        frame
    }

    proptest! {
        #[test]
        fn written_packets_are_read_back(
            is_ipv4: bool,
            is_tcp: bool,
            number in any::<u64>(),
            length in 0u16..1400,
            at in any::<prop::sample::Index>(),
            change in 1u8..,
        ) {
            let packet = packet(is_ipv4, is_tcp, number, length);
            let mut frame = written(&packet);
            prop_assert!(frame.len() >= FRAME_MIN);
            let arrived = read(&frame).unwrap();
            prop_assert_eq!(arrived.addresses, packet.addresses);
            let mut expected = vec![0; usize::from(length)];
            Contents::of_server(1, number).fill(3, &mut expected);
            match (arrived.content, packet.transport) {
                (Content::Tcp(segment, data), Transport::Tcp(sent)) => {
                    prop_assert_eq!(segment, sent);
                    prop_assert_eq!(data, &expected[..]);
                }
                (Content::Udp(data), Transport::Udp) => prop_assert_eq!(data, &expected[..]),
                other => prop_assert!(false, "{:?}", other),
            }
            // An octet of the transport header or the data that changes is noticed.
            let start = ETHERNET_HEADER_LENGTH + packet.ip_length();
            let end = start + packet.transport_header().1 + usize::from(length);
            frame[start + at.index(end - start)] ^= change;
            if let Ok(arrived) = read(&frame) {
                // The checksum of UDP over IPv4 may become zero, which means none.
                prop_assert!(!is_tcp && is_ipv4, "{:?}", arrived);
            }
        }

        #[test]
        fn others_read_the_same(is_ipv4: bool, is_tcp: bool, number in any::<u64>(), length in 1u16..1400) {
            let packet = packet(is_ipv4, is_tcp, number, length);
            let frame = written(&packet);
            let sliced = SlicedPacket::from_ethernet(&frame).unwrap();
            match sliced.transport {
                Some(TransportSlice::Tcp(tcp)) => {
                    prop_assert!(is_tcp);
                    prop_assert_eq!((tcp.source_port(), tcp.destination_port()), (1024, 80));
                    prop_assert_eq!(tcp.payload().len(), usize::from(length));
                }
                Some(TransportSlice::Udp(udp)) => {
                    prop_assert!(!is_tcp);
                    prop_assert_eq!((udp.source_port(), udp.destination_port()), (1024, 80));
                    prop_assert_eq!(udp.payload().len(), usize::from(length));
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }

        #[test]
        fn any_frame_is_read_or_rejected(frame in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&frame);
        }
    }

    #[test]
    fn fragments_are_those_of_one_datagram() {
        for is_ipv4 in [true, false] {
            let shape = super::super::piece::Shape {
                seed: 9,
                count: 4,
                octets: 40,
            };
            let mut datagram = Vec::new();
            let addresses = packet(is_ipv4, false, 1, 0).addresses;
            for index in 0..4 {
                let piece = Piece {
                    shape,
                    number: 0x0102_0304,
                    index,
                };
                let fragment = Packet {
                    addresses,
                    transport: Transport::Fragment(piece),
                    payload: None,
                };
                let frame = written(&fragment);
                let parsed = parse(&frame).unwrap();
                let ip = parsed.ip().unwrap();
                let expected = match index {
                    0 => Fragment::First,
                    _ => Fragment::Later,
                };
                assert_eq!((ip.fragment, ip.protocol), (expected, IpProtocol::UDP));
                let headers = usize::from(ip.transport_offset);
                let field = match is_ipv4 {
                    true => u16::from_be_bytes([frame[20], frame[21]]) << 3,
                    false => u16::from_be_bytes([frame[56], frame[57]]) & !7,
                };
                assert_eq!(usize::from(field), datagram.len(), "the offset");
                let has_more = match is_ipv4 {
                    true => frame[20] & 0x20 != 0,
                    false => frame[57] & 1 != 0,
                };
                assert_eq!(has_more, index < 3);
                let identification = match is_ipv4 {
                    true => &frame[18..20],
                    false => &frame[60..62],
                };
                assert_eq!(identification, [3, 4]);
                assert!(
                    parsed
                        .ipv4(&frame)
                        .is_none_or(|header| header.checksum_is_right())
                );
                datagram.extend(&frame[headers..usize::from(ip.end)]);
                assert_eq!(read(&frame), Err(Rejected::Foreign));
            }
            assert_eq!(datagram.len(), 8 + 4 * 40);
            assert_eq!(datagram[..6], [4, 0, 0, 80, 0, 168]);
            assert_eq!(transport_sum(&addresses, IpProtocol::UDP, &datagram), 0);
        }
    }

    #[test]
    fn frames_without_conversations_are_foreign() {
        let mut frame = written(&packet(true, true, 1, 100));
        frame[12] = 0x88;
        assert_eq!(read(&frame), Err(Rejected::Foreign));
        assert_eq!(read(&frame[..10]), Err(Rejected::Damaged));
    }
}
