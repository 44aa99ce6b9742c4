// SPDX-License-Identifier: Apache-2.0
//! A partition that is applied for the time of a measurement, and rolled back after it, also by another process if the one that applied it
//! was killed.

use std::ffi::OsStr;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::durable::remove_if_exists;
use quietwire_base::{Deadline, LockError, LockFile};
use quietwire_host::apply::{self, Outcome, STATE_DIRECTORY, Target};
use quietwire_host::cpuset::{Cpuset, Cpusets};
use quietwire_host::files::Disk;
use quietwire_host::journal::{Change, UndoOutcome};
use quietwire_host::partition::Plan;
use quietwire_host::resctrl::Resctrl;

use super::classes::{NEIGHBOURS, OTHERS};
use crate::error::{LabError, io_error};
use crate::state_directory::{judge, make_directory};

/// Held while a partition of a lab is applied: a machine has one.
const LOCK: &str = "lab.lock";
/// Names the marker of the case that the partition is applied for, until it is rolled back.
const NOTE: &str = "lab.partition";
/// The set of a partition in which the data plane is.
const DATA_PLANE: &str = "quietwire-data-plane";
/// Wait for a partition of another lab, which lasts as long as one of its cases.
const TIMEOUT: Duration = Duration::from_secs(120);

/// Returns the running machine.
pub(crate) fn running_machine() -> Target<'static> {
    Target {
        files: &Disk,
        storage: &Disk,
        root: PathBuf::from("/"),
        state_directory: PathBuf::from(STATE_DIRECTORY),
    }
}

/// A partition that is applied.
#[derive(Debug)]
#[must_use = "the partition stays applied until it is rolled back"]
pub struct Applied {
    /// Every setting with its old and new value, for the record.
    pub settings: Vec<String>,
    /// The CPU set of the data plane; `None` if the partition has none.
    pub device_set: Option<Cpuset>,
    /// The file that lists neighbours' tasks in their class of service; `None` without a class.
    pub neighbours_tasks: Option<PathBuf>,
    marker: PathBuf,
    // Released last.
    _lock: LockFile,
}

impl Applied {
    /// Applies a plan. `marker` is a file that exists until the partition is rolled back, for [`take_back_left`].
    ///
    /// # Errors
    /// [`LabError::Busy`] if another lab keeps one beyond the timeout, [`LabError::Partitioned`] if the machine's owner applied one,
    /// [`LabError::Isolation`] for a failure; all changes are undone then.
    pub(crate) fn apply(target: &Target<'_>, plan: &Plan, marker: &Path) -> Result<Self, LabError> {
        make_directory(target.storage, &target.state_directory)?;
        let path = target.state_directory.join(LOCK);
        let lock = LockFile::acquire(&path, Deadline::after(TIMEOUT)).map_err(other_partition)?;
        if noted(target)?.is_some() {
            // The process that wrote the note was killed.
            take_back(target)?;
            remove(&note_path(target))?;
        }
        if apply::status(target)?.is_applied() {
            return Err(LabError::Partitioned);
        }
        fs::write(marker, "").map_err(io_error(marker, "noting the partition"))?;
        let note = note_path(target);
        fs::write(&note, marker.as_os_str().as_bytes())
            .map_err(io_error(&note, "noting the partition"))?;
        let mut applied = Self {
            settings: Vec::new(),
            device_set: None,
            neighbours_tasks: None,
            marker: marker.to_owned(),
            _lock: lock,
        };
        match applied.apply_plan(target, plan) {
            Ok(()) => Ok(applied),
            Err(error) => {
                if let Err(second) = applied.take_back(target) {
                    tracing::error!("{second}");
                }
                Err(error)
            }
        }
    }

    /// Checks whether the machine's owner has applied a partition, which no case may change; the leftovers of a killed lab do not count.
    ///
    /// # Errors
    /// [`LabError::Partitioned`].
    pub fn check_free() -> Result<(), LabError> {
        let target = running_machine();
        if noted(&target)?.is_some() || !apply::status(&target)?.is_applied() {
            return Ok(());
        }
        Err(LabError::Partitioned)
    }

    /// Checks whether another lab has applied a partition, which lasts until its case ends.
    ///
    /// # Errors
    /// [`LabError::OtherPartition`].
    pub(crate) fn check_no_other() -> Result<(), LabError> {
        let path = running_machine().state_directory.join(LOCK);
        match LockFile::holder(&path)? {
            Some(owner) => Err(LabError::OtherPartition { owner }),
            None => Ok(()),
        }
    }

    fn apply_plan(&mut self, target: &Target<'_>, plan: &Plan) -> Result<(), LabError> {
        let report = apply::apply(target, plan, None)?;
        let mut failed = Vec::new();
        for one in &report.applied {
            let difference = &one.difference;
            let text = format!(
                "{}: {} -> {}",
                difference.place.display(),
                difference.now,
                difference.wanted
            );
            match &one.outcome {
                Outcome::Done => self.settings.push(text),
                Outcome::Partly { what } => self.settings.push(format!("{text}; in part: {what}")),
                Outcome::Fixed { reason } => self
                    .settings
                    .push(format!("{text}; fixed by the kernel: {reason}")),
                Outcome::Failed { reason } => failed.push(format!("{text}: {reason}")),
            }
        }
        if !failed.is_empty() {
            return Err(LabError::Isolation(failed.join("; ")));
        }
        if let Ok(sets) = Cpusets::find(&target.root) {
            let path = sets.mount.join(DATA_PLANE);
            let is_directory = target.files.is_directory(&path);
            let is_there = is_directory.map_err(io_error(&path, "checking the CPU set"))?;
            self.device_set = is_there.then_some(Cpuset { path });
        }
        let has_class = |name: &&str| plan.classes.iter().any(|class| class.name == *name);
        let class = [NEIGHBOURS, OTHERS].into_iter().find(has_class);
        let resctrl = Resctrl::find(target.files, &target.root);
        self.neighbours_tasks = class
            .zip(resctrl)
            .map(|(name, resctrl)| resctrl.group(name).join("tasks"));
        Ok(())
    }

    /// Rolls the partition back: all settings get their earlier values, even if another program has changed them since.
    ///
    /// # Errors
    /// [`LabError::Undo`] with the changes that could not be undone; `lab clean` tries again.
    pub(crate) fn take_back(self, target: &Target<'_>) -> Result<(), LabError> {
        judge(take_back(target)?)?;
        remove(&note_path(target))?;
        remove(&self.marker)
    }
}

/// Rolls back the partition of a killed lab, by the marker that it left. If another lab has done that already, the call does nothing.
///
/// # Errors
/// A file that cannot be read, or a lock that cannot be acquired.
pub(crate) fn take_back_left(
    target: &Target<'_>,
    marker: &Path,
) -> Result<Vec<(Change, UndoOutcome)>, LabError> {
    let mut undone = Vec::new();
    let path = target.state_directory.join(LOCK);
    let lock = match LockFile::try_acquire(&path) {
        Ok(lock) => Some(lock),
        // A reboot has undone the partition.
        Err(LockError::Io { cause, .. }) if cause.kind() == ErrorKind::NotFound => None,
        // The next lab has undone it, or undoes it now.
        Err(LockError::Busy { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    if lock.is_some() && noted(target)?.as_deref() == Some(marker) {
        undone = take_back(target)?;
        if undone
            .iter()
            .any(|(_, outcome)| matches!(outcome, UndoOutcome::Failed(_)))
        {
            return Ok(undone);
        }
        remove(&note_path(target))?;
    }
    remove(marker)?;
    Ok(undone)
}

fn take_back(target: &Target<'_>) -> Result<Vec<(Change, UndoOutcome)>, LabError> {
    Ok(apply::roll_back(target, true)?)
}

fn remove(marker: &Path) -> Result<(), LabError> {
    remove_if_exists(marker).map_err(io_error(marker, "removing the record of the partition"))
}

fn note_path(target: &Target<'_>) -> PathBuf {
    target.state_directory.join(NOTE)
}

/// Returns the marker of the case that a partition is, or was, applied for.
fn noted(target: &Target<'_>) -> Result<Option<PathBuf>, LabError> {
    let path = note_path(target);
    match fs::read(&path) {
        Ok(marker) => Ok(Some(PathBuf::from(OsStr::from_bytes(&marker)))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(io_error(&path, "reading the record of the partition")(
            error,
        )),
    }
}

fn other_partition(error: LockError) -> LabError {
    match error {
        LockError::Busy { owner, .. } => LabError::OtherPartition { owner },
        error => error.into(),
    }
}
