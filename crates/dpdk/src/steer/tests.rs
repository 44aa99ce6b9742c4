// SPDX-License-Identifier: Apache-2.0
//! Programs run by the kernel on made frames, compared with an obvious matcher. Requires root.

mod flow_specs;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::program::{self, Maps, PASS};
use super::slots::{self, Slots};
use super::*;
use crate::ebpf::assembler;

/// linux/bpf.h, XDP_DROP: the result for the switch here, because no queue has a socket.
const DROP: i32 = 1;

/// A loaded program that is not attached.
struct Runner {
    maps: Maps<OwnedFd>,
    program: OwnedFd,
    slots: Slots,
}

impl Runner {
    fn new(rules: &[SteerRule]) -> Self {
        let maps = Maps {
            sockets: bpf::socket_map(1).unwrap(),
            hits: bpf::counter_map(slots::COUNT_ALL).unwrap(),
        };
        let (slots, _) = Slots::default().with(rules);
        let code = program::generate(&slots, &maps.as_fds(), DROP).unwrap();
        let program = bpf::load(&code).unwrap();
        Self {
            maps,
            program,
            slots,
        }
    }

    /// Runs the program. Returns the number of the rule that decided, and its target.
    fn run(&self, frame: &[u8]) -> (Option<usize>, SteerTarget) {
        let counts = |slot| bpf::counter(self.maps.hits.as_fd(), slot).unwrap();
        // Test runs come in on queue 0.
        let counter = |(rule, slot): (&SteerRule, u32)| match rule.card {
            None | Some(CardTarget::Queue(0)) => slot,
            Some(_) => slots::misplaced(slot),
        };
        let all: Vec<u32> = self.slots.rules().map(counter).collect();
        let before: Vec<u64> = all.iter().map(|slot| counts(*slot)).collect();
        let unmatched = counts(slots::UNMATCHED);
        let result = bpf::run(self.program.as_fd(), frame).unwrap();
        let target = match result.cast_signed() {
            DROP => SteerTarget::Switch,
            PASS => SteerTarget::Kernel,
            other => panic!("result {other}"),
        };
        let hit: Vec<usize> = (0..all.len())
            .filter(|rule| counts(all[*rule]) == before[*rule] + 1)
            .collect();
        let missed = counts(slots::UNMATCHED) - unmatched;
        assert_eq!(hit.len() as u64 + missed, 1, "{hit:?}, {missed}");
        (hit.first().copied(), target)
    }
}

/// Fields of a frame, read octet by octet.
#[derive(Debug, Default)]
struct Fields {
    vlan: Option<u16>,
    ethertype: Option<u16>,
    addresses: Option<(IpAddr, IpAddr)>,
    protocol: Option<u8>,
    ports: Option<(u16, u16)>,
}

fn number(octets: &[u8], at: usize) -> Option<u16> {
    Some(u16::from(*octets.get(at)?) * 256 + u16::from(*octets.get(at + 1)?))
}

fn ports_of(fields: &mut Fields, packet: &[u8], at: usize) {
    if [6, 17, 33, 132, 136].map(Some).contains(&fields.protocol) {
        fields.ports = number(packet, at).zip(number(packet, at + 2));
    }
}

fn fields_of(frame: &[u8]) -> Fields {
    let mut fields = Fields::default();
    let mut at = 12;
    for _ in 0..2 {
        let is_tag = [Some(0x8100), Some(0x88a8)].contains(&number(frame, at));
        let Some(tag) = number(frame, at + 2).filter(|_| is_tag) else {
            break;
        };
        fields.vlan = fields.vlan.or(Some(tag % 4096));
        at += 4;
    }
    fields.ethertype = number(frame, at);
    let packet = frame.get(at + 2..).unwrap_or_default();
    match fields.ethertype {
        Some(0x0800) if packet.len() >= 20 && packet[0] / 16 == 4 && packet[0] % 16 >= 5 => {
            let at = |at: usize| IpAddr::from(<[u8; 4]>::try_from(&packet[at..at + 4]).unwrap());
            fields.addresses = Some((at(12), at(16)));
            fields.protocol = Some(packet[9]);
            if number(packet, 6).unwrap().is_multiple_of(8192) {
                ports_of(&mut fields, packet, usize::from(packet[0] % 16) * 4);
            }
        }
        Some(0x86dd) if packet.len() >= 40 && packet[0] / 16 == 6 => ipv6(&mut fields, packet),
        _ => {}
    }
    fields
}

fn ipv6(fields: &mut Fields, packet: &[u8]) {
    let address = |at: usize| IpAddr::from(<[u8; 16]>::try_from(&packet[at..at + 16]).unwrap());
    fields.addresses = Some((address(8), address(24)));
    let (mut next, mut at) = (packet[6], 40);
    for headers in 0.. {
        if ![0, 43, 44, 51, 60, 135, 139, 140].contains(&next) {
            break;
        }
        if headers == 8 || packet.len() < at + 8 {
            return;
        }
        let length = match next {
            44 => 8,
            51 => (usize::from(packet[at + 1]) + 2) * 4,
            _ => (usize::from(packet[at + 1]) + 1) * 8,
        };
        if packet.len() < at + length {
            return;
        }
        let is_later = next == 44 && number(packet, at + 2).unwrap() / 8 != 0;
        next = packet[at];
        at += length;
        if is_later {
            fields.protocol = Some(next);
            return;
        }
    }
    fields.protocol = Some(next);
    ports_of(fields, packet, at);
}

fn is_within(address: IpAddr, (prefix, length): (IpAddr, u8)) -> bool {
    let (octets, wanted) = match (address, prefix) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.octets().to_vec(), b.octets().to_vec()),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.octets().to_vec(), b.octets().to_vec()),
        _ => return false,
    };
    let bit = |octets: &[u8], bit: usize| octets[bit / 8] >> (7 - bit % 8) & 1;
    (0..usize::from(length)).all(|one| bit(&octets, one) == bit(&wanted, one))
}

fn matches(rule: &SteerMatch, frame: &[u8]) -> bool {
    let fields = fields_of(frame);
    let among = |range: Option<(u16, u16)>, port: Option<u16>| {
        range.is_none_or(|(first, last)| port.is_some_and(|port| first <= port && port <= last))
    };
    let within = |prefix: Option<(IpAddr, u8)>, address: Option<IpAddr>| {
        prefix.is_none_or(|prefix| address.is_some_and(|address| is_within(address, prefix)))
    };
    (rule.destination_mac.is_none()
        || rule.destination_mac.as_ref().map(|m| &m[..]) == frame.get(..6))
        && (rule.source_mac.is_none()
            || rule.source_mac.as_ref().map(|m| &m[..]) == frame.get(6..12))
        && (rule.vlan.is_none() || rule.vlan == fields.vlan)
        && (rule.ethertype.is_none() || rule.ethertype == fields.ethertype)
        && (rule.protocol.is_none() || rule.protocol == fields.protocol)
        && within(rule.source, fields.addresses.map(|(from, _)| from))
        && within(rule.destination, fields.addresses.map(|(_, to)| to))
        && among(rule.source_ports, fields.ports.map(|(from, _)| from))
        && among(rule.destination_ports, fields.ports.map(|(_, to)| to))
}

fn decided(rules: &[SteerRule], frame: &[u8]) -> (Option<usize>, SteerTarget) {
    match rules.iter().position(|rule| matches(&rule.frames, frame)) {
        Some(rule) => (Some(rule), rules[rule].target),
        None if rules.is_empty() => (None, SteerTarget::Switch),
        None => (None, SteerTarget::Kernel),
    }
}

// Few values, so that rules and frames often agree.
const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 1, 1]];
const PROTOCOLS: [u8; 8] = [6, 17, 1, 58, 132, 0, 44, 51];
const PORTS: [u16; 5] = [0, 53, 54, 1024, 65_535];

fn ipv4() -> impl Strategy<Value = Ipv4Addr> {
    select(vec![
        Ipv4Addr::new(10, 0, 0, 1),
        Ipv4Addr::new(10, 0, 0, 129),
        Ipv4Addr::new(10, 1, 0, 1),
        Ipv4Addr::new(192, 0, 2, 7),
    ])
}

fn ipv6_address() -> impl Strategy<Value = Ipv6Addr> {
    let all = [
        "2001:db8::1",
        "2001:db8::8000:1",
        "2001:db8:0:1::1",
        "fd00::1",
    ];
    select(all.map(|text| text.parse::<Ipv6Addr>().unwrap()).to_vec())
}

fn prefix() -> impl Strategy<Value = (IpAddr, u8)> {
    prop_oneof![
        (ipv4(), select(vec![0_u8, 8, 15, 24, 25, 32])).prop_map(|(a, l)| (a.into(), l)),
        (ipv6_address(), select(vec![0_u8, 7, 32, 63, 64, 97, 128]))
            .prop_map(|(a, l)| (a.into(), l)),
    ]
}

fn range() -> impl Strategy<Value = (u16, u16)> {
    (select(PORTS.to_vec()), select(PORTS.to_vec())).prop_map(|(a, b)| (a.min(b), a.max(b)))
}

fn rule() -> impl Strategy<Value = SteerRule> {
    let frames = (
        (
            option::weighted(0.2, select(MACS.to_vec())),
            option::weighted(0.2, select(MACS.to_vec())),
            option::weighted(0.2, select(vec![0_u16, 1, 4095])),
            option::weighted(0.2, select(vec![0x0800_u16, 0x86dd, 0x0806])),
        ),
        (
            option::weighted(0.4, select(PROTOCOLS.to_vec())),
            option::weighted(0.4, prefix()),
            option::weighted(0.4, prefix()),
            option::weighted(0.3, range()),
            option::weighted(0.3, range()),
        ),
    );
    let target = select(vec![SteerTarget::Switch, SteerTarget::Kernel]);
    let card = prop_oneof![
        3 => Just(None),
        2 => (0_u16..2).prop_map(|queue| Some(CardTarget::Queue(queue))),
        1 => Just(Some(CardTarget::Function(0))),
        1 => Just(Some(CardTarget::Drop)),
    ];
    (frames, target, card).prop_map(|((link, packet), target, card)| SteerRule {
        frames: SteerMatch {
            source_mac: link.0,
            destination_mac: link.1,
            vlan: link.2,
            ethertype: link.3,
            protocol: packet.0,
            source: packet.1,
            destination: packet.2,
            source_ports: packet.3,
            destination_ports: packet.4,
        },
        target,
        card,
    })
}

/// An extension header: its type, its length field, and its other octets.
type Extension = (u8, u8, u8);

#[derive(Clone, Debug)]
enum Packet {
    V4 {
        ends: (Ipv4Addr, Ipv4Addr),
        first: u8,
        fragment: u16,
    },
    V6 {
        ends: (Ipv6Addr, Ipv6Addr),
        extensions: Vec<Extension>,
    },
    Other(u16),
}

fn packet() -> impl Strategy<Value = Packet> {
    let extension = (
        select(vec![0_u8, 43, 44, 51, 60, 135]),
        prop_oneof![4 => 0_u8..3, 1 => any::<u8>()],
        prop_oneof![4 => Just(0_u8), 1 => any::<u8>()],
    );
    let first = prop_oneof![6 => Just(0x45_u8), 2 => Just(0x47), 1 => any::<u8>()];
    let fragment = prop_oneof![3 => Just(0_u16), 1 => Just(0x2000), 1 => any::<u16>()];
    prop_oneof![
        4 => ((ipv4(), ipv4()), first, fragment)
            .prop_map(|(ends, first, fragment)| Packet::V4 { ends, first, fragment }),
        4 => ((ipv6_address(), ipv6_address()), vec(extension, 0..11))
            .prop_map(|(ends, extensions)| Packet::V6 { ends, extensions }),
        1 => select(vec![0x0806_u16, 0x88cc, 0x8100]).prop_map(Packet::Other),
    ]
}

fn octets(packet: &Packet, protocol: u8, (from, to): (u16, u16)) -> (u16, Vec<u8>) {
    let mut octets = Vec::new();
    let ethertype = match packet {
        Packet::V4 {
            ends,
            first,
            fragment,
        } => {
            octets.extend([*first, 0, 0, 60, 0, 0]);
            octets.extend(fragment.to_be_bytes());
            octets.extend([64, protocol, 0, 0]);
            octets.extend(ends.0.octets());
            octets.extend(ends.1.octets());
            octets.resize(usize::from(first % 16).max(5) * 4, 0);
            0x0800
        }
        Packet::V6 { ends, extensions } => {
            let types: Vec<u8> = extensions.iter().map(|one| one.0).collect();
            let next = |at: usize| types.get(at).copied().unwrap_or(protocol);
            octets.extend([0x60, 0, 0, 0, 0, 20, next(0), 64]);
            octets.extend(ends.0.octets());
            octets.extend(ends.1.octets());
            for (at, (kind, length, other)) in extensions.iter().enumerate() {
                let whole = match kind {
                    44 => 8,
                    51 => (usize::from(*length) + 2) * 4,
                    _ => (usize::from(*length) + 1) * 8,
                };
                let begin = octets.len();
                octets.extend([next(at + 1), *length, 0, *other]);
                octets.resize(begin + whole, *other);
            }
            0x86dd
        }
        Packet::Other(ethertype) => *ethertype,
    };
    octets.extend(from.to_be_bytes());
    octets.extend(to.to_be_bytes());
    octets.extend([0; 16]);
    (ethertype, octets)
}

fn frame() -> impl Strategy<Value = Vec<u8>> {
    let tag = (
        select(vec![0x8100_u16, 0x88a8]),
        select(vec![0_u16, 1, 0x6001, 4095]),
    );
    (
        (select(MACS.to_vec()), select(MACS.to_vec()), vec(tag, 0..4)),
        packet(),
        select(PROTOCOLS.to_vec()),
        (select(PORTS.to_vec()), select(PORTS.to_vec())),
        // Where the frame is cut.
        prop_oneof![3 => Just(usize::MAX), 1 => 14_usize..120],
    )
        .prop_map(|((to, from, tags), packet, protocol, ports, cut)| {
            let mut frame = [to, from].concat();
            for (kind, tag) in tags {
                frame.extend(kind.to_be_bytes());
                frame.extend(tag.to_be_bytes());
            }
            let (ethertype, packet) = octets(&packet, protocol, ports);
            frame.extend(ethertype.to_be_bytes());
            frame.extend(packet);
            // The kernel accepts frames of up to a page less its headroom.
            frame.truncate(cut.min(3000));
            frame
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_kernel_steers_as_the_reference_matcher(
        rules in vec(rule(), 0..12),
        frames in vec(frame(), 24),
    ) {
        let runner = Runner::new(&rules);
        for frame in &frames {
            prop_assert_eq!(runner.run(frame), decided(&rules, frame), "{:x?}", frame);
        }
    }

    #[test]
    fn rules_that_stay_keep_their_counters(lists in vec(vec(rule(), 0..6), 1..6)) {
        let mut slots = Slots::default();
        for rules in lists {
            let former: Vec<_> = slots.rules().map(|(rule, slot)| (rule.clone(), slot)).collect();
            let (next, fresh) = slots.with(&rules);
            let now: Vec<_> = next.rules().map(|(rule, slot)| (rule.clone(), slot)).collect();
            let listed: Vec<_> = now.iter().map(|(rule, _)| rule.clone()).collect();
            prop_assert_eq!(listed, rules);
            let mut numbers: Vec<u32> = now.iter().map(|(_, slot)| *slot).collect();
            numbers.sort_unstable();
            numbers.dedup();
            prop_assert_eq!(numbers.len(), now.len());
            for (rule, slot) in &now {
                prop_assert!((1..slots::COUNT).contains(slot));
                if fresh.contains(slot) {
                    prop_assert!(former.iter().all(|(_, other)| other != slot));
                } else {
                    prop_assert!(former.contains(&(rule.clone(), *slot)));
                }
            }
            slots = next;
        }
    }
}

/// A rule with every condition, none of which the next one shares.
fn longest(number: u16) -> SteerRule {
    let [a, b] = number.to_be_bytes();
    SteerRule {
        frames: SteerMatch {
            source_mac: Some([2, 0, 0, 0, a, b]),
            destination_mac: Some([2, 0, 0, 1, a, b]),
            vlan: Some(number % 4096),
            ethertype: Some(0x86dd),
            protocol: Some(17),
            source: Some((
                IpAddr::from([0x20, 1, 0xd, 0xb8, a, b, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]),
                127,
            )),
            destination: Some((
                IpAddr::from([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, a, b]),
                128,
            )),
            source_ports: Some((number, number + 10)),
            destination_ports: Some((1, number + 1)),
        },
        target: SteerTarget::Switch,
        card: Some(CardTarget::Queue(1)),
    }
}

#[test]
fn the_longest_list_of_the_longest_rules_is_accepted() {
    let most = u16::try_from(STEER_RULES_MAX).unwrap();
    let rules: Vec<SteerRule> = (0..most).map(longest).collect();
    let runner = Runner::new(&rules);
    assert_eq!(runner.run(&[0; 60]), (None, SteerTarget::Kernel));
}

#[test]
fn a_program_that_the_verifier_refuses_is_explained() {
    let mut code = assembler::Assembler::default();
    code.exit();
    let error = bpf::load(&code.finish().unwrap()).unwrap_err();
    assert!(error.to_string().contains("R0"), "{error}");
}
