// SPDX-License-Identifier: Apache-2.0
//! Undoing what a journal tells.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use quietwire_base::ProcessId;

use super::same::{is_on_the_way, same};
use super::{Change, TaskAffinity, TaskChange, TaskPlace, Undone};
use crate::cpuset;
use crate::files::{Disk, Files};
use crate::threads;

/// Undoes changes, the last first. Goes on past failures; harmless when done twice.
#[must_use]
pub fn undo(changes: &[Change]) -> Vec<(Change, Undone)> {
    undo_in(&Disk, changes, false)
}

/// As [`undo`], in files of the caller's; with `force` also where something else changed a value since.
#[must_use]
pub fn undo_in(files: &dyn Files, changes: &[Change], force: bool) -> Vec<(Change, Undone)> {
    let undoing = Undoing { files, force };
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
                undoing.file(path, former, changes)
            }
            _ => undoing.one(change),
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

/// How changes are undone.
struct Undoing<'a> {
    files: &'a dyn Files,
    force: bool,
}

impl Undoing<'_> {
    fn one(&self, change: &Change) -> Undone {
        let outcome = match change {
            Change::FileWritten { path, former, .. } => {
                return self.file(path, former, std::slice::from_ref(change));
            }
            Change::DirectoryCreated { path } => fs::remove_dir_all(path),
            Change::GroupCreated { path } => self.files.remove_directory(path),
            Change::CpusetCreated { path, tasks } => cpuset::remove(path, *tasks),
            Change::ControllerEnabled { path } => match fs::read_to_string(path) {
                Ok(enabled) if !enabled.split_whitespace().any(|name| name == "cpuset") => {
                    return Undone::AlreadyGone;
                }
                Ok(_) => fs::write(path, "-cpuset"),
                Err(error) => Err(error),
            },
            Change::NamespaceCreated { path } => remove_namespace(path),
            Change::ProcessStarted { process, .. } if !process.is_alive() => {
                return Undone::AlreadyGone;
            }
            Change::ProcessStarted { process, .. } => process.end(PATIENCE).map(|_| ()),
            Change::AffinitiesNoted { tasks } => return undo_affinities(tasks),
            Change::AffinitiesSet { tasks } => return self.affinities(tasks),
            Change::TasksMoved { tasks, to } => return self.tasks(tasks, to),
        };
        match outcome {
            Ok(()) => Undone::Restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Undone::AlreadyGone,
            Err(error) => Undone::Failed(error.to_string()),
        }
    }

    /// Restores a file that holds one of the values written to it, which is any of them when a kill came between.
    fn file(&self, path: &Path, former: &str, changes: &[Change]) -> Undone {
        let now = match self.files.read(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Undone::AlreadyGone,
            Err(error) => return Undone::Failed(error.to_string()),
        };
        if same(path, &now, former) {
            return Undone::AlreadyGone;
        }
        let written: Vec<(&str, &str)> = changes
            .iter()
            .filter_map(|change| match change {
                Change::FileWritten {
                    path: file,
                    former,
                    new,
                } if file == path => Some((former.trim(), new.trim())),
                _ => None,
            })
            .collect();
        let is_ours = |(former, new): &(&str, &str)| {
            same(path, &now, new) || is_on_the_way(path, &now, former, new)
        };
        if !self.force && !written.iter().any(is_ours) {
            let written: Vec<&str> = written.iter().map(|(_, new)| *new).collect();
            return Undone::ChangedSince(format!(
                "it holds '{}', and what was written is {written:?}",
                now.trim()
            ));
        }
        // Read back: the kernel takes some values and makes less of them, huge pages in use for one.
        match self.write_back(path, &now, former) {
            Ok(now) if same(path, &now, former) || is_surplus_only(path, former, now.trim()) => {
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

    fn write_back(&self, path: &Path, now: &str, former: &str) -> io::Result<String> {
        // A device takes another number of functions only when it has none.
        if path.ends_with("sriov_numvfs") && now.trim() != "0" && former.trim() != "0" {
            self.files.write(path, "0")?;
        }
        self.files.write(path, former)?;
        self.files.read(path)
    }

    /// Gives tasks the CPUs back that they had, unless somebody gave them others since.
    fn affinities(&self, tasks: &[TaskChange]) -> Undone {
        let mut came = Came::default();
        for change in tasks {
            let TaskChange { task, former, new } = change;
            let now = threads::allowed_cpus(Path::new("/"), task.pid);
            let Some(now) = now.filter(|now| task.is_alive() && now != former) else {
                continue;
            };
            // A CPU set may hold it to some of those that it was given.
            if !self.force && !now.difference(new).is_empty() {
                let text = format!("task {} has CPUs {now}, and was given {new}", task.pid);
                came.changed.push(text);
                continue;
            }
            came.tried(task, threads::set_affinity(task.pid, former));
        }
        came.outcome()
    }

    /// Where the group is gone, its tasks went to the one above, and so does this one.
    fn give_back(&self, task: &ProcessId, former: &Path) -> io::Result<()> {
        let line = format!("{}\n", task.pid);
        let above = former.parent().and_then(Path::parent);
        match (self.files.write(former, &line), above) {
            (Err(error), Some(above)) if error.kind() == io::ErrorKind::NotFound => {
                self.files.write(&above.join("tasks"), &line)
            }
            (written, _) => written,
        }
    }

    /// Gives tasks back to the groups that they were in. Those that are in neither were moved by somebody else since.
    fn tasks(&self, tasks: &[TaskPlace], to: &Path) -> Undone {
        let listed = |file: &Path, pid: i32| match self.files.read(file) {
            Ok(text) => Ok(text.lines().any(|line| line.trim().parse() == Ok(pid))),
            // The group went, and its tasks went to the one above.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let mut came = Came::default();
        for place in tasks.iter().filter(|place| place.task.is_alive()) {
            let TaskPlace { task, former } = place;
            let is_back = listed(former, task.pid);
            let is_ours = listed(to, task.pid);
            match (is_ours, is_back) {
                (Ok(false), Ok(true)) => {}
                (Ok(false), Ok(false)) if !self.force => {
                    let text = format!("task {} is in another group", task.pid);
                    came.changed.push(text);
                }
                (Ok(_), Ok(_)) => came.tried(task, self.give_back(task, former)),
                (Err(error), _) | (_, Err(error)) => came.failures.push(error.to_string()),
            }
        }
        came.outcome()
    }
}

/// Takes a network namespace's name away: the kernel ends the namespace with the last process in it.
fn remove_namespace(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // A file that is no mount: what made it was killed between.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

/// What came of undoing something for many tasks.
#[derive(Default)]
struct Came {
    restored: usize,
    changed: Vec<String>,
    failures: Vec<String>,
}

impl Came {
    fn tried(&mut self, task: &ProcessId, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.restored += 1,
            // It ended meanwhile.
            Err(_) if !task.is_alive() => {}
            Err(error) => self.failures.push(format!("task {}: {error}", task.pid)),
        }
    }

    fn outcome(self) -> Undone {
        if !self.failures.is_empty() {
            Undone::Failed(self.failures.join("; "))
        } else if !self.changed.is_empty() {
            Undone::ChangedSince(self.changed.join("; "))
        } else if self.restored == 0 {
            Undone::AlreadyGone
        } else {
            Undone::Restored
        }
    }
}

/// Gives tasks the CPUs back that they had. Those that have ended, or have them, are done already.
fn undo_affinities(tasks: &[TaskAffinity]) -> Undone {
    let mut came = Came::default();
    for TaskAffinity { task, cpus } in tasks {
        let now = threads::allowed_cpus(Path::new("/"), task.pid);
        if task.is_alive() && now.as_ref() != Some(cpus) {
            came.tried(task, threads::set_affinity(task.pid, cpus));
        }
    }
    came.outcome()
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
