// SPDX-License-Identifier: Apache-2.0
//! Target of a plan, and errors of applying it.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::storage::Storage;
use quietwire_base::{Fault, LockOwner};

use crate::files::Files;

/// The machine to which a plan is applied.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// Access to files of `/proc` and `/sys`.
    pub files: &'a dyn Files,
    /// Access to the state directory.
    pub storage: &'a dyn Storage,
    /// Root directory of `/proc` and `/sys`.
    pub root: PathBuf,
    /// State directory with the journal. All processes that apply plans to this machine use the same one.
    pub state_directory: PathBuf,
}

impl Target<'_> {
    /// Returns whether this is the running machine, whose threads can be moved.
    pub(crate) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }
}

/// Errors that prevent applying or rolling back a plan.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Another process is applying or rolling back a partition.
    #[error("{owner} is applying a partition or rolling one back (wait until it has ended)")]
    Busy {
        /// The process.
        owner: LockOwner,
    },
    /// A file of the machine cannot be read.
    #[error(
        "{}: cannot be read, so machine and plan cannot be compared: {cause} (nothing was changed; check the file, then try again)", path.display()
    )]
    Unreadable {
        /// The file or directory.
        path: PathBuf,
        /// Error of the operating system.
        cause: io::Error,
    },
    /// A file of the state directory could not be read or written.
    #[error("{}: {what}: {cause}", path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// Failed operation.
        what: &'static str,
        /// Error of the operating system.
        cause: io::Error,
    },
}

impl ApplyError {
    /// Returns the kind of fault.
    #[must_use]
    pub fn fault(&self) -> Fault {
        match self {
            // The user is not root.
            Self::State { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                Fault::MissingPrerequisite
            }
            // The user has chosen the directory.
            Self::State { cause, .. } => Fault::of_path(cause),
            Self::Busy { .. } | Self::Unreadable { .. } => Fault::Failed,
        }
    }
}
