// SPDX-License-Identifier: Apache-2.0
//! Differences of two lists of rules, by the names of the rules.

use std::collections::{HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::{Action, MalformedAction, RuleSetting, SetName, SetSetting};
use crate::config::settings::Settings;

/// Differences between the rules of two settings. A setting that the second does not have is not compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleDiff {
    /// Rules that only the second has.
    pub added: Vec<RuleSetting>,
    /// Rules that only the first has.
    pub removed: Vec<RuleSetting>,
    /// Rules with other settings in the second: first and second.
    pub changed: Vec<(RuleSetting, RuleSetting)>,
    /// Names of rules that have another place among the rules that both have: the fewest that explain the order.
    pub moved: Vec<String>,
    /// Names of sets that only the second has.
    pub sets_added: Vec<SetName>,
    /// Names of sets that only the first has.
    pub sets_removed: Vec<SetName>,
    /// Names of sets with other elements, another type or another timeout.
    pub sets_changed: Vec<SetName>,
    /// Default action of first and second, if they differ.
    pub default: Option<(Action, Action)>,
    /// Action for malformed frames of first and second, if they differ.
    pub malformed: Option<(MalformedAction, MalformedAction)>,
}

impl RuleDiff {
    /// Returns the differences of the rules of two settings.
    #[must_use]
    pub fn new(first: &Settings, second: &Settings) -> Self {
        let mut diff = Self::default();
        diff.compare_rules(&rules(first), &rules(second));
        diff.compare_sets(&sets(first), &sets(second));
        let (before, after) = (first.rule_default.unwrap_or_default(), second.rule_default);
        diff.default = after
            .filter(|after| *after != before)
            .map(|after| (before, after));
        let (before, after) = (
            first.rule_malformed.unwrap_or_default(),
            second.rule_malformed,
        );
        diff.malformed = after
            .filter(|after| *after != before)
            .map(|after| (before, after));
        diff
    }

    /// Returns true if there are no differences.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn compare_rules(&mut self, first: &[&RuleSetting], second: &[&RuleSetting]) {
        let former: HashMap<&str, (usize, &RuleSetting)> = places(first);
        let next: HashMap<&str, (usize, &RuleSetting)> = places(second);
        for rule in first {
            if !next.contains_key(rule.name.as_str()) {
                self.removed.push((*rule).clone());
            }
        }
        let mut common = Vec::new();
        for rule in second {
            match former.get(rule.name.as_str()) {
                None => self.added.push((*rule).clone()),
                Some((place, before)) => {
                    common.push((*place, &rule.name));
                    if before != rule {
                        self.changed.push(((*before).clone(), (*rule).clone()));
                    }
                }
            }
        }
        let former_places: Vec<usize> = common.iter().map(|(place, _)| *place).collect();
        let stays = longest_rise(&former_places);
        let moved = common.iter().filter(|(place, _)| !stays.contains(place));
        self.moved.extend(moved.map(|(_, name)| (*name).clone()));
    }

    fn compare_sets(&mut self, first: &[&SetSetting], second: &[&SetSetting]) {
        for set in first {
            match second.iter().find(|one| one.name == set.name) {
                None => self.sets_removed.push(set.name.clone()),
                Some(other) if !is_same_set(set, other) => self.sets_changed.push(set.name.clone()),
                Some(_) => {}
            }
        }
        let added = second
            .iter()
            .filter(|set| !first.iter().any(|one| one.name == set.name));
        self.sets_added.extend(added.map(|set| set.name.clone()));
    }
}

fn rules(settings: &Settings) -> Vec<&RuleSetting> {
    let rules = settings.rules.iter().flatten();
    rules.map(|rule| &*rule.value).collect()
}

fn sets(settings: &Settings) -> Vec<&SetSetting> {
    let sets = settings.sets.iter().flatten();
    sets.map(|set| &*set.value).collect()
}

fn places<'rules>(
    rules: &[&'rules RuleSetting],
) -> HashMap<&'rules str, (usize, &'rules RuleSetting)> {
    let places = rules.iter().enumerate();
    places
        .map(|(place, rule)| (rule.name.as_str(), (place, *rule)))
        .collect()
}

/// Returns true for sets with the same elements, in any order.
fn is_same_set(first: &SetSetting, second: &SetSetting) -> bool {
    let elements = |set: &SetSetting| set.elements.iter().copied().collect::<HashSet<_>>();
    (first.kind, first.timeout_s) == (second.kind, second.timeout_s)
        && first.element_timeouts_s == second.element_timeouts_s
        && elements(first) == elements(second)
}

/// Returns the numbers of a longest rising part of a list of distinct numbers.
fn longest_rise(numbers: &[usize]) -> HashSet<usize> {
    // The smallest last number of a rise of each length, and the number before each number in its rise.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: HashMap<usize, usize> = HashMap::new();
    for number in numbers {
        let length = ends.partition_point(|end| end < number);
        if let Some(last) = length.checked_sub(1).and_then(|at| ends.get(at)) {
            before.insert(*number, *last);
        }
        match ends.get_mut(length) {
            Some(end) => *end = *number,
            None => ends.push(*number),
        }
    }
    let mut rise = HashSet::new();
    let mut next = ends.last().copied();
    while let Some(number) = next {
        rise.insert(number);
        next = before.get(&number).copied();
    }
    rise
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::RuleFile;
    use super::*;

    fn settings(text: &str) -> Settings {
        RuleFile::parse(Path::new("rules.toml"), text)
            .unwrap()
            .settings()
    }

    fn rule(name: &str, action: &str) -> String {
        format!("[[rule]]\nname = \"{name}\"\naction = \"{action}\"\n")
    }

    #[test]
    fn rules_are_compared_by_name_and_order() {
        let set = |port: u16| {
            format!(
                "[[set]]\nname = \"s\"\ntype = \"inet_service\"\nelements = [\"1\", \"{port}\"]\n"
            )
        };
        let list = |names: &[(&str, &str)]| -> String {
            names
                .iter()
                .map(|(name, action)| rule(name, action))
                .collect()
        };
        let first = settings(
            &(set(2) + &list(&[("a", "drop"), ("b", "drop"), ("c", "drop"), ("d", "drop")])),
        );
        assert!(RuleDiff::new(&first, &first).is_empty());
        let text = format!(
            "rule-default = \"drop\"\nrule-malformed = \"drop\"\n{}{}",
            set(3),
            list(&[("d", "drop"), ("a", "accept"), ("x", "drop"), ("b", "drop")])
        );
        let diff = RuleDiff::new(&first, &settings(&text));
        let names = |rules: &[RuleSetting]| -> Vec<String> {
            rules.iter().map(|rule| rule.name.clone()).collect()
        };
        assert_eq!(
            (names(&diff.added), names(&diff.removed)),
            (vec!["x".to_owned()], vec!["c".to_owned()])
        );
        assert_eq!(diff.changed.len(), 1);
        assert_eq!(diff.changed[0].1.action, Action::Accept);
        assert_eq!(diff.moved, ["d"]);
        assert_eq!(diff.sets_changed, [SetName("s".to_owned())]);
        assert_eq!(diff.default, Some((Action::Accept, Action::Drop)));
        assert_eq!(diff.malformed, None);
        let none = RuleDiff::new(&settings(""), &settings(&set(2)));
        assert_eq!(none.sets_added, [SetName("s".to_owned())]);
    }

    #[test]
    fn the_longest_rise_is_found() {
        assert_eq!(longest_rise(&[]), HashSet::new());
        assert_eq!(longest_rise(&[3, 0, 1, 2]), HashSet::from([0, 1, 2]));
        assert_eq!(longest_rise(&[1, 0]).len(), 1);
        assert_eq!(longest_rise(&[5, 1, 6, 2, 7, 3]).len(), 3);
    }
}
