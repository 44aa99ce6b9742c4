// SPDX-License-Identifier: Apache-2.0
//! The partition of this machine: whether one is applied, and the checks that need no interval.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use quietwire_host::apply::applied_plan;
use quietwire_host::verify::{Check, Verdict, static_checks};
use serde::Serialize;

/// Shortest time between two rounds of checks, which read hundreds of files.
const INTERVAL: Duration = Duration::from_secs(10);

/// View of the partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct PartitionView {
    /// True if a partition is applied.
    pub(crate) is_applied: bool,
    /// Number of checks that passed.
    pub(crate) passed: usize,
    /// Checks that failed, and those of which the outcome is unknown.
    pub(crate) open: Vec<Check>,
}

/// Reads the partition.
#[derive(Debug)]
pub(crate) struct PartitionReader {
    root: PathBuf,
    state_directory: PathBuf,
    latest: Mutex<Option<(Instant, PartitionView)>>,
}

impl PartitionReader {
    pub(crate) fn new(root: &Path, state_directory: PathBuf) -> Self {
        Self {
            root: root.to_owned(),
            state_directory,
            latest: Mutex::default(),
        }
    }

    /// Returns the view, which is at most ten seconds old.
    ///
    /// # Errors
    /// Why the applied plan cannot be read.
    pub(crate) fn view(&self) -> Result<PartitionView, String> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((taken, view)) = &*latest
            && taken.elapsed() < INTERVAL
        {
            return Ok(view.clone());
        }
        let plan = applied_plan(&self.state_directory).map_err(|error| error.to_string())?;
        let is_applied = plan.is_some();
        let checks = plan.map(|plan| static_checks(&self.root, &plan));
        let (passed, open): (Vec<Check>, Vec<Check>) = checks
            .unwrap_or_default()
            .into_iter()
            .partition(|check| check.verdict == Verdict::Pass);
        let view = PartitionView {
            is_applied,
            passed: passed.len(),
            open,
        };
        *latest = Some((Instant::now(), view.clone()));
        Ok(view)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::assert_schema;

    #[test]
    fn a_machine_without_a_partition_has_no_checks_and_a_damaged_plan_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let reader = || PartitionReader::new(directory.path(), directory.path().to_owned());
        let view = reader().view().unwrap();
        assert!(!view.is_applied && view.passed == 0 && view.open.is_empty());
        std::fs::write(directory.path().join("plan.json"), "no plan").unwrap();
        assert!(reader().view().is_err());
    }

    #[test]
    fn a_view_has_its_documented_members() {
        let check = |remedy: Option<&str>, commands: &[&str]| Check {
            name: "governor",
            verdict: Verdict::Fail,
            file: "/sys".to_owned(),
            expected: "performance".to_owned(),
            actual: "powersave".to_owned(),
            remedy: remedy.map(str::to_owned),
            commands: commands.iter().map(|&one| one.to_owned()).collect(),
        };
        let view = PartitionView {
            is_applied: true,
            passed: 3,
            open: vec![check(None, &[]), check(Some("apply"), &["quietwire"])],
        };
        assert_schema("Partition", &view);
    }
}
