// SPDX-License-Identifier: Apache-2.0
//! A plain search: it reads a frame octet by octet, and compares it with one rule after the other. It shares no code with the filter, and
//! reads only frames of the kinds that the test generates.

use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use quietwire_switch::config::rules::{Action, Element, RuleSetting, SetSetting};
use quietwire_tables::filter::{OrSet, Ports};

/// Fields of a frame.
#[derive(Debug, Default)]
struct Packet {
    destination_mac: [u8; 6],
    source_mac: [u8; 6],
    vlan: Option<u16>,
    ethertype: u16,
    dscp: Option<u8>,
    /// Source and destination.
    addresses: Option<[IpAddr; 2]>,
    protocol: Option<u8>,
    /// Empty in later fragments.
    transport: Vec<u8>,
}

fn number(octets: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([octets[at], octets[at + 1]])
}

/// Returns true if a value, or an element of the set, is met.
fn is_met<T>(
    wanted: Option<&OrSet<T>>,
    sets: &[SetSetting],
    is_value: impl Fn(&T) -> bool,
    is_element: impl Fn(&Element) -> bool,
) -> bool {
    match wanted {
        None => true,
        Some(OrSet::Value(value)) => is_value(value),
        Some(OrSet::Set(name)) => {
            let set = sets.iter().find(|set| set.name == *name).unwrap();
            set.elements.iter().any(is_element)
        }
    }
}

impl Packet {
    fn read(frame: &[u8]) -> Self {
        let mac = |at: usize| -> [u8; 6] { frame[at..at + 6].try_into().unwrap() };
        let mut packet = Self {
            destination_mac: mac(0),
            source_mac: mac(6),
            ..Self::default()
        };
        let mut at = 12;
        if number(frame, at) == 0x8100 {
            packet.vlan = Some(number(frame, at + 2) & 0xfff);
            at += 4;
        }
        packet.ethertype = number(frame, at);
        match packet.ethertype {
            0x0800 => packet.read_v4(&frame[at + 2..]),
            0x86dd => packet.read_v6(&frame[at + 2..]),
            _ => {}
        }
        packet
    }

    fn read_v4(&mut self, ip: &[u8]) {
        let address = |at: usize| -> IpAddr {
            let octets: [u8; 4] = ip[at..at + 4].try_into().unwrap();
            octets.into()
        };
        self.dscp = Some(ip[1] >> 2);
        self.addresses = Some([address(12), address(16)]);
        self.protocol = Some(ip[9]);
        if number(ip, 6) & 0x1fff == 0 {
            let words = usize::from(ip[0] & 15);
            self.transport = ip[words * 4..].to_vec();
        }
    }

    fn read_v6(&mut self, ip: &[u8]) {
        let address = |at: usize| -> IpAddr {
            let octets: [u8; 16] = ip[at..at + 16].try_into().unwrap();
            octets.into()
        };
        self.dscp = u8::try_from((number(ip, 0) >> 6) & 0x3f).ok();
        self.addresses = Some([address(8), address(24)]);
        let (mut next, mut at) = (ip[6], 40);
        // Destination options.
        if next == 60 {
            next = ip[at];
            at += 8 * (usize::from(ip[at + 1]) + 1);
        }
        let mut is_later = false;
        // A fragment.
        if next == 44 {
            next = ip[at];
            is_later = number(ip, at + 2) >> 3 != 0;
            at += 8;
        }
        self.protocol = Some(next);
        if !is_later {
            self.transport = ip[at..].to_vec();
        }
    }

    fn has_address(&self, side: usize, wanted: Option<&OrSet<IpNet>>, sets: &[SetSetting]) -> bool {
        let address = self.addresses.map(|addresses| addresses[side]);
        let is_value = |prefix: &IpNet| address.is_some_and(|address| prefix.contains(&address));
        let is_element = |element: &Element| match (*element, address) {
            (Element::Ipv4(first, last), Some(IpAddr::V4(address))) => {
                (first..=last).contains(&address)
            }
            (Element::Ipv6(first, last), Some(IpAddr::V6(address))) => {
                (first..=last).contains(&address)
            }
            _ => false,
        };
        is_met(wanted, sets, is_value, is_element)
    }

    /// Compares the port at this offset of the transport header.
    fn has_port(&self, at: usize, wanted: Option<&OrSet<Ports>>, sets: &[SetSetting]) -> bool {
        let has_ports = matches!(self.protocol, Some(6 | 17)) && !self.transport.is_empty();
        let port = has_ports.then(|| number(&self.transport, at));
        let is_within =
            |first: u16, last: u16| port.is_some_and(|port| (first..=last).contains(&port));
        let is_value = |ports: &Ports| is_within(ports.first, ports.last);
        let is_element = |element: &Element| match *element {
            Element::Ports(first, last) => is_within(first, last),
            _ => false,
        };
        is_met(wanted, sets, is_value, is_element)
    }

    /// Compares flags of TCP, and type and code of ICMP.
    fn has_details(&self, rule: &RuleSetting) -> bool {
        let octet = |is_present: bool, at: usize| {
            let octet = self.transport.get(at).filter(|_| is_present);
            octet.copied()
        };
        let flags = octet(self.protocol == Some(6), 13);
        let is_icmp = matches!(self.protocol, Some(1 | 58));
        let (kind, code) = (octet(is_icmp, 0), octet(is_icmp, 1));
        let packet = &rule.packet;
        let has_flags = packet
            .tcp_flags
            .is_none_or(|wanted| flags.is_some_and(|flags| flags & wanted.mask == wanted.value));
        has_flags
            && (packet.icmp_type.is_none() || packet.icmp_type == kind)
            && (packet.icmp_code.is_none() || packet.icmp_code == code)
    }

    fn meets(&self, rule: &RuleSetting, sets: &[SetSetting]) -> bool {
        let packet = &rule.packet;
        let has_mac = |mac: [u8; 6], wanted: Option<&OrSet<MacAddress>>| {
            let is_element = |element: &Element| *element == Element::Mac(MacAddress(mac));
            is_met(wanted, sets, |wanted| wanted.0 == mac, is_element)
        };
        let is_tagged = self.vlan.is_some();
        (rule.vlan.is_none() || rule.vlan.map(VlanId::get) == self.vlan)
            && packet.tagged.is_none_or(|wanted| wanted == is_tagged)
            && packet.ethertype.is_none_or(|one| one.0 == self.ethertype)
            && (packet.protocol.is_none() || packet.protocol.map(|one| one.0) == self.protocol)
            && (packet.dscp.is_none() || packet.dscp.map(|one| one.0) == self.dscp)
            && has_mac(self.source_mac, packet.source_mac.as_ref())
            && has_mac(self.destination_mac, packet.destination_mac.as_ref())
            && self.has_address(0, packet.source.as_ref(), sets)
            && self.has_address(1, packet.destination.as_ref(), sets)
            && self.has_port(0, packet.source_port.as_ref(), sets)
            && self.has_port(2, packet.destination_port.as_ref(), sets)
            && self.has_details(rule)
    }
}

/// Returns the number of the rule that decides on a frame, and the numbers of the rules in front of it that match and continue.
pub(super) fn search(
    rules: &[RuleSetting],
    sets: &[SetSetting],
    frame: &[u8],
) -> (Option<u32>, Vec<u32>) {
    let packet = Packet::read(frame);
    let mut continued = Vec::new();
    for (number, rule) in (0u32..).zip(rules) {
        if !packet.meets(rule, sets) {
            continue;
        }
        if rule.action != Action::Continue {
            return (Some(number), continued);
        }
        continued.push(number);
    }
    (None, continued)
}
