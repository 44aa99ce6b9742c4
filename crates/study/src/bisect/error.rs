// SPDX-License-Identifier: Apache-2.0
//! Errors of a bisection.

use quietwire_base::Fault;

/// Error of a bisection.
#[derive(Debug, thiserror::Error)]
pub enum BisectError {
    /// The range, the repository or the command is unsuitable.
    #[error("{0}")]
    BadInput(String),
    /// The machine lacks a program.
    #[error("{0}")]
    MissingPrerequisite(String),
    /// A command failed, or the results do not decide.
    #[error("{0}")]
    Failed(String),
    /// The stop flag was set.
    #[error("interrupted before the commit was found")]
    Aborted,
}

impl BisectError {
    /// Returns whether input or machine is at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::BadInput(_) => Fault::BadInput,
            Self::MissingPrerequisite(_) => Fault::MissingPrerequisite,
            Self::Failed(_) | Self::Aborted => Fault::Failed,
        }
    }
}
