// SPDX-License-Identifier: Apache-2.0
//! Packets by description: which rule decides on a packet of these fields, without a packet.

use std::net::IpAddr;

use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::ct_states::set_state;
use super::element::{Element, SetField};
use super::names::{NameKind, NamePattern};
use super::packet::{EtherType, Protocol};
use super::rule_match::{Dscp, FlagList, OrSet, RuleMatch, SetName, TcpFlags};
use crate::classifier::{Field, Key};
use crate::connections::{CtBits, CtState, CtValue, LabelBits, MarkBits};

const ICMP: Protocol = Protocol(1);
const TCP: Protocol = Protocol(6);
const ICMPV6: Protocol = Protocol(58);

/// A packet by its fields. A field that is not set is absent: a packet without ports is a later fragment. The EtherType is that of the
/// addresses; DSCP, TCP flags and ICMP code are 0. A packet without a state of its connection is not tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct DescribedPacket {
    /// VLAN of the outermost tag.
    pub vlan: Option<VlanId>,
    /// EtherType behind the tags.
    pub ethertype: Option<EtherType>,
    /// IP protocol.
    pub protocol: Option<Protocol>,
    /// Source address.
    pub source: Option<IpAddr>,
    /// Destination address.
    pub destination: Option<IpAddr>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port.
    pub destination_port: Option<u16>,
    /// Source MAC address.
    pub source_mac: Option<MacAddress>,
    /// Destination MAC address.
    pub destination_mac: Option<MacAddress>,
    /// TCP flags.
    pub tcp_flags: Option<FlagList>,
    /// ICMP or ICMPv6 type.
    pub icmp_type: Option<u8>,
    /// ICMP or ICMPv6 code.
    pub icmp_code: Option<u8>,
    /// DSCP.
    pub dscp: Option<Dscp>,
    /// State of its connection.
    pub ct_state: Option<CtState>,
    /// Mark of its connection, with all bits. Default: 0.
    pub ct_mark: Option<MarkBits>,
    /// Label of its connection, with all bits. Default: 0.
    pub ct_label: Option<LabelBits>,
    /// Server name of its TLS connection. Without a name of any kind, a segment precedes the name of its connection, and a datagram has
    /// none.
    pub tls_name: Option<NamePattern>,
    /// Host of its HTTP connection.
    pub http_host: Option<NamePattern>,
    /// Name that it, or the first query of its connection, asks for.
    pub dns_name: Option<NamePattern>,
}

/// A field in which a packet differs from a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Name of the field, as in files.
    pub field: String,
    /// Value that the rule requires.
    pub required: String,
    /// Value of the packet; `None` if it has none.
    pub packet: Option<String>,
}

impl DescribedPacket {
    /// Checks that a packet can have these fields.
    ///
    /// # Errors
    /// The fields that exclude each other.
    pub fn check(&self) -> Result<(), String> {
        let has_addresses = match (self.source, self.destination) {
            (Some(source), Some(destination)) if source.is_ipv4() != destination.is_ipv4() => {
                return Err("source and destination have different IP versions".to_owned());
            }
            (Some(_), Some(_)) => true,
            (None, None) => false,
            _ => {
                return Err(
                    "an IP packet has both source and destination (set both, or none)".to_owned(),
                );
            }
        };
        let of_addresses = self.source.map(EtherType::of);
        if self.ethertype.is_some() && has_addresses && self.ethertype != of_addresses {
            return Err("the addresses do not match the ethertype (remove it)".to_owned());
        }
        if self.protocol.is_some() && !has_addresses {
            return Err("protocol requires source and destination (set both)".to_owned());
        }
        let has_ports = self.source_port.is_some() || self.destination_port.is_some();
        if has_ports && (self.source_port.is_none() || self.destination_port.is_none()) {
            return Err(
                "a packet has both ports (set source-port and destination-port)".to_owned(),
            );
        }
        if has_ports && !self.protocol.is_some_and(Protocol::has_ports) {
            return Err(
                "ports require protocol tcp, udp, dccp, sctp or udplite (set the protocol)"
                    .to_owned(),
            );
        }
        if self.tcp_flags.is_some() && !(self.protocol == Some(TCP) && has_ports) {
            return Err("tcp-flags requires protocol tcp and ports (set them)".to_owned());
        }
        if self.icmp_type.is_some() && self.protocol != self.own_icmp() {
            return Err(
                "icmp-type requires protocol icmp with IPv4, or icmpv6 with IPv6 (set the protocol)"
                    .to_owned(),
            );
        }
        if self.icmp_code.is_some() && self.icmp_type.is_none() {
            return Err("icmp-code requires icmp-type (set the type)".to_owned());
        }
        if self.dscp.is_some() && !has_addresses {
            return Err("dscp requires source and destination (set both)".to_owned());
        }
        if self.own_ct_state() != CtState::Untracked && !has_addresses {
            return Err(
                "ct-state requires source and destination (set both; other packets are untracked)"
                    .to_owned(),
            );
        }
        self.check_ct_value(self.ct_mark)?;
        self.check_ct_value(self.ct_label)?;
        self.check_name()
    }

    fn check_ct_value<V: CtValue>(&self, bits: Option<CtBits<V>>) -> Result<(), String> {
        let Some(bits) = bits else {
            return Ok(());
        };
        let name = V::NAME;
        if bits.whole().is_none() {
            return Err(format!(
                "ct-{name} '{bits}' is not a whole {name} (remove the mask)"
            ));
        }
        match self.own_ct_state() {
            CtState::Established | CtState::Related | CtState::New => Ok(()),
            CtState::Invalid | CtState::Untracked => Err(format!(
                "ct-{name} requires a connection (set ct-state to new, established or related)"
            )),
        }
    }

    /// Returns the names that are set.
    fn names(&self) -> impl Iterator<Item = (NameKind, &NamePattern)> {
        let all = [
            (NameKind::Tls, &self.tls_name),
            (NameKind::Http, &self.http_host),
            (NameKind::Dns, &self.dns_name),
        ];
        all.into_iter()
            .filter_map(|(kind, name)| Some((kind, name.as_ref()?)))
    }

    fn check_name(&self) -> Result<(), String> {
        let Some((kind, name)) = self.names().next() else {
            return Ok(());
        };
        let key = kind.key();
        if self.names().count() > 1 {
            return Err("tls-name, http-host and dns-name exclude each other (set one)".to_owned());
        }
        if name.is_wildcard() {
            return Err(format!("{key} '{name}' is not a single name (remove '*.')"));
        }
        match self.destination_port {
            Some(_) => Ok(()),
            None => Err(format!("{key} requires protocol and ports (set them)")),
        }
    }

    /// Returns the name of its connection.
    #[must_use]
    pub fn name(&self) -> Option<(NameKind, &str)> {
        let mut names = self.names();
        names.next().map(|(kind, name)| (kind, name.name()))
    }

    /// Returns the ICMP of its version of IP.
    fn own_icmp(&self) -> Option<Protocol> {
        self.source.map(|source| match source {
            IpAddr::V4(_) => ICMP,
            IpAddr::V6(_) => ICMPV6,
        })
    }

    /// Returns its EtherType.
    fn own_ethertype(&self) -> Option<EtherType> {
        self.source.map(EtherType::of).or(self.ethertype)
    }

    /// Returns its DSCP; `None` if it is no IP packet.
    fn own_dscp(&self) -> Option<Dscp> {
        self.source.map(|_| self.dscp.unwrap_or(Dscp(0)))
    }

    /// Returns its TCP flags; `None` if it has none.
    fn own_flags(&self) -> Option<FlagList> {
        let has_flags = self.protocol == Some(TCP) && self.source_port.is_some();
        has_flags.then(|| self.tcp_flags.unwrap_or(FlagList(0)))
    }

    /// Returns ICMP type and code; `None` if it has none.
    fn own_icmp_type(&self) -> Option<(u8, u8)> {
        Some((self.icmp_type?, self.icmp_code.unwrap_or(0)))
    }

    /// Returns the state of its connection.
    #[must_use]
    pub fn own_ct_state(&self) -> CtState {
        self.ct_state.unwrap_or(CtState::Untracked)
    }

    /// Returns the mark of its connection.
    #[must_use]
    pub fn own_mark(&self) -> u32 {
        self.ct_mark.and_then(MarkBits::whole).unwrap_or(0)
    }

    /// Returns the label of its connection.
    #[must_use]
    pub fn own_label(&self) -> u128 {
        self.ct_label.and_then(LabelBits::whole).unwrap_or(0)
    }

    /// Returns the packet as a key of the classifier, without ingress.
    pub(super) fn key(&self) -> Key {
        let mut key = Key::EMPTY;
        if let Some(vlan) = self.vlan {
            key.set_vlan(vlan.get());
        }
        if let Some(EtherType(ethertype)) = self.own_ethertype() {
            key.set_ethertype(ethertype);
        }
        match (self.source, self.destination) {
            (Some(IpAddr::V4(source)), Some(IpAddr::V4(destination))) => {
                key.set_ipv4(source.to_bits(), destination.to_bits());
            }
            (Some(IpAddr::V6(source)), Some(IpAddr::V6(destination))) => {
                key.set_ipv6(source.to_bits(), destination.to_bits());
            }
            _ => {}
        }
        if let Some(Protocol(protocol)) = self.protocol {
            key.set_protocol(protocol);
        }
        if let (Some(source), Some(destination)) = (self.source_port, self.destination_port) {
            key.set_ports(source, destination);
        }
        let number = |mac: Option<MacAddress>| mac.map_or(0, MacAddress::to_u64);
        key.set_macs(number(self.source_mac), number(self.destination_mac));
        if let Some(FlagList(flags)) = self.own_flags() {
            key.set(Field::TCP_FLAGS, u32::from(flags));
            key.set(Field::HAS_TCP_FLAGS, 1);
        }
        if let Some((kind, code)) = self.own_icmp_type() {
            key.set_icmp(kind, code);
        }
        if let Some(Dscp(dscp)) = self.own_dscp() {
            key.set(Field::DSCP, u32::from(dscp));
            key.set(Field::HAS_DSCP, 1);
        }
        set_state(&mut key, self.own_ct_state());
        key
    }

    /// Returns the fields in which the packet differs from a rule. `elements_of` returns the elements of a set.
    pub fn differences<'sets>(
        &self,
        rule: &RuleMatch,
        elements_of: impl Fn(&SetName) -> &'sets [Element],
    ) -> Vec<Difference> {
        let mut found = Differences::default();
        found.equal("ethertype", rule.ethertype, self.own_ethertype());
        found.equal("protocol", rule.protocol, self.protocol);
        for (field, wanted, has) in [
            (SetField::Source, &rule.source, self.source),
            (SetField::Destination, &rule.destination, self.destination),
        ] {
            found.within(field, wanted.as_ref(), has, |wanted, has| match wanted {
                OrSet::Value(prefix) => prefix.contains(has),
                OrSet::Set(name) => elements_of(name).iter().any(|one| has_address(one, *has)),
            });
        }
        for (field, wanted, has) in [
            (SetField::SourcePort, &rule.source_port, self.source_port),
            (
                SetField::DestinationPort,
                &rule.destination_port,
                self.destination_port,
            ),
        ] {
            found.within(field, wanted.as_ref(), has, |wanted, has| match wanted {
                OrSet::Value(ports) => (ports.first..=ports.last).contains(has),
                OrSet::Set(name) => elements_of(name).iter().any(|one| has_port(one, *has)),
            });
        }
        let mac = |mac: Option<MacAddress>| Some(mac.unwrap_or(MacAddress([0; 6])));
        for (field, wanted, has) in [
            (SetField::SourceMac, &rule.source_mac, mac(self.source_mac)),
            (
                SetField::DestinationMac,
                &rule.destination_mac,
                mac(self.destination_mac),
            ),
        ] {
            found.within(field, wanted.as_ref(), has, |wanted, has| match wanted {
                OrSet::Value(mac) => mac == has,
                OrSet::Set(name) => elements_of(name).contains(&Element::Mac(*has)),
            });
        }
        let flags = |wanted: &TcpFlags, has: &FlagList| has.0 & wanted.mask == wanted.value;
        found.within(
            "tcp-flags",
            rule.tcp_flags.as_ref(),
            self.own_flags(),
            flags,
        );
        let icmp = self.own_icmp_type();
        found.equal("icmp-type", rule.icmp_type, icmp.map(|one| one.0));
        found.equal("icmp-code", rule.icmp_code, icmp.map(|one| one.1));
        found.equal("dscp", rule.dscp, self.own_dscp());
        found.equal("tagged", rule.tagged, Some(self.vlan.is_some()));
        found.0
    }
}

fn has_address(element: &Element, address: IpAddr) -> bool {
    match (element, address) {
        (Element::Ipv4(first, last), IpAddr::V4(one)) => (*first..=*last).contains(&one),
        (Element::Ipv6(first, last), IpAddr::V6(one)) => (*first..=*last).contains(&one),
        _ => false,
    }
}

fn has_port(element: &Element, port: u16) -> bool {
    matches!(element, Element::Ports(first, last) if (*first..=*last).contains(&port))
}

/// Differences found so far.
#[derive(Debug, Default)]
struct Differences(Vec<Difference>);

impl Differences {
    fn equal<T: PartialEq + ToString>(&mut self, field: &str, wanted: Option<T>, has: Option<T>) {
        self.within(field, wanted.as_ref(), has, |wanted, has| wanted == has);
    }

    fn within<W: ToString, T: ToString>(
        &mut self,
        field: impl ToString,
        wanted: Option<&W>,
        has: Option<T>,
        is_within: impl Fn(&W, &T) -> bool,
    ) {
        let Some(wanted) = wanted else { return };
        if has.as_ref().is_some_and(|has| is_within(wanted, has)) {
            return;
        }
        self.0.push(Difference {
            field: field.to_string(),
            required: wanted.to_string(),
            packet: has.map(|has| has.to_string()),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_that_cannot_be_are_refused() {
        let check = |json: &str| {
            serde_json::from_str::<DescribedPacket>(json)
                .unwrap()
                .check()
        };
        for fine in [
            "{}",
            r#"{"ethertype":"arp","vlan":7,"ct-state":"untracked"}"#,
            r#"{"source":"::1","destination":"::2","ct-state":"established"}"#,
            r#"{"source":"::1","destination":"::2","ct-state":"new","ct-label":"0x5"}"#,
            r#"{"source":"::1","destination":"::2","ct-state":"new","ct-mark":"0x5"}"#,
            r#"{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"tcp","source-port":1,"destination-port":2,"tcp-flags":"syn,ack"}"#,
            r#"{"source":"::1","destination":"::2","protocol":"icmpv6","icmp-type":1,"icmp-code":4,"dscp":"ef"}"#,
        ] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
        for (wrong, reason) in [
            (r#"{"source":"10.0.0.1"}"#, "both source and destination"),
            (
                r#"{"source":"10.0.0.1","destination":"::1"}"#,
                "different IP versions",
            ),
            (
                r#"{"ethertype":"arp","source":"::2","destination":"::1"}"#,
                "do not match the ethertype",
            ),
            (r#"{"protocol":"tcp"}"#, "requires source and destination"),
            (
                r#"{"source":"::2","destination":"::1","source-port":1}"#,
                "both ports",
            ),
            (
                r#"{"source":"::2","destination":"::1","protocol":"icmp","icmp-type":1}"#,
                "icmpv6 with IPv6",
            ),
            (
                r#"{"source":"::2","destination":"::1","protocol":"tcp","tcp-flags":"syn"}"#,
                "and ports",
            ),
            (r#"{"dscp":"ef"}"#, "dscp requires"),
            (r#"{"ct-state":"new"}"#, "ct-state requires"),
            (r#"{"ct-label":"1"}"#, "ct-label requires a connection"),
            (r#"{"ct-mark":"1"}"#, "ct-mark requires a connection"),
            (
                r#"{"source":"::1","destination":"::2","ct-state":"new","ct-mark":"1/3"}"#,
                "'0x1/0x3' is not a whole mark (remove the mask)",
            ),
            (
                r#"{"source":"::1","destination":"::2","ct-state":"new","ct-label":"1/3"}"#,
                "remove the mask",
            ),
            (
                r#"{"tls-name":"example.org"}"#,
                "requires protocol and ports",
            ),
            (r#"{"dns-name":"*.example.org"}"#, "not a single name"),
            (
                r#"{"http-host":"a.example","dns-name":"a.example"}"#,
                "exclude each other",
            ),
        ] {
            let error = check(wrong).unwrap_err();
            assert!(error.contains(reason), "{wrong}: {error}");
        }
    }

    #[test]
    fn differences_name_the_field_and_both_values() {
        let packet: DescribedPacket = serde_json::from_str(
            r#"{"source":"10.0.0.1","destination":"10.0.0.2","protocol":"tcp","source-port":1,"destination-port":22}"#,
        )
        .unwrap();
        let set: [Element; 1] = ["443".parse().unwrap()];
        let differences = |json: &str| {
            let rule: RuleMatch = serde_json::from_str(json).unwrap();
            let found = packet.differences(&rule, |_| &set);
            let text = |one: Difference| {
                let packet = one.packet.unwrap_or_else(|| "-".to_owned());
                format!("{} {} {packet}", one.field, one.required)
            };
            found.into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(differences("{}"), [""; 0]);
        let web = r#"{"protocol":"tcp","source":"10.0.0.0/8","destination-port":"@web","tcp-flags":"syn / syn,ack"}"#;
        assert_eq!(
            differences(web),
            ["destination-port @web 22", "tcp-flags syn / syn,ack 0"]
        );
        assert_eq!(
            differences(r#"{"protocol":"icmp","icmp-type":8,"dscp":"ef"}"#),
            ["protocol icmp tcp", "icmp-type 8 -", "dscp ef cs0"]
        );
        assert_eq!(differences(r#"{"tagged":true}"#), ["tagged true false"]);
        assert_eq!(differences(r#"{"tagged":false}"#), [""; 0]);
    }
}
