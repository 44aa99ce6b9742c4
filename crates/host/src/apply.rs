// SPDX-License-Identifier: Apache-2.0
//! Applies a plan to the running machine, and rolls it back to the original state. Every change is journaled first. Changes
//! that require a reboot are written to files and reported as pending.

mod classes;
mod cpusets;
mod outcome;
mod setting;
mod settings;
mod state;
mod step;
mod target;
#[cfg(test)]
mod tests;
mod threads;

use serde::Serialize;

use crate::journal::{self, Change, UndoOutcome};
use crate::partition::Plan;

pub(crate) use cpusets::PREFIX as SET_PREFIX;
pub use outcome::{Difference, Outcome};
pub use state::{Pending, STATE_DIRECTORY, Status, applied_plan, status};
pub use step::Step;
pub use target::{ApplyError, Target};

use state::State;

/// A difference between machine and plan, and the outcome of its change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// The difference.
    #[serde(flatten)]
    pub difference: Difference,
    /// The outcome.
    pub outcome: Outcome,
}

/// Result of applying a plan.
#[derive(Debug, Default, Serialize)]
pub struct ApplyReport {
    /// Changes of an earlier plan that this plan does not contain, and the results of undoing them.
    pub undone: Vec<(Change, UndoOutcome)>,
    /// All differences between machine and plan, with their outcomes.
    pub applied: Vec<Applied>,
    /// Changes that require a reboot.
    pub pending: Vec<Pending>,
}

impl ApplyReport {
    /// Returns the number of changes that failed, took effect only partly, or were left alone because another program had
    /// changed the value.
    #[must_use]
    pub fn failures(&self) -> usize {
        let failed = |applied: &&Applied| {
            matches!(
                applied.outcome,
                Outcome::Failed { .. } | Outcome::Partly { .. }
            )
        };
        let not_undone = |(_, undone): &&(Change, UndoOutcome)| undone.is_left();
        self.applied.iter().filter(failed).count() + self.undone.iter().filter(not_undone).count()
    }
}

/// Returns the differences between machine and plan. Changes nothing.
#[must_use]
pub fn differences(target: &Target<'_>, plan: &Plan) -> Vec<Difference> {
    let steps = step::steps(target, plan);
    steps
        .iter()
        .flat_map(|step| step.difference(target))
        .collect()
}

/// Returns the changes that require a reboot.
#[must_use]
pub fn pending(target: &Target<'_>, plan: &Plan) -> Vec<Pending> {
    state::pending(target, plan)
}

/// Applies the plan to the machine. Continues after failures.
///
/// # Errors
/// [`ApplyError`]: another process is applying a partition, or the state directory cannot be written. No change was made then, except
/// that changes of an earlier plan may be undone.
pub fn apply(
    target: &Target<'_>,
    plan: &Plan,
    watcher: Option<journal::Watcher>,
) -> Result<ApplyReport, ApplyError> {
    let mut state = State::open(target)?;
    if let Some(watcher) = watcher {
        state.journal.watch(watcher);
    }
    state.keep_plan(target, plan)?;
    let steps = step::steps(target, plan);
    let mut report = ApplyReport {
        undone: state.undo_unwanted(target, &steps)?,
        ..ApplyReport::default()
    };
    for step in &steps {
        for difference in step.difference(target) {
            let outcome = step.make(target, &mut state.journal, &difference);
            report.applied.push(Applied {
                difference,
                outcome,
            });
        }
    }
    report.pending = state::pending(target, plan);
    if let Err(error) = state.write_pending(target, plan, &mut report.pending) {
        // The changes that were made are reported nevertheless.
        report.applied.push(Applied {
            difference: Difference {
                place: target.state_directory.clone(),
                now: "no file with the pending changes".to_owned(),
                wanted: plan.command_line(),
            },
            outcome: Outcome::Failed {
                reason: error.to_string(),
            },
        });
    }
    Ok(report)
}

/// Rolls back all changes to the original state. Values that another program has changed since are left alone unless `force`
/// is set. Removes the journal when all changes are undone.
///
/// # Errors
/// [`ApplyError`].
pub fn roll_back(
    target: &Target<'_>,
    force: bool,
) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
    state::roll_back(target, force)
}
