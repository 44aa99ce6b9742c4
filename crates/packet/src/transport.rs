// SPDX-License-Identifier: Apache-2.0
//! UDP (RFC 768), TCP (RFC 9293, section 3.1), ICMP (RFC 792, RFC 4443).

use crate::{Damage, be16, be32};

/// Octets of a UDP header.
pub const UDP_HEADER_LENGTH: usize = 8;
/// Octets of a TCP header without options.
pub const TCP_HEADER_MIN: usize = 20;
/// Octets that every ICMP message begins with.
pub const ICMP_HEADER_LENGTH: usize = 4;

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct UdpHeader<'a>(&'a [u8; UDP_HEADER_LENGTH]);

impl<'a> UdpHeader<'a> {
    /// The header, and all bytes behind it. Its length field is not judged here: in the first fragment of a datagram
    /// it counts bytes that are not there. See [`UdpHeader::payload`].
    ///
    /// # Errors
    /// [`Damage::TruncatedUdp`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Damage::TruncatedUdp)?;
        Ok((Self(header), rest))
    }

    /// The payload as its length field has it; `rest` is what [`UdpHeader::split`] gave. IP payload may be longer
    /// than the datagram (RFC 9868); what is behind it is left out.
    ///
    /// # Errors
    /// [`Damage::UdpLengthLies`].
    #[inline]
    pub fn payload<'b>(&self, rest: &'b [u8]) -> Result<&'b [u8], Damage> {
        usize::from(self.length())
            .checked_sub(UDP_HEADER_LENGTH)
            .and_then(|length| rest.get(..length))
            .ok_or(Damage::UdpLengthLies)
    }

    /// Source port.
    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Destination port.
    #[must_use]
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.0, 2)
    }

    /// Octets of header and payload.
    #[must_use]
    #[inline]
    pub fn length(&self) -> u16 {
        be16(self.0, 4)
    }

    /// Checksum; zero means that the sender made none.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.0, 6)
    }
}

/// A TCP header.
#[derive(Clone, Copy, Debug)]
pub struct TcpHeader<'a> {
    fixed: &'a [u8; TCP_HEADER_MIN],
    options: &'a [u8],
}

impl<'a> TcpHeader<'a> {
    /// The header, and the segment's data.
    ///
    /// # Errors
    /// [`Damage::TruncatedTcp`], [`Damage::TcpOffsetLies`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (fixed, rest) = bytes
            .split_first_chunk::<TCP_HEADER_MIN>()
            .ok_or(Damage::TruncatedTcp)?;
        let options = (usize::from(fixed[12] >> 4) * 4)
            .checked_sub(TCP_HEADER_MIN)
            .ok_or(Damage::TcpOffsetLies)?;
        let (options, data) = rest.split_at_checked(options).ok_or(Damage::TruncatedTcp)?;
        Ok((Self { fixed, options }, data))
    }

    /// Source port.
    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.fixed, 0)
    }

    /// Destination port.
    #[must_use]
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Sequence number of the first octet.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        be32(self.fixed, 4)
    }

    /// Next sequence number that the sender expects.
    #[must_use]
    pub fn acknowledgement(&self) -> u32 {
        be32(self.fixed, 8)
    }

    /// Control bits from CWR (0x80) to FIN (0x01).
    #[must_use]
    #[inline]
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// Window, unscaled.
    #[must_use]
    pub fn window(&self) -> u16 {
        be16(self.fixed, 14)
    }

    /// Checksum as it stands.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 16)
    }

    /// Options as they stand, padding included.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Octets of the header with its options, 20 to 60.
    #[must_use]
    pub fn length(&self) -> usize {
        TCP_HEADER_MIN + self.options.len()
    }
}

/// What every message of ICMP begins with, for IPv4 and for IPv6.
#[derive(Clone, Copy, Debug)]
pub struct IcmpHeader<'a>(&'a [u8; ICMP_HEADER_LENGTH]);

impl<'a> IcmpHeader<'a> {
    /// The header, and the rest of the message.
    ///
    /// # Errors
    /// [`Damage::TruncatedIcmp`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Damage::TruncatedIcmp)?;
        Ok((Self(header), rest))
    }

    /// Type of the message.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    /// Code within the type.
    #[must_use]
    #[inline]
    pub fn code(&self) -> u8 {
        self.0[1]
    }

    /// Checksum as it stands.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.0, 2)
    }
}
