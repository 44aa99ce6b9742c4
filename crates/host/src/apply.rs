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

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

use crate::journal::{self, Change, UndoOutcome};
use crate::noted::Noted;
use crate::partition::Plan;

pub(crate) use cpusets::PREFIX as SET_PREFIX;
pub use outcome::{Difference, Outcome, Stopped};
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
    /// Rollback after a stop. `None` if the call was not stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stopped: Option<Stopped>,
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
        let applied = self.applied.iter().filter(failed).count();
        applied.saturating_add(self.undone.iter().filter(not_undone).count())
    }
}

/// Differences between machine and plan.
#[derive(Clone, Debug, Default)]
pub struct Differences {
    /// Those that [`apply`] would remove.
    pub removable: Vec<Difference>,
    /// Those that only the kernel can remove: interrupts whose CPUs it chooses itself.
    pub fixed: Vec<Difference>,
}

/// Returns the differences between machine and plan. Changes nothing.
///
/// # Errors
/// [`ApplyError::Unreadable`].
pub fn differences(target: &Target<'_>, plan: &Plan) -> Result<Differences, ApplyError> {
    let noted = Noted::new(target.files);
    let target = &Target {
        files: &noted,
        ..target.clone()
    };
    let mut found = Differences::default();
    for step in step::steps(target, plan) {
        let list = match step.is_fixed() {
            true => &mut found.fixed,
            false => &mut found.removable,
        };
        list.extend(step.difference(target));
    }
    require_readable(&noted)?;
    Ok(found)
}

/// Fails if a file could not be read.
fn require_readable(noted: &Noted<'_>) -> Result<(), ApplyError> {
    match noted.take().into_iter().next() {
        Some((path, cause)) => Err(ApplyError::Unreadable { path, cause }),
        None => Ok(()),
    }
}

/// Returns the changes that require a reboot.
#[must_use]
pub fn pending(target: &Target<'_>, plan: &Plan) -> Vec<Pending> {
    state::pending(target, plan)
}

/// Applies the plan to the machine. Continues after failures.
///
/// # Errors
/// [`ApplyError`]: another process is applying a partition, the state directory cannot be written, or files that decide about the changes
/// cannot be read. No change was made then.
pub fn apply(
    target: &Target<'_>,
    plan: &Plan,
    watcher: Option<journal::Watcher>,
) -> Result<ApplyReport, ApplyError> {
    apply_until(target, plan, watcher, &AtomicBool::new(false))
}

/// Applies the plan like [`apply`], until `stop` is set. Then undoes the changes that it has made, and reports them as
/// [`ApplyReport::stopped`]. Checks `stop` before each change and after the last one. Changes of an earlier plan that it has undone stay
/// undone.
///
/// # Errors
/// Those of [`apply`], and [`ApplyError::State`] if the journal cannot be read after a stop. The changes stay then.
pub fn apply_until(
    target: &Target<'_>,
    plan: &Plan,
    watcher: Option<journal::Watcher>,
    stop: &AtomicBool,
) -> Result<ApplyReport, ApplyError> {
    let is_stopped = || stop.load(Ordering::Relaxed);
    let mut state = State::open(target)?;
    if let Some(watcher) = watcher {
        state.journal.watch(watcher);
    }
    let noted = Noted::new(target.files);
    let noting = Target {
        files: &noted,
        ..target.clone()
    };
    let steps = step::steps(&noting, plan);
    require_readable(&noted)?;
    let mut report = ApplyReport::default();
    if !is_stopped() {
        state.keep_plan(target, plan)?;
        report.undone = state.undo_unwanted(target, &steps)?;
    }
    for step in steps.iter().take_while(|_| !is_stopped()) {
        let first = report.applied.len();
        for difference in step.difference(&noting) {
            if is_stopped() {
                break;
            }
            let outcome = step.make(&noting, &mut state.journal, &difference);
            report.applied.push(Applied {
                difference,
                outcome,
            });
        }
        let unreadable = noted.take().into_iter().map(unreadable).next();
        let is_done = |applied: &Applied| applied.outcome == Outcome::Done;
        if report.applied.iter().skip(first).all(is_done) {
            report.applied.extend(unreadable);
        }
    }
    if is_stopped() {
        report.stopped = Some(state.undo_own(target)?);
        return Ok(report);
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

/// Returns the report about a file that could not be read, so its setting may differ from the plan.
fn unreadable((place, error): (PathBuf, io::Error)) -> Applied {
    Applied {
        difference: Difference {
            place,
            now: "unreadable".to_owned(),
            wanted: "the value of the plan".to_owned(),
        },
        outcome: outcome::failed(&error),
    }
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
    roll_back_until(target, force, &AtomicBool::new(false))
}

/// Rolls back like [`roll_back`], until `stop` is set. Checks `stop` before each change. The changes that are left have the outcome
/// [`UndoOutcome::NotTried`], and stay in the journal for the next rollback.
///
/// # Errors
/// [`ApplyError`].
pub fn roll_back_until(
    target: &Target<'_>,
    force: bool,
    stop: &AtomicBool,
) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
    state::roll_back(target, force, stop)
}
