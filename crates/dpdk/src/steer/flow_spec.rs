// SPDX-License-Identifier: Apache-2.0
//! Flow rules of network cards as the kernel's drivers take them (linux/ethtool.h, `struct ethtool_rx_flow_spec`; `ethtool -N`).

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use super::rule::{CardTarget, SteerMatch};

// linux/ethtool.h, values of flow_type.
const TCP_V4_FLOW: u32 = 0x01;
const UDP_V4_FLOW: u32 = 0x02;
const SCTP_V4_FLOW: u32 = 0x03;
const TCP_V6_FLOW: u32 = 0x05;
const UDP_V6_FLOW: u32 = 0x06;
const SCTP_V6_FLOW: u32 = 0x07;
const IPV4_USER_FLOW: u32 = 0x0d;
const IPV6_USER_FLOW: u32 = 0x0e;
const ETHER_FLOW: u32 = 0x12;
const FLOW_EXT: u32 = 0x8000_0000;
const FLOW_MAC_EXT: u32 = 0x4000_0000;
/// Value of `ip_ver` of struct ethtool_usrip4_spec. Its mask is 0.
const ETH_RX_NFC_IP4: u8 = 1;
/// Distance of the function in `ring_cookie` (ETHTOOL_RX_FLOW_SPEC_RING_VF_OFF). Drivers count functions from 1; 0 is the interface itself.
const FUNCTION_SHIFT: u32 = 32;
/// Value of `ring_cookie` of a rule whose frames are dropped (RX_CLS_FLOW_DISC).
const DISCARD: u64 = u64::MAX;

/// Octets of the structure on machines of 64 bits.
pub(crate) const LENGTH: usize = 168;
// Offsets of its members.
const VALUES: usize = 4;
const MASKS: usize = 76;
const COOKIE: usize = 152;
const LOCATION: usize = 160;
/// Octets of values, and of masks: a union of 52 octets and struct ethtool_flow_ext.
const FIELDS: usize = 72;
// Offsets among values and masks.
const EXTENSION: usize = 52;
const EXTENSION_MAC: usize = EXTENSION + 2;
const EXTENSION_VLAN_TYPE: usize = EXTENSION + 8;
const EXTENSION_VLAN: usize = EXTENSION + 10;
// struct ethhdr.
const ETHER_DESTINATION: usize = 0;
const ETHER_SOURCE: usize = 6;
const ETHER_TYPE: usize = 12;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
/// VLAN ID of a tag (IEEE 802.1Q, section 9.6).
const VLAN_ID: u16 = 0x0fff;

/// A flow rule: fields with masks, and a queue or a function.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct FlowSpec([u8; LENGTH]);

/// Octets of a field and of its mask. A field whose mask is 0 is not compared.
pub(crate) type Masked<const N: usize> = ([u8; N], [u8; N]);

/// The fields of a flow rule, in network order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FlowFields {
    pub(crate) source_mac: Masked<6>,
    pub(crate) destination_mac: Masked<6>,
    pub(crate) ethertype: Masked<2>,
    /// Tag control information.
    pub(crate) vlan: Masked<2>,
    /// Version of IP, 4 or 6; 0 for a rule about Ethernet headers alone.
    pub(crate) version: u8,
    pub(crate) protocol: Masked<1>,
    /// Addresses of IPv4 are the first four octets.
    pub(crate) source: Masked<16>,
    pub(crate) destination: Masked<16>,
    pub(crate) source_port: Masked<2>,
    pub(crate) destination_port: Masked<2>,
}

/// A version of IP, with the places of its fields in struct ethtool_tcpip*_spec and ethtool_usrip*_spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    ethertype: u16,
    /// Types for TCP, UDP, SCTP, and others.
    types: [u32; 4],
    /// Octets of an address. Source and destination come first.
    address: usize,
    /// Protocol, in a rule of the last type.
    protocol: usize,
    is_version_4: bool,
}

const VERSION_4: Version = Version {
    ethertype: IPV4,
    types: [TCP_V4_FLOW, UDP_V4_FLOW, SCTP_V4_FLOW, IPV4_USER_FLOW],
    address: 4,
    protocol: 14,
    is_version_4: true,
};
const VERSION_6: Version = Version {
    ethertype: IPV6,
    types: [TCP_V6_FLOW, UDP_V6_FLOW, SCTP_V6_FLOW, IPV6_USER_FLOW],
    address: 16,
    protocol: 37,
    is_version_4: false,
};
/// `ip_ver` of struct ethtool_usrip4_spec.
const IP_VERSION: usize = 13;

impl FlowSpec {
    /// Returns the rules of a match. A match of both versions of IP has two.
    ///
    /// # Errors
    /// Conditions that a flow rule cannot have: a text for the user.
    pub(crate) fn of(frames: &SteerMatch, target: CardTarget) -> Result<Vec<Self>, String> {
        if *frames == SteerMatch::default() {
            return Err("a flow rule of a card requires a condition".to_owned());
        }
        let has_packet = frames.protocol.is_some()
            || frames.source.is_some()
            || frames.destination.is_some()
            || frames.source_ports.is_some()
            || frames.destination_ports.is_some();
        if !has_packet {
            return Ok(vec![Self::of_frames(frames, target)]);
        }
        if frames.source_mac.is_some() {
            return Err(
                "a flow rule of a card has no source-mac beside protocol, addresses and ports"
                    .to_owned(),
            );
        }
        let versions: Vec<Version> = [VERSION_4, VERSION_6]
            .into_iter()
            .filter(|version| version.is_of(frames))
            .collect();
        if versions.is_empty() {
            return Err("no frame has the ethertype and the addresses of this rule".to_owned());
        }
        versions
            .into_iter()
            .map(|version| Self::of_packets(frames, version, target))
            .collect()
    }

    fn new(kind: u32, target: CardTarget) -> Self {
        let mut spec = Self([0; LENGTH]);
        spec.put(0, &kind.to_ne_bytes());
        let cookie = match target {
            CardTarget::Queue(queue) => u64::from(queue),
            CardTarget::Function(number) => u64::from(number).saturating_add(1) << FUNCTION_SHIFT,
            CardTarget::Drop => DISCARD,
        };
        spec.put(COOKIE, &cookie.to_ne_bytes());
        spec
    }

    /// Returns a flow rule that matches Ethernet headers.
    fn of_frames(frames: &SteerMatch, target: CardTarget) -> Self {
        let mut spec = Self::new(ETHER_FLOW, target);
        if let Some(mac) = frames.destination_mac {
            spec.set(ETHER_DESTINATION, &mac, &[0xff; 6]);
        }
        if let Some(mac) = frames.source_mac {
            spec.set(ETHER_SOURCE, &mac, &[0xff; 6]);
        }
        if let Some(ethertype) = frames.ethertype {
            spec.set(ETHER_TYPE, &ethertype.to_be_bytes(), &[0xff; 2]);
        }
        spec.set_vlan(frames);
        spec
    }

    /// Returns a flow rule that matches packets of one version of IP.
    fn of_packets(
        frames: &SteerMatch,
        version: Version,
        target: CardTarget,
    ) -> Result<Self, String> {
        let [tcp, udp, sctp, other] = version.types;
        let kind = match frames.protocol {
            Some(TCP) => tcp,
            Some(UDP) => udp,
            Some(SCTP) => sctp,
            _ => other,
        };
        let mut spec = Self::new(kind, target);
        for (prefix, at) in [(frames.source, 0), (frames.destination, version.address)] {
            if let Some((address, length)) = prefix {
                spec.set_prefix(at, address, length);
            }
        }
        let ports = [
            ("source-port", frames.source_ports, 0),
            ("destination-port", frames.destination_ports, 2),
        ];
        for (name, range, at) in ports {
            let Some(range) = range else {
                continue;
            };
            if kind == other {
                return Err(format!(
                    "a flow rule of a card has {name} with protocol tcp, udp and sctp only"
                ));
            }
            let mask = port_mask(range).ok_or_else(|| {
                format!(
                    "a flow rule of a card cannot have {name} {}-{} (use one port, or a power of two of ports that begins at a multiple of their number)",
                    range.0, range.1
                )
            })?;
            let value = range.0.to_be_bytes();
            let place = version.ports().saturating_add(at);
            spec.set(place, &value, &mask.to_be_bytes());
        }
        if kind == other {
            if version.is_version_4 {
                spec.set(IP_VERSION, &[ETH_RX_NFC_IP4], &[0]);
            }
            if let Some(protocol) = frames.protocol {
                // Drivers compare it by a mask, although the comment of the header says that the mask of IPv4 is 0.
                spec.set(version.protocol, &[protocol], &[0xff]);
            }
        }
        if let Some(mac) = frames.destination_mac {
            spec.set(EXTENSION_MAC, &mac, &[0xff; 6]);
            spec.add_flag(FLOW_MAC_EXT);
        }
        spec.set_vlan(frames);
        Ok(spec)
    }

    fn set_vlan(&mut self, frames: &SteerMatch) {
        if let Some(vlan) = frames.vlan {
            self.set(EXTENSION_VLAN, &vlan.to_be_bytes(), &VLAN_ID.to_be_bytes());
            self.add_flag(FLOW_EXT);
        }
    }

    fn set_prefix(&mut self, at: usize, address: IpAddr, length: u8) {
        let octets = match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let mut left = u32::from(length);
        for (place, octet) in (at..).zip(octets) {
            let bits = left.min(u8::BITS);
            left = left.saturating_sub(bits);
            let zeroes = u8::BITS.saturating_sub(bits);
            let mask = u8::MAX.checked_shl(zeroes).unwrap_or(0);
            self.set(place, &[octet & mask], &[mask]);
        }
    }

    /// Sets a field and its mask.
    fn set(&mut self, at: usize, value: &[u8], mask: &[u8]) {
        self.put(at.saturating_add(VALUES), value);
        self.put(at.saturating_add(MASKS), mask);
    }

    fn put(&mut self, at: usize, octets: &[u8]) {
        for (to, octet) in self.0.iter_mut().skip(at).zip(octets) {
            *to = *octet;
        }
    }

    fn word(&self, at: usize) -> u32 {
        let octets = self.0.get(at..).and_then(<[u8]>::first_chunk);
        octets.map_or(0, |octets| u32::from_ne_bytes(*octets))
    }

    fn add_flag(&mut self, flag: u32) {
        let kind = self.word(0) | flag;
        self.put(0, &kind.to_ne_bytes());
    }

    /// Returns a rule as the kernel wrote it.
    pub(crate) const fn from_octets(octets: [u8; LENGTH]) -> Self {
        Self(octets)
    }

    /// Returns the rule as the kernel reads it, at a location of its table.
    pub(crate) fn at(&self, location: u32) -> [u8; LENGTH] {
        let mut spec = self.clone();
        spec.put(LOCATION, &location.to_ne_bytes());
        spec.0
    }

    /// Returns the location of a rule that the kernel wrote.
    pub(crate) fn location(&self) -> u32 {
        self.word(LOCATION)
    }

    /// Returns the octets of a field and of its mask, the others being 0.
    fn masked<const N: usize>(&self, at: usize, length: usize) -> Masked<N> {
        let field = |from: usize| {
            let mut field = [0; N];
            let octets = self.0.iter().skip(from.saturating_add(at)).take(length);
            for (to, octet) in field.iter_mut().zip(octets) {
                *to = *octet;
            }
            field
        };
        (field(VALUES), field(MASKS))
    }

    /// Returns the fields of a rule that [`Self::of`] made.
    pub(crate) fn fields(&self) -> FlowFields {
        let kind = self.word(0) & !(FLOW_EXT | FLOW_MAC_EXT);
        let version = [VERSION_4, VERSION_6]
            .into_iter()
            .find(|version| version.types.contains(&kind));
        let none = ([0; 2], [0; 2]);
        let nowhere = ([0; 16], [0; 16]);
        let vlan = self.masked(EXTENSION_VLAN, 2);
        let Some(version) = version else {
            return FlowFields {
                source_mac: self.masked(ETHER_SOURCE, 6),
                destination_mac: self.masked(ETHER_DESTINATION, 6),
                ethertype: self.masked(ETHER_TYPE, 2),
                vlan,
                version: 0,
                protocol: ([0], [0]),
                source: nowhere,
                destination: nowhere,
                source_port: none,
                destination_port: none,
            };
        };
        let length = version.address;
        let [tcp, udp, sctp, _] = version.types;
        let transport = [(tcp, TCP), (udp, UDP), (sctp, SCTP)];
        let transport = transport.into_iter().find(|(other, _)| *other == kind);
        let ports = |at: usize| match transport {
            Some(_) => self.masked(version.ports().saturating_add(at), 2),
            None => none,
        };
        FlowFields {
            source_mac: ([0; 6], [0; 6]),
            destination_mac: self.masked(EXTENSION_MAC, 6),
            ethertype: none,
            vlan,
            version: if version.is_version_4 { 4 } else { 6 },
            protocol: match transport {
                Some((_, protocol)) => ([protocol], [0xff]),
                None => self.masked(version.protocol, 1),
            },
            source: self.masked(0, length),
            destination: self.masked(length, length),
            source_port: ports(0),
            destination_port: ports(2),
        }
    }

    /// Returns the queue, the function, or neither.
    pub(crate) fn target(&self) -> CardTarget {
        let octets = self.0.get(COOKIE..).and_then(<[u8]>::first_chunk);
        let cookie = octets.map_or(0, |octets| u64::from_ne_bytes(*octets));
        let number = |number: u64| u16::try_from(number & 0xffff).unwrap_or_default();
        if cookie == DISCARD {
            return CardTarget::Drop;
        }
        match (cookie >> FUNCTION_SHIFT).checked_sub(1) {
            None => CardTarget::Queue(number(cookie)),
            Some(function) => CardTarget::Function(number(function)),
        }
    }

    /// Returns true if both rules do the same with the same frames: drivers report fields without mask, and flags, as they like.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.essence() == other.essence()
    }

    /// Returns what rules that do the same have in common ([`Self::is_same`]).
    pub(crate) fn essence(&self) -> ([u8; LENGTH], u32) {
        let flags = FLOW_EXT | FLOW_MAC_EXT;
        let kind = self.word(0);
        let mut essence = Self([0; LENGTH]);
        for at in 0..FIELDS {
            // Members of the extension count only with their flag.
            let needed = match at {
                EXTENSION_VLAN_TYPE.. => FLOW_EXT,
                EXTENSION_MAC.. => FLOW_MAC_EXT,
                EXTENSION.. => continue,
                _ => 0,
            };
            if kind & needed != needed {
                continue;
            }
            let octet = |at: usize| self.0.get(at).copied().unwrap_or_default();
            let mask = octet(at.saturating_add(MASKS));
            let value = octet(at.saturating_add(VALUES));
            essence.set(at, &[value & mask], &[mask]);
        }
        if let Some(cookie) = self.0.get(COOKIE..LOCATION) {
            essence.put(COOKIE, cookie);
        }
        (essence.0, kind & !flags)
    }
}

impl Version {
    /// Returns the offset of the ports, which follow both addresses.
    const fn ports(self) -> usize {
        self.address.saturating_mul(2)
    }

    /// Returns true if packets of this version may match.
    fn is_of(self, frames: &SteerMatch) -> bool {
        let has_address = |prefix: Option<(IpAddr, u8)>| {
            prefix.is_none_or(|(address, _)| address.is_ipv4() == self.is_version_4)
        };
        frames.ethertype.is_none_or(|one| one == self.ethertype)
            && has_address(frames.source)
            && has_address(frames.destination)
    }
}

/// Returns the mask of a range of ports; none if the range has no mask, or is of all ports.
fn port_mask((first, last): (u16, u16)) -> Option<u16> {
    let differing = first ^ last;
    // All lower bits, which are 0 at the begin and 1 at the end.
    let is_block = differing & differing.wrapping_add(1) == 0
        && first & differing == 0
        && last & differing == differing;
    (is_block && differing != u16::MAX).then_some(!differing)
}

/// As in a record: the octets in hexadecimal notation.
impl fmt::Display for FlowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|octet| write!(f, "{octet:02x}"))
    }
}

impl fmt::Debug for FlowSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FlowSpec({self})")
    }
}

impl FromStr for FlowSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        if pairs.len() != LENGTH || !rest.is_empty() {
            return Err(());
        }
        let digit = |octet: u8| char::from(octet).to_digit(16);
        let mut octets = [0; LENGTH];
        for (octet, [high, low]) in octets.iter_mut().zip(pairs) {
            let number = digit(*high).zip(digit(*low));
            let number = number.map(|(high, low)| high << 4 | low);
            *octet = u8::try_from(number.ok_or(())?).map_err(|_| ())?;
        }
        Ok(Self(octets))
    }
}
