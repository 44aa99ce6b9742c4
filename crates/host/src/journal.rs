// SPDX-License-Identifier: Apache-2.0
//! Journal of changes. Each change is recorded before it is made, so any process can restore the original state, even after
//! this one was killed.
//!
//! One line per change, with a checksum. A truncated last line belongs to a change that was not made. A damaged line is reported, and its
//! change is not undone; all others are.

#[cfg(test)]
mod damage_tests;
mod describe;
mod effect;
mod line;
pub(crate) mod same;
#[cfg(test)]
mod tests;
mod undo;

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::ProcessId;
use quietwire_base::durable::{self, directory_of};
use quietwire_base::storage::{Disk, OpenFile, Opening, Storage};
use serde::{Deserialize, Serialize};

use crate::CpuList;
use crate::files::named;

pub use crate::pci_driver::DriverState;
pub(crate) use effect::split_by_effect;
pub(crate) use undo::undo_until;
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
    /// A directory of an earlier line was not created: another program had created it meanwhile, so it is not removed. Readers of a
    /// journal see neither this line nor the lines that it cancels.
    NotCreated {
        /// The directory.
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
    /// A device that quietwire does not start is prepared by a command of its owner. Undoing runs the command that restores it.
    DevicePrepared {
        /// Words of the command that restores the device. The first is the program.
        restore: Vec<String>,
        /// Time that this command has, milliseconds. It is killed then.
        timeout_ms: u64,
    },
    /// A PCI device was bound to another driver by `driver_override`.
    DriverChanged {
        /// Its directory: `/sys/bus/pci/devices/ADDRESS`.
        device: PathBuf,
        /// Its original driver.
        former: DriverState,
        /// Its new driver.
        new: String,
    },
    /// Not a change, but a damaged line of the journal. Its change cannot be undone.
    Unreadable {
        /// Number of the line, from 1.
        line: usize,
        /// Its text, shortened.
        text: String,
    },
}

impl Change {
    /// Returns the directory that the change creates, if it may be there already.
    fn created(&self) -> Option<&Path> {
        match self {
            Self::CpusetCreated { path, .. } | Self::GroupCreated { path } => Some(path),
            _ => None,
        }
    }
}

impl line::Content for Change {
    fn damaged(line: usize, text: String) -> Self {
        Self::Unreadable { line, text }
    }
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
    /// The change is unknown, because its line of the journal is damaged.
    Unreadable(String),
    /// The rollback was stopped before this change.
    NotTried(String),
}

impl UndoOutcome {
    /// Returns the reason why the change may still be in effect.
    pub(crate) fn reason_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Restored | Self::AlreadyGone => None,
            Self::ChangedSince(reason)
            | Self::Failed(reason)
            | Self::Unreadable(reason)
            | Self::NotTried(reason) => Some(reason),
        }
    }

    /// Returns whether the change may still be in effect.
    #[must_use]
    pub fn is_left(&self) -> bool {
        match self {
            Self::Restored | Self::AlreadyGone => false,
            Self::ChangedSince(_) | Self::Failed(_) | Self::Unreadable(_) | Self::NotTried(_) => {
                true
            }
        }
    }
}

/// An open journal.
pub struct Journal {
    file: Box<dyn OpenFile>,
    /// Whether the file may end with a part of a line that could not be removed.
    is_broken: bool,
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
    /// Creates a journal, or opens an existing one to append to it. Removes an incomplete last line. Only its owner may read it.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_in(&Disk, path)
    }

    /// Creates or opens a journal like [`Self::open`], with the caller's storage.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn open_in(storage: &dyn Storage, path: &Path) -> io::Result<Self> {
        let text = match contents(storage, path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            read => read?,
        };
        let mut file = storage.open(path, Opening::Append, 0o600)?;
        let parsed = line::parse::<Change>(&text);
        if parsed.whole < text.len() {
            file.truncate(parsed.whole as u64)?;
        }
        if parsed.lacks_newline {
            file.append(b"\n")?;
        }
        file.sync()?;
        storage.sync_directory(directory_of(path))?;
        Ok(Self::on(file, path))
    }

    fn on(file: Box<dyn OpenFile>, path: &Path) -> Self {
        Self {
            file,
            is_broken: false,
            path: path.to_owned(),
            watcher: None,
        }
    }

    /// Returns the path of the journal.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the length of the journal, octets.
    ///
    /// # Errors
    /// Error of the operating system.
    pub(crate) fn length(&self) -> io::Result<u64> {
        self.file.length()
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

    /// Writes a change to the disk. Must be called before the change is made. If that fails, the journal is as before.
    ///
    /// # Errors
    /// Error of the operating system. The change must not be made then.
    pub fn record(&mut self, change: &Change) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other(format!(
                "{}: an earlier write to the journal failed and could not be undone, so no more changes are made",
                self.path.display()
            )));
        }
        let line = line::encode(change)?;
        self.notify();
        let former = self.file.length().map_err(named(&self.path))?;
        let written = self.file.append(&line);
        if let Err(error) = written.and_then(|()| self.file.sync()) {
            // A part of a line would make the next line unreadable.
            let removed = self.file.truncate(former);
            self.is_broken = removed.and_then(|()| self.file.sync()).is_err();
            return Err(named(&self.path)(error));
        }
        self.notify();
        Ok(())
    }

    /// Writes the creation of a directory to the disk, and creates it with `make`. If another program has created it since the caller found
    /// that it did not exist, cancels the line: the directory is not ours, and undoing must not remove it.
    ///
    /// # Errors
    /// Error of the operating system. [`io::ErrorKind::AlreadyExists`] for a directory of another program.
    pub(crate) fn create(
        &mut self,
        change: &Change,
        make: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        self.record(change)?;
        let made = make();
        if let (Err(error), Some(path)) = (&made, change.created())
            && error.kind() == io::ErrorKind::AlreadyExists
        {
            let path = path.to_owned();
            self.record(&Change::NotCreated { path }).map_err(|other| {
                let text = format!(
                    "{error} (another program has created it, and rolling back would remove it, because the journal cannot be changed: {other})"
                );
                io::Error::new(io::ErrorKind::AlreadyExists, text)
            })?;
        }
        made
    }
}

/// Leaves out creations that were cancelled. An earlier creation of the same directory has no effect either: the directory did not exist
/// when its creation was tried again.
fn without_not_created(changes: Vec<Change>) -> Vec<Change> {
    let mut kept: Vec<Change> = Vec::new();
    for change in changes {
        match change {
            Change::NotCreated { path } => kept.retain(|one| one.created() != Some(path.as_path())),
            change => kept.push(change),
        }
    }
    kept
}

/// Reads the changes of a journal, in order. Ignores a truncated last line, whose change was not made. A damaged line is returned as
/// [`Change::Unreadable`].
///
/// # Errors
/// Error of the operating system.
pub fn read(path: &Path) -> io::Result<Vec<Change>> {
    read_in(&Disk, path)
}

/// Reads the changes of a journal like [`read`], with the caller's storage.
///
/// # Errors
/// Error of the operating system.
pub fn read_in(storage: &dyn Storage, path: &Path) -> io::Result<Vec<Change>> {
    let changes = line::parse(&contents(storage, path)?).changes;
    Ok(without_not_created(changes))
}

/// Reads the changes of a journal like [`read_in`], as two lists: those that were recorded before it had `length` octets, and the later ones.
///
/// # Errors
/// Error of the operating system.
pub(crate) fn read_split_in(
    storage: &dyn Storage,
    path: &Path,
    length: u64,
) -> io::Result<(Vec<Change>, Vec<Change>)> {
    let text = contents(storage, path)?;
    let start = usize::try_from(length).unwrap_or(usize::MAX);
    let later = line::parse(text.get(start..).unwrap_or_default()).changes;
    let later = without_not_created(later);
    // A later line may cancel an earlier creation.
    let mut earlier = without_not_created(line::parse(&text).changes);
    earlier.truncate(earlier.len().saturating_sub(later.len()));
    Ok((earlier, later))
}

/// Octets of the largest journal that is read. A partition of 512 CPUs writes less than a hundredth of it.
const SIZE_MAX: u64 = 256 << 20;

/// Returns the octets of a journal. A device or a pipe could go on for ever.
fn contents(storage: &dyn Storage, path: &Path) -> io::Result<Vec<u8>> {
    let metadata = storage.metadata(path)?;
    let problem = if !metadata.is_file() {
        "is not a regular file"
    } else if metadata.len() > SIZE_MAX {
        "is too large for a journal"
    } else {
        return storage.read(path);
    };
    let what = format!("{} {problem} (remove it)", path.display());
    Err(io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Replaces the changes of a journal, in one step. Damaged lines are left out.
///
/// # Errors
/// Error of the operating system. The journal has its former changes then, or the new ones.
pub(crate) fn rewrite<'a>(
    storage: &dyn Storage,
    path: &Path,
    changes: impl IntoIterator<Item = &'a Change>,
) -> io::Result<()> {
    let mut text = Vec::new();
    for change in changes {
        if !matches!(change, Change::Unreadable { .. }) {
            text.extend(line::encode(change)?);
        }
    }
    durable::replace_in(storage, path, &text, 0o600)
}

/// Most journals with damaged lines that are kept beside each other.
const KEPT_MAX: u32 = 1000;

/// Keeps a journal with damaged lines under another name: `to`, or `to` with the first free number. The journal itself stays. Returns the
/// name.
///
/// # Errors
/// Error of the operating system.
pub fn keep_damaged(journal: &Path, to: &Path) -> io::Result<PathBuf> {
    keep_damaged_in(&Disk, journal, to)
}

/// Keeps a journal with damaged lines like [`keep_damaged`], with the caller's storage.
///
/// # Errors
/// Error of the operating system.
pub fn keep_damaged_in(storage: &dyn Storage, journal: &Path, to: &Path) -> io::Result<PathBuf> {
    let numbered = |number| PathBuf::from(format!("{}.{number}", to.display()));
    let names = std::iter::once(to.to_owned()).chain((2..KEPT_MAX).map(numbered));
    for name in names {
        // A link requires no space on a full disk.
        match storage.link(journal, &name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            linked => {
                linked.map_err(named(&name))?;
                storage.sync_directory(directory_of(&name))?;
                return Ok(name);
            }
        }
    }
    Err(io::Error::other(format!(
        "{}: too many damaged journals (remove them)",
        to.display()
    )))
}
