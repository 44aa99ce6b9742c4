// SPDX-License-Identifier: Apache-2.0
//! Verdicts about objectives: their options, files and exit code.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use quietwire_report::{Baselines, Summary, badge, junit};
use quietwire_study::{Store, StoreError, StudyFile, StudyResults, Verdict};

use crate::exit::{CheckFailed, Usage};
use crate::output::{check_place, make_parent, write_file};
use crate::text::say;

/// Options of verdicts, which a run and a report share.
#[derive(Debug, Args)]
pub(super) struct VerdictArgs {
    /// Exit with code 0 if the results do not decide an objective.
    #[arg(long)]
    allow_unknown: bool,
    /// Store of an earlier study, instead of the baselines that objectives name.
    #[arg(long, value_name = "STORE")]
    baseline: Option<PathBuf>,
    /// Write the verdicts as JUnit XML.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write the verdicts as a badge (SVG).
    #[arg(long, value_name = "FILE")]
    badge: Option<PathBuf>,
}

impl VerdictArgs {
    /// Refuses paths that cannot be written.
    pub(super) fn check_places(&self) -> Result<()> {
        for (option, path) in self.files() {
            check_place(option, path)?;
        }
        Ok(())
    }

    /// Refuses a baseline that no objective uses.
    pub(super) fn check_baseline(&self, file: &StudyFile) -> Result<()> {
        let mut objectives = file.objectives.iter();
        if self.baseline.is_some() && !objectives.any(|it| it.baseline.is_some()) {
            bail!(Usage(
                "--baseline: no objective of the study refers to a baseline (add baseline to an [[objective]], or remove the option)"
                    .to_owned()
            ));
        }
        Ok(())
    }

    fn files(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        let all = [("--junit", &self.junit), ("--badge", &self.badge)];
        all.into_iter()
            .filter_map(|(option, path)| Some((option, path.as_deref()?)))
    }

    /// Reads the baselines of a study that is about to run.
    ///
    /// # Errors
    /// A store that cannot be read.
    pub(super) fn required_baselines(&self, file: &StudyFile) -> Result<Baselines> {
        let read = self.read_baselines(file);
        read.map(|(name, results)| Ok((name, Ok(results?))))
            .collect()
    }

    /// Reads the baselines of a study. A store that cannot be read leaves its objectives undecided.
    pub(super) fn baselines(&self, file: &StudyFile) -> Baselines {
        let text = |error| format!("the baseline cannot be read: {error}");
        let read = self.read_baselines(file);
        read.map(|(name, results)| (name, results.map_err(text)))
            .collect()
    }

    /// Reads the store of each baseline once. Returns the results with the path in the study file.
    fn read_baselines(
        &self,
        file: &StudyFile,
    ) -> impl Iterator<Item = (PathBuf, Result<StudyResults, StoreError>)> {
        let objectives = file.objectives.iter();
        let named: BTreeSet<&PathBuf> = objectives.filter_map(|it| it.baseline.as_ref()).collect();
        named.into_iter().map(|name| {
            let store = self.baseline.as_ref().unwrap_or(name);
            let results =
                Store::open_to_read(store).and_then(|store| store.results_without_series());
            (name.clone(), results)
        })
    }

    /// Writes the files.
    pub(super) fn write(&self, summary: &Summary) -> Result<()> {
        for (option, path) in self.files() {
            let text = match option {
                "--junit" => junit(summary, self.allow_unknown),
                _ => badge(summary),
            };
            make_parent(option, path)?;
            write_file(option, path, text)?;
            say(format!(
                "{}: {}",
                option.trim_start_matches('-'),
                path.display()
            ));
        }
        Ok(())
    }

    /// Fails if an objective is not met or, unless that is allowed, undecided. A shortened study is not judged.
    pub(super) fn conclude(&self, summary: &Summary) -> Result<()> {
        if summary.is_quick {
            return Ok(());
        }
        let names = |verdict: Verdict| -> Vec<&str> {
            let those = summary.objectives_with(verdict);
            those.map(|one| one.name.as_str()).collect()
        };
        let mut parts = Vec::new();
        let failed = names(Verdict::Fail);
        if !failed.is_empty() {
            parts.push(format!("not met: {}", failed.join("; ")));
        }
        let open = names(Verdict::Unknown);
        if !open.is_empty() && !self.allow_unknown {
            parts.push(format!(
                "undecided: {} (the reasons are above; --allow-unknown accepts them)",
                open.join("; ")
            ));
        }
        if parts.is_empty() {
            return Ok(());
        }
        bail!(CheckFailed(format!(
            "objectives {}",
            parts.join(". Objectives ")
        )))
    }
}
