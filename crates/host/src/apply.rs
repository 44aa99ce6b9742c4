// SPDX-License-Identifier: Apache-2.0
//! Brings a plan to the machine while it runs, each change written down first; and takes it back to exactly what was
//! there. What takes a reboot is written to files and called pending, never done.

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

use crate::journal::{self, Change, Undone};
use crate::partition::Plan;

pub(crate) use cpusets::PREFIX as SET_PREFIX;
pub use outcome::{Difference, Outcome};
pub use state::{Pending, STATE_DIRECTORY, Status, applied_plan, status};
pub use step::Step;
pub use target::{ApplyError, Target};

use state::State;

/// One difference with what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Applied {
    /// What was to be changed.
    #[serde(flatten)]
    pub difference: Difference,
    /// What came of it.
    pub outcome: Outcome,
}

/// What came of applying a plan.
#[derive(Debug, Default, Serialize)]
pub struct ApplyReport {
    /// Changes of an earlier plan that this one does not want, and what came of undoing them.
    pub undone: Vec<(Change, Undone)>,
    /// Everything that was not as the plan has it.
    pub applied: Vec<Applied>,
    /// What takes a reboot.
    pub pending: Vec<Pending>,
}

impl ApplyReport {
    /// How many changes failed, came to less than was wanted, or were left since something else changed the value.
    #[must_use]
    pub fn failures(&self) -> usize {
        let failed = |applied: &&Applied| {
            matches!(
                applied.outcome,
                Outcome::Failed { .. } | Outcome::Partly { .. }
            )
        };
        let not_undone = |(_, undone): &&(Change, Undone)| {
            matches!(undone, Undone::Failed(_) | Undone::ChangedSince(_))
        };
        self.applied.iter().filter(failed).count() + self.undone.iter().filter(not_undone).count()
    }
}

/// Where the machine is not as the plan has it. Changes nothing.
#[must_use]
pub fn differences(target: &Target<'_>, plan: &Plan) -> Vec<Difference> {
    let steps = step::steps(target, plan);
    steps
        .iter()
        .flat_map(|step| step.difference(target))
        .collect()
}

/// What of the plan takes a reboot.
#[must_use]
pub fn pending(target: &Target<'_>, plan: &Plan) -> Vec<Pending> {
    state::pending(target, plan)
}

/// Brings the plan to the machine. Goes on past what fails.
///
/// # Errors
/// [`ApplyError`]: somebody else is at it, or the journal cannot be written. What had been changed by then is in it.
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
    report.pending = state.write_pending(target, plan)?;
    Ok(report)
}

/// Takes everything back that was applied: to exactly what was there. What something else changed since is left alone,
/// unless `force` is given. The journal goes when nothing is left to do.
///
/// # Errors
/// [`ApplyError`].
pub fn roll_back(target: &Target<'_>, force: bool) -> Result<Vec<(Change, Undone)>, ApplyError> {
    state::roll_back(target, force)
}
