// SPDX-License-Identifier: Apache-2.0
//! Report of the sets of filter rules and their elements, page by page.

use std::sync::Arc;
use std::time::Instant;

use super::timeouts::Timeouts;
use crate::config::rules::{RuleSetting, SetName, SetSetting};
use crate::report::{ElementReport, SetReport, SetsReport};

/// Maximum number of elements in a page.
const PAGE_MAX: usize = 4096;

/// Returns a page of the report: all sets, or one, and at most `limit` of their elements from the element `from` on, and at most
/// [`PAGE_MAX`]. Elements are numbered through all of these sets. `None` if there is no such set.
pub(super) fn report(
    (sets, rules): (&[Arc<SetSetting>], &[Arc<RuleSetting>]),
    timeouts: &Timeouts,
    name: Option<&SetName>,
    (from, limit): (usize, usize),
) -> Option<SetsReport> {
    let now = Instant::now();
    let is_shown = |set: &&Arc<SetSetting>| name.is_none_or(|name| set.name == *name);
    let shown: Vec<&Arc<SetSetting>> = sets.iter().filter(is_shown).collect();
    if shown.is_empty() && name.is_some() {
        return None;
    }
    let total = shown.iter().map(|set| set.elements.len()).sum();
    let elements = shown.iter().flat_map(|set| {
        let of_set = move |element| ElementReport {
            set: set.name.clone(),
            element,
            expires_in_s: timeouts.left_s(set, &element, now),
        };
        set.elements.iter().copied().map(of_set)
    });
    let elements: Vec<ElementReport> = elements.skip(from).take(limit.min(PAGE_MAX)).collect();
    let end = from.saturating_add(elements.len());
    let of_set = |set: &&Arc<SetSetting>| {
        let uses = |rule: &&Arc<RuleSetting>| rule.packet.sets().any(|(_, one)| *one == set.name);
        SetReport {
            name: set.name.clone(),
            kind: set.kind,
            timeout_s: set.timeout_s,
            elements: set.elements.len(),
            rules: rules.iter().filter(uses).count(),
        }
    };
    Some(SetsReport {
        sets: shown.iter().map(of_set).collect(),
        elements,
        total,
        next: (end < total).then_some(end),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::read;

    fn set(name: &str, timeout_s: Option<u32>, ports: std::ops::Range<u16>) -> Arc<SetSetting> {
        let elements: Vec<String> = ports.map(|port| port.to_string()).collect();
        Arc::new(read(&serde_json::json!({
            "name": name, "type": "inet_service", "timeout-s": timeout_s, "elements": elements,
        })))
    }

    #[test]
    fn pages_have_all_elements_once_with_the_time_left() {
        let sets = [
            set("a", None, 0..3),
            set("b", Some(100), 5..9),
            set("c", None, 0..0),
        ];
        let rule: RuleSetting = read(&serde_json::json!({
            "name": "x", "action": "drop", "protocol": "tcp", "source-port": "@b", "destination-port": "@b",
        }));
        let rules = [Arc::new(rule)];
        let mut timeouts = Timeouts::default();
        timeouts.follow(&sets, Instant::now());
        let page = |name: Option<&SetName>, from, limit| {
            report((&sets, &rules), &timeouts, name, (from, limit)).unwrap()
        };
        let mut found = Vec::new();
        let mut next = Some(0);
        while let Some(from) = next {
            let page = page(None, from, 2);
            assert!((1..3).contains(&page.elements.len()));
            assert_eq!((page.total, page.sets.len()), (7, 3));
            found.extend(page.elements);
            next = page.next;
        }
        let text: Vec<String> = found
            .iter()
            .map(|one| format!("{} {} {}", one.set, one.element, one.expires_in_s.is_some()))
            .collect();
        assert_eq!(
            text,
            [
                "a 0 false",
                "a 1 false",
                "a 2 false",
                "b 5 true",
                "b 6 true",
                "b 7 true",
                "b 8 true"
            ]
        );
        assert!((99..=100).contains(&found[3].expires_in_s.unwrap()));
        let b = SetName("b".to_owned());
        let only = page(Some(&b), 0, 100);
        assert_eq!((only.total, only.next, only.sets[0].rules), (4, None, 1));
        let absent = SetName("d".to_owned());
        assert_eq!(
            report((&sets, &rules), &timeouts, Some(&absent), (0, 1)),
            None
        );
    }
}
