// SPDX-License-Identifier: Apache-2.0
//! IPv4 header (RFC 791, section 3.1).

use std::net::Ipv4Addr;

use crate::{Checksum, Damage, Fragment, IpProtocol, be16, be32, be32_at};

/// Octets of an IPv4 header without options.
pub const IPV4_HEADER_MIN: usize = 20;

/// Offset of the source address in the header, octets.
pub const IPV4_SOURCE_AT: usize = 12;
/// Offset of the destination address in the header, octets.
pub const IPV4_DESTINATION_AT: usize = 16;

/// Returns the address at this offset of a packet, as a number. `None` if the packet ends before.
#[inline(always)]
#[must_use]
pub fn ipv4_address_at(packet: &[u8], at: usize) -> Option<u32> {
    be32_at(packet, at)
}

/// An IPv4 header whose lengths fit the bytes that it was read from.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4Header<'a> {
    fixed: &'a [u8; IPV4_HEADER_MIN],
    options: &'a [u8],
}

impl<'a> Ipv4Header<'a> {
    /// Splits a packet into the header and the payload, which ends at the packet's total length: padding after it is
    /// excluded.
    ///
    /// # Errors
    /// [`Damage::TruncatedIpv4`], [`Damage::Ipv4VersionLies`], [`Damage::Ipv4HeaderLengthLies`],
    /// [`Damage::Ipv4LengthLies`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let fixed = bytes
            .first_chunk::<IPV4_HEADER_MIN>()
            .ok_or(Damage::TruncatedIpv4)?;
        if fixed[0] >> 4 != 4 {
            return Err(Damage::Ipv4VersionLies);
        }
        let header_length = usize::from(fixed[0] & 0x0f).saturating_mul(4);
        if header_length < IPV4_HEADER_MIN {
            return Err(Damage::Ipv4HeaderLengthLies);
        }
        let options = bytes
            .get(IPV4_HEADER_MIN..header_length)
            .ok_or(Damage::TruncatedIpv4)?;
        let payload = bytes
            .get(header_length..usize::from(be16(fixed, 2)))
            .ok_or(Damage::Ipv4LengthLies)?;
        Ok((Self { fixed, options }, payload))
    }

    /// Octets of the header with its options, 20 to 60.
    #[must_use]
    #[inline]
    pub fn length(&self) -> usize {
        self.options.len().saturating_add(IPV4_HEADER_MIN)
    }

    /// Returns the options unparsed, padding included.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Octets of the whole packet, header included.
    #[must_use]
    pub fn total_length(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Returns the differentiated services code point, 0 to 63 (RFC 2474, section 3).
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.fixed[1] >> 2
    }

    /// Returns the explicit congestion notification field, 0 to 3 (RFC 3168, section 5).
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.fixed[1] & 0x03
    }

    /// Returns the identification of the datagram that fragments belong to.
    #[must_use]
    pub fn identification(&self) -> u16 {
        be16(self.fixed, 4)
    }

    /// Returns true if routers must not fragment the packet.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.fixed[6] & 0x40 != 0
    }

    /// Returns which part of a datagram this is.
    #[must_use]
    #[inline]
    pub fn fragment(&self) -> Fragment {
        Fragment::from_fields(be16(self.fixed, 6) & 0x1fff, self.fixed[6] & 0x20 != 0)
    }

    /// Returns the time to live, hops.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.fixed[8]
    }

    /// Returns the protocol of the payload.
    #[must_use]
    #[inline]
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }

    /// Returns the header checksum, unverified.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 10)
    }

    /// Returns true if the header checksum is correct. A router must check it (RFC 1812, section 5.2.2), a bridge need not.
    #[must_use]
    pub fn checksum_is_right(&self) -> bool {
        let mut sum = Checksum::new();
        sum.add(self.fixed);
        sum.add(self.options);
        sum.finish() == 0
    }

    /// Returns the source address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> Ipv4Addr {
        be32(self.fixed, IPV4_SOURCE_AT).into()
    }

    /// Returns the destination address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> Ipv4Addr {
        be32(self.fixed, IPV4_DESTINATION_AT).into()
    }
}
