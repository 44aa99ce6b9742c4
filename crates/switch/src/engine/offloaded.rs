// SPDX-License-Identifier: Apache-2.0
//! Records of the filter rules on network cards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quietwire_dpdk::SteerMatch;
use quietwire_tables::filter::RuleFrames;

/// Maximum interval between attempts to remove rules that a card keeps, in looks of about a second.
const ATTEMPT_MAX: u32 = 64;
/// Name of a rule that the card has accepted in part, and that was in no list.
const UNKNOWN: &str = "(unknown)";

/// Filter rules on cards.
#[derive(Debug, Default)]
pub(super) struct OffloadedFilter {
    /// By number of the port.
    pub(super) ports: BTreeMap<u16, OffloadedPort>,
    /// Frames of the first rules at the last look; empty after a change of the configuration.
    pub(super) observed: Vec<u64>,
    /// Rules that cards did not remove, by number of the port.
    pub(super) kept: BTreeMap<u16, KeptRules>,
}

/// Filter rules that a card did not remove: it drops their frames, whatever the rules of the switch are now.
#[derive(Debug)]
pub(super) struct KeptRules {
    /// Names by place in the list of the card.
    pub(super) names: BTreeMap<usize, String>,
    /// Looks until the next attempt to remove them, and those between the last two attempts.
    wait: u32,
    interval: u32,
}

/// Filter rules on the card of a port.
#[derive(Debug, Default)]
pub(super) struct OffloadedPort {
    /// In the order of the card.
    pub(super) rules: Vec<OffloadedRule>,
    /// Places of the rules that the card does not get.
    pub(super) refused: BTreeSet<usize>,
}

/// A filter rule on a card.
#[derive(Debug)]
pub(super) struct OffloadedRule {
    /// Its place among all rules.
    pub(super) place: usize,
    pub(super) matched: SteerMatch,
    /// Number of frames of the rule.
    pub(super) frames: Arc<RuleFrames>,
    /// The part of it that the card has dropped.
    pub(super) dropped: u64,
}

impl KeptRules {
    pub(super) const fn new(names: BTreeMap<usize, String>) -> Self {
        Self {
            names,
            wait: 1,
            interval: 1,
        }
    }

    /// Returns true if an attempt is due at this look. The intervals double up to [`ATTEMPT_MAX`].
    pub(super) fn is_due(&mut self) -> bool {
        self.wait = self.wait.saturating_sub(1);
        if self.wait > 0 {
            return false;
        }
        self.interval = self.interval.saturating_mul(2).min(ATTEMPT_MAX);
        self.wait = self.interval;
        true
    }

    /// Returns the names of the rules at these places, each once.
    pub(super) fn names_of(&self, places: &[Option<usize>]) -> Vec<String> {
        let name = |place: &Option<usize>| {
            let name = place.and_then(|place| self.names.get(&place));
            name.cloned().unwrap_or_else(|| UNKNOWN.to_owned())
        };
        let names: BTreeSet<String> = places.iter().map(name).collect();
        names.into_iter().collect()
    }
}

impl OffloadedPort {
    /// Returns true if the card has the rule at a place, or does not get it.
    pub(super) fn is_decided(&self, place: usize) -> bool {
        self.refused.contains(&place) || self.rules.iter().any(|rule| rule.place == place)
    }
}

impl OffloadedRule {
    /// Adds the frames that the card has dropped since the last call to those of the rule.
    pub(super) fn count(&mut self, dropped: u64) {
        let new = dropped.saturating_sub(self.dropped);
        self.frames.add(new);
        self.dropped = dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_to_remove_rules_become_rare() {
        let mut kept = KeptRules::new(BTreeMap::new());
        let looks = (1..=256_u32).filter(|_| kept.is_due());
        let looks: Vec<u32> = looks.collect();
        assert_eq!(looks, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
    }

    #[test]
    fn rules_that_a_card_keeps_are_named_once() {
        let names = [(0, "web".to_owned()), (1, "dns".to_owned())];
        let kept = KeptRules::new(names.into());
        assert_eq!(kept.names_of(&[Some(1), Some(0), Some(1)]), ["dns", "web"]);
        assert_eq!(kept.names_of(&[Some(0), None]), [UNKNOWN, "web"]);
        assert_eq!(kept.names_of(&[]), Vec::<String>::new());
    }
}
