// SPDX-License-Identifier: Apache-2.0
//! The classifier compared with rules evaluated one by one: on descriptions of packets, and on keys for large sets.

mod described;
mod sets;

use proptest::prelude::*;
use quietwire_base::BURST_MAX;

use super::*;
use described::{Described, Packet};

/// Returns what a classifier finds for each key.
fn found(classifier: &Classifier, keys: &[Key]) -> Vec<Option<usize>> {
    let mut all = Vec::new();
    for burst in keys.chunks(BURST_MAX) {
        let mut numbers = [7; BURST_MAX];
        classifier.lookup(burst, &mut numbers);
        let of_burst = &numbers[..burst.len()];
        all.extend(
            of_burst
                .iter()
                .map(|number| (*number != NO_RULE).then_some(*number as usize)),
        );
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_classifier_finds_the_rule_of_the_reference_search(
        rules in prop::collection::vec(described::rule(), 0..120),
        packets in prop::collection::vec(described::packet(), 1..200),
    ) {
        let compiled: Vec<Rule> = rules.iter().map(Described::rule).collect();
        let keys: Vec<Key> = packets.iter().map(Packet::key).collect();
        let expected: Vec<Option<usize>> = packets
            .iter()
            .map(|packet| rules.iter().position(|rule| rule.matches(packet)))
            .collect();
        let classifier = Classifier::new(&compiled);
        prop_assert_eq!(&found(&classifier, &keys), &expected);
        let linear: Vec<Option<usize>> = keys.iter().map(|key| first_match(&compiled, key)).collect();
        prop_assert_eq!(&linear, &expected);
    }

    /// Any values and masks, as a pipeline of wildcards has them.
    #[test]
    fn any_masks_are_found(
        rules in prop::collection::vec(described::any_rule(), 0..150),
        keys in prop::collection::vec(described::any_key(), 1..150),
    ) {
        let classifier = Classifier::new(&rules);
        let expected: Vec<Option<usize>> = keys.iter().map(|key| first_match(&rules, key)).collect();
        prop_assert_eq!(found(&classifier, &keys), expected);
    }
}

/// Changes rules: removes one, adds one, replaces one, or moves one.
fn change(rules: &mut Vec<Rule>, kind: u8, (place, to): (usize, usize), new: Rule) {
    let places = rules.len();
    if places == 0 || kind == 0 {
        return rules.insert(place % (places + 1), new);
    }
    match kind {
        1 => {
            rules.remove(place % places);
        }
        2 => rules[place % places] = new,
        _ => {
            let rule = rules.remove(place % places);
            rules.insert(to % places, rule);
        }
    }
}

/// Changes rules again and again. Each time, they are compared with those that were compiled.
fn changes_are_found(
    mut rules: Vec<Rule>,
    changes: &[(u8, (usize, usize), Rule)],
    keys: &[Key],
) -> Result<(), TestCaseError> {
    let compiled = rules.clone();
    let mut classifier = Classifier::new(&compiled);
    for (kind, places, new) in changes {
        change(&mut rules, *kind, *places, *new);
        classifier = classifier.changed(&compiled, &rules).unwrap();
        let expected: Vec<Option<usize>> =
            keys.iter().map(|key| first_match(&rules, key)).collect();
        prop_assert_eq!(found(&classifier, keys), expected);
        prop_assert_eq!(classifier.shape().rules, rules.len());
    }
    Ok(())
}

fn places() -> impl Strategy<Value = (u8, (usize, usize))> {
    (0..4u8, (any::<usize>(), any::<usize>()))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn changed_rules_are_found_as_those_that_are_compiled(
        rules in prop::collection::vec(described::rule(), 0..120),
        changes in prop::collection::vec((places(), described::rule()), 1..10),
        packets in prop::collection::vec(described::packet(), 1..100),
    ) {
        let rules = rules.iter().map(Described::rule).collect();
        let changes: Vec<_> = changes.iter().map(|((kind, places), new)| (*kind, *places, new.rule())).collect();
        let keys: Vec<Key> = packets.iter().map(Packet::key).collect();
        changes_are_found(rules, &changes, &keys)?;
    }

    #[test]
    fn changed_rules_of_any_masks_are_found(
        rules in prop::collection::vec(described::any_rule(), 0..120),
        changes in prop::collection::vec((places(), described::any_rule()), 1..10),
        keys in prop::collection::vec(described::any_key(), 1..100),
    ) {
        let changes: Vec<_> = changes.into_iter().map(|((kind, places), new)| (kind, places, new)).collect();
        changes_are_found(rules, &changes, &keys)?;
    }
}

#[test]
fn changes_of_large_sets_are_found_as_by_the_reference() {
    let mut changed = Vec::new();
    for (name, rules) in sets::all(3000) {
        let mut now = rules.clone();
        now.rotate_left(1);
        now.truncate(2990);
        for place in [0, 7, 700, 1500, 2980] {
            now[place] = rules[2995];
            now.remove(place + 1);
        }
        // A rule that is gone may have hidden more rules than the maximum.
        let Some(classifier) = Classifier::new(&rules).changed(&rules, &now) else {
            continue;
        };
        changed.push(name);
        let keys = sets::keys(&rules, 1500);
        let expected: Vec<Option<usize>> = keys.iter().map(|key| first_match(&now, key)).collect();
        assert_eq!(found(&classifier, &keys), expected, "{name}");
    }
    assert!(changed.contains(&"acl"), "{changed:?}");
}

#[test]
fn large_sets_are_found_as_by_the_reference_within_their_bounds() {
    for (name, rules) in sets::all(3000) {
        let classifier = Classifier::new(&rules);
        let keys = sets::keys(&rules, 1500);
        let expected: Vec<Option<usize>> =
            keys.iter().map(|key| first_match(&rules, key)).collect();
        assert_eq!(found(&classifier, &keys), expected, "{name}");
        let shape = classifier.shape();
        assert!(shape.trees <= TREES_MAX, "{name}: {shape:?}");
        assert!(
            shape.nodes_max <= TREES_MAX * DEPTH_MAX,
            "{name}: {shape:?}"
        );
        assert!(shape.copies <= 8 * rules.len() + 8192, "{name}: {shape:?}");
        assert!(
            shape.octets <= 128 * shape.copies + 64 * (8 * rules.len() + 8192) + 4096,
            "{name}: {shape:?}"
        );
        assert!(shape.comparisons_max <= shape.copies, "{name}: {shape:?}");
    }
}

#[test]
fn rules_that_bits_separate_are_compared_a_few_at_a_time() {
    for (name, rules) in sets::all(3000) {
        if name.starts_with("adversarial") {
            continue;
        }
        let shape = Classifier::new(&rules).shape();
        assert!(shape.comparisons_max <= 128, "{name}: {shape:?}");
    }
}

#[test]
fn no_rule_and_rules_behind_one_for_all_packets() {
    let mut numbers = [7; 2];
    Classifier::new(&[]).lookup(&[Key::EMPTY; 2], &mut numbers);
    assert_eq!(numbers, [NO_RULE; 2]);
    let udp = Rule::ANY.with_protocol(17);
    let classifier = Classifier::new(&[udp, Rule::ANY, udp]);
    let mut key = Key::EMPTY;
    key.set_protocol(17);
    classifier.lookup(&[key, Key::EMPTY], &mut numbers);
    assert_eq!(numbers, [0, 1]);
    // A result without a key stays.
    classifier.lookup(&[Key::EMPTY], &mut numbers);
    assert_eq!(numbers, [1, 1]);
    assert_eq!(classifier.shape().copies, 1);
}
