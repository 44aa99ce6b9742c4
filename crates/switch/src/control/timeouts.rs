// SPDX-License-Identifier: Apache-2.0
//! Timeouts of elements of sets.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::config::CommonEnds;
use crate::config::rules::{Element, SetName, SetSetting};

/// Elements of sets with a timeout, and the times when they were added.
#[derive(Clone, Debug, Default)]
pub(super) struct Timeouts {
    followed: HashMap<SetName, Followed>,
}

/// A set as of the last call, and the times of its elements.
#[derive(Clone, Debug)]
struct Followed {
    set: Arc<SetSetting>,
    /// Copies share the times until the set changes: it may have 262,144 elements.
    added: Arc<HashMap<Element, Instant>>,
}

impl Followed {
    fn new(set: &Arc<SetSetting>, now: Instant) -> Self {
        Self {
            set: Arc::clone(set),
            added: Arc::new(set.elements.iter().map(|one| (*one, now)).collect()),
        }
    }

    /// Returns the times of a set that has changed. Most of its elements are in their places.
    fn changed(mut self, set: &Arc<SetSetting>, now: Instant) -> Self {
        let (before, after) = (&self.set.elements[..], &set.elements[..]);
        let ends = CommonEnds::of(before, after, |one, other| one == other);
        let added = Arc::make_mut(&mut self.added);
        let gone = ends.middle(before).iter();
        let gone = gone.filter_map(|element| added.remove_entry(element));
        let gone: HashMap<Element, Instant> = gone.collect();
        for element in ends.middle(after) {
            // One that has only moved is not new.
            let time = gone.get(element).copied().unwrap_or(now);
            added.insert(*element, time);
        }
        self.set = Arc::clone(set);
        self
    }
}

impl Timeouts {
    /// Notes elements that are new since the last call, and forgets those that are gone.
    pub(super) fn follow(&mut self, sets: &[Arc<SetSetting>], now: Instant) {
        let mut former = std::mem::take(&mut self.followed);
        for set in sets.iter().filter(|set| set.has_timeouts()) {
            let followed = match former.remove(&set.name) {
                Some(former) if Arc::ptr_eq(&former.set, set) => former,
                Some(former) => former.changed(set, now),
                None => Followed::new(set, now),
            };
            self.followed.insert(set.name.clone(), followed);
        }
    }

    /// Returns the seconds that an element of a set has left, rounded up; `None` without a timeout.
    pub(super) fn left_s(&self, set: &SetSetting, element: &Element, now: Instant) -> Option<u64> {
        let timeout = Duration::from_secs(set.timeout_of(element)?.into());
        let added = self.followed.get(&set.name)?.added.get(element)?;
        let left = timeout.saturating_sub(now.saturating_duration_since(*added));
        Some(
            left.as_secs()
                .saturating_add(u64::from(left.subsec_nanos() > 0)),
        )
    }

    /// Returns the elements whose time is over, by set.
    pub(super) fn due(
        &self,
        sets: &[Arc<SetSetting>],
        now: Instant,
    ) -> Vec<(SetName, Vec<Element>)> {
        let due_of = |set: &Arc<SetSetting>| {
            let added = &self.followed.get(&set.name)?.added;
            let is_over = |element: &&Element| {
                let timeout = set.timeout_of(element).map(u64::from);
                let timeout = timeout.map(Duration::from_secs);
                let end = added.get(*element).zip(timeout);
                end.is_some_and(|(time, timeout)| now.saturating_duration_since(*time) >= timeout)
            };
            let elements: Vec<Element> = set.elements.iter().filter(is_over).copied().collect();
            (!elements.is_empty()).then(|| (set.name.clone(), elements))
        };
        sets.iter().filter_map(due_of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read;

    fn set(name: &str, timeout_s: Option<u32>, elements: &[&str]) -> Arc<SetSetting> {
        Arc::new(read(&serde_json::json!({
            "name": name, "type": "inet_service", "timeout-s": timeout_s, "elements": elements,
        })))
    }

    #[test]
    fn single_elements_have_timeouts_of_their_own() {
        let set = |timeout_s: Option<u32>| -> Arc<SetSetting> {
            Arc::new(read(&serde_json::json!({
                "name": "a", "type": "inet_service", "timeout-s": timeout_s,
                "elements": ["1", "2", "3"], "element-timeouts-s": {"1": 5, "2": 20},
            })))
        };
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        for (timeout_s, ends) in [
            (None, [(4, 0), (5, 1), (20, 2), (1000, 2)]),
            (Some(10), [(4, 0), (5, 1), (10, 2), (20, 3)]),
        ] {
            let sets = [set(timeout_s)];
            let mut timeouts = Timeouts::default();
            timeouts.follow(&sets, start);
            for (seconds, count) in ends {
                let due = timeouts.due(&sets, at(seconds));
                let found = due.first().map_or(0, |(_, elements)| elements.len());
                assert_eq!(found, count, "{timeout_s:?}: {seconds} s");
            }
            let left = |port: u16| timeouts.left_s(&sets[0], &Element::Ports(port, port), at(1));
            let of_set = timeout_s.map(|_| 9);
            assert_eq!([1, 2, 3].map(left), [Some(4), Some(19), of_set]);
        }
    }

    #[test]
    fn elements_are_due_after_their_own_time() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timeouts = Timeouts::default();
        timeouts.follow(&[set("a", Some(10), &["1"]), set("b", None, &["2"])], start);
        let later = [set("a", Some(10), &["1", "3"]), set("b", None, &["2"])];
        timeouts.follow(&later, at(4));
        assert!(timeouts.due(&later, at(9)).is_empty());
        let due = |numbers: &[u16]| {
            let elements = numbers.iter().map(|port| Element::Ports(*port, *port));
            vec![(SetName("a".to_owned()), elements.collect::<Vec<_>>())]
        };
        assert_eq!(timeouts.due(&later, at(10)), due(&[1]));
        assert_eq!(timeouts.due(&later, at(14)), due(&[1, 3]));
        // An element that was removed and added again starts again.
        timeouts.follow(&[set("a", Some(10), &["3"])], at(14));
        timeouts.follow(&later, at(15));
        assert_eq!(timeouts.due(&later, at(16)), due(&[3]));
        // One that has moved keeps its time.
        let moved = [set("a", Some(10), &["7", "3", "1"])];
        timeouts.follow(&moved, at(17));
        assert_eq!(timeouts.due(&moved, at(16)), due(&[3]));
        assert_eq!(timeouts.due(&moved, at(25)), due(&[3, 1]));
        assert_eq!(timeouts.due(&moved, at(27)), due(&[7, 3, 1]));
    }
}
