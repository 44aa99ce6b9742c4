// SPDX-License-Identifier: Apache-2.0
//! Words that say which packets are meant, in rules of all kinds.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use quietwire_tables::filter::Asked;

/// Names that are taken and given for ethertypes; others are numbers.
const ETHERTYPES: [(&str, u16); 4] = [
    ("ipv4", 0x0800),
    ("arp", 0x0806),
    ("ipv6", 0x86dd),
    ("lldp", 0x88cc),
];
/// The same for protocols (IANA, Assigned Internet Protocol Numbers).
const PROTOCOLS: [(&str, u8); 14] = [
    ("icmp", 1),
    ("igmp", 2),
    ("tcp", 6),
    ("udp", 17),
    ("dccp", 33),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

/// What a frame carries: `lldp`, or a number like `0x88cc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EtherType(pub u16);

/// What an IP packet carries: `tcp`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(pub u8);

/// Ports: one, or the first and the last as `5000-5010`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl FromStr for EtherType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = ETHERTYPES.iter().find(|(name, _)| *name == text);
        let number = text
            .strip_prefix("0x")
            .map(|digits| u16::from_str_radix(digits, 16));
        match (named, number) {
            (Some((_, number)), _) => Ok(Self(*number)),
            (None, Some(Ok(number))) if number >= 0x600 => Ok(Self(number)),
            _ => Err(format!(
                "'{text}' is not an ethertype; write ipv4, ipv6, arp, lldp, or a number from 0x0600 to 0xffff"
            )),
        }
    }
}

impl fmt::Display for EtherType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match ETHERTYPES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{:#06x}", self.0),
        }
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = PROTOCOLS.iter().find(|(name, _)| *name == text);
        match (named, text.parse()) {
            (Some((_, number)), _) => Ok(Self(*number)),
            (None, Ok(number)) => Ok(Self(number)),
            (None, Err(_)) => {
                let names: Vec<&str> = PROTOCOLS.iter().map(|(name, _)| *name).collect();
                Err(format!(
                    "'{text}' is not a protocol of IP; write {}, or a number up to 255",
                    names.join(", ")
                ))
            }
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match PROTOCOLS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

impl Protocol {
    /// Whether source and destination port come first in what it carries.
    const fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!(
                "'{text}' is no port and no range of ports; write one like 179, or the first and the last like 5000-5010"
            )),
        }
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last } = self;
        if first == last {
            write!(f, "{first}")
        } else {
            write!(f, "{first}-{last}")
        }
    }
}

macro_rules! as_text {
    ($($kind:ty),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$kind> for String {
            fn from(value: $kind) -> Self {
                value.to_string()
            }
        }
    )*};
}
as_text!(EtherType, Protocol, Ports);

impl Ports {
    const fn range(self) -> (u16, u16) {
        (self.first, self.last)
    }
}

/// What a rule says of packets; what it does not say may be anything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) ethertype: Option<EtherType>,
    pub(crate) protocol: Option<Protocol>,
    pub(crate) source: Option<IpNet>,
    pub(crate) destination: Option<IpNet>,
    pub(crate) source_port: Option<Ports>,
    pub(crate) destination_port: Option<Ports>,
}

impl Words {
    /// As forwarding threads ask it.
    pub(crate) fn asked(&self) -> Asked {
        Asked {
            ethertype: self.ethertype.map(|ethertype| ethertype.0),
            protocol: self.protocol.map(|protocol| protocol.0),
            source: self.source,
            destination: self.destination,
            source_ports: self.source_port.map(Ports::range),
            destination_ports: self.destination_port.map(Ports::range),
        }
    }

    /// Whether nothing is said: every packet is meant.
    pub(super) fn is_empty(&self) -> bool {
        self.asked() == Asked::default()
    }

    /// Sees whether there are packets that are as is said.
    ///
    /// # Errors
    /// Why there are none.
    pub(super) fn check(&self) -> Result<(), String> {
        let prefixes = [self.source, self.destination];
        let has_ports = self.source_port.is_some() || self.destination_port.is_some();
        let is_about_ip = self.protocol.is_some() || prefixes != [None, None];
        if has_ports && !self.protocol.is_some_and(Protocol::has_ports) {
            return Err("only tcp, udp, dccp, sctp and udplite have ports; say which".to_owned());
        }
        if let [Some(source), Some(destination)] = prefixes
            && source.addr().is_ipv4() != destination.addr().is_ipv4()
        {
            return Err(format!(
                "no packet goes from {source} to {destination}: they are of two versions of IP"
            ));
        }
        match self.ethertype {
            Some(EtherType(ethertype @ (0x0800 | 0x86dd))) => {
                let other = |prefix: &IpNet| prefix.addr().is_ipv4() != (ethertype == 0x0800);
                match prefixes.iter().flatten().find(|prefix| other(prefix)) {
                    Some(prefix) => Err(format!("{prefix} is not of {}", EtherType(ethertype))),
                    None => Ok(()),
                }
            }
            Some(ethertype) if is_about_ip => Err(format!(
                "frames of ethertype {ethertype} carry no IP; say either that or a protocol and prefixes"
            )),
            _ => Ok(()),
        }
    }
}
