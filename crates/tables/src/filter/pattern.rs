// SPDX-License-Identifier: Apache-2.0
//! Compiled packet matches, and the headers they are compared with.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;
use quietwire_packet::{
    ETHERNET_HEADER_LENGTH, EtherType, Fragment, IpProtocol, VLAN_TAG_LENGTH, walk_ipv6_extensions,
};

use super::packet::{self, PacketMatch, Ports};
use crate::classifier::Key;

/// EtherTypes of IP.
pub(super) const IPV4: u16 = EtherType::IPV4.0;
pub(super) const IPV6: u16 = EtherType::IPV6.0;
pub(super) const IPV4_HEADER: usize = 20;
pub(super) const IPV6_HEADER: usize = 40;
/// Maximum number of tags to skip.
pub(super) const TAGS_MAX: usize = 2;
/// Length of both MAC addresses.
pub(super) const ADDRESSES: usize = 12;

/// Compiled [`PacketMatch`]: numbers only, so that most comparisons end after a word or two.
#[derive(Clone, Copy, Debug)]
pub struct Pattern {
    /// EtherType, or [`ANY`].
    ethertype: u32,
    protocol: u32,
    /// Address bits and mask. IPv4 addresses are mapped as in RFC 4291, section 2.5.5.2.
    source: (u128, u128),
    destination: (u128, u128),
    source_ports: (u16, u16),
    destination_ports: (u16, u16),
    needs_addresses: bool,
    needs_ports: bool,
}

const ANY: u32 = u32::MAX;

/// Parsed headers of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Headers {
    ethertype: u32,
    /// Protocol, or [`ANY`] if there is none: it matches only patterns without a protocol.
    protocol: u32,
    /// Addresses; `None` if the packet is not IP, or truncated within its header.
    addresses: Option<(u128, u128)>,
    ports: Option<(u16, u16)>,
}

fn mapped(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// Returns address bits and mask of a prefix.
fn bits_of(prefix: Option<IpNet>) -> (u128, u128) {
    let Some(prefix) = prefix else {
        return (0, 0);
    };
    let beyond = u32::from(prefix.max_prefix_len().saturating_sub(prefix.prefix_len()));
    // The mask of a.b.c.d/0 still contains the bits that make it an IPv4 address.
    let mask = u128::MAX.checked_shl(beyond).unwrap_or(0);
    (mapped(prefix.addr()) & mask, mask)
}

impl Pattern {
    /// Compiles a match.
    pub fn new(asked: &PacketMatch) -> Self {
        let range = |ports: Option<Ports>| ports.map_or((0, u16::MAX), |one| (one.first, one.last));
        let prefix = asked.source.or(asked.destination);
        let ethertype = prefix.map(|prefix| match prefix {
            IpNet::V4(_) => IPV4,
            IpNet::V6(_) => IPV6,
        });
        Self {
            ethertype: ethertype
                .or(asked.ethertype.map(|ethertype| ethertype.0))
                .map_or(ANY, u32::from),
            protocol: asked.protocol.map_or(ANY, |protocol| u32::from(protocol.0)),
            source: bits_of(asked.source),
            destination: bits_of(asked.destination),
            source_ports: range(asked.source_port),
            destination_ports: range(asked.destination_port),
            needs_addresses: prefix.is_some(),
            needs_ports: asked.source_port.is_some() || asked.destination_port.is_some(),
        }
    }

    #[inline(always)]
    /// Returns true if the packet matches.
    pub fn matches(&self, headers: &Headers) -> bool {
        let is = |asked: u32, is: u32| asked == ANY || asked == is;
        let within = |address: u128, (bits, mask): (u128, u128)| address & mask == bits;
        let among = |port: u16, (first, last): (u16, u16)| (first..=last).contains(&port);
        is(self.ethertype, headers.ethertype)
            && is(self.protocol, headers.protocol)
            && (!self.needs_addresses
                || headers.addresses.is_some_and(|(from, to)| {
                    within(to, self.destination) && within(from, self.source)
                }))
            && (!self.needs_ports
                || headers.ports.is_some_and(|(from, to)| {
                    among(from, self.source_ports) && among(to, self.destination_ports)
                }))
    }
}

/// Returns the octets behind a frame's tags, from the EtherType on, and the VLAN of the outermost tag (IEEE 802.1Q, table 9-1: customer and
/// service tags).
#[inline(always)]
pub(crate) fn after_tags(frame: &[u8]) -> Option<(Option<u16>, &[u8])> {
    let mut vlan = None;
    let mut rest = frame.get(ADDRESSES..)?;
    for _ in 0..TAGS_MAX {
        let Some([a, b, c, d]) = rest.first_chunk::<VLAN_TAG_LENGTH>() else {
            break;
        };
        if !matches!([*a, *b], [0x81, 0x00] | [0x88, 0xa8]) {
            break;
        }
        vlan = vlan.or(Some(u16::from_be_bytes([*c, *d]) & 0xfff));
        rest = rest.get(VLAN_TAG_LENGTH..)?;
    }
    Some((vlan, rest))
}

impl Headers {
    /// No header.
    pub const NOTHING: Self = Self {
        ethertype: ANY,
        protocol: ANY,
        addresses: None,
        ports: None,
    };

    /// Returns the headers as a key of the classifier, with the VLAN of the outermost tag.
    #[inline(always)]
    pub(super) fn key(&self, vlan: Option<u16>) -> Key {
        let mut key = Key::EMPTY;
        if let Some(vlan) = vlan {
            key.set_vlan(vlan);
        }
        if let Ok(ethertype) = u16::try_from(self.ethertype) {
            key.set_ethertype(ethertype);
        }
        if let Some((source, destination)) = self.addresses {
            match self.ethertype == u32::from(IPV4) {
                // An IPv4 address is in the last 32 bits.
                true => key.set_ipv4(
                    (source & 0xffff_ffff) as u32,
                    (destination & 0xffff_ffff) as u32,
                ),
                false => key.set_ipv6(source, destination),
            }
        }
        if let Ok(protocol) = u8::try_from(self.protocol) {
            key.set_protocol(protocol);
        }
        if let Some((source, destination)) = self.ports {
            key.set_ports(source, destination);
        }
        key
    }

    /// Parses a frame without tags; `None` if it is shorter than its header.
    #[inline(always)]
    pub fn of_untagged(frame: &[u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
        let [.., a, b] = *ethernet;
        Some(Self::read(u16::from_be_bytes([a, b]), packet))
    }

    /// Parses the octets from the EtherType on; `None` if there is no EtherType.
    #[inline(always)]
    pub fn from_ethertype_on(octets: &[u8]) -> Option<Self> {
        let ([a, b], packet) = octets.split_first_chunk::<2>()?;
        Some(Self::read(u16::from_be_bytes([*a, *b]), packet))
    }

    #[inline(always)]
    fn read(ethertype: u16, packet: &[u8]) -> Self {
        let mut headers = Self {
            ethertype: u32::from(ethertype),
            protocol: ANY,
            addresses: None,
            ports: None,
        };
        // Truncation keeps the headers parsed so far.
        let _ = match ethertype {
            IPV4 => headers.read_v4(packet),
            IPV6 => headers.read_v6(packet),
            _ => None,
        };
        headers
    }

    #[inline(always)]
    fn read_v4(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<IPV4_HEADER>()?;
        let [first, .., a, b, c, d, e, f, g, h] = *header;
        let length = usize::from(first & 0xf).saturating_mul(4);
        if first >> 4 != 4 || length < IPV4_HEADER {
            return None;
        }
        let source = mapped(IpAddr::from([a, b, c, d]));
        self.addresses = Some((source, mapped(IpAddr::from([e, f, g, h]))));
        self.protocol = u32::from(header[9]);
        // Only the first fragment of a datagram has ports.
        if u16::from_be_bytes([header[6], header[7]]) & 0x1fff == 0 {
            self.read_ports(packet.get(length..)?);
        }
        Some(())
    }

    #[inline(always)]
    fn read_v6(&mut self, packet: &[u8]) -> Option<()> {
        let header = packet.first_chunk::<IPV6_HEADER>()?;
        if header[0] >> 4 != 6 {
            return None;
        }
        let (_, addresses) = header.split_first_chunk::<8>()?;
        let (source, rest) = addresses.split_first_chunk::<16>()?;
        let source = u128::from_be_bytes(*source);
        self.addresses = Some((source, u128::from_be_bytes(*rest.first_chunk::<16>()?)));
        let payload = packet.get(IPV6_HEADER..)?;
        let (protocol, payload) = match header[6] {
            // Most packets have no extension headers.
            protocol @ (6 | 17 | 58) => (protocol, Some(payload)),
            first => match walk_ipv6_extensions(IpProtocol(first), payload) {
                Ok(walked) if walked.fragment == Fragment::Later => (walked.protocol.0, None),
                Ok(walked) => (walked.protocol.0, payload.get(walked.length..)),
                // A packet with unparsable extension headers still has its addresses.
                Err(_) => return None,
            },
        };
        self.protocol = u32::from(protocol);
        self.read_ports(payload?);
        Some(())
    }

    #[inline(always)]
    fn read_ports(&mut self, payload: &[u8]) {
        if has_ports(self.protocol)
            && let Some([a, b, c, d]) = payload.first_chunk::<4>()
        {
            self.ports = Some((u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])));
        }
    }
}

/// For people: protocol, addresses and ports, as far as they are known.
impl fmt::Display for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (u16::try_from(self.ethertype), u8::try_from(self.protocol)) {
            (Ok(_), Ok(protocol)) => write!(f, "{}", packet::Protocol(protocol))?,
            (Ok(ethertype), Err(_)) => write!(f, "{}", packet::EtherType(ethertype))?,
            (Err(_), _) => return f.write_str("truncated"),
        }
        let Some((source, destination)) = self.addresses else {
            return Ok(());
        };
        let address = |bits: u128| Ipv6Addr::from_bits(bits).to_canonical();
        let (source, destination) = (address(source), address(destination));
        match self.ports {
            None => write!(f, " {source} > {destination}"),
            Some((from, to)) => {
                let source = std::net::SocketAddr::new(source, from);
                let destination = std::net::SocketAddr::new(destination, to);
                write!(f, " {source} > {destination}")
            }
        }
    }
}

/// Describes the headers of a frame for people: MAC addresses, VLAN, protocol, addresses and ports.
#[must_use]
pub fn describe_frame(frame: &[u8]) -> String {
    let mac = |at: usize| {
        let octets = frame.get(at..).and_then(<[u8]>::first_chunk::<6>);
        octets.map_or_else(
            || "?".to_owned(),
            |octets| quietwire_packet::MacAddress(*octets).to_string(),
        )
    };
    let (vlan, rest) = after_tags(frame).unwrap_or_default();
    let headers = Headers::from_ethertype_on(rest).unwrap_or(Headers::NOTHING);
    let vlan = vlan.map_or_else(String::new, |vlan| format!(", VLAN {vlan}"));
    format!("{} > {}{vlan}, {headers}", mac(6), mac(0))
}

/// Returns true for TCP, UDP, DCCP, SCTP and UDP-Lite, which begin with source and destination port.
#[inline(always)]
const fn has_ports(protocol: u32) -> bool {
    matches!(protocol, 6 | 17 | 33 | 132 | 136)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_described_as_far_as_they_can_be_read() {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0];
        frame.extend([
            0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2,
        ]);
        frame.extend([0, 99, 0, 80]);
        let macs = "02:00:00:00:00:02 > 02:00:00:00:00:01";
        assert_eq!(
            describe_frame(&frame),
            format!("{macs}, VLAN 7, tcp 10.0.0.1:99 > 10.0.0.2:80")
        );
        assert_eq!(
            describe_frame(&frame[..38]),
            format!("{macs}, VLAN 7, tcp 10.0.0.1 > 10.0.0.2")
        );
        assert_eq!(
            describe_frame(&frame[..20]),
            format!("{macs}, VLAN 7, ipv4")
        );
        assert_eq!(
            describe_frame(&frame[..7]),
            "? > 02:00:00:00:00:01, truncated"
        );
    }
}
