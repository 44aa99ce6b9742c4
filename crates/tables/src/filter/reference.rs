// SPDX-License-Identifier: Apache-2.0
//! Reference implementation of the rules, slow and obvious: octet by octet, prefix by prefix.

mod malformed;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use quietwire_packet::IPV6_EXTENSIONS_MAX;

use super::{Action, MalformedAction, PacketMatch, Ports, Verdict};

pub(super) use malformed::malformation;

/// A rule: a VLAN, a packet, an action.
pub(super) type Rule = (Option<u16>, PacketMatch, Action);

#[derive(Debug, Default)]
struct Packet {
    vlan: Option<u16>,
    ethertype: Option<u16>,
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

fn number(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*octets.get(at)?) * 256 + u16::from(*octets.get(at + 1)?))
}

fn read(frame: &[u8]) -> Packet {
    let mut packet = Packet::default();
    let mut at = 12;
    for _ in 0..2 {
        let is_tag = [Some(0x8100), Some(0x88a8)].contains(&number(frame, at));
        let Some(tag) = number(frame, at + 2).filter(|_| is_tag) else {
            break;
        };
        packet.vlan = packet.vlan.or(Some(tag % 4096));
        at += 4;
    }
    packet.ethertype = number(frame, at);
    let ip = frame.get(at + 2..).unwrap_or_default();
    match packet.ethertype {
        Some(0x0800) => read_v4(&mut packet, ip),
        Some(0x86dd) => read_v6(&mut packet, ip),
        _ => {}
    }
    packet
}

fn read_v4(packet: &mut Packet, ip: &[u8]) {
    if ip.len() < 20 || ip[0] / 16 != 4 || ip[0] % 16 < 5 {
        return;
    }
    let address =
        |at: usize| IpAddr::from(Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]));
    packet.addresses = Some((address(12), address(16)));
    packet.protocol = Some(ip[9]);
    let fragment_offset = number(ip, 6).unwrap() % 8192;
    if fragment_offset == 0 {
        read_ports(packet, ip, usize::from(ip[0] % 16) * 4);
    }
}

fn read_v6(packet: &mut Packet, ip: &[u8]) {
    if ip.len() < 40 || ip[0] / 16 != 6 {
        return;
    }
    let address = |at: usize| {
        let octets: [u8; 16] = ip[at..at + 16].try_into().unwrap();
        IpAddr::from(Ipv6Addr::from(octets))
    };
    packet.addresses = Some((address(8), address(24)));
    let (mut next, mut at, mut headers) = (ip[6], 40, 0);
    // RFC 8200, section 4; RFC 4302; RFC 6275; RFC 7401; RFC 5533.
    while [0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
        headers += 1;
        if headers > IPV6_EXTENSIONS_MAX || ip.len() < at + 8 {
            return;
        }
        let length = match next {
            44 => 8,
            51 => (usize::from(ip[at + 1]) + 2) * 4,
            _ => (usize::from(ip[at + 1]) + 1) * 8,
        };
        if ip.len() < at + length {
            return;
        }
        let is_later = next == 44 && number(ip, at + 2).unwrap() / 8 != 0;
        next = ip[at];
        at += length;
        if is_later {
            packet.protocol = Some(next);
            return;
        }
    }
    packet.protocol = Some(next);
    read_ports(packet, ip, at);
}

fn read_ports(packet: &mut Packet, ip: &[u8], at: usize) {
    if [6, 17, 33, 132, 136].map(Some).contains(&packet.protocol) {
        packet.ports = number(ip, at).zip(number(ip, at + 2));
    }
}

impl Packet {
    fn is_as(&self, (vlan, asked, _): &Rule) -> bool {
        let prefixes = [asked.source, asked.destination];
        let is_of_version = prefixes.iter().flatten().all(|prefix| {
            let ethertype = if prefix.addr().is_ipv4() {
                0x0800
            } else {
                0x86dd
            };
            self.ethertype == Some(ethertype)
        });
        let within = |prefix: Option<ipnet::IpNet>, of: fn((IpAddr, IpAddr)) -> IpAddr| {
            prefix.is_none_or(|prefix| {
                self.addresses
                    .is_some_and(|addresses| prefix.contains(&of(addresses)))
            })
        };
        let among = |range: Option<Ports>, of: fn((u16, u16)) -> u16| {
            range.is_none_or(|Ports { first, last }| {
                self.ports
                    .is_some_and(|ports| (first..=last).contains(&of(ports)))
            })
        };
        (vlan.is_none() || *vlan == self.vlan)
            && (asked.ethertype.is_none() || asked.ethertype.map(|one| one.0) == self.ethertype)
            && (asked.protocol.is_none() || asked.protocol.map(|one| one.0) == self.protocol)
            && is_of_version
            && within(asked.source, |(from, _)| from)
            && within(asked.destination, |(_, to)| to)
            && among(asked.source_port, |(from, _)| from)
            && among(asked.destination_port, |(_, to)| to)
    }
}

/// Returns the action of these rules for a frame, of which this number of octets are in the first buffer.
pub(super) fn judge(
    rules: &[Rule],
    (default, malformed): (Action, MalformedAction),
    (frame, held): (&[u8], usize),
) -> Verdict {
    if frame.len() < 14 {
        return Verdict::Short;
    }
    if malformed == MalformedAction::Drop
        && let Some(kind) = malformation(frame, held)
    {
        return Verdict::Malformed(kind);
    }
    let packet = read(&frame[..held]);
    let decides = |rule: &Rule| rule.2 != Action::Continue && packet.is_as(rule);
    match rules.iter().position(decides) {
        Some(place) => Verdict::Rule(place as u32, rules[place].2),
        None => Verdict::Default(default),
    }
}

/// Returns the numbers of the rules that continue for a frame: rule by rule, until one decides.
pub(super) fn continued(
    rules: &[Rule],
    policy: (Action, MalformedAction),
    (frame, held): (&[u8], usize),
) -> Vec<u32> {
    let end = match judge(rules, policy, (frame, held)) {
        Verdict::Rule(place, _) => place as usize,
        Verdict::Default(_) => rules.len(),
        _ => 0,
    };
    let packet = read(&frame[..held]);
    let passed = rules[..end].iter().zip(0..);
    let passed = passed.filter(|(rule, _)| packet.is_as(rule));
    passed.map(|(_, number)| number).collect()
}
