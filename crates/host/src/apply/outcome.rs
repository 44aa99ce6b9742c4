// SPDX-License-Identifier: Apache-2.0
//! Differences between the machine and a plan, and what came of changing them.

use std::io;
use std::path::PathBuf;

use serde::Serialize;

/// Where the machine is not as the plan has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The file or directory; `threads` for what threads may use.
    pub place: PathBuf,
    /// What is there.
    pub now: String,
    /// What the plan wants there.
    pub wanted: String,
}

/// What came of a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It is as the plan has it.
    Done,
    /// The kernel did a part of it.
    Partly {
        /// What.
        what: String,
    },
    /// The kernel keeps this one for itself: an interrupt that it places on its own.
    Fixed {
        /// What it said.
        why: String,
    },
    /// It failed.
    Failed {
        /// Why.
        why: String,
    },
}

pub(super) fn failed(error: &io::Error) -> Outcome {
    Outcome::Failed {
        why: error.to_string(),
    }
}
