// SPDX-License-Identifier: Apache-2.0
//! Rules that continue: their statements apply, and then the next rule is compared. A classifier finds one rule for a packet, so these
//! rules are divided into passes. No packet matches two rules of a pass, and each pass has a classifier of its own. Tables without such
//! rules have no pass.

use std::sync::Arc;

use quietwire_base::BURST_MAX;

use crate::classifier::{Classifier, Key, NO_RULE, Rule};
use crate::port_mask::PortMask;

/// Maximum number of rules that continue: as many for each port as one packet can match. A rule with several ports counts for each.
pub const CONTINUE_MAX: usize = PASSES_MAX * PortMask::PORTS;
/// Maximum number of passes, and so of rules that continue for one packet.
pub const PASSES_MAX: usize = 16;

/// Rules that continued for the frames of a burst.
#[derive(Clone, Debug)]
pub struct Continued {
    /// Numbers of the rules of each frame, in ascending order.
    rules: [[u32; PASSES_MAX]; BURST_MAX],
    /// Number of rules of each frame.
    counts: [u8; BURST_MAX],
    has_any: bool,
}

impl Default for Continued {
    fn default() -> Self {
        Self {
            rules: [[NO_RULE; PASSES_MAX]; BURST_MAX],
            counts: [0; BURST_MAX],
            has_any: false,
        }
    }
}

impl Continued {
    /// Returns the numbers of the rules that continued for the frame with this number in the burst, in their order.
    #[must_use]
    pub fn of(&self, frame: usize) -> &[u32] {
        let count = self
            .counts
            .get(frame)
            .map_or(0, |count| usize::from(*count));
        let rules = self.rules.get(frame).and_then(|rules| rules.get(..count));
        rules.unwrap_or_default()
    }

    /// Returns true if a rule continued for some frame.
    #[must_use]
    pub const fn has_any(&self) -> bool {
        self.has_any
    }

    /// Adds a rule of a frame.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most BURST_MAX frames and their rules"
    )]
    pub(super) fn add(&mut self, frame: usize, rule: u32) {
        if let (Some(rules), Some(count)) = (self.rules.get_mut(frame), self.counts.get_mut(frame))
            && let Some(place) = rules.get_mut(usize::from(*count))
        {
            *place = rule;
            *count += 1;
            self.has_any = true;
            // Unused places have the highest number.
            rules.sort_unstable();
        }
    }
}

/// Rules of which no packet matches two.
#[derive(Debug)]
struct Pass {
    classifier: Classifier,
    /// Places of its rules among all that continue.
    places: Vec<usize>,
}

/// Compiled rules that continue.
#[derive(Debug)]
pub(super) struct Continuing {
    passes: Arc<Vec<Pass>>,
    /// Rules of the classifiers, in their order.
    rules: Vec<Rule>,
    /// Number of the rule that each is compiled from.
    numbers: Vec<u32>,
}

impl Continuing {
    /// Compiles rules, each with its number; `None` without rules. It has the passes of the former ones if the rules are the same. Rules
    /// beyond [`CONTINUE_MAX`], or without a pass, match no packet.
    pub(super) fn after(former: Option<&Self>, all: Vec<(u32, Rule)>) -> Option<Self> {
        let (numbers, rules): (Vec<u32>, Vec<Rule>) = all.into_iter().take(CONTINUE_MAX).unzip();
        if rules.is_empty() {
            return None;
        }
        let passes = match former.filter(|former| former.rules == rules) {
            Some(former) => Arc::clone(&former.passes),
            None => Arc::new(compile(&rules)),
        };
        Some(Self {
            passes,
            rules,
            numbers,
        })
    }

    /// Returns the rules, each with its number.
    pub(super) fn rules(&self) -> impl Iterator<Item = (u32, Rule)> + '_ {
        self.numbers.iter().copied().zip(self.rules.iter().copied())
    }

    /// Calls a function with the number of a key and the number of a rule for each match, pass by pass.
    pub(super) fn each_match(&self, keys: &[Key], mut call: impl FnMut(usize, u32)) {
        for pass in self.passes.iter() {
            let mut found = [NO_RULE; BURST_MAX];
            pass.classifier.lookup(keys, &mut found);
            for (number, place) in found.iter().take(keys.len()).enumerate() {
                let place = pass.places.get(*place as usize);
                if let Some(rule) = place.and_then(|place| self.numbers.get(*place)) {
                    call(number, *rule);
                }
            }
        }
    }

    /// Returns the worst case of comparisons, and the memory in octets.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "octets of memory that exists"
    )]
    pub(super) fn shape(&self) -> (usize, usize) {
        let own = size_of_val(&self.rules[..]) + size_of_val(&self.numbers[..]);
        let shapes = self.passes.iter().map(|pass| pass.classifier.shape());
        shapes.fold((0, own), |(comparisons, octets), shape| {
            (comparisons + shape.comparisons_max, octets + shape.octets)
        })
    }
}

/// Compiles the passes of rules.
fn compile(rules: &[Rule]) -> Vec<Pass> {
    let (passes, _) = divide(rules);
    let pass = |places: Vec<usize>| {
        let own = places.iter().filter_map(|place| rules.get(*place).copied());
        let own: Vec<Rule> = own.collect();
        Pass {
            classifier: Classifier::new(&own),
            places,
        }
    };
    passes.into_iter().map(pass).collect()
}

/// Divides rules into passes: each rule is in the first pass that has no rule for the same packets. Returns the places of the rules of each
/// pass, and the place of the first rule that is in none.
pub(super) fn divide(rules: &[Rule]) -> (Vec<Vec<usize>>, Option<usize>) {
    let mut passes: Vec<Vec<usize>> = Vec::new();
    let mut without = None;
    for (place, rule) in rules.iter().enumerate() {
        let is_met = |other: &usize| rules.get(*other).is_some_and(|other| other.overlaps(rule));
        let free = passes.iter().position(|pass| !pass.iter().any(is_met));
        match free {
            Some(free) => {
                if let Some(pass) = passes.get_mut(free) {
                    pass.push(place);
                }
            }
            None if passes.len() < PASSES_MAX => passes.push(vec![place]),
            None => without = without.or(Some(place)),
        }
    }
    (passes, without)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_of_a_pass_have_no_packet_in_common() {
        let net = |text: &str| Rule::ANY.with_source(text.parse().unwrap());
        let rules = [
            net("10.0.0.0/8"),
            net("10.1.0.0/16"),
            net("192.0.2.0/24"),
            Rule::ANY,
            net("10.1.2.0/24"),
            net("10.2.0.0/16"),
        ];
        let (passes, without) = divide(&rules);
        assert_eq!(passes, [vec![0, 2], vec![1, 5], vec![3], vec![4]]);
        assert_eq!(without, None);
        let (passes, without) = divide(&[Rule::ANY; PASSES_MAX + 2]);
        assert_eq!((passes.len(), without), (PASSES_MAX, Some(PASSES_MAX)));
    }

    #[test]
    fn rules_of_a_frame_are_in_their_order() {
        let mut continued = Continued::default();
        assert!(!continued.has_any());
        for rule in [7, 2, 9] {
            continued.add(3, rule);
        }
        continued.add(BURST_MAX, 1);
        assert_eq!(continued.of(3), [2, 7, 9]);
        assert!(continued.has_any() && continued.of(2).is_empty());
        assert!(continued.of(BURST_MAX).is_empty());
        for rule in 0..PASSES_MAX as u32 + 1 {
            continued.add(0, rule);
        }
        assert_eq!(continued.of(0).len(), PASSES_MAX);
    }

    #[test]
    fn passes_stay_if_only_numbers_change() {
        let rules = |first: u32| vec![(first, Rule::ANY), (first + 1, Rule::ANY)];
        let before = Continuing::after(None, rules(0)).unwrap();
        let after = Continuing::after(Some(&before), rules(4)).unwrap();
        assert!(Arc::ptr_eq(&before.passes, &after.passes));
        let mut found = Vec::new();
        after.each_match(&[Key::EMPTY], |key, rule| found.push((key, rule)));
        assert_eq!(found, [(0, 4), (0, 5)]);
        assert!(after.rules().map(|(number, _)| number).eq(4..6));
        assert!(after.shape().1 > 0);
        let other = Continuing::after(Some(&before), vec![(0, Rule::ANY)]).unwrap();
        assert!(!Arc::ptr_eq(&before.passes, &other.passes));
        assert!(Continuing::after(Some(&before), Vec::new()).is_none());
    }
}
