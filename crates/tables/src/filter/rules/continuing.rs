// SPDX-License-Identifier: Apache-2.0
//! Matches of rules that continue, and the limits of such rules.

use super::super::continued::{CONTINUE_MAX, Continued, Continuing, divide};
use super::super::counters::ThreadCounts;
use super::super::ct_values::CtConditions;
use super::super::tally::Tally;
use super::{Compiled, PortRule, PortRules};
use crate::classifier::Key;

impl PortRule {
    /// Returns the place of the first of these rules, all of which continue, that exceeds the limits: [`CONTINUE_MAX`],
    /// or [`PASSES_MAX`](super::super::PASSES_MAX) for one packet. Sets, marks and labels are not compared: packets may match rules with any of them.
    #[must_use]
    pub fn first_without_pass(rules: &[Self]) -> Option<usize> {
        let values = CtConditions::new(std::iter::empty(), 0);
        let (mut list, mut origins) = (Vec::new(), Vec::new());
        for (place, rule) in rules.iter().enumerate() {
            let compiled = rule.for_each_port(rule.compiled(&[], &values, true));
            list.extend(compiled);
            if list.len() > CONTINUE_MAX {
                return Some(place);
            }
            origins.resize(list.len(), place);
        }
        let (_, without) = divide(&list);
        without.and_then(|place| origins.get(place).copied())
    }
}

impl Compiled {
    /// Counts the matches of rules that continue, in front of the rules that decide on the frames, which are `found`: in these counters of the
    /// thread, if it has some.
    #[inline(never)]
    pub(super) fn pass(
        &self,
        continuing: &Continuing,
        (keys, found): (&[Key], &[u32]),
        has_key: impl Fn(usize) -> bool,
        (mut continued, own): (Option<&mut Continued>, Option<&mut ThreadCounts>),
    ) {
        let mut tally = Tally::new(own);
        continuing.each_match(keys, |frame, rule| {
            // Without a rule that decides, the number is the highest one.
            let end = found.get(frame).copied().unwrap_or(0);
            if rule < end && has_key(frame) {
                tally.add(&self.rules, rule);
                if let Some(continued) = &mut continued {
                    continued.add(frame, rule);
                }
            }
        });
        tally.flush(&self.rules);
    }
}

impl PortRules {
    /// Returns true if some rules continue, and rules have statements: then the caller needs the [`Continued`] of each burst.
    #[inline(always)]
    #[must_use]
    pub fn continues(&self) -> bool {
        self.table.has_effects && self.table.compiled.continuing.is_some()
    }

    /// Counts the matches of rules that continue, for frames that leave.
    pub(in super::super) fn pass_output(
        &self,
        keys: &[Key],
        found: &[u32],
        out: (Option<&mut Continued>, Option<&mut ThreadCounts>),
    ) {
        let compiled = &*self.table.compiled;
        if let Some(continuing) = &compiled.continuing {
            compiled.pass(continuing, (keys, found), |_| true, out);
        }
    }
}
