// SPDX-License-Identifier: Apache-2.0
//! Where a plan is applied, and why it could not be.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::LockOwner;

use crate::files::Files;

/// Where a plan is applied.
#[derive(Clone, Debug)]
pub struct Target<'a> {
    /// Its files.
    pub files: &'a dyn Files,
    /// Where `/proc` and `/sys` are.
    pub root: PathBuf,
    /// Where the journal is kept; the same for all who apply to this machine.
    pub state_directory: PathBuf,
}

impl Target<'_> {
    /// Whether it is the running machine, whose threads can be moved.
    pub(crate) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    pub(crate) fn path(&self, below: &str) -> PathBuf {
        self.root.join(below)
    }
}

/// Why a plan could not be applied or taken back at all.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// Somebody else is at it.
    #[error("{owner} is applying a partition or rolling one back; wait until it has ended")]
    Busy {
        /// The process.
        owner: LockOwner,
    },
    /// A file of the state.
    #[error("{}: {what}: {cause}", path.display())]
    State {
        /// Which.
        path: PathBuf,
        /// What was tried.
        what: &'static str,
        /// What the system said.
        cause: io::Error,
    },
}
