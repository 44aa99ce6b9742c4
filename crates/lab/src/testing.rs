// SPDX-License-Identifier: Apache-2.0
//! Helpers of tests: a state directory with a setting that a lab changes, a program of shell scripts, and counts of starts with faults.

use std::fs;
use std::path::{Path, PathBuf};

use quietwire_base::Deadline;
use quietwire_base::storage::{Disk, Storage};
use quietwire_tester::account::ElementCounts;

use crate::element::{ElementContext, Plan, Process};
use crate::error::LabError;
use crate::programs::Forwarder;
use crate::thread::DeviceThread;
use crate::unavailable::Unavailable;
use crate::up::NAMED;

/// A state directory, and a setting that the lab changes.
pub(crate) struct Rig(tempfile::TempDir);

impl Rig {
    pub(crate) fn new() -> Self {
        let rig = Self(tempfile::tempdir().unwrap());
        fs::write(rig.setting(), "1\n").unwrap();
        rig
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    pub(crate) fn setting(&self) -> PathBuf {
        self.0.path().join("setting")
    }

    /// Fails unless nothing of any lab is left.
    pub(crate) fn assert_clean(&self) {
        assert_eq!(fs::read_to_string(self.setting()).unwrap(), "1\n");
        let named = self.state().join(NAMED);
        assert!(!named.exists(), "{:?}", Disk.list(&named));
    }
}

/// A program of shell scripts instead of a forwarding program. Each script starts when the one before it has printed "ready".
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    /// Scripts, with the names of their logs.
    pub(crate) scripts: Vec<(&'static str, String)>,
    /// Command that configures the program; none if empty.
    pub(crate) configure: &'static [&'static str],
    pub(crate) processes: Vec<Process>,
}

fn is_ready(log: &Path) -> Result<(), String> {
    match fs::read_to_string(log) {
        Ok(printed) if printed.contains("ready") => Ok(()),
        Ok(printed) => Err(printed),
        Err(error) => Err(error.to_string()),
    }
}

impl Forwarder for Scripts {
    fn probe(&self) -> Result<String, Unavailable> {
        Ok(String::new())
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for (log, script) in &self.scripts {
            let words = ["sh", "-c", script].map(str::to_owned);
            let process = context.spawn(plan, log, &[], &words)?;
            self.processes.push(process);
            let log = plan.directory.join(log);
            context.wait_until(plan, &mut self.processes, "get ready", || is_ready(&log))?;
        }
        Ok(())
    }

    fn program(&mut self, _plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        match self.configure {
            [] => Ok(()),
            words => context.run(words).map(drop),
        }
    }

    fn frames(&self, _plan: &Plan, _deadline: Deadline) -> Result<ElementCounts, String> {
        Err("a script counts none".to_owned())
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, _plan: &Plan) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut self.processes
    }
}

/// Outcomes of starts of several processes, some of which fail.
#[derive(Debug, Default)]
pub(crate) struct StartOutcomes {
    /// All processes run.
    pub(crate) complete: u64,
    /// Some have died, and are reported.
    pub(crate) damaged: u64,
    /// The start failed, and nothing is left.
    pub(crate) refused: u64,
}

impl StartOutcomes {
    /// Counts a start of which some process has died, or none.
    pub(crate) fn count_started(&mut self, has_died: bool) {
        match has_died {
            true => self.damaged += 1,
            false => self.complete += 1,
        }
    }

    /// Prints the counts, and fails if one of them is too small for this number of seeds. Fewer seeds than those of `make test` prove
    /// nothing.
    pub(crate) fn check(&self, seeds: u64, of_tests: u64) {
        println!("{seeds} seeds: {self:?}");
        if seeds >= of_tests {
            assert!(self.complete.min(self.refused) > seeds / 10, "{self:?}");
            assert!(self.damaged > 0, "{self:?}");
        }
    }
}
