// SPDX-License-Identifier: Apache-2.0
//! Progress of a study. These queries read indexes and single rows, so that a store with a million trials answers at once.

use quietwire_tester::{Trial, TrialResult};

use super::read::ns;
use super::{Store, StoreError};
use crate::file::{FrameSize, StudyFile};
use crate::methods::StepKind;
use crate::plan::StepPlan;
use crate::results::{CaseEntry, RunEnd};

/// Query for the numbers of trials and of invalid trials.
const COUNTS: &str = "SELECT count(*), count(*) FILTER (WHERE is_valid = 0) FROM trial";
/// Query for the trial that was stored last, with its step.
const LATEST: &str = "SELECT s.case_name, s.frame_size, s.kind_json, t.stored_unix_ns, t.request_json, t.result_json \
     FROM trial t JOIN step s ON s.id = t.step_id WHERE t.id = (SELECT max(id) FROM trial)";
/// Query for the number of finished steps.
const FINISHED: &str = "SELECT count(*) FROM step WHERE is_finished";
#[cfg(test)]
pub(super) const QUERIES: [&str; 2] = [COUNTS, LATEST];

/// State of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyOverview {
    /// Study file.
    pub file: StudyFile,
    /// First start, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// End of the last run; none if it is still active or was killed.
    pub end: Option<RunEnd>,
    /// Finished steps of all rounds.
    pub finished_steps: usize,
    /// Steps of all rounds in the cases that the machine can run.
    pub planned_steps: usize,
    /// Number of trials.
    pub trials: usize,
    /// Invalid trials.
    pub invalid_trials: usize,
    /// The latest trial; none before the first.
    pub latest: Option<LatestTrial>,
}

/// The trial that was stored last.
#[derive(Clone, Debug, PartialEq)]
pub struct LatestTrial {
    /// Case.
    pub case_name: String,
    /// Frame size.
    pub frame_size: FrameSize,
    /// Step.
    pub kind: StepKind,
    /// Time of storing, nanoseconds since the Unix epoch.
    pub stored_unix_ns: u64,
    /// Request.
    pub request: Trial,
    /// Result. Its histograms are empty from schema 3 on.
    pub result: TrialResult,
}

impl Store {
    /// Returns the state of the study without reading its trials.
    ///
    /// # Errors
    /// [`StoreError`]: the store is not readable, or its content is invalid.
    pub fn overview(&self) -> Result<StudyOverview, StoreError> {
        let (file, started_unix_ns) = self.study()?;
        let entries = self.entries()?;
        let (trials, invalid_trials): (i64, i64) = self.ask(|connection| {
            connection.query_row(COUNTS, (), |row| Ok((row.get(0)?, row.get(1)?)))
        })?;
        let finished_steps: i64 =
            self.ask(|connection| connection.query_row(FINISHED, (), |row| row.get(0)))?;
        let (runs, _) = self.runs()?;
        let last = runs.into_iter().next_back();
        Ok(StudyOverview {
            planned_steps: planned_steps(&file, &entries),
            file,
            started_unix_ns,
            end: last.and_then(|run| run.end).map(|(end, _)| end),
            finished_steps: count(finished_steps),
            trials: count(trials),
            invalid_trials: count(invalid_trials),
            latest: self.latest_trial()?,
        })
    }

    fn latest_trial(&self) -> Result<Option<LatestTrial>, StoreError> {
        let rows = self.rows(LATEST, [], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
                row.get::<_, i64>(3)?,
                row.get::<_, String>(4)?,
                row.get::<_, String>(5)?,
            ))
        })?;
        let Some((case_name, frame_size, kind, stored, request, result)) = rows.into_iter().next()
        else {
            return Ok(None);
        };
        Ok(Some(LatestTrial {
            case_name,
            frame_size: self.frame_size(&frame_size)?,
            kind: self.parsed("a step's kind", &kind)?,
            stored_unix_ns: ns(stored),
            request: self.parsed("a trial's request", &request)?,
            result: self.parsed("a trial's result", &result)?,
        }))
    }
}

/// Returns a count of rows. SQLite has no negative ones.
fn count(rows: i64) -> usize {
    usize::try_from(rows).unwrap_or_default()
}

/// Returns the number of steps of all rounds, without those of cases that the machine cannot run.
fn planned_steps(file: &StudyFile, entries: &[CaseEntry]) -> usize {
    let is_available = |name: &str| {
        let mut latest_first = entries.iter().rev();
        let last = latest_first.find(|entry| entry.case_name == name);
        last.is_none_or(|entry| entry.facts.unavailable.is_none())
    };
    let cases = file.cases.iter().filter(|case| is_available(&case.name));
    let steps: usize = cases.map(|case| StepPlan::of_case(file, case).len()).sum();
    let sizes = file.traffic.frame_sizes.len();
    (file.rounds as usize)
        .saturating_mul(sizes)
        .saturating_mul(steps)
}
