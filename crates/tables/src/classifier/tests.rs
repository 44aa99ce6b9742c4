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
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_classifier_finds_the_rule_that_the_obvious_search_finds(
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
