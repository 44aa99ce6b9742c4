// SPDX-License-Identifier: Apache-2.0
//! Texts of trace events, with the names of ports, bridges and interfaces.

use std::fmt::Write;

use quietwire_packet::{ArpOperation, EtherType, Transport, parse};

use super::filter::ip_addresses;
use super::trace::{EventKind, ServiceOutcome};
use crate::config::rules::Action;
use crate::engine::Engine;
use quietwire_tables::bridge::{self, Ingress, TagAction};
use quietwire_tables::filter::Verdict;
use quietwire_tables::route;

/// Names by number.
#[derive(Debug, Default)]
pub(crate) struct Names {
    pub(super) ports: Vec<Option<String>>,
    /// Bridge of each port.
    pub(super) bridges: Vec<Option<String>>,
    pub(super) interfaces: Vec<Option<String>>,
    pub(super) rules: Vec<String>,
}

fn name(list: &[Option<String>], number: u16) -> String {
    match list.get(usize::from(number)) {
        Some(Some(name)) => name.clone(),
        _ => format!("number {number}"),
    }
}

impl Engine {
    pub(super) fn port_name(&self, number: u16) -> String {
        self.slot(number)
            .map_or_else(|| format!("number {number}"), |slot| slot.plan.name.clone())
    }

    pub(super) fn names(&self) -> Names {
        let mut names = Names {
            interfaces: self.interface_names().to_vec(),
            rules: self.rule_names(),
            ..Names::default()
        };
        for slot in &self.slots {
            let port = slot.as_ref().map(|slot| slot.plan.name.clone());
            let group = port.as_deref().and_then(|port| self.group_of(port));
            names.bridges.push(match group {
                Some(crate::config::Group::Bridge(bridge)) => Some(bridge.name.clone()),
                _ => None,
            });
            names.ports.push(port);
        }
        names
    }
}

impl Names {
    /// Returns the step and its result.
    pub(super) fn describe_event(&self, what: EventKind) -> (&'static str, String) {
        let port = |number| name(&self.ports, number);
        match what {
            EventKind::Received {
                port: number,
                queue,
            } => (
                "receive",
                format!("on port {}, queue {queue}", port(number)),
            ),
            EventKind::Filtered(verdict) => ("filter", self.filtered(verdict)),
            EventKind::Bridged(from, decision) => ("bridge", self.bridged(from, decision)),
            EventKind::Routed(from, decision) => ("route", self.routed(from, decision)),
            EventKind::Sent(number) => ("send", format!("to port {}", port(number))),
            EventKind::QueueFull(number) => (
                "drop",
                format!("transmit queue of port {} full", port(number)),
            ),
            EventKind::HandedOver(number) => (
                "relay",
                format!(
                    "to the thread with a transmit queue of port {}",
                    port(number)
                ),
            ),
            EventKind::HandedToOwner => {
                ("relay", "to the thread that has the connection".to_owned())
            }
            EventKind::OwnerBusy => (
                "drop",
                "ring to the thread that has the connection full".to_owned(),
            ),
            EventKind::Handled(served) => ("service", service(served).to_owned()),
            EventKind::Lost => (
                "drop",
                "not sent: no buffer for a copy, or no output to the port".to_owned(),
            ),
        }
    }

    /// Returns the name of a rule.
    fn rule(&self, number: u32) -> String {
        let name = self.rules.get(number as usize);
        name.map_or_else(|| format!("number {number}"), String::clone)
    }

    fn filtered(&self, verdict: Verdict) -> String {
        let done = Action::text;
        match verdict {
            Verdict::Rule(number, action) => {
                format!("{} by rule {}", done(action), self.rule(number))
            }
            Verdict::Default(action) => format!("{}: no rule matches", done(action)),
            Verdict::Malformed(kind) => format!("dropped: malformed ({})", kind.name()),
            Verdict::Short => "shorter than its header".to_owned(),
            Verdict::Refused(refusal) => format!("dropped: {}", refusal.text()),
            Verdict::Guarded(reason) => format!("dropped: {}", reason.text()),
            Verdict::Held(number) => {
                format!("waits for an inspector, by rule {}", self.rule(number))
            }
            Verdict::Inspected(number, reason) => {
                format!("dropped: {}, by rule {}", reason.text(), self.rule(number))
            }
        }
    }

    fn bridged(&self, from: Ingress, decision: bridge::Decision) -> String {
        let port = |number| name(&self.ports, number);
        let (bridge, from) = match from {
            Ingress::Port(number) => (
                name(&self.bridges, number),
                format!("from port {}", port(number)),
            ),
            Ingress::Interface(number) => (
                String::new(),
                format!("from interface {}", name(&self.interfaces, number)),
            ),
        };
        let what = match decision {
            bridge::Decision::Forward(number) => format!("to port {}", port(number)),
            bridge::Decision::ForwardTag(number, action) => {
                format!("to port {}{}", port(number), tag(action))
            }
            bridge::Decision::Flood => "flooded to all other ports".to_owned(),
            bridge::Decision::FloodSet(_) => "flooded to the ports of its VLAN and kind".to_owned(),
            bridge::Decision::Local(number, action) => format!(
                "to the router, interface {}{}",
                name(&self.interfaces, number),
                tag(action)
            ),
            bridge::Decision::Drop(reason) => format!("dropped: {}", reason.text()),
        };
        let space = if bridge.is_empty() { "" } else { " " };
        format!("{bridge}{space}{from}: {what}")
    }

    fn routed(&self, from: u16, decision: route::Decision) -> String {
        let interface = |number| name(&self.interfaces, number);
        let what = match decision {
            route::Decision::Forward(to) => {
                format!(
                    "out of interface {} to {}",
                    interface(to.interface()),
                    to.mac()
                )
            }
            route::Decision::Fragment(to) => {
                let out = interface(to.interface());
                format!("in fragments, out of interface {out} to {}", to.mac())
            }
            route::Decision::Punt(punt) => format!("to the service thread: {}", punt.name()),
            route::Decision::Drop(reason) => format!("dropped: {}", reason.name()),
        };
        format!("from interface {}: {what}", interface(from))
    }
}

fn tag(action: TagAction) -> String {
    match action {
        TagAction::None => String::new(),
        TagAction::Pop => ", tag removed".to_owned(),
        TagAction::Push(tag) => format!(", tagged with VLAN {}", tag.tci & 0xfff),
        TagAction::Replace(tag) => format!(", tag changed to VLAN {}", tag.tci & 0xfff),
    }
}

fn service(served: ServiceOutcome) -> &'static str {
    match served {
        ServiceOutcome::Echoed => "echo request answered",
        ServiceOutcome::Error => "ICMP error sent",
        ServiceOutcome::ToKernel => "passed to the kernel",
        ServiceOutcome::Waits => "waits for its neighbour (trace of this frame ends)",
        ServiceOutcome::Neighbours => "neighbour table updated",
        ServiceOutcome::NoReceiver => "no receiver",
        ServiceOutcome::Nothing => "no visible result",
    }
}

/// Describes a frame in one line.
pub(super) fn describe(octets: &[u8], length: u32) -> String {
    let mut text = format!("{length} octets");
    // The parser examines only the first octets; the frame has more.
    let mut whole = octets.to_vec();
    whole.resize(octets.len().max(length as usize), 0);
    let octets = &whole[..];
    let parsed = match parse(octets) {
        Ok(parsed) => parsed,
        Err(damage) => {
            // Writing to a string cannot fail, here and below.
            let _ = write!(text, ", {damage}");
            return text;
        }
    };
    let _ = write!(text, ", {} > {}", parsed.source, parsed.destination);
    for tag in parsed.tags.into_iter().flatten() {
        let _ = write!(text, ", VLAN {}", tag.tci & 0xfff);
    }
    if let (Some(arp), Some([sender, target])) = (parsed.arp(octets), ip_addresses(&parsed, octets))
    {
        let _ = match arp.operation() {
            ArpOperation::Request => write!(text, ", ARP: {sender} asks for {target}"),
            ArpOperation::Reply => write!(text, ", ARP: {sender} is at {}", arp.sender_mac()),
            ArpOperation::Other(other) => write!(text, ", ARP operation {other}"),
        };
        return text;
    }
    let Some(ip) = parsed.ip() else {
        let EtherType(number) = parsed.ethertype;
        let _ = write!(text, ", type 0x{number:04x}");
        return text;
    };
    if let Some([source, destination]) = ip_addresses(&parsed, octets) {
        let hops = parsed.ipv4(octets).map(|header| header.ttl());
        let hops = hops.or_else(|| Some(parsed.ipv6(octets)?.hop_limit()));
        let _ = write!(
            text,
            ", {source} > {destination}, hops {}",
            hops.unwrap_or(0)
        );
    }
    let _ = match ip.transport {
        Transport::Udp {
            source_port,
            destination_port,
        } => write!(text, ", UDP {source_port} > {destination_port}"),
        Transport::Tcp {
            source_port,
            destination_port,
            flags,
        } => write!(
            text,
            ", TCP {source_port} > {destination_port}, flags 0x{flags:02x}"
        ),
        Transport::Icmp { kind, code } => write!(text, ", ICMP type {kind} code {code}"),
        Transport::Other => write!(text, ", {}", ip.protocol),
    };
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_described() {
        let builder = etherparse::PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2])
            .ipv4([10, 0, 0, 1], [10, 0, 1, 1], 9)
            .udp(1000, 53);
        let mut frame = Vec::new();
        builder.write(&mut frame, &[0; 8]).unwrap();
        assert_eq!(
            describe(&frame, 50),
            "50 octets, 02:00:00:00:00:01 > 02:00:00:00:00:02, 10.0.0.1 > 10.0.1.1, hops 9, UDP 1000 > 53"
        );
        // No octets can cause a panic.
        for end in 0..frame.len() {
            assert!(!describe(&frame[..end], 1).is_empty());
        }
    }

    #[test]
    fn names_are_used_where_there_are_any() {
        let names = Names {
            ports: vec![Some("left".to_owned()), Some("right".to_owned())],
            bridges: vec![Some("lan".to_owned())],
            interfaces: vec![None, Some("uplink".to_owned())],
            rules: vec!["web".to_owned()],
        };
        let to_event = |what| {
            let (step, what) = names.describe_event(what);
            format!("{step}: {what}")
        };
        assert_eq!(
            to_event(EventKind::Bridged(
                Ingress::Port(0),
                bridge::Decision::Forward(1)
            )),
            "bridge: lan from port left: to port right"
        );
        assert_eq!(
            to_event(EventKind::Routed(
                1,
                route::Decision::Punt(route::Punt::Arp)
            )),
            "route: from interface uplink: to the service thread: arp"
        );
        assert_eq!(
            to_event(EventKind::Filtered(Verdict::Rule(0, Action::Accept))),
            "filter: accepted by rule web"
        );
        assert_eq!(
            to_event(EventKind::Filtered(Verdict::Default(Action::Drop))),
            "filter: dropped: no rule matches"
        );
        assert_eq!(
            to_event(EventKind::Filtered(Verdict::Held(0))),
            "filter: waits for an inspector, by rule web"
        );
        let reason = quietwire_tables::drops::PortDrop::NoVerdict;
        assert_eq!(
            to_event(EventKind::Filtered(Verdict::Inspected(0, reason))),
            "filter: dropped: no verdict of the inspector, by rule web"
        );
        let kind = quietwire_tables::filter::Malformation::TooManyTags;
        assert_eq!(
            to_event(EventKind::Filtered(Verdict::Malformed(kind))),
            "filter: dropped: malformed (too-many-tags)"
        );
        assert_eq!(to_event(EventKind::Sent(7)), "send: to port number 7");
    }
}
