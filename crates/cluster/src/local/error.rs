// SPDX-License-Identifier: Apache-2.0
//! Errors of the local cluster.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::{Fault, LockError, LockOwner};

/// Errors of the local cluster.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    /// A program that the cluster requires is absent.
    #[error("{what} is missing ({cure})")]
    Missing {
        /// The program.
        what: String,
        /// The remedy.
        cure: String,
    },
    /// The cluster is up already.
    #[error("a local cluster is up, of {0} (end it with `quietwire cluster down`)")]
    Up(LockOwner),
    /// No cluster is up.
    #[error("no local cluster is up (start it with `quietwire cluster up --local`)")]
    Down,
    /// The state directory has files that no cluster makes.
    #[error("{}: the directory has files of others (use another --state-directory)", directory.display())]
    Foreign {
        /// The directory.
        directory: PathBuf,
    },
    /// A file that the programs of the cluster cannot see.
    #[error("{}: the local cluster has a {below} of its own, which hides this path (use a path outside of {below})", path.display())]
    Hidden {
        /// The file.
        path: PathBuf,
        /// The directory that hides it.
        below: &'static str,
    },
    /// A signal ended the start.
    #[error("interrupted; everything is removed")]
    Stopped,
    /// A step took too long.
    #[error("{what}: not within {seconds} s (logs: {})", log.display())]
    Late {
        /// The step.
        what: String,
        /// Its limit, seconds.
        seconds: u64,
        /// Directory of the logs.
        log: PathBuf,
    },
    /// A program ended by itself.
    #[error("{name} ended: {output}")]
    Ended {
        /// Name of the program.
        name: String,
        /// The last lines of its output.
        output: String,
    },
    /// A command failed.
    #[error("{what}: {reason}")]
    Failed {
        /// The step.
        what: String,
        /// The output of the command.
        reason: String,
    },
    /// Processes, directories or control groups that could not be removed.
    #[error("not removed: {0} (repeat `quietwire cluster down`)")]
    Left(String),
    /// An error of the operating system.
    #[error("{}: {what}: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        what: &'static str,
        /// The error.
        cause: io::Error,
    },
    /// The lock of the state directory.
    #[error(transparent)]
    Lock(LockError),
}

impl LocalError {
    /// Returns the party at fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            Self::Missing { .. } => Fault::MissingPrerequisite,
            Self::Up(_) | Self::Down | Self::Foreign { .. } | Self::Hidden { .. } => {
                Fault::BadInput
            }
            _ => Fault::Failed,
        }
    }
}

impl From<LockError> for LocalError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { owner, .. } => Self::Up(owner),
            error @ LockError::Io { .. } => Self::Lock(error),
        }
    }
}

/// Returns the error of an operation on a file.
pub(super) fn io_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> LocalError {
    move |cause| LocalError::Io {
        path: path.to_owned(),
        what,
        cause,
    }
}
