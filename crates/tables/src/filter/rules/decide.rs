// SPDX-License-Identifier: Apache-2.0
//! Decisions on the frames of a burst: the action of the first rule that matches, or the default.

use super::super::counters::ThreadCounts;
use super::super::tally::{CountedAction, Tally, add};
use super::{Action, Dropped, RuleTable, Verdict};

/// Frames of a burst by action: 16 bits for each, which a burst cannot exceed.
#[derive(Clone, Copy, Debug, Default)]
struct ByAction(u64);

/// Bits for the frames of an action.
const WIDTH: u32 = 16;
/// Most frames of an action.
const MOST: u64 = 0xffff;
const _: () = assert!(quietwire_base::BURST_MAX as u64 <= MOST && MOST >> WIDTH == 0);

impl ByAction {
    #[inline(always)]
    fn add(&mut self, action: Action) {
        self.0 = self.0.wrapping_add(1 << Self::place(action));
    }

    fn get(self, action: Action) -> usize {
        let frames = (self.0 >> Self::place(action)) & MOST;
        usize::try_from(frames).unwrap_or(usize::MAX)
    }

    #[inline(always)]
    const fn place(action: Action) -> u32 {
        (action as u32).wrapping_mul(WIDTH)
    }
}

/// Frames of a burst that have been decided on.
#[derive(Clone, Copy, Debug, Default)]
struct Decided {
    by_action: ByAction,
    /// Of those, frames without a rule.
    unmatched: u64,
    malformed: usize,
}

impl RuleTable {
    /// Replaces the default in verdicts by the rules that were found, and counts all frames: in the counters of the thread, if it has some.
    #[inline(always)]
    pub(super) fn decide(
        &self,
        verdicts: &mut [Verdict],
        found: &[u32],
        mut own: Option<&mut ThreadCounts>,
    ) -> Dropped {
        let rules = &self.compiled.rules;
        // One loop for each kind of counters: none of the two has to look for the kind.
        let decided = match own.as_deref_mut() {
            Some(own) => {
                let mut counts = own.counts();
                self.decide_each(verdicts, found, |rule, counted| {
                    if !counts.add(counted.place(), 1) {
                        rules.add_shared((rule, 1));
                    }
                })
            }
            None => {
                let mut tally = Tally::new(None);
                let decided = self.decide_each(verdicts, found, |rule, counted| {
                    tally.count(rules, rule, counted);
                });
                tally.flush(rules);
                decided
            }
        };
        let fallback = &self.fallback;
        add(
            &fallback.default_frames,
            own.as_deref_mut(),
            decided.unmatched,
        );
        add(&fallback.malformed_frames, own, decided.malformed as u64);
        Dropped {
            denied: decided.by_action.get(Action::Drop),
            rejected: decided.by_action.get(Action::Reject),
            malformed: decided.malformed,
            ..Dropped::default()
        }
    }

    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    fn decide_each(
        &self,
        verdicts: &mut [Verdict],
        found: &[u32],
        mut count: impl FnMut(u32, CountedAction),
    ) -> Decided {
        let default = self.fallback.default;
        let actions = self.compiled.rules.actions();
        let mut decided = Decided::default();
        for (verdict, rule) in verdicts.iter_mut().zip(found) {
            let Verdict::Default(_) = verdict else {
                decided.malformed += usize::from(matches!(verdict, Verdict::Malformed(_)));
                continue;
            };
            let action = match actions.get(*rule as usize) {
                Some(counted) => {
                    count(*rule, *counted);
                    let action = counted.action();
                    *verdict = Verdict::Rule(*rule, action);
                    action
                }
                None => {
                    decided.unmatched += 1;
                    default
                }
            };
            decided.by_action.add(action);
        }
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_a_burst_are_counted_by_action() {
        let mut frames = ByAction::default();
        for _ in 0..quietwire_base::BURST_MAX {
            frames.add(Action::Reject);
        }
        frames.add(Action::Drop);
        assert_eq!(frames.get(Action::Reject), quietwire_base::BURST_MAX);
        assert_eq!(frames.get(Action::Drop), 1);
        assert_eq!(frames.get(Action::Accept), 0);
        assert_eq!(frames.get(Action::Continue), 0);
    }
}
