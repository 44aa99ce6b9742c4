// SPDX-License-Identifier: Apache-2.0
//! Studies in the directory of stores.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use quietwire_base::is_file_name;
use quietwire_report::{Baselines, Report};
use quietwire_study::{RunEnd, Store, StudyOverview};
use serde::Serialize;

/// Ending of the names of stores.
pub(crate) const ENDING: &str = ".sqlite";
/// Most stores that are listed, the first ones by name.
const STORES_MAX: usize = 1000;

/// The list of stores.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StoreList {
    /// Stores by name, at most [`STORES_MAX`].
    pub(crate) studies: Vec<StoreEntry>,
    /// Number of further stores in the directory.
    pub(crate) not_listed: usize,
}

/// A store in the list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StoreEntry {
    /// Name of the file.
    pub(crate) name: String,
    /// Content of the store; none if it cannot be read.
    #[serde(flatten)]
    pub(crate) progress: Option<StoreProgress>,
    /// Why it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
}

/// Progress of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct StoreProgress {
    /// Name of the study.
    pub(crate) study: String,
    /// Its title.
    pub(crate) title: String,
    /// Start, nanoseconds since the Unix epoch.
    pub(crate) started_unix_ns: u64,
    /// `finished`, `interrupted`, `failed`, or `unfinished`: it runs, or was killed.
    pub(crate) state: &'static str,
    /// Steps of all rounds that were finished.
    pub(crate) finished_steps: usize,
    /// Steps of all rounds.
    pub(crate) planned_steps: usize,
    /// Trials.
    pub(crate) trials: usize,
    /// Invalid trials.
    pub(crate) invalid_trials: usize,
    /// The latest trial; none before the first.
    pub(crate) latest: Option<LatestTrial>,
}

/// The latest trial of a study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct LatestTrial {
    /// Case.
    pub(crate) case: String,
    /// Octets with FCS, or `imix`.
    pub(crate) frame_size: String,
    /// Step.
    pub(crate) step: String,
    /// Offered rate, frames per second.
    pub(crate) offered_rate_pps: f64,
    /// Loss ratio, 0 to 1.
    pub(crate) loss_ratio: f64,
    /// Whether the tester worked correctly.
    pub(crate) is_valid: bool,
    /// When it was stored, nanoseconds since the Unix epoch.
    pub(crate) stored_unix_ns: u64,
}

impl StoreProgress {
    fn of(overview: StudyOverview) -> Self {
        Self {
            study: overview.file.name,
            title: overview.file.title,
            started_unix_ns: overview.started_unix_ns,
            state: match overview.end {
                Some(RunEnd::Finished) => "finished",
                Some(RunEnd::Interrupted) => "interrupted",
                Some(RunEnd::Failed(_)) => "failed",
                None => "unfinished",
            },
            finished_steps: overview.finished_steps,
            planned_steps: overview.planned_steps,
            trials: overview.trials,
            invalid_trials: overview.invalid_trials,
            latest: overview.latest.map(|latest| LatestTrial {
                case: latest.case_name,
                frame_size: latest.frame_size.to_string(),
                step: latest.kind.to_string(),
                // A trial without a schedule has no finite rate.
                offered_rate_pps: Some(latest.request.offered_rate_pps)
                    .filter(|rate| rate.is_finite())
                    .unwrap_or(latest.result.achieved_rate_pps),
                loss_ratio: latest.result.loss_ratio,
                is_valid: latest.result.is_valid(),
                stored_unix_ns: latest.stored_unix_ns,
            }),
        }
    }
}

/// Sizes and times of a store's files, which change with its content.
type Stamp = Vec<Option<(u64, SystemTime)>>;

/// The directory of stores.
#[derive(Debug)]
pub(crate) struct Stores {
    directory: PathBuf,
    /// Entries of stores that have not changed since.
    known: Mutex<BTreeMap<String, (Stamp, StoreEntry)>>,
    /// One report is made at a time: it may take seconds and much memory.
    report: Mutex<()>,
}

impl Stores {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self {
            directory,
            known: Mutex::default(),
            report: Mutex::default(),
        }
    }

    /// Returns the directory.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns the path of a store by the name that a client gives; none if the directory has no such file.
    fn path(&self, name: &str) -> Option<PathBuf> {
        if !is_file_name(name) || !name.ends_with(ENDING) {
            return None;
        }
        let path = self.directory.join(name);
        // A link could lead out of the directory.
        let is_file = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_file());
        is_file.then_some(path)
    }

    /// Returns the stores by name.
    ///
    /// # Errors
    /// Why the directory cannot be read.
    pub(crate) fn list(&self) -> Result<StoreList, String> {
        self.first(STORES_MAX)
    }

    fn first(&self, stores_max: usize) -> Result<StoreList, String> {
        let failed = |error| format!("{}: {error}", self.directory.display());
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            let name = name.to_str().filter(|name| self.path(name).is_some());
            names.extend(name.map(str::to_owned));
        }
        names.sort();
        let not_listed = names.len().saturating_sub(stores_max);
        names.truncate(stores_max);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|name, _| names.binary_search(name).is_ok());
        let entry = |name: String| {
            let stamp = self.stamp(&name);
            match known.get(&name) {
                Some((before, entry)) if *before == stamp => entry.clone(),
                _ => {
                    let entry = self.entry(&name);
                    known.insert(name, (stamp, entry.clone()));
                    entry
                }
            }
        };
        Ok(StoreList {
            studies: names.into_iter().map(entry).collect(),
            not_listed,
        })
    }

    fn stamp(&self, name: &str) -> Stamp {
        // SQLite's journal changes first.
        let files = ["", "-wal"].map(|companion| self.directory.join(format!("{name}{companion}")));
        let stamp = |path: PathBuf| {
            let metadata = fs::metadata(path).ok()?;
            Some((metadata.len(), metadata.modified().ok()?))
        };
        files.map(stamp).to_vec()
    }

    fn entry(&self, name: &str) -> StoreEntry {
        let read =
            Store::open_to_read(&self.directory.join(name)).and_then(|store| store.overview());
        let (progress, error) = match read {
            Ok(overview) => (Some(StoreProgress::of(overview)), None),
            Err(error) => (None, Some(error.to_string())),
        };
        StoreEntry {
            name: name.to_owned(),
            progress,
            error,
        }
    }

    /// Returns one store; none if the directory has no such store.
    pub(crate) fn one(&self, name: &str) -> Option<StoreEntry> {
        self.path(name).map(|_| self.entry(name))
    }

    /// Makes something of a store's report; none if the directory has no such store.
    ///
    /// # Errors
    /// Why the store cannot be read.
    pub(crate) fn report<T>(
        &self,
        name: &str,
        make: impl FnOnce(&Report<'_>) -> T,
    ) -> Option<Result<T, String>> {
        let path = self.path(name)?;
        let _one = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        let results = Store::open_to_read(&path).and_then(|store| store.results());
        Some(match results {
            Ok(results) => Report::new(&results, &Baselines::new())
                .map(|report| make(&report))
                .map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;
    use crate::tests::{assert_schema, study};

    #[test]
    fn stores_are_listed_with_their_progress_and_nothing_else_is_reached() {
        let directory = tempfile::tempdir().unwrap();
        let (inside, outside) = (
            directory.path().join("stores"),
            directory.path().join("o.sqlite"),
        );
        fs::create_dir(&inside).unwrap();
        study(&inside.join("a.sqlite"));
        study(&outside);
        fs::write(inside.join("b.sqlite"), "no store").unwrap();
        fs::write(inside.join("c.txt"), "").unwrap();
        symlink(&outside, inside.join("d.sqlite")).unwrap();
        let stores = Stores::new(inside.clone());
        let listed = stores.list().unwrap();
        assert_eq!(listed.not_listed, 0);
        let list = &listed.studies;
        let names: Vec<&str> = list.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["a.sqlite", "b.sqlite"]);
        let progress = list[0].progress.as_ref().unwrap();
        assert_eq!((progress.state, progress.study.as_str()), ("finished", "s"));
        assert_eq!(progress.finished_steps, progress.planned_steps);
        assert!(progress.trials > 3 && progress.latest.as_ref().unwrap().case == "c");
        assert!(list[1].error.is_some() && list[1].progress.is_none());
        list.iter().for_each(|one| assert_schema("StoreEntry", one));
        // The second list is the same, from the entries that are known.
        assert_eq!(stores.list().unwrap(), listed);
        let first = stores.first(1).unwrap();
        assert_eq!((&first.studies[..], first.not_listed), (&list[..1], 1));
        fs::remove_file(inside.join("b.sqlite")).unwrap();
        assert_eq!(stores.list().unwrap().studies.len(), 1);
        for name in [
            "d.sqlite",
            "../o.sqlite",
            "..",
            "",
            "c.txt",
            "/etc/passwd",
            "a.sqlite/",
            "none.sqlite",
        ] {
            assert!(stores.one(name).is_none(), "{name}");
            assert!(stores.report(name, |_| ()).is_none(), "{name}");
        }
        let page = stores
            .report("a.sqlite", |report| report.html())
            .unwrap()
            .unwrap();
        assert!(page.starts_with("<!DOCTYPE html>"));
        assert!(Stores::new(directory.path().join("none")).list().is_err());
    }
}
