// SPDX-License-Identifier: Apache-2.0
//! Throughput that a procedure starts from.

use super::checks::{known_goal, not_repeated};
use super::found::rate_of;
use super::method::{Common, FoundBefore, StudyContext};
use crate::file::Percent;
use crate::file::limits::{Checked, fault};
use crate::file::locate::At::Key;

/// Result of a goal, or a percentage of the maximum rate.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Throughput<'a> {
    /// Result of this goal.
    OfGoal(&'a str),
    /// Percentage of the maximum rate.
    Of(Percent),
}

/// Goal if neither a goal nor a rate is given.
const GOAL: &str = "NDR";

impl<'a> Throughput<'a> {
    /// Returns the throughput from the keys `goal` and `rate-percent`.
    pub(super) fn new(goal: Option<&'a String>, rate: Option<Percent>) -> Self {
        match (goal, rate) {
            (_, Some(rate)) => Self::Of(rate),
            (goal, None) => Self::OfGoal(goal.map_or(GOAL, String::as_str)),
        }
    }

    /// Returns the rate, frames per second; none if the search found none.
    pub(super) fn pps(
        &self,
        common: &Common,
        goals: &[String],
        found: FoundBefore<'_>,
    ) -> Option<f64> {
        match self {
            Self::Of(percent) => Some(percent.of(common.max_rate_pps)),
            Self::OfGoal(goal) => rate_of(goal, goals, found),
        }
    }
}

/// Checks that at most one of a goal and a rate is given, and that `[search]` has the goal.
pub(super) fn check(
    around: &StudyContext<'_>,
    section: &'static str,
    goal: Option<&String>,
    rate: Option<Percent>,
) -> Checked {
    if goal.is_some() && rate.is_some() {
        return fault(&[Key(section)], "set at most one of goal and rate-percent");
    }
    let Throughput::OfGoal(name) = Throughput::new(goal, rate) else {
        return Ok(());
    };
    let path: &[_] = if goal.is_some() {
        &[Key(section), Key("goal")]
    } else {
        &[Key(section)]
    };
    let search = known_goal(around, name, path)?;
    not_repeated(search, path)
}
