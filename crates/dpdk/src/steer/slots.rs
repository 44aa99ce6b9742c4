// SPDX-License-Identifier: Apache-2.0
//! Assignment of counters to rules.

use std::collections::BTreeSet;

use super::rule::{STEER_RULES_MAX, SteerRule};

/// Counter of frames that match no rule.
pub(super) const UNMATCHED: u32 = 0;
/// First number behind the counters of rules: those of the running program, and as many for the next one.
#[allow(
    clippy::cast_possible_truncation,
    reason = "a constant of a few hundred"
)]
pub(super) const COUNT: u32 = 1 + 2 * STEER_RULES_MAX as u32;
/// Number of all counters: each has another one for frames that the card should have delivered elsewhere.
pub(super) const COUNT_ALL: u32 = 2 * COUNT;

/// Returns the counter of frames of a rule that the card should have delivered elsewhere.
pub(super) const fn misplaced(slot: u32) -> u32 {
    COUNT.saturating_add(slot)
}

/// Rules with their counters, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Slots(Vec<(SteerRule, u32)>);

impl Slots {
    pub(super) fn rules(&self) -> impl Iterator<Item = (&SteerRule, u32)> {
        self.0.iter().map(|(rule, slot)| (rule, *slot))
    }

    /// Returns the rules of a changed list and the counters that are new. Rules that stay keep their counters.
    pub(super) fn with(&self, rules: &[SteerRule]) -> (Self, Vec<u32>) {
        let mut former: Vec<Option<&(SteerRule, u32)>> = self.0.iter().map(Some).collect();
        let used: BTreeSet<u32> = self.0.iter().map(|(_, slot)| *slot).collect();
        let mut unused = (UNMATCHED + 1..COUNT).filter(|slot| !used.contains(slot));
        let (mut next, mut fresh) = (Vec::new(), Vec::new());
        for rule in rules.iter().take(STEER_RULES_MAX) {
            let kept = former
                .iter_mut()
                .find(|one| one.is_some_and(|(same, _)| same == rule))
                .and_then(Option::take);
            let slot = match kept {
                Some((_, slot)) => *slot,
                None => {
                    // There are twice as many counters as rules.
                    let slot = unused.next().unwrap_or(UNMATCHED);
                    fresh.push(slot);
                    slot
                }
            };
            next.push((rule.clone(), slot));
        }
        (Self(next), fresh)
    }
}
