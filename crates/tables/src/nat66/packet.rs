// SPDX-License-Identifier: Apache-2.0
//! Parser of the parts of an IPv6 packet that NAT66 and load balancers translate.

use quietwire_packet::{
    Checksum, IPV6_EXTENSIONS_MAX, IPV6_HEADER_LENGTH, IpProtocol, TCP_HEADER_MIN,
    UDP_HEADER_LENGTH,
};

use crate::nat::{NatDrop, NatProtocol, packet};

/// Offsets in an IPv6 header (RFC 8200, section 3).
const PAYLOAD_LENGTH_AT: usize = 4;
const NEXT_HEADER_AT: usize = 6;
pub(crate) const SOURCE_AT: usize = 8;
pub(crate) const DESTINATION_AT: usize = 24;
/// Octets of an ICMPv6 echo's header, and of the header of an error in front of the packet that it is about.
const ICMP_HEADER: usize = 8;
/// Octets of that packet's payload that an error has at least: ports, and the identifier of an echo.
const INNER_MIN: usize = 8;
/// Offset of the control bits in a TCP header.
const FLAGS_AT: usize = 13;
/// Types of ICMPv6 messages (RFC 4443, section 2.1).
const ERRORS: std::ops::RangeInclusive<u8> = 1..=4;
const ECHO: u8 = 128;
const ECHO_REPLY: u8 = 129;

/// Address and port, or ICMPv6 identifier.
pub(crate) type End = packet::End<u128>;
/// An IPv6 packet, or one within an ICMPv6 error.
pub(crate) type View = packet::View<u128>;
/// Kind of a packet.
pub(crate) type Kind = packet::Kind<u128>;

fn chunk<const N: usize>(octets: &[u8], at: usize) -> Option<[u8; N]> {
    octets.get(at..)?.first_chunk().copied()
}

fn word(octets: &[u8], at: usize) -> Result<u16, NatDrop> {
    let two = chunk(octets, at).ok_or(NatDrop::Malformed)?;
    Ok(u16::from_be_bytes(two))
}

/// Returns the address at an offset of a packet.
#[inline(always)]
pub(crate) fn address_at(packet: &[u8], at: usize) -> Option<u128> {
    chunk(packet, at).map(u128::from_be_bytes)
}

/// Headers of an IPv6 packet in front of its transport header.
struct Headers {
    /// End of the packet by its length.
    end: usize,
    source: u128,
    destination: u128,
    protocol: IpProtocol,
    transport: usize,
    is_fragment: bool,
    is_later_fragment: bool,
}

/// Reads the headers of the packet at an offset. Ends at the first header that is none of options, routing or fragment.
#[inline]
fn headers(packet: &[u8], at: usize) -> Result<Headers, NatDrop> {
    let header: [u8; IPV6_HEADER_LENGTH] = chunk(packet, at).ok_or(NatDrop::Malformed)?;
    let transport = at.saturating_add(IPV6_HEADER_LENGTH);
    let payload = usize::from(word(&header, PAYLOAD_LENGTH_AT)?);
    let mut read = Headers {
        end: transport.saturating_add(payload),
        source: address_at(&header, SOURCE_AT).ok_or(NatDrop::Malformed)?,
        destination: address_at(&header, DESTINATION_AT).ok_or(NatDrop::Malformed)?,
        protocol: IpProtocol(header.get(NEXT_HEADER_AT).copied().unwrap_or(0)),
        transport,
        is_fragment: false,
        is_later_fragment: false,
    };
    if header.first().is_none_or(|first| first >> 4 != 6) {
        return Err(NatDrop::Malformed);
    }
    for _ in 0..=IPV6_EXTENSIONS_MAX {
        let is_skipped = matches!(
            read.protocol,
            IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS | IpProtocol::ROUTING
        );
        let is_extension = is_skipped || read.protocol == IpProtocol::FRAGMENT;
        if read.is_later_fragment || !is_extension {
            return Ok(read);
        }
        // Later fragments must not contain the transport header: it is the first one of the datagram's payload.
        if read.is_fragment {
            return Err(NatDrop::Malformed);
        }
        let extension: [u8; 8] = chunk(packet, read.transport).ok_or(NatDrop::Malformed)?;
        let [next, length, third, fourth, _, _, _, _] = extension;
        let octets = if is_skipped {
            // The checksum contains the last destination of the route.
            if read.protocol == IpProtocol::ROUTING && fourth != 0 {
                return Err(NatDrop::Malformed);
            }
            usize::from(length).saturating_add(1).saturating_mul(8)
        } else {
            // A fragment with offset 0 and no further one is the whole datagram (RFC 6946).
            let field = u16::from_be_bytes([third, fourth]);
            read.is_later_fragment = field & 0xfff8 != 0;
            read.is_fragment = read.is_later_fragment || field & 1 != 0;
            extension.len()
        };
        read.transport = read.transport.saturating_add(octets);
        read.protocol = IpProtocol(next);
    }
    Err(NatDrop::Malformed)
}

impl Headers {
    fn view(&self, at: usize, protocol: NatProtocol, ports: (u16, u16)) -> View {
        View {
            at,
            transport: self.transport,
            end: self.end,
            protocol,
            source: End {
                address: self.source,
                port: ports.0,
            },
            destination: End {
                address: self.destination,
                port: ports.1,
            },
            flags: 0,
        }
    }
}

/// Parses a whole datagram or its first fragment from the IPv6 header on. `length` is the number of octets in the frame, padding included;
/// `packet` may end before (further buffers). ICMPv6 errors must be complete.
pub(super) fn read(packet: &[u8], length: usize) -> Result<(View, Kind), NatDrop> {
    let headers = checked_headers(packet, length)?;
    if headers.is_later_fragment {
        return Err(NatDrop::Fragment);
    }
    read_behind(&headers, packet)
}

/// Parses a whole datagram, as [`read`] does.
pub(crate) fn read_whole(packet: &[u8], length: usize) -> Result<(View, Kind), NatDrop> {
    let headers = checked_headers(packet, length)?;
    if headers.is_fragment {
        return Err(NatDrop::Fragment);
    }
    read_behind(&headers, packet)
}

#[inline(always)]
fn checked_headers(packet: &[u8], length: usize) -> Result<Headers, NatDrop> {
    let headers = headers(packet, 0)?;
    match headers.end > length {
        true => Err(NatDrop::Malformed),
        false => Ok(headers),
    }
}

/// Parses the packet behind its headers.
#[inline]
fn read_behind(headers: &Headers, packet: &[u8]) -> Result<(View, Kind), NatDrop> {
    let transport = headers.transport;
    let after = |offset: usize| transport.saturating_add(offset);
    let has = |octets: usize| {
        let end = after(octets);
        let is_whole = headers.end >= end && packet.len() >= end;
        is_whole.then_some(()).ok_or(NatDrop::Malformed)
    };
    match headers.protocol {
        IpProtocol::TCP => {
            has(TCP_HEADER_MIN)?;
            let ports = (word(packet, transport)?, word(packet, after(2))?);
            let mut view = headers.view(0, NatProtocol::Tcp, ports);
            view.flags = packet.get(after(FLAGS_AT)).copied().unwrap_or(0);
            Ok((view, Kind::Plain))
        }
        IpProtocol::UDP => {
            has(UDP_HEADER_LENGTH)?;
            let ports = (word(packet, transport)?, word(packet, after(2))?);
            Ok((headers.view(0, NatProtocol::Udp, ports), Kind::Plain))
        }
        IpProtocol::ICMPV6 => {
            has(ICMP_HEADER)?;
            let identifier = word(packet, after(4))?;
            let view = headers.view(0, NatProtocol::Icmp, (identifier, identifier));
            let [kind, code] = word(packet, transport)?.to_be_bytes();
            let kind = match (kind, code) {
                (ECHO, 0) => Kind::Plain,
                (ECHO_REPLY, 0) => Kind::Reply,
                (kind, _) if !ERRORS.contains(&kind) => return Err(NatDrop::IcmpType),
                _ if headers.is_fragment => return Err(NatDrop::Fragment),
                _ => Kind::Error(inner(packet, headers)?),
            };
            Ok((view, kind))
        }
        _ => Err(NatDrop::Protocol),
    }
}

/// Parses the packet within an ICMPv6 error.
fn inner(packet: &[u8], outer: &Headers) -> Result<View, NatDrop> {
    let message = packet.get(outer.transport..outer.end);
    let message = message.ok_or(NatDrop::Malformed)?;
    let mut sum = Checksum::new();
    sum.add(&outer.source.to_be_bytes());
    sum.add(&outer.destination.to_be_bytes());
    let length = u32::try_from(message.len()).map_err(|_| NatDrop::Malformed)?;
    sum.add(&length.to_be_bytes());
    sum.add(&[0, 0, 0, IpProtocol::ICMPV6.0]);
    sum.add(message);
    if sum.finish() != 0 {
        return Err(NatDrop::Checksum);
    }
    let packet = packet.get(..outer.end).ok_or(NatDrop::Malformed)?;
    let at = outer.transport.saturating_add(ICMP_HEADER);
    let mut headers = headers(packet, at)?;
    // A later fragment has no ports.
    if headers.is_later_fragment {
        return Err(NatDrop::Fragment);
    }
    headers.end = outer.end;
    let transport = headers.transport;
    let after = |offset: usize| transport.saturating_add(offset);
    if after(INNER_MIN) > outer.end {
        return Err(NatDrop::Malformed);
    }
    let (first, second) = (word(packet, transport)?, word(packet, after(2))?);
    let third = word(packet, after(4))?;
    let (protocol, ports) = match headers.protocol {
        IpProtocol::TCP => (NatProtocol::Tcp, (first, second)),
        IpProtocol::UDP => (NatProtocol::Udp, (first, second)),
        IpProtocol::ICMPV6 if matches!(first.to_be_bytes(), [ECHO | ECHO_REPLY, _]) => {
            (NatProtocol::Icmp, (third, third))
        }
        IpProtocol::ICMPV6 => return Err(NatDrop::IcmpType),
        _ => return Err(NatDrop::Protocol),
    };
    Ok(headers.view(at, protocol, ports))
}
