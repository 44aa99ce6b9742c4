// SPDX-License-Identifier: Apache-2.0
//! Rules and packets as descriptions, and the obvious comparison of both.

use std::net::IpAddr;

use ipnet::IpNet;
use proptest::prelude::*;

use super::super::key::{PORTS, WORDS};
use super::super::{Field, Key, Rule};

/// Conditions of a rule.
#[derive(Clone, Debug, Default)]
pub(super) struct Described {
    source: Option<IpNet>,
    destination: Option<IpNet>,
    protocol: Option<u8>,
    ports: Option<((u16, u16), (u16, u16))>,
    icmp: Option<(u8, Option<u8>)>,
    tcp_flags: Option<(u8, u8)>,
    dscp: Option<u8>,
    ethertype: Option<u16>,
    vlan: Option<u16>,
    ingress_port: Option<u16>,
    ingress_group: Option<u16>,
    source_mac: Option<(u64, u64)>,
    metadata: Option<(u32, u32)>,
}

/// Fields of a packet.
#[derive(Clone, Debug)]
pub(super) struct Packet {
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
    icmp: Option<(u8, u8)>,
    tcp_flags: Option<u8>,
    dscp: u8,
    ethertype: Option<u16>,
    vlan: Option<u16>,
    ingress: (u16, u16),
    source_mac: u64,
    metadata: u32,
}

impl Described {
    pub(super) fn rule(&self) -> Rule {
        let mut rule = Rule::ANY;
        if let Some(prefix) = self.source {
            rule = rule.with_source(prefix);
        }
        if let Some(prefix) = self.destination {
            rule = rule.with_destination(prefix);
        }
        if let Some(protocol) = self.protocol {
            rule = rule.with_protocol(protocol);
        }
        if let Some((source, destination)) = self.ports {
            rule = rule.with_ports(source.0..=source.1, destination.0..=destination.1);
        }
        if let Some((kind, code)) = self.icmp {
            rule = rule.with_icmp(kind, code);
        }
        if let Some((value, mask)) = self.tcp_flags {
            rule = rule.with_tcp_flags(value, mask);
        }
        if let Some(dscp) = self.dscp {
            rule = rule.with(Field::DSCP, u32::from(dscp));
        }
        if let Some(ethertype) = self.ethertype {
            rule = rule.with_ethertype(ethertype);
        }
        if let Some(vlan) = self.vlan {
            rule = rule.with_vlan(vlan);
        }
        if let Some(port) = self.ingress_port {
            rule = rule.with(Field::INGRESS_PORT, u32::from(port));
        }
        if let Some(group) = self.ingress_group {
            rule = rule.with(Field::INGRESS_GROUP, u32::from(group));
        }
        if let Some(mac) = self.source_mac {
            rule = rule.with_macs(mac, (0, 0));
        }
        if let Some((value, mask)) = self.metadata {
            rule = rule.with_bits(Field::METADATA, value, mask);
        }
        rule
    }

    pub(super) fn matches(&self, packet: &Packet) -> bool {
        let within = |prefix: Option<IpNet>, of: fn((IpAddr, IpAddr)) -> IpAddr| {
            prefix.is_none_or(|prefix| {
                packet
                    .addresses
                    .is_some_and(|addresses| prefix.contains(&of(addresses)))
            })
        };
        let are_ports_right = self.ports.is_none_or(|(source, destination)| {
            packet.ports.is_some_and(|(from, to)| {
                source.0 <= from && from <= source.1 && destination.0 <= to && to <= destination.1
            })
        });
        let is_icmp_right = self.icmp.is_none_or(|(kind, code)| {
            packet
                .icmp
                .is_some_and(|icmp| icmp.0 == kind && code.is_none_or(|code| icmp.1 == code))
        });
        within(self.source, |(from, _)| from)
            && within(self.destination, |(_, to)| to)
            && are_ports_right
            && is_icmp_right
            && (self.protocol.is_none() || self.protocol == packet.protocol)
            && self.tcp_flags.is_none_or(|(value, mask)| {
                packet
                    .tcp_flags
                    .is_some_and(|flags| flags & mask == value & mask)
            })
            && self.dscp.is_none_or(|dscp| dscp == packet.dscp)
            && (self.ethertype.is_none() || self.ethertype == packet.ethertype)
            && (self.vlan.is_none() || self.vlan == packet.vlan)
            && self
                .ingress_port
                .is_none_or(|port| port == packet.ingress.0)
            && self
                .ingress_group
                .is_none_or(|group| group == packet.ingress.1)
            && self
                .source_mac
                .is_none_or(|(value, mask)| packet.source_mac & mask == value & mask)
            && self
                .metadata
                .is_none_or(|(value, mask)| packet.metadata & mask == value & mask)
    }
}

impl Packet {
    pub(super) fn key(&self) -> Key {
        let mut key = Key::EMPTY;
        match self.addresses {
            Some((IpAddr::V4(from), IpAddr::V4(to))) => key.set_ipv4(from.to_bits(), to.to_bits()),
            Some((IpAddr::V6(from), IpAddr::V6(to))) => key.set_ipv6(from.to_bits(), to.to_bits()),
            _ => {}
        }
        if let Some(protocol) = self.protocol {
            key.set_protocol(protocol);
        }
        if let Some((source, destination)) = self.ports {
            key.set_ports(source, destination);
        }
        if let Some((kind, code)) = self.icmp {
            key.set_icmp(kind, code);
        }
        if let Some(flags) = self.tcp_flags {
            key.set(Field::TCP_FLAGS, u32::from(flags));
            key.set(Field::HAS_TCP_FLAGS, 1);
        }
        key.set(Field::DSCP, u32::from(self.dscp));
        if let Some(ethertype) = self.ethertype {
            key.set_ethertype(ethertype);
        }
        if let Some(vlan) = self.vlan {
            key.set_vlan(vlan);
        }
        key.set(Field::INGRESS_PORT, u32::from(self.ingress.0));
        key.set(Field::INGRESS_GROUP, u32::from(self.ingress.1));
        key.set_macs(self.source_mac, 2);
        key.set(Field::METADATA, self.metadata);
        key
    }
}

fn address() -> impl Strategy<Value = IpAddr> {
    let low = prop_oneof![Just(0u32), Just(1), 0..4u32, any::<u32>()];
    (any::<bool>(), 0..3u32, low).prop_map(|(is_ipv4, net, low)| match is_ipv4 {
        true => std::net::Ipv4Addr::from(((10 + net) << 24) | (low % (1 << 24))).into(),
        false => {
            let high = (0x2001_0db8_u128 << 96) | (u128::from(net) << 64);
            std::net::Ipv6Addr::from(high | u128::from(low)).into()
        }
    })
}

fn prefix() -> impl Strategy<Value = IpNet> {
    let length = prop_oneof![2 => Just(32u8), 1 => Just(8), 1 => Just(0), 2 => 0..33u8];
    (address(), length).prop_map(|(address, length)| {
        let length = if address.is_ipv4() {
            length
        } else {
            length * 4
        };
        IpNet::new(address, length).unwrap().trunc()
    })
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![
        Just(0u16),
        Just(53),
        Just(80),
        Just(443),
        Just(1024),
        Just(65_535),
        any::<u16>()
    ]
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![
        port().prop_map(|port| (port, port)),
        (port(), port()).prop_map(|(a, b)| (a.min(b), a.max(b))),
        Just((1024, 65_535)),
        Just((0, 65_535)),
    ]
}

fn protocol() -> impl Strategy<Value = u8> {
    prop_oneof![Just(6u8), Just(17), Just(1), any::<u8>()]
}

pub(super) fn rule() -> impl Strategy<Value = Described> {
    let maybe = |chance| move |what: BoxedStrategy<u16>| prop::option::weighted(chance, what);
    let network = (
        prop::option::weighted(0.5, prefix()),
        prop::option::weighted(0.5, prefix()),
        prop::option::weighted(0.5, protocol()),
        prop::option::weighted(0.3, (range(), range())),
        prop::option::weighted(0.1, (0..4u8, prop::option::of(0..3u8))),
        prop::option::weighted(0.1, (any::<u8>(), prop_oneof![Just(0x12u8), any::<u8>()])),
        prop::option::weighted(0.1, 0..4u8),
    );
    let link = (
        maybe(0.2)(prop::sample::select(&[0x800u16, 0x86dd, 0x806]).boxed()),
        maybe(0.1)((0..4u16).boxed()),
        maybe(0.2)((0..3u16).boxed()),
        maybe(0.1)((0..2u16).boxed()),
        prop::option::weighted(
            0.1,
            (0..4u64, prop::sample::select(vec![u64::MAX >> 16, 2])),
        ),
        prop::option::weighted(
            0.1,
            (any::<u32>(), prop::sample::select(vec![1u32, 7 << 20])),
        ),
    );
    (network, link).prop_map(
        |(
            (source, destination, protocol, ports, icmp, tcp_flags, dscp),
            (ethertype, vlan, ingress_port, ingress_group, source_mac, metadata),
        )| {
            let is_one_version = source
                .zip(destination)
                .is_none_or(|(from, to)| from.addr().is_ipv4() == to.addr().is_ipv4());
            Described {
                source,
                destination: destination.filter(|_| is_one_version),
                protocol,
                ports,
                icmp: icmp.filter(|_| ports.is_none()),
                tcp_flags,
                dscp,
                ethertype,
                vlan,
                ingress_port,
                ingress_group,
                source_mac,
                metadata,
            }
        },
    )
}

pub(super) fn packet() -> impl Strategy<Value = Packet> {
    let network = (
        prop::option::weighted(0.95, (address(), address())),
        prop::option::weighted(0.95, protocol()),
        prop::option::weighted(0.8, (port(), port())),
        prop::option::of((0..4u8, 0..3u8)),
        prop::option::of(any::<u8>()),
        0..4u8,
    );
    let link = (
        prop::option::weighted(0.9, prop::sample::select(&[0x800u16, 0x86dd, 0x806])),
        prop::option::weighted(0.3, 0..4u16),
        (0..3u16, 0..2u16),
        0..4u64,
        any::<u32>(),
    );
    (network, link).prop_map(
        |(
            (addresses, protocol, ports, icmp, tcp_flags, dscp),
            (ethertype, vlan, ingress, source_mac, metadata),
        )| Packet {
            addresses: addresses.filter(|(from, to)| from.is_ipv4() == to.is_ipv4()),
            protocol,
            ports,
            icmp: icmp.filter(|_| ports.is_none()),
            tcp_flags,
            dscp,
            ethertype,
            vlan,
            ingress,
            source_mac,
            metadata,
        },
    )
}

/// A word in which few bits differ from those of other words.
fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        Just(0u32),
        Just(u32::MAX),
        0..4u32,
        (0..32u32).prop_map(|bit| 1 << bit),
        any::<u32>()
    ]
}

pub(super) fn any_rule() -> impl Strategy<Value = Rule> {
    let masked = (0..WORDS, word(), word());
    let masked = prop::collection::vec(masked, 0..4);
    let ranges = prop::option::weighted(0.3, (range(), range()));
    (masked, ranges).prop_map(|(masked, ranges)| {
        let mut rule = Rule::ANY;
        for (word, value, mask) in masked {
            if word != PORTS {
                rule.mask[word] = mask;
                rule.value[word] = value & mask;
            }
        }
        if let Some((source, destination)) = ranges {
            rule.source_ports = source;
            rule.destination_ports = destination;
        }
        rule
    })
}

pub(super) fn any_key() -> impl Strategy<Value = Key> {
    prop::collection::vec(word(), WORDS).prop_map(|words| Key {
        words: words.try_into().unwrap(),
    })
}
