// SPDX-License-Identifier: Apache-2.0
//! Fuzz target: rules and packets from any octets. The classifier finds what the search rule by rule finds.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use quietwire_base::BURST_MAX;
use quietwire_base::fuzz::{check, planted};

use super::{Classifier, DEPTH_MAX, Field, Key, NO_RULE, Rule, TREES_MAX, first_match};

const CRATE: &str = env!("CARGO_MANIFEST_DIR");
/// Rules that the search rule by rule can compare with many inputs a second.
const RULES_MAX: usize = 512;
const PROTOCOLS: [u8; 4] = [6, 17, 1, 47];

/// Octets that are read from the front; zeros behind the end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn octet(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }
}

fn ipv4(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, last & 3, last)
}

fn ipv6(last: u8) -> Ipv6Addr {
    let last = u16::from(last);
    Ipv6Addr::new(0x2001, 0xdb8, last & 3, 0, 0, 0, 0, last)
}

fn protocol(octet: u8) -> u8 {
    PROTOCOLS[usize::from(octet) % PROTOCOLS.len()]
}

fn key(input: &mut Input<'_>) -> Key {
    let mut key = Key::EMPTY;
    let (kind, source, destination) = (input.octet(), input.octet(), input.octet());
    if kind & 1 == 0 {
        key.set_ipv4(ipv4(source).to_bits(), ipv4(destination).to_bits());
        key.set_ethertype(0x0800);
    } else {
        key.set_ipv6(ipv6(source).to_bits(), ipv6(destination).to_bits());
        key.set_ethertype(0x86dd);
    }
    key.set_protocol(protocol(kind >> 1));
    let (source, destination) = (u16::from(input.octet()), u16::from(input.octet()));
    if kind & 8 == 0 {
        key.set_ports(source << 4, destination << 4);
    }
    if kind & 16 != 0 {
        key.set_vlan(u16::from(input.octet()));
    }
    key.set(Field::METADATA, u32::from(input.octet()));
    key
}

fn rule(input: &mut Input<'_>) -> Rule {
    let mut rule = Rule::ANY;
    for _ in 0..=input.octet() & 3 {
        let (field, a, b) = (input.octet(), input.octet(), input.octet());
        let range = u16::from(a.min(b)) << 4..=u16::from(a.max(b)) << 4;
        rule = match field % 8 {
            0 => rule.with_protocol(protocol(a)),
            1 => match Ipv4Net::new(ipv4(a), b % 33) {
                Ok(prefix) => rule.with_source(IpNet::V4(prefix.trunc())),
                Err(_) => rule,
            },
            2 => match Ipv6Net::new(ipv6(a), b % 129) {
                Ok(prefix) => rule.with_destination(IpNet::V6(prefix.trunc())),
                Err(_) => rule,
            },
            3 => rule.with_ports(range, 0..=u16::MAX),
            4 => rule.with_ports(0..=u16::MAX, range),
            5 => rule.with_vlan(u16::from(a)),
            6 => rule.with_bits(Field::METADATA, u32::from(a), u32::from(b)),
            _ => rule.with_ethertype(if a & 1 == 0 { 0x0800 } else { 0x86dd }),
        };
    }
    rule
}

/// Compiles rules and looks up packets.
fn fuzz_classifier(octets: &[u8]) -> bool {
    let mut input = Input(octets);
    let keys = 1 + usize::from(input.octet()) % BURST_MAX;
    let keys: Vec<Key> = (0..keys).map(|_| key(&mut input)).collect();
    let mut rules = Vec::new();
    while !input.0.is_empty() && rules.len() < RULES_MAX {
        rules.push(rule(&mut input));
    }
    let classifier = Classifier::new(&rules);
    let mut found = vec![7; keys.len()];
    classifier.lookup(&keys, &mut found);
    for (key, found) in keys.iter().zip(&found) {
        let expected = first_match(&rules, key).map_or(NO_RULE, |place| place as u32);
        assert_eq!(*found, expected, "{key:?}");
    }
    // Every third rule is gone, or the second half is new.
    let gone = (0..).zip(&rules).filter(|(place, _)| place % 3 != 1);
    let gone: Vec<Rule> = gone.map(|(_, rule)| *rule).collect();
    let half = &rules[..rules.len() / 2];
    for (compiled, now) in [(&rules[..], &gone[..]), (half, &rules[..])] {
        let Some(changed) = Classifier::new(compiled).changed(compiled, now) else {
            continue;
        };
        changed.lookup(&keys, &mut found);
        for (key, found) in keys.iter().zip(&found) {
            let expected = first_match(now, key).map_or(NO_RULE, |place| place as u32);
            assert_eq!(*found, expected, "{key:?} after a change");
        }
    }
    classifier.lookup(&keys, &mut found);
    let shape = classifier.shape();
    assert!(shape.trees <= TREES_MAX && shape.nodes_max <= TREES_MAX * DEPTH_MAX);
    assert!(shape.copies <= 8 * rules.len() + 8192, "{shape:?}");
    planted("tables-classifier", || {
        found.iter().any(|place| (9..NO_RULE).contains(place)) && shape.nodes_max > 1
    });
    !rules.is_empty()
}

#[test]
fn classifier() {
    check(CRATE, "tables-classifier", fuzz_classifier);
}
