// SPDX-License-Identifier: Apache-2.0
//! What the kernel is to get beside what is for the router itself: rules, as they are asked for.

use std::fmt;
use std::str::FromStr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::layer3::{Layer3Plan, Placed};
use crate::error::SwitchError;
use crate::route::FILTER_RULES_MAX;

const ARP: u16 = 0x0806;
/// Names that are taken and given for ethertypes; others are numbers.
const ETHERTYPES: [(&str, u16); 3] = [("ipv4", 0x0800), ("ipv6", 0x86dd), ("lldp", 0x88cc)];
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
                "'{text}' is not an ethertype; write ipv4, ipv6, lldp, or a number from 0x0600 to 0xffff"
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

/// A rule: packets that are as it says go to the kernel's tap of the interface that they came in by. What it does not say
/// may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KernelFilterSetting {
    /// Its name.
    pub name: String,
    /// The interface that packets come in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The VRF of that interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// What the frame carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<EtherType>,
    /// What the IP packet carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Where packets are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    /// Where they are to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpNet>,
    /// Their source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<Ports>,
    /// Their destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Ports>,
}

/// Plans rules, once VRFs and interfaces are planned.
///
/// # Errors
/// [`SwitchError::Config`] for a rule that can match nothing, or would take what the switch itself needs.
pub(super) fn plan(
    settings: &[Placed<KernelFilterSetting>],
    layer3: &Layer3Plan,
) -> Result<Vec<KernelFilterSetting>, SwitchError> {
    let mut rules: Vec<KernelFilterSetting> = Vec::new();
    for Placed { value, place } in settings {
        let name = &value.name;
        let wrong = |what: String| place.wrong(format!("kernel filter '{name}': {what}"));
        if name.is_empty() {
            return Err(place.wrong("the kernel filter has no name"));
        }
        if rules.iter().any(|rule| rule.name == *name) {
            return Err(place.wrong(format!("there are two kernel filters '{name}'")));
        }
        if rules.len() == FILTER_RULES_MAX {
            return Err(place.wrong(format!(
                "there are more than {FILTER_RULES_MAX} kernel filters"
            )));
        }
        check_packet(value).map_err(wrong)?;
        check_place(value, layer3).map_err(wrong)?;
        rules.push(value.clone());
    }
    Ok(rules)
}

/// What is said of packets.
fn check_packet(rule: &KernelFilterSetting) -> Result<(), String> {
    let prefixes = [rule.source, rule.destination];
    let has_ports = rule.source_port.is_some() || rule.destination_port.is_some();
    let is_about_ip = rule.protocol.is_some() || prefixes != [None, None];
    if rule.ethertype.is_none() && !is_about_ip && !has_ports {
        return Err(
            "it would take everything; say an ethertype, a protocol or a prefix".to_owned(),
        );
    }
    if has_ports && !rule.protocol.is_some_and(Protocol::has_ports) {
        return Err("only tcp, udp, dccp, sctp and udplite have ports; say which".to_owned());
    }
    if let [Some(source), Some(destination)] = prefixes
        && source.addr().is_ipv4() != destination.addr().is_ipv4()
    {
        return Err(format!(
            "no packet goes from {source} to {destination}: they are of two versions of IP"
        ));
    }
    match rule.ethertype {
        Some(EtherType(ARP)) => Err(
            "ARP is the switch's own; the kernel gets the answers that it asked for anyway"
                .to_owned(),
        ),
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

/// What is said of where they come in.
fn check_place(rule: &KernelFilterSetting, layer3: &Layer3Plan) -> Result<(), String> {
    if let Some(name) = &rule.interface {
        let interface = layer3.interfaces.iter().find(|one| one.name == *name);
        let interface = interface.ok_or_else(|| format!("there is no interface '{name}'"))?;
        if interface.kernel.is_none() {
            return Err(format!(
                "interface '{name}' has no tap of the kernel's; give it one (kernel = \"NAME\")"
            ));
        }
    }
    match &rule.vrf {
        Some(name) if !layer3.vrfs.contains(name) => Err(format!("there is no VRF '{name}'")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Place;
    use super::super::layer3::{Attachment, InterfacePlan, Urpf};
    use super::*;

    fn layer3() -> Layer3Plan {
        let interface = |name: &str, kernel: Option<&str>| InterfacePlan {
            name: name.to_owned(),
            on: Attachment::Port(0),
            vlan: None,
            addresses: Vec::new(),
            vrf: 0,
            mac: None,
            mtu: 1500,
            urpf: Urpf::Off,
            kernel: kernel.map(str::to_owned),
        };
        Layer3Plan {
            vrfs: vec!["main".to_owned()],
            interfaces: vec![interface("a", Some("qw-a")), interface("b", None)],
            ..Layer3Plan::default()
        }
    }

    fn planned(rules: &[&str]) -> Result<Vec<KernelFilterSetting>, String> {
        let placed = |text: &&str| {
            Ok(Placed {
                value: toml::from_str(text).map_err(|error| error.to_string())?,
                place: Place::Request,
            })
        };
        let rules: Vec<_> = rules.iter().map(placed).collect::<Result<_, String>>()?;
        plan(&rules, &layer3()).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_written_as_they_are_read() {
        for text in [
            "name = \"bgp\"\ninterface = \"a\"\nprotocol = \"tcp\"\ndestination-port = \"179\"\n",
            "name = \"lldp\"\nvrf = \"main\"\nethertype = \"lldp\"\n",
            "name = \"x\"\nethertype = \"0x8847\"\n",
            "name = \"y\"\nprotocol = \"250\"\nsource = \"10.0.0.0/8\"\n",
            "name = \"z\"\nethertype = \"ipv6\"\nprotocol = \"udp\"\nsource-port = \"5000-5010\"\n",
        ] {
            let rules = planned(&[text]).unwrap();
            assert_eq!(toml::to_string(&rules[0]).unwrap(), text);
        }
    }

    #[test]
    fn rules_that_make_no_sense_are_refused() {
        for (rules, said) in [
            (&["name = \"\""][..], "no name"),
            (&["name = \"x\""], "would take everything"),
            (&["name = \"x\"\nethertype = \"0x0806\""], "ARP"),
            (
                &["name = \"x\"\nethertype = \"0x0005\""],
                "not an ethertype",
            ),
            (&["name = \"x\"\nprotocol = \"256\""], "not a protocol"),
            (
                &["name = \"x\"\nprotocol = \"ospf\"\nsource-port = \"1\""],
                "have ports",
            ),
            (&["name = \"x\"\nsource-port = \"1\""], "have ports"),
            (
                &["name = \"x\"\nprotocol = \"tcp\"\nsource-port = \"2-1\""],
                "no range",
            ),
            (
                &["name = \"x\"\nprotocol = \"tcp\"\nethertype = \"lldp\""],
                "no IP",
            ),
            (
                &["name = \"x\"\nethertype = \"ipv6\"\nsource = \"10.0.0.0/8\""],
                "not of ipv6",
            ),
            (
                &["name = \"x\"\nsource = \"10.0.0.0/8\"\ndestination = \"::/0\""],
                "two versions",
            ),
            (
                &["name = \"x\"\ninterface = \"c\"\nprotocol = \"tcp\""],
                "no interface 'c'",
            ),
            (
                &["name = \"x\"\ninterface = \"b\"\nprotocol = \"tcp\""],
                "no tap",
            ),
            (
                &["name = \"x\"\nvrf = \"blue\"\nprotocol = \"tcp\""],
                "no VRF",
            ),
            (
                &[
                    "name = \"x\"\nprotocol = \"tcp\"",
                    "name = \"x\"\nprotocol = \"udp\"",
                ],
                "two kernel filters",
            ),
        ] {
            let error = planned(rules).unwrap_err();
            assert!(error.contains(said), "{rules:?}: {error}");
        }
        let many: Vec<String> = (0..=FILTER_RULES_MAX)
            .map(|n| format!("name = \"{n}\"\nprotocol = \"tcp\""))
            .collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(planned(&many[1..]).unwrap().len(), FILTER_RULES_MAX);
        assert!(planned(&many).unwrap_err().contains("more than 64"));
    }
}
