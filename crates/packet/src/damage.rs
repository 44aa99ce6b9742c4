// SPDX-License-Identifier: Apache-2.0
//! The ways in which a frame can be damaged.

/// Reason why a frame does not match its own headers. The first damage from the front is reported.
///
/// Only the structure is checked here: whether all headers are present and their lengths fit. Checksums, and values that a
/// router or a host refuses (a TTL of zero, a multicast source address), are checked in later stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u8)]
pub enum Damage {
    /// Fewer than the 14 octets of an Ethernet header.
    #[error("shorter than an Ethernet header")]
    Short,
    /// More than 65,535 octets, which no buffer length field can represent.
    #[error("longer than 65535 octets")]
    TooLong,
    /// Ends within an 802.1Q or 802.1ad tag.
    #[error("ends within a VLAN tag")]
    TruncatedVlan,
    /// Ends within an ARP packet.
    #[error("ends within an ARP packet")]
    TruncatedArp,
    /// Ends within the IPv4 header or its options.
    #[error("ends within the IPv4 header")]
    TruncatedIpv4,
    /// EtherType IPv4 with another version field.
    #[error("EtherType is IPv4 but the version field is not 4")]
    Ipv4VersionLies,
    /// IPv4 header length under five words.
    #[error("IPv4 header length is under 20 octets")]
    Ipv4HeaderLengthLies,
    /// IPv4 total length below the header length or beyond the end of the frame.
    #[error("IPv4 total length does not fit the frame")]
    Ipv4LengthLies,
    /// Ends within the IPv6 header.
    #[error("ends within the IPv6 header")]
    TruncatedIpv6,
    /// EtherType IPv6 with another version field.
    #[error("EtherType is IPv6 but the version field is not 6")]
    Ipv6VersionLies,
    /// IPv6 payload length beyond the end of the frame.
    #[error("IPv6 payload length does not fit the frame")]
    Ipv6LengthLies,
    /// The IPv6 payload ends within an extension header.
    #[error("ends within an IPv6 extension header")]
    TruncatedIpv6Extension,
    /// More than [`crate::IPV6_EXTENSIONS_MAX`] extension headers.
    #[error("has more IPv6 extension headers than are parsed")]
    TooManyIpv6Extensions,
    /// The IP payload ends within the UDP header.
    #[error("ends within the UDP header")]
    TruncatedUdp,
    /// UDP length below the header length or beyond the end of the packet.
    #[error("UDP length does not fit the packet")]
    UdpLengthLies,
    /// The IP payload ends within the TCP header or its options.
    #[error("ends within the TCP header")]
    TruncatedTcp,
    /// TCP data offset under five words.
    #[error("TCP data offset is under 20 octets")]
    TcpOffsetLies,
    /// The IP payload ends within the ICMP header.
    #[error("ends within the ICMP header")]
    TruncatedIcmp,
}

impl Damage {
    /// Number of kinds: the length of an array of counters.
    pub const COUNT: usize = Self::ALL.len();

    /// All kinds, in the order of [`Damage::index`].
    pub const ALL: [Self; 18] = [
        Self::Short,
        Self::TooLong,
        Self::TruncatedVlan,
        Self::TruncatedArp,
        Self::TruncatedIpv4,
        Self::Ipv4VersionLies,
        Self::Ipv4HeaderLengthLies,
        Self::Ipv4LengthLies,
        Self::TruncatedIpv6,
        Self::Ipv6VersionLies,
        Self::Ipv6LengthLies,
        Self::TruncatedIpv6Extension,
        Self::TooManyIpv6Extensions,
        Self::TruncatedUdp,
        Self::UdpLengthLies,
        Self::TruncatedTcp,
        Self::TcpOffsetLies,
        Self::TruncatedIcmp,
    ];

    /// Returns the index of this kind in an array of counters, below [`Damage::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }

    /// Returns the counter name of this kind, in snake case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::TooLong => "too_long",
            Self::TruncatedVlan => "truncated_vlan",
            Self::TruncatedArp => "truncated_arp",
            Self::TruncatedIpv4 => "truncated_ipv4",
            Self::Ipv4VersionLies => "ipv4_version_lies",
            Self::Ipv4HeaderLengthLies => "ipv4_header_length_lies",
            Self::Ipv4LengthLies => "ipv4_length_lies",
            Self::TruncatedIpv6 => "truncated_ipv6",
            Self::Ipv6VersionLies => "ipv6_version_lies",
            Self::Ipv6LengthLies => "ipv6_length_lies",
            Self::TruncatedIpv6Extension => "truncated_ipv6_extension",
            Self::TooManyIpv6Extensions => "too_many_ipv6_extensions",
            Self::TruncatedUdp => "truncated_udp",
            Self::UdpLengthLies => "udp_length_lies",
            Self::TruncatedTcp => "truncated_tcp",
            Self::TcpOffsetLies => "tcp_offset_lies",
            Self::TruncatedIcmp => "truncated_icmp",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_place_and_name() {
        let mut names = std::collections::BTreeSet::new();
        for (place, damage) in Damage::ALL.into_iter().enumerate() {
            assert_eq!(damage.index(), place);
            assert!(names.insert(damage.name()), "{} twice", damage.name());
        }
        assert_eq!(names.len(), Damage::COUNT);
    }
}
