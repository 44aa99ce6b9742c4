// SPDX-License-Identifier: Apache-2.0
//! Differences between the machine and a plan, and the outcomes of their changes.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

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

pub(super) fn failed(error: &io::Error) -> Outcome {
    Outcome::Failed {
        reason: error.to_string(),
    }
}
