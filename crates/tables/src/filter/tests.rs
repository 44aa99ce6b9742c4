// SPDX-License-Identifier: Apache-2.0
//! Port rules compared with the reference implementation, for valid frames and for any octets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ipnet::IpNet;
use proptest::prelude::*;
use quietwire_base::BURST_MAX;

use super::reference::{Rule, judge};
use super::*;
use crate::filter::Action;

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![Just(Action::Accept), Just(Action::Drop)]
}

fn port() -> impl Strategy<Value = u16> {
    prop_oneof![Just(53u16), Just(80), Just(443), Just(50_000)]
}

fn ports((first, last): (u16, u16)) -> Ports {
    Ports { first, last }
}

fn rule() -> impl Strategy<Value = Rule> {
    let prefix = prop_oneof![
        Just("10.0.0.0/8"),
        Just("10.0.0.1/32"),
        Just("0.0.0.0/0"),
        Just("::/0"),
        Just("2001:db8::/33"),
        Just("2001:db8::1/128"),
    ]
    .prop_map(|text| text.parse::<IpNet>().unwrap());
    let ranges = prop_oneof![Just((53, 53)), Just((80, 443)), Just((0, 65_535))];
    let ethertype = prop_oneof![Just(0x0800u16), Just(0x86dd), Just(0x0806), Just(0x8100)];
    let protocol = prop_oneof![Just(6u8), Just(17), Just(1), Just(58), Just(44)];
    let maybe = |chance| move |what: BoxedStrategy<u16>| prop::option::weighted(chance, what);
    (
        maybe(0.2)(prop_oneof![Just(0u16), Just(7), Just(8)].boxed()),
        maybe(0.3)(ethertype.boxed()),
        prop::option::weighted(0.4, protocol),
        prop::option::weighted(0.3, prefix.clone()),
        prop::option::weighted(0.2, prefix),
        prop::option::weighted(0.2, ranges.clone()),
        prop::option::weighted(0.3, ranges),
        action(),
    )
        .prop_map(
            |(vlan, ethertype, protocol, source, destination, from, to, action)| {
                let asked = PacketMatch {
                    // Combinations that the plan refuses.
                    ethertype: ethertype
                        .filter(|_| source.is_none() && destination.is_none())
                        .map(EtherType),
                    protocol: protocol.map(Protocol),
                    source,
                    destination: destination.filter(|one| {
                        source.is_none_or(|source| source.addr().is_ipv4() == one.addr().is_ipv4())
                    }),
                    source_port: from.map(ports),
                    destination_port: to.map(ports),
                };
                (vlan, asked, action)
            },
        )
}

/// Payload of an IP packet: its protocol and its octets.
fn carried() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let protocol =
        prop_oneof![4 => Just(17u8), 4 => Just(6), 1 => Just(1), 1 => Just(58), 1 => Just(132)];
    (protocol, port(), port()).prop_map(|(protocol, from, to)| {
        let mut octets = from.to_be_bytes().to_vec();
        octets.extend(to.to_be_bytes());
        octets.extend([0; 16]);
        (protocol, octets)
    })
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![
        Just([10u8, 0, 0, 1]),
        Just([10, 9, 9, 9]),
        Just([192, 0, 2, 1])
    ];
    let offset = prop_oneof![6 => Just(0u16), 1 => Just(0x2000), 1 => Just(0x2001), 1 => Just(3)];
    (address.clone(), address, carried(), offset, 0..3usize).prop_map(
        |(from, to, (protocol, payload), offset, options)| {
            let mut ip = vec![0x45 + options as u8, 0, 0, 60, 0, 0];
            ip.extend(offset.to_be_bytes());
            ip.extend([64, protocol, 0, 0]);
            ip.extend(from);
            ip.extend(to);
            ip.extend(vec![1; options * 4]);
            ip.extend(payload);
            ip
        },
    )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let address = prop_oneof![
        Just("2001:db8::1"),
        Just("2001:db8:8000::1"),
        Just("::ffff:10.0.0.1"),
        Just("fe80::1")
    ]
    .prop_map(|text| text.parse::<std::net::Ipv6Addr>().unwrap().octets());
    let extension = prop_oneof![Just(0u8), Just(43), Just(44), Just(51), Just(60), Just(50)];
    let extensions = prop::collection::vec((extension, 0..3u8, 0..3u8), 0..4);
    (address.clone(), address, carried(), extensions).prop_map(
        |(from, to, (protocol, payload), extensions)| {
            let kinds: Vec<u8> = extensions.iter().map(|one| one.0).collect();
            let after = |at: usize| kinds.get(at).copied().unwrap_or(protocol);
            let mut ip = vec![0x60, 0, 0, 0, 0, 99, after(0), 64];
            ip.extend(from);
            ip.extend(to);
            for (at, (kind, length, offset)) in extensions.into_iter().enumerate() {
                let length = if kind == 44 { 0 } else { length };
                let mut header = vec![after(at + 1), length, 0, offset << 3];
                let octets = match kind {
                    51 => (usize::from(length) + 2) * 4,
                    _ => (usize::from(length) + 1) * 8,
                };
                header.resize(octets, 0);
                ip.extend(header);
            }
            ip.extend(payload);
            ip
        },
    )
}

/// Frames with up to three tags, complete or truncated, sometimes with a changed octet.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let content = prop_oneof![
        4 => ipv4().prop_map(|ip| (0x0800u16, ip)),
        4 => ipv6().prop_map(|ip| (0x86dd, ip)),
        1 => Just((0x0806, vec![0; 28])),
    ];
    let tag = (
        prop_oneof![Just(0x8100u16), Just(0x88a8)],
        prop_oneof![Just(7u16), Just(0xe008), Just(0)],
    );
    let tags = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(tag, 1..4),
    ];
    let cut = prop::option::weighted(0.3, 0..140usize);
    let damage = prop::option::weighted(0.2, (12..80usize, any::<u8>()));
    (content, tags, cut, damage).prop_map(|((ethertype, content), tags, cut, damage)| {
        let mut frame = vec![2; 12];
        for (kind, tci) in tags {
            frame.extend(kind.to_be_bytes());
            frame.extend(tci.to_be_bytes());
        }
        frame.extend(ethertype.to_be_bytes());
        frame.extend(content);
        frame.truncate(cut.unwrap_or(frame.len()));
        if let Some((at, octet)) = damage
            && let Some(place) = frame.get_mut(at)
        {
            *place = octet;
        }
        frame
    })
}

/// Result of the real implementation: verdict of each frame, number of dropped frames, and the counts of each rule and of the default.
fn judged(
    rules: &[Rule],
    default: Action,
    frames: &[Vec<u8>],
) -> (Vec<Verdict>, usize, Vec<u64>, u64) {
    let counts: Vec<Arc<AtomicU64>> = rules.iter().map(|_| Arc::default()).collect();
    let unmatched = Arc::default();
    let of_port = rules
        .iter()
        .enumerate()
        .map(|(number, (vlan, asked, action))| PortRule {
            number: number as u16,
            vlan: *vlan,
            packet: *asked,
            action: *action,
            frames: Arc::clone(&counts[number]),
        });
    let port = PortRules::new(of_port, default, Arc::clone(&unmatched));
    let mut verdicts = [Verdict::Short; BURST_MAX];
    let dropped = port.judge(frames.iter().map(Vec::as_slice), &mut verdicts);
    let counts = counts.iter().map(|one| one.load(Ordering::Relaxed));
    (
        verdicts[..frames.len()].to_vec(),
        dropped,
        counts.collect(),
        unmatched.load(Ordering::Relaxed),
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn rules_decide_as_the_obvious_ones_do(
        frames in prop::collection::vec(frame(), 1..BURST_MAX),
        rules in prop::collection::vec(rule(), 0..8),
        default in action(),
    ) {
        let (verdicts, dropped, counts, unmatched) = judged(&rules, default, &frames);
        let expected: Vec<Verdict> = frames.iter().map(|one| judge(&rules, default, one)).collect();
        prop_assert_eq!(&verdicts, &expected);
        prop_assert_eq!(dropped, expected.iter().filter(|one| !one.accepts()).count());
        for (number, count) in counts.into_iter().enumerate() {
            let of_rule = |one: &&Verdict| matches!(one, Verdict::Rule(rule, _) if usize::from(*rule) == number);
            prop_assert_eq!(count, expected.iter().filter(of_rule).count() as u64);
        }
        let by_default = expected.iter().filter(|one| matches!(one, Verdict::Default(_)));
        prop_assert_eq!(unmatched, by_default.count() as u64);
    }

    #[test]
    fn no_octets_harm_the_rules(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..BURST_MAX),
        rules in prop::collection::vec(rule(), 0..8),
    ) {
        let (verdicts, ..) = judged(&rules, Action::Drop, &frames);
        let expected: Vec<Verdict> = frames.iter().map(|one| judge(&rules, Action::Drop, one)).collect();
        prop_assert_eq!(verdicts, expected);
    }
}

#[test]
fn the_first_rule_that_matches_decides() {
    let udp = PacketMatch {
        protocol: Some(Protocol(17)),
        ..PacketMatch::default()
    };
    let rules = [
        (
            None,
            PacketMatch {
                destination_port: Some(ports((53, 53))),
                ..udp
            },
            Action::Accept,
        ),
        (None, udp, Action::Drop),
        (None, PacketMatch::default(), Action::Accept),
    ];
    let frame = |protocol: u8, port: u16| {
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 9]);
        frame.extend(port.to_be_bytes());
        frame.extend([0, 8, 0, 0]);
        frame
    };
    let frames = [frame(17, 53), frame(17, 54), frame(6, 54), vec![1; 13]];
    let (verdicts, dropped, counts, unmatched) = judged(&rules, Action::Drop, &frames);
    assert_eq!(
        verdicts,
        [
            Verdict::Rule(0, Action::Accept),
            Verdict::Rule(1, Action::Drop),
            Verdict::Rule(2, Action::Accept),
            Verdict::Short,
        ]
    );
    assert_eq!((dropped, counts, unmatched), (1, vec![1, 1, 1], 0));
    // The maximum number of rules; further ones are ignored.
    let many = vec![
        (
            None,
            PacketMatch {
                protocol: Some(Protocol(99)),
                ..udp
            },
            Action::Accept
        );
        RULES_MAX + 1
    ];
    let (verdicts, dropped, counts, unmatched) = judged(&many, Action::Drop, &frames[..1]);
    assert_eq!(verdicts, [Verdict::Default(Action::Drop)]);
    assert_eq!((dropped, counts.iter().sum::<u64>(), unmatched), (1, 0, 1));
}

#[test]
fn a_match_is_written_for_files_and_for_reports() {
    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Report {
        #[serde(flatten, with = "in_snake_case")]
        packet: PacketMatch,
        frames: u64,
    }
    let packet = PacketMatch {
        protocol: Some(Protocol(6)),
        source: Some("10.0.0.0/8".parse().unwrap()),
        destination_port: Some(ports((80, 443))),
        ..PacketMatch::default()
    };
    let file = serde_json::json!({"protocol": "tcp", "source": "10.0.0.0/8", "destination-port": "80-443"});
    assert_eq!(serde_json::to_value(packet).unwrap(), file);
    assert_eq!(serde_json::from_value::<PacketMatch>(file).unwrap(), packet);
    let report = serde_json::json!({
        "ethertype": null, "protocol": "tcp", "source": "10.0.0.0/8", "destination": null, "source_port": null,
        "destination_port": "80-443", "frames": 7,
    });
    let written = Report { packet, frames: 7 };
    assert_eq!(serde_json::to_value(&written).unwrap(), report);
    assert_eq!(serde_json::from_value::<Report>(report).unwrap(), written);
    let words: Vec<&str> = packet.words().into_iter().map(|(key, _)| key).collect();
    assert_eq!(words, ["protocol", "source", "destination-port"]);
}
