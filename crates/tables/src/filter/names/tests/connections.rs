// SPDX-License-Identifier: Apache-2.0
//! Connections by their packets: what rules on names decide before the name, with it, and without one.

use std::sync::Arc;

use proptest::prelude::*;
use quietwire_base::BURST_MAX;

use super::super::super::{
    Action, Fallback, NameFlows, NameMatch, NamePattern, PacketMatch, PortRule, PortRules, Ports,
    Protocol, RuleTable, Verdict,
};
use super::super::table::{NameTable, NamedRule};
use super::*;
use crate::connections::{CtState, Tracked};

pub(super) const SYN: u8 = 0x02;
pub(super) const ACK: u8 = 0x10;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// A client by its port, and the fragment field of its packets.
#[derive(Clone, Copy, Debug)]
struct Client {
    port: u16,
    fragment: u16,
}

pub(super) fn client(port: u16) -> impl Fn(u32, u8, &[u8]) -> Vec<u8> {
    let client = Client { port, fragment: 0 };
    move |sequence, flags, data| client.segment(sequence, flags, data)
}

impl Client {
    fn packet(&self, protocol: u8, to: u16, rest: &[u8], data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(24 + rest.len() + data.len()).unwrap();
        let mut frame = vec![2; 12];
        frame.extend([8, 0, 0x45, 0]);
        frame.extend(length.to_be_bytes());
        frame.extend([0, 1]);
        frame.extend(self.fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, 1, 192, 0, 2, 1]);
        frame.extend(self.port.to_be_bytes());
        frame.extend(to.to_be_bytes());
        frame.extend(rest);
        frame.extend(data);
        frame
    }

    /// Returns a segment to port 443.
    fn segment(&self, sequence: u32, flags: u8, data: &[u8]) -> Vec<u8> {
        let mut rest = sequence.to_be_bytes().to_vec();
        rest.extend([0, 0, 0, 0, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
        self.packet(TCP, 443, &rest, data)
    }

    /// Returns a datagram to port 53.
    fn datagram(&self, data: &[u8]) -> Vec<u8> {
        let length = u16::try_from(8 + data.len()).unwrap().to_be_bytes();
        self.packet(UDP, 53, &[length[0], length[1], 0, 0], data)
    }
}

fn rule(protocol: u8, port: Option<u16>, action: Action) -> PortRule {
    PortRule::new(
        PacketMatch {
            protocol: Some(Protocol(protocol)),
            destination_port: port.map(|port| Ports {
                first: port,
                last: port,
            }),
            ..PacketMatch::default()
        },
        action,
    )
}

fn names(json: &str) -> NameMatch {
    serde_json::from_str(json).unwrap()
}

/// Rules of a port: those with names, each on TCP port 443 or UDP port 53, and a default.
fn rules(named: &[(Action, &str)], default: Action) -> PortRules {
    let rules = named
        .iter()
        .map(|(action, json)| match json.contains("dns") {
            true => rule(UDP, Some(53), *action),
            false => rule(TCP, Some(443), *action),
        });
    let names: Vec<NameMatch> = named.iter().map(|(_, json)| names(json)).collect();
    let fallback = Fallback {
        default,
        ..Fallback::default()
    };
    let table = RuleTable::with_names(rules, &names, &[], fallback);
    PortRules::new(Arc::new(table), 3, None)
}

/// Rules that drop all TLS connections but those to example.org and hosts below it.
pub(super) fn allow_list(fail: &str) -> PortRules {
    let json = format!(r#"{{"tls-name":["example.org","*.example.org"],"name-fail":"{fail}"}}"#);
    rules(&[(Action::Accept, json.as_str())], Action::Drop)
}

/// Rules that drop TLS connections to example.org.
fn deny_list(fail: &str) -> PortRules {
    let json = format!(r#"{{"tls-name":["example.org"],"name-fail":"{fail}"}}"#);
    rules(&[(Action::Drop, json.as_str())], Action::Accept)
}

/// Returns whether a frame is accepted.
pub(super) fn passes(rules: &PortRules, flows: &mut NameFlows, frame: &[u8]) -> bool {
    let mut verdicts = [Verdict::Short; BURST_MAX];
    let length = u32::try_from(frame.len()).unwrap();
    rules.judge_named([(frame, length)].into_iter(), &[], flows, &mut verdicts);
    verdicts[0].accepts()
}

#[test]
fn packets_before_the_name_pass_and_later_ones_follow_it() {
    for (name, passes_allow_list, passes_deny_list) in [
        ("example.org", true, false),
        ("WWW.example.ORG", true, true),
        ("example.net", false, true),
    ] {
        for (rules, expected) in [
            (allow_list("closed"), passes_allow_list),
            (deny_list("closed"), passes_deny_list),
        ] {
            assert!(rules.has_names());
            let mut flows = NameFlows::new().unwrap();
            let segment = client(1000);
            let data = hello(name, 700);
            let (first, second) = data.split_at(500);
            let mut judge = |frame: Vec<u8>| passes(&rules, &mut flows, &frame);
            assert!(judge(segment(99, SYN, &[])));
            assert!(judge(segment(100, ACK, &[])));
            assert!(judge(segment(100, ACK, first)));
            assert!(judge(segment(100, ACK, first)), "sent again");
            assert_eq!(judge(segment(600, ACK, second)), expected, "{name}");
            assert_eq!(judge(segment(600, ACK, second)), expected, "sent again");
            let next = 100 + u32::try_from(data.len()).unwrap();
            assert_eq!(judge(segment(next, ACK, b"later")), expected);
            assert_eq!(judge(segment(next + 5, ACK | 1, &[])), expected);
            // A new connection with the same ports.
            assert!(judge(segment(5000, SYN, &[])));
            assert!(judge(segment(5001, ACK, &[])));
            assert_eq!(flows.take_undecidable(), 0);
        }
    }
}

#[test]
fn undecidable_names_follow_the_rule() {
    let data = hello("example.net", 0);
    for (fail, is_open) in [("closed", false), ("open", true)] {
        for rules in [allow_list(fail), deny_list(fail)] {
            let mut flows = NameFlows::new().unwrap();
            let mut judge = |frame: Vec<u8>| passes(&rules, &mut flows, &frame);
            // A connection whose start was not observed: segments without data have no name.
            assert!(judge(client(1)(5, ACK, &[])));
            assert_eq!(judge(client(1)(5, ACK, &data)), is_open);
            // Data that are missing: the segment alone is undecidable.
            assert!(judge(client(2)(99, SYN, &[])));
            assert_eq!(judge(client(2)(150, ACK, &data[50..])), is_open);
            assert!(judge(client(2)(100, ACK, &data[..50])));
            // A message that violates the protocol, for the rest of the connection.
            assert!(judge(client(3)(99, SYN, &[])));
            assert_eq!(judge(client(3)(100, ACK, &[22, 3, 1, 0, 0])), is_open);
            assert_eq!(judge(client(3)(105, ACK, &data)), is_open);
            // More segments than are searched, and more octets.
            assert!(judge(client(4)(99, SYN, &[])));
            for place in 0u32..20 {
                let octet = [data[place as usize]];
                let expected = place < 15 || is_open;
                assert_eq!(
                    judge(client(4)(100 + place, ACK, &octet)),
                    expected,
                    "{place}"
                );
            }
            let large = hello("example.net", 5000);
            assert!(judge(client(5)(99, SYN, &[])));
            assert!(judge(client(5)(100, ACK, &large[..4000])));
            assert_eq!(judge(client(5)(4100, ACK, &large[4000..])), is_open);
            assert!(judge(client(6)(99, SYN, &[])));
            assert_eq!(judge(client(6)(100, ACK, &large)), is_open);
            // The first fragment of a segment without the whole name.
            let fragment = Client {
                port: 7,
                fragment: 0x2000,
            };
            assert!(judge(client(7)(99, SYN, &[])));
            assert_eq!(judge(fragment.segment(100, ACK, &data[..44])), is_open);
            assert!(flows.take_undecidable() > 10);
        }
    }
}

#[test]
fn queries_are_decided_on_one_by_one() {
    let json = |fail: &str| format!(r#"{{"dns-name":["*.example.org"],"name-fail":"{fail}"}}"#);
    for (fail, is_open) in [("closed", false), ("open", true)] {
        let json = json(fail);
        let rules = rules(&[(Action::Drop, json.as_str())], Action::Accept);
        let mut flows = NameFlows::new().unwrap();
        let client = Client {
            port: 9,
            fragment: 0,
        };
        let mut judge = |data: &[u8]| passes(&rules, &mut flows, &client.datagram(data));
        assert!(!judge(&query("WWW.example.org")));
        assert!(judge(&query("example.org")));
        assert!(judge(&query("www.example.net")));
        assert_eq!(judge(&query("www.example.org")[..20]), is_open);
        assert_eq!(judge(&[]), is_open);
        assert_eq!(flows.take_undecidable(), 2);
    }
}

#[test]
fn a_flood_of_connections_does_not_displace_those_whose_name_is_known() {
    let rules = allow_list("closed");
    let mut flows = NameFlows::new().unwrap();
    let mut judge = |frame: Vec<u8>| passes(&rules, &mut flows, &frame);
    let data = hello("www.example.org", 0);
    for port in 1..=20 {
        assert!(judge(client(port)(99, SYN, &[])));
        assert!(judge(client(port)(100, ACK, &data)));
    }
    for sequence in 0..2 {
        for port in 1000..=u16::MAX {
            assert!(judge(client(port)(sequence, SYN, &[])));
        }
    }
    for port in 1..=20 {
        assert!(judge(client(port)(100, ACK, b"later")), "{port}");
    }
}

#[test]
fn new_rules_decide_on_the_names_of_old_connections() {
    let mut flows = NameFlows::new().unwrap();
    let data = hello("www.example.org", 0);
    for frame in [client(1)(99, SYN, &[]), client(1)(100, ACK, &data)] {
        assert!(passes(&allow_list("closed"), &mut flows, &frame));
    }
    let other = [(Action::Accept, r#"{"tls-name":["*.example.net"]}"#)];
    let later = client(1)(100, ACK, b"later");
    assert!(!passes(&rules(&other, Action::Drop), &mut flows, &later));
    assert!(passes(&allow_list("closed"), &mut flows, &later));
    assert!(passes(&deny_list("closed"), &mut flows, &later));
}

#[test]
fn a_syn_within_a_tracked_connection_begins_nothing() {
    let rules = allow_list("closed");
    let mut flows = NameFlows::new().unwrap();
    let mut judge = |frame: Vec<u8>, state: CtState| {
        let tracked = [Tracked {
            state,
            ..Tracked::UNTRACKED
        }];
        let mut verdicts = [Verdict::Short; BURST_MAX];
        let length = u32::try_from(frame.len()).unwrap();
        let frames = [(&frame[..], length)].into_iter();
        rules.judge_named(frames, &tracked, &mut flows, &mut verdicts);
        verdicts[0].accepts()
    };
    let data = hello("example.net", 0);
    assert!(judge(client(1)(99, SYN, &[]), CtState::New));
    assert!(!judge(client(1)(100, ACK, &data), CtState::Established));
    assert!(!judge(client(1)(999, SYN, &[]), CtState::Invalid));
    assert!(!judge(client(1)(1000, ACK, b"GET"), CtState::Established));
    // After the connection has ended.
    assert!(judge(client(1)(999, SYN, &[]), CtState::New));
}

#[test]
fn rules_without_names_and_packets_to_other_ports_are_not_concerned() {
    let plain = RuleTable::new([rule(TCP, None, Action::Drop)], Fallback::default());
    assert!(!PortRules::new(Arc::new(plain), 0, None).has_names());
    let mut flows = NameFlows::new().unwrap();
    let client = Client {
        port: 1,
        fragment: 0,
    };
    let mut frame = client.segment(5, ACK, b"data");
    // Port 444.
    frame[37] += 1;
    assert!(passes(&deny_list("closed"), &mut flows, &frame));
    assert!(!passes(&allow_list("open"), &mut flows, &frame));
    assert_eq!(flows.take_undecidable(), 0);
}

#[test]
fn described_packets_are_found_by_their_names() {
    let found = |rules: &PortRules, protocol: &str, port: u16, name: &str| {
        let packet = format!(
            r#"{{"source":"10.0.0.1","destination":"192.0.2.1","protocol":"{protocol}","source-port":9,"destination-port":{port}{name}}}"#
        );
        rules.find(&serde_json::from_str(&packet).unwrap())
    };
    let allow = allow_list("closed");
    assert_eq!(found(&allow, "tcp", 443, ""), Some(0));
    assert_eq!(found(&allow, "tcp", 444, ""), None);
    let tls = |name: &str| format!(r#","tls-name":"{name}""#);
    assert_eq!(found(&allow, "tcp", 443, &tls("a.example.org")), Some(0));
    assert_eq!(found(&allow, "tcp", 443, &tls("example.net")), None);
    let deny = deny_list("closed");
    assert_eq!(found(&deny, "tcp", 443, ""), None);
    assert_eq!(found(&deny, "tcp", 443, &tls("example.org")), Some(0));
    let dns = rules(
        &[(Action::Accept, r#"{"dns-name":["a.example"]}"#)],
        Action::Drop,
    );
    assert_eq!(found(&dns, "udp", 53, ""), None);
    assert_eq!(
        found(&dns, "udp", 53, r#","dns-name":"A.example""#),
        Some(0)
    );
}

fn pattern() -> impl Strategy<Value = String> {
    "(\\*\\.)?[ab](\\.[ab]){0,3}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn marks_are_those_of_the_rules_whose_names_match(
        lists in prop::collection::vec(prop::collection::vec(pattern(), 1..6), 1..8),
        name in "[abc](\\.[ab]){0,4}",
    ) {
        let lists: Vec<NameMatch> = lists
            .iter()
            .map(|list| names(&serde_json::json!({ "http-host": list }).to_string()))
            .collect();
        let named = lists.iter().map(|names| Some(NamedRule {
            names,
            action: Action::Accept,
            protocol: Some(Protocol(TCP)),
            destination_port: None,
        }));
        let (marks, table) = NameTable::new(named, 5);
        let found = table.unwrap().marks_of(NameKind::Http, name.as_bytes());
        for (list, mark) in lists.iter().zip(marks) {
            prop_assert!(mark.is_power_of_two() && mark >= 1 << 5);
            let expected = list.http_host.iter().any(|one: &NamePattern| one.matches(&name));
            prop_assert_eq!(found & mark != 0, expected, "{} in {:?}", name, list);
        }
    }
}

proptest! {
    // Each case allocates the memory of a thread.
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn segments_of_any_length_lead_to_the_same_decision(
        is_allowed in any::<bool>(),
        before in 0usize..2500,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        order in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        start in any::<u32>(),
    ) {
        let name = if is_allowed { "www.example.org" } else { "www.example.net" };
        let data = hello(name, before);
        let mut ends: Vec<usize> = cuts.iter().map(|cut| cut.index(data.len())).collect();
        ends.extend([0, data.len()]);
        ends.sort_unstable();
        ends.dedup();
        let part = |place: usize| (ends[place], &data[ends[place]..ends[place + 1]]);
        let count = ends.len() - 1;
        // All parts in order, and before each some that were sent before: again.
        let mut sent = Vec::new();
        for place in 0..count {
            for again in &order {
                sent.push(again.index(place + 1));
            }
            sent.push(place);
        }
        let rules = allow_list("closed");
        let mut flows = NameFlows::new().unwrap();
        let segment = client(1);
        prop_assert!(passes(&rules, &mut flows, &segment(start, SYN, &[])));
        let mut has_all = false;
        for place in sent {
            let (at, octets) = part(place);
            let sequence = start.wrapping_add(1).wrapping_add(u32::try_from(at).unwrap());
            let passed = passes(&rules, &mut flows, &segment(sequence, ACK, octets));
            has_all |= place + 1 == count;
            prop_assert!(passed == is_allowed || (passed && !has_all), "{} of {}", place, count);
        }
        prop_assert_eq!(flows.take_undecidable(), 0);
    }
}
