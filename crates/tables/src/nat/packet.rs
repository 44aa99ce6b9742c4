// SPDX-License-Identifier: Apache-2.0
//! Parser of the parts of an IPv4 packet that NAT translates.

use quietwire_packet::{
    ICMP_HEADER_LENGTH, IPV4_HEADER_MIN, TCP_HEADER_MIN, UDP_HEADER_LENGTH, be16_at, be32_at,
    checksum,
};

use super::names::{NatDrop, NatProtocol};

/// Octets of an ICMP echo's header, and of the header of an ICMP error in front of the packet that it is about.
pub(crate) const ICMP_LENGTH: usize = 2 * ICMP_HEADER_LENGTH;
/// Octets of the inner packet's payload that an ICMP error has at least (RFC 792).
const INNER_MIN: usize = 8;

/// Address of IPv4 (`u32`) or IPv6 (`u128`), and port, or ICMP identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct End<A = u32> {
    pub(crate) address: A,
    pub(crate) port: u16,
}

/// A packet, or one within an ICMP error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<A = u32> {
    /// Offset of the IP header.
    pub(crate) at: usize,
    /// Offset of the transport header.
    pub(crate) transport: usize,
    /// End of the IP packet, without padding. Of an inner packet, that of the outer one.
    pub(crate) end: usize,
    /// Protocol of mappings. Of an ICMP error, it has no meaning.
    pub(crate) protocol: NatProtocol,
    pub(crate) source: End<A>,
    pub(crate) destination: End<A>,
    /// TCP control bits; 0 for others.
    pub(crate) flags: u8,
}

/// Kind of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind<A = u32> {
    /// TCP, UDP, or an echo request.
    Plain,
    /// An echo reply, which begins no mapping.
    Reply,
    /// An ICMP error with this packet in it.
    Error(View<A>),
}

/// Header of an IPv4 packet at an offset.
pub(crate) struct Header {
    pub(crate) length: usize,
    pub(crate) total: usize,
    pub(crate) protocol: u8,
    pub(crate) source: u32,
    pub(crate) destination: u32,
    pub(crate) is_fragment: bool,
    pub(crate) is_later_fragment: bool,
}

/// Parses the header of an IPv4 packet at an offset.
pub(crate) fn header(packet: &[u8], at: usize) -> Option<Header> {
    let packet = packet.get(at..)?;
    let first = *packet.first()?;
    let length = usize::from(first & 0x0f).saturating_mul(4);
    let total = usize::from(be16_at(packet, 2)?);
    let header = Header {
        length,
        total,
        protocol: *packet.get(9)?,
        source: be32_at(packet, 12)?,
        destination: be32_at(packet, 16)?,
        // More fragments, or an offset.
        is_fragment: be16_at(packet, 6)? & 0x3fff != 0,
        is_later_fragment: be16_at(packet, 6)? & 0x1fff != 0,
    };
    let is_sound = first >> 4 == 4 && length >= IPV4_HEADER_MIN && total >= length;
    is_sound.then_some(header)
}

/// Parses an IPv4 packet from its IP header on. `length` is the number of octets in the frame, padding included; `packet` may end before
/// (further buffers). ICMP errors must be complete.
pub(crate) fn read(packet: &[u8], length: usize) -> Result<(View, Kind), NatDrop> {
    let header = checked_header(packet, length)?;
    if header.is_fragment {
        return Err(NatDrop::Fragment);
    }
    read_behind(&header, packet)
}

/// Parses a whole datagram or its first fragment, which has the ports, as [`read`] does. A fragment of an ICMP error is not read.
pub(super) fn read_first(packet: &[u8], length: usize) -> Result<(View, Kind), NatDrop> {
    let header = checked_header(packet, length)?;
    if header.is_later_fragment {
        return Err(NatDrop::Fragment);
    }
    read_behind(&header, packet)
}

#[inline(always)]
fn checked_header(packet: &[u8], length: usize) -> Result<Header, NatDrop> {
    let header = header(packet, 0).filter(|header| header.total <= length);
    header.ok_or(NatDrop::Malformed)
}

/// Parses the packet after the IP header.
#[inline]
fn read_behind(header: &Header, packet: &[u8]) -> Result<(View, Kind), NatDrop> {
    let payload = header.total.saturating_sub(header.length);
    let transport = header.length;
    let after = |offset: usize| transport.saturating_add(offset);
    let view = |protocol, ports: (u16, u16), flags| View {
        at: 0,
        transport,
        end: header.total,
        protocol,
        source: End {
            address: header.source,
            port: ports.0,
        },
        destination: End {
            address: header.destination,
            port: ports.1,
        },
        flags,
    };
    let has = |octets: usize| {
        let is_whole = payload >= octets && packet.len() >= after(octets);
        is_whole.then_some(()).ok_or(NatDrop::Malformed)
    };
    let ports = || Some((be16_at(packet, transport)?, be16_at(packet, after(2))?));
    match header.protocol {
        6 => {
            has(TCP_HEADER_MIN)?;
            let ports = ports().ok_or(NatDrop::Malformed)?;
            let flags = packet.get(after(13)).copied().unwrap_or(0);
            Ok((view(NatProtocol::Tcp, ports, flags), Kind::Plain))
        }
        17 => {
            has(UDP_HEADER_LENGTH)?;
            let ports = ports().ok_or(NatDrop::Malformed)?;
            Ok((view(NatProtocol::Udp, ports, 0), Kind::Plain))
        }
        1 => {
            has(ICMP_LENGTH)?;
            let identifier = be16_at(packet, after(4)).ok_or(NatDrop::Malformed)?;
            let view = view(NatProtocol::Icmp, (identifier, identifier), 0);
            let kind = match (packet.get(transport), packet.get(after(1))) {
                (Some(8), Some(0)) => Kind::Plain,
                (Some(0), Some(0)) => Kind::Reply,
                (Some(3 | 11 | 12), _) if header.is_fragment => return Err(NatDrop::Fragment),
                (Some(3 | 11 | 12), _) => Kind::Error(inner(packet, transport, header.total)?),
                _ => return Err(NatDrop::IcmpType),
            };
            Ok((view, kind))
        }
        _ => Err(NatDrop::Protocol),
    }
}

/// Parses the packet within an ICMP error.
fn inner(packet: &[u8], icmp: usize, end: usize) -> Result<View, NatDrop> {
    let message = packet.get(icmp..end).ok_or(NatDrop::Malformed)?;
    // RFC 5508, REQ-3: checksums of the message and of the inner IP header, not of the inner transport header.
    if checksum(message) != 0 {
        return Err(NatDrop::Checksum);
    }
    let at = icmp.saturating_add(ICMP_LENGTH);
    let header = header(packet, at).ok_or(NatDrop::Malformed)?;
    let transport = at.saturating_add(header.length);
    if transport.saturating_add(INNER_MIN) > end {
        return Err(NatDrop::Malformed);
    }
    let octets = packet.get(at..transport).ok_or(NatDrop::Malformed)?;
    if checksum(octets) != 0 {
        return Err(NatDrop::Checksum);
    }
    // A later fragment has no ports, the first has.
    if header.is_later_fragment {
        return Err(NatDrop::Fragment);
    }
    let first = be16_at(packet, transport).ok_or(NatDrop::Malformed)?;
    let word = |offset| be16_at(packet, transport.saturating_add(offset)).ok_or(NatDrop::Malformed);
    let (second, third) = (word(2)?, word(4)?);
    let (protocol, ports) = match header.protocol {
        6 => (NatProtocol::Tcp, (first, second)),
        17 => (NatProtocol::Udp, (first, second)),
        // An echo request or reply.
        1 if matches!(first >> 8, 0 | 8) => (NatProtocol::Icmp, (third, third)),
        1 => return Err(NatDrop::IcmpType),
        _ => return Err(NatDrop::Protocol),
    };
    Ok(View {
        at,
        transport,
        end,
        protocol,
        source: End {
            address: header.source,
            port: ports.0,
        },
        destination: End {
            address: header.destination,
            port: ports.1,
        },
        flags: 0,
    })
}
