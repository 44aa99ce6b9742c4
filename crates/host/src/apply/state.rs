// SPDX-License-Identifier: Apache-2.0
//! State between applying and rolling back: lock, journal, plan and pending changes. It is below `/run`, so a reboot removes
//! it together with the changes.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use quietwire_base::{LockError, LockFile, LockOwner};
use serde::Serialize;

use super::step::Step;
use super::target::{ApplyError, Target};
use crate::boot_parameters::is_given;
use crate::files::text;
use crate::journal::{self, Change, Journal, UndoOutcome};
use crate::partition::Plan;

/// State directory of the running machine.
pub const STATE_DIRECTORY: &str = "/run/quietwire/partition";

const JOURNAL: &str = "journal";
const LOCK: &str = "lock";
const RENDERED: &str = "rendered";
const COMMAND_LINE: &str = "kernel-cmdline";
const PLAN: &str = "plan.json";

/// A change that requires a reboot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Kernel command line parameter.
    pub parameter: String,
    /// Purpose of the parameter.
    #[serde(alias = "why")]
    pub reason: String,
    /// File for the boot loader with the parameter. `None` if no file was written.
    pub file: Option<PathBuf>,
}

fn state_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> ApplyError {
    move |cause| ApplyError::State {
        path: path.to_owned(),
        what,
        cause,
    }
}

/// The state directory, locked by this process.
pub(super) struct State {
    pub(super) journal: Journal,
    // Declared last, so the lock is released last.
    _lock: LockFile,
}

/// Takes the lock of the state directory.
fn lock(directory: &Path) -> Result<LockFile, ApplyError> {
    Ok(LockFile::try_acquire(&directory.join(LOCK))?)
}

impl From<LockError> for ApplyError {
    fn from(error: LockError) -> Self {
        match error {
            LockError::Busy { owner, .. } => Self::Busy { owner },
            LockError::Io { path, what, cause } => Self::State { path, what, cause },
        }
    }
}

impl State {
    pub(super) fn open(target: &Target<'_>) -> Result<Self, ApplyError> {
        let directory = &target.state_directory;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(state_error(directory, "creating the directory"))?;
        let lock = lock(directory)?;
        let path = directory.join(JOURNAL);
        // A truncated line would corrupt the next one.
        cut_off(&path).map_err(state_error(&path, "ending its last line"))?;
        let journal = Journal::open(&path).map_err(state_error(&path, "opening the journal"))?;
        Ok(Self {
            journal,
            _lock: lock,
        })
    }

    /// Undoes changes of an earlier plan that the new plan does not contain.
    pub(super) fn undo_unwanted(
        &self,
        target: &Target<'_>,
        steps: &[Step],
    ) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
        let changes = read(self.journal.path())?;
        let wanted: BTreeSet<PathBuf> = steps.iter().flat_map(|step| step.places(target)).collect();
        let is_wanted = |path: &Path| {
            // The file is in a planned group, or a step writes it.
            wanted.iter().any(|wanted| path.starts_with(wanted))
        };
        let unwanted: Vec<Change> = changes
            .into_iter()
            .filter(|change| match change {
                Change::FileWritten { path, .. }
                | Change::CpusetCreated { path, .. }
                | Change::GroupCreated { path } => !is_wanted(path),
                Change::TasksMoved { to, .. } => !is_wanted(to),
                _ => false,
            })
            .collect();
        let mut undone = journal::undo_in(target.files, &unwanted, false);
        undone.retain(|(_, outcome)| *outcome != UndoOutcome::AlreadyGone);
        Ok(undone)
    }

    /// Saves the plan as the default for verification.
    pub(super) fn keep_plan(&self, target: &Target<'_>, plan: &Plan) -> Result<(), ApplyError> {
        let path = target.state_directory.join(PLAN);
        let new = path.with_extension("new");
        let text = serde_json::to_vec_pretty(plan).map_err(io::Error::other);
        text.and_then(|text| fs::write(&new, text))
            // A reader gets either the old or the new file, never a mixture.
            .and_then(|()| fs::rename(&new, &path))
            .map_err(state_error(&path, "saving the plan"))
    }

    /// Writes a file with the pending changes for the boot loader.
    pub(super) fn write_pending(
        &self,
        target: &Target<'_>,
        plan: &Plan,
    ) -> Result<Vec<Pending>, ApplyError> {
        let mut pending = pending(target, plan);
        let directory = target.state_directory.join(RENDERED);
        let path = directory.join(COMMAND_LINE);
        if pending.is_empty() {
            return match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(state_error(
                    &path,
                    "removing changes that are no longer pending",
                )(error)),
                _ => Ok(pending),
            };
        }
        fs::create_dir_all(&directory)
            .map_err(state_error(&directory, "creating the directory"))?;
        fs::write(&path, plan.command_line() + "\n")
            .map_err(state_error(&path, "writing pending changes"))?;
        for parameter in &mut pending {
            parameter.file = Some(path.clone());
        }
        Ok(pending)
    }
}

/// Returns the plan that was applied last. `None` if no plan is applied.
///
/// # Errors
/// [`ApplyError::State`] if the file cannot be read.
pub fn applied_plan(state_directory: &Path) -> Result<Option<Plan>, ApplyError> {
    let path = state_directory.join(PLAN);
    let text = match fs::read(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        read => read.map_err(state_error(&path, "reading the plan"))?,
    };
    let plan = serde_json::from_slice(&text).map_err(io::Error::other);
    plan.map(Some)
        .map_err(state_error(&path, "reading the plan"))
}

/// Removes an incomplete last line of a journal.
fn cut_off(path: &Path) -> io::Result<()> {
    let text = match fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let whole = text.iter().rposition(|octet| *octet == b'\n');
    let whole = whole.map_or(0, |end| end + 1);
    if whole == text.len() {
        return Ok(());
    }
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(whole as u64)?;
    file.sync_all()
}

fn read(path: &Path) -> Result<Vec<Change>, ApplyError> {
    match journal::read(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        read => read.map_err(state_error(path, "reading the journal")),
    }
}

/// Returns the parameters of the plan that the running kernel's command line lacks.
pub(super) fn pending(target: &Target<'_>, plan: &Plan) -> Vec<Pending> {
    let given = text(target.files, &target.path("proc/cmdline")).unwrap_or_default();
    plan.boot
        .iter()
        .filter(|parameter| !is_given(parameter, &given))
        .map(|parameter| Pending {
            parameter: parameter.to_string(),
            reason: parameter.reason.clone(),
            file: None,
        })
        .collect()
}

/// State of an applied partition.
#[derive(Debug, Default, Serialize)]
pub struct Status {
    /// Process that is applying or rolling back a partition.
    pub busy: Option<LockOwner>,
    /// Changes that were made, or were journaled before their process was killed.
    pub changes: Vec<Change>,
    /// Pending kernel command line.
    pub pending: Option<String>,
}

/// Returns the state of an applied partition.
///
/// # Errors
/// [`ApplyError::State`] if the journal or the lock cannot be read.
pub fn status(target: &Target<'_>) -> Result<Status, ApplyError> {
    let directory = &target.state_directory;
    let command_line = directory.join(RENDERED).join(COMMAND_LINE);
    Ok(Status {
        busy: LockFile::holder(&directory.join(LOCK))?,
        changes: read(&directory.join(JOURNAL))?,
        pending: fs::read_to_string(command_line)
            .ok()
            .map(|text| text.trim().to_owned()),
    })
}

pub(super) fn roll_back(
    target: &Target<'_>,
    force: bool,
) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
    let directory = &target.state_directory;
    let path = directory.join(JOURNAL);
    match fs::metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(state_error(&path, "reading the journal"))?,
    };
    let _lock = lock(directory)?;
    let changes = read(&path)?;
    let undone = journal::undo_in(target.files, &changes, force);
    let is_left = |(_, outcome): &(Change, UndoOutcome)| {
        matches!(
            outcome,
            UndoOutcome::Failed(_) | UndoOutcome::ChangedSince(_)
        )
    };
    if !undone.iter().any(is_left) {
        let plan = directory.join(PLAN);
        for file in [plan.with_extension("new"), plan] {
            match fs::remove_file(&file) {
                Err(error) if error.kind() != ErrorKind::NotFound => {
                    return Err(state_error(&file, "removing the plan")(error));
                }
                _ => {}
            }
        }
        let rendered = directory.join(RENDERED);
        match fs::remove_dir_all(&rendered) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(state_error(&rendered, "removing it")(error));
            }
            _ => {}
        }
        // The journal is removed last, so an interrupted rollback can continue.
        fs::remove_file(&path).map_err(state_error(&path, "removing the journal"))?;
    }
    Ok(undone)
}
