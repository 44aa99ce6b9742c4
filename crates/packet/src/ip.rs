// SPDX-License-Identifier: Apache-2.0
//! Types that IPv4 and IPv6 share.

use std::fmt;

/// Protocol number of an IP payload (IANA "Assigned Internet Protocol Numbers").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// IPv6 hop-by-hop options (RFC 8200, section 4.3).
    pub const HOP_BY_HOP: Self = Self(0);
    /// ICMP for IPv4.
    pub const ICMP: Self = Self(1);
    /// TCP.
    pub const TCP: Self = Self(6);
    /// UDP.
    pub const UDP: Self = Self(17);
    /// IPv6 routing header (RFC 8200, section 4.4).
    pub const ROUTING: Self = Self(43);
    /// IPv6 fragment header (RFC 8200, section 4.5).
    pub const FRAGMENT: Self = Self(44);
    /// Authentication header (RFC 4302).
    pub const AUTHENTICATION: Self = Self(51);
    /// ICMP for IPv6.
    pub const ICMPV6: Self = Self(58);
    /// No next header (RFC 8200, section 4.7).
    pub const NOTHING: Self = Self(59);
    /// IPv6 destination options (RFC 8200, section 4.6).
    pub const DESTINATION_OPTIONS: Self = Self(60);
    /// Mobility header (RFC 6275, section 6.1).
    pub const MOBILITY: Self = Self(135);
    /// Host identity protocol (RFC 7401, section 5.1).
    pub const HOST_IDENTITY: Self = Self(139);
    /// Shim6 (RFC 5533, section 5.1).
    pub const SHIM6: Self = Self(140);
}

impl fmt::Display for IpProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Part of a datagram that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fragment {
    /// The whole datagram.
    Whole,
    /// The first fragment, with the transport header.
    First,
    /// A later fragment, without the transport header.
    Later,
}

impl Fragment {
    /// Returns the part for a fragment offset, in any unit, and the more-fragments flag.
    #[inline]
    pub(crate) const fn from_fields(offset: u16, more: bool) -> Self {
        match (offset, more) {
            (0, false) => Self::Whole,
            (0, true) => Self::First,
            _ => Self::Later,
        }
    }
}
