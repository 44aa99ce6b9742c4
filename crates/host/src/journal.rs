// SPDX-License-Identifier: Apache-2.0
//! What was changed, written down before it is changed, so that it can be undone to exactly what was there:
//! also by another process, after this one was killed.
//!
//! One JSON object a line. A line that was cut off belongs to a change that was not made yet.

#[cfg(test)]
mod tests;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::cpuset;
use crate::process::ProcessId;
use crate::threads;

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
#[derive(Debug)]
pub struct Journal {
    file: File,
    path: PathBuf,
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
        })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a change down, to the disk. To be called before the change is made.
    ///
    /// # Errors
    /// What the system said; the change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        let mut line = serde_json::to_vec(change)?;
        line.push(b'\n');
        self.file.write_all(&line)?;
        self.file.sync_data()
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

/// Undoes changes, the last first. Goes on past failures; harmless when done twice.
#[must_use]
pub fn undo(changes: &[Change]) -> Vec<(Change, Undone)> {
    let mut outcomes = Vec::new();
    for (index, change) in changes.iter().enumerate().rev() {
        let outcome = match change {
            Change::FileWritten { path, former, .. } => {
                // A file that was written several times goes back to what it held first, in one step.
                if changes[..index]
                    .iter()
                    .any(|earlier| is_of_file(earlier, path))
                {
                    continue;
                }
                undo_file(path, former, changes)
            }
            _ => undo_one(change),
        };
        outcomes.push((change.clone(), outcome));
    }
    outcomes
}

fn is_of_file(change: &Change, file: &Path) -> bool {
    matches!(change, Change::FileWritten { path, .. } if path == file)
}

/// How long a process may take to end when asked.
const PATIENCE: Duration = Duration::from_secs(5);

fn undo_one(change: &Change) -> Undone {
    let outcome = match change {
        Change::FileWritten { path, former, .. } => {
            return undo_file(path, former, std::slice::from_ref(change));
        }
        Change::DirectoryCreated { path } => fs::remove_dir_all(path),
        Change::CpusetCreated { path, tasks } => cpuset::remove(path, *tasks),
        Change::ControllerEnabled { path } => match fs::read_to_string(path) {
            Ok(enabled) if !enabled.split_whitespace().any(|name| name == "cpuset") => {
                return Undone::AlreadyGone;
            }
            Ok(_) => fs::write(path, "-cpuset"),
            Err(error) => Err(error),
        },
        Change::ProcessStarted { process, .. } if !process.is_alive() => {
            return Undone::AlreadyGone;
        }
        Change::ProcessStarted { process, .. } => process.end(PATIENCE).map(|_| ()),
        Change::AffinitiesNoted { tasks } => return undo_affinities(tasks),
    };
    match outcome {
        Ok(()) => Undone::Restored,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Undone::AlreadyGone,
        Err(error) => Undone::Failed(error.to_string()),
    }
}

/// Gives tasks the CPUs back that they had. Those that have ended, or have them, are done already.
fn undo_affinities(tasks: &[TaskAffinity]) -> Undone {
    let (mut restored, mut failures) = (0, Vec::new());
    for TaskAffinity { task, cpus } in tasks {
        let now = threads::allowed_cpus(Path::new("/"), task.pid);
        if !task.is_alive() || now.as_ref() == Some(cpus) {
            continue;
        }
        match threads::set_affinity(task.pid, cpus) {
            Ok(()) => restored += 1,
            // It ended meanwhile.
            Err(_) if !task.is_alive() => {}
            Err(error) => failures.push(format!("task {} to CPUs {cpus}: {error}", task.pid)),
        }
    }
    match (failures.is_empty(), restored) {
        (false, _) => Undone::Failed(failures.join("; ")),
        (true, 0) => Undone::AlreadyGone,
        (true, _) => Undone::Restored,
    }
}

/// True for a pool of huge pages that was made smaller and counts pages still in use beyond its size: the kernel calls
/// those surplus, and frees each when its process lets go of it (Documentation/admin-guide/mm/hugetlbpage.rst).
fn is_surplus_only(path: &Path, former: &str, now: &str) -> bool {
    let surplus = fs::read_to_string(path.with_file_name("surplus_hugepages"));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (Ok(surplus), Some(former), Some(now)) = (surplus, number(former), number(now)) else {
        return false;
    };
    number(&surplus).is_some_and(|surplus| now.checked_sub(surplus) == Some(former))
}

/// Restores a file that holds one of the values written to it, which is any of them when a kill came between.
fn undo_file(path: &Path, former: &str, changes: &[Change]) -> Undone {
    let now = match fs::read_to_string(path) {
        Ok(now) => now,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Undone::AlreadyGone,
        Err(error) => return Undone::Failed(error.to_string()),
    };
    if now.trim() == former.trim() {
        return Undone::AlreadyGone;
    }
    let written = changes.iter().filter_map(|change| match change {
        Change::FileWritten {
            path: file, new, ..
        } if file == path => Some(new.trim()),
        _ => None,
    });
    if !written.clone().any(|new| new == now.trim()) {
        let written: Vec<&str> = written.collect();
        return Undone::ChangedSince(format!(
            "it holds '{}', and what was written is {written:?}",
            now.trim()
        ));
    }
    // Read back: the kernel takes some values and makes less of them, huge pages in use for one.
    match fs::write(path, former).and_then(|()| fs::read_to_string(path)) {
        Ok(now) if now.trim() == former.trim() || is_surplus_only(path, former, now.trim()) => {
            Undone::Restored
        }
        Ok(now) => Undone::Failed(format!(
            "'{}' was written back, and it holds '{}'",
            former.trim(),
            now.trim()
        )),
        Err(error) => Undone::Failed(error.to_string()),
    }
}
