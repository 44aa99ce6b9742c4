// SPDX-License-Identifier: Apache-2.0
//! Segmentation of TCP and UDP data in software (RFC 9293, section 3.7; virtio 1.2, section 5.1.6.2).

use crate::ethernet::split_tags;
use crate::{
    Checksum, EtherType, EthernetHeader, IPV4_HEADER_MIN, IPV6_EXTENSIONS_MAX, IPV6_HEADER_LENGTH,
    IpProtocol, TCP_CHECKSUM_OFFSET, TCP_HEADER_MIN, UDP_CHECKSUM_OFFSET, UDP_HEADER_LENGTH, be16,
    checksum, udp_checksum,
};

/// Maximum length of the headers of a frame to segment, from the destination address to the end of the TCP options, octets:
/// enough for two tags, either version of IP with all headers used in practice, and TCP with all options (14 + 8 + 60 + 60).
pub const SEGMENT_HEADERS_MAX: usize = 192;

/// TCP flags (RFC 9293, section 3.1; RFC 3168, section 6.1).
pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const URG: u8 = 0x20;
pub(crate) const CWR: u8 = 0x80;

/// Parsed headers of a frame with TCP or UDP data of any length, to be segmented here or passed on with a segmentation request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LargeFrame {
    headers: [u8; SEGMENT_HEADERS_MAX],
    /// Offsets of IP, TCP or UDP, and data.
    network: usize,
    transport: usize,
    data: usize,
    data_length: usize,
    is_ipv4: bool,
    is_tcp: bool,
}

impl LargeFrame {
    /// Parses the headers of a frame of `length` octets from its first octets, `front`, which contain at least all headers.
    /// Returns `None` for everything but TCP and UDP in whole, unfragmented IP packets, and for TCP flags that several segments
    /// cannot repeat (SYN, RST).
    #[must_use]
    pub fn read(front: &[u8], length: usize) -> Option<Self> {
        let (ethernet, rest) = EthernetHeader::split(front).ok()?;
        let untagged = split_tags(ethernet.ethertype(), rest).ok()?;
        let network = front.len().saturating_sub(untagged.payload.len());
        let (is_ipv4, (protocol, header_length, packet)) = match untagged.ethertype {
            EtherType::IPV4 => (true, ipv4(untagged.payload)?),
            EtherType::IPV6 => (false, ipv6(untagged.payload)?),
            _ => return None,
        };
        let transport = network.saturating_add(header_length);
        let end = network.saturating_add(packet);
        let header = front.get(transport..)?;
        let transport_length = match protocol {
            IpProtocol::TCP => tcp_header_length(header)?,
            IpProtocol::UDP => UDP_HEADER_LENGTH,
            _ => return None,
        };
        let data = transport.saturating_add(transport_length);
        if data > end || end > length {
            return None;
        }
        let mut headers = [0; SEGMENT_HEADERS_MAX];
        headers.get_mut(..data)?.copy_from_slice(front.get(..data)?);
        Some(Self {
            headers,
            network,
            transport,
            data,
            data_length: end.saturating_sub(data),
            is_ipv4,
            is_tcp: protocol == IpProtocol::TCP,
        })
    }

    /// Octets of Ethernet, tags included, before IP.
    #[must_use]
    pub const fn ethernet_length(&self) -> usize {
        self.network
    }

    /// Octets of IP before TCP or UDP, extension headers included.
    #[must_use]
    pub const fn network_length(&self) -> usize {
        self.transport.saturating_sub(self.network)
    }

    /// Octets of TCP or UDP before the data.
    #[must_use]
    pub const fn transport_length(&self) -> usize {
        self.data.saturating_sub(self.transport)
    }

    /// Returns the length of all headers, octets: the offset of the data.
    #[must_use]
    pub const fn headers_length(&self) -> usize {
        self.data
    }

    /// Octets of TCP or UDP data.
    #[must_use]
    pub const fn data_length(&self) -> usize {
        self.data_length
    }

    /// Returns true for IPv4, false for IPv6.
    #[must_use]
    pub const fn is_ipv4(&self) -> bool {
        self.is_ipv4
    }

    /// Returns true if the checksum of the IPv4 header is correct (RFC 1812, section 5.2.2), and always for IPv6.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let header = self.headers.get(self.network..self.transport);
        !self.is_ipv4 || header.is_some_and(|header| checksum(header) == 0)
    }

    /// Returns true for TCP, false for UDP.
    #[must_use]
    pub const fn is_tcp(&self) -> bool {
        self.is_tcp
    }

    /// Returns true if the sender signals that it has reduced its congestion window (CWR; RFC 3168, section 6.1.2).
    #[must_use]
    pub fn has_cwr(&self) -> bool {
        let flags = self.headers.get(self.transport.saturating_add(13));
        self.is_tcp && flags.is_some_and(|flags| flags & CWR != 0)
    }

    /// Completes a segment: writes the headers into the first [`Self::headers_length`] octets of `segment`, before the data
    /// that are already there. `number` counts the segments from 0; `offset` is the position of its data within those of the
    /// frame. Returns false, with undefined contents, if the segment is too short or too long.
    #[must_use]
    pub fn write(&self, segment: &mut [u8], number: u16, offset: usize) -> bool {
        self.try_write(segment, number, offset, true).is_some()
    }

    /// Completes a segment like [`Self::write`], except for the checksum of TCP or UDP: its field gets the sum over the pseudo header alone,
    /// not complemented, for a device that computes the checksum.
    #[must_use]
    pub fn write_partial(&self, segment: &mut [u8], number: u16, offset: usize) -> bool {
        self.try_write(segment, number, offset, false).is_some()
    }

    fn try_write(
        &self,
        segment: &mut [u8],
        number: u16,
        offset: usize,
        has_checksum: bool,
    ) -> Option<()> {
        let headers = self.headers.get(..self.data)?;
        segment.get_mut(..self.data)?.copy_from_slice(headers);
        let end = offset.saturating_add(segment.len().saturating_sub(self.data));
        let is_last = end >= self.data_length;
        self.write_network(segment, number)?;
        let transport = segment.get_mut(self.transport..)?;
        let length = u32::try_from(transport.len()).ok()?;
        let mut sum = self.pseudo_header(length)?;
        if self.is_tcp {
            write_tcp(transport, number == 0, is_last, u32::try_from(offset).ok()?)?;
        } else {
            put(transport, 4, u16::try_from(length).ok()?)?;
            put(transport, UDP_CHECKSUM_OFFSET, 0)?;
        }
        let at = if self.is_tcp {
            TCP_CHECKSUM_OFFSET
        } else {
            UDP_CHECKSUM_OFFSET
        };
        if !has_checksum {
            return put(transport, at, !sum.finish());
        }
        sum.add(transport);
        let complete = match self.is_tcp {
            true => sum.finish(),
            false => udp_checksum(sum.finish()),
        };
        put(transport, at, complete)
    }

    fn write_network(&self, segment: &mut [u8], number: u16) -> Option<()> {
        let length = segment.len().saturating_sub(self.network);
        let header = segment.get_mut(self.network..self.transport)?;
        if !self.is_ipv4 {
            let payload = length.checked_sub(IPV6_HEADER_LENGTH)?;
            return put(header, 4, u16::try_from(payload).ok()?);
        }
        put(header, 2, u16::try_from(length).ok()?)?;
        let identification = u16::from_be_bytes([*header.get(4)?, *header.get(5)?]);
        put(header, 4, identification.wrapping_add(number))?;
        put(header, 10, 0)?;
        let sum = checksum(header);
        put(header, 10, sum)
    }

    /// Returns the sum of the pseudo header with this length of TCP or UDP.
    fn pseudo_header(&self, length: u32) -> Option<Checksum> {
        let header = self.headers.get(self.network..self.transport)?;
        let addresses = header.get(if self.is_ipv4 { 12..20 } else { 8..40 })?;
        let protocol = if self.is_tcp {
            IpProtocol::TCP
        } else {
            IpProtocol::UDP
        };
        Some(pseudo_sum(addresses, protocol, length))
    }

    /// Returns the checksum field of TCP or UDP of a frame that is passed on whole, to a peer that segments or accepts it: the sum
    /// over the pseudo header alone, not complemented (virtio 1.2, section 5.1.6.2: the checksum is partial).
    #[must_use]
    pub fn partial_checksum(&self) -> Option<u16> {
        let length = self.transport_length().saturating_add(self.data_length);
        let length = u32::try_from(length).ok()?;
        Some(!self.pseudo_header(length)?.finish())
    }
}

/// Returns the sum of the pseudo header, which the checksum covers in addition to TCP or UDP (RFC 9293, section 3.1; RFC 8200, section 8.1).
/// `length` is that of TCP or UDP with data, octets.
pub(crate) fn pseudo_sum(addresses: &[u8], protocol: IpProtocol, length: u32) -> Checksum {
    let mut sum = Checksum::new();
    sum.add(addresses);
    sum.add(&u32::from(protocol.0).to_be_bytes());
    sum.add(&length.to_be_bytes());
    sum
}

/// Returns the length of the TCP header with its options; `None` for flags that several segments cannot repeat.
fn tcp_header_length(tcp: &[u8]) -> Option<usize> {
    let length = usize::from(tcp.get(12)? >> 4).saturating_mul(4);
    let may = length >= TCP_HEADER_MIN && tcp.get(13)? & (SYN | RST) == 0;
    may.then_some(length)
}

/// Writes the TCP header except for the checksum, which is zero.
fn write_tcp(tcp: &mut [u8], is_first: bool, is_last: bool, offset: u32) -> Option<()> {
    let sequence = tcp.get_mut(4..8)?.first_chunk_mut::<4>()?;
    *sequence = u32::from_be_bytes(*sequence)
        .wrapping_add(offset)
        .to_be_bytes();
    let mut flags = *tcp.get(13)?;
    if !is_first {
        flags &= !CWR;
    }
    if !is_last {
        flags &= !(FIN | PSH);
    }
    // The urgent pointer counts from the start of the segment (RFC 9293, section 3.1).
    let urgent = u16::from_be_bytes([*tcp.get(18)?, *tcp.get(19)?]);
    if flags & URG != 0 {
        let left = u16::try_from(offset).ok();
        match left.and_then(|offset| urgent.checked_sub(offset)) {
            Some(left) if left > 0 => put(tcp, 18, left)?,
            _ => {
                flags &= !URG;
                put(tcp, 18, 0)?;
            }
        }
    }
    *tcp.get_mut(13)? = flags;
    put(tcp, TCP_CHECKSUM_OFFSET, 0)
}

/// Returns the protocol, the length of the header, and that of the packet by its own header; `None` for a fragment.
pub(crate) fn ipv4(packet: &[u8]) -> Option<(IpProtocol, usize, usize)> {
    const FRAGMENT: u16 = 0x3fff;
    let header: &[u8; IPV4_HEADER_MIN] = packet.first_chunk()?;
    let header_length = usize::from(header[0] & 0xf).saturating_mul(4);
    let length = usize::from(be16(header, 2));
    let may = header[0] >> 4 == 4
        && header_length >= IPV4_HEADER_MIN
        && length >= header_length
        && be16(header, 6) & FRAGMENT == 0;
    may.then_some((IpProtocol(header[9]), header_length, length))
}

/// Returns the same for IPv6, with extension headers counted as header. Only extension headers that every segment may repeat
/// are allowed: with others (routing, fragment, authentication) the segments would not mean what the sender meant.
pub(crate) fn ipv6(packet: &[u8]) -> Option<(IpProtocol, usize, usize)> {
    const DESTINATION_OPTIONS: IpProtocol = IpProtocol(60);
    let header: &[u8; IPV6_HEADER_LENGTH] = packet.first_chunk()?;
    let length = IPV6_HEADER_LENGTH.saturating_add(usize::from(be16(header, 4)));
    let (mut protocol, mut at) = (IpProtocol(header[6]), IPV6_HEADER_LENGTH);
    for _ in 0..IPV6_EXTENSIONS_MAX {
        if protocol != IpProtocol::HOP_BY_HOP && protocol != DESTINATION_OPTIONS {
            break;
        }
        let [next, units] = *packet.get(at..)?.first_chunk::<2>()?;
        protocol = IpProtocol(next);
        let octets = usize::from(units).saturating_add(1).saturating_mul(8);
        at = at.saturating_add(octets);
    }
    let may = header[0] >> 4 == 6 && length >= at;
    may.then_some((protocol, at, length))
}

/// Writes a number of 16 bits.
pub(crate) fn put(octets: &mut [u8], at: usize, value: u16) -> Option<()> {
    octets
        .get_mut(at..at.saturating_add(2))?
        .copy_from_slice(&value.to_be_bytes());
    Some(())
}
