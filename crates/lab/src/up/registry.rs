// SPDX-License-Identifier: Apache-2.0
//! Named labs: each has a directory below the state directory, with a lock that the lab's process holds, the journal of its
//! changes, and its state.

#[cfg(test)]
mod faults;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use quietwire_base::storage::{Disk, Storage};
use quietwire_base::{LockFile, LockOwner, ProcessId};
use quietwire_host::journal::{Change, Journal, UndoOutcome};

use super::state::LabState;
use crate::error::{LabError, io_error};
use crate::state_directory::{
    LAB_JOURNAL, judge, lock, lock_path, make_directory, undo_own_journal,
};

/// Directory of named labs.
pub(crate) const NAMED: &str = "named";
/// Timeout for taking a lab down, with all its processes.
const DOWN_TIMEOUT: Duration = Duration::from_secs(60);
/// Limit of attempts when the directory is removed while its lock is taken.
const ATTEMPTS: u32 = 20;

/// Changes and the outcomes of undoing them.
pub type UndoReport = Vec<(Change, UndoOutcome)>;

/// A lab's name, locked by this process.
#[derive(Debug)]
pub(super) struct Claim {
    directory: PathBuf,
    journal: Journal,
    tag: String,
    _lock: LockFile,
}

impl Claim {
    /// Claims a name, and undoes the remains of an earlier lab of this name that was killed.
    pub(super) fn take(
        storage: &dyn Storage,
        state_directory: &Path,
        name: &str,
    ) -> Result<Self, LabError> {
        check_name(name)?;
        let directory = state_directory.join(NAMED).join(name);
        for _ in 0..ATTEMPTS {
            make_directory(storage, &directory)?;
            let held = match hold(&directory, name) {
                // Another process has removed the directory since.
                Err(LabError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
                    continue;
                }
                held => held?,
            };
            let path = directory.join(LAB_JOURNAL);
            if exists(storage, &path)? {
                tracing::warn!(
                    "an earlier lab {name} was not taken down; undoing its changes first"
                );
                judge(undo_own_journal(storage, &path)?)?;
                continue;
            }
            let mut journal =
                Journal::open_in(storage, &path).map_err(io_error(&path, "making the journal"))?;
            let change = Change::DirectoryCreated {
                path: directory.clone(),
            };
            journal
                .record(&change)
                .map_err(io_error(&path, "writing the journal"))?;
            return Ok(Self {
                directory,
                journal,
                tag: format!("quietwire-{}", std::process::id()),
                _lock: held,
            });
        }
        Err(LabError::Undo(format!(
            "{} is removed repeatedly",
            directory.display()
        )))
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn journal(&mut self) -> &mut Journal {
        &mut self.journal
    }

    /// Returns the prefix of names that no other process on this machine uses.
    pub(super) fn tag(&self) -> &str {
        // A process has one lab.
        &self.tag
    }

    /// Undoes the changes in the journal.
    pub(super) fn release(self, storage: &dyn Storage) -> Result<(), LabError> {
        let outcome = judge(undo_own_journal(storage, self.journal.path())?);
        remove_if_empty(self.directory.parent());
        outcome
    }
}

/// Returns whether a file exists.
fn exists(storage: &dyn Storage, path: &Path) -> Result<bool, LabError> {
    match storage.metadata(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(io_error(path, "looking for it")(error)),
    }
}

/// Takes the lock of a name.
fn hold(directory: &Path, name: &str) -> Result<LockFile, LabError> {
    lock(directory).map_err(|error| match error {
        LabError::Busy { owner } => LabError::NameTaken {
            name: name.to_owned(),
            owner,
        },
        other => other,
    })
}

/// Removes the directory of all names with the last one.
fn remove_if_empty(directory: Option<&Path>) {
    // The directory is not empty while other labs exist.
    let _ = directory.map(fs::remove_dir);
}

fn check_name(name: &str) -> Result<(), LabError> {
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    if !name.is_empty() && name.len() <= 32 && !name.starts_with('.') && name.chars().all(is_letter)
    {
        return Ok(());
    }
    Err(LabError::Topology(format!(
        "'{name}' is not a valid lab name (use up to 32 letters, digits, '-', '_' and '.')"
    )))
}

/// A named lab, running or left over.
#[derive(Clone, Debug)]
pub struct LabEntry {
    /// Its name.
    pub name: String,
    /// The process that holds it; `None` for one that was left over.
    pub owner: Option<i32>,
    /// Its state; `None` while it starts.
    pub state: Option<LabState>,
}

/// Returns the directories of the named labs below a state directory, sorted by name.
fn directories(state_directory: &Path) -> Result<Vec<(String, PathBuf)>, LabError> {
    let directory = state_directory.join(NAMED);
    let entries = match fs::read_dir(&directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(io_error(&directory, "listing it")(error)),
    };
    let mut all = Vec::new();
    for entry in entries {
        let path = entry.map_err(io_error(&directory, "listing it"))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else {
            continue;
        };
        if check_name(name).is_ok() && path.is_dir() {
            all.push((name.to_owned(), path.clone()));
        }
    }
    all.sort();
    Ok(all)
}

/// Returns the named labs below a state directory, sorted by name.
///
/// # Errors
/// A directory or state that cannot be read.
pub fn known(state_directory: &Path) -> Result<Vec<LabEntry>, LabError> {
    let entry = |(name, path): (String, PathBuf)| -> Result<LabEntry, LabError> {
        Ok(LabEntry {
            name,
            owner: LockFile::holder(&lock_path(&path))?.and_then(LockOwner::pid),
            state: LabState::read(&path)?,
        })
    };
    directories(state_directory)?
        .into_iter()
        .map(entry)
        .collect()
}

/// Checks that no lab is up whose CPUs a partition would take.
///
/// # Errors
/// [`LabError::LabsUp`] with their names, and the errors of [`known`].
pub fn check_none_up(state_directory: &Path) -> Result<(), LabError> {
    let labs = known(state_directory)?.into_iter();
    let up: Vec<String> = labs
        .filter(|lab| lab.owner.is_some())
        .map(|lab| lab.name)
        .collect();
    match up.is_empty() {
        true => Ok(()),
        false => Err(LabError::LabsUp(up.join(", "))),
    }
}

/// Returns the running lab of this name, or the only running lab if no name is given.
///
/// # Errors
/// [`LabError::Topology`] if there is none, or several and no name is given. The error names labs whose processes were killed.
pub fn find(state_directory: &Path, name: Option<&str>) -> Result<LabEntry, LabError> {
    let all = known(state_directory)?.into_iter();
    let (mut up, left): (Vec<LabEntry>, Vec<LabEntry>) = all.partition(|lab| lab.owner.is_some());
    let names =
        |labs: &[LabEntry]| -> Vec<String> { labs.iter().map(|lab| lab.name.clone()).collect() };
    let (names, left) = (names(&up), names(&left));
    let place = match name {
        Some(name) => names.iter().position(|other| other == name),
        None if up.len() == 1 => Some(0),
        None => None,
    };
    match (place, name) {
        (Some(place), _) => Ok(up.swap_remove(place)),
        (None, Some(name)) if left.iter().any(|other| other == name) => {
            Err(LabError::Topology(left_over(&[name.to_owned()])))
        }
        (None, None) if names.is_empty() && !left.is_empty() => {
            Err(LabError::Topology(left_over(&left)))
        }
        (None, _) if names.is_empty() => Err(LabError::Topology(
            "no lab is up (start one with `quietwire lab up NAME`)".to_owned(),
        )),
        (None, Some(name)) => Err(LabError::Topology(format!(
            "no lab '{name}' is up (running labs: {})",
            names.join(", ")
        ))),
        (None, None) => Err(LabError::Topology(format!(
            "several labs are up (name one of {})",
            names.join(", ")
        ))),
    }
}

fn left_over(names: &[String]) -> String {
    let names = names.join(", ");
    format!(
        "lab {names} is not up: its process was killed (undo what it left with `quietwire lab clean`, then start it again)"
    )
}

/// Stops the process of a lab, and undoes the remaining changes if the process does not.
///
/// # Errors
/// A process that could not be stopped or a change that could not be undone.
pub fn take_down(state_directory: &Path, lab: &LabEntry) -> Result<(), LabError> {
    let directory = state_directory.join(NAMED).join(&lab.name);
    if let Some(process) = lab.owner.and_then(ProcessId::of) {
        process
            .end(DOWN_TIMEOUT)
            .map_err(io_error(&directory, "ending the lab's process"))?;
    }
    let left = clean_one(&Disk, &directory, &lab.name)?;
    judge(left.unwrap_or_default())
}

/// Undoes the changes of named labs whose processes are gone, and returns the names of running labs.
///
/// # Errors
/// A journal or directory that cannot be read.
pub fn clean_named(
    storage: &dyn Storage,
    state_directory: &Path,
) -> Result<(UndoReport, Vec<String>), LabError> {
    let mut undone = Vec::new();
    let mut up = Vec::new();
    // A damaged state keeps no lab from being undone: the journal has what is needed.
    for (name, directory) in directories(state_directory)? {
        match clean_one(storage, &directory, &name)? {
            Some(left) => undone.extend(left),
            None => up.push(name),
        }
    }
    remove_if_empty(Some(&state_directory.join(NAMED)));
    Ok((undone, up))
}

/// Returns `None` for a running lab.
fn clean_one(
    storage: &dyn Storage,
    directory: &Path,
    name: &str,
) -> Result<Option<UndoReport>, LabError> {
    if !exists(storage, directory)? {
        return Ok(Some(Vec::new()));
    }
    let _held = match hold(directory, name) {
        Ok(held) => held,
        Err(LabError::NameTaken { .. }) => return Ok(None),
        Err(LabError::Io { cause, .. }) if cause.kind() == io::ErrorKind::NotFound => {
            return Ok(Some(Vec::new()));
        }
        Err(error) => return Err(error),
    };
    let journal = directory.join(LAB_JOURNAL);
    let undone = if exists(storage, &journal)? {
        undo_own_journal(storage, &journal)?
    } else {
        // The lab was killed before its first journal entry: only the directory and its lock exist.
        storage
            .remove_tree(directory)
            .map_err(io_error(directory, "removing it"))?;
        let path = directory.to_owned();
        vec![(Change::DirectoryCreated { path }, UndoOutcome::Restored)]
    };
    remove_if_empty(directory.parent());
    Ok(Some(undone))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn listing_labs_changes_no_lock() {
        let state = tempfile::tempdir().unwrap();
        let [up, left] = ["up", "left"].map(|name| state.path().join(NAMED).join(name));
        make_directory(&Disk, &up).unwrap();
        make_directory(&Disk, &left).unwrap();
        let held = lock(&up).unwrap();
        // Its process was killed.
        fs::write(lock_path(&left), "4194305 17\n").unwrap();
        let facts = || {
            [&up, &left].map(|directory| {
                let path = lock_path(directory);
                let meta = fs::metadata(&path).unwrap();
                let times = (
                    meta.mtime(),
                    meta.mtime_nsec(),
                    meta.ctime(),
                    meta.ctime_nsec(),
                );
                (fs::read_to_string(&path).unwrap(), meta.ino(), times)
            })
        };
        let before = facts();
        let own = i32::try_from(std::process::id()).ok();
        for _ in 0..3 {
            let labs = known(state.path()).unwrap();
            let owners: Vec<_> = labs
                .iter()
                .map(|lab| (lab.name.as_str(), lab.owner))
                .collect();
            assert_eq!(owners, [("left", None), ("up", own)]);
        }
        assert_eq!(facts(), before);
        // Both locks are as before: held, and free.
        assert!(matches!(lock(&up), Err(LabError::Busy { .. })));
        drop(held);
        drop(lock(&left).unwrap());
        // No listing makes a lock that does not exist.
        fs::remove_file(lock_path(&left)).unwrap();
        known(state.path()).unwrap();
        assert!(!lock_path(&left).exists());
    }

    #[test]
    fn a_damaged_state_keeps_no_lab_from_being_undone() {
        let state = tempfile::tempdir().unwrap();
        let directory = state.path().join(NAMED).join("left");
        make_directory(&Disk, &directory).unwrap();
        fs::write(directory.join("state.json"), "{").unwrap();
        known(state.path()).unwrap_err();
        let (undone, up) = clean_named(&Disk, state.path()).unwrap();
        assert_eq!((undone.len(), up), (1, Vec::new()));
        assert!(!directory.exists());
    }
}
