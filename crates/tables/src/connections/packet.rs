// SPDX-License-Identifier: Apache-2.0
//! Parser of the parts of a packet that the tracker uses.

use quietwire_packet::{
    Fragment, ICMP_HEADER_LENGTH, IPV4_DESTINATION_AT, IPV4_HEADER_MIN, IPV4_SOURCE_AT,
    IPV6_HEADER_LENGTH, IpProtocol, TCP_HEADER_MIN, UDP_HEADER_LENGTH, be16_at, be32_at,
    walk_ipv6_extensions,
};

use super::key::{Addresses, Echo, Key, Sorted};
use super::names::InvalidReason;
use super::tcp::{ACK, FIN, RST, SYN, Segment};
use crate::filter::after_tags;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Octets of an ICMP echo's header, and of the header of an ICMP error in front of the packet that it is about.
const ICMP_LENGTH: usize = 2 * ICMP_HEADER_LENGTH;
/// Octets of the inner packet's payload that an ICMP error has at least (RFC 792).
const INNER_MIN: usize = 8;
/// Offset of the payload length in an IPv6 header, of the next header, and of the addresses.
const PAYLOAD_LENGTH_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
const ADDRESSES_AT: usize = 8;
/// Offset of the header length in a TCP header, and of the flags.
const TCP_LENGTH_AT: usize = 12;
const TCP_FLAGS_AT: usize = 13;
/// Offset of the IP header in a frame without tags.
const PLAIN_IP_AT: usize = 14;
/// Octets of a frame without tags up to the payload of a UDP datagram in an IPv4 packet without options.
const PLAIN_HEADERS: usize = PLAIN_IP_AT + IPV4_HEADER_MIN + UDP_HEADER_LENGTH;
/// Offsets of address and port of both endpoints in such a frame.
const PLAIN_SOURCE: (usize, usize) = (PLAIN_IP_AT + IPV4_SOURCE_AT, PLAIN_PORTS_AT);
const PLAIN_DESTINATION: (usize, usize) = (PLAIN_IP_AT + IPV4_DESTINATION_AT, PLAIN_PORTS_AT + 2);
const PLAIN_PORTS_AT: usize = PLAIN_IP_AT + IPV4_HEADER_MIN;
/// EtherType and first octet of such an IPv4 packet, and where they are.
const PLAIN_FIRST: u32 = 0x0800_4500;
const PLAIN_FIRST_AT: usize = 12;
/// Bits of the word of flags and offset that whole packets may have too (RFC 791): reserved, and 'do not fragment'.
const OF_WHOLE_PACKETS: u16 = 0xc000;

/// Kind of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Not tracked.
    Untracked,
    /// Invalid for any connections.
    Invalid(InvalidReason),
    /// A TCP segment.
    Tcp(Segment),
    /// A UDP or UDP-Lite datagram.
    Udp,
    /// An ICMP echo request.
    EchoRequest,
    /// An ICMP echo reply.
    EchoReply,
    /// Another IP protocol.
    Other,
    /// An ICMP error. The key is that of the packet that it is about, with the TCP sequence number of that packet.
    Error(Option<u32>),
    /// A later fragment of a datagram whose first one is known. Of TCP, with the sequence number behind it.
    Later(Option<u32>),
}

/// Part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The whole datagram.
    Whole,
    /// The first fragment.
    First,
    /// A later fragment.
    Later,
}

/// A packet as the tracker uses it.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) is_from_higher: bool,
    pub(super) part: Part,
    /// Octets of the IP packet.
    pub(super) octets: u32,
}

/// Both directions of a flow, for tables other than that of the tracker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey(Key);

/// Payload of an IP packet: the available octets, and its length by the IP header.
#[derive(Clone, Copy)]
struct Payload<'a> {
    addresses: Addresses,
    protocol: u8,
    octets: &'a [u8],
    length: usize,
    is_first_fragment: bool,
}

impl Packet {
    /// A packet that is not tracked.
    pub const UNTRACKED: Self = Self {
        key: Key::NONE,
        kind: Kind::Untracked,
        is_from_higher: false,
        part: Part::Whole,
        octets: 0,
    };

    /// Parses the packet in a frame, behind up to two tags. `octets` are those of the first buffer; `length` is that of the frame.
    #[inline]
    #[must_use]
    pub fn of_frame(octets: &[u8], length: usize, zone: u16) -> Self {
        let mut packet = Self::UNTRACKED;
        packet.parse(octets, length, zone);
        packet
    }

    /// Becomes the packet in a frame, as [`Self::of_frame`] returns it. Unlike a returned packet, it is written once: a copy would wait for the
    /// writes of its fields.
    #[inline(always)]
    pub fn parse(&mut self, octets: &[u8], length: usize, zone: u16) {
        match Self::plain(octets, length, zone) {
            Some(packet) => *self = packet,
            None => self.parse_any(octets, length, zone),
        }
    }

    /// Parses most frames: without tags, with a UDP datagram or a TCP segment in an IPv4 packet without options, which is no fragment.
    /// `None` for all others, and for packets from an endpoint to itself. Its result is that of [`Self::parse_any`].
    #[inline(always)]
    fn plain(octets: &[u8], length: usize, zone: u16) -> Option<Self> {
        let headers = octets.first_chunk::<PLAIN_HEADERS>()?;
        // EtherType, version, header length, and the type of service, which may be any.
        let first = be32_at(headers, PLAIN_FIRST_AT)? & !0xff;
        let total = usize::from(be16_at(headers, PLAIN_IP_AT + 2)?);
        let fragment = be16_at(headers, PLAIN_IP_AT + 6)? & !OF_WHOLE_PACKETS;
        let protocol = headers[PLAIN_IP_AT + 9];
        let length = length.checked_sub(PLAIN_IP_AT)?;
        let is_plain = (first == PLAIN_FIRST)
            & (fragment == 0)
            & (total <= length)
            & (total >= IPV4_HEADER_MIN + UDP_HEADER_LENGTH);
        let from = endpoint_at(headers, PLAIN_SOURCE)?;
        let to = endpoint_at(headers, PLAIN_DESTINATION)?;
        if !is_plain || from == to {
            return None;
        }
        let kind = match protocol {
            17 => Kind::Udp,
            6 => {
                let length = total.saturating_sub(IPV4_HEADER_MIN);
                let rest = limited(octets.get(PLAIN_PORTS_AT..), length).ok()?;
                Kind::Tcp(segment(rest, length)?)
            }
            _ => return None,
        };
        let Sorted {
            key,
            is_from_higher,
        } = Key::of_ipv4((from, to), protocol, zone);
        Some(Self {
            key,
            kind,
            is_from_higher,
            part: Part::Whole,
            octets: u32::try_from(length).unwrap_or(u32::MAX),
        })
    }

    /// Becomes the packet in a frame that [`Self::plain`] does not parse.
    #[inline(never)]
    pub(super) fn parse_any(&mut self, octets: &[u8], length: usize, zone: u16) {
        let rest = after_tags(octets).map_or(&[][..], |(_, rest)| rest);
        *self = match rest.split_first_chunk::<2>() {
            Some((ethertype, packet)) => {
                let before = octets.len().saturating_sub(packet.len());
                let length = length.saturating_sub(before);
                Self::read(u16::from_be_bytes(*ethertype), packet, length, zone)
            }
            None => Self::UNTRACKED,
        };
    }

    /// Parses a packet of this EtherType from its IP header on. `octets` may end before the packet does (further buffers); `length` is the
    /// number of octets in the frame, padding included.
    #[inline]
    #[must_use]
    pub fn read(ethertype: u16, octets: &[u8], length: usize, zone: u16) -> Self {
        let read = match ethertype {
            IPV4 => read_ipv4(octets, length),
            IPV6 => read_ipv6(octets, length),
            _ => return Self::UNTRACKED,
        };
        let part = match &read {
            Ok(payload) if payload.is_first_fragment => Part::First,
            Err(InvalidReason::Fragment) => Part::Later,
            _ => Part::Whole,
        };
        let (sorted, kind) = match read.and_then(|payload| payload.classify(zone)) {
            Ok(classified) => classified,
            Err(reason) => (Sorted::NONE, Kind::Invalid(reason)),
        };
        let is_between_two = !sorted.key.has_one_endpoint();
        let kind = match kind {
            Kind::Untracked | Kind::Invalid(_) => kind,
            _ if is_between_two => kind,
            _ => Kind::Invalid(InvalidReason::SameEndpoint),
        };
        Self {
            key: sorted.key,
            kind,
            is_from_higher: sorted.is_from_higher,
            part,
            octets: u32::try_from(length).unwrap_or(u32::MAX),
        }
    }

    /// Returns true for a fragment of a datagram, which requires [`super::Tracker::join`].
    #[inline(always)]
    #[must_use]
    pub const fn is_fragment(&self) -> bool {
        !matches!(self.part, Part::Whole)
    }

    /// Returns the flow of the packet. `None` for fragments, ICMP errors, packets that are not tracked, and those that are invalid whatever
    /// the connections.
    #[inline]
    #[must_use]
    pub const fn flow(&self) -> Option<FlowKey> {
        match self.kind {
            Kind::Untracked | Kind::Invalid(_) | Kind::Error(_) | Kind::Later(_) => None,
            Kind::Tcp(_) | Kind::Udp | Kind::EchoRequest | Kind::EchoReply | Kind::Other => {
                match self.part {
                    Part::Whole => Some(FlowKey(self.key)),
                    Part::First | Part::Later => None,
                }
            }
        }
    }

    /// Returns true for the first segment of a TCP connection: a SYN without acknowledgement.
    #[inline]
    #[must_use]
    pub const fn is_opening(&self) -> bool {
        match self.kind {
            Kind::Tcp(segment) => segment.flags & (FIN | SYN | RST | ACK) == SYN,
            _ => false,
        }
    }
}

/// Returns address and port at these offsets in the headers of a plain frame, as [`Key::of_ipv4`] takes them.
#[inline(always)]
fn endpoint_at(headers: &[u8; PLAIN_HEADERS], (address, port): (usize, usize)) -> Option<u64> {
    let (address, port) = (be32_at(headers, address)?, be16_at(headers, port)?);
    Some(u64::from(address) << 16 | u64::from(port))
}

/// Returns the data of the TCP segment or UDP datagram in a frame. `octets` are those of the first buffer; `length` is that of the frame. `None`
/// for fragments, other packets, and packets that end in a further buffer.
pub(super) fn data_of(octets: &[u8], length: usize) -> Option<&[u8]> {
    let (ethertype, packet) = after_tags(octets)?.1.split_first_chunk::<2>()?;
    let before = octets.len().saturating_sub(packet.len());
    let length = length.saturating_sub(before);
    let payload = match u16::from_be_bytes(*ethertype) {
        IPV4 => read_ipv4(packet, length),
        IPV6 => read_ipv6(packet, length),
        _ => return None,
    };
    let payload = payload.ok().filter(|payload| !payload.is_first_fragment)?;
    let header = match payload.protocol {
        6 => usize::from(*payload.octets.get(TCP_LENGTH_AT)? >> 4).saturating_mul(4),
        17 => UDP_HEADER_LENGTH,
        _ => return None,
    };
    let is_whole = payload.octets.len() == payload.length;
    payload.octets.get(header..).filter(|_| is_whole)
}

#[inline]
fn read_ipv4(octets: &[u8], length: usize) -> Result<Payload<'_>, InvalidReason> {
    let header = octets
        .first_chunk::<IPV4_HEADER_MIN>()
        .ok_or(InvalidReason::Malformed)?;
    let [first, _, a, b, _, _, c, d, _, protocol, ..] = *header;
    let header_length = usize::from(first & 0x0f).saturating_mul(4);
    let total = usize::from(u16::from_be_bytes([a, b]));
    if first >> 4 != 4 || header_length < IPV4_HEADER_MIN || total < header_length || total > length
    {
        return Err(InvalidReason::Malformed);
    }
    let fragment = u16::from_be_bytes([c, d]);
    if fragment & 0x1fff != 0 {
        return Err(InvalidReason::Fragment);
    }
    let payload = total.saturating_sub(header_length);
    let [.., e, f, g, h, i, j, k, l] = *header;
    Ok(Payload {
        addresses: Addresses::V4(
            u32::from_be_bytes([e, f, g, h]),
            u32::from_be_bytes([i, j, k, l]),
        ),
        protocol,
        octets: limited(octets.get(header_length..), payload)?,
        length: payload,
        is_first_fragment: fragment & 0x2000 != 0,
    })
}

/// Returns the octets up to a length, without padding behind it.
#[inline]
fn limited(octets: Option<&[u8]>, length: usize) -> Result<&[u8], InvalidReason> {
    let octets = octets.ok_or(InvalidReason::Malformed)?;
    Ok(octets.get(..length).unwrap_or(octets))
}

#[inline]
fn read_ipv6(octets: &[u8], length: usize) -> Result<Payload<'_>, InvalidReason> {
    let (header, rest) = octets
        .split_first_chunk::<IPV6_HEADER_LENGTH>()
        .ok_or(InvalidReason::Malformed)?;
    let payload = usize::from(u16::from_be_bytes([
        header[PAYLOAD_LENGTH_AT],
        header[PAYLOAD_LENGTH_AT + 1],
    ]));
    if header[0] >> 4 != 6 || IPV6_HEADER_LENGTH.saturating_add(payload) > length {
        return Err(InvalidReason::Malformed);
    }
    let rest = limited(Some(rest), payload)?;
    let walked = walk_ipv6_extensions(IpProtocol(header[NEXT_HEADER_AT]), rest)
        .map_err(|_| InvalidReason::Malformed)?;
    if walked.fragment == Fragment::Later {
        return Err(InvalidReason::Fragment);
    }
    Ok(Payload {
        addresses: ipv6_addresses(header),
        protocol: walked.protocol.0,
        octets: rest.get(walked.length..).unwrap_or_default(),
        length: payload.saturating_sub(walked.length),
        is_first_fragment: walked.fragment == Fragment::First,
    })
}

#[inline]
fn ipv6_addresses(header: &[u8; IPV6_HEADER_LENGTH]) -> Addresses {
    let mut both = [[0; 16]; 2];
    let (pairs, _) = header[ADDRESSES_AT..].as_chunks::<16>();
    for (to, from) in both.iter_mut().zip(pairs) {
        *to = *from;
    }
    Addresses::V6(u128::from_be_bytes(both[0]), u128::from_be_bytes(both[1]))
}

/// Ports of protocols that begin with source and destination port.
#[inline]
fn ports(protocol: u8, octets: &[u8]) -> Option<(u16, u16)> {
    match protocol {
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        6 | 17 | 33 | 132 | 136 => Some((be16_at(octets, 0)?, be16_at(octets, 2)?)),
        _ => Some((0, 0)),
    }
}

type Classified = Result<(Sorted, Kind), InvalidReason>;

impl Payload<'_> {
    const fn is_icmp(&self) -> bool {
        let icmp = match self.addresses {
            Addresses::V4(..) => IpProtocol::ICMP,
            Addresses::V6(..) => IpProtocol::ICMPV6,
        };
        self.protocol == icmp.0
    }

    fn sort(&self, ports: (u16, u16), zone: u16, echo: Echo) -> Sorted {
        Key::sort(self.addresses, ports, self.protocol, zone, echo)
    }

    #[inline]
    fn classify(&self, zone: u16) -> Classified {
        if self.is_icmp() {
            return self.classify_icmp(zone);
        }
        let kind = match self.protocol {
            6 => {
                let segment = segment(self.octets, self.length);
                Kind::Tcp(segment.ok_or(InvalidReason::Malformed)?)
            }
            17 | 136 if self.length >= UDP_HEADER_LENGTH => Kind::Udp,
            17 | 136 => return Err(InvalidReason::Malformed),
            _ => Kind::Other,
        };
        let ports = ports(self.protocol, self.octets).ok_or(InvalidReason::Malformed)?;
        Ok((self.sort(ports, zone, Echo::None), kind))
    }

    fn classify_icmp(&self, zone: u16) -> Classified {
        let [kind, code, ..] = *self
            .octets
            .first_chunk::<ICMP_LENGTH>()
            .ok_or(InvalidReason::Malformed)?;
        let identifier =
            be16_at(self.octets, ICMP_HEADER_LENGTH).ok_or(InvalidReason::Malformed)?;
        let echo = |echo, kind| {
            let ports = (identifier, identifier);
            Ok((self.sort(ports, zone, echo), kind))
        };
        let is_v4 = matches!(self.addresses, Addresses::V4(..));
        match (is_v4, kind, code) {
            (true, 8, 0) | (false, 128, 0) => echo(Echo::Request, Kind::EchoRequest),
            (true, 0, 0) | (false, 129, 0) => echo(Echo::Reply, Kind::EchoReply),
            (true, 3 | 11 | 12, _) | (false, 1..=4, _) => {
                self.classify_error(zone).ok_or(InvalidReason::Unrelated)
            }
            // Multicast listeners (RFC 2710, RFC 3810), neighbours (RFC 4861), multicast routers (RFC 4286).
            (false, 130..=137 | 143 | 151..=153, _) => Ok((Sorted::NONE, Kind::Untracked)),
            _ => Err(InvalidReason::IcmpType),
        }
    }

    /// Classifies an ICMP error by the packet that it is about, which may be truncated.
    fn classify_error(&self, zone: u16) -> Option<(Sorted, Kind)> {
        let octets = self.octets.get(ICMP_LENGTH..)?;
        let inner = match self.addresses {
            Addresses::V4(..) => inner_ipv4(octets),
            Addresses::V6(..) => inner_ipv6(octets),
        }?;
        let is_to_sender = match (self.addresses, inner.addresses) {
            (Addresses::V4(_, to), Addresses::V4(from, _)) => to == from,
            (Addresses::V6(_, to), Addresses::V6(from, _)) => to == from,
            _ => false,
        };
        if !is_to_sender || inner.octets.len() < INNER_MIN {
            return None;
        }
        let (echo, ports) = if inner.is_icmp() {
            let identifier = be16_at(inner.octets, ICMP_HEADER_LENGTH)?;
            (inner.echo()?, (identifier, identifier))
        } else {
            (Echo::None, ports(inner.protocol, inner.octets)?)
        };
        let sequence = if inner.protocol == IpProtocol::TCP.0 {
            Some(be32_at(inner.octets, 4)?)
        } else {
            None
        };
        Some((inner.sort(ports, zone, echo), Kind::Error(sequence)))
    }

    /// Returns which echo the payload of an ICMP packet is; `None` for other messages, about which no errors are sent or tracked.
    fn echo(&self) -> Option<Echo> {
        let is_v4 = matches!(self.addresses, Addresses::V4(..));
        match (is_v4, self.octets.first()?) {
            (true, 8) | (false, 128) => Some(Echo::Request),
            (true, 0) | (false, 129) => Some(Echo::Reply),
            _ => None,
        }
    }
}

fn inner_ipv4(octets: &[u8]) -> Option<Payload<'_>> {
    // The packet may be longer than its part in the error.
    read_ipv4(octets, usize::MAX).ok()
}

fn inner_ipv6(octets: &[u8]) -> Option<Payload<'_>> {
    read_ipv6(octets, usize::MAX).ok()
}

/// Parses a TCP segment. `octets` may end before it does; `length` is its length.
#[inline]
fn segment(octets: &[u8], length: usize) -> Option<Segment> {
    let header = octets.first_chunk::<TCP_HEADER_MIN>()?;
    let header_length = usize::from(header[TCP_LENGTH_AT] >> 4).saturating_mul(4);
    let options = octets.get(TCP_HEADER_MIN..header_length)?;
    let data = u32::try_from(length.checked_sub(header_length)?).ok()?;
    let flags = header[TCP_FLAGS_AT];
    let scale = if flags & SYN == 0 {
        None
    } else {
        window_scale(options)
    };
    Some(Segment {
        sequence: be32_at(header, 4)?,
        acknowledgement: be32_at(header, 8)?,
        window: be16_at(header, 14)?,
        flags,
        scale,
        data,
    })
}

/// Returns the shift of the window scale option of a SYN (RFC 7323, section 2.2), at most 14 (section 2.3).
fn window_scale(mut options: &[u8]) -> Option<u8> {
    // Each step consumes an octet of at most 40.
    while let [kind, rest @ ..] = options {
        options = match (kind, rest) {
            (0, _) => return None,
            (1, rest) => rest,
            (3, [3, shift, ..]) => return Some((*shift).min(SCALE_MAX)),
            (_, [length, ..]) if *length >= 2 => options.get(usize::from(*length)..)?,
            _ => return None,
        };
    }
    None
}

const SCALE_MAX: u8 = 14;
