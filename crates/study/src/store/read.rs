// SPDX-License-Identifier: Apache-2.0
//! Reading a store, for reports and resumed runs.

use std::collections::HashMap;
use std::path::Path;

use quietwire_tester::{TrialResult, TrialSeries};
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IntoDeserializer};

use super::series::StoredSeries;
use super::write::{APPLICATION, CONDITIONS, CONSOLE, SERIES};
use super::{Store, StoreError, compact, sha256};
use crate::activity::TrialActivity;
use crate::bench::ApplicationResult;
use crate::file::{FrameSize, StudyFile};
use crate::identity::RunIdentity;
use crate::results::{
    ActionRecord, CaseEntry, CaseFacts, ConsoleRecord, MaxRateRecord, RunEnd, RunFacts, RunRecord,
    StepRecord, StudyResults, TrialRecord,
};

/// A stored trial or action, with unparsed documents.
struct Event {
    sequence: u32,
    run: usize,
    stored_unix_ns: u64,
    asked: String,
    observed: String,
    /// Histograms that belong to `observed`; none for actions, and before schema 3, in which they are part of it.
    histograms: Option<Vec<u8>>,
    activity: Activity,
    /// Course of a trial; none for actions, and before schema 8.
    series: Option<Vec<u8>>,
}

/// Stored activity of the machine.
enum Activity {
    /// Text, before schema 3.
    Text(String),
    Packed(Vec<u8>),
}

impl FromSql for Activity {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value {
            ValueRef::Text(_) => String::column_result(value).map(Self::Text),
            _ => Vec::column_result(value).map(Self::Packed),
        }
    }
}

/// The last schema whose trials have no series.
const LAST_WITHOUT_SERIES: i64 = 7;

/// Returns the large columns of a trial and of an action, by the schema of the file.
fn large_columns(schema: i64) -> (&'static str, &'static str) {
    match schema {
        ..3 => ("NULL, activity_json, NULL", "NULL, activity_json, NULL"),
        3..8 => (
            "histograms, activity_zstd, NULL",
            "NULL, activity_zstd, NULL",
        ),
        8.. => (
            "histograms, activity_zstd, (SELECT series_zstd FROM trial_series WHERE trial_id = trial.id)",
            "NULL, activity_zstd, NULL",
        ),
    }
}

/// Returns the query for the trials of a step, by the schema of the file.
pub(super) fn trials_query(schema: i64) -> String {
    let (large, _) = large_columns(schema);
    format!(
        "SELECT sequence, run_id, stored_unix_ns, request_json, result_json, {large} \
         FROM trial WHERE step_id = ? ORDER BY sequence"
    )
}

/// Query for the conditions of the last run that made a trial.
pub(super) const LAST_IDENTITY: &str = "SELECT identity_json FROM run_identity \
     WHERE run_id IN (SELECT run_id FROM trial UNION SELECT run_id FROM action) ORDER BY run_id DESC LIMIT 1";

impl Store {
    /// Checks whether a study can be resumed with a store. A missing or empty store is acceptable: the run creates it. Changes
    /// nothing.
    ///
    /// # Errors
    /// [`StoreError`]: it is not a store, is not readable, or contains results of another study file.
    pub fn check_resumable(path: &Path, text: &str) -> Result<(), StoreError> {
        if !std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
            return Ok(());
        }
        let stored: String = Self::open_to_read(path)?.ask(|connection| {
            connection.query_row("SELECT file_sha256 FROM study", (), |row| row.get(0))
        })?;
        let given = sha256(text);
        if stored == given {
            return Ok(());
        }
        Err(StoreError::OtherStudy {
            path: path.to_owned(),
            stored,
            given,
        })
    }

    /// Checks that the trials of a store were made under these conditions. Stores of earlier versions do not know theirs. Changes nothing.
    ///
    /// # Errors
    /// [`StoreError::OtherConditions`], or the store is not readable.
    pub fn check_conditions(path: &Path, identity: &RunIdentity) -> Result<(), StoreError> {
        if !std::fs::metadata(path).is_ok_and(|meta| meta.len() > 0) {
            return Ok(());
        }
        let differences = Self::open_to_read(path)?.differences(identity)?;
        if differences.is_empty() {
            return Ok(());
        }
        Err(StoreError::OtherConditions {
            path: path.to_owned(),
            differences,
        })
    }

    /// Returns what differs between these conditions and those of the last run that made a trial.
    pub(super) fn differences(&self, identity: &RunIdentity) -> Result<Vec<String>, StoreError> {
        if self.schema < 7 {
            return Ok(Vec::new());
        }
        let earlier = self.rows(LAST_IDENTITY, [], |row| row.get::<_, String>(0))?;
        let Some(text) = earlier.into_iter().next() else {
            return Ok(Vec::new());
        };
        let earlier: RunIdentity = self.parsed(CONDITIONS, &text)?;
        Ok(identity.differences(&earlier))
    }

    /// Returns the whole content of the store.
    ///
    /// # Errors
    /// [`StoreError`]: it is not readable, or its content is invalid.
    pub fn results(&self) -> Result<StudyResults, StoreError> {
        self.results_of(&trials_query(self.schema))
    }

    /// Returns the content of the store without the series of the trials, which are the largest part of many trials.
    ///
    /// # Errors
    /// As [`Self::results`].
    pub fn results_without_series(&self) -> Result<StudyResults, StoreError> {
        self.results_of(&trials_query(self.schema.min(LAST_WITHOUT_SERIES)))
    }

    /// Returns the content of the store, with the trials of a query.
    fn results_of(&self, trials: &str) -> Result<StudyResults, StoreError> {
        let (file_text, file_sha256, started) = self.study_row()?;
        let file = self.study_file(&file_text)?;
        let (runs, run_index) = self.runs()?;
        Ok(StudyResults {
            file,
            file_text,
            file_sha256,
            started_unix_ns: ns(started),
            entries: self.entries()?,
            max_rates: self.max_rates()?,
            steps: self.steps(&run_index, trials)?,
            consoles: self.consoles()?,
            runs,
        })
    }

    /// Returns text and SHA-256 of the study file, and the time of the first start.
    fn study_row(&self) -> Result<(String, String, i64), StoreError> {
        self.ask(|connection| {
            connection.query_row(
                "SELECT file_text, file_sha256, started_unix_ns FROM study",
                (),
                |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)),
            )
        })
    }

    fn study_file(&self, text: &str) -> Result<StudyFile, StoreError> {
        StudyFile::parse_stored(text, self.path())
            .map_err(|error| self.damaged(format!("invalid study file: {error}")))
    }

    /// Returns the study file, and its first start in nanoseconds since the Unix epoch.
    pub(super) fn study(&self) -> Result<(StudyFile, u64), StoreError> {
        let (text, _, started) = self.study_row()?;
        Ok((self.study_file(&text)?, ns(started)))
    }

    /// Returns the trials of one step, in order.
    pub(crate) fn trials_of(&self, step_id: i64) -> Result<Vec<TrialRecord>, StoreError> {
        let (_, run_index) = self.runs()?;
        self.trials(step_id, &run_index, &trials_query(self.schema))
    }

    /// Returns the results of the application measurements of one step, if it finished.
    pub(crate) fn application_of(
        &self,
        step_id: i64,
    ) -> Result<Option<ApplicationResult>, StoreError> {
        let stored = self.rows(
            &format!(
                "SELECT {} FROM step WHERE id = ?",
                self.application_column()
            ),
            [step_id],
            |row| row.get::<_, Option<String>>(0),
        )?;
        self.application(stored.into_iter().next().flatten())
    }

    fn application(&self, stored: Option<String>) -> Result<Option<ApplicationResult>, StoreError> {
        stored
            .map(|text| self.parsed(APPLICATION, &text))
            .transpose()
    }

    /// Returns the column of the application measurements, which is new in schema 4.
    fn application_column(&self) -> &'static str {
        if self.schema < 4 {
            "NULL"
        } else {
            "application_json"
        }
    }

    /// Returns the table of actions, which has another name before schema 6.
    fn actions_table(&self) -> &'static str {
        if self.schema < 6 { "deed" } else { "action" }
    }

    /// Returns the column of the consoles' output, which has another name before schema 6.
    fn console_column(&self) -> &'static str {
        if self.schema < 6 {
            "said_zstd"
        } else {
            "output_zstd"
        }
    }

    /// Returns the actions of one step, in order.
    pub(crate) fn actions_of(&self, step_id: i64) -> Result<Vec<ActionRecord>, StoreError> {
        let (_, run_index) = self.runs()?;
        self.actions(step_id, &run_index)
    }

    fn actions(
        &self,
        step_id: i64,
        run_index: &HashMap<i64, usize>,
    ) -> Result<Vec<ActionRecord>, StoreError> {
        let (_, large) = large_columns(self.schema);
        let rows = self.events(
            &format!(
                "SELECT sequence, run_id, stored_unix_ns, action_json, observation_json, {large} \
                 FROM {} WHERE step_id = ? ORDER BY sequence",
                self.actions_table()
            ),
            step_id,
            run_index,
        )?;
        rows.into_iter()
            .map(|event| {
                Ok(ActionRecord {
                    sequence: event.sequence,
                    run: event.run,
                    stored_unix_ns: event.stored_unix_ns,
                    action: self.parsed("an action of a procedure", &event.asked)?,
                    observation: self.parsed("an observation of a procedure", &event.observed)?,
                    activity: self.activity(event.activity)?,
                })
            })
            .collect()
    }

    fn trials(
        &self,
        step_id: i64,
        run_index: &HashMap<i64, usize>,
        query: &str,
    ) -> Result<Vec<TrialRecord>, StoreError> {
        let rows = self.events(query, step_id, run_index)?;
        rows.into_iter()
            .map(|event| {
                Ok(TrialRecord {
                    sequence: event.sequence,
                    run: event.run,
                    stored_unix_ns: event.stored_unix_ns,
                    request: self.parsed("a trial's request", &event.asked)?,
                    result: TrialResult {
                        series: self.series(event.series)?,
                        ..self.result(&event.observed, event.histograms.as_deref())?
                    },
                    activity: self.activity(event.activity)?,
                })
            })
            .collect()
    }

    /// Returns the events of one step, by a query for the columns of an [`Event`].
    fn events(
        &self,
        question: &str,
        step_id: i64,
        run_index: &HashMap<i64, usize>,
    ) -> Result<Vec<Event>, StoreError> {
        let rows = self.rows(question, [step_id], |row| {
            let run: i64 = row.get(1)?;
            let event = Event {
                sequence: row.get(0)?,
                run: 0,
                stored_unix_ns: ns(row.get(2)?),
                asked: row.get(3)?,
                observed: row.get(4)?,
                histograms: row.get(5)?,
                activity: row.get(6)?,
                series: row.get(7)?,
            };
            Ok((run, event))
        })?;
        rows.into_iter()
            .map(|(run, event)| match run_index.get(&run) {
                Some(run) => Ok(Event { run: *run, ..event }),
                None => Err(self.damaged(format!(
                    "event {} of step {step_id} belongs to run {run}, which is missing",
                    event.sequence
                ))),
            })
            .collect()
    }

    fn result(&self, text: &str, histograms: Option<&[u8]>) -> Result<TrialResult, StoreError> {
        let mut result = self.parsed("a trial's result", text)?;
        if let Some(histograms) = histograms {
            compact::put_back(histograms, &mut result)
                .map_err(|error| self.damaged(format!("invalid histograms of a trial: {error}")))?;
        }
        Ok(result)
    }

    fn series(&self, stored: Option<Vec<u8>>) -> Result<TrialSeries, StoreError> {
        let Some(packed) = stored else {
            return Ok(TrialSeries::default());
        };
        let stored: StoredSeries = self.parsed(SERIES, &self.unpacked(SERIES, &packed)?)?;
        Ok(stored.into())
    }

    fn activity(&self, stored: Activity) -> Result<TrialActivity, StoreError> {
        let what = "the machine's activity";
        let text = match stored {
            Activity::Text(text) => text,
            Activity::Packed(packed) => self.unpacked(what, &packed)?,
        };
        self.parsed(what, &text)
    }

    fn unpacked(&self, what: &str, packed: &[u8]) -> Result<String, StoreError> {
        compact::decompressed(packed)
            .and_then(|plain| String::from_utf8(plain).map_err(|error| error.to_string()))
            .map_err(|error| self.damaged(format!("invalid data for {what}: {error}")))
    }

    /// Returns the consoles, which are new in schema 5.
    fn consoles(&self) -> Result<Vec<ConsoleRecord>, StoreError> {
        if self.schema < 5 {
            return Ok(Vec::new());
        }
        let rows = self.rows(
            &format!(
                "SELECT round, case_name, element, {} FROM console ORDER BY id",
                self.console_column()
            ),
            [],
            |row| {
                Ok((
                    row.get::<_, u32>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, Vec<u8>>(3)?,
                ))
            },
        )?;
        rows.into_iter()
            .map(|(round, case_name, element, output)| {
                Ok(ConsoleRecord {
                    round,
                    case_name,
                    element,
                    output: self.unpacked(CONSOLE, &output)?,
                })
            })
            .collect()
    }

    fn steps(
        &self,
        run_index: &HashMap<i64, usize>,
        trials: &str,
    ) -> Result<Vec<StepRecord>, StoreError> {
        let rows = self.rows(
            &format!(
                "SELECT id, round, case_name, frame_size, kind_json, is_finished, findings_json, procedure_json, {} \
                 FROM step ORDER BY id",
                self.application_column()
            ),
            [],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, u32>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, String>(3)?,
                    row.get::<_, String>(4)?,
                    row.get::<_, bool>(5)?,
                    row.get::<_, Option<String>>(6)?,
                    row.get::<_, Option<String>>(7)?,
                    row.get::<_, Option<String>>(8)?,
                ))
            },
        )?;
        rows.into_iter()
            .map(
                |(
                    id,
                    round,
                    case_name,
                    frame_size,
                    kind,
                    is_finished,
                    findings,
                    procedure,
                    observed,
                )| {
                    Ok(StepRecord {
                        id,
                        round,
                        case_name,
                        frame_size: self.frame_size(&frame_size)?,
                        kind: self.parsed("a step's kind", &kind)?,
                        is_finished,
                        findings: findings
                            .map(|text| self.parsed("the findings of a search", &text))
                            .transpose()?,
                        procedure: procedure
                            .map(|text| self.parsed("the findings of a procedure", &text))
                            .transpose()?,
                        application: self.application(observed)?,
                        actions: self.actions(id, run_index)?,
                        trials: self.trials(id, run_index, trials)?,
                    })
                },
            )
            .collect()
    }

    /// Returns the runs in order, and the index of each row in that list.
    pub(super) fn runs(&self) -> Result<(Vec<RunRecord>, HashMap<i64, usize>), StoreError> {
        let rows = self.rows(
            "SELECT id, started_unix_ns, ended_unix_ns, how_ended, message, machine_json, versions_json \
             FROM run ORDER BY id",
            [],
            |row| {
                Ok((
                    row.get::<_, i64>(0)?,
                    row.get::<_, i64>(1)?,
                    row.get::<_, Option<i64>>(2)?,
                    row.get::<_, Option<String>>(3)?,
                    row.get::<_, Option<String>>(4)?,
                    row.get::<_, String>(5)?,
                    row.get::<_, String>(6)?,
                ))
            },
        )?;
        let mut resumed_despite = self.resumed_despite()?;
        let mut runs = Vec::new();
        let mut index = HashMap::new();
        for (id, started, ended, how, message, machine, versions) in rows {
            if how.is_some() && ended.is_none() {
                return Err(self.damaged(format!("run {id} has ended without a time")));
            }
            let end = match how.as_deref() {
                None => None,
                Some("finished") => Some(RunEnd::Finished),
                Some("interrupted") => Some(RunEnd::Interrupted),
                Some("failed") => Some(RunEnd::Failed(message.unwrap_or_default())),
                Some(other) => return Err(self.damaged(format!("unknown end of a run: '{other}'"))),
            };
            index.insert(id, runs.len());
            runs.push(RunRecord {
                started_unix_ns: ns(started),
                end: end.map(|end| (end, ns(ended.unwrap_or_default()))),
                // Earlier versions may have stored `null`.
                facts: self
                    .parsed::<Option<RunFacts>>("the machine's inventory", &machine)?
                    .unwrap_or_default(),
                machine: self.parsed("the machine's inventory", &machine)?,
                versions: self.parsed("the list of versions", &versions)?,
                resumed_despite: resumed_despite.remove(&id).unwrap_or_default(),
            });
        }
        Ok((runs, index))
    }

    /// Returns the differences that runs were resumed despite of, by the number of the run.
    fn resumed_despite(&self) -> Result<HashMap<i64, Vec<String>>, StoreError> {
        if self.schema < 7 {
            return Ok(HashMap::new());
        }
        let rows = self.rows(
            "SELECT run_id, differences_json FROM run_identity",
            [],
            |row| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?)),
        )?;
        rows.into_iter()
            .map(|(id, text)| Ok((id, self.parsed(CONDITIONS, &text)?)))
            .collect()
    }

    pub(super) fn entries(&self) -> Result<Vec<CaseEntry>, StoreError> {
        let rows = self.rows(
            "SELECT round, case_name, entered_unix_ns, settings_json FROM case_entry ORDER BY id",
            [],
            |row| {
                Ok((
                    row.get::<_, u32>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, i64>(2)?,
                    row.get::<_, String>(3)?,
                ))
            },
        )?;
        rows.into_iter()
            .map(|(round, case_name, entered, settings)| {
                let what = "the settings of a case";
                let settings: serde_json::Value = self.parsed(what, &settings)?;
                let facts = CaseFacts::of(&settings)
                    .map_err(|error| self.damaged(format!("invalid data for {what}: {error}")))?;
                Ok(CaseEntry {
                    round,
                    case_name,
                    entered_unix_ns: ns(entered),
                    settings,
                    facts,
                })
            })
            .collect()
    }

    fn max_rates(&self) -> Result<Vec<MaxRateRecord>, StoreError> {
        // Before schema 4 a rate applies to all cases.
        let case_name = if self.schema < 4 { "''" } else { "case_name" };
        let rows = self.rows(
            &format!("SELECT {case_name}, frame_size, max_rate_pps FROM max_rate ORDER BY rowid"),
            [],
            |row| {
                Ok((
                    row.get::<_, String>(0)?,
                    row.get::<_, String>(1)?,
                    row.get::<_, f64>(2)?,
                ))
            },
        )?;
        rows.into_iter()
            .map(|(case_name, size, rate_pps)| {
                Ok(MaxRateRecord {
                    case_name: Some(case_name).filter(|name| !name.is_empty()),
                    frame_size: self.frame_size(&size)?,
                    rate_pps,
                })
            })
            .collect()
    }

    /// Returns the rows of a query.
    ///
    /// # Errors
    /// [`StoreError::TooLong`] if the store is opened for reading, and more is read from it than its files can contain.
    pub(super) fn rows<T, P: rusqlite::Params>(
        &self,
        query: &str,
        params: P,
        mut read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let found = self.ask(|connection| {
            let mut statement = connection.prepare_cached(query)?;
            let mut rows = statement.query(params)?;
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                if let Some(budget) = &self.budget
                    && !budget.spend(row)?
                {
                    return Ok(None);
                }
                found.push(read(row)?);
            }
            Ok(Some(found))
        })?;
        found.ok_or_else(|| StoreError::TooLong(self.path().to_owned()))
    }

    pub(super) fn frame_size(&self, text: &str) -> Result<FrameSize, StoreError> {
        let read: Result<FrameSize, serde::de::value::Error> = match text.parse::<u16>() {
            Ok(size) => FrameSize::deserialize(size.into_deserializer()),
            Err(_) => FrameSize::deserialize(text.into_deserializer()),
        };
        read.map_err(|error| self.damaged(format!("invalid frame size: {error}")))
    }

    pub(super) fn parsed<T: DeserializeOwned>(
        &self,
        what: &str,
        text: &str,
    ) -> Result<T, StoreError> {
        serde_json::from_str(text)
            .map_err(|error| self.damaged(format!("invalid data for {what}: {error}")))
    }

    fn damaged(&self, reason: String) -> StoreError {
        StoreError::Damaged {
            path: self.path().to_owned(),
            reason,
        }
    }
}

/// Returns the nanoseconds as stored. quietwire writes no negative ones.
pub(super) fn ns(stored: i64) -> u64 {
    u64::try_from(stored).unwrap_or_default()
}
