// SPDX-License-Identifier: Apache-2.0
//! State between applying and rolling back: lock, journal, plan and pending changes. It is below `/run`, so a reboot removes
//! it together with the changes.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use quietwire_base::durable::{self, directory_of};
use quietwire_base::{LockError, LockFile, LockOwner};
use serde::Serialize;

use super::outcome::Stopped;
use super::step::Step;
use super::target::{ApplyError, Target};
use crate::boot_parameters::is_given;
use crate::files::text;
use crate::journal::{self, Change, Journal, UndoOutcome};
use crate::partition::Plan;

/// State directory of the running machine.
pub const STATE_DIRECTORY: &str = "/run/quietwire/partition";

const JOURNAL: &str = "journal";
/// A journal with damaged lines, after its other changes were rolled back.
const DAMAGED: &str = "journal.damaged";
const LOCK: &str = "lock";
const RENDERED: &str = "rendered";
const COMMAND_LINE: &str = "kernel-cmdline";
const PLAN: &str = "plan.json";
/// Operation that fails if a stopped process cannot read what it has changed.
const CHANGES_STAY: &str =
    "reading the changes to undo, which stay (undo them with `quietwire partition rollback`)";

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
    /// Length of the journal when it was opened, octets.
    start: u64,
    /// Text of the plan that was applied before.
    former_plan: Option<Vec<u8>>,
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
        target
            .storage
            .make_directories(directory, 0o700)
            .map_err(state_error(directory, "creating the directory"))?;
        let lock = lock(directory)?;
        target
            .storage
            .sync_directory(directory_of(directory))
            .map_err(state_error(directory, "syncing the directory"))?;
        let path = directory.join(JOURNAL);
        let journal = Journal::open_in(target.storage, &path)
            .map_err(state_error(&path, "opening the journal"))?;
        let start = journal.length();
        let start = start.map_err(state_error(&path, "opening the journal"))?;
        let plan = directory.join(PLAN);
        let former_plan = match target.storage.read(&plan) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            read => Some(read.map_err(state_error(&plan, "reading the plan"))?),
        };
        Ok(Self {
            journal,
            start,
            former_plan,
            _lock: lock,
        })
    }

    /// Undoes changes of an earlier plan that the new plan does not contain.
    pub(super) fn undo_unwanted(
        &self,
        target: &Target<'_>,
        steps: &[Step],
    ) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
        let changes = read(target, self.journal.path())?;
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
                // Reported until it is rolled back.
                Change::Unreadable { .. } => true,
                _ => false,
            })
            .collect();
        let mut undone = journal::undo_in(target.files, &unwanted, false);
        undone.retain(|(_, outcome)| *outcome != UndoOutcome::AlreadyGone);
        Ok(undone)
    }

    /// Undoes the changes that were made since the state was opened, and restores the former state. The journal keeps earlier changes, and
    /// those that cannot be undone.
    ///
    /// # Errors
    /// [`ApplyError::State`] if the journal cannot be read. Nothing is undone then.
    pub(super) fn undo_own(&self, target: &Target<'_>) -> Result<Stopped, ApplyError> {
        let path = self.journal.path();
        let changes = journal::read_split_in(target.storage, path, self.start);
        let (earlier, own) = changes.map_err(state_error(path, CHANGES_STAY))?;
        let rolled_back = journal::undo_in(target.files, &own, false);
        let left: Vec<&Change> = rolled_back
            .iter()
            .filter(|(_, outcome)| outcome.is_left())
            .map(|(change, _)| change)
            .collect();
        let left: Vec<&Change> = own.iter().filter(|change| is_of(change, &left)).collect();
        let restored = self.restore(target, &earlier, &left);
        Ok(Stopped {
            rolled_back,
            state_error: restored.err().map(|error| error.to_string()),
        })
    }

    /// Restores the former plan, and a journal with the earlier changes and those that are left.
    fn restore(
        &self,
        target: &Target<'_>,
        earlier: &[Change],
        left: &[&Change],
    ) -> Result<(), ApplyError> {
        match &self.former_plan {
            Some(text) => {
                let path = target.state_directory.join(PLAN);
                durable::replace_in(target.storage, &path, text, 0o600)
                    .map_err(state_error(&path, "restoring the former plan"))?;
            }
            None if earlier.is_empty() && left.is_empty() => return remove_state(target),
            None => {}
        }
        // Rewriting leaves out damaged lines, which are reported until they are rolled back.
        let is_damaged = |change: &Change| matches!(change, Change::Unreadable { .. });
        if earlier.iter().any(is_damaged) {
            return Ok(());
        }
        let path = self.journal.path();
        let kept = earlier.iter().chain(left.iter().copied());
        journal::rewrite(target.storage, path, kept).map_err(state_error(
            path,
            "removing undone changes from the journal",
        ))
    }

    /// Saves the plan as the default for verification.
    pub(super) fn keep_plan(&self, target: &Target<'_>, plan: &Plan) -> Result<(), ApplyError> {
        let path = target.state_directory.join(PLAN);
        let text = serde_json::to_vec_pretty(plan).map_err(io::Error::other);
        text.and_then(|text| durable::replace_in(target.storage, &path, &text, 0o600))
            .map_err(state_error(&path, "saving the plan"))
    }

    /// Writes a file with the pending changes for the boot loader, and adds its name to them.
    pub(super) fn write_pending(
        &self,
        target: &Target<'_>,
        plan: &Plan,
        pending: &mut [Pending],
    ) -> Result<(), ApplyError> {
        let directory = target.state_directory.join(RENDERED);
        let path = directory.join(COMMAND_LINE);
        if pending.is_empty() {
            return durable::remove_if_exists_in(target.storage, &path).map_err(state_error(
                &path,
                "removing changes that are no longer pending",
            ));
        }
        target
            .storage
            .make_directories(&directory, 0o777)
            .map_err(state_error(&directory, "creating the directory"))?;
        let text = plan.command_line() + "\n";
        durable::replace_in(target.storage, &path, text.as_bytes(), 0o644)
            .map_err(state_error(&path, "writing pending changes"))?;
        for parameter in pending {
            parameter.file = Some(path.clone());
        }
        Ok(())
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

fn read(target: &Target<'_>, path: &Path) -> Result<Vec<Change>, ApplyError> {
    match journal::read_in(target.storage, path) {
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
    /// Changes that are in effect, and damaged lines of the journal. Of several changes of a file, only the first.
    pub changes: Vec<Change>,
    /// Changes of the journal that are not in effect: their process was killed before it made them, or they were undone since.
    pub not_in_effect: Vec<Change>,
    /// Pending kernel command line.
    pub pending: Option<String>,
}

impl Status {
    /// Returns whether a partition was applied and not rolled back, even if none of its changes is in effect.
    #[must_use]
    pub fn is_applied(&self) -> bool {
        !self.changes.is_empty() || !self.not_in_effect.is_empty()
    }
}

/// Returns the state of an applied partition.
///
/// # Errors
/// [`ApplyError::State`] if the journal or the lock cannot be read.
pub fn status(target: &Target<'_>) -> Result<Status, ApplyError> {
    let directory = &target.state_directory;
    let command_line = directory.join(RENDERED).join(COMMAND_LINE);
    let changes = read(target, &directory.join(JOURNAL))?;
    let (changes, not_in_effect) = journal::split_by_effect(target.files, changes);
    Ok(Status {
        busy: LockFile::holder(&directory.join(LOCK))?,
        changes,
        not_in_effect,
        pending: match target.storage.read(&command_line) {
            Err(error) if error.kind() == ErrorKind::NotFound => None,
            read => {
                let text = read.map_err(state_error(&command_line, "reading pending changes"))?;
                Some(String::from_utf8_lossy(&text).trim().to_owned())
            }
        },
    })
}

pub(super) fn roll_back(
    target: &Target<'_>,
    force: bool,
    stop: &AtomicBool,
) -> Result<Vec<(Change, UndoOutcome)>, ApplyError> {
    let directory = &target.state_directory;
    let path = directory.join(JOURNAL);
    match target.storage.metadata(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        found => found.map_err(state_error(&path, "reading the journal"))?,
    };
    let _lock = lock(directory)?;
    let changes = read(target, &path)?;
    let mut undone = journal::undo_until(target.files, &changes, force, stop);
    if !keep_damaged(target, &path, &mut undone) {
        return Ok(undone);
    }
    let left: Vec<&Change> = undone
        .iter()
        .filter(|(_, outcome)| outcome.is_left())
        .map(|(change, _)| change)
        .filter(|change| !matches!(change, Change::Unreadable { .. }))
        .collect();
    if left.is_empty() {
        remove_state(target)?;
        return Ok(undone);
    }
    // A value that was restored belongs to the machine's owner again.
    let left = changes.iter().filter(|change| is_of(change, &left));
    if let Err(error) = journal::rewrite(target.storage, &path, left) {
        // The changes that are left are reported nevertheless.
        let text = format!("; the changes that are rolled back stay in the journal: {error}");
        undone
            .iter_mut()
            .filter_map(|(_, outcome)| outcome.reason_mut())
            .for_each(|reason| reason.push_str(&text));
    }
    Ok(undone)
}

/// Returns whether a change is one of these, or one of the same file.
fn is_of(change: &Change, left: &[&Change]) -> bool {
    left.iter().any(|other| match (change, other) {
        (Change::FileWritten { path, .. }, Change::FileWritten { path: file, .. }) => path == file,
        _ => change == *other,
    })
}

/// Keeps a journal with damaged lines under another name, and adds the name to their outcomes. Returns false if that failed: the journal
/// has to stay then.
fn keep_damaged(target: &Target<'_>, journal: &Path, undone: &mut [(Change, UndoOutcome)]) -> bool {
    let mut reasons: Vec<&mut String> = undone
        .iter_mut()
        .filter_map(|(_, outcome)| match outcome {
            UndoOutcome::Unreadable(reason) => Some(reason),
            _ => None,
        })
        .collect();
    if reasons.is_empty() {
        return true;
    }
    let kept = journal::keep_damaged_in(target.storage, journal, &journal.with_file_name(DAMAGED));
    let text = match &kept {
        Ok(name) => format!("; the journal is kept as {}", name.display()),
        Err(error) => format!("; the journal stays, because it cannot be renamed: {error}"),
    };
    for reason in &mut reasons {
        reason.push_str(&text);
    }
    kept.is_ok()
}

/// Removes the state after all changes were rolled back.
fn remove_state(target: &Target<'_>) -> Result<(), ApplyError> {
    let (storage, directory) = (target.storage, &target.state_directory);
    let plan = directory.join(PLAN);
    durable::remove_left(storage, &plan).map_err(state_error(&plan, "removing temporary files"))?;
    for file in [plan.with_extension("new"), plan] {
        durable::remove_if_exists_in(storage, &file)
            .map_err(state_error(&file, "removing the plan"))?;
    }
    let rendered = directory.join(RENDERED);
    match storage.remove_tree(&rendered) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(state_error(&rendered, "removing it")(error));
        }
        _ => {}
    }
    // The journal is removed last, so an interrupted rollback can continue.
    let path = directory.join(JOURNAL);
    durable::remove_left(storage, &path).map_err(state_error(&path, "removing temporary files"))?;
    storage
        .remove_file(&path)
        .and_then(|()| storage.sync_directory(directory))
        .map_err(state_error(&path, "removing the journal"))
}
