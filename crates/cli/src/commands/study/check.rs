// SPDX-License-Identifier: Apache-2.0
//! What is checked before anything is set up, by a run and by `--dry-run` alike.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use quietwire_lab::LabOptions;
use quietwire_study::{GeneratorBench, LabBench, RunIdentity, Store, StoreError, StudyFile};

use crate::commands::chosen_tester::ChosenTester;
use crate::exit::Usage;

/// What a run is asked for.
pub(super) struct Wanted<'a> {
    pub(super) store: Option<&'a PathBuf>,
    pub(super) html: Option<&'a PathBuf>,
    pub(super) resume: bool,
    /// Resume under other conditions.
    pub(super) anyway: bool,
    pub(super) fresh: bool,
    pub(super) tester: Option<&'a ChosenTester>,
}

/// Where a run writes.
pub(super) struct Places {
    pub(super) store: PathBuf,
    pub(super) html: PathBuf,
}

/// Refuses whatever cannot end well. Changes nothing.
pub(super) fn run(
    wanted: &Wanted<'_>,
    file: &StudyFile,
    text: &str,
    options: &LabOptions,
) -> Result<Places> {
    let store = wanted
        .store
        .cloned()
        .unwrap_or_else(|| PathBuf::from(format!("{}.sqlite", file.name)));
    let html = wanted
        .html
        .cloned()
        .unwrap_or_else(|| store.with_extension("html"));
    if !wanted.resume && !wanted.fresh && store.is_file() {
        return Err(StoreError::Exists(store).into());
    }
    check_place("--store", &store)?;
    check_place("--html", &html)?;
    if wanted.resume {
        Store::check_resumable(&store, text)?;
        if !wanted.anyway {
            Store::check_conditions(&store, &conditions(wanted.tester)?)?;
        }
    }
    match wanted.tester {
        Some(tester) => GeneratorBench::check(file, tester.is_simulated())?,
        None => LabBench::check(file, options)?,
    }
    Ok(Places { store, html })
}

/// Returns what the figures of a run depend on beside its study file.
pub(super) fn conditions(tester: Option<&ChosenTester>) -> Result<RunIdentity> {
    let identity = match tester {
        None => RunIdentity::of_lab(),
        Some(tester) => RunIdentity::of_generator(&tester.open(0)?.identity()?),
    };
    identity.context("cannot read this program's file, whose hash a store contains")
}

/// Least room for a file, octets. A page is larger, and so is a store.
const ROOM: usize = 64 << 10;

/// Refuses a path at which no file can be written. Directories that are not there are no hindrance: they are made.
pub(in crate::commands) fn check_place(option: &str, path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!(Usage(format!(
            "{option} {}: that is a directory; give the path of a file in it",
            path.display()
        )));
    }
    if path.exists() && !path.is_file() {
        // Opening a pipe would wait for its reader.
        bail!(Usage(format!(
            "{option} {}: that is a device, a pipe or a socket; give the path of a file",
            path.display()
        )));
    }
    let above = path.ancestors().skip(1);
    // The path of a file in the current directory ends with an empty one above.
    let above = above.map(|directory| match directory.as_os_str().is_empty() {
        true => Path::new("."),
        false => directory,
    });
    let nearest = above.into_iter().find(|directory| directory.exists());
    let nearest = nearest.unwrap_or(Path::new("."));
    if !nearest.is_dir() {
        bail!(Usage(format!(
            "{option} {}: {} is not a directory; give another path",
            path.display(),
            nearest.display()
        )));
    }
    let writable = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => Ok(()),
    };
    // A full disk accepts new files, but no contents. Pages are written beside their places first.
    let room = || {
        let mut file = tempfile::tempfile_in(nearest)?;
        file.write_all(&[0; ROOM])?;
        file.sync_all()
    };
    writable.and_then(|()| room()).or_else(|error| {
        bail!(Usage(format!(
            "{option} {}: cannot be written ({error}); give another path",
            path.display()
        )))
    })
}
