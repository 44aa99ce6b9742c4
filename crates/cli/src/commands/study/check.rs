// SPDX-License-Identifier: Apache-2.0
//! What is checked before anything is set up, by a run and by `--dry-run` alike.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use quietwire_lab::LabOptions;
use quietwire_study::{GeneratorBench, LabBench, Store, StoreError, StudyFile};

use crate::commands::chosen_tester::ChosenTester;
use crate::exit::Usage;

/// What a run is asked for.
pub(super) struct Wanted<'a> {
    pub(super) store: Option<&'a PathBuf>,
    pub(super) html: Option<&'a PathBuf>,
    pub(super) resume: bool,
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
    }
    match wanted.tester {
        Some(tester) => GeneratorBench::check(file, tester.is_simulated())?,
        None => LabBench::check(file, options)?,
    }
    Ok(Places { store, html })
}

/// Refuses a path at which no file can be written. Directories that are not there are no hindrance: they are made.
pub(in crate::commands) fn check_place(option: &str, path: &Path) -> Result<()> {
    if path.is_dir() {
        bail!(Usage(format!(
            "{option} {}: that is a directory; give the path of a file in it",
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
    let written = match path.exists() {
        true => OpenOptions::new().append(true).open(path).map(drop),
        false => tempfile::tempfile_in(nearest).map(drop),
    };
    written.or_else(|error| {
        bail!(Usage(format!(
            "{option} {}: cannot be written ({error}); give another path",
            path.display()
        )))
    })
}
