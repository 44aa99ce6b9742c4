// SPDX-License-Identifier: Apache-2.0
//! The interface of every monitor: counters at two instants, and the activity between them.

use std::fmt::Debug;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Owner of a watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The device under test: a switch, a network function or a guest.
    Device,
    /// The tester.
    Tester,
    /// A neighbour.
    Neighbour,
}

/// A process whose threads are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// Process ID.
    pub pid: u32,
    /// Owner; none if the caller does not distinguish owners.
    pub owner: Option<Owner>,
}

impl Watched {
    /// Returns a process of this owner.
    #[must_use]
    pub fn of(pid: u32, owner: Owner) -> Self {
        Self {
            pid,
            owner: Some(owner),
        }
    }
}

/// Objects that monitors read: the files of a machine, and processes on it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    /// Root directory of the machine's files.
    pub(crate) root: &'a Path,
    /// Watched processes.
    pub(crate) watched: &'a [Watched],
}

/// Why this machine does not offer a monitor, as a clause.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

impl Unavailable {
    /// Returns the reason of a machine without this file.
    pub(crate) fn missing(path: &str) -> Self {
        Self(format!("the kernel has no readable {path}"))
    }
}

/// A monitor: it reads counters of one kind. Each is in a file of its own.
pub(crate) trait Monitor {
    /// Name in stores and reports.
    const NAME: &'static str;

    /// Counters at an instant.
    type Counters: Clone + Debug;

    /// Activity between two instants.
    type Activity: Default;

    /// Reads the counters.
    ///
    /// # Errors
    /// [`Unavailable`] if the machine does not offer them.
    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable>;

    /// Returns the activity between two instants. Counters that went backwards are added to `anomalies`, one sentence each.
    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity;
}

/// A monitor, and whether this machine offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offer {
    /// Name of the monitor.
    pub monitor: String,
    /// Why it is unavailable, as a clause; none if it is available.
    pub unavailable: Option<String>,
}

impl Offer {
    /// Returns whether this machine offers a monitor, which is read once.
    pub(crate) fn of<M: Monitor>(target: &Target<'_>) -> Self {
        Self {
            monitor: M::NAME.to_owned(),
            unavailable: M::read(target).err().map(|reason| reason.0),
        }
    }
}
