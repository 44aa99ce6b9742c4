// SPDX-License-Identifier: Apache-2.0
//! Counters of rules. The frames of a burst are added to the counter of a rule at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use super::action::Action;
use crate::classifier::NO_RULE;

/// Action and number of frames of a rule.
pub(super) type CountedAction = (Action, Arc<AtomicU64>);

/// Frames of a burst by rule. Rules that decide on many frames of a burst are counted with one atomic operation.
pub(super) struct Tally {
    /// Rules with their numbers of frames, at the number of the rule modulo [`BURST_MAX`].
    counts: [(u32, u32); BURST_MAX],
}

impl Tally {
    pub(super) const EMPTY: Self = Self {
        counts: [(NO_RULE, 0); BURST_MAX],
    };

    /// Adds a frame of a rule.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(super) fn add(&mut self, rules: &[CountedAction], rule: u32) {
        if let Some(count) = self.counts.get_mut(rule as usize % BURST_MAX) {
            if count.0 != rule {
                add_to_rule(rules, *count);
                *count = (rule, 0);
            }
            count.1 += 1;
        }
    }

    /// Adds all frames to the counters of their rules.
    #[inline(always)]
    pub(super) fn flush(&self, rules: &[CountedAction]) {
        for count in &self.counts {
            add_to_rule(rules, *count);
        }
    }
}

/// Adds frames to the counter of a rule.
#[inline(always)]
fn add_to_rule(rules: &[CountedAction], (rule, frames): (u32, u32)) {
    if frames > 0
        && let Some((_, sum)) = rules.get(rule as usize)
    {
        add(sum, u64::from(frames));
    }
}

/// Loads actions and counters of the rules with these numbers into the cache.
#[inline(never)]
pub(super) fn prefetch_rules(rules: &[CountedAction], found: &[u32]) {
    for rule in found {
        if let Some(rule) = rules.get(*rule as usize) {
            prefetch(rule);
        }
    }
    for rule in found {
        if let Some((_, frames)) = rules.get(*rule as usize) {
            prefetch(&**frames);
        }
    }
}

/// Adds to a counter that threads share.
#[inline(always)]
pub(super) fn add(sum: &AtomicU64, count: u64) {
    if count > 0 {
        sum.fetch_add(count, Ordering::Relaxed);
    }
}
