// SPDX-License-Identifier: Apache-2.0
//! IP headers of both versions, as far as they are translated (RFC 7915, sections 4.1 and 5.1).

use quietwire_packet::{
    Checksum, IPV4_HEADER_MIN, IPV6_EXTENSIONS_MAX, IPV6_HEADER_LENGTH, IpProtocol, checksum,
};

use crate::nat::NatDrop;

/// Octets of an IPv6 fragment header (RFC 8200, section 4.5).
pub(super) const FRAGMENT_HEADER: usize = 8;
/// Offset and flag of a fragment in IPv4 (RFC 791, section 3.1).
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET_V4: u16 = 0x1fff;
const CHECKSUM_AT: usize = 10;
/// Longest IPv4 packet that routers may fragment (RFC 7915, section 5.1).
const FRAGMENTED_MAX: usize = 1260;

/// Part of a datagram in a fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) identification: u32,
    /// Offset in units of eight octets.
    pub(super) offset: u16,
    pub(super) has_more: bool,
}

/// A header, and the place of its payload. Offsets are those of the buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip<A> {
    pub(super) source: A,
    pub(super) destination: A,
    /// Type of service, or traffic class.
    pub(super) class: u8,
    /// Time to live, or hop limit.
    pub(super) ttl: u8,
    /// Protocol of the payload.
    pub(super) protocol: u8,
    /// Offset of the payload, behind options and extension headers.
    pub(super) payload: usize,
    /// End of the packet by its length. That of a packet in an error may be behind the end of the error.
    pub(super) end: usize,
    /// `None` for a whole datagram.
    pub(super) part: Option<Part>,
    /// Identification of IPv4; 0 in IPv6.
    pub(super) identification: u16,
    /// False if routers may fragment the packet, always true in IPv6.
    pub(super) dont_fragment: bool,
}

impl<A> Ip<A> {
    /// Returns true if routers may fragment the IPv4 packet of an IPv6 one without fragment header: by its length (RFC 7915, section 5.1).
    pub(super) const fn is_short(&self) -> bool {
        let payload = self.end.saturating_sub(self.payload);
        payload.saturating_add(IPV4_HEADER_MIN) <= FRAGMENTED_MAX
    }

    /// Returns true for a fragment without the transport header.
    pub(super) fn is_later(&self) -> bool {
        self.part.is_some_and(|part| part.offset > 0)
    }
}

fn chunk<const N: usize>(buffer: &[u8], at: usize) -> Option<[u8; N]> {
    buffer.get(at..)?.first_chunk().copied()
}

/// Returns a word of the buffer.
pub(super) fn word(buffer: &[u8], at: usize) -> Option<u16> {
    chunk(buffer, at).map(u16::from_be_bytes)
}

/// Returns eight octets of the buffer.
pub(super) fn eight(buffer: &[u8], at: usize) -> Option<[u8; 8]> {
    chunk(buffer, at)
}

/// Writes octets into the buffer.
pub(super) fn put<const N: usize>(
    buffer: &mut [u8],
    at: usize,
    octets: [u8; N],
) -> Result<(), NatDrop> {
    let rest = buffer.get_mut(at..).ok_or(NatDrop::Malformed)?;
    let place = rest.first_chunk_mut::<N>().ok_or(NatDrop::Malformed)?;
    *place = octets;
    Ok(())
}

/// Reads the IPv6 packet at an offset, up to its transport header. Extension headers are left out (RFC 7915, section 5.1), except a routing
/// header with segments left, and one behind a fragment header, which have no translation (sections 5.1 and 5.1.1), and authentication.
pub(super) fn read_v6(buffer: &[u8], at: usize) -> Result<Ip<u128>, NatDrop> {
    let header: [u8; IPV6_HEADER_LENGTH] = chunk(buffer, at).ok_or(NatDrop::Malformed)?;
    let [first, second, _, _, high, low, next, ttl, addresses @ ..] = header;
    let source: [u8; 16] = chunk(&addresses, 0).ok_or(NatDrop::Malformed)?;
    let destination: [u8; 16] = chunk(&addresses, 16).ok_or(NatDrop::Malformed)?;
    let start = at.saturating_add(IPV6_HEADER_LENGTH);
    let mut ip = Ip {
        source: u128::from_be_bytes(source),
        destination: u128::from_be_bytes(destination),
        class: first << 4 | second >> 4,
        ttl,
        protocol: next,
        payload: start,
        end: start.saturating_add(usize::from(u16::from_be_bytes([high, low]))),
        part: None,
        identification: 0,
        dont_fragment: true,
    };
    if first >> 4 != 6 {
        return Err(NatDrop::Malformed);
    }
    for _ in 0..=IPV6_EXTENSIONS_MAX {
        let protocol = IpProtocol(ip.protocol);
        let is_skipped = matches!(
            protocol,
            IpProtocol::HOP_BY_HOP | IpProtocol::DESTINATION_OPTIONS | IpProtocol::ROUTING
        );
        if ip.is_later() || !is_skipped && protocol != IpProtocol::FRAGMENT {
            return match ip.payload <= ip.end {
                true => Ok(ip),
                false => Err(NatDrop::Malformed),
            };
        }
        let extension = eight(buffer, ip.payload).ok_or(NatDrop::Malformed)?;
        let [next, length, third, fourth, identification @ ..] = extension;
        let octets = if is_skipped {
            let has_segments = protocol == IpProtocol::ROUTING && fourth != 0;
            if has_segments || ip.part.is_some() {
                return Err(NatDrop::Malformed);
            }
            usize::from(length).saturating_add(1).saturating_mul(8)
        } else {
            if ip.part.is_some() {
                return Err(NatDrop::Malformed);
            }
            let field = u16::from_be_bytes([third, fourth]);
            ip.part = Some(Part {
                identification: u32::from_be_bytes(identification),
                offset: field >> 3,
                has_more: field & 1 != 0,
            });
            FRAGMENT_HEADER
        };
        ip.payload = ip.payload.saturating_add(octets);
        ip.protocol = next;
    }
    Err(NatDrop::Malformed)
}

/// Reads the IPv4 packet at an offset. Options are left out (RFC 7915, section 4.1).
pub(super) fn read_v4(buffer: &[u8], at: usize) -> Result<Ip<u32>, NatDrop> {
    let header: [u8; IPV4_HEADER_MIN] = chunk(buffer, at).ok_or(NatDrop::Malformed)?;
    let [
        first,
        class,
        a,
        b,
        c,
        d,
        e,
        f,
        ttl,
        protocol,
        _,
        _,
        addresses @ ..,
    ] = header;
    let source: [u8; 4] = chunk(&addresses, 0).ok_or(NatDrop::Malformed)?;
    let destination: [u8; 4] = chunk(&addresses, 4).ok_or(NatDrop::Malformed)?;
    let length = usize::from(first & 0x0f).saturating_mul(4);
    let payload = at.saturating_add(length);
    let end = at.saturating_add(usize::from(u16::from_be_bytes([a, b])));
    if first >> 4 != 4 || length < IPV4_HEADER_MIN || end < payload {
        return Err(NatDrop::Malformed);
    }
    let identification = u16::from_be_bytes([c, d]);
    let field = u16::from_be_bytes([e, f]);
    let part = Part {
        identification: u32::from(identification),
        offset: field & OFFSET_V4,
        has_more: field & MORE_FRAGMENTS != 0,
    };
    Ok(Ip {
        source: u32::from_be_bytes(source),
        destination: u32::from_be_bytes(destination),
        class,
        ttl,
        protocol,
        payload,
        end,
        part: (part.offset > 0 || part.has_more).then_some(part),
        identification,
        dont_fragment: field & DONT_FRAGMENT != 0,
    })
}

/// Checks what a router checks of a received IPv4 header beside its lengths: the checksum (RFC 1812, section 5.2.2), and that no option
/// routes the packet (RFC 7915, section 4.1).
pub(super) fn check_v4(buffer: &[u8], at: usize, ip: &Ip<u32>) -> Result<(), NatDrop> {
    let header = buffer.get(at..ip.payload).ok_or(NatDrop::Malformed)?;
    if checksum(header) != 0 {
        return Err(NatDrop::Checksum);
    }
    let mut rest = header.get(IPV4_HEADER_MIN..).unwrap_or_default();
    // At most forty octets.
    while let [kind, after @ ..] = rest {
        rest = match (*kind, after) {
            // Loose and strict source route (RFC 791, section 3.1).
            (131 | 137, _) => return Err(NatDrop::Malformed),
            (0, _) => break,
            (1, after) => after,
            (_, [length, ..]) if *length >= 2 => {
                rest.get(usize::from(*length)..).unwrap_or_default()
            }
            _ => break,
        };
    }
    Ok(())
}

/// Writes an IPv4 header in front of a payload, and returns its offset. `payload` and `end` are those of the header.
pub(super) fn write_v4(buffer: &mut [u8], ip: &Ip<u32>) -> Result<usize, NatDrop> {
    let at = ip.payload.checked_sub(IPV4_HEADER_MIN);
    let at = at.ok_or(NatDrop::Malformed)?;
    let total = u16::try_from(ip.end.saturating_sub(at)).map_err(|_| NatDrop::Malformed)?;
    let (identification, field) = match ip.part {
        // The lower half of the identification (RFC 7915, section 5.1.1).
        Some(part) => (
            (part.identification & 0xffff) as u16,
            part.offset | if part.has_more { MORE_FRAGMENTS } else { 0 },
        ),
        None if ip.dont_fragment => (0, DONT_FRAGMENT),
        None => (ip.identification, 0),
    };
    let header = buffer.get_mut(at..ip.payload).ok_or(NatDrop::Malformed)?;
    put(header, 0, [0x45, ip.class])?;
    put(header, 2, total.to_be_bytes())?;
    put(header, 4, identification.to_be_bytes())?;
    put(header, 6, field.to_be_bytes())?;
    put(header, 8, [ip.ttl, ip.protocol, 0, 0])?;
    put(header, 12, ip.source.to_be_bytes())?;
    put(header, 16, ip.destination.to_be_bytes())?;
    let sum = checksum(header);
    put(header, CHECKSUM_AT, sum.to_be_bytes())?;
    Ok(at)
}

/// Writes an IPv6 header in front of a payload, with a fragment header for a part of a datagram, and returns its offset. `payload` and
/// `end` are those of the header.
pub(super) fn write_v6(buffer: &mut [u8], ip: &Ip<u128>) -> Result<usize, NatDrop> {
    let extension = match ip.part {
        Some(_) => FRAGMENT_HEADER,
        None => 0,
    };
    let fragment_at = ip.payload.checked_sub(extension);
    let fragment_at = fragment_at.ok_or(NatDrop::Malformed)?;
    let at = fragment_at.checked_sub(IPV6_HEADER_LENGTH);
    let at = at.ok_or(NatDrop::Malformed)?;
    let length = ip.end.saturating_sub(fragment_at);
    let length = u16::try_from(length).map_err(|_| NatDrop::Malformed)?;
    let next = match ip.part {
        Some(_) => IpProtocol::FRAGMENT.0,
        None => ip.protocol,
    };
    // The flow label is 0 (RFC 7915, section 4.1).
    let header = buffer.get_mut(at..).unwrap_or_default();
    put(header, 0, [0x60 | ip.class >> 4, ip.class << 4, 0, 0])?;
    put(header, 4, length.to_be_bytes())?;
    put(header, 6, [next, ip.ttl])?;
    put(header, 8, ip.source.to_be_bytes())?;
    put(header, 24, ip.destination.to_be_bytes())?;
    if let Some(part) = ip.part {
        put(buffer, fragment_at, fragment_header(ip.protocol, &part))?;
    }
    Ok(at)
}

/// Returns a fragment header.
pub(super) fn fragment_header(protocol: u8, part: &Part) -> [u8; FRAGMENT_HEADER] {
    let [high, low] = (part.offset << 3 | u16::from(part.has_more)).to_be_bytes();
    let [a, b, c, d] = part.identification.to_be_bytes();
    [protocol, 0, high, low, a, b, c, d]
}

/// Returns the sum of two IPv4 addresses, as it is in checksums over a pseudo header.
pub(super) fn sum_v4(ip: &Ip<u32>) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&ip.source.to_be_bytes());
    sum.add(&ip.destination.to_be_bytes());
    !sum.finish()
}

/// Returns the sum of two IPv6 addresses, as it is in checksums over a pseudo header.
pub(super) fn sum_v6(ip: &Ip<u128>) -> u16 {
    let mut sum = Checksum::new();
    sum.add(&ip.source.to_be_bytes());
    sum.add(&ip.destination.to_be_bytes());
    !sum.finish()
}

/// Returns the sum of the pseudo header of an IPv6 packet with a payload of `length` octets (RFC 8200, section 8.1).
pub(super) fn pseudo_v6(ip: &Ip<u128>, length: usize) -> Checksum {
    let mut sum = Checksum::new();
    sum.add(&ip.source.to_be_bytes());
    sum.add(&ip.destination.to_be_bytes());
    // The zeros in front of the 32 bits do not change the sum.
    sum.add(&(length as u64).to_be_bytes());
    sum.add(&[0, 0, 0, ip.protocol]);
    sum
}
