// SPDX-License-Identifier: Apache-2.0
//! Packet match of a rule: one type for files, the command line, reports and the comparison in forwarding threads.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

/// Known EtherType names; others are numbers.
const ETHERTYPES: [(&str, u16); 4] = [
    ("ipv4", 0x0800),
    ("arp", 0x0806),
    ("ipv6", 0x86dd),
    ("lldp", 0x88cc),
];
/// Known IP protocol names (IANA, Assigned Internet Protocol Numbers); others are numbers.
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

/// Parses a prefix of a rule. An address alone is a prefix of its full length.
///
/// # Errors
/// The text is neither a prefix nor an address.
pub fn parse_prefix(text: &str) -> Result<IpNet, String> {
    text.parse::<IpNet>()
        .or_else(|_| text.parse::<IpAddr>().map(IpNet::from))
        .map_err(|_| {
            format!("'{text}' is not a prefix (examples: 10.0.0.0/8, 192.0.2.7, 2001:db8::/32)")
        })
}

/// Deserialises a prefix, as [`parse_prefix`] reads it.
fn optional_prefix<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<IpNet>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let prefix = text.as_deref().map(parse_prefix).transpose();
    prefix.map_err(D::Error::custom)
}

/// EtherType: a name like `lldp`, or a number like `0x88cc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct EtherType(pub u16);

/// IP protocol: a name like `tcp`, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Protocol(pub u8);

/// Port range: one port, or first and last like `5000-5010`.
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
                "'{text}' is not an ethertype (use ipv4, ipv6, arp, lldp, or a number from 0x0600 to 0xffff)"
            )),
        }
    }
}

impl EtherType {
    /// Returns the EtherType of packets with such an address.
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self(0x0800),
            IpAddr::V6(_) => Self(0x86dd),
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
                    "'{text}' is not an IP protocol (use {}, or a number up to 255)",
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
    /// Returns true if the protocol begins with source and destination port.
    pub(super) const fn has_ports(self) -> bool {
        matches!(self.0, 6 | 17 | 33 | 132 | 136)
    }
}

impl Ports {
    /// Returns true if the range contains the port.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) if first <= last => Ok(Self { first, last }),
            _ => Err(format!(
                "'{text}' is not a port or a range of ports (examples: 179, 5000-5010)"
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
pub(super) use as_text;

/// Packet match. Fields that are not set match everything. Only the first fragment has ports. In files the keys are in kebab case; reports
/// have them in snake case ([`in_snake_case`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct PacketMatch {
    /// EtherType behind the tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<EtherType>,
    /// IP protocol, behind extension headers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Source prefix.
    #[serde(
        default,
        deserialize_with = "optional_prefix",
        skip_serializing_if = "Option::is_none"
    )]
    pub source: Option<IpNet>,
    /// Destination prefix.
    #[serde(
        default,
        deserialize_with = "optional_prefix",
        skip_serializing_if = "Option::is_none"
    )]
    pub destination: Option<IpNet>,
    /// Source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<Ports>,
    /// Destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Ports>,
}

/// Form of [`PacketMatch`] in reports: keys in snake case, and `null` for unset fields.
pub mod in_snake_case {
    use super::{Deserialize, EtherType, IpNet, PacketMatch, Ports, Protocol, Serialize};
    use serde::{Deserializer, Serializer};

    // The compiler checks it against the fields of [`PacketMatch`].
    #[derive(Serialize, Deserialize)]
    #[serde(remote = "PacketMatch")]
    struct Report {
        ethertype: Option<EtherType>,
        protocol: Option<Protocol>,
        source: Option<IpNet>,
        destination: Option<IpNet>,
        source_port: Option<Ports>,
        destination_port: Option<Ports>,
    }

    /// Serialises a match.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(
        packet: &PacketMatch,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        Report::serialize(packet, serializer)
    }

    /// Deserialises a match.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<PacketMatch, D::Error> {
        Report::deserialize(deserializer)
    }
}

impl PacketMatch {
    /// Returns true if the match accepts every packet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the set fields as command-line options and values.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, String)> {
        let prefix = |prefix: Option<IpNet>| prefix.map(|prefix| prefix.to_string());
        let words = [
            ("ethertype", self.ethertype.map(String::from)),
            ("protocol", self.protocol.map(String::from)),
            ("source", prefix(self.source)),
            ("destination", prefix(self.destination)),
            ("source-port", self.source_port.map(String::from)),
            ("destination-port", self.destination_port.map(String::from)),
        ];
        let printed = words
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        printed.collect()
    }

    /// Checks that some packet can match.
    ///
    /// # Errors
    /// The reason why no packet can match.
    pub fn check(&self) -> Result<(), String> {
        let prefixes = [self.source, self.destination];
        let has_ports = self.source_port.is_some() || self.destination_port.is_some();
        let is_about_ip = self.protocol.is_some() || prefixes != [None, None];
        if has_ports && !self.protocol.is_some_and(Protocol::has_ports) {
            return Err(
                "ports require protocol tcp, udp, dccp, sctp or udplite (set the protocol)"
                    .to_owned(),
            );
        }
        if let [Some(source), Some(destination)] = prefixes
            && source.addr().is_ipv4() != destination.addr().is_ipv4()
        {
            return Err(format!(
                "source {source} and destination {destination} have different IP versions"
            ));
        }
        match self.ethertype {
            Some(EtherType(ethertype @ (0x0800 | 0x86dd))) => {
                let other = |prefix: &IpNet| prefix.addr().is_ipv4() != (ethertype == 0x0800);
                match prefixes.iter().flatten().find(|prefix| other(prefix)) {
                    Some(prefix) => Err(format!(
                        "{prefix} does not match ethertype {}",
                        EtherType(ethertype)
                    )),
                    None => Ok(()),
                }
            }
            Some(ethertype) if is_about_ip => Err(format!(
                "frames of ethertype {ethertype} carry no IP (set either the ethertype, or protocol and prefixes)"
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_without_a_length_is_a_single_address() {
        for (text, written) in [
            ("10.0.0.1", "10.0.0.1/32"),
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("2001:db8::1", "2001:db8::1/128"),
            ("fd00::/8", "fd00::/8"),
        ] {
            assert_eq!(parse_prefix(text).unwrap().to_string(), written);
            let json = format!(r#"{{"source":"{text}","destination":"{text}"}}"#);
            let packet: PacketMatch = serde_json::from_str(&json).unwrap();
            assert_eq!(packet.source.unwrap().to_string(), written);
            assert_eq!(packet.source, packet.destination);
            let again = serde_json::to_string(&packet).unwrap();
            assert_eq!(serde_json::from_str::<PacketMatch>(&again).unwrap(), packet);
        }
        for wrong in ["", "10.0.0", "10.0.0.0/33", "::/129", "10.0.0.1/"] {
            let error = parse_prefix(wrong).unwrap_err();
            assert!(error.contains("is not a prefix"), "{error}");
        }
    }
}
