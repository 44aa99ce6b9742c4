// SPDX-License-Identifier: Apache-2.0
//! Verdicts of filter rules, and their counters.

use std::sync::Arc;

use quietwire_base::BURST_MAX;

use super::action::{Action, MalformedAction};
use super::continued::Continued;
use super::counters::{RuleCounters, RuleFrames, ThreadFrames};
use super::malformed::Malformation;
use crate::connections::Refusal;
use crate::drops::PortDrop;

/// Verdict of the rules for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// A rule with this number decided. Its action is never [`Action::Continue`].
    Rule(u32, Action),
    /// The default action: no rule matches.
    Default(Action),
    /// Dropped as malformed.
    Malformed(Malformation),
    /// The frame is shorter than its header: the next stage drops and counts it.
    Short,
    /// Accepted, but there is no space for its connection: dropped. The caller that tracks connections sets it.
    Refused(Refusal),
    /// Dropped before the rules, such as by the source guard of its port. The caller sets it.
    Guarded(PortDrop),
    /// Accepted by the rule with this number, and waits for the verdict of an inspector. The caller sets it.
    Held(u32),
    /// Accepted by the rule with this number, and dropped by the verdict of an inspector, or without one. The caller sets it.
    Inspected(u32, PortDrop),
}

impl Verdict {
    /// Returns true if the frame is accepted.
    #[inline(always)]
    pub const fn accepts(self) -> bool {
        !self.is_denied()
            && !self.rejects()
            && !matches!(
                self,
                Self::Malformed(_)
                    | Self::Refused(_)
                    | Self::Guarded(_)
                    | Self::Held(_)
                    | Self::Inspected(..)
            )
    }

    /// Returns true if a rule or the default drops the frame and answers it.
    #[inline(always)]
    pub const fn rejects(self) -> bool {
        matches!(
            self,
            Self::Rule(_, Action::Reject) | Self::Default(Action::Reject)
        )
    }

    /// Returns true if a rule or the default drops the frame silently.
    #[inline(always)]
    const fn is_denied(self) -> bool {
        matches!(
            self,
            Self::Rule(_, Action::Drop) | Self::Default(Action::Drop)
        )
    }
}

/// Verdict for each frame of a burst.
pub type Verdicts = [Verdict; BURST_MAX];

/// Output of a judgement: the verdicts, the rules that continued, if the caller needs them, and the counters of the thread, if it has some.
/// Without such counters, the frames are added to those that all threads share.
#[derive(Debug)]
pub struct Judged<'out> {
    pub(super) verdicts: &'out mut Verdicts,
    pub(super) continued: Option<&'out mut Continued>,
    pub(super) counters: Option<&'out mut ThreadFrames>,
}

impl<'out> From<&'out mut Verdicts> for Judged<'out> {
    fn from(verdicts: &'out mut Verdicts) -> Self {
        Self {
            verdicts,
            continued: None,
            counters: None,
        }
    }
}

impl<'out> From<(&'out mut Verdicts, Option<&'out mut Continued>)> for Judged<'out> {
    fn from((verdicts, continued): (&'out mut Verdicts, Option<&'out mut Continued>)) -> Self {
        Self {
            verdicts,
            continued,
            counters: None,
        }
    }
}

/// Verdicts, rules that continued, and counters of a thread.
type CountedOut<'out> = (
    &'out mut Verdicts,
    Option<&'out mut Continued>,
    &'out mut ThreadFrames,
);

impl<'out> From<CountedOut<'out>> for Judged<'out> {
    fn from((verdicts, continued, counters): CountedOut<'out>) -> Self {
        Self {
            verdicts,
            continued,
            counters: Some(counters),
        }
    }
}

/// Decisions on frames that no rule decides on, and their counters, which all ports share.
#[derive(Clone, Debug, Default)]
pub struct Fallback {
    /// Action for frames that no rule matches.
    pub default: Action,
    /// Frames that no rule matches.
    pub default_frames: Arc<RuleFrames>,
    /// Action for malformed frames.
    pub malformed: MalformedAction,
    /// Frames dropped as malformed.
    pub malformed_frames: Arc<RuleFrames>,
}

impl Fallback {
    /// Returns the default decisions, with counters among those of rules.
    #[must_use]
    pub fn counted_in(counters: &RuleCounters) -> Self {
        Self {
            default_frames: counters.rule(),
            malformed_frames: counters.rule(),
            ..Self::default()
        }
    }
}

/// Dropped frames of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// By a rule or by the default, silently.
    pub denied: usize,
    /// By a rule or by the default, with an answer.
    pub rejected: usize,
    /// As malformed.
    pub malformed: usize,
    /// For lack of space for their connections.
    pub refused: usize,
}

impl Dropped {
    /// Returns the number of dropped frames.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[must_use]
    pub const fn sum(self) -> usize {
        self.denied + self.rejected + self.malformed + self.refused
    }
}
