// SPDX-License-Identifier: Apache-2.0

mod kernel_filter;
mod pieces;
mod reference;

use std::net::{IpAddr, Ipv6Addr};

use etherparse::PacketBuilder;
use ipnet::IpNet;
use proptest::prelude::*;
use quietwire_packet::MacAddress;

use super::*;
use crate::drops::RouterDrop;
use crate::fib::{Ipv4Routes, Ipv6Routes, ReferenceFib};
use kernel_filter::sound;
use reference::disposition;

const MAC: [MacAddress; 3] = [
    MacAddress::from_u64(0x0200_0000_000a),
    MacAddress::from_u64(0x0200_0000_000b),
    MacAddress::from_u64(0x0200_0000_000c),
];
const NEIGHBOUR: MacAddress = MacAddress::from_u64(0x0200_0000_0099);

/// A router of three interfaces in two VRFs, and the same routes in the reference table.
struct World {
    router: Router,
    hops: Vec<(u32, NextHop)>,
    reference: [ReferenceFib; 2],
}

/// Prefixes and the indexes of their next hops below.
const ROUTES: &[(u16, &str, usize)] = &[
    (0, "192.0.2.0/24", 3),
    (0, "192.0.2.1/32", 2),
    (0, "198.51.100.0/24", 5),
    (0, "198.51.100.77/32", 4),
    (0, "203.0.113.0/25", 0),
    (0, "203.0.113.128/25", 1),
    (0, "203.0.113.200/32", 6),
    (0, "10.0.0.0/8", 7),
    (0, "169.254.0.0/24", 2),
    (0, "169.254.1.0/24", 5),
    (1, "0.0.0.0/0", 5),
    (0, "2001:db8:a::/48", 3),
    (0, "2001:db8:a::1/128", 2),
    (0, "2001:db8:b::/48", 5),
    (0, "2001:db8:c::/48", 7),
    (1, "::/0", 5),
    (1, "2001:db8:b::/48", 0),
];

impl World {
    fn new() -> Self {
        let mut writer = NextHopWriter::new(64).unwrap();
        let mut hops = Vec::new();
        for next_hop in [
            NextHop::Blackhole,
            NextHop::Unreachable,
            NextHop::Local,
            NextHop::Glean { interface: 0 },
            NextHop::Incomplete { interface: 1 },
            NextHop::Adjacency {
                interface: 1,
                mac: NEIGHBOUR,
            },
            NextHop::Prohibit,
        ] {
            hops.push((writer.add(next_hop).unwrap(), next_hop));
        }
        let twin = NextHop::Adjacency {
            interface: 0,
            mac: NEIGHBOUR,
        };
        let members = [(writer.add(twin).unwrap(), 1), (hops[5].0, 1)];
        let group = writer.add_group(&members).unwrap();
        hops.push((group, writer.shared().get(group)));
        let mut tables: Vec<_> = (0..2)
            .map(|_| (Ipv4Routes::new(8).unwrap(), Ipv6Routes::new(256).unwrap()))
            .collect();
        let mut reference = [ReferenceFib::default(), ReferenceFib::default()];
        for (vrf, prefix, hop) in ROUTES {
            let prefix: IpNet = prefix.parse().unwrap();
            let number = hops[*hop].0;
            let tables = &mut tables[usize::from(*vrf)];
            match prefix {
                IpNet::V4(prefix) => drop(tables.0.insert(prefix, number).unwrap()),
                IpNet::V6(prefix) => drop(tables.1.insert(prefix, number).unwrap()),
            }
            reference[usize::from(*vrf)].insert(prefix, number);
        }
        let interface = |number: u16| Interface {
            place: InterfaceBinding::Port(number),
            vlan: None,
            mac: MAC[usize::from(number)],
            mtu: [1500, 200, 1500][usize::from(number)],
            vrf: u16::from(number == 2),
            urpf: [Urpf::Off, Urpf::Strict, Urpf::Loose][usize::from(number)],
            ipv4: true,
            ipv6: number != 1,
        };
        let vrf = |(ipv4, ipv6): &(Ipv4Routes, Ipv6Routes)| Vrf {
            ipv4: ipv4.fib(),
            ipv6: ipv6.fib(),
        };
        let router = Router {
            interfaces: Interfaces::new((0..3).map(|number| (number, interface(number)))),
            vrfs: tables.iter().map(vrf).collect(),
            next_hops: writer.shared(),
            kernel_filter: None,
        };
        Self {
            router,
            hops,
            reference,
        }
    }

    fn next_hop(&self, vrf: u16, destination: IpAddr) -> NextHop {
        let number = self.reference[usize::from(vrf)].look_up(destination);
        let mut hops = self.hops.iter();
        hops.find(|(one, _)| *one == number)
            .map_or(NextHop::None, |(_, next_hop)| *next_hop)
    }

    fn decide(&self, frames: &[(Vec<u8>, u16)]) -> (Vec<Decision>, Tally) {
        let (decisions, tally) = self.decide_into(frames);
        (decisions.iter().collect(), tally)
    }

    fn decide_into(&self, frames: &[(Vec<u8>, u16)]) -> (Decisions, Tally) {
        let interfaces: Vec<u16> = frames.iter().map(|(_, interface)| *interface).collect();
        let mut decisions = Decisions::default();
        let all = frames.iter().map(|(frame, _)| frame.as_slice());
        let tally = decide(&self.router, all, &interfaces, &mut decisions);
        if let Some(exit) = decisions.exit() {
            let leaves = |one| matches!(one, Decision::Forward(to) if to.interface() == exit);
            assert!(decisions.iter().all(leaves));
        }
        (decisions, tally)
    }
}

fn address4() -> impl Strategy<Value = [u8; 4]> {
    prop_oneof![
        8 => prop_oneof![
            Just([192, 0, 2, 1]), Just([192, 0, 2, 7]), Just([198, 51, 100, 9]),
            Just([198, 51, 100, 77]), Just([203, 0, 113, 5]), Just([203, 0, 113, 150]),
            Just([203, 0, 113, 200]), Just([10, 1, 2, 3]), Just([8, 8, 8, 8]),
        ],
        2 => prop_oneof![
            Just([0, 0, 0, 0]), Just([127, 0, 0, 1]), Just([224, 0, 0, 5]), Just([239, 1, 1, 1]),
            Just([240, 0, 0, 1]), Just([255, 255, 255, 255]), Just([169, 254, 1, 2]),
        ],
    ]
}

fn address6() -> impl Strategy<Value = [u8; 16]> {
    let text = prop_oneof![
        8 => prop_oneof![
            Just("2001:db8:a::1"), Just("2001:db8:a::7"), Just("2001:db8:b::9"),
            Just("2001:db8:c::9"), Just("2001:db8:d::1"),
        ],
        2 => prop_oneof![
            Just("::"), Just("::1"), Just("fe80::1"), Just("ff02::1"), Just("ff0e::1"),
            Just("::ffff:1.2.3.4"),
        ],
    ];
    text.prop_map(|text| text.parse::<Ipv6Addr>().unwrap().octets())
}

fn mac() -> impl Strategy<Value = [u8; 6]> {
    let of = |mac: MacAddress| mac.to_u64().to_be_bytes()[2..].try_into().unwrap();
    prop_oneof![
        6 => (0..3usize).prop_map(move |at| of(MAC[at])),
        1 => Just([0xff; 6]),
        1 => Just([2, 0, 0, 0, 0, 1]),
    ]
}

/// Random middle of a packet: addresses, time to live, and whether there are options.
type Middle = (IpAddr, IpAddr, u8, bool);

fn middle() -> impl Strategy<Value = Middle> {
    let ttl = prop::sample::select(&[0u8, 1, 64]);
    let v4 = (address4(), address4(), ttl.clone(), any::<bool>());
    let v6 = (address6(), address6(), ttl);
    prop_oneof![
        3 => v4.prop_map(|(from, to, ttl, options)| (from.into(), to.into(), ttl, options)),
        2 => v6.prop_map(|(from, to, ttl)| (from.into(), to.into(), ttl, false)),
    ]
}

fn build(mac: [u8; 6], (from, to, ttl, options): Middle, port: u16, length: usize) -> Vec<u8> {
    let builder = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x77], mac);
    let builder = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let udp = etherparse::IpNumber::UDP;
            let (from, to) = (from.octets(), to.octets());
            let mut header = etherparse::Ipv4Header::new(0, ttl, udp, from, to).unwrap();
            header.dont_fragment = ttl == 64 && from[3] == 7;
            if options {
                // A record route option, which is forwarded, or a source route.
                let kind = if to[3] == 9 { 131 } else { 7 };
                header.options = [1, kind, 7, 4, 0, 0, 0, 0].into();
            }
            builder.ip(etherparse::IpHeaders::Ipv4(header, Default::default()))
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), ttl),
        _ => panic!("one version of IP"),
    };
    let mut frame = Vec::new();
    let builder = builder.udp(port, 53);
    builder.write(&mut frame, &vec![7; length]).unwrap();
    frame
}

/// Returns a frame, valid or damaged, and its ingress interface.
fn frame() -> impl Strategy<Value = (Vec<u8>, u16)> {
    let sound = (mac(), middle(), any::<u16>(), 0..400usize)
        .prop_map(|(mac, middle, port, length)| build(mac, middle, port, length));
    let damage = prop_oneof![
        6 => Just(None),
        1 => (0..60usize, any::<u8>()).prop_map(Some),
    ];
    (
        sound,
        damage,
        prop::option::weighted(0.1, 0..60usize),
        0..4u16,
    )
        .prop_map(|(mut frame, damage, cut, interface)| {
            if let Some((at, octet)) = damage
                && let Some(place) = frame.get_mut(at)
            {
                *place = octet;
            }
            if let Some(cut) = cut {
                frame.truncate(cut);
            }
            (frame, interface)
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn decisions_are_those_of_the_reference_router(frames in prop::collection::vec(frame(), 1..40)) {
        let world = World::new();
        let (decisions, tally) = world.decide(&frames);
        prop_assert_eq!(decisions.len(), frames.len());
        for ((frame, interface), decision) in frames.iter().zip(&decisions) {
            let expected = disposition(&world, frame, *interface);
            prop_assert!(expected.contains(decision), "{:?}: {:?}, not {:?}", frame, decision, expected);
        }
        let all = tally.forwarded + tally.punted.iter().sum::<u64>() + tally.dropped.iter().sum::<u64>();
        prop_assert_eq!(all, frames.len() as u64);
    }

    /// Bursts of one interface, the common case, with forwarded packets among them.
    #[test]
    fn bursts_of_one_interface_meet_the_same(
        frames in prop::collection::vec(frame(), 1..40),
        more in prop::collection::vec((0..40usize, sound()), 0..40),
        one in 0..3u16,
    ) {
        let world = World::new();
        let mut frames: Vec<_> = frames.into_iter().map(|(frame, _)| (frame, one)).collect();
        for (place, (mut frame, _)) in more {
            if let Some(station) = frame.get_mut(..6) {
                station.copy_from_slice(&MAC[usize::from(one)].0);
            }
            frames.insert(place % (frames.len() + 1), (frame, one));
        }
        frames.truncate(quietwire_base::BURST_MAX);
        let (decisions, tally) = world.decide(&frames);
        prop_assert_eq!(decisions.len(), frames.len());
        for ((frame, interface), decision) in frames.iter().zip(&decisions) {
            let expected = disposition(&world, frame, *interface);
            prop_assert!(expected.contains(decision), "{:?}: {:?}, not {:?}", frame, decision, expected);
        }
        let forwarded = decisions.iter().filter(|one| matches!(one, Decision::Forward(_) | Decision::Fragment(_)));
        prop_assert_eq!(tally.forwarded, forwarded.count() as u64);
        let all = tally.forwarded + tally.punted.iter().sum::<u64>() + tally.dropped.iter().sum::<u64>();
        prop_assert_eq!(all, frames.len() as u64);
    }

    #[test]
    fn rewritten_packets_are_well_formed((mut frame, interface) in frame()) {
        let world = World::new();
        let (decisions, _) = world.decide(&[(frame.clone(), interface)]);
        if let Decision::Forward(to) = decisions[0] {
            let before = frame.clone();
            let mac = to.mac();
            prop_assert!(rewrite(&mut frame, Source::new(MAC[1]), to));
            prop_assert_eq!(&frame[..12], &[&mac.to_u64().to_be_bytes()[2..], &MAC[1].to_u64().to_be_bytes()[2..]].concat()[..]);
            if frame[14] >> 4 == 4 {
                let header = etherparse::Ipv4HeaderSlice::from_slice(&frame[14..]).unwrap().to_header();
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
                prop_assert_eq!(header.time_to_live, before[22] - 1);
                prop_assert_eq!(&frame[26..], &before[26..]);
            } else {
                prop_assert_eq!(frame[21], before[21] - 1);
                prop_assert_eq!(&frame[22..], &before[22..]);
            }
        }
    }
}

/// RFC 1812, sections 5.3.1 and 5.2.2; RFC 1191; RFC 4291, section 2.5.6, one by one.
#[test]
fn packets_meet_what_the_rules_say() {
    let world = World::new();
    let udp = |from: [u8; 4], to: [u8; 4], ttl, length: usize| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x77], [2, 0, 0, 0, 0, 0xa])
            .ipv4(from, to, ttl)
            .udp(1, 2)
            .write(&mut frame, &vec![0; length])
            .unwrap();
        frame
    };
    let host = [192, 0, 2, 7];
    let far = [198, 51, 100, 9];
    let sent = Decision::Forward(Adjacency::new(1, NEIGHBOUR));
    for (frame, decision) in [
        (udp(host, far, 2, 10), sent),
        (udp(host, far, 1, 10), Decision::Punt(Punt::TimeExceeded)),
        (
            udp(host, [192, 0, 2, 1], 1, 10),
            Decision::Punt(Punt::ForUs),
        ),
        (
            udp(host, [192, 0, 2, 50], 64, 10),
            Decision::Punt(Punt::Neighbour),
        ),
        (udp(host, far, 64, 300), Decision::Punt(Punt::TooBig)),
        (
            udp(host, [9, 9, 9, 9], 64, 10),
            Decision::Punt(Punt::NoRoute),
        ),
        (
            udp([127, 0, 0, 1], far, 64, 10),
            Decision::Drop(RouterDrop::Martian),
        ),
        (
            udp([169, 254, 1, 2], far, 64, 10),
            Decision::Drop(RouterDrop::Martian),
        ),
        (
            udp(host, [169, 254, 1, 2], 64, 10),
            Decision::Drop(RouterDrop::Martian),
        ),
        (
            udp(host, [169, 254, 0, 2], 64, 10),
            Decision::Punt(Punt::ForUs),
        ),
        (
            udp(host, [224, 0, 0, 5], 1, 10),
            Decision::Punt(Punt::ForUs),
        ),
        (
            udp(host, [230, 0, 0, 5], 1, 10),
            Decision::Drop(RouterDrop::Multicast),
        ),
        (
            udp(host, [203, 0, 113, 5], 64, 10),
            Decision::Drop(RouterDrop::Blackhole),
        ),
        (
            udp(host, [203, 0, 113, 200], 64, 10),
            Decision::Punt(Punt::Prohibited),
        ),
    ] {
        assert_eq!(world.decide(&[(frame, 0)]).0, [decision]);
    }
    // A frame of another VRF in the same burst uses its own routes.
    let mut other = udp(host, [9, 9, 9, 9], 64, 10);
    other[..6].copy_from_slice(&[2, 0, 0, 0, 0, 0xc]);
    let frames = [
        (udp(host, [9, 9, 9, 9], 64, 10), 0),
        (other, 2),
        (udp(host, far, 64, 10), 0),
    ];
    assert_eq!(
        world.decide(&frames).0,
        [Decision::Punt(Punt::NoRoute), sent, sent]
    );
}

/// The exit of a burst is the interface by which all of its frames leave unfragmented.
#[test]
fn bursts_that_leave_by_one_interface_have_an_exit() {
    let world = World::new();
    let udp = |to: [u8; 4], ttl, length| {
        let middle = ([192, 0, 2, 7].into(), to.into(), ttl, false);
        build(MAC[0].0, middle, 5000, length)
    };
    let far = |port: u8| (udp([198, 51, 100, port], 64, 10), 0);
    let mut frames: Vec<_> = (0..40).map(far).collect();
    let (decisions, tally) = world.decide_into(&frames);
    assert_eq!(decisions.exit(), Some(1));
    let all = Tally {
        forwarded: 40,
        ..Tally::default()
    };
    assert_eq!(tally, all);
    // To a host that is not resolved, whose time to live is exceeded, too long for the link.
    for other in [
        udp([192, 0, 2, 50], 64, 10),
        udp([198, 51, 100, 9], 1, 10),
        udp([198, 51, 100, 9], 64, 300),
    ] {
        let kept = std::mem::replace(&mut frames[17], (other, 0));
        let (decisions, tally) = world.decide_into(&frames);
        assert_eq!((decisions.exit(), tally.forwarded), (None, 39));
        frames[17] = kept;
    }
    // The group has a way by each of two interfaces.
    let ways: Vec<_> = (0..40)
        .map(|port| {
            (
                build(
                    MAC[0].0,
                    ([192, 0, 2, 7].into(), [10, 0, 0, 1].into(), 64, false),
                    port,
                    10,
                ),
                0,
            )
        })
        .collect();
    let (decisions, tally) = world.decide_into(&ways);
    assert_eq!((decisions.exit(), tally.forwarded), (None, 40));
    assert_eq!(world.decide_into(&[]).0.exit(), None);
}

/// RFC 2992: packets of a flow use one next hop, flows use all.
#[test]
fn flows_share_the_ways_of_a_group() {
    let world = World::new();
    let ways = |port: u16| {
        let mut frame = Vec::new();
        PacketBuilder::ethernet2([2, 0, 0, 0, 0, 0x77], [2, 0, 0, 0, 0, 0xa])
            .ipv4([192, 0, 2, 7], [10, 0, 0, 1], 64)
            .udp(port, 2)
            .write(&mut frame, &[0; 10])
            .unwrap();
        match world.decide(&[(frame.clone(), 0), (frame, 0)]).0[..] {
            [a, b] if a == b => a,
            _ => panic!("two ways of one flow"),
        }
    };
    let by_b = (0..1000)
        .filter(|port| matches!(ways(*port), Decision::Forward(to) if to.interface() == 1))
        .count();
    assert!((400..600).contains(&by_b), "{by_b}");
}
