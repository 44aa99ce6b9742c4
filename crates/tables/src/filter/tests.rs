// SPDX-License-Identifier: Apache-2.0
//! Port rules compared with the reference implementation, for valid frames and for any octets.

mod continued;
mod counters;
mod fields;
mod further;
mod malformed;
mod steering;

use std::sync::Arc;

use ipnet::IpNet;
use proptest::prelude::*;
use quietwire_base::BURST_MAX;

use super::reference::{Rule, judge};
use super::*;
use crate::port_mask::PortMask;

fn action() -> impl Strategy<Value = Action> {
    prop::sample::select(vec![Action::Accept, Action::Drop, Action::Reject])
}

fn port() -> impl Strategy<Value = u16> {
    prop::sample::select(&[53u16, 80, 443, 50_000])
}

fn ports((first, last): (u16, u16)) -> Ports {
    Ports { first, last }
}

fn rule() -> impl Strategy<Value = Rule> {
    let prefix = prop::sample::select(&[
        "10.0.0.0/8",
        "10.0.0.1/32",
        "0.0.0.0/0",
        "::/0",
        "2001:db8::/33",
        "2001:db8::1/128",
    ])
    .prop_map(|text: &str| text.parse::<IpNet>().unwrap());
    let ranges = prop::sample::select(&[(53, 53), (80, 443), (0, 65_535)]);
    let ethertype = prop::sample::select(&[0x0800u16, 0x86dd, 0x0806, 0x8100]);
    let protocol = prop::sample::select(&[6u8, 17, 1, 58, 44]);
    let maybe = |chance| move |what: BoxedStrategy<u16>| prop::option::weighted(chance, what);
    (
        maybe(0.2)(prop::sample::select(&[0u16, 7, 8]).boxed()),
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

/// Payload of an IP packet: its protocol and its octets, sometimes too few.
fn carried() -> impl Strategy<Value = (u8, Vec<u8>)> {
    let protocol = prop_oneof![
        4 => Just(17u8), 4 => Just(6), 1 => Just(1), 1 => Just(58), 1 => Just(132), 1 => Just(33),
        1 => Just(47),
    ];
    let length = prop_oneof![4 => Just(24usize), 1 => 0..40usize];
    (protocol, port(), port(), length).prop_map(|(protocol, from, to, length)| {
        let mut octets = from.to_be_bytes().to_vec();
        octets.extend(to.to_be_bytes());
        octets.resize(length, 0);
        (protocol, octets)
    })
}

/// Difference of a length field to the length of the packet.
fn lie() -> impl Strategy<Value = i32> {
    prop_oneof![8 => Just(0), 1 => -60..60i32, 1 => Just(-40_000), 1 => Just(40_000)]
}

fn lied(length: usize, lie: i32) -> [u8; 2] {
    let length = i32::try_from(length).unwrap();
    u16::try_from((length + lie).max(0)).unwrap().to_be_bytes()
}

fn ipv4() -> impl Strategy<Value = Vec<u8>> {
    let address = prop::sample::select(&[[10u8, 0, 0, 1], [10, 9, 9, 9], [192, 0, 2, 1]]);
    let offset = prop_oneof![
        6 => Just(0u16), 1 => Just(0x2000), 1 => Just(0x2001), 1 => 0..4u16, 1 => Just(0x1fff),
        1 => Just(0x4000),
    ];
    // Options in any order, padded with zeros.
    let option = prop::sample::select(vec![
        vec![1u8],
        vec![0],
        vec![7, 3, 4],
        vec![68, 4, 5, 0],
        vec![131, 0],
        vec![131, 1],
        vec![7, 39],
        vec![148],
    ]);
    let options = prop_oneof![
        2 => Just(Vec::new()),
        1 => prop::collection::vec(option, 0..6),
    ];
    let words = prop_oneof![12 => Just(0i8), 1 => -2..2i8];
    (
        (address.clone(), address),
        carried(),
        offset,
        options,
        words,
        lie(),
    )
        .prop_map(
            |((from, to), (protocol, payload), offset, options, words, lie)| {
                let mut options = options.concat();
                options.resize(options.len().next_multiple_of(4), 0);
                let length = 20 + options.len() + payload.len();
                let words = i8::try_from(5 + options.len() / 4).unwrap() + words;
                let mut ip = vec![0x40 | words as u8, 0];
                ip.extend(lied(length, lie));
                ip.extend([0, 0]);
                ip.extend(offset.to_be_bytes());
                ip.extend([64, protocol, 0, 0]);
                ip.extend(from);
                ip.extend(to);
                ip.extend(options);
                ip.extend(payload);
                ip
            },
        )
}

fn ipv6() -> impl Strategy<Value = Vec<u8>> {
    let address = prop::sample::select(&[
        "2001:db8::1",
        "2001:db8:8000::1",
        "::ffff:10.0.0.1",
        "fe80::1",
    ])
    .prop_map(|text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets());
    let extension = prop_oneof![
        3 => Just(0u8), 3 => Just(43), 3 => Just(44), 3 => Just(51), 6 => Just(60), 3 => Just(50),
        1 => Just(253), 1 => Just(135),
    ];
    let field = prop_oneof![3 => Just(0u16), 2 => Just(1), 1 => 0..40u16, 1 => Just(0xfff9)];
    let extension = (extension, 0..3u8, field);
    let extensions = prop_oneof![
        8 => prop::collection::vec(extension.clone(), 0..4),
        1 => prop::collection::vec(extension, 7..10),
        1 => (7..10usize).prop_map(|count| vec![(60, 0, 0); count]),
    ];
    ((address.clone(), address), carried(), extensions, lie()).prop_map(
        |((from, to), (protocol, payload), extensions, lie)| {
            let kinds: Vec<u8> = extensions.iter().map(|one| one.0).collect();
            let after = |at: usize| kinds.get(at).copied().unwrap_or(protocol);
            let mut content = Vec::new();
            for (at, (kind, length, field)) in extensions.into_iter().enumerate() {
                let length = if kind == 44 { 0 } else { length };
                let mut header = vec![after(at + 1), length];
                header.extend(field.to_be_bytes());
                let octets = match kind {
                    51 => (usize::from(length) + 2) * 4,
                    _ => (usize::from(length) + 1) * 8,
                };
                header.resize(octets, 0);
                content.extend(header);
            }
            content.extend(payload);
            let mut ip = vec![0x60, 0, 0, 0];
            ip.extend(lied(content.len(), lie));
            ip.extend([after(0), 64]);
            ip.extend(from);
            ip.extend(to);
            ip.extend(content);
            ip
        },
    )
}

/// An 802.3 frame: its length field and its content.
fn llc() -> impl Strategy<Value = (u16, Vec<u8>)> {
    let oui = prop::sample::select(&[[0u8, 0, 0], [0, 0, 0xf8], [0, 0, 0x0c]]);
    let kind = prop::sample::select(&[0x0800u16, 0x0806, 0x8100, 0x80f3]);
    let start = prop_oneof![3 => Just(0xaau8), 1 => Just(0x42)];
    (start, oui, kind, 0..1600u16).prop_map(|(start, oui, kind, length)| {
        let mut content = vec![start, start, 3];
        content.extend(oui);
        content.extend(kind.to_be_bytes());
        (length, content)
    })
}

/// Frames with up to three tags, complete or truncated, sometimes with padding or a changed octet. With each frame, the number of octets in
/// its first buffer.
fn frame() -> impl Strategy<Value = (Vec<u8>, usize)> {
    let content = prop_oneof![
        8 => ipv4().prop_map(|ip| (0x0800u16, ip)),
        8 => ipv6().prop_map(|ip| (0x86dd, ip)),
        1 => ipv4().prop_map(|ip| (0x86dd, ip)),
        1 => Just((0x0806, vec![0; 28])),
        1 => llc(),
    ];
    let tag = (
        prop::sample::select(&[0x8100u16, 0x88a8]),
        prop::sample::select(&[7u16, 0xe008, 0, 0xa000]),
    );
    let tags = prop_oneof![
        3 => Just(Vec::new()),
        1 => prop::collection::vec(tag, 1..4),
    ];
    let cut = prop::option::weighted(0.2, 0..140usize);
    let held = prop::option::weighted(0.2, 0..140usize);
    let padding = prop_oneof![3 => Just(0usize), 1 => 0..30usize];
    let damage = prop::option::weighted(0.2, (12..80usize, any::<u8>()));
    (content, tags, cut, held, padding, damage).prop_map(
        |((ethertype, content), tags, cut, held, padding, damage)| {
            let mut frame = vec![2; 12];
            for (kind, tci) in tags {
                frame.extend(kind.to_be_bytes());
                frame.extend(tci.to_be_bytes());
            }
            frame.extend(ethertype.to_be_bytes());
            frame.extend(content);
            frame.resize(frame.len() + padding, 0xee);
            frame.truncate(cut.unwrap_or(frame.len()));
            if let Some((at, octet)) = damage
                && let Some(place) = frame.get_mut(at)
            {
                *place = octet;
            }
            let held = held.unwrap_or(frame.len()).min(frame.len());
            (frame, held)
        },
    )
}

fn policy() -> impl Strategy<Value = (Action, MalformedAction)> {
    let malformed = prop::sample::select(vec![MalformedAction::Drop, MalformedAction::Match]);
    (action(), malformed)
}

/// Judges a burst by a thread with counters of its own.
fn judge_own(
    port: &PortRules,
    received: &[(&[u8], u32)],
    verdicts: &mut Verdicts,
    own: &mut ThreadFrames,
) -> Dropped {
    let none: Option<&mut Continued> = None;
    port.judge(received.iter().copied(), (verdicts, none, own))
}

/// Result of the real implementation.
struct Judged {
    verdicts: Vec<Verdict>,
    dropped: Dropped,
    /// Frames of each rule.
    counts: Vec<u64>,
    /// Frames of the default.
    unmatched: u64,
    /// Frames counted as malformed.
    malformed: u64,
}

fn judged(
    rules: &[Rule],
    (default, malformed): (Action, MalformedAction),
    frames: &[(Vec<u8>, usize)],
) -> Judged {
    let counters = RuleCounters::default();
    let mut own = counters.thread();
    // Some have a counter that all threads share.
    let counts = (0..rules.len()).map(|number| match number % 3 {
        2 => Arc::default(),
        _ => counters.rule(),
    });
    let counts: Vec<Arc<RuleFrames>> = counts.collect();
    let of_port = rules
        .iter()
        .enumerate()
        .map(|(number, (vlan, asked, action))| PortRule {
            port: None,
            group: None,
            vlan: *vlan,
            packet: *asked,
            further: FurtherMatch::default(),
            sets: Vec::new(),
            ct_states: None,
            mark: None,
            label: None,
            action: *action,
            frames: Arc::clone(&counts[number]),
        });
    let fallback = Fallback {
        default,
        malformed,
        ..Fallback::counted_in(&counters)
    };
    let table = Arc::new(RuleTable::new(of_port, fallback.clone()));
    let port = PortRules::new(table, 0, None);
    let mut verdicts = [Verdict::Short; BURST_MAX];
    let received: Vec<(&[u8], u32)> = frames
        .iter()
        .map(|(frame, held)| (&frame[..*held], frame.len() as u32))
        .collect();
    let dropped = port.judge(received.iter().copied(), &mut verdicts);
    let others = [&fallback.default_frames, &fallback.malformed_frames];
    let all = || counts.iter().chain(others).map(|one| one.get());
    let shared: Vec<u64> = all().collect();
    // A thread with counters of its own decides and counts the same, whatever its latest bursts were.
    let former = RuleTable::new([], Fallback::counted_in(&counters));
    let former = PortRules::new(former.into(), 7, Some(9));
    let mut used = [0xff; 80];
    used[12..18].copy_from_slice(&[0x81, 0, 0xff, 0xff, 0x86, 0xdd]);
    used[18] = 0x6f;
    let used = [(&used[..], 80); BURST_MAX];
    let mut of_used = [Verdict::Short; BURST_MAX];
    judge_own(&former, &used, &mut of_used, &mut own);
    let none: Option<&mut Continued> = None;
    let out = (&mut of_used, none, &mut own);
    former.judge_output(used.iter().copied(), Some(5), out);
    let mut again = [Verdict::Short; BURST_MAX];
    assert_eq!(judge_own(&port, &received, &mut again, &mut own), dropped);
    assert_eq!(again, verdicts);
    assert!(all().eq(shared.iter().map(|count| 2 * count)));
    let [counts @ .., unmatched, malformed] = &shared[..] else {
        unreachable!("there are two counters beside those of rules");
    };
    Judged {
        verdicts: verdicts[..frames.len()].to_vec(),
        dropped,
        counts: counts.to_vec(),
        unmatched: *unmatched,
        malformed: *malformed,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn rules_decide_as_the_reference(
        frames in prop::collection::vec(frame(), 1..BURST_MAX),
        rules in prop::collection::vec(rule(), 0..8),
        policy in policy(),
    ) {
        let judged = judged(&rules, policy, &frames);
        let expected: Vec<Verdict> = frames
            .iter()
            .map(|(frame, held)| judge(&rules, policy, (frame, *held)))
            .collect();
        prop_assert_eq!(&judged.verdicts, &expected);
        prop_assert_eq!(judged.dropped.sum(), expected.iter().filter(|one| !one.accepts()).count());
        for (number, count) in judged.counts.into_iter().enumerate() {
            let of_rule = |one: &&Verdict| matches!(one, Verdict::Rule(rule, _) if *rule as usize == number);
            prop_assert_eq!(count, expected.iter().filter(of_rule).count() as u64);
        }
        let by_default = expected.iter().filter(|one| matches!(one, Verdict::Default(_)));
        prop_assert_eq!(judged.unmatched, by_default.count() as u64);
        let malformed = expected.iter().filter(|one| matches!(one, Verdict::Malformed(_))).count();
        prop_assert_eq!((judged.malformed, judged.dropped.malformed), (malformed as u64, malformed));
        let with = |action: Action| {
            let has = |one: &&Verdict| matches!(one, Verdict::Rule(_, its) | Verdict::Default(its) if *its == action);
            expected.iter().filter(has).count()
        };
        let (denied, rejected) = (with(Action::Drop), with(Action::Reject));
        prop_assert_eq!((judged.dropped.denied, judged.dropped.rejected), (denied, rejected));
    }

    #[test]
    fn no_octets_harm_the_rules(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..BURST_MAX),
        rules in prop::collection::vec(rule(), 0..8),
        malformed in prop::sample::select(vec![MalformedAction::Drop, MalformedAction::Match]),
    ) {
        let whole = |frame: Vec<u8>| {
            let held = frame.len();
            (frame, held)
        };
        let frames: Vec<(Vec<u8>, usize)> = frames.into_iter().map(whole).collect();
        let policy = (Action::Drop, malformed);
        let judged = judged(&rules, policy, &frames);
        let expected: Vec<Verdict> = frames
            .iter()
            .map(|(frame, held)| judge(&rules, policy, (frame, *held)))
            .collect();
        prop_assert_eq!(judged.verdicts, expected);
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
    let whole = |frame: Vec<u8>| {
        let held = frame.len();
        (frame, held)
    };
    let frames = [frame(17, 53), frame(17, 54), frame(47, 54), vec![1; 13]].map(whole);
    let policy = (Action::Drop, MalformedAction::Drop);
    let first = judged(&rules, policy, &frames);
    assert_eq!(
        first.verdicts,
        [
            Verdict::Rule(0, Action::Accept),
            Verdict::Rule(1, Action::Drop),
            Verdict::Rule(2, Action::Accept),
            Verdict::Short,
        ]
    );
    assert_eq!(
        (first.dropped.denied, first.counts, first.unmatched),
        (1, vec![1, 1, 1], 0)
    );
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
    let many = judged(&many, policy, &frames[..1]);
    assert_eq!(many.verdicts, [Verdict::Default(Action::Drop)]);
    assert_eq!(
        (
            many.dropped.denied,
            many.counts.iter().sum(),
            many.unmatched
        ),
        (1, 0u64, 1)
    );
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

#[test]
fn rules_of_ports_and_groups_match_at_these_only() {
    let rule = |port, group| PortRule {
        port,
        group,
        ..PortRule::new(PacketMatch::default(), Action::Drop)
    };
    let rules = [
        rule(Some(3), None),
        rule(None, Some(7)),
        rule(Some(4), Some(8)),
    ];
    let table = Arc::new(RuleTable::new(rules, Fallback::default()));
    let frame = [2u8; 60];
    for (port, group, expected) in [
        (3, None, Verdict::Rule(0, Action::Drop)),
        (3, Some(7), Verdict::Rule(0, Action::Drop)),
        (2, Some(7), Verdict::Rule(1, Action::Drop)),
        (4, Some(8), Verdict::Rule(2, Action::Drop)),
        (4, None, Verdict::Default(Action::Accept)),
        (2, None, Verdict::Default(Action::Accept)),
    ] {
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let port = PortRules::new(Arc::clone(&table), port, group);
        port.judge([(&frame[..], 60)].iter().copied(), &mut verdicts);
        assert_eq!(verdicts[0], expected);
    }
}

/// A burst of rules whose counters share a place, and of more rules than a burst.
#[test]
fn counters_of_many_rules_are_exact() {
    let count = 5 * BURST_MAX as u16;
    let counters: Vec<Arc<RuleFrames>> = (0..count).map(|_| Arc::default()).collect();
    let rules = (0..count).map(|number| PortRule {
        port: None,
        group: None,
        vlan: Some(number),
        packet: PacketMatch::default(),
        further: FurtherMatch::default(),
        sets: Vec::new(),
        ct_states: None,
        mark: None,
        label: None,
        action: Action::Accept,
        frames: Arc::clone(&counters[usize::from(number)]),
    });
    let table = Arc::new(RuleTable::new(rules, Fallback::default()));
    let port = PortRules::new(table, 0, None);
    let mut expected = vec![0u64; usize::from(count)];
    for round in 0..40u16 {
        let vlans: Vec<u16> = (0..BURST_MAX as u16)
            .map(|lane| match round % 3 {
                0 => lane % 5 * BURST_MAX as u16,
                1 => (lane * 37 + round) % count,
                _ => round,
            })
            .collect();
        let frame = |vlan: &u16| {
            let mut frame = vec![2; 12];
            frame.extend([0x81, 0]);
            frame.extend(vlan.to_be_bytes());
            frame.extend([8, 6]);
            frame.resize(60, 0);
            frame
        };
        let frames: Vec<Vec<u8>> = vlans.iter().map(frame).collect();
        let received: Vec<(&[u8], u32)> = frames.iter().map(|frame| (&frame[..], 60)).collect();
        let mut verdicts = [Verdict::Short; BURST_MAX];
        port.judge(received.iter().copied(), &mut verdicts);
        for (vlan, verdict) in vlans.iter().zip(verdicts) {
            expected[usize::from(*vlan)] += 1;
            assert_eq!(verdict, Verdict::Rule(u32::from(*vlan), Action::Accept));
        }
    }
    let counted: Vec<u64> = counters.iter().map(|one| one.get()).collect();
    assert_eq!(counted, expected);
}

/// Returns a rule on a VLAN. Some are rules of two ports.
fn on_vlan((vlan, action): &(u16, Action)) -> PortRule {
    PortRule {
        port: None,
        group: None,
        vlan: Some(*vlan),
        packet: PacketMatch::default(),
        further: FurtherMatch {
            ports: if vlan % 10 == 3 {
                [0, 1].into_iter().collect()
            } else {
                PortMask::default()
            },
            ..FurtherMatch::default()
        },
        sets: Vec::new(),
        ct_states: None,
        mark: None,
        label: None,
        action: *action,
        frames: Arc::default(),
    }
}

/// A change of rules on a VLAN each.
type ChangeRules = fn(&mut Vec<(u16, Action)>);

/// Compiles rules on a VLAN each.
fn on_vlans(former: Option<&RuleTable>, rules: &[(u16, Action)]) -> RuleTable {
    let rules = rules.iter().map(on_vlan);
    RuleTable::after(former, rules, &[], &[], Fallback::default())
}

#[test]
fn rules_after_others_decide_as_those_that_are_compiled_alone() {
    let accept = |vlan| (vlan, Action::Accept);
    let mut rules: Vec<(u16, Action)> = (0..1200).map(accept).collect();
    let mut table = on_vlans(None, &rules);
    let first = table.shape();
    let changes: [ChangeRules; 6] = [
        |rules| rules[500].1 = Action::Drop,
        |rules| rules.retain(|(vlan, _)| *vlan != 3),
        |rules| rules.insert(0, (700, Action::Drop)),
        |rules| rules.swap(10, 20),
        |rules| rules[1000] = (1300, Action::Drop),
        |rules| rules.truncate(100),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        change(&mut rules);
        table = on_vlans(Some(&table), &rules);
        let shape = table.shape();
        match rules.len() < CHANGED_MIN {
            true => assert_eq!(shape, on_vlans(None, &rules).shape()),
            // The trees are those of the first table, whose rules have a number each in addition.
            false => assert!(
                shape.octets >= first.octets + 4 * 1200,
                "{number}: {shape:?}"
            ),
        }
        table = check_vlans(table, &rules, number);
    }
}

#[test]
fn changed_rules_of_a_table_decide_as_those_that_are_compiled_alone() {
    let drop_on = |vlan: u16| (vlan, Action::Drop);
    // Few rules are compiled again, many are not.
    for count in [40, 1200] {
        let mut rules: Vec<(u16, Action)> = (0..count).map(|vlan| (vlan, Action::Accept)).collect();
        let mut table = on_vlans(None, &rules);
        let changes = [
            (20, 1, vec![drop_on(20)]),
            // The rule of two ports, and those behind it, have other numbers.
            (3, 1, vec![]),
            (0, 0, vec![drop_on(700), drop_on(503)]),
            (22, 2, vec![drop_on(33), drop_on(1300), drop_on(9)]),
            (10, 20, vec![drop_on(13)]),
            (0, 3, vec![]),
        ];
        for (number, (front, gone, new)) in changes.into_iter().enumerate() {
            let compiled = new.iter().map(|one| (on_vlan(one), None)).collect();
            let back = rules.len() - front - gone;
            drop(rules.splice(front..front + gone, new));
            let changed = table.with_changed((front, back), compiled, Fallback::default());
            table = check_vlans(changed.unwrap(), &rules, number);
        }
        let (all, none) = (rules.len(), Vec::new());
        let none = table.with_changed((all, 1), none, Fallback::default());
        assert!(none.is_none(), "more rules than there are");
    }
}

#[test]
fn changed_rules_have_their_statements_and_others_keep_theirs() {
    let statements = |dup: u16| {
        Some(Statements {
            dup: Some(dup),
            ..Statements::default()
        })
    };
    let rules: Vec<(u16, Action)> = (10..13).map(|vlan| (vlan, Action::Accept)).collect();
    let table = on_vlans(None, &rules);
    let dups = |table: RuleTable| {
        let port = PortRules::new(Arc::new(table), 1, None);
        let of_rule = |rule: u32| port.statements(Verdict::Rule(rule, Action::Accept))?.dup;
        (port.has_effects(), [0, 1, 2, 3].map(of_rule))
    };
    let changed = |table: &RuleTable, ends: (usize, usize), statements: Option<Statements>| {
        let new = vec![(on_vlan(&(20, Action::Accept)), statements)];
        table.with_changed(ends, new, Fallback::default()).unwrap()
    };
    assert_eq!(dups(changed(&table, (1, 1), None)), (false, [None; 4]));
    let one = changed(&table, (1, 1), statements(7));
    let two = changed(&one, (0, 3), statements(8));
    assert_eq!(dups(two), (true, [Some(8), None, Some(7), None]));
    assert_eq!(dups(changed(&one, (1, 1), None)), (false, [None; 4]));
    let of_all = table.with_statements(vec![statements(1), None, statements(3)]);
    let moved = changed(&of_all, (1, 2), statements(2));
    assert_eq!(dups(moved), (true, [Some(1), Some(2), None, Some(3)]));
}

#[test]
fn rules_that_need_what_a_table_does_not_have_are_compiled_with_all_others() {
    let rules: Vec<(u16, Action)> = (10..13).map(|vlan| (vlan, Action::Accept)).collect();
    let table = on_vlans(None, &rules);
    let plain = on_vlan(&(20, Action::Drop));
    let out = PortRule {
        further: FurtherMatch {
            out: Some(OutMatch { from: None }),
            ..FurtherMatch::default()
        },
        ..plain.clone()
    };
    let of_set = PortRule {
        sets: vec![(SetField::Source, 0)],
        ..plain.clone()
    };
    for (rule, is_possible) in [(plain, true), (out, false), (of_set, false)] {
        let changed = table.with_changed((3, 0), vec![(rule, None)], Fallback::default());
        assert_eq!(changed.is_some(), is_possible);
    }
}

/// Judges a frame of each of some VLANs. Returns the table.
fn check_vlans(table: RuleTable, rules: &[(u16, Action)], change: usize) -> RuleTable {
    let table = Arc::new(table);
    let port = PortRules::new(Arc::clone(&table), 1, None);
    for vlan in [
        0, 3, 9, 10, 20, 33, 500, 503, 700, 999, 1000, 1199, 1300, 1301,
    ] {
        let [high, low] = u16::to_be_bytes(vlan);
        let mut frame = [vec![2; 12], vec![0x81, 0, high, low, 8, 6]].concat();
        frame.resize(60, 0);
        let mut verdicts = [Verdict::Short; BURST_MAX];
        port.judge([(&frame[..], 60)].iter().copied(), &mut verdicts);
        let first = rules.iter().position(|rule| rule.0 == vlan);
        let expected = first.map_or(Verdict::Default(Action::default()), |first| {
            Verdict::Rule(first as u32, rules[first].1)
        });
        assert_eq!(verdicts[0], expected, "VLAN {vlan} after change {change}");
    }
    drop(port);
    Arc::into_inner(table).unwrap()
}
