// SPDX-License-Identifier: Apache-2.0
//! UDP (RFC 768), TCP (RFC 9293, section 3.1), ICMP (RFC 792, RFC 4443).

use crate::{Damage, be16, be32};

/// Octets of a UDP header.
pub const UDP_HEADER_LENGTH: usize = 8;
/// Octets of a TCP header without options.
pub const TCP_HEADER_MIN: usize = 20;
/// Offset of the checksum in a UDP header.
pub const UDP_CHECKSUM_OFFSET: usize = 6;
/// Offset of the checksum in a TCP header.
pub const TCP_CHECKSUM_OFFSET: usize = 16;
/// Octets at the start of every ICMP message.
pub const ICMP_HEADER_LENGTH: usize = 4;

/// A UDP header.
#[derive(Clone, Copy, Debug)]
pub struct UdpHeader<'a>(&'a [u8; UDP_HEADER_LENGTH]);

impl<'a> UdpHeader<'a> {
    /// Splits a datagram into the header and all bytes after it. The length field is not checked here: in the first fragment
    /// of a datagram it includes the other fragments. See [`UdpHeader::payload`].
    ///
    /// # Errors
    /// [`Damage::TruncatedUdp`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Damage::TruncatedUdp)?;
        Ok((Self(header), rest))
    }

    /// Returns the payload by the length field; `rest` is the second result of [`UdpHeader::split`]. The IP payload may be
    /// longer than the datagram (RFC 9868); the surplus is excluded.
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

    /// Returns the source port.
    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.0, 0)
    }

    /// Returns the destination port.
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

    /// Returns the checksum; zero means that the sender computed none.
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
    /// Splits a segment into the header and the data.
    ///
    /// # Errors
    /// [`Damage::TruncatedTcp`], [`Damage::TcpOffsetLies`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (fixed, rest) = bytes
            .split_first_chunk::<TCP_HEADER_MIN>()
            .ok_or(Damage::TruncatedTcp)?;
        let options = usize::from(fixed[12] >> 4)
            .saturating_mul(4)
            .checked_sub(TCP_HEADER_MIN)
            .ok_or(Damage::TcpOffsetLies)?;
        let (options, data) = rest.split_at_checked(options).ok_or(Damage::TruncatedTcp)?;
        Ok((Self { fixed, options }, data))
    }

    /// Returns the source port.
    #[must_use]
    #[inline]
    pub fn source_port(&self) -> u16 {
        be16(self.fixed, 0)
    }

    /// Returns the destination port.
    #[must_use]
    #[inline]
    pub fn destination_port(&self) -> u16 {
        be16(self.fixed, 2)
    }

    /// Returns the sequence number of the first octet.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        be32(self.fixed, 4)
    }

    /// Returns the next sequence number that the sender expects.
    #[must_use]
    pub fn acknowledgement(&self) -> u32 {
        be32(self.fixed, 8)
    }

    /// Returns the control bits from CWR (0x80) to FIN (0x01).
    #[must_use]
    #[inline]
    pub fn flags(&self) -> u8 {
        self.fixed[13]
    }

    /// Returns the window, unscaled.
    #[must_use]
    pub fn window(&self) -> u16 {
        be16(self.fixed, 14)
    }

    /// Returns the checksum, unverified.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.fixed, 16)
    }

    /// Returns the options unparsed, padding included.
    #[must_use]
    pub fn options(&self) -> &'a [u8] {
        self.options
    }

    /// Octets of the header with its options, 20 to 60.
    #[must_use]
    pub fn length(&self) -> usize {
        self.options.len().saturating_add(TCP_HEADER_MIN)
    }
}

/// Header common to all ICMP messages, for IPv4 and for IPv6.
#[derive(Clone, Copy, Debug)]
pub struct IcmpHeader<'a>(&'a [u8; ICMP_HEADER_LENGTH]);

impl<'a> IcmpHeader<'a> {
    /// Splits a message into the header and the rest.
    ///
    /// # Errors
    /// [`Damage::TruncatedIcmp`].
    #[inline]
    pub fn split(bytes: &'a [u8]) -> Result<(Self, &'a [u8]), Damage> {
        let (header, rest) = bytes.split_first_chunk().ok_or(Damage::TruncatedIcmp)?;
        Ok((Self(header), rest))
    }

    /// Returns the type of the message.
    #[must_use]
    #[inline]
    pub fn kind(&self) -> u8 {
        self.0[0]
    }

    /// Returns the code within the type.
    #[must_use]
    #[inline]
    pub fn code(&self) -> u8 {
        self.0[1]
    }

    /// Returns the checksum, unverified.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        be16(self.0, 2)
    }
}
