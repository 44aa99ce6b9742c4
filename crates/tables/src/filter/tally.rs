// SPDX-License-Identifier: Apache-2.0
//! Actions of rules, and the frames of a burst that each rule decides on.

use std::sync::Arc;

use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use super::action::Action;
use super::counters::{RuleFrames, ThreadCounts};
use crate::classifier::NO_RULE;

/// Action of a rule, and the place of its counter: the action has the two lowest bits.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedAction(u32);

impl CountedAction {
    const fn new(action: Action, place: u32) -> Self {
        let action = match action {
            Action::Accept => 0,
            Action::Drop => 1,
            Action::Reject => 2,
            Action::Continue => 3,
        };
        Self((place << 2) | action)
    }

    #[inline(always)]
    pub(super) const fn action(self) -> Action {
        match self.0 & 3 {
            0 => Action::Accept,
            1 => Action::Drop,
            2 => Action::Reject,
            _ => Action::Continue,
        }
    }

    #[inline(always)]
    pub(super) const fn place(self) -> u32 {
        self.0 >> 2
    }
}

/// Actions and numbers of frames of rules, in their order.
#[derive(Debug)]
pub(super) struct CountedRules {
    /// The part of each rule that the packet path reads.
    actions: Vec<CountedAction>,
    /// They keep the places of the counters.
    frames: Vec<Arc<RuleFrames>>,
}

impl FromIterator<(Action, Arc<RuleFrames>)> for CountedRules {
    fn from_iter<I: IntoIterator<Item = (Action, Arc<RuleFrames>)>>(rules: I) -> Self {
        let counted = rules.into_iter().map(|(action, frames)| {
            let counted = CountedAction::new(action, frames.place());
            (counted, frames)
        });
        let (actions, frames) = counted.unzip();
        Self { actions, frames }
    }
}

impl CountedRules {
    /// Returns the number of rules.
    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.actions.len()
    }

    /// Returns the actions of the rules.
    #[inline(always)]
    pub(super) fn actions(&self) -> &[CountedAction] {
        &self.actions
    }

    /// Returns true if some rule answers frames.
    pub(super) fn rejects(&self) -> bool {
        let mut actions = self.actions.iter();
        actions.any(|counted| counted.action() == Action::Reject)
    }

    /// Returns rules of which those from `front` to `end`, which is not one of them, are replaced by new ones. `None` if there are fewer rules.
    pub(super) fn changed(&self, (front, end): (usize, usize), new: &Self) -> Option<Self> {
        let actions = [
            self.actions.get(..front)?,
            &new.actions[..],
            self.actions.get(end..)?,
        ];
        let frames = [
            self.frames.get(..front)?,
            &new.frames[..],
            self.frames.get(end..)?,
        ];
        Some(Self {
            actions: actions.concat(),
            frames: frames.concat(),
        })
    }

    /// Loads actions and counters of the rules with these numbers into the cache.
    #[inline(never)]
    pub(super) fn prefetch(&self, found: &[u32], own: Option<&ThreadCounts>) {
        for rule in found {
            if let Some(counted) = self.actions.get(*rule as usize) {
                prefetch(counted);
            }
            if own.is_none()
                && let Some(frames) = self.frames.get(*rule as usize)
            {
                prefetch(frames);
            }
        }
        for rule in found {
            match own {
                Some(own) => {
                    if let Some(counted) = self.actions.get(*rule as usize) {
                        own.prefetch(counted.place());
                    }
                }
                None => {
                    if let Some(frames) = self.frames.get(*rule as usize) {
                        prefetch(&**frames);
                    }
                }
            }
        }
    }

    /// Adds frames of a rule to the counter that all threads share.
    #[inline(always)]
    pub(super) fn add_shared(&self, (rule, frames): (u32, u32)) {
        if frames > 0
            && let Some(sum) = self.frames.get(rule as usize)
        {
            sum.add(u64::from(frames));
        }
    }
}

/// Counting of the frames of a burst by rule.
#[expect(
    clippy::large_enum_variant,
    reason = "it stays on the stack for a burst"
)]
pub(super) enum Tally<'thread> {
    /// The thread has counters of its own.
    Own(&'thread mut ThreadCounts),
    /// Rule and number of frames, by the last digits of the number of the rule. Rules that decide on many frames of a burst are counted with
    /// one atomic operation.
    Shared([(u32, u32); BURST_MAX]),
}

impl<'thread> Tally<'thread> {
    /// Begins a burst of a thread that has these counters, if it has some.
    #[inline(always)]
    pub(super) fn new(own: Option<&'thread mut ThreadCounts>) -> Self {
        match own {
            Some(own) => Self::Own(own),
            None => Self::Shared([(NO_RULE, 0); BURST_MAX]),
        }
    }

    /// Adds a frame of a rule. Returns the action of the rule, if there is one.
    #[inline(always)]
    pub(super) fn add(&mut self, rules: &CountedRules, rule: u32) -> Option<Action> {
        let counted = *rules.actions.get(rule as usize)?;
        self.count(rules, rule, counted);
        Some(counted.action())
    }

    /// Adds a frame of a rule that has this action and counter.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    pub(super) fn count(&mut self, rules: &CountedRules, rule: u32, counted: CountedAction) {
        match self {
            Self::Own(own) => {
                if !own.counts().add(counted.place(), 1) {
                    rules.add_shared((rule, 1));
                }
            }
            Self::Shared(counts) => {
                if let Some(count) = counts.get_mut(rule as usize % BURST_MAX) {
                    if count.0 != rule {
                        rules.add_shared(*count);
                        *count = (rule, 0);
                    }
                    count.1 += 1;
                }
            }
        }
    }

    /// Ends the burst: adds all frames to the counters of their rules.
    #[inline(always)]
    pub(super) fn flush(&self, rules: &CountedRules) {
        if let Self::Shared(counts) = self {
            for count in counts {
                rules.add_shared(*count);
            }
        }
    }
}

/// Adds frames to a counter, at its place in those of the thread, if both exist.
#[inline(always)]
pub(super) fn add(frames: &RuleFrames, own: Option<&mut ThreadCounts>, count: u64) {
    if count > 0 && !own.is_some_and(|own| own.counts().add(frames.place(), count)) {
        frames.add(count);
    }
}
