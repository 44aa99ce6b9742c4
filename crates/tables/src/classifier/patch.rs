// SPDX-License-Identifier: Apache-2.0
//! Few changes of many compiled rules.
//!
//! The trees of the compiled rules stay. Rules that are gone are skipped. Other rules have trees of their own: those that are new, and those
//! that the compilation left out behind a rule that is gone now. A rule is left out only where all packets match the rule in front of it, so
//! that only rules that overlap with one that is gone can be missing.

use std::collections::{HashMap, VecDeque};

use quietwire_base::BURST_MAX;

use super::compile::{Compiled, compile, number};
use super::key::Key;
use super::rule::Rule;
use super::search::{NO_RULE, Shape};

/// Maximum number of rules that are compiled beside those compiled before.
pub const CHANGED_MAX: usize = 256;

/// Difference between the compiled rules and those that hold.
#[derive(Debug)]
pub(super) struct Patch {
    /// Index of each compiled rule now, in ascending order; [`NO_RULE`] for rules that are gone.
    places: Vec<u32>,
    /// Rules beside the compiled ones.
    others: Compiled,
    /// Index of each of these.
    places_of_others: Vec<u32>,
    /// Number of rules now.
    rules: usize,
}

impl Patch {
    /// Compares rules with those that were compiled. `None` if too many differ, or other rules were compiled.
    pub(super) fn new((compiled, former): (&Compiled, &[Rule]), rules: &[Rule]) -> Option<Self> {
        if former.len() != compiled.rules {
            return None;
        }
        let places = places(former, rules);
        let mut are_others = vec![true; rules.len()];
        for place in &places {
            if let Some(is_other) = are_others.get_mut(*place as usize) {
                *is_other = false;
            }
        }
        let mut gone: Vec<&Rule> = Vec::new();
        for ((rule, place), hides) in former.iter().zip(&places).zip(&compiled.hides) {
            match are_others.get_mut(*place as usize) {
                None if *hides => gone.push(rule),
                None => {}
                Some(is_other) => *is_other = gone.iter().any(|gone| gone.overlaps(rule)),
            }
            if gone.len() > CHANGED_MAX {
                return None;
            }
        }
        let others = (0u32..).zip(rules).zip(are_others);
        let others =
            others.filter_map(|((place, rule), is_other)| is_other.then_some((place, *rule)));
        let (places_of_others, others): (Vec<u32>, Vec<Rule>) = others.unzip();
        (others.len() <= CHANGED_MAX).then(|| Self {
            places,
            others: compile(&others),
            places_of_others,
            rules: rules.len(),
        })
    }

    /// Finds the first rule of each of at most [`BURST_MAX`] keys.
    #[inline(never)]
    pub(super) fn find(&self, compiled: &Compiled, keys: &[Key], found: &mut [u32]) {
        let place = |all: &[u32], rule: u32| all.get(rule as usize).copied().unwrap_or(NO_RULE);
        let is_live = |rule: u32| place(&self.places, rule) != NO_RULE;
        compiled.find(keys, found, is_live);
        let mut others = [NO_RULE; BURST_MAX];
        let others = others.get_mut(..keys.len()).unwrap_or_default();
        self.others.find(keys, others, |_| true);
        for (found, other) in found.iter_mut().zip(others) {
            let other = place(&self.places_of_others, *other);
            *found = place(&self.places, *found).min(other);
        }
    }

    /// Returns size and worst case of the compiled rules and of these together.
    pub(super) fn shape(&self, compiled: Shape) -> Shape {
        let others = self.others.shape();
        Shape {
            rules: self.rules,
            trees: compiled.trees.saturating_add(others.trees),
            nodes_max: compiled.nodes_max.saturating_add(others.nodes_max),
            comparisons_max: compiled
                .comparisons_max
                .saturating_add(others.comparisons_max),
            copies: compiled.copies.saturating_add(others.copies),
            octets: compiled
                .octets
                .saturating_add(others.octets)
                .saturating_add(size_of_val(&self.places[..]))
                .saturating_add(size_of_val(&self.places_of_others[..])),
        }
    }
}

fn are_equal((one, other): &(&Rule, &Rule)) -> bool {
    one == other
}

/// Returns the index of each former rule among the rules now, or [`NO_RULE`]. The indices ascend: a rule that another one has overtaken is
/// gone and new.
fn places(former: &[Rule], rules: &[Rule]) -> Vec<u32> {
    let front = former.iter().zip(rules).take_while(are_equal).count();
    let former_rest = former.get(front..).unwrap_or_default();
    let rest = rules.get(front..).unwrap_or_default();
    let backwards = former_rest.iter().rev().zip(rest.iter().rev());
    let back = backwards.take_while(are_equal).count();
    let former_middle = former_rest.get(..former_rest.len().saturating_sub(back));
    let former_middle = former_middle.unwrap_or_default();
    let middle = rest.get(..rest.len().saturating_sub(back));
    let middle = middle.unwrap_or_default();

    let mut places = vec![NO_RULE; former.len()];
    for (place, index) in places.iter_mut().take(front).zip(0..) {
        *place = index;
    }
    let behind = places.iter_mut().skip(former.len().saturating_sub(back));
    for (place, index) in behind.zip(number(rules.len().saturating_sub(back))..) {
        *place = index;
    }
    let walked = walk(former_middle, middle, |former, index| {
        if let Some(place) = places.get_mut(front.saturating_add(former)) {
            *place = number(front.saturating_add(index));
        }
    });
    let former_left = former_middle.get(walked.0..).unwrap_or_default();
    let left = middle.get(walked.1..).unwrap_or_default();
    let mut indices: HashMap<&Rule, VecDeque<u32>> = HashMap::new();
    for (rule, index) in left.iter().zip(number(front.saturating_add(walked.1))..) {
        indices.entry(rule).or_default().push_back(index);
    }
    let mut pairs: Vec<(usize, u32)> = Vec::new();
    for (rule, former) in former_left.iter().zip(front.saturating_add(walked.0)..) {
        let index = indices.get_mut(rule).and_then(VecDeque::pop_front);
        pairs.extend(index.map(|index| (former, index)));
    }
    for (former, index) in longest_ascending(&pairs) {
        if let Some(place) = places.get_mut(former) {
            *place = index;
        }
    }
    places
}

/// Reports the places of equal rules in both lists, from the front, as long as no two adjacent rules are gone, new or others: changes that are
/// far apart need no table of the rules between them. Returns the numbers of rules of both lists up to there.
fn walk(former: &[Rule], rules: &[Rule], mut report: impl FnMut(usize, usize)) -> (usize, usize) {
    let (mut place, mut index) = (0usize, 0usize);
    while let (Some(one), Some(other)) = (former.get(place), rules.get(index)) {
        let (next_place, next_index) = (place.saturating_add(1), index.saturating_add(1));
        let (next, next_other) = (former.get(next_place), rules.get(next_index));
        if one == other {
            report(place, index);
            (place, index) = (next_place, next_index);
        } else if next.is_some() && next == next_other {
            (place, index) = (next_place, next_index);
        } else if next == Some(other) {
            place = next_place;
        } else if next_other == Some(one) {
            index = next_index;
        } else {
            break;
        }
    }
    (place, index)
}

/// Returns as many pairs as possible whose second parts ascend as their first parts do, from the last one on. The first parts ascend.
fn longest_ascending(pairs: &[(usize, u32)]) -> Vec<(usize, u32)> {
    // The last pair of the best chain of each length, and the pair in front of each pair in its chain.
    let mut ends: Vec<usize> = Vec::new();
    let mut fronts: Vec<Option<usize>> = Vec::new();
    let second = |pair: usize| pairs.get(pair).map(|(_, second)| *second);
    for (pair, (_, number)) in pairs.iter().enumerate() {
        let shorter = ends.partition_point(|end| second(*end) < Some(*number));
        let front = shorter.checked_sub(1).and_then(|last| ends.get(last));
        fronts.push(front.copied());
        match ends.get_mut(shorter) {
            Some(end) => *end = pair,
            None => ends.push(pair),
        }
    }
    let mut chain = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(pair) = next {
        chain.extend(pairs.get(pair));
        next = fronts.get(pair).copied().flatten();
    }
    chain
}

#[cfg(test)]
mod tests {
    use super::super::Classifier;
    use super::*;

    fn rule(number: u32) -> Rule {
        let prefix = ipnet::Ipv4Net::new((0x0a00_0000 + number).into(), 32).unwrap();
        Rule::ANY.with_destination(prefix.into())
    }

    fn rules(numbers: impl IntoIterator<Item = u32>) -> Vec<Rule> {
        numbers.into_iter().map(rule).collect()
    }

    #[test]
    fn rules_in_their_order_keep_their_places() {
        let former = rules(0..6);
        let gone = NO_RULE;
        for (now, expected) in [
            (vec![0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
            (vec![0, 1, 3, 4, 5], [0, 1, gone, 2, 3, 4]),
            (vec![0, 1, 9, 2, 3, 4, 5], [0, 1, 3, 4, 5, 6]),
            // One rule moves.
            (vec![1, 2, 3, 4, 5, 0], [gone, 0, 1, 2, 3, 4]),
            (vec![5, 0, 1, 2, 3, 4], [1, 2, 3, 4, 5, gone]),
            (vec![9, 1, 8, 3, 7, 6], [gone, 1, gone, 3, gone, gone]),
            // Several changes apart from each other, then two that are not.
            (vec![9, 0, 2, 3, 4, 5, 8], [1, gone, 2, 3, 4, 5]),
            (vec![1, 7, 2, 8, 9, 5, 4], [gone, 0, 2, gone, gone, 5]),
            (vec![], [gone; 6]),
        ] {
            assert_eq!(places(&former, &rules(now.clone())), expected, "{now:?}");
        }
        // Equal rules keep their order.
        let twice = rules([1, 1, 2, 1]);
        assert_eq!(places(&twice, &rules([1, 2, 1, 1])), [0, gone, 1, 3]);
    }

    #[test]
    fn only_what_differs_is_compiled() {
        let former = rules(0..5000);
        let classifier = Classifier::new(&former);
        let mut now = former.clone();
        now.remove(1000);
        now.insert(3000, rule(9000));
        now.swap(4000, 4500);
        let changed = classifier.changed(&former, &now).unwrap();
        let patch = Patch::new((&compile(&former), &former), &now).unwrap();
        // The new rule, and two that have exchanged their places.
        assert!(patch.others.rules <= 3, "{:?}", patch.places_of_others);
        let (before, after) = (classifier.shape(), changed.shape());
        assert_eq!((before.rules, after.rules), (5000, 5000));
        assert!(after.octets >= before.octets + 4 * 5000, "{after:?}");
        assert!(after.comparisons_max <= before.comparisons_max + 3);
    }

    #[test]
    fn too_many_changes_and_rules_of_others_are_refused() {
        let former = rules(0..2000);
        let classifier = Classifier::new(&former);
        let most = number(CHANGED_MAX);
        let with = |count: u32| rules((0..2000).chain(5000..5000 + count));
        assert!(classifier.changed(&former, &with(most)).is_some());
        assert!(classifier.changed(&former, &with(most + 1)).is_none());
        assert!(classifier.changed(&former[1..], &former).is_none());
        // Rules behind one for all packets are not compiled: they are missing once it is gone.
        let mut all = rules(0..400);
        all.insert(0, Rule::ANY);
        assert!(Classifier::new(&all).changed(&all, &all[1..]).is_none());
        let few = &all[..100];
        let changed = Classifier::new(few).changed(few, &few[1..]).unwrap();
        let mut found = [7];
        changed.lookup(&[Key::EMPTY], &mut found);
        assert_eq!(found, [NO_RULE]);
        let mut key = Key::EMPTY;
        key.set_ipv4(1, 0x0a00_0005);
        changed.lookup(&[key], &mut found);
        assert_eq!(found, [5]);
    }
}
