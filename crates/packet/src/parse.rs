// SPDX-License-Identifier: Apache-2.0
//! Parser of a frame in one pass: its protocols and the offsets of its parts.

use crate::ethernet::{Untagged, split_tags};
use crate::{
    ArpPacket, Damage, EtherType, EthernetHeader, Fragment, IcmpHeader, IpProtocol, Ipv4Header,
    Ipv6Header, MacAddress, TcpHeader, UdpHeader, VLAN_TAGS_MAX, VlanTag, walk_ipv6_extensions,
};

/// Maximum length of a parsed frame, octets: every offset fits 16 bits.
pub const FRAME_MAX: usize = u16::MAX as usize;

/// Protocols and offsets of a parsed frame. Offsets are octets from the start of the frame and never beyond its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// VLAN tags, outermost first; the second is present only with the first.
    pub tags: [Option<VlanTag>; VLAN_TAGS_MAX],
    /// Type after the tags. With more than [`VLAN_TAGS_MAX`] tags, it is that of a tag.
    pub ethertype: EtherType,
    /// Offset of the Ethernet payload, octets: the IP header or the ARP packet, if it is one of these.
    pub network_offset: u16,
    /// Kind of the payload.
    pub network: Network,
}

/// Kind of an Ethernet payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Anything else, including 802.3 frames with LLC and ARP other than for IPv4 over Ethernet.
    Other,
    /// ARP for IPv4 over Ethernet.
    Arp,
    /// IPv4.
    Ipv4(Ip),
    /// IPv6.
    Ipv6(Ip),
}

/// Payload of an IP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Protocol of the payload, after options and extension headers.
    pub protocol: IpProtocol,
    /// Part of a datagram that the packet carries.
    pub fragment: Fragment,
    /// Offset of the payload of IP from the start of the frame, octets.
    pub transport_offset: u16,
    /// Offset of the end of the IP packet by its own length, octets; padding may follow.
    pub end: u16,
    /// Kind of the payload.
    pub transport: Transport,
}

/// Kind of an IP payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Anything else, and the payload of a later fragment.
    Other,
    /// UDP.
    Udp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
    },
    /// TCP.
    Tcp {
        /// Source port.
        source_port: u16,
        /// Destination port.
        destination_port: u16,
        /// Control bits from CWR (0x80) to FIN (0x01).
        flags: u8,
    },
    /// ICMP in IPv4, ICMPv6 in IPv6.
    Icmp {
        /// Type of the message.
        kind: u8,
        /// Code within the type.
        code: u8,
    },
}

impl Parsed {
    /// Returns the parts of the IP packet, of either version.
    #[must_use]
    #[inline]
    pub const fn ip(&self) -> Option<&Ip> {
        match &self.network {
            Network::Ipv4(ip) | Network::Ipv6(ip) => Some(ip),
            Network::Arp | Network::Other => None,
        }
    }

    /// Returns a view of the IPv4 header. `frame` must be the parsed frame; with another one, the result describes that one
    /// or is `None`.
    #[must_use]
    #[inline]
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<Ipv4Header<'a>> {
        match self.network {
            Network::Ipv4(_) => Some(Ipv4Header::split(self.payload(frame)?).ok()?.0),
            _ => None,
        }
    }

    /// Returns a view of the IPv6 header; `frame` as for [`Parsed::ipv4`].
    #[must_use]
    #[inline]
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<Ipv6Header<'a>> {
        match self.network {
            Network::Ipv6(_) => Some(Ipv6Header::split(self.payload(frame)?).ok()?.0),
            _ => None,
        }
    }

    /// Returns a view of the ARP packet; `frame` as for [`Parsed::ipv4`].
    #[must_use]
    pub fn arp<'a>(&self, frame: &'a [u8]) -> Option<ArpPacket<'a>> {
        match self.network {
            Network::Arp => ArpPacket::read(self.payload(frame)?).ok()?,
            _ => None,
        }
    }

    fn payload<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        frame.get(usize::from(self.network_offset)..)
    }
}

/// Parses a frame. Reads each header once, allocates nothing, and takes a bounded number of steps for any input.
///
/// # Errors
/// The first [`Damage`] from the front.
#[inline]
pub fn parse(frame: &[u8]) -> Result<Parsed, Damage> {
    if frame.len() > FRAME_MAX {
        return Err(Damage::TooLong);
    }
    let (ethernet, rest) = EthernetHeader::split(frame)?;
    let Untagged {
        tags,
        ethertype,
        payload,
    } = split_tags(ethernet.ethertype(), rest)?;
    let network_offset = frame.len().saturating_sub(payload.len());
    let network = match ethertype {
        EtherType::IPV4 => Network::Ipv4(parse_ipv4(network_offset, payload)?),
        EtherType::IPV6 => Network::Ipv6(parse_ipv6(network_offset, payload)?),
        EtherType::ARP if ArpPacket::read(payload)?.is_some() => Network::Arp,
        _ => Network::Other,
    };
    Ok(Parsed {
        destination: ethernet.destination(),
        source: ethernet.source(),
        tags,
        ethertype,
        network_offset: offset(network_offset),
        network,
    })
}

#[inline]
fn parse_ipv4(network_offset: usize, bytes: &[u8]) -> Result<Ip, Damage> {
    let (header, payload) = Ipv4Header::split(bytes)?;
    let transport_offset = network_offset.saturating_add(header.length());
    Ok(Ip {
        protocol: header.protocol(),
        fragment: header.fragment(),
        transport_offset: offset(transport_offset),
        end: offset(transport_offset.saturating_add(payload.len())),
        transport: parse_transport(
            header.protocol(),
            header.fragment(),
            IpProtocol::ICMP,
            payload,
        )?,
    })
}

#[inline]
fn parse_ipv6(network_offset: usize, bytes: &[u8]) -> Result<Ip, Damage> {
    let (header, payload) = Ipv6Header::split(bytes)?;
    let walked = walk_ipv6_extensions(header.next_header(), payload)?;
    let payload_offset = network_offset.saturating_add(crate::IPV6_HEADER_LENGTH);
    Ok(Ip {
        protocol: walked.protocol,
        fragment: walked.fragment,
        transport_offset: offset(payload_offset.saturating_add(walked.length)),
        end: offset(payload_offset.saturating_add(payload.len())),
        transport: parse_transport(
            walked.protocol,
            walked.fragment,
            IpProtocol::ICMPV6,
            payload.get(walked.length..).unwrap_or_default(),
        )?,
    })
}

/// Parses the transport header. `icmp` is the protocol number of ICMP for this version of IP; the other number has no
/// meaning in it.
#[inline]
fn parse_transport(
    protocol: IpProtocol,
    fragment: Fragment,
    icmp: IpProtocol,
    bytes: &[u8],
) -> Result<Transport, Damage> {
    if fragment == Fragment::Later {
        return Ok(Transport::Other);
    }
    match protocol {
        IpProtocol::UDP => {
            let (header, rest) = UdpHeader::split(bytes)?;
            // The UDP length of a fragmented datagram covers all fragments.
            if fragment == Fragment::Whole {
                header.payload(rest)?;
            }
            Ok(Transport::Udp {
                source_port: header.source_port(),
                destination_port: header.destination_port(),
            })
        }
        IpProtocol::TCP => {
            let (header, _) = TcpHeader::split(bytes)?;
            Ok(Transport::Tcp {
                source_port: header.source_port(),
                destination_port: header.destination_port(),
                flags: header.flags(),
            })
        }
        _ if protocol == icmp => {
            let (header, _) = IcmpHeader::split(bytes)?;
            Ok(Transport::Icmp {
                kind: header.kind(),
                code: header.code(),
            })
        }
        _ => Ok(Transport::Other),
    }
}

/// Converts an offset into a frame of at most [`FRAME_MAX`] octets, so the cast loses nothing.
#[inline]
#[expect(
    clippy::cast_possible_truncation,
    reason = "parse refuses frames above FRAME_MAX; a check here would slow down every frame"
)]
const fn offset(octets: usize) -> u16 {
    debug_assert!(octets <= FRAME_MAX);
    octets as u16
}
