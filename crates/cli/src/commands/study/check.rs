// SPDX-License-Identifier: Apache-2.0
//! Checks before anything is set up, by a run and by `--dry-run` alike.

use std::path::PathBuf;

use anyhow::{Context, Result};
use quietwire_lab::LabOptions;
use quietwire_study::{GeneratorBench, LabBench, RunIdentity, Store, StoreError, StudyFile};

use crate::commands::chosen_tester::ChosenTester;
use crate::output::check_place;

/// Options of a run.
pub(super) struct RunRequest<'a> {
    pub(super) store: Option<&'a PathBuf>,
    pub(super) html: Option<&'a PathBuf>,
    pub(super) resume: bool,
    /// Resume under other conditions.
    pub(super) anyway: bool,
    pub(super) fresh: bool,
    pub(super) tester: Option<&'a ChosenTester>,
}

/// Output paths of a run.
pub(super) struct OutputPaths {
    pub(super) store: PathBuf,
    pub(super) html: PathBuf,
}

/// Refuses requests that cannot succeed. Changes nothing.
pub(super) fn run(
    wanted: &RunRequest<'_>,
    file: &StudyFile,
    text: &str,
    options: &LabOptions,
) -> Result<OutputPaths> {
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
    if wanted.resume && !store.exists() {
        return Err(StoreError::NothingToResume(store).into());
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
    Ok(OutputPaths { store, html })
}

/// Returns the conditions, besides the study file, on which the figures of a run depend.
pub(super) fn conditions(tester: Option<&ChosenTester>) -> Result<RunIdentity> {
    let identity = match tester {
        None => RunIdentity::of_lab(),
        Some(tester) => RunIdentity::of_generator(&tester.open(0)?.identity()?),
    };
    identity.context("cannot read this program's file, whose hash a store contains")
}
