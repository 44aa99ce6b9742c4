// SPDX-License-Identifier: Apache-2.0
//! Undoes the leftovers of labs whose processes have ended.

use std::io;
use std::path::{Path, PathBuf};

use quietwire_base::storage::{Disk, Storage};
use quietwire_base::{LockFile, LockOwner};
use quietwire_host::journal::{Change, UndoOutcome};
use serde::Serialize;

use crate::error::{LabError, io_error};
use crate::isolation::{running_machine, take_back_left};
use crate::state_directory::{
    DAMAGED, LAB_JOURNAL, LAB_PREFIX, MARKER, ending_in, journals, lock, lock_path, undo_journal,
    undo_own_journal,
};
use crate::up::{NAMED, clean_named};

/// Outcome of `lab clean`.
#[derive(Debug, Default, Serialize)]
pub struct CleanReport {
    /// Owner of a running lab, which is left alone.
    pub busy: Option<LockOwner>,
    /// Named labs that are running, which are left alone.
    pub up: Vec<String>,
    /// Indexes of interfaces whose XDP programs killed switches and testers had left.
    pub xdp_interfaces: Vec<u32>,
    /// Indexes of interfaces with flow rules of their cards that killed switches had left. They are removed.
    pub flow_rules: Vec<u32>,
    /// Interfaces of veth ports that killed switches and testers had left: their near ends. Each was removed with its other end.
    pub veth_pairs: Vec<String>,
    /// PCI addresses of virtual functions whose settings killed switches and testers had left changed, or that they had created. The settings
    /// are restored, and created functions are deleted.
    pub virtual_functions: Vec<String>,
    /// Indexes of interfaces, each in its network namespace, whose features for VLAN tags killed switches and testers had left switched off.
    /// They are switched on.
    pub tag_features: Vec<u32>,
    /// Paths of runtime directories of DPDK that killed switches and testers had left. They are removed.
    pub runtime_directories: Vec<PathBuf>,
    /// Every change with the outcome of undoing it.
    pub undone: Vec<(Change, UndoOutcome)>,
}

impl CleanReport {
    /// Changes that could not be undone.
    pub fn failures(&self) -> impl Iterator<Item = &(Change, UndoOutcome)> {
        self.undone.iter().filter(|(_, outcome)| outcome.is_left())
    }
}

/// Undoes the leftovers of labs below `state_directory` whose processes have ended, and removes XDP programs, flow rules of cards and veth
/// pairs, and restores settings of virtual functions and features for VLAN tags, that killed switches and testers have left in this network
/// namespace. Also removes their runtime directories of DPDK. A running lab is left alone.
///
/// # Errors
/// A journal or directory that cannot be read.
pub fn clean(state_directory: &Path) -> Result<CleanReport, LabError> {
    let xdp_interfaces = quietwire_dpdk::remove_left_xdp_programs();
    let flow_rules = quietwire_dpdk::remove_left_flow_rules();
    let veth_pairs = quietwire_dpdk::remove_left_veth_pairs();
    let virtual_functions = quietwire_dpdk::restore_left_functions();
    let tag_features = quietwire_dpdk::restore_left_tag_features();
    let runtime_directories = quietwire_dpdk::remove_left_runtime_directories();
    Ok(CleanReport {
        xdp_interfaces,
        flow_rules,
        veth_pairs,
        virtual_functions,
        tag_features,
        runtime_directories,
        ..clean_in(&Disk, state_directory)?
    })
}

fn clean_in(storage: &dyn Storage, state_directory: &Path) -> Result<CleanReport, LabError> {
    // A directory that cannot be read may exist: to users other than root it may look missing.
    match storage.metadata(state_directory) {
        Ok(meta) if meta.is_dir() => {}
        Ok(_) => return Err(LabError::NoDirectory(state_directory.to_owned())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(CleanReport::default());
        }
        Err(error) => {
            return Err(io_error(
                state_directory,
                "searching for changes of killed labs",
            )(error));
        }
    }
    let (undone, up) = clean_named(storage, state_directory)?;
    let mut report = match lock(state_directory) {
        Ok(held) => leftovers(storage, state_directory, &held)?,
        Err(LabError::Busy { owner }) => CleanReport {
            busy: Some(owner),
            ..CleanReport::default()
        },
        Err(error) => return Err(error),
    };
    report.undone.extend(undone);
    report.up = up;
    Ok(report)
}

/// Returns the state of killed labs. With the lock held, no lab is running, so all state there is of killed ones.
pub(crate) fn leftovers(
    storage: &dyn Storage,
    state_directory: &Path,
    _held: &LockFile,
) -> Result<CleanReport, LabError> {
    let mut report = CleanReport::default();
    let mut unreadable = None;
    let names = storage
        .list(state_directory)
        .map_err(io_error(state_directory, "listing it"))?;
    for name in names {
        let path = state_directory.join(name);
        if is_lab(&path) && path.is_dir() {
            match clean_one(storage, &path) {
                Ok(undone) => report.undone.extend(undone),
                // The others are undone nevertheless.
                Err(error) => {
                    tracing::error!("{error}");
                    unreadable = Some(error);
                }
            }
        } else if path != lock_path(state_directory)
            && !path.ends_with(NAMED)
            && !path.to_string_lossy().contains(DAMAGED)
        {
            tracing::warn!("{} is not a file of a lab: left unchanged", path.display());
        }
    }
    unreadable.map_or(Ok(report), Err)
}

/// Returns true for a directory that a lab made: a wrong state directory must lose nothing.
fn is_lab(directory: &Path) -> bool {
    directory
        .file_name()
        .and_then(|name| name.to_str()?.strip_prefix(LAB_PREFIX)?.parse::<u32>().ok())
        .is_some()
}

/// Undoes the journals of one lab, the latest case first, its own journal last.
fn clean_one(
    storage: &dyn Storage,
    directory: &Path,
) -> Result<Vec<(Change, UndoOutcome)>, LabError> {
    let mut cases = journals(storage, directory).map_err(io_error(directory, "listing it"))?;
    cases.retain(|path| !path.ends_with(LAB_JOURNAL));
    cases.sort();
    let mut undone = Vec::new();
    for path in cases.iter().rev() {
        undone.extend(undo_journal(storage, path)?);
    }
    let markers =
        || ending_in(storage, directory, MARKER).map_err(io_error(directory, "listing it"));
    for marker in markers()? {
        undone.extend(take_back_left(&running_machine(), &marker)?);
    }
    let own = directory.join(LAB_JOURNAL);
    let left = journals(storage, directory).map_err(io_error(directory, "listing it"))?;
    if left.contains(&own) {
        undone.extend(undo_own_journal(storage, &own)?);
    } else if left.is_empty() && markers()?.is_empty() {
        // The lab was killed before it made its journal, or after it had undone all: only this directory is left.
        storage
            .remove_tree(directory)
            .map_err(io_error(directory, "removing it"))?;
        let path = directory.to_owned();
        undone.push((Change::DirectoryCreated { path }, UndoOutcome::Restored));
    }
    Ok(undone)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use quietwire_base::faults::{Faults, Injected, Random, When, run_process, run_seeds};

    use quietwire_host::journal::Journal;
    use quietwire_host::settings;

    use super::*;
    use crate::state_directory::judge;

    /// Creates the state of a lab whose process has ended: one case that made a directory, one setting of the lab.
    fn left_over(state: &Path) -> PathBuf {
        let directory = state.join("lab-1");
        fs::create_dir_all(directory.join("case-0001")).unwrap();
        fs::write(state.join("setting"), "1\n").unwrap();
        let made = |path: &Path| Change::DirectoryCreated {
            path: path.to_owned(),
        };
        let mut own = Journal::open(&directory.join(LAB_JOURNAL)).unwrap();
        own.record(&made(&directory)).unwrap();
        settings::write(&mut own, &state.join("setting"), "2").unwrap();
        let mut case = Journal::open(&directory.join("case-0001.jsonl")).unwrap();
        case.record(&made(&directory.join("case-0001"))).unwrap();
        directory
    }

    #[test]
    fn changes_of_killed_labs_are_undone_once() {
        let state = tempfile::tempdir().unwrap();
        let directory = left_over(state.path());
        // A lab that was killed before it wrote its first line.
        fs::create_dir(state.path().join("lab-2")).unwrap();
        // Not a lab's directory.
        let other = state.path().join("lab-notes");
        fs::create_dir(&other).unwrap();
        let report = clean(state.path()).unwrap();
        assert_eq!(report.undone.len(), 4, "{report:?}");
        assert_eq!(report.failures().count(), 0);
        assert!(!directory.exists() && !state.path().join("lab-2").exists());
        let setting = fs::read_to_string(state.path().join("setting")).unwrap();
        assert_eq!(setting, "1\n");
        assert!(clean(state.path()).unwrap().undone.is_empty());
        assert!(other.exists());
    }

    #[test]
    fn journals_stay_until_everything_is_undone() {
        let state = tempfile::tempdir().unwrap();
        let directory = left_over(state.path());
        // Not a file any more: its former contents are unknown.
        let setting = state.path().join("setting");
        fs::remove_file(&setting).unwrap();
        fs::create_dir(&setting).unwrap();
        let report = clean(state.path()).unwrap();
        assert_eq!(report.failures().count(), 2, "{report:?}");
        assert!(directory.join(LAB_JOURNAL).exists());
        fs::remove_dir(&setting).unwrap();
        fs::write(&setting, "2\n").unwrap();
        assert_eq!(clean(state.path()).unwrap().failures().count(), 0);
        assert_eq!(fs::read_to_string(&setting).unwrap(), "1\n");
        assert!(!directory.exists());
    }

    #[test]
    fn a_damaged_line_is_reported_once_and_everything_else_is_undone() {
        let state = tempfile::tempdir().unwrap();
        let directory = left_over(state.path());
        // The lines of the lab's directory, of its setting, and of its case's directory.
        for (journal, line) in [(LAB_JOURNAL, 0), ("case-0001.jsonl", 0)] {
            let path = directory.join(journal);
            let text = fs::read_to_string(&path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines[line] = lines[line]
                .replace("made", "lost")
                .replace("created", "creates");
            fs::write(&path, lines.join("\n") + "\n").unwrap();
        }
        // A journal without a single intact line.
        let damaged = state.path().join("lab-0");
        fs::create_dir(&damaged).unwrap();
        fs::write(damaged.join(LAB_JOURNAL), "nonsense\n").unwrap();
        let report = clean(state.path()).unwrap();
        let unreadable: Vec<String> = report
            .failures()
            .map(|(change, outcome)| format!("{change}: {outcome}"))
            .collect();
        assert_eq!(unreadable.len(), 3, "{report:?}");
        for (line, name) in unreadable
            .iter()
            .zip(["lab-0.lab", "lab-1.case-0001", "lab-1.lab"])
        {
            let kept = state.path().join(format!("{name}.damaged"));
            assert!(
                unreadable
                    .iter()
                    .any(|line| line.contains(kept.to_str().unwrap())),
                "{line}"
            );
            assert!(kept.exists());
        }
        let setting = fs::read_to_string(state.path().join("setting")).unwrap();
        assert_eq!(setting, "1\n");
        assert!(!directory.exists() && !damaged.exists());
        // Nothing is left to do.
        assert!(clean(state.path()).unwrap().undone.is_empty());
    }

    /// Runs a lab with one case, from its start to its end.
    fn run_lab(storage: &dyn Storage, state: &Path) -> Result<(), LabError> {
        let _held = lock(state)?;
        let directory = state.join("lab-1");
        let case = directory.join("case-0001");
        let (own, of_case) = (directory.join(LAB_JOURNAL), case.with_extension("jsonl"));
        let made = |path: &Path| Change::DirectoryCreated {
            path: path.to_owned(),
        };
        let up = || -> io::Result<()> {
            storage.make_directories(&directory, 0o700)?;
            let mut journal = Journal::open_in(storage, &own)?;
            journal.record(&made(&directory))?;
            settings::write(&mut journal, &state.join("setting"), "2")?;
            let mut journal = Journal::open_in(storage, &of_case)?;
            journal.record(&made(&case))?;
            storage.make_directories(&case, 0o700)?;
            fs::write(case.join("log"), "text")
        };
        up().map_err(io_error(&directory, "filling"))?;
        undo_journal(storage, &of_case)?;
        judge(undo_own_journal(storage, &own)?)
    }

    #[test]
    fn after_any_fault_a_lab_with_cases_can_be_cleaned() {
        let counting = Faults::new(When::Never, None, Random::new(0));
        let rig = || {
            let state = tempfile::tempdir().unwrap();
            fs::write(state.path().join("setting"), "1\n").unwrap();
            state
        };
        run_lab(&counting, rig().path()).unwrap();
        let operations = counting.count();
        let mut killed = 0;
        let seeds = run_seeds(
            1000,
            "quietwire-lab",
            "clean::tests::after_any_fault",
            |seed| {
                let mut random = Random::new(seed);
                let state = rig();
                for _ in 0..=random.below(3) {
                    let at = random.below(operations);
                    let full = Some(Injected::Refused(nix::errno::Errno::ENOSPC));
                    let (when, what) = match random.below(4) {
                        0..2 => (When::Once(at), None),
                        2 => (When::FromOnChanges(at), full),
                        _ => (When::OneIn(20), None),
                    };
                    let faults = Faults::new(when, what, Random::new(random.below(u64::MAX)));
                    let is_start = random.below(3) > 0 && !state.path().join("lab-1").exists();
                    let is_over = run_process(|| match is_start {
                        true => run_lab(&faults, state.path()).is_ok(),
                        false => clean_in(&faults, state.path())
                            .is_ok_and(|report| report.failures().count() == 0),
                    });
                    killed += u64::from(is_over.is_none());
                    if is_over == Some(true) {
                        assert!(!state.path().join("lab-1").exists());
                    }
                }
                let report = clean(state.path()).unwrap();
                assert_eq!(report.failures().count(), 0, "{report:?}");
                let setting = fs::read_to_string(state.path().join("setting")).unwrap();
                assert_eq!(setting, "1\n");
                let mut left = Disk.list(state.path()).unwrap();
                left.retain(|name| name != "lock");
                assert_eq!(left, ["setting"]);
            },
        );
        assert!(seeds < 1000 || killed > 100, "{killed}");
    }

    #[test]
    fn a_lab_that_is_up_is_left_alone() {
        let state = tempfile::tempdir().unwrap();
        let directory = left_over(state.path());
        let held = lock(state.path()).unwrap();
        let report = clean(state.path()).unwrap();
        let own = i32::try_from(std::process::id()).ok();
        assert_eq!(report.busy.and_then(LockOwner::pid), own);
        assert!(report.undone.is_empty() && directory.exists());
        drop(held);
        assert_eq!(clean(state.path()).unwrap().busy, None);
        assert!(!directory.exists());
        assert!(clean(&state.path().join("none")).unwrap().undone.is_empty());
        fs::write(state.path().join("file"), "").unwrap();
        let error = clean(&state.path().join("file")).unwrap_err();
        assert_eq!(error.fault(), quietwire_base::Fault::BadInput, "{error}");
    }
}
