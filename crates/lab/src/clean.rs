// SPDX-License-Identifier: Apache-2.0
//! Undoing what a lab left behind whose process is gone.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use quietwire_host::journal::{self, Change, Undone};
use serde::Serialize;

use crate::error::{LabError, io_error};
use crate::lab::{LAB_JOURNAL, lock, lock_path};

/// What was found and undone.
#[derive(Debug, Default, Serialize)]
pub struct CleanReport {
    /// A lab that is up and was left alone: its owner.
    pub busy: Option<String>,
    /// Every change with what came of undoing it.
    pub undone: Vec<(Change, Undone)>,
}

impl CleanReport {
    /// Changes that could not be undone.
    pub fn failures(&self) -> impl Iterator<Item = &(Change, Undone)> {
        self.undone
            .iter()
            .filter(|(_, outcome)| matches!(outcome, Undone::Failed(_) | Undone::ChangedSince(_)))
    }
}

/// Undoes what labs below `state_directory` left behind whose processes are gone. A lab that is up is left alone.
///
/// # Errors
/// A journal or directory that cannot be read.
pub fn clean(state_directory: &Path) -> Result<CleanReport, LabError> {
    if !state_directory.exists() {
        return Ok(CleanReport::default());
    }
    match lock(state_directory) {
        Ok(held) => leftovers(state_directory, &held),
        Err(LabError::Busy { owner }) => Ok(CleanReport {
            busy: Some(owner),
            ..CleanReport::default()
        }),
        Err(error) => Err(error),
    }
}

/// With the lock held nobody's lab is up: whatever stands there is left over.
pub(crate) fn leftovers(state_directory: &Path, _held: &File) -> Result<CleanReport, LabError> {
    let mut report = CleanReport::default();
    let entries = fs::read_dir(state_directory).map_err(io_error(state_directory, "listing it"))?;
    for entry in entries {
        let path = entry
            .map_err(io_error(state_directory, "listing it"))?
            .path();
        if path.is_dir() {
            report.undone.extend(clean_one(&path)?);
        } else if path != lock_path(state_directory) {
            tracing::warn!("{} is none of the lab's and is left alone", path.display());
        }
    }
    Ok(report)
}

/// Undoes the journals of one lab, the latest case first, its own journal last.
fn clean_one(directory: &Path) -> Result<Vec<(Change, Undone)>, LabError> {
    let mut cases: Vec<PathBuf> = fs::read_dir(directory)
        .and_then(|entries| {
            entries
                .map(|entry| entry.map(|entry| entry.path()))
                .collect::<io::Result<_>>()
        })
        .map_err(io_error(directory, "listing it"))?;
    cases.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "jsonl")
            && !path.ends_with(LAB_JOURNAL)
    });
    cases.sort();
    let mut undone = Vec::new();
    for path in cases.iter().rev() {
        undone.extend(undo_journal(path)?);
    }
    let own = directory.join(LAB_JOURNAL);
    if own.exists() {
        undone.extend(undo_journal(&own)?);
    }
    Ok(undone)
}

/// Undoes one journal, and removes it when nothing failed.
pub(crate) fn undo_journal(path: &Path) -> Result<Vec<(Change, Undone)>, LabError> {
    let changes = journal::read(path).map_err(io_error(path, "reading the journal"))?;
    let undone = journal::undo(&changes);
    let failed = undone
        .iter()
        .any(|(_, outcome)| matches!(outcome, Undone::Failed(_)));
    if !failed && path.exists() {
        fs::remove_file(path).map_err(io_error(path, "removing the journal"))?;
    }
    Ok(undone)
}
