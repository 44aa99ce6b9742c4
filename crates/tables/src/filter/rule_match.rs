// SPDX-License-Identifier: Apache-2.0
//! Match of a filter rule as files, requests and reports have it: fields of a packet, or sets of their values.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use quietwire_packet::MacAddress;
use serde::{Deserialize, Serialize};

use super::element::{SetField, SetType};
use super::packet::{EtherType, PacketMatch, Ports, Protocol, as_text, parse_prefix};
use crate::port_mask::PortMask;

/// TCP flags and their bits (RFC 9293, section 3.1), in the words of nftables.
const FLAGS: [(&str, u8); 8] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ecn", 0x40),
    ("cwr", 0x80),
];
/// Names of code points (RFC 2474; RFC 2597; RFC 3246; RFC 8622).
const CODE_POINTS: [(&str, u8); 22] = [
    ("cs0", 0),
    ("cs1", 8),
    ("cs2", 16),
    ("cs3", 24),
    ("cs4", 32),
    ("cs5", 40),
    ("cs6", 48),
    ("cs7", 56),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("ef", 46),
    ("le", 1),
];
/// Longest name of a set, octets.
const SET_NAME_MAX: usize = 64;

/// TCP flags: `syn / syn,ack` requires SYN without ACK. A single flag without a mask is required to be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TcpFlags {
    /// The flags that are set.
    pub value: u8,
    /// The flags that are compared.
    pub mask: u8,
}

/// TCP flags that a packet has: `syn,ack`, or `0` for none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FlagList(pub u8);

/// Differentiated services code point (RFC 2474): a name like `ef`, or a number up to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Dscp(pub u8);

/// Name of a set, without `@`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct SetName(pub String);

/// A value of a field that rules compare with a value or a set.
pub trait FieldValue: Sized {
    /// Parses the value.
    ///
    /// # Errors
    /// The text is no value of the field.
    fn read(text: &str) -> Result<Self, String>;
}

impl FieldValue for IpNet {
    fn read(text: &str) -> Result<Self, String> {
        parse_prefix(text)
    }
}

impl FieldValue for Ports {
    fn read(text: &str) -> Result<Self, String> {
        text.parse()
    }
}

impl FieldValue for MacAddress {
    fn read(text: &str) -> Result<Self, String> {
        let read = text.parse::<Self>();
        read.map_err(|error| error.to_string())
    }
}

/// A value, or a set of values: `@name`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    try_from = "String",
    into = "String",
    bound(serialize = "T: Clone + fmt::Display", deserialize = "T: FieldValue")
)]
pub enum OrSet<T> {
    /// A value.
    Value(T),
    /// A set.
    Set(SetName),
}

/// Returns the bits of a list of flags.
fn flags_of(text: &str) -> Option<u8> {
    let mut bits = 0;
    for name in text.split(',') {
        let name = name.trim();
        bits |= FLAGS.iter().find(|(one, _)| *one == name)?.1;
    }
    Some(bits)
}

fn flags_text(bits: u8) -> String {
    let set = FLAGS.iter().filter(|(_, bit)| bits & bit != 0);
    let names: Vec<&str> = set.map(|(name, _)| *name).collect();
    names.join(",")
}

impl FromStr for TcpFlags {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' are no TCP flags (use one of fin, syn, rst, psh, ack, urg, ecn and cwr, or FLAGS / MASK like syn / syn,ack)"
            )
        };
        let Some((value, mask)) = text.split_once('/') else {
            let bits = flags_of(text).filter(|bits| bits.count_ones() == 1);
            let bits = bits.ok_or_else(wrong)?;
            return Ok(Self {
                value: bits,
                mask: bits,
            });
        };
        let value = match value.trim() {
            "" | "0" => Some(0),
            value => flags_of(value),
        };
        match (value, flags_of(mask)) {
            (Some(value), Some(mask)) if value & !mask == 0 => Ok(Self { value, mask }),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { value, mask } = *self;
        match (value, value == mask && mask.count_ones() == 1) {
            (_, true) => f.write_str(&flags_text(mask)),
            (0, _) => write!(f, "0 / {}", flags_text(mask)),
            _ => write!(f, "{} / {}", flags_text(value), flags_text(mask)),
        }
    }
}

impl FromStr for FlagList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bits = if text == "0" { Some(0) } else { flags_of(text) };
        bits.map(Self).ok_or_else(|| {
            format!("'{text}' are no TCP flags (use a list of fin, syn, rst, psh, ack, urg, ecn and cwr, or 0)")
        })
    }
}

impl fmt::Display for FlagList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0"),
            bits => f.write_str(&flags_text(bits)),
        }
    }
}

impl FromStr for Dscp {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let named = CODE_POINTS.iter().find(|(name, _)| *name == text);
        match (named, text.parse::<u8>()) {
            (Some((_, number)), _) => Ok(Self(*number)),
            (None, Ok(number @ 0..64)) => Ok(Self(number)),
            _ => Err(format!(
                "'{text}' is not a DSCP (use cs0 to cs7, af11 to af43, ef, le, or a number up to 63)"
            )),
        }
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODE_POINTS.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

as_text!(TcpFlags, FlagList, Dscp, SetName);

impl FromStr for SetName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_allowed = |one: char| one.is_ascii_alphanumeric() || "_-.".contains(one);
        match (1..=SET_NAME_MAX).contains(&text.len()) && text.chars().all(is_allowed) {
            true => Ok(Self(text.to_owned())),
            false => Err(format!(
                "'{text}' is not a name of a set (use up to {SET_NAME_MAX} letters, digits, '_', '-' and '.')"
            )),
        }
    }
}

impl fmt::Display for SetName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<T: FieldValue> FromStr for OrSet<T> {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.strip_prefix('@') {
            Some(name) => name.parse().map(Self::Set),
            None => T::read(text).map(Self::Value),
        }
    }
}

impl<T: FieldValue> TryFrom<String> for OrSet<T> {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl<T: fmt::Display> fmt::Display for OrSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Set(name) => write!(f, "@{name}"),
        }
    }
}

impl<T: fmt::Display> From<OrSet<T>> for String {
    fn from(value: OrSet<T>) -> Self {
        value.to_string()
    }
}

impl<T> OrSet<T> {
    /// Returns the name of the set.
    #[must_use]
    pub const fn set(&self) -> Option<&SetName> {
        match self {
            Self::Value(_) => None,
            Self::Set(name) => Some(name),
        }
    }
}

/// Returns the value of a field that has one.
fn value_of<T: Copy>(field: Option<&OrSet<T>>) -> Option<T> {
    match field {
        Some(OrSet::Value(value)) => Some(*value),
        _ => None,
    }
}

/// Match of a filter rule. Fields that are not set match everything. In files the keys are in kebab case; reports have them in snake case
/// ([`rule_in_snake_case`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub struct RuleMatch {
    /// EtherType behind the tags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<EtherType>,
    /// IP protocol, behind extension headers too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Source addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<OrSet<IpNet>>,
    /// Destination addresses.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<OrSet<IpNet>>,
    /// Source ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<OrSet<Ports>>,
    /// Destination ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<OrSet<Ports>>,
    /// Source MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_mac: Option<OrSet<MacAddress>>,
    /// Destination MAC address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_mac: Option<OrSet<MacAddress>>,
    /// TCP flags.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tcp_flags: Option<TcpFlags>,
    /// Type of ICMP or ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_type: Option<u8>,
    /// Code of ICMP or ICMPv6.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub icmp_code: Option<u8>,
    /// DSCP of an IPv4 or IPv6 packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dscp: Option<Dscp>,
    /// Whether the frame has a VLAN tag.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tagged: Option<bool>,
}

/// Form of [`RuleMatch`] in reports: keys in snake case, and `null` for unset fields of every packet; further fields only if they are set.
pub mod rule_in_snake_case {
    use super::{
        Deserialize, Dscp, EtherType, IpNet, MacAddress, OrSet, Ports, Protocol, RuleMatch,
        Serialize, TcpFlags,
    };
    use serde::{Deserializer, Serializer};

    // The compiler checks it against the fields of [`RuleMatch`].
    #[derive(Serialize, Deserialize)]
    #[serde(remote = "RuleMatch")]
    struct Report {
        ethertype: Option<EtherType>,
        protocol: Option<Protocol>,
        source: Option<OrSet<IpNet>>,
        destination: Option<OrSet<IpNet>>,
        source_port: Option<OrSet<Ports>>,
        destination_port: Option<OrSet<Ports>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        source_mac: Option<OrSet<MacAddress>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        destination_mac: Option<OrSet<MacAddress>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tcp_flags: Option<TcpFlags>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        icmp_type: Option<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        icmp_code: Option<u8>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dscp: Option<Dscp>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tagged: Option<bool>,
    }

    /// Serialises a match.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn serialize<S: Serializer>(packet: &RuleMatch, serializer: S) -> Result<S::Ok, S::Error> {
        Report::serialize(packet, serializer)
    }

    /// Deserialises a match.
    ///
    /// # Errors
    /// Those of the deserializer.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<RuleMatch, D::Error> {
        Report::deserialize(deserializer)
    }
}

/// Fields that only some rules compare, and that are read only if there are such rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FurtherMatch {
    /// Source MAC address.
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address.
    pub destination_mac: Option<MacAddress>,
    /// TCP flags.
    pub tcp_flags: Option<TcpFlags>,
    /// ICMP type, and code if it is set.
    pub icmp: Option<(u8, Option<u8>)>,
    /// DSCP.
    pub dscp: Option<Dscp>,
    /// Whether the frame has a VLAN tag.
    pub tagged: Option<bool>,
    /// Matches frames that leave, instead of received ones.
    pub out: Option<OutMatch>,
    /// Several ports instead of the one of the rule. Empty: no such condition.
    pub ports: PortMask,
    /// Several ports that received frames that leave, instead of the one of `out`, as `ports`.
    pub from_ports: PortMask,
}

/// Match of frames that leave. Port and group of the rule are those that the frame leaves by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutMatch {
    /// Number of the port that received the frame.
    pub from: Option<u16>,
}

impl RuleMatch {
    /// Returns the fields of every packet, without sets.
    #[must_use]
    pub fn packet(&self) -> PacketMatch {
        PacketMatch {
            ethertype: self.ethertype,
            protocol: self.protocol,
            source: value_of(self.source.as_ref()),
            destination: value_of(self.destination.as_ref()),
            source_port: value_of(self.source_port.as_ref()),
            destination_port: value_of(self.destination_port.as_ref()),
        }
    }

    /// Returns the further fields, without sets.
    #[must_use]
    pub fn further(&self) -> FurtherMatch {
        FurtherMatch {
            source_mac: value_of(self.source_mac.as_ref()),
            destination_mac: value_of(self.destination_mac.as_ref()),
            tcp_flags: self.tcp_flags,
            icmp: self.icmp_type.map(|kind| (kind, self.icmp_code)),
            dscp: self.dscp,
            tagged: self.tagged,
            out: None,
            ports: PortMask::default(),
            from_ports: PortMask::default(),
        }
    }

    /// Returns the sets, each with the field that is compared with it.
    pub fn sets(&self) -> impl Iterator<Item = (SetField, &SetName)> {
        let addresses = [&self.source, &self.destination].map(|one| one.as_ref());
        let ports = [&self.source_port, &self.destination_port].map(|one| one.as_ref());
        let macs = [&self.source_mac, &self.destination_mac].map(|one| one.as_ref());
        let [source, destination] = addresses.map(|one| one.and_then(OrSet::set));
        let [source_port, destination_port] = ports.map(|one| one.and_then(OrSet::set));
        let [source_mac, destination_mac] = macs.map(|one| one.and_then(OrSet::set));
        let all = [
            (SetField::Source, source),
            (SetField::Destination, destination),
            (SetField::SourcePort, source_port),
            (SetField::DestinationPort, destination_port),
            (SetField::SourceMac, source_mac),
            (SetField::DestinationMac, destination_mac),
        ];
        all.into_iter()
            .filter_map(|(field, name)| Some((field, name?)))
    }

    /// Returns the set fields as command-line options and values.
    #[must_use]
    pub fn words(&self) -> Vec<(&'static str, String)> {
        fn text<T: fmt::Display>(field: Option<&T>) -> Option<String> {
            field.map(ToString::to_string)
        }
        let words = [
            ("ethertype", text(self.ethertype.as_ref())),
            ("protocol", text(self.protocol.as_ref())),
            ("source", text(self.source.as_ref())),
            ("destination", text(self.destination.as_ref())),
            ("source-port", text(self.source_port.as_ref())),
            ("destination-port", text(self.destination_port.as_ref())),
            ("source-mac", text(self.source_mac.as_ref())),
            ("destination-mac", text(self.destination_mac.as_ref())),
            ("tcp-flags", text(self.tcp_flags.as_ref())),
            ("icmp-type", text(self.icmp_type.as_ref())),
            ("icmp-code", text(self.icmp_code.as_ref())),
            ("dscp", text(self.dscp.as_ref())),
            ("tagged", text(self.tagged.as_ref())),
        ];
        let printed = words
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        printed.collect()
    }

    /// Checks that some packet can match. `kind_of` returns the type of a set; `None` if there is no such set.
    ///
    /// # Errors
    /// The reason why no packet can match.
    pub fn check(&self, kind_of: impl Fn(&SetName) -> Option<SetType>) -> Result<(), String> {
        let mut versions = Vec::new();
        for (field, name) in self.sets() {
            let kind = kind_of(name).ok_or_else(|| format!("no such set: '{name}'"))?;
            if !field.accepts(kind) {
                return Err(format!(
                    "set '{name}' has type {kind}, which {field} does not have (use a set of type {})",
                    field.types()
                ));
            }
            let has_ports = self.protocol.is_some_and(Protocol::has_ports);
            if kind == SetType::InetService && !has_ports {
                return Err(
                    "ports require protocol tcp, udp, dccp, sctp or udplite (set the protocol)"
                        .to_owned(),
                );
            }
            versions.extend(kind.ethertype());
        }
        self.check_versions(&versions)?;
        self.check_further()?;
        self.packet().check()
    }

    /// Checks that all addresses have the same IP version, which the EtherType is, if it is set.
    fn check_versions(&self, of_sets: &[EtherType]) -> Result<(), String> {
        let PacketMatch {
            source,
            destination,
            ..
        } = self.packet();
        let of_prefixes = [source, destination].into_iter().flatten();
        let of_prefixes = of_prefixes.map(|prefix| EtherType::of(prefix.addr()));
        let mut versions = of_sets.iter().copied().chain(of_prefixes);
        let first = versions.next();
        let is_mixed = versions.any(|one| Some(one) != first);
        if is_mixed {
            return Err("source and destination have different IP versions".to_owned());
        }
        match (self.ethertype, of_sets.first()) {
            (Some(ethertype), Some(version)) if ethertype != *version => Err(format!(
                "a set of {version} addresses does not match ethertype {ethertype}"
            )),
            _ => Ok(()),
        }
    }

    /// Checks the further fields.
    fn check_further(&self) -> Result<(), String> {
        let protocol = self.protocol.map(|one| one.0);
        if self.tcp_flags.is_some() && protocol != Some(6) {
            return Err("tcp-flags requires protocol tcp (set the protocol)".to_owned());
        }
        if self.icmp_type.is_some() && !matches!(protocol, Some(1 | 58)) {
            return Err("icmp-type requires protocol icmp or icmpv6 (set the protocol)".to_owned());
        }
        if self.icmp_code.is_some() && self.icmp_type.is_none() {
            return Err("icmp-code requires icmp-type (set the type)".to_owned());
        }
        let is_ip = |ethertype: EtherType| matches!(ethertype.0, 0x0800 | 0x86dd);
        if self.dscp.is_some() && !self.ethertype.is_none_or(is_ip) {
            return Err("dscp requires ethertype ipv4 or ipv6, or none".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_code_points_and_sets_are_read_as_they_are_written() {
        for text in [
            "syn",
            "syn / syn,ack",
            "0 / fin,syn",
            "fin,syn / fin,syn,rst,ack",
        ] {
            assert_eq!(text.parse::<TcpFlags>().unwrap().to_string(), text);
        }
        let flags: TcpFlags = "syn/ack,syn".parse().unwrap();
        assert_eq!((flags.value, flags.mask), (0x02, 0x12));
        for wrong in [
            "",
            "syn,ack",
            "sin",
            "syn / ack",
            "syn /",
            "syn / syn / syn",
        ] {
            assert!(wrong.parse::<TcpFlags>().is_err(), "{wrong}");
        }
        for (text, number) in [("ef", 46), ("cs1", 8), ("le", 1), ("63", 63)] {
            assert_eq!(text.parse(), Ok(Dscp(number)));
            assert_eq!(Dscp(number).to_string(), text);
        }
        assert_eq!("46".parse(), Ok(Dscp(46)));
        for wrong in ["64", "af14", "-1", ""] {
            assert!(wrong.parse::<Dscp>().is_err(), "{wrong}");
        }
        let set: OrSet<Ports> = "@web".parse().unwrap();
        assert_eq!(set.set(), Some(&SetName("web".to_owned())));
        assert_eq!(set.to_string(), "@web");
        let value: OrSet<IpNet> = "10.0.0.0/8".parse().unwrap();
        assert_eq!(
            (value.set(), value.to_string()),
            (None, "10.0.0.0/8".to_owned())
        );
        let address: OrSet<IpNet> = "10.0.0.1".parse().unwrap();
        assert_eq!(address.to_string(), "10.0.0.1/32");
        for wrong in ["@", "@a b", "10.0.0", ""] {
            assert!(wrong.parse::<OrSet<IpNet>>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_match_that_no_packet_meets_is_refused() {
        let kind_of = |name: &SetName| match name.0.as_str() {
            "v4" => Some(SetType::Ipv4Addr),
            "v6" => Some(SetType::Ipv6Addr),
            "web" => Some(SetType::InetService),
            "hosts" => Some(SetType::EtherAddr),
            _ => None,
        };
        let check = |json: &str| {
            serde_json::from_str::<RuleMatch>(json)
                .unwrap()
                .check(kind_of)
        };
        for fine in [
            r#"{"source":"@v4","destination":"10.0.0.0/8"}"#,
            r#"{"source-mac":"@hosts","destination-mac":"02:00:00:00:00:01"}"#,
            r#"{"protocol":"tcp","destination-port":"@web","tcp-flags":"syn / syn,ack"}"#,
            r#"{"protocol":"icmpv6","icmp-type":1,"icmp-code":4,"dscp":"ef"}"#,
            r#"{"ethertype":"ipv6","source":"@v6"}"#,
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for (wrong, reason) in [
            (r#"{"source":"@v5"}"#, "no such set: 'v5'"),
            (r#"{"source":"@web"}"#, "inet_service"),
            (r#"{"source-mac":"@v4"}"#, "ether_addr"),
            (r#"{"destination-port":"@web"}"#, "ports require protocol"),
            (
                r#"{"protocol":"icmp","source-port":"@web"}"#,
                "ports require protocol",
            ),
            (
                r#"{"source":"@v4","destination":"@v6"}"#,
                "different IP versions",
            ),
            (
                r#"{"source":"@v4","destination":"::/0"}"#,
                "different IP versions",
            ),
            (
                r#"{"ethertype":"ipv6","source":"@v4"}"#,
                "does not match ethertype",
            ),
            (r#"{"tcp-flags":"syn"}"#, "requires protocol tcp"),
            (
                r#"{"protocol":"tcp","icmp-type":8}"#,
                "requires protocol icmp",
            ),
            (r#"{"protocol":"icmp","icmp-code":0}"#, "requires icmp-type"),
            (r#"{"ethertype":"arp","dscp":"ef"}"#, "dscp requires"),
        ] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }
}
