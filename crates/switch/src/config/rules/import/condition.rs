// SPDX-License-Identifier: Apache-2.0
//! Conditions of imported rules.

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_tables::connections::MarkBits;
use quietwire_tables::filter::{
    CtStates, Dscp, Element, EtherType, OrSet, Ports, Protocol, RuleMatch, SetName, TcpFlags,
};

use crate::config::rules::{Direction, RuleSetting, port_set};

/// A condition on one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Port(String),
    OutPort(String),
    Vlan(VlanId),
    Ethertype(EtherType),
    Protocol(Protocol),
    Source(OrSet<IpNet>),
    Destination(OrSet<IpNet>),
    SourcePort(OrSet<Ports>),
    DestinationPort(OrSet<Ports>),
    SourceMac(OrSet<MacAddress>),
    DestinationMac(OrSet<MacAddress>),
    TcpFlags(TcpFlags),
    IcmpType(u8),
    IcmpCode(u8),
    Dscp(Dscp),
    Tagged(bool),
    CtState(CtStates),
    CtMark(MarkBits),
}

/// Alternatives of which one has to hold. None: nothing matches.
pub(super) type Alternatives = Vec<Condition>;

/// Result of a condition in addition to those before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// Some packets can match.
    Possible,
    /// No packet can match.
    Never,
}

/// Requires a value of a field that has no value, or the same.
fn equal<T: PartialEq>(field: &mut Option<T>, value: T) -> Added {
    match field {
        None => {
            *field = Some(value);
            Added::Possible
        }
        Some(former) if *former == value => Added::Possible,
        Some(_) => Added::Never,
    }
}

/// Requires a port, or one of a set of ports.
fn at_port(field: &mut Option<String>, name: String) -> Result<Added, String> {
    let is_set = |name: &str| port_set(name).is_some();
    let former = field.as_ref().filter(|former| **former != name);
    match former.is_some_and(|former| is_set(former) || is_set(&name)) {
        true => Err("two conditions on one interface, one of them a set".to_owned()),
        false => Ok(equal(field, name)),
    }
}

/// Requires a value or a set. `narrower` returns the part that two values have in common.
fn within<T: Copy + PartialEq>(
    field: &mut Option<OrSet<T>>,
    value: OrSet<T>,
    narrower: impl Fn(T, T) -> Option<T>,
) -> Result<Added, String> {
    let former = match field {
        None => {
            *field = Some(value);
            return Ok(Added::Possible);
        }
        Some(former) => former,
    };
    if *former == value {
        return Ok(Added::Possible);
    }
    match (former, value) {
        (OrSet::Value(former), OrSet::Value(value)) => match narrower(*former, value) {
            Some(both) => {
                *former = both;
                Ok(Added::Possible)
            }
            None => Ok(Added::Never),
        },
        _ => Err("two conditions on one field, one of them a set".to_owned()),
    }
}

/// Requires one of these states, too.
fn in_states(field: &mut Option<CtStates>, states: CtStates) -> Added {
    let former = field.unwrap_or(states);
    match former.intersection(states) {
        None => Added::Never,
        both => {
            *field = both;
            Added::Possible
        }
    }
}

/// Requires these bits of the mark of a connection, too. Packets without a connection have the mark 0, but none in nftables.
fn marked(rule: &mut RuleSetting, bits: MarkBits) -> Result<Added, String> {
    if bits.matches(0) {
        let states = "new,established,related".parse::<CtStates>()?;
        if in_states(&mut rule.ct_state, states) == Added::Never {
            return Ok(Added::Never);
        }
    }
    let former = rule.ct_mark.unwrap_or(bits);
    rule.ct_mark = former.intersection(bits);
    Ok(match rule.ct_mark {
        None => Added::Never,
        Some(_) => Added::Possible,
    })
}

fn common_prefix(a: IpNet, b: IpNet) -> Option<IpNet> {
    match (a.contains(&b), b.contains(&a)) {
        (true, _) => Some(b),
        (_, true) => Some(a),
        _ => None,
    }
}

fn common_ports(a: Ports, b: Ports) -> Option<Ports> {
    let (first, last) = (a.first.max(b.first), a.last.min(b.last));
    (first <= last).then_some(Ports { first, last })
}

fn same_mac(a: MacAddress, b: MacAddress) -> Option<MacAddress> {
    (a == b).then_some(a)
}

impl Condition {
    /// Adds the condition to a rule.
    ///
    /// # Errors
    /// The reason why the rule cannot have both conditions.
    pub(super) fn add_to(self, rule: &mut RuleSetting) -> Result<Added, String> {
        let packet: &mut RuleMatch = &mut rule.packet;
        Ok(match self {
            Self::Port(name) => at_port(&mut rule.port, name)?,
            Self::OutPort(name) => {
                // The expansion puts both interfaces in their places.
                rule.direction = Some(Direction::Out);
                at_port(&mut rule.from, name)?
            }
            Self::Vlan(vlan) => equal(&mut rule.vlan, vlan),
            Self::Ethertype(ethertype) => equal(&mut packet.ethertype, ethertype),
            Self::Protocol(protocol) => equal(&mut packet.protocol, protocol),
            Self::Source(value) => within(&mut packet.source, value, common_prefix)?,
            Self::Destination(value) => within(&mut packet.destination, value, common_prefix)?,
            Self::SourcePort(value) => within(&mut packet.source_port, value, common_ports)?,
            Self::DestinationPort(value) => {
                within(&mut packet.destination_port, value, common_ports)?
            }
            Self::SourceMac(value) => within(&mut packet.source_mac, value, same_mac)?,
            Self::DestinationMac(value) => within(&mut packet.destination_mac, value, same_mac)?,
            Self::TcpFlags(flags) => match packet.tcp_flags {
                None => equal(&mut packet.tcp_flags, flags),
                Some(former) => {
                    let both = former.mask & flags.mask;
                    let is_contrary = former.value & both != flags.value & both;
                    packet.tcp_flags = Some(TcpFlags {
                        value: former.value | flags.value,
                        mask: former.mask | flags.mask,
                    });
                    match is_contrary {
                        true => Added::Never,
                        false => Added::Possible,
                    }
                }
            },
            Self::IcmpType(kind) => equal(&mut packet.icmp_type, kind),
            Self::IcmpCode(code) => equal(&mut packet.icmp_code, code),
            Self::Dscp(dscp) => equal(&mut packet.dscp, dscp),
            Self::Tagged(tagged) => equal(&mut packet.tagged, tagged),
            Self::CtState(states) => in_states(&mut rule.ct_state, states),
            Self::CtMark(bits) => marked(rule, bits)?,
        })
    }
}

/// Field of a condition whose values are elements of sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wide {
    Source,
    Destination,
    SourcePort,
    DestinationPort,
    SourceMac,
    DestinationMac,
}

impl Wide {
    /// Returns the condition that the value is in a set.
    pub(super) fn in_set(self, name: SetName) -> Condition {
        match self {
            Self::Source => Condition::Source(OrSet::Set(name)),
            Self::Destination => Condition::Destination(OrSet::Set(name)),
            Self::SourcePort => Condition::SourcePort(OrSet::Set(name)),
            Self::DestinationPort => Condition::DestinationPort(OrSet::Set(name)),
            Self::SourceMac => Condition::SourceMac(OrSet::Set(name)),
            Self::DestinationMac => Condition::DestinationMac(OrSet::Set(name)),
        }
    }

    /// Returns conditions of which one holds if the value is in an element.
    ///
    /// # Errors
    /// The element has another type than the field.
    pub(super) fn in_element(self, element: Element) -> Result<Alternatives, String> {
        let ports = |first, last| OrSet::Value(Ports { first, last });
        let conditions = match (self, element) {
            (Self::Source, Element::Ipv4(..) | Element::Ipv6(..)) => {
                let prefixes = element.prefixes().into_iter();
                prefixes
                    .map(|prefix| Condition::Source(OrSet::Value(prefix)))
                    .collect()
            }
            (Self::Destination, Element::Ipv4(..) | Element::Ipv6(..)) => {
                let prefixes = element.prefixes().into_iter();
                prefixes
                    .map(|prefix| Condition::Destination(OrSet::Value(prefix)))
                    .collect()
            }
            (Self::SourcePort, Element::Ports(first, last)) => {
                vec![Condition::SourcePort(ports(first, last))]
            }
            (Self::DestinationPort, Element::Ports(first, last)) => {
                vec![Condition::DestinationPort(ports(first, last))]
            }
            (Self::SourceMac, Element::Mac(mac)) => vec![Condition::SourceMac(OrSet::Value(mac))],
            (Self::DestinationMac, Element::Mac(mac)) => {
                vec![Condition::DestinationMac(OrSet::Value(mac))]
            }
            _ => return Err(format!("'{element}' is not a value of this field")),
        };
        Ok(conditions)
    }
}

/// Returns the elements that are in none of these elements, which have one type.
///
/// # Errors
/// MAC addresses and names: their complement is no list of values.
pub(super) fn complement(elements: &[Element]) -> Result<Vec<Element>, String> {
    let mut ranges: Vec<(u128, u128)> = Vec::new();
    let mut kind = None;
    for element in elements {
        let (first, last) = element
            .range()
            .ok_or("'!=' of a MAC address or name cannot be expressed")?;
        ranges.push((first, last));
        let former = *kind.get_or_insert(element.kind());
        if former != element.kind() {
            return Err("values of different types".to_owned());
        }
    }
    let kind = kind.ok_or("'!=' of an empty set")?;
    let end = Element::highest(kind).ok_or("'!=' of a MAC address or name cannot be expressed")?;
    ranges.sort_unstable();
    let mut free = Vec::new();
    let mut next = Some(0u128);
    for (first, last) in ranges {
        let Some(at) = next else { break };
        if let Some(before) = first.checked_sub(1).filter(|before| *before >= at) {
            free.push((at, before));
        }
        next = match last.max(at.saturating_sub(1)) {
            last if last >= end => None,
            last => last.checked_add(1),
        };
    }
    if let Some(at) = next {
        free.push((at, end));
    }
    let element = |(first, last)| Element::of_range(kind, first, last);
    Ok(free.into_iter().filter_map(element).collect())
}
