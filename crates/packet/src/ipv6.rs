// SPDX-License-Identifier: Apache-2.0
//! IPv6 header (RFC 8200, section 3) and a bounded walk over extension headers (section 4).

use std::net::Ipv6Addr;

use crate::{Damage, Fragment, IpProtocol, be16, be32};

/// Octets of the IPv6 header without extension headers.
pub const IPV6_HEADER_LENGTH: usize = 40;
/// Maximum number of extension headers; a packet with more counts as damaged. RFC 8200, section 4.1, allows at most seven,
/// and the limit bounds the cost of a hostile packet.
pub const IPV6_EXTENSIONS_MAX: usize = 8;

/// An IPv6 header whose payload length fits the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6Header<'a>(&'a [u8; IPV6_HEADER_LENGTH]);

impl<'a> Ipv6Header<'a> {
    /// Splits a packet into the header and the payload (extension headers included), which ends at the packet's payload
    /// length: padding after it is excluded. The payload of a jumbogram (RFC 2675), whose length field is zero, is empty:
    /// jumbograms are not supported.
    ///
    /// # Errors
    /// [`Damage::TruncatedIpv6`], [`Damage::Ipv6VersionLies`], [`Damage::Ipv6LengthLies`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = bytes
            .split_first_chunk::<IPV6_HEADER_LENGTH>()
            .ok_or(Damage::TruncatedIpv6)?;
        if header[0] >> 4 != 6 {
            return Err(Damage::Ipv6VersionLies);
        }
        let payload = rest
            .get(..usize::from(be16(header, 4)))
            .ok_or(Damage::Ipv6LengthLies)?;
        Ok((Self(header), payload))
    }

    /// Octets after this header.
    #[must_use]
    pub fn payload_length(&self) -> u16 {
        be16(self.0, 4)
    }

    /// Returns the traffic class: DSCP in the upper six bits, ECN in the lower two.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.0[0] << 4 | self.0[1] >> 4
    }

    /// Returns the flow label, 20 bits (RFC 6437).
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        be32(self.0, 0) & 0x000f_ffff
    }

    /// Returns the type of the next header: an extension header or the transport.
    #[must_use]
    #[inline]
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.0[6])
    }

    /// Returns the hop limit.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.0[7]
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        self.address::<8>()
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        self.address::<24>()
    }

    fn address<const AT: usize>(&self) -> Ipv6Addr {
        let word = |at: usize| u64::from(be32(self.0, AT.saturating_add(at)));
        let high = word(0) << 32 | word(4);
        let low = word(8) << 32 | word(12);
        (u128::from(high) << 64 | u128::from(low)).into()
    }
}

/// End of a walk over extension headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Extensions {
    /// Type of what follows the last header walked; in a later fragment, that of the whole datagram.
    pub protocol: IpProtocol,
    /// Offset of the field that holds `protocol`, octets from the start of the IPv6 header, whose own field is at 6.
    pub protocol_at: usize,
    /// Total length of the headers walked, octets: at most [`IPV6_EXTENSIONS_MAX`] times 2048.
    pub length: usize,
    /// Part of a datagram.
    pub fragment: Fragment,
}

/// Walks over the extension headers at the start of `payload`, the first of which is of type `protocol`. The walk ends
/// before anything that is not an extension header of known length (including encrypted payload), and after the fragment
/// header of a later fragment.
///
/// # Errors
/// [`Damage::TruncatedIpv6Extension`], [`Damage::TooManyIpv6Extensions`].
#[inline]
pub fn walk_ipv6_extensions(
    mut protocol: IpProtocol,
    payload: &[u8],
) -> Result<Ipv6Extensions, Damage> {
    let mut length = 0usize;
    let mut protocol_at = 6;
    let mut fragment = Fragment::Whole;
    for walked in 0.. {
        let done = Ipv6Extensions {
            protocol,
            protocol_at,
            length,
            fragment,
        };
        if fragment == Fragment::Later || !is_extension(protocol) {
            return Ok(done);
        }
        if walked == IPV6_EXTENSIONS_MAX {
            break;
        }
        let rest = payload.get(length..).unwrap_or_default();
        let header = rest
            .first_chunk::<8>()
            .ok_or(Damage::TruncatedIpv6Extension)?;
        let units = usize::from(header[1]);
        let octets = match protocol {
            IpProtocol::FRAGMENT => 8,
            // RFC 4302, section 2.2: in words of four octets, less two.
            IpProtocol::AUTHENTICATION => units.saturating_add(2).saturating_mul(4),
            _ => units.saturating_add(1).saturating_mul(8),
        };
        if octets > rest.len() {
            return Err(Damage::TruncatedIpv6Extension);
        }
        if protocol == IpProtocol::FRAGMENT {
            fragment = Fragment::from_fields(be16(header, 2) >> 3, header[3] & 1 != 0);
        }
        protocol = IpProtocol(header[0]);
        protocol_at = IPV6_HEADER_LENGTH.saturating_add(length);
        length = length.saturating_add(octets);
    }
    Err(Damage::TooManyIpv6Extensions)
}

#[inline]
const fn is_extension(protocol: IpProtocol) -> bool {
    matches!(
        protocol,
        IpProtocol::HOP_BY_HOP
            | IpProtocol::ROUTING
            | IpProtocol::FRAGMENT
            | IpProtocol::AUTHENTICATION
            | IpProtocol::DESTINATION_OPTIONS
            | IpProtocol::MOBILITY
            | IpProtocol::HOST_IDENTITY
            | IpProtocol::SHIM6
    )
}
