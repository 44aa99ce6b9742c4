// SPDX-License-Identifier: Apache-2.0
//! Undoes the changes of a journal.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};
use quietwire_base::supervised::{Command, last_lines};
use quietwire_base::{Deadline, ProcessId};

use super::same::{is_on_the_way, same};
use super::{Change, DriverState, TaskAffinity, TaskChange, TaskPlace, UndoOutcome};
use crate::CpuList;
use crate::cpuset;
use crate::files::{Disk, Files};
use crate::pci_driver::{FUNCTIONS, FUNCTIONS_MAX, PciDevice, read_setting};
use crate::tasks;
use crate::threads;

/// Undoes changes, the last first. Continues after failures. Undoing twice is a no-op.
#[must_use]
pub fn undo(changes: &[Change]) -> Vec<(Change, UndoOutcome)> {
    undo_in(&Disk, changes, false)
}

/// Undoes changes like [`undo`], with the caller's file access. With `force`, also undoes values that another program has
/// changed since.
#[must_use]
pub fn undo_in(files: &dyn Files, changes: &[Change], force: bool) -> Vec<(Change, UndoOutcome)> {
    undo_until(files, changes, force, &AtomicBool::new(false))
}

/// Undoes changes like [`undo_in`], until `stop` is set. Checks `stop` before each change. The changes that are left have the outcome
/// [`UndoOutcome::NotTried`].
pub(crate) fn undo_until(
    files: &dyn Files,
    changes: &[Change],
    force: bool,
    stop: &AtomicBool,
) -> Vec<(Change, UndoOutcome)> {
    let undoing = UndoContext { files, force };
    let mut outcomes = Vec::new();
    for (index, change) in changes.iter().enumerate().rev() {
        let outcome = match change {
            // A file that was written several times is restored to its first text in one step.
            Change::FileWritten { path, .. }
                if changes
                    .iter()
                    .take(index)
                    .any(|earlier| is_of_file(earlier, path)) =>
            {
                continue;
            }
            // A damaged line is reported in any case, because the next journal does not contain it.
            Change::Unreadable { .. } => undoing.undo_change(change),
            _ if stop.load(Ordering::Relaxed) => {
                UndoOutcome::NotTried("the rollback was stopped before this change".to_owned())
            }
            Change::FileWritten { path, former, .. } => undoing.file(path, former, changes),
            _ => undoing.undo_change(change),
        };
        outcomes.push((change.clone(), outcome));
    }
    outcomes
}

fn is_of_file(change: &Change, file: &Path) -> bool {
    matches!(change, Change::FileWritten { path, .. } if path == file)
}

/// Timeout for a process to terminate after SIGTERM.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Settings for undoing changes.
struct UndoContext<'a> {
    files: &'a dyn Files,
    force: bool,
}

impl UndoContext<'_> {
    fn undo_change(&self, change: &Change) -> UndoOutcome {
        let outcome = match change {
            Change::FileWritten { path, former, .. } => {
                return self.file(path, former, std::slice::from_ref(change));
            }
            Change::DirectoryCreated { path } => fs::remove_dir_all(path),
            Change::GroupCreated { path } => self.files.remove_directory(path),
            Change::CpusetCreated { path, tasks } => cpuset::remove(self.files, path, *tasks),
            Change::ControllerEnabled { path } => match self.files.read(path) {
                Ok(enabled) if !cpuset::is_enabled(&enabled) => return UndoOutcome::AlreadyGone,
                Ok(_) => self.files.write(path, "-cpuset"),
                Err(error) => Err(error),
            },
            Change::NamespaceCreated { path } => remove_namespace(path),
            Change::ProcessStarted { process, .. } if !process.is_alive() => {
                return UndoOutcome::AlreadyGone;
            }
            Change::ProcessStarted { process, .. } => process.end(TIMEOUT).map(|_| ()),
            Change::DevicePrepared {
                restore,
                timeout_ms,
            } => return restore_device(restore, *timeout_ms),
            Change::DriverChanged {
                device,
                former,
                new,
            } => return self.driver(device, former, new),
            Change::AffinitiesNoted { tasks } => return undo_affinities(tasks),
            Change::AffinitiesSet { tasks } => return self.affinities(tasks),
            Change::TasksMoved { tasks, to } => return self.tasks(tasks, to),
            Change::NotCreated { .. } => return UndoOutcome::AlreadyGone,
            Change::Unreadable { .. } => {
                return UndoOutcome::Unreadable(
                    "its change is unknown and may still be in effect (undo it by hand)".to_owned(),
                );
            }
        };
        match outcome {
            Ok(()) => UndoOutcome::Restored,
            Err(error) if error.kind() == io::ErrorKind::NotFound => UndoOutcome::AlreadyGone,
            Err(error) => UndoOutcome::Failed(error.to_string()),
        }
    }

    /// Restores a file that contains one of the values written to it. After a kill, it may be any of them.
    fn file(&self, path: &Path, former: &str, changes: &[Change]) -> UndoOutcome {
        let now = match self.read(path) {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return UndoOutcome::AlreadyGone;
            }
            Err(error) => return UndoOutcome::Failed(error.to_string()),
        };
        if same(path, &now, former) {
            return UndoOutcome::AlreadyGone;
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
            // A rollback that was killed may have written them.
            if is_all_of_parent(self.files, path, former, &now) {
                return UndoOutcome::AlreadyGone;
            }
            let written: Vec<&str> = written.iter().map(|(_, new)| *new).collect();
            return UndoOutcome::ChangedSince(format!(
                "it contains '{}', but the written value is {written:?}",
                now.trim()
            ));
        }
        // Read back: the kernel may accept a value but apply only a part of it, for example if huge pages are in use.
        match self.write_back(path, &now, former) {
            Ok(now)
                if same(path, &now, former)
                    || is_all_of_parent(self.files, path, former, &now)
                    || is_surplus_only(self.files, path, former, now.trim()) =>
            {
                UndoOutcome::Restored
            }
            Ok(now) => UndoOutcome::Failed(format!(
                "'{}' was written back, but it contains '{}'",
                former.trim(),
                now.trim()
            )),
            Err(error) => UndoOutcome::Failed(error.to_string()),
        }
    }

    fn write_back(&self, path: &Path, now: &str, former: &str) -> io::Result<String> {
        if !path.ends_with(FUNCTIONS) {
            match self.files.write(path, former) {
                // The kernel does not empty the list of a group with processes (validate_change in kernel/cgroup/cpuset.c).
                Err(error) if error.kind() == io::ErrorKind::StorageFull => {
                    let all = parents_cpus(self.files, path, former).ok_or(error)?;
                    self.files.write(path, &all)?;
                }
                written => written?,
            }
            return self.read(path);
        }
        // A device accepts a new number of virtual functions only if it has none.
        if now.trim() != "0" && former.trim() != "0" {
            self.files.write_within(path, "0", FUNCTIONS_MAX)?;
        }
        self.files.write_within(path, former, FUNCTIONS_MAX)?;
        self.read(path)
    }

    fn read(&self, path: &Path) -> io::Result<String> {
        read_setting(self.files, path, FUNCTIONS_MAX)
    }

    /// Binds a PCI device to its former driver, unless another program has bound it to a third one. Devices that no longer exist, such as
    /// removed virtual functions, require nothing.
    fn driver(&self, path: &Path, former: &DriverState, new: &str) -> UndoOutcome {
        let device = PciDevice::new(self.files, path);
        let now = match device.state() {
            Ok(now) => now,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return UndoOutcome::AlreadyGone;
            }
            Err(error) => return UndoOutcome::Failed(error.to_string()),
        };
        if now == *former {
            return UndoOutcome::AlreadyGone;
        }
        if !self.force && !now.is_between(former, &DriverState::forced(new)) {
            return UndoOutcome::ChangedSince(format!(
                "it has {now}, but was bound to the driver {new}"
            ));
        }
        match device.change(former) {
            Ok(()) => UndoOutcome::Restored,
            Err(error) => UndoOutcome::Failed(error.to_string()),
        }
    }

    /// Restores the CPUs of tasks, unless another program has changed them since.
    fn affinities(&self, tasks: &[TaskChange]) -> UndoOutcome {
        let mut came = UndoSummary::default();
        for change in tasks {
            let TaskChange { task, former, new } = change;
            let now = threads::allowed_cpus(Path::new("/"), task.pid);
            let Some(now) = now.filter(|now| task.is_alive() && now != former) else {
                continue;
            };
            // A CPU set may restrict the task to a part of its new CPUs.
            if !self.force && !now.difference(new).is_empty() {
                let text = format!(
                    "task {} has CPUs {now}, but was moved to CPUs {new}",
                    task.pid
                );
                came.changed.push(text);
                continue;
            }
            came.restore_cpus(task, former);
        }
        came.outcome()
    }

    /// Moves a task back to its group. If the group no longer exists, the task moves to the parent group, as its other tasks did.
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

    /// Moves tasks back to their original groups. Tasks in a third group were moved by another program since.
    fn tasks(&self, tasks: &[TaskPlace], to: &Path) -> UndoOutcome {
        let listed = |file: &Path, pid: i32| match self.files.read(file) {
            Ok(text) => Ok(text.lines().any(|line| line.trim().parse() == Ok(pid))),
            // The group no longer exists, so its tasks are in the parent group.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        };
        let mut came = UndoSummary::default();
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

/// Longest time for a command that restores a device. A damaged or old journal may contain any number.
const RESTORE_MAX: Duration = Duration::from_secs(3600);

/// Runs the command that restores a device.
fn restore_device(words: &[String], timeout_ms: u64) -> UndoOutcome {
    let timeout = Duration::from_millis(timeout_ms).min(RESTORE_MAX);
    let line = words.join(" ");
    let finished = match Command::of(words).run(Deadline::after(timeout)) {
        Ok(finished) => finished,
        Err(error) => return UndoOutcome::Failed(format!("`{line}` cannot be run: {error}")),
    };
    let what = match finished.status {
        Some(status) if status.success() => return UndoOutcome::Restored,
        Some(status) => format!("failed with {status}"),
        None => format!(
            "did not end within {} s and was killed",
            timeout.as_secs_f64()
        ),
    };
    let printed = last_lines(&finished.printed());
    UndoOutcome::Failed(format!("`{line}` {what}. Its last output:\n{printed}"))
}

/// Removes the name of a network namespace. The kernel removes the namespace with its last process.
fn remove_namespace(path: &Path) -> io::Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        // A file without a mount: its creator was killed before mounting.
        Ok(()) | Err(Errno::EINVAL | Errno::ENOENT) => fs::remove_file(path),
        Err(error) => Err(error.into()),
    }
}

/// Results of undoing a change of several tasks.
#[derive(Default)]
struct UndoSummary {
    restored: usize,
    changed: Vec<String>,
    failures: Vec<String>,
}

impl UndoSummary {
    fn tried(&mut self, task: &ProcessId, outcome: io::Result<()>) {
        match outcome {
            Ok(()) => self.restored = self.restored.saturating_add(1),
            // The task has ended.
            Err(_) if !task.is_alive() => {}
            Err(error) => self.failures.push(format!("task {}: {error}", task.pid)),
        }
    }

    /// Restores the CPUs of a task. The kernel starts a worker of a work queue first and binds it then (kernel/workqueue.c). A
    /// worker that was moved in between refuses its former CPUs: from then on the kernel alone chooses them.
    fn restore_cpus(&mut self, task: &ProcessId, cpus: &CpuList) {
        match threads::set_affinity(task.pid, cpus) {
            Err(_) if tasks::is_bound(task.pid) => {}
            outcome => self.tried(task, outcome),
        }
    }

    fn outcome(self) -> UndoOutcome {
        if !self.failures.is_empty() {
            UndoOutcome::Failed(self.failures.join("; "))
        } else if !self.changed.is_empty() {
            UndoOutcome::ChangedSince(self.changed.join("; "))
        } else if self.restored == 0 {
            UndoOutcome::AlreadyGone
        } else {
            UndoOutcome::Restored
        }
    }
}

/// Restores the CPUs of tasks. Tasks that have ended or already have their CPUs need no change.
fn undo_affinities(tasks: &[TaskAffinity]) -> UndoOutcome {
    let mut came = UndoSummary::default();
    for TaskAffinity { task, cpus } in tasks {
        let now = threads::allowed_cpus(Path::new("/"), task.pid);
        if task.is_alive() && now.as_ref() != Some(cpus) {
            came.restore_cpus(task, cpus);
        }
    }
    came.outcome()
}

/// Returns the CPUs of the parent of a group of cgroup version 2 whose list, the file at `path`, was empty: an empty list means all of them.
fn parents_cpus(files: &dyn Files, path: &Path, former: &str) -> Option<String> {
    if !path.ends_with("cpuset.cpus") || !former.trim().is_empty() {
        return None;
    }
    let parent = path.parent()?.parent()?;
    files.read(&parent.join("cpuset.cpus.effective")).ok()
}

/// Returns whether a group whose list was empty has all CPUs of its parent.
fn is_all_of_parent(files: &dyn Files, path: &Path, former: &str, now: &str) -> bool {
    parents_cpus(files, path, former).is_some_and(|all| same(path, now, &all))
}

/// Returns whether a pool of huge pages has reached its smaller size except for pages in use: the kernel counts those as
/// surplus and frees each when its process releases it (Documentation/admin-guide/mm/hugetlbpage.rst).
fn is_surplus_only(files: &dyn Files, path: &Path, former: &str, now: &str) -> bool {
    let surplus = files.read(&path.with_file_name("surplus_hugepages"));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (Ok(surplus), Some(former), Some(now)) = (surplus, number(former), number(now)) else {
        return false;
    };
    number(&surplus).is_some_and(|surplus| now.checked_sub(surplus) == Some(former))
}
