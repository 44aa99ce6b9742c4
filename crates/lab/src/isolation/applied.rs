// SPDX-License-Identifier: Apache-2.0
//! A partition that is applied for as long as something is measured, and taken back after it: also by another process, when
//! the one that applied it was killed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use quietwire_host::apply::{self, Outcome, STATE_DIRECTORY, Target};
use quietwire_host::cpuset::{Cpuset, Cpusets};
use quietwire_host::files::Disk;
use quietwire_host::journal::{Change, Undone};
use quietwire_host::partition::Plan;
use quietwire_host::resctrl::Resctrl;

use super::classes::{NEIGHBOURS, OTHERS};
use crate::error::{LabError, io_error};
use crate::state_directory::{judge, make_directory};

/// Held for as long as a partition of a lab's is applied: a machine has one. Holds the process and where its lab noted that,
/// until it is taken back.
const LOCK: &str = "lab.lock";
/// The set of a partition in which the data plane is (version 1).
const DATA_PLANE: &str = "quietwire-data-plane";
/// For a partition of another lab's, which is there for as long as one of its cases.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(20);

/// The running machine.
pub(crate) fn running_machine() -> Target<'static> {
    Target {
        files: &Disk,
        root: PathBuf::from("/"),
        state_directory: PathBuf::from(STATE_DIRECTORY),
    }
}

/// A partition that is applied.
#[derive(Debug)]
#[must_use = "it stays applied until it is taken back"]
pub struct Applied {
    /// Every setting with what it was and is, for the record.
    pub settings: Vec<String>,
    /// The CPU set that the data plane is to be in; none where the partition has none.
    pub device_set: Option<Cpuset>,
    /// Where neighbours' tasks are listed in their class of service; none where they have none.
    pub neighbours_tasks: Option<PathBuf>,
    marker: PathBuf,
    lock: File,
}

impl Applied {
    /// Applies a plan. `marker` is a file that says so until it is taken back, for [`take_back_left`].
    ///
    /// # Errors
    /// [`LabError::Busy`] when another lab has one for long, [`LabError::Partitioned`] when the machine's owner applied one,
    /// [`LabError::Isolation`] for what did not come about; all of it is undone then.
    pub(crate) fn apply(target: &Target<'_>, plan: &Plan, marker: &Path) -> Result<Self, LabError> {
        make_directory(&target.state_directory)?;
        let mut lock = wait_for_lock(&target.state_directory)?;
        if !held_text(&mut lock, target)?.is_empty() {
            // Whoever wrote that was killed.
            take_back(target)?;
            write_lock(&mut lock, target, &[])?;
        }
        if !apply::status(target)?.changes.is_empty() {
            return Err(LabError::Partitioned);
        }
        fs::write(marker, "").map_err(io_error(marker, "noting the partition"))?;
        write_lock(&mut lock, target, &words(marker))?;
        let mut applied = Self {
            settings: Vec::new(),
            device_set: None,
            neighbours_tasks: None,
            marker: marker.to_owned(),
            lock,
        };
        match applied.make(target, plan) {
            Ok(()) => Ok(applied),
            Err(error) => {
                if let Err(second) = applied.take_back(target) {
                    tracing::error!("{second}");
                }
                Err(error)
            }
        }
    }

    /// Sees whether the machine's owner has a partition of their own applied, which no case may change; what a killed lab left
    /// is none.
    ///
    /// # Errors
    /// [`LabError::Partitioned`].
    pub fn check_free() -> Result<(), LabError> {
        let target = running_machine();
        let is_labs =
            fs::read(target.state_directory.join(LOCK)).is_ok_and(|text| !text.is_empty());
        if is_labs || apply::status(&target)?.changes.is_empty() {
            return Ok(());
        }
        Err(LabError::Partitioned)
    }

    /// Sees whether another lab has a partition applied, which goes as soon as its case is left.
    ///
    /// # Errors
    /// [`LabError::OtherPartition`].
    pub(crate) fn check_no_other() -> Result<(), LabError> {
        let directory = running_machine().state_directory;
        match fs::read_to_string(directory.join(LOCK)) {
            Ok(owner) if !owner.is_empty() && try_lock(&directory)?.is_none() => {
                Err(LabError::OtherPartition { owner })
            }
            _ => Ok(()),
        }
    }

    fn make(&mut self, target: &Target<'_>, plan: &Plan) -> Result<(), LabError> {
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
                Outcome::Fixed { why } => self
                    .settings
                    .push(format!("{text}; the kernel keeps it: {why}")),
                Outcome::Failed { why } => failed.push(format!("{text}: {why}")),
            }
        }
        if !failed.is_empty() {
            return Err(LabError::Isolation(failed.join("; ")));
        }
        if let Ok(sets) = Cpusets::find(&target.root) {
            let path = sets.mount.join(DATA_PLANE);
            self.device_set = target.files.is_directory(&path).then_some(Cpuset { path });
        }
        let has_class = |name: &&str| plan.classes.iter().any(|class| class.name == *name);
        let class = [NEIGHBOURS, OTHERS].into_iter().find(has_class);
        let resctrl = Resctrl::find(target.files, &target.root);
        self.neighbours_tasks = class
            .zip(resctrl)
            .map(|(name, resctrl)| resctrl.group(name).join("tasks"));
        Ok(())
    }

    /// Takes it back: everything is as it was before it was applied, whoever changed it since.
    ///
    /// # Errors
    /// [`LabError::Undo`] with what could not be undone; `lab clean` tries again.
    pub(crate) fn take_back(mut self, target: &Target<'_>) -> Result<(), LabError> {
        judge(take_back(target)?)?;
        write_lock(&mut self.lock, target, &[])?;
        remove(&self.marker)
    }
}

/// Takes back what a lab had applied that was killed, by the marker that it left. Where another lab or the next one has done
/// that already, nothing is left of it.
///
/// # Errors
/// What cannot be read, or a lock that cannot be had.
pub(crate) fn take_back_left(
    target: &Target<'_>,
    marker: &Path,
) -> Result<Vec<(Change, Undone)>, LabError> {
    let mut undone = Vec::new();
    if let Some(mut lock) = try_lock(&target.state_directory)?
        && held_text(&mut lock, target)? == words(marker)
    {
        undone = take_back(target)?;
        if undone
            .iter()
            .any(|(_, outcome)| matches!(outcome, Undone::Failed(_)))
        {
            return Ok(undone);
        }
        write_lock(&mut lock, target, &[])?;
    }
    remove(marker)?;
    Ok(undone)
}

fn take_back(target: &Target<'_>) -> Result<Vec<(Change, Undone)>, LabError> {
    Ok(apply::roll_back(target, true)?)
}

fn remove(marker: &Path) -> Result<(), LabError> {
    match fs::remove_file(marker) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(io_error(
            marker,
            "removing the note of the partition",
        )(error)),
        _ => Ok(()),
    }
}

/// Names the one case of one lab.
fn words(marker: &Path) -> Vec<u8> {
    marker.as_os_str().as_bytes().to_vec()
}

/// The lock; none when it is held by another. The kernel gives it back when its process ends, however that ends.
fn try_lock(state_directory: &Path) -> Result<Option<File>, LabError> {
    let path = state_directory.join(LOCK);
    let opened = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&path);
    let file = match opened {
        // After a reboot nothing is left of what was applied.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(io_error(&path, "opening the lock"))?,
    };
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(cause)) => Err(io_error(&path, "locking")(cause)),
    }
}

fn wait_for_lock(state_directory: &Path) -> Result<File, LabError> {
    let began = Instant::now();
    loop {
        if let Some(lock) = try_lock(state_directory)? {
            return Ok(lock);
        }
        if began.elapsed() >= PATIENCE {
            let owner = fs::read_to_string(state_directory.join(LOCK)).unwrap_or_default();
            return Err(LabError::OtherPartition { owner });
        }
        std::thread::sleep(LOOK);
    }
}

fn held_text(lock: &mut File, target: &Target<'_>) -> Result<Vec<u8>, LabError> {
    let mut text = Vec::new();
    lock.rewind()
        .and_then(|()| lock.read_to_end(&mut text))
        .map_err(io_error(
            &target.state_directory.join(LOCK),
            "reading the lock",
        ))?;
    Ok(text)
}

fn write_lock(lock: &mut File, target: &Target<'_>, text: &[u8]) -> Result<(), LabError> {
    lock.set_len(0)
        .and_then(|()| lock.rewind())
        .and_then(|()| lock.write_all(text))
        .map_err(io_error(
            &target.state_directory.join(LOCK),
            "writing the lock",
        ))
}
