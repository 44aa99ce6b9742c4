// SPDX-License-Identifier: Apache-2.0
//! The directory with the state of labs: its lock, its files, and how their journals are undone.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::LockFile;
use quietwire_base::durable::directory_of;
use quietwire_base::storage::Storage;
use quietwire_host::journal::{self, Change, UndoOutcome};

use crate::error::{LabError, io_error};

/// Default state directory of labs.
pub const STATE_DIRECTORY: &str = "/run/quietwire/lab";

/// Journal of a lab itself; each case has its own.
pub(crate) const LAB_JOURNAL: &str = "lab.jsonl";

/// Suffix of the file that marks a partition as applied for a case.
pub(crate) const MARKER: &str = ".partition";

/// In the names of journals with damaged lines that are kept. A number may follow.
pub(crate) const DAMAGED: &str = ".damaged";

/// Prefix of the name of a lab's directory; the number of its process follows.
pub(crate) const LAB_PREFIX: &str = "lab-";

pub(crate) fn lock_path(state_directory: &Path) -> PathBuf {
    state_directory.join("lock")
}

/// Acquires the lock of a state directory.
///
/// # Errors
/// [`LabError::Busy`] if another process holds it, [`LabError::Io`].
pub(crate) fn lock(state_directory: &Path) -> Result<LockFile, LabError> {
    Ok(LockFile::try_acquire(&lock_path(state_directory))?)
}

/// Checks that no study and no measurement uses the labs of a state directory.
///
/// # Errors
/// [`LabError::Busy`] with the process that does, [`LabError::Io`].
pub fn check_idle(state_directory: &Path) -> Result<(), LabError> {
    match LockFile::holder(&lock_path(state_directory))? {
        Some(owner) => Err(LabError::Busy { owner }),
        None => Ok(()),
    }
}

pub(crate) fn make_directory(storage: &dyn Storage, path: &Path) -> Result<(), LabError> {
    storage
        .make_directories(path, 0o700)
        .map_err(io_error(path, "making the directory"))
}

/// Returns an error that lists the changes that were not undone.
pub(crate) fn judge(undone: Vec<(Change, UndoOutcome)>) -> Result<(), LabError> {
    let failures: Vec<String> = undone
        .iter()
        .filter_map(|(change, outcome)| match outcome {
            // The reason has the command.
            UndoOutcome::Failed(reason) if matches!(change, Change::DevicePrepared { .. }) => {
                Some(format!("restoring the device: {reason}"))
            }
            UndoOutcome::Failed(reason)
            | UndoOutcome::ChangedSince(reason)
            | UndoOutcome::NotTried(reason) => Some(format!("{change:?}: {reason}")),
            UndoOutcome::Unreadable(reason) => Some(format!("{change}: {reason}")),
            UndoOutcome::Restored | UndoOutcome::AlreadyGone => None,
        })
        .collect();
    if failures.is_empty() {
        Ok(())
    } else {
        Err(LabError::Undo(failures.join("; ")))
    }
}

/// Undoes the journal of a case, and removes it if nothing failed.
pub(crate) fn undo_journal(
    storage: &dyn Storage,
    path: &Path,
) -> Result<Vec<(Change, UndoOutcome)>, LabError> {
    let changes = journal::read_in(storage, path).map_err(io_error(path, "reading the journal"))?;
    let mut undone = journal::undo(&changes);
    if !has_failed(&undone) {
        keep_damaged(storage, path, &mut undone)?;
        storage
            .remove_file(path)
            .map_err(io_error(path, "removing the journal"))?;
    }
    Ok(undone)
}

/// Undoes a lab's own journal. Its directory is removed last, with the journal. It stays if a change of the lab or of one of its cases
/// could not be undone, since another attempt requires the journals.
pub(crate) fn undo_own_journal(
    storage: &dyn Storage,
    path: &Path,
) -> Result<Vec<(Change, UndoOutcome)>, LabError> {
    let changes = journal::read_in(storage, path).map_err(io_error(path, "reading the journal"))?;
    let own = directory_of(path);
    let (directories, others): (Vec<Change>, Vec<Change>) = changes
        .into_iter()
        .filter(|change| !matches!(change, Change::DirectoryCreated { path } if path == own))
        .partition(|change| matches!(change, Change::DirectoryCreated { .. }));
    let mut undone = journal::undo(&others);
    let of_cases = journals(storage, own).map_err(io_error(own, "listing it"))?;
    let markers = ending_in(storage, own, MARKER).map_err(io_error(own, "listing it"))?;
    let of_own = Change::DirectoryCreated {
        path: own.to_owned(),
    };
    if has_failed(&undone) || !markers.is_empty() || of_cases.iter().any(|other| other != path) {
        undone.extend(directories.into_iter().chain([of_own]).map(|change| {
            let reason = "kept, with the journal of what could not be undone".to_owned();
            (change, UndoOutcome::Failed(reason))
        }));
        return Ok(undone);
    }
    keep_damaged(storage, path, &mut undone)?;
    undone.extend(journal::undo(&directories));
    // Its process may have been killed before it wrote the line of the directory.
    let outcome = match remove_lab(storage, path) {
        Ok(()) => UndoOutcome::Restored,
        Err(error) if error.kind() == io::ErrorKind::NotFound => UndoOutcome::AlreadyGone,
        Err(error) => UndoOutcome::Failed(error.to_string()),
    };
    undone.push((of_own, outcome));
    Ok(undone)
}

/// Removes the directory of a lab: the journal last, so that another attempt finds it.
fn remove_lab(storage: &dyn Storage, journal: &Path) -> io::Result<()> {
    let directory = directory_of(journal);
    for name in storage.list(directory)? {
        let path = directory.join(name);
        if path != journal {
            match storage.remove_file(&path) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    storage.remove_tree(&path)?;
                }
                removed => removed?,
            }
        }
    }
    storage.remove_tree(directory)
}

/// Keeps a journal with damaged lines beside the lab's directory, before the journal is removed, and adds its name to the outcomes.
fn keep_damaged(
    storage: &dyn Storage,
    journal: &Path,
    undone: &mut [(Change, UndoOutcome)],
) -> Result<(), LabError> {
    let mut kept: Option<PathBuf> = None;
    for (_, outcome) in undone {
        let UndoOutcome::Unreadable(reason) = outcome else {
            continue;
        };
        let name = match kept {
            Some(name) => name,
            None => {
                let lab = directory_of(journal);
                let parts = [lab.file_name(), journal.file_stem()];
                let parts: Vec<String> = parts
                    .into_iter()
                    .map(|part| part.unwrap_or_default().to_string_lossy().into_owned())
                    .collect();
                let name = format!("{}{DAMAGED}", parts.join("."));
                journal::keep_damaged_in(storage, journal, &directory_of(lab).join(name))
                    .map_err(io_error(journal, "keeping the damaged journal"))?
            }
        };
        reason.push_str(&format!("; the journal is kept as {}", name.display()));
        kept = Some(name);
    }
    Ok(())
}

fn has_failed(undone: &[(Change, UndoOutcome)]) -> bool {
    undone
        .iter()
        .any(|(_, outcome)| matches!(outcome, UndoOutcome::Failed(_)))
}

pub(crate) fn journals(storage: &dyn Storage, directory: &Path) -> io::Result<Vec<PathBuf>> {
    ending_in(storage, directory, ".jsonl")
}

/// Returns the files in a directory whose names have this suffix.
pub(crate) fn ending_in(
    storage: &dyn Storage,
    directory: &Path,
    ending: &str,
) -> io::Result<Vec<PathBuf>> {
    let names = storage.list(directory)?.into_iter();
    let paths = names.map(|name| directory.join(name));
    Ok(paths
        .filter(|path| path.to_string_lossy().ends_with(ending))
        .collect())
}
