// SPDX-License-Identifier: Apache-2.0
//! Any rules and packets: the classifier returns the rule that a linear search returns, also after a change of the rules.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quietwire_tables::classifier::{Classifier, Field, Key, NO_RULE, Rule, first_match};

/// Maximum number of rules of an input. A linear search through them is fast enough for many inputs per second.
const RULES_MAX: usize = 512;
/// Keys of a burst.
const KEYS_MAX: usize = 64;

/// Makes the key of an IPv4 packet.
fn key(octets: &[u8; 5]) -> Key {
    let [source, destination, protocol, port, mark] = *octets;
    let mut key = Key::EMPTY;
    key.set_ipv4(
        0x0a00_0000 + u32::from(source),
        0x0a00_0000 + (u32::from(destination) << 8),
    );
    key.set_ethertype(0x0800);
    key.set_protocol(protocol % 4);
    if protocol & 4 == 0 {
        key.set_ports(u16::from(port) << 4, u16::from(port));
    }
    key.set(Field::METADATA, u32::from(mark));
    key
}

/// Adds a condition to a rule.
fn with_condition(rule: Rule, octets: &[u8; 3]) -> Rule {
    let [field, a, b] = *octets;
    let prefix = |address: String| format!("{address}/{}", b % 33);
    let range = u16::from(a.min(b))..=u16::from(a.max(b));
    match field % 6 {
        0 => rule.with_protocol(a % 4),
        1 => rule.with_source(prefix(format!("10.0.0.{a}")).parse().expect("a prefix")),
        2 => rule.with_destination(prefix(format!("10.0.{a}.0")).parse().expect("a prefix")),
        3 => rule.with_ports(range, 0..=u16::MAX),
        4 => rule.with_ports(0..=u16::MAX, range),
        _ => rule.with_bits(Field::METADATA, u32::from(a), u32::from(b)),
    }
}

/// Compares results with those of the search rule by rule.
fn compare(classifier: &Classifier, rules: &[Rule], keys: &[Key]) {
    let mut found = vec![7; keys.len()];
    classifier.lookup(keys, &mut found);
    for (key, found) in keys.iter().zip(&found) {
        let expected = first_match(rules, key).map_or(NO_RULE, |place| place as u32);
        assert_eq!(*found, expected, "{key:?}");
    }
}

fuzz_target!(|input: (Vec<[u8; 5]>, Vec<Vec<[u8; 3]>>, u8)| {
    let (keys, rules, gone) = input;
    let keys: Vec<Key> = keys.iter().take(KEYS_MAX).map(key).collect();
    let rule =
        |conditions: &Vec<[u8; 3]>| conditions.iter().take(4).fold(Rule::ANY, with_condition);
    let rules: Vec<Rule> = rules.iter().take(RULES_MAX).map(rule).collect();
    let classifier = Classifier::new(&rules);
    compare(&classifier, &rules, &keys);
    let mut changed = rules.clone();
    if !changed.is_empty() {
        changed.remove(usize::from(gone) % rules.len());
    }
    if let Some(classifier) = classifier.changed(&rules, &changed) {
        compare(&classifier, &changed, &keys);
    }
});
