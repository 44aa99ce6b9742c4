// SPDX-License-Identifier: Apache-2.0
//! Journal of changes. Each change is recorded before it is made, so any process can restore the original state, even after
//! this one was killed.
//!
//! One JSON object per line. A truncated last line belongs to a change that was not made.

mod describe;
pub(crate) mod same;
#[cfg(test)]
mod tests;
mod undo;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use quietwire_base::ProcessId;
use serde::{Deserialize, Serialize};

use crate::CpuList;

pub use undo::{undo, undo_in};

/// One change to the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum Change {
    /// A kernel setting was written.
    FileWritten {
        /// The file.
        path: PathBuf,
        /// Original text.
        former: String,
        /// New text.
        new: String,
    },
    /// A directory of quietwire was created. Undoing removes it with its content.
    DirectoryCreated {
        /// The directory.
        path: PathBuf,
    },
    /// A CPU set (cgroup) was created.
    CpusetCreated {
        /// Its directory.
        path: PathBuf,
        /// Treatment of its tasks on undo.
        tasks: TasksOnUndo,
    },
    /// The cpuset controller was enabled for the children of a cgroup (version 2).
    ControllerEnabled {
        /// The file `cgroup.subtree_control`.
        path: PathBuf,
    },
    /// Tasks with a CPU affinity are about to move to another set. Some kernels lose the affinity. This change precedes the
    /// creation of that set, so the tasks are back from it when this change is undone.
    AffinitiesNoted {
        /// Tasks with their CPUs.
        tasks: Vec<TaskAffinity>,
    },
    /// A group of the kernel (resctrl) was created. When it is removed, its tasks return to the parent group.
    GroupCreated {
        /// Its directory.
        path: PathBuf,
    },
    /// Tasks were moved to a group (resctrl).
    TasksMoved {
        /// Tasks with the `tasks` files of their original groups.
        tasks: Vec<TaskPlace>,
        /// The `tasks` file of the new group.
        to: PathBuf,
    },
    /// The CPU affinity of tasks was changed.
    AffinitiesSet {
        /// Tasks with their original and new CPUs.
        tasks: Vec<TaskChange>,
    },
    /// A named network namespace was created (ip-netns(8)). Removing it removes its interfaces.
    NamespaceCreated {
        /// The namespace's file: `/run/netns/NAME`.
        path: PathBuf,
    },
    /// A process was started.
    ProcessStarted {
        /// The process.
        process: ProcessId,
        /// Its command.
        command: String,
    },
}

/// CPU affinity of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAffinity {
    /// The task: a thread ID with its start time.
    pub task: ProcessId,
    /// Its CPUs (`Cpus_allowed_list`).
    pub cpus: CpuList,
}

/// Original and new CPU affinity of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChange {
    /// The task.
    pub task: ProcessId,
    /// Original CPUs.
    pub former: CpuList,
    /// New CPUs.
    pub new: CpuList,
}

/// Original group of one task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlace {
    /// The task.
    pub task: ProcessId,
    /// The file `tasks` of its group.
    pub former: PathBuf,
}

/// Treatment of the tasks in a CPU set when its creation is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TasksOnUndo {
    /// The tasks move to the parent set.
    Return,
    /// The tasks are killed, because they were started in the set.
    Kill,
}

/// Result of undoing one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "reason")]
pub enum UndoOutcome {
    /// The original state is restored.
    Restored,
    /// Nothing to undo.
    AlreadyGone,
    /// Another program has changed the value since. It was left alone.
    ChangedSince(String),
    /// Undoing failed.
    Failed(String),
}

/// An open journal.
pub struct Journal {
    file: File,
    path: PathBuf,
    watcher: Option<Watcher>,
}

/// Callback before and after a change is journaled, both before the change is made.
pub type Watcher = Box<dyn FnMut() + Send>;

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Creates a journal, or opens an existing one to append to it. Only its owner may read it.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file,
            path: path.to_owned(),
            watcher: None,
        })
    }

    /// Returns the path of the journal.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets a callback for every change. Tests use it to stop at any change and to check that all changes can be undone.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    fn notify(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher();
        }
    }

    /// Writes a change to the disk. Must be called before the change is made.
    ///
    /// # Errors
    /// Error of the operating system. The change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.notify();
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.notify();
        Ok(())
    }
}

/// Reads the changes of a journal, in order. Ignores a truncated last line, whose change was not made.
///
/// # Errors
/// Error of the operating system, or a line that is not a valid change.
pub fn read(path: &Path) -> io::Result<Vec<Change>> {
    let text = fs::read(path)?;
    let mut changes = Vec::new();
    for line in text
        .split_inclusive(|octet| *octet == b'\n')
        .filter(|line| line.ends_with(b"\n"))
    {
        changes.push(serde_json::from_slice(line)?);
    }
    Ok(changes)
}
