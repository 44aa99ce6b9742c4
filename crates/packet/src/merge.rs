// SPDX-License-Identifier: Apache-2.0
//! Merging of successive TCP segments or UDP datagrams of a flow into one frame that [`crate::LargeFrame`] cuts into exactly these.
//!
//! Each condition keeps the meaning of the segments: sequence numbers without a gap (RFC 9293, section 3.4), the same congestion marks
//! (RFC 3168, section 5), the same TCP options and with them time stamps (RFC 7323), identifications of IPv4 that count up (RFC 6864).
//! Datagrams keep their boundaries: all but the last have the same length.

use crate::ethernet::split_tags;
use crate::segment::{CWR, FIN, PSH, RST, SYN, URG, ipv4, ipv6, pseudo_sum, put};
use crate::{
    EtherType, EthernetHeader, IPV4_HEADER_MIN, IPV6_HEADER_LENGTH, IpProtocol,
    SEGMENT_HEADERS_MAX, TCP_CHECKSUM_OFFSET, TCP_HEADER_MIN, UDP_CHECKSUM_OFFSET,
    UDP_HEADER_LENGTH, be16, be32, checksum,
};

const ACK: u8 = 0x10;
/// Offsets in the TCP header: the sequence number, and the octet of the flags.
const SEQUENCE: usize = 4;
const FLAGS: usize = 13;
/// Offset of the length in the UDP header.
const UDP_LENGTH: usize = 4;
/// Offset of the header checksum of IPv4.
const IPV4_CHECKSUM: usize = 10;
/// Longest packet of IPv4 and longest payload of IPv6, octets: their length fields have 16 bits.
const LENGTH_MAX: usize = 65_535;

/// A whole, unfragmented TCP segment or UDP datagram over IPv4 without options or IPv6 without extension headers.
#[derive(Clone, Copy, Debug)]
pub struct DataSegment<'frame> {
    /// The frame without padding.
    octets: &'frame [u8],
    /// Offsets of IP, of TCP or UDP, and of the data.
    network: usize,
    transport: usize,
    data: usize,
    is_ipv4: bool,
    is_tcp: bool,
    is_padded: bool,
    /// True if the checksum of TCP or UDP is known to be correct.
    is_verified: bool,
}

impl<'frame> DataSegment<'frame> {
    /// Parses a frame in one piece. Returns `None` for other frames, and for headers longer than [`SEGMENT_HEADERS_MAX`].
    #[must_use]
    pub fn read(frame: &'frame [u8]) -> Option<Self> {
        let (ethernet, rest) = EthernetHeader::split(frame).ok()?;
        let untagged = split_tags(ethernet.ethertype(), rest).ok()?;
        let network = frame.len().saturating_sub(untagged.payload.len());
        let (is_ipv4, usual, (protocol, header_length, packet)) = match untagged.ethertype {
            EtherType::IPV4 => (true, IPV4_HEADER_MIN, ipv4(untagged.payload)?),
            EtherType::IPV6 => (false, IPV6_HEADER_LENGTH, ipv6(untagged.payload)?),
            _ => return None,
        };
        if header_length != usual {
            return None;
        }
        let transport = network.saturating_add(header_length);
        let octets = frame.get(..network.saturating_add(packet))?;
        let header = octets.get(transport..)?;
        let length = match protocol {
            IpProtocol::TCP => tcp_header_length(header)?,
            IpProtocol::UDP => udp_header_length(header)?,
            _ => return None,
        };
        let data = transport.saturating_add(length);
        let fits = data <= octets.len().min(SEGMENT_HEADERS_MAX);
        fits.then_some(Self {
            octets,
            network,
            transport,
            data,
            is_ipv4,
            is_tcp: protocol == IpProtocol::TCP,
            is_padded: octets.len() < frame.len(),
            is_verified: false,
        })
    }

    /// Returns the segment with the knowledge whether a network card has verified the checksum of TCP or UDP, so that no sum over the data is
    /// computed.
    #[must_use]
    pub const fn with_verified_checksum(self, is_verified: bool) -> Self {
        Self {
            is_verified,
            ..self
        }
    }

    /// Returns true for IPv4, false for IPv6.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Returns true for TCP, false for UDP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// Returns true if both have the same protocol, addresses and ports, so that their order matters.
    #[must_use]
    pub fn has_flow_of(&self, merge: &Merge) -> bool {
        let (own, other) = (self.flow(), merge.flow());
        self.is_tcp == merge.is_tcp && own.is_some() && own == other
    }

    fn flow(&self) -> Option<(&[u8], &[u8])> {
        flow(self.octets, self.network, self.transport, self.is_ipv4)
    }

    /// Returns the TCP header without options.
    fn tcp(&self) -> Option<&[u8; TCP_HEADER_MIN]> {
        self.octets.get(self.transport..)?.first_chunk()
    }

    fn data_length(&self) -> usize {
        self.octets.len().saturating_sub(self.data)
    }

    /// Returns the TCP flags of a segment that has data and may be merged with others; none of a datagram.
    fn mergeable_flags(&self) -> Option<u8> {
        let has_data = self.data_length() > 0 && !self.is_padded;
        if !self.is_tcp {
            return has_data.then_some(0);
        }
        let flags = *self.tcp()?.get(FLAGS)?;
        let may = flags & (ACK | SYN | RST | URG | CWR) == ACK;
        (may && has_data).then_some(flags)
    }

    /// Returns true if the checksums of IPv4 and TCP or UDP are those that a new computation gives. A merged frame has new checksums, so
    /// an error would no longer show. A datagram without a checksum would get one.
    fn has_exact_checksums(&self) -> bool {
        self.try_checksums().unwrap_or(false)
    }

    fn try_checksums(&self) -> Option<bool> {
        // All ones are correct where zeroes are, but never the result of a computation. UDP sends all ones for zero (RFC 768).
        const NEVER: [u8; 2] = [0xff; 2];
        const NEVER_IN_UDP: [u8; 2] = [0; 2];
        let network = self.octets.get(self.network..self.transport)?;
        if self.is_ipv4 {
            let field = network.get(IPV4_CHECKSUM..IPV4_CHECKSUM + 2)?;
            if field == NEVER || checksum(network) != 0 {
                return Some(false);
            }
        }
        let transport = self.octets.get(self.transport..)?;
        let (protocol, at, never) = if self.is_tcp {
            (IpProtocol::TCP, TCP_CHECKSUM_OFFSET, NEVER)
        } else {
            (IpProtocol::UDP, UDP_CHECKSUM_OFFSET, NEVER_IN_UDP)
        };
        let field = transport.get(at..at.saturating_add(2))?;
        if self.is_verified {
            return Some(field != never);
        }
        let addresses = network.get(if self.is_ipv4 { 12..20 } else { 8..40 })?;
        let length = u32::try_from(transport.len()).ok()?;
        let mut sum = pseudo_sum(addresses, protocol, length);
        sum.add(transport);
        Some(field != never && sum.finish() == 0)
    }
}

fn tcp_header_length(tcp: &[u8]) -> Option<usize> {
    let tcp: &[u8; TCP_HEADER_MIN] = tcp.first_chunk()?;
    let length = usize::from(tcp[12] >> 4).saturating_mul(4);
    (length >= TCP_HEADER_MIN).then_some(length)
}

/// Returns `None` if the datagram's length differs from that of its packet (RFC 9868), because the datagrams of a large frame have both
/// lengths from one.
fn udp_header_length(udp: &[u8]) -> Option<usize> {
    let header: &[u8; UDP_HEADER_LENGTH] = udp.first_chunk()?;
    (usize::from(be16(header, UDP_LENGTH)) == udp.len()).then_some(UDP_HEADER_LENGTH)
}

/// Returns the addresses and the ports of a frame.
fn flow(octets: &[u8], network: usize, transport: usize, is_ipv4: bool) -> Option<(&[u8], &[u8])> {
    let (from, to) = if is_ipv4 { (12, 20) } else { (8, 40) };
    let addresses = octets.get(network..)?.get(from..to)?;
    let ports = octets.get(transport..)?.get(..4)?;
    Some((addresses, ports))
}

/// Segments or datagrams that are to become one frame: the headers of the first, and what follows from all of them.
#[derive(Clone, Debug)]
pub struct Merge {
    headers: [u8; SEGMENT_HEADERS_MAX],
    network: usize,
    transport: usize,
    data: usize,
    is_ipv4: bool,
    is_tcp: bool,
    /// Octets of data of each segment but the last, which may have fewer.
    size: usize,
    data_length: usize,
    count: u16,
    /// Flags of the last segment that others do not have: FIN and PSH.
    last_flags: u8,
    /// True if no segment may follow.
    is_complete: bool,
}

impl Merge {
    /// Begins with a segment. Returns `None` if none may follow it: it has no data, a flag that is for one segment only, or a wrong
    /// checksum, or it is a datagram without one.
    #[must_use]
    pub fn begin(first: &DataSegment<'_>) -> Option<Self> {
        let flags = first.mergeable_flags()?;
        if flags & (FIN | PSH) != 0 || !first.has_exact_checksums() {
            return None;
        }
        let mut headers = [0; SEGMENT_HEADERS_MAX];
        headers
            .get_mut(..first.data)?
            .copy_from_slice(first.octets.get(..first.data)?);
        Some(Self {
            headers,
            network: first.network,
            transport: first.transport,
            data: first.data,
            is_ipv4: first.is_ipv4,
            is_tcp: first.is_tcp,
            size: first.data_length(),
            data_length: first.data_length(),
            count: 1,
            last_flags: 0,
            is_complete: false,
        })
    }

    /// Adds the next segment. Returns false and changes nothing if the frame with it could not be cut into exactly these segments.
    #[must_use]
    pub fn add(&mut self, next: &DataSegment<'_>) -> bool {
        match self.follows(next) {
            Some(flags) if next.has_exact_checksums() => {
                // `follows` limits the data, of which each segment has some.
                self.count = self.count.saturating_add(1);
                self.data_length = self.data_length.saturating_add(next.data_length());
                self.last_flags = flags & (FIN | PSH);
                self.is_complete = self.last_flags != 0 || next.data_length() < self.size;
                true
            }
            _ => false,
        }
    }

    /// Returns the TCP flags of a segment whose headers fit.
    fn follows(&self, next: &DataSegment<'_>) -> Option<u8> {
        let flags = next.mergeable_flags()?;
        let places = (next.network, next.transport, next.data, next.is_ipv4);
        let length = self.packet_length().saturating_add(next.data_length());
        let fits = places == (self.network, self.transport, self.data, self.is_ipv4)
            && next.is_tcp == self.is_tcp
            && !self.is_complete
            && next.data_length() <= self.size
            && length <= LENGTH_MAX;
        if !fits {
            return None;
        }
        let (own, other) = (self.headers.get(..self.data)?, next.octets);
        let is_same = |from: usize, to: usize| own.get(from..to) == other.get(from..to);
        let behind = |at: usize, from: usize, to: usize| {
            is_same(at.saturating_add(from), at.saturating_add(to))
        };
        let network = |from: usize, to: usize| behind(self.network, from, to);
        let transport = |from: usize, to: usize| behind(self.transport, from, to);
        // All fields but the lengths, the identification and the checksum.
        let has_same_network = if self.is_ipv4 {
            network(0, 2) && network(6, 10) && network(12, 20) && self.counts_up(next)?
        } else {
            network(0, 4) && network(6, 40)
        };
        // Of UDP, all fields but the length and the checksum: the ports.
        let has_same_transport = transport(0, SEQUENCE)
            && (!self.is_tcp
                // Acknowledgment, offset of the data, window, urgent pointer, options.
                || transport(8, FLAGS)
                    && transport(14, TCP_CHECKSUM_OFFSET)
                    && is_same(self.transport.saturating_add(18), self.data)
                    && flags & !(FIN | PSH) == *own.get(self.transport.saturating_add(FLAGS))?
                    && self.is_in_sequence(next)?);
        let is_next = is_same(0, self.network) && has_same_network && has_same_transport;
        is_next.then_some(flags)
    }

    /// Returns true if the identification of IPv4 is that of the first segment and the number of segments since.
    fn counts_up(&self, next: &DataSegment<'_>) -> Option<bool> {
        let at = self.network.saturating_add(4);
        let first = be16(self.headers.get(at..)?.first_chunk::<2>()?, 0);
        let own = be16(next.octets.get(at..)?.first_chunk::<2>()?, 0);
        Some(own == first.wrapping_add(self.count))
    }

    fn is_in_sequence(&self, next: &DataSegment<'_>) -> Option<bool> {
        let at = self.transport.saturating_add(SEQUENCE);
        let first = be32(self.headers.get(at..)?.first_chunk::<4>()?, 0);
        let own = be32(next.octets.get(at..)?.first_chunk::<4>()?, 0);
        Some(own == first.wrapping_add(u32::try_from(self.data_length).ok()?))
    }

    fn flow(&self) -> Option<(&[u8], &[u8])> {
        flow(&self.headers, self.network, self.transport, self.is_ipv4)
    }

    /// Returns the number of segments.
    #[must_use]
    pub const fn count(&self) -> u16 {
        self.count
    }

    /// Returns true if no segment may follow.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Returns true for IPv4, false for IPv6.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Returns the length of the headers of each segment, octets: the offset of its data.
    #[must_use]
    pub const fn headers_length(&self) -> usize {
        self.data
    }

    /// Returns the data of each segment but the last, octets.
    #[must_use]
    pub fn segment_size(&self) -> u16 {
        u16::try_from(self.size).unwrap_or(u16::MAX)
    }

    /// Returns the length of the merged frame, octets.
    #[must_use]
    pub const fn frame_length(&self) -> usize {
        self.data.saturating_add(self.data_length)
    }

    /// Returns the length of the merged packet, octets: the frame without Ethernet.
    const fn packet_length(&self) -> usize {
        self.frame_length().saturating_sub(self.network)
    }

    /// Turns the headers of the first segment, at the start of `frame`, into those of the merged frame. The checksum of TCP or UDP stays as
    /// it is: it is computed when the frame is cut. Returns false, with undefined contents, if `frame` is too short.
    #[must_use]
    pub fn write(&self, frame: &mut [u8]) -> bool {
        self.try_write(frame).is_some()
    }

    fn try_write(&self, frame: &mut [u8]) -> Option<()> {
        let headers = frame.get_mut(..self.data)?;
        let length = self.packet_length();
        let network = headers.get_mut(self.network..self.transport)?;
        if self.is_ipv4 {
            put(network, 2, u16::try_from(length).ok()?)?;
            put(network, IPV4_CHECKSUM, 0)?;
            let sum = checksum(network);
            put(network, IPV4_CHECKSUM, sum)?;
        } else {
            let payload = length.checked_sub(IPV6_HEADER_LENGTH)?;
            put(network, 4, u16::try_from(payload).ok()?)?;
        }
        if self.is_tcp {
            *headers.get_mut(self.transport.saturating_add(FLAGS))? |= self.last_flags;
            return Some(());
        }
        let datagram = self.frame_length().saturating_sub(self.transport);
        let at = self.transport.saturating_add(UDP_LENGTH);
        put(headers, at, u16::try_from(datagram).ok()?)
    }
}
