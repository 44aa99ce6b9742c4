// SPDX-License-Identifier: Apache-2.0
//! What was changed, written down before it is changed, so that it can be undone to exactly what was there:
//! also by another process, after this one was killed.
//!
//! One JSON object a line. A line that was cut off belongs to a change that was not made yet.

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
    /// A setting of the kernel's was written.
    FileWritten {
        /// The file.
        path: PathBuf,
        /// What it held before.
        former: String,
        /// What was written.
        new: String,
    },
    /// A directory of our own was made; it goes with all that is in it.
    DirectoryCreated {
        /// The directory.
        path: PathBuf,
    },
    /// A CPU set (cgroup) was made.
    CpusetCreated {
        /// Its directory.
        path: PathBuf,
        /// What becomes of the tasks in it.
        tasks: TasksOnUndo,
    },
    /// The cpuset controller was enabled for the children of a cgroup (version 2).
    ControllerEnabled {
        /// The file `cgroup.subtree_control`.
        path: PathBuf,
    },
    /// Tasks that had CPUs of their own were about to be moved, which not every kernel remembers for them. Stands
    /// before the set that they move to, so that they are back from it when this is undone.
    AffinitiesNoted {
        /// Each task with the CPUs that it may use.
        tasks: Vec<TaskAffinity>,
    },
    /// A group of the kernel's was made (resctrl); what was in it goes back to the group above when it is removed.
    GroupCreated {
        /// Its directory.
        path: PathBuf,
    },
    /// Tasks were given to a group, by the file that lists its tasks (resctrl).
    TasksMoved {
        /// Each task with the file that it was listed in.
        tasks: Vec<TaskPlace>,
        /// The file that they were written to.
        to: PathBuf,
    },
    /// Tasks were given other CPUs.
    AffinitiesSet {
        /// Each task with the CPUs that it had and those that it was given.
        tasks: Vec<TaskChange>,
    },
    /// A network namespace with a name was made (ip-netns(8)); what is in it goes with it.
    NamespaceCreated {
        /// The file that keeps it: `/run/netns/NAME`.
        path: PathBuf,
    },
    /// A process was started.
    ProcessStarted {
        /// Which.
        process: ProcessId,
        /// What it is.
        command: String,
    },
}

/// The CPUs that one task may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskAffinity {
    /// The task: a thread's number with its own start time.
    pub task: ProcessId,
    /// Its CPUs (`Cpus_allowed_list`).
    pub cpus: CpuList,
}

/// The CPUs that one task had and those that it was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskChange {
    /// The task.
    pub task: ProcessId,
    /// Its CPUs before.
    pub former: CpuList,
    /// Its CPUs now.
    pub new: CpuList,
}

/// The group that one task was in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskPlace {
    /// The task.
    pub task: ProcessId,
    /// The file `tasks` of its group.
    pub former: PathBuf,
}

/// What becomes of the tasks in a CPU set when it is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TasksOnUndo {
    /// They go to the CPU set above.
    Return,
    /// They are ended: they were started there.
    Kill,
}

/// What came of undoing one change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "outcome", content = "why")]
pub enum Undone {
    /// It is as it was before.
    Restored,
    /// There was nothing to undo.
    AlreadyGone,
    /// Something else changed it since; left alone.
    ChangedSince(String),
    /// It could not be undone.
    Failed(String),
}

/// An open journal.
pub struct Journal {
    file: File,
    path: PathBuf,
    watcher: Option<Watcher>,
}

/// Is called before a change is written down and after, which is before it is made.
pub type Watcher = Box<dyn FnMut() + Send>;

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

impl Journal {
    /// Makes a journal, or goes on with the one that is there; only its owner may read it.
    ///
    /// # Errors
    /// What the system said.
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

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Has someone called at every change: to end there, and to see that all is undone from there.
    pub fn watch(&mut self, watcher: Watcher) {
        self.watcher = Some(watcher);
    }

    fn tell(&mut self) {
        if let Some(watcher) = &mut self.watcher {
            watcher();
        }
    }

    /// Writes a change down, to the disk. To be called before the change is made.
    ///
    /// # Errors
    /// What the system said; the change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.tell();
        self.file.write_all(&line)?;
        self.file.sync_data()?;
        self.tell();
        Ok(())
    }
}

/// The changes written in a journal, in order. A cut-off last line is left out: its change was not made.
///
/// # Errors
/// What the system said, or a line that is not one of a journal.
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
