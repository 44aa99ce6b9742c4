// SPDX-License-Identifier: Apache-2.0
//! One pass over a frame: what it is, and where its parts begin.

use crate::ethernet::{Untagged, split_tags};
use crate::{
    ArpPacket, Damage, EtherType, EthernetHeader, Fragment, IcmpHeader, IpProtocol, Ipv4Header,
    Ipv6Header, MacAddress, TcpHeader, UdpHeader, VLAN_TAGS_MAX, VlanTag, walk_ipv6_extensions,
};

/// Octets of the longest frame that is parsed: every offset fits 16 bits.
pub const FRAME_MAX: usize = u16::MAX as usize;

/// What a frame is. Offsets count octets from the start of the frame and never lie behind its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// Destination address.
    pub destination: MacAddress,
    /// Source address.
    pub source: MacAddress,
    /// VLAN tags, outermost first; a second one only with a first.
    pub tags: [Option<VlanTag>; VLAN_TAGS_MAX],
    /// Type behind the tags. With more than [`VLAN_TAGS_MAX`] tags it is that of a tag.
    pub ethertype: EtherType,
    /// Where the payload of Ethernet begins: the IP header or the ARP packet, where it is one of these.
    pub network_offset: u16,
    /// What the payload is.
    pub network: Network,
}

/// What the payload of Ethernet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// Anything else, 802.3 frames with LLC and ARP for other than IPv4 over Ethernet included.
    Other,
    /// ARP for IPv4 over Ethernet.
    Arp,
    /// IPv4.
    Ipv4(Ip),
    /// IPv6.
    Ipv6(Ip),
}

/// What an IP packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Protocol of the payload, behind options and extension headers.
    pub protocol: IpProtocol,
    /// Which part of a datagram this is.
    pub fragment: Fragment,
    /// Where the payload begins.
    pub transport_offset: u16,
    /// Where the IP packet ends, by its own length; what is behind is padding.
    pub end: u16,
    /// What the payload is.
    pub transport: Transport,
}

/// What the payload of IP is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Anything else, and whatever a later fragment carries.
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
    /// The IP packet's parts, of either version.
    #[must_use]
    #[inline]
    pub const fn ip(&self) -> Option<&Ip> {
        match &self.network {
            Network::Ipv4(ip) | Network::Ipv6(ip) => Some(ip),
            Network::Arp | Network::Other => None,
        }
    }

    /// View of the IPv4 header. `frame` must be the one that was parsed; with another the answer is about that one, or
    /// None.
    #[must_use]
    #[inline]
    pub fn ipv4<'a>(&self, frame: &'a [u8]) -> Option<Ipv4Header<'a>> {
        match self.network {
            Network::Ipv4(_) => Some(Ipv4Header::split(self.payload(frame)?).ok()?.0),
            _ => None,
        }
    }

    /// View of the IPv6 header; `frame` as for [`Parsed::ipv4`].
    #[must_use]
    #[inline]
    pub fn ipv6<'a>(&self, frame: &'a [u8]) -> Option<Ipv6Header<'a>> {
        match self.network {
            Network::Ipv6(_) => Some(Ipv6Header::split(self.payload(frame)?).ok()?.0),
            _ => None,
        }
    }

    /// View of the ARP packet; `frame` as for [`Parsed::ipv4`].
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

/// Says what `frame` is, or how it is damaged. Reads each header once, allocates nothing, and takes a bounded number
/// of steps whatever the bytes are.
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
    let network_offset = frame.len() - payload.len();
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
    let transport_offset = network_offset + header.length();
    Ok(Ip {
        protocol: header.protocol(),
        fragment: header.fragment(),
        transport_offset: offset(transport_offset),
        end: offset(transport_offset + payload.len()),
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
    let payload_offset = network_offset + crate::IPV6_HEADER_LENGTH;
    Ok(Ip {
        protocol: walked.protocol,
        fragment: walked.fragment,
        transport_offset: offset(payload_offset + walked.length),
        end: offset(payload_offset + payload.len()),
        transport: parse_transport(
            walked.protocol,
            walked.fragment,
            IpProtocol::ICMPV6,
            payload.get(walked.length..).unwrap_or_default(),
        )?,
    })
}

/// `icmp` is the number of the ICMP that goes with the version of IP; the other one means nothing in it.
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
            // The length of a datagram in fragments is that of all of them.
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

/// An offset into a frame of at most [`FRAME_MAX`] octets, which is why the cast loses nothing.
#[inline]
const fn offset(octets: usize) -> u16 {
    debug_assert!(octets <= FRAME_MAX);
    octets as u16
}
