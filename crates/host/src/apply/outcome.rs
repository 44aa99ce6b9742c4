// SPDX-License-Identifier: Apache-2.0
//! Differences between the machine and a plan, and the outcomes of their changes.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

use crate::journal::{Change, UndoOutcome};

/// A difference between the machine and the plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file or directory, or `threads` for the CPU affinity of threads.
    pub place: PathBuf,
    /// Current value.
    pub now: String,
    /// Planned value.
    pub wanted: String,
}

/// Outcome of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// The machine conforms to the plan.
    Done,
    /// The kernel made only a part of the change.
    Partly {
        /// The part.
        what: String,
    },
    /// Only the kernel can make this change: it sets the affinity of the interrupt itself.
    Fixed {
        /// The kernel's error.
        reason: String,
    },
    /// The change failed.
    Failed {
        /// Reason.
        reason: String,
    },
}

/// Rollback of the changes of a call that was stopped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stopped {
    /// Changes that the call had made, and the results of undoing them.
    pub rolled_back: Vec<(Change, UndoOutcome)>,
    /// Error of the state directory, whose journal may list changes that are rolled back. `None` if its former state is restored.
    pub state_error: Option<String>,
}

impl Stopped {
    /// Returns the number of changes that may still be in effect.
    #[must_use]
    pub fn left(&self) -> usize {
        let outcomes = self.rolled_back.iter();
        outcomes.filter(|(_, outcome)| outcome.is_left()).count()
    }
}

pub(super) fn failed(error: &io::Error) -> Outcome {
    Outcome::Failed {
        reason: error.to_string(),
    }
}
