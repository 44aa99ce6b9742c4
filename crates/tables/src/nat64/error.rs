// SPDX-License-Identifier: Apache-2.0
//! ICMP errors, with the packets in them (RFC 7915, sections 4.2, 4.3, 5.2 and 5.3).

use quietwire_packet::{IPV4_HEADER_MIN, IPV6_HEADER_LENGTH, IpProtocol, checksum};

use super::header::{Ip, eight, pseudo_v6, put, read_v4, read_v6, write_v4, write_v6};
use super::icmp::{Error, quoted_v4, quoted_v6};
use super::transport::{Nesting, transport_to_v4, transport_to_v6};
use crate::nat::NatDrop;

/// Octets in front of the packet in an error.
const ERROR_HEADER: usize = 8;
/// Octets of that packet's payload that an error has at least (RFC 792).
const INNER_MIN: usize = 8;
/// Maximum length of errors, octets (RFC 1812, section 4.3.2.3; RFC 4443, section 2.4 (c)).
const ERROR_MAX_V4: usize = 576;
const ERROR_MAX_V6: usize = 1280;
const SUM_AT: usize = 2;

/// Addresses of the packet in an error after translation, and those of the error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Addresses<A> {
    pub(super) source: A,
    pub(super) destination: A,
    pub(super) inner_source: A,
    pub(super) inner_destination: A,
}

/// Nesting of a translated packet in the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Returns true if an ICMPv6 message is an error (RFC 4443, section 2.1).
pub(super) fn is_error_v6(buffer: &[u8], ip: &Ip<u128>) -> bool {
    let is_icmp = ip.protocol == IpProtocol::ICMPV6.0 && !ip.is_later();
    is_icmp && buffer.get(ip.payload).is_some_and(|kind| *kind < 128)
}

/// Returns true if an ICMPv4 message is no echo.
pub(super) fn is_error_v4(buffer: &[u8], ip: &Ip<u32>) -> bool {
    let is_icmp = ip.protocol == IpProtocol::ICMP.0 && !ip.is_later();
    is_icmp
        && buffer
            .get(ip.payload)
            .is_some_and(|kind| !matches!(kind, 0 | 8))
}

/// Reads the packet in an ICMPv6 error, whose checksum it checks.
pub(super) fn read_inner_v6(buffer: &[u8], ip: &Ip<u128>) -> Result<Ip<u128>, NatDrop> {
    if ip.part.is_some() {
        return Err(NatDrop::Fragment);
    }
    let message = buffer.get(ip.payload..ip.end).ok_or(NatDrop::Malformed)?;
    let mut sum = pseudo_v6(ip, message.len());
    sum.add(message);
    if sum.finish() != 0 {
        return Err(NatDrop::Checksum);
    }
    let inner = read_v6(buffer, quoted_at(ip))?;
    checked(inner, ip.end)
}

/// Reads the packet in an ICMPv4 error, whose checksum NAT has checked.
pub(super) fn read_inner_v4(buffer: &[u8], ip: &Ip<u32>) -> Result<Ip<u32>, NatDrop> {
    if ip.part.is_some() {
        return Err(NatDrop::Fragment);
    }
    let inner = read_v4(buffer, quoted_at(ip))?;
    checked(inner, ip.end)
}

/// Returns the offset of the packet in an error.
fn quoted_at<A>(ip: &Ip<A>) -> usize {
    ip.payload.saturating_add(ERROR_HEADER)
}

/// Checks that the packet in an error has what identifies its mapping.
fn checked<A>(inner: Ip<A>, end: usize) -> Result<Ip<A>, NatDrop> {
    if inner.payload.saturating_add(INNER_MIN) > end {
        return Err(NatDrop::Malformed);
    }
    match inner.is_later() {
        true => Err(NatDrop::Fragment),
        false => Ok(inner),
    }
}

/// Returns the end of an error without extensions (RFC 4884). `quoted` is the length of the packet in it, if it has extensions.
fn end_of<A>(ip: &Ip<A>, quoted: Option<usize>) -> usize {
    let quoted = quoted.map(|octets| quoted_at(ip).saturating_add(octets));
    quoted.map_or(ip.end, |end| end.min(ip.end))
}

/// Translates an ICMPv6 error with the packet in it. The IPv4 packet has this identification.
pub(super) fn error_to_v4(
    buffer: &mut [u8],
    ip: &Ip<u128>,
    inner: &Ip<u128>,
    (addresses, identification): (&Addresses<u32>, u16),
) -> Result<Span, NatDrop> {
    let message = eight(buffer, ip.payload).ok_or(NatDrop::Malformed)?;
    let error = Error::of(message).to_v4(inner.part.is_some());
    let error = error.ok_or(NatDrop::IcmpType)?;
    let end = end_of(ip, quoted_v6(message));
    // Padding and extensions behind are not of the packet in the error.
    let buffer = buffer.get_mut(..end).ok_or(NatDrop::Malformed)?;
    let mut new = Ip {
        source: addresses.inner_source,
        destination: addresses.inner_destination,
        class: inner.class,
        ttl: inner.ttl,
        protocol: inner.protocol,
        payload: inner.payload,
        end: inner.end,
        part: inner.part,
        identification: 0,
        dont_fragment: !inner.is_short(),
    };
    new.protocol = transport_to_v4(buffer, inner, &new, Nesting::InError)?;
    let inner_at = write_v4(buffer, &new)?;
    let at = inner_at.checked_sub(ERROR_HEADER);
    let at = at.ok_or(NatDrop::Malformed)?;
    let mut outer = Ip {
        source: addresses.source,
        destination: addresses.destination,
        class: ip.class,
        ttl: ip.ttl,
        protocol: IpProtocol::ICMP.0,
        payload: at,
        end,
        part: None,
        identification,
        dont_fragment: false,
    };
    let start = at.saturating_sub(IPV4_HEADER_MIN);
    outer.end = outer.end.min(start.saturating_add(ERROR_MAX_V4));
    put(buffer, at, error.octets())?;
    let sum = checksum(buffer.get(at..outer.end).ok_or(NatDrop::Malformed)?);
    put(buffer, at.saturating_add(SUM_AT), sum.to_be_bytes())?;
    Ok(Span {
        start: write_v4(buffer, &outer)?,
        end: outer.end,
    })
}

/// Translates an ICMPv4 error with the packet in it.
pub(super) fn error_to_v6(
    buffer: &mut [u8],
    ip: &Ip<u32>,
    inner: &Ip<u32>,
    addresses: &Addresses<u128>,
) -> Result<Span, NatDrop> {
    let message = eight(buffer, ip.payload).ok_or(NatDrop::Malformed)?;
    let inner_length = inner.end.saturating_sub(quoted_at(ip));
    let inner_length = u16::try_from(inner_length).unwrap_or(u16::MAX);
    let error = Error::of(message).to_v6(inner_length);
    let error = error.ok_or(NatDrop::IcmpType)?;
    let end = end_of(ip, quoted_v4(message));
    let buffer = buffer.get_mut(..end).ok_or(NatDrop::Malformed)?;
    let mut new = Ip {
        source: addresses.inner_source,
        destination: addresses.inner_destination,
        class: inner.class,
        ttl: inner.ttl,
        protocol: inner.protocol,
        payload: inner.payload,
        end: inner.end,
        part: inner.part,
        identification: 0,
        dont_fragment: true,
    };
    new.protocol = transport_to_v6(buffer, inner, &new, Nesting::InError)?;
    let inner_at = write_v6(buffer, &new)?;
    let at = inner_at.checked_sub(ERROR_HEADER);
    let at = at.ok_or(NatDrop::Malformed)?;
    let mut outer = Ip {
        source: addresses.source,
        destination: addresses.destination,
        class: ip.class,
        ttl: ip.ttl,
        protocol: IpProtocol::ICMPV6.0,
        payload: at,
        end,
        part: None,
        identification: 0,
        dont_fragment: true,
    };
    let start = at.saturating_sub(IPV6_HEADER_LENGTH);
    outer.end = outer.end.min(start.saturating_add(ERROR_MAX_V6));
    put(buffer, at, error.octets())?;
    let message = buffer.get(at..outer.end).ok_or(NatDrop::Malformed)?;
    let mut sum = pseudo_v6(&outer, message.len());
    sum.add(message);
    let sum = sum.finish();
    put(buffer, at.saturating_add(SUM_AT), sum.to_be_bytes())?;
    Ok(Span {
        start: write_v6(buffer, &outer)?,
        end: outer.end,
    })
}
