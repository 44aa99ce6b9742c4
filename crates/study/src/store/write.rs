// SPDX-License-Identifier: Apache-2.0
//! Writing a store.

use quietwire_search::procedure::{Action, Observation, ProcedureResult};
use quietwire_tester::{Trial, TrialResult, TrialSeries};
use rusqlite::OptionalExtension;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::series::StoredSeries;
use super::{Store, StoreError, compact, unix_ns};
use crate::activity::TrialActivity;
use crate::bench::{CaseSkipped, Measured};
use crate::case_settings::{CaseLeftOut, CaseSettings, Environment};
use crate::file::FrameSize;
use crate::identity::RunIdentity;
use crate::methods::{Found, StepKind};
use crate::results::RunEnd;

/// Name in errors.
pub(super) const APPLICATION: &str = "the application measurements";

/// Name in errors.
pub(super) const CONSOLE: &str = "a guest's console output";

/// Name in errors.
pub(super) const SERIES: &str = "the course of a trial";

/// Returns the text to store for a value. It is parsed again to check that it gives the same value.
fn json<T: Serialize + DeserializeOwned + PartialEq>(
    what: &'static str,
    value: &T,
) -> Result<String, StoreError> {
    let cannot = |reason: String| StoreError::CannotStore { what, reason };
    let text = serde_json::to_string(value).map_err(|error| cannot(error.to_string()))?;
    match serde_json::from_str::<T>(&text) {
        Ok(read) if read == *value => Ok(text),
        Ok(_) => Err(cannot(
            "it would be read back as a different value".to_owned(),
        )),
        Err(error) => Err(cannot(format!("it cannot be read back: {error}"))),
    }
}

/// Returns the text to store for a record that is only shown later, with sorted keys.
fn record(what: &'static str, record: &impl Serialize) -> Result<String, StoreError> {
    let record: Value = serde_json::to_value(record).map_err(|error| StoreError::CannotStore {
        what,
        reason: error.to_string(),
    })?;
    json(what, &record)
}

/// Returns the stored form of the machine's activity.
fn packed_activity(activity: &TrialActivity) -> Result<Vec<u8>, StoreError> {
    let what = "the machine's activity";
    packed_text(what, &json(what, activity)?)
}

/// Returns a text, compressed.
pub(super) fn packed_text(what: &'static str, text: &str) -> Result<Vec<u8>, StoreError> {
    compact::compressed(text.as_bytes()).map_err(|reason| StoreError::CannotStore { what, reason })
}

/// Returns the stored form of a result: the text without the histograms, and the histograms. Both are checked to restore the
/// same result.
pub(super) fn split_result(result: &TrialResult) -> Result<(String, Vec<u8>), StoreError> {
    let what = "a trial's result";
    let cannot = |reason: String| StoreError::CannotStore { what, reason };
    let mut bare = result.clone();
    // The series is stored apart.
    bare.series = TrialSeries::default();
    // Each part checks that the same is read back.
    let histograms = compact::take_out(&mut bare).map_err(cannot)?;
    Ok((json(what, &bare)?, histograms))
}

/// Returns the stored form of a trial's course; none without points.
fn packed_series(series: &TrialSeries) -> Result<Option<Vec<u8>>, StoreError> {
    if series.is_empty() {
        return Ok(None);
    }
    packed_text(SERIES, &json(SERIES, &StoredSeries::from(series))?).map(Some)
}

/// Name in errors.
pub(super) const CONDITIONS: &str = "the conditions of a run";

impl Store {
    /// Sets the conditions of the next run, which are stored with it. With `despite`, they may differ from those of earlier runs; the
    /// differences are stored as well.
    ///
    /// # Errors
    /// [`StoreError::OtherConditions`], or the store is not readable.
    pub fn set_conditions(
        &mut self,
        identity: RunIdentity,
        despite: bool,
    ) -> Result<(), StoreError> {
        let differences = self.differences(&identity)?;
        if !despite && !differences.is_empty() {
            return Err(StoreError::OtherConditions {
                path: self.path.clone(),
                differences,
            });
        }
        self.conditions = Some((identity, differences));
        Ok(())
    }

    /// Records the start of a run. Trials stored from here on belong to it.
    pub(crate) fn begin_run(&mut self, environment: &Environment) -> Result<(), StoreError> {
        let machine = record("the machine's inventory", &environment.machine)?;
        let versions = record("the list of versions", &environment.versions)?;
        let conditions = self.conditions.as_ref().map(|(identity, differences)| {
            let (what, differences) = (CONDITIONS, json(CONDITIONS, differences)?);
            Ok::<_, StoreError>((json(what, identity)?, differences))
        });
        let conditions = conditions.transpose()?;
        let id = self.write(|transaction| {
            transaction.execute(
                "INSERT INTO run (started_unix_ns, machine_json, versions_json) VALUES (?, ?, ?)",
                (unix_ns(), machine, versions),
            )?;
            let id = transaction.last_insert_rowid();
            if let Some((identity, differences)) = conditions {
                transaction.execute(
                    "INSERT INTO run_identity (run_id, identity_json, differences_json) VALUES (?, ?, ?)",
                    (id, identity, differences),
                )?;
            }
            Ok(id)
        })?;
        self.run_id = Some(id);
        Ok(())
    }

    /// Records the end of the run.
    pub(crate) fn end_run(&mut self, end: &RunEnd) -> Result<(), StoreError> {
        let (how, message) = match end {
            RunEnd::Finished => ("finished", None),
            RunEnd::Interrupted => ("interrupted", None),
            RunEnd::Failed(message) => ("failed", Some(message)),
        };
        let id = self.run_id.take();
        self.write(|transaction| {
            transaction.execute(
                "UPDATE run SET ended_unix_ns = ?, how_ended = ?, message = ? WHERE id = ?",
                (unix_ns(), how, message, id),
            )
        })?;
        Ok(())
    }

    pub(crate) fn add_entry(
        &mut self,
        round: u32,
        case_name: &str,
        settings: &CaseSettings,
    ) -> Result<(), StoreError> {
        let settings = record("the settings of a case", settings)?;
        let run_id = self.run_id;
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO case_entry (run_id, round, case_name, entered_unix_ns, settings_json) VALUES (?, ?, ?, ?, ?)",
                (run_id, round, case_name, unix_ns(), settings),
            )
        })?;
        Ok(())
    }

    /// Records that a case was left out in this run. The reason replaces the settings.
    pub(crate) fn add_left_out(
        &mut self,
        round: u32,
        case_name: &str,
        why: &CaseSkipped,
    ) -> Result<(), StoreError> {
        let settings = CaseSettings::LeftOut(CaseLeftOut::from(why));
        self.add_entry(round, case_name, &settings)
    }

    /// Stores the console output of a guest.
    pub(crate) fn add_console(
        &mut self,
        round: u32,
        case_name: &str,
        element: &str,
        output: &str,
    ) -> Result<(), StoreError> {
        let output = packed_text(CONSOLE, output)?;
        let run_id = self.run_id;
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO console (run_id, round, case_name, element, output_zstd) VALUES (?, ?, ?, ?, ?)",
                (run_id, round, case_name, element, output),
            )
        })?;
        Ok(())
    }

    /// Returns 100 % of the load, by the case that it was measured in.
    pub(crate) fn max_rate(
        &self,
        case_name: Option<&str>,
        frame_size: FrameSize,
    ) -> Result<Option<f64>, StoreError> {
        self.ask(|connection| {
            connection
                .query_row(
                    "SELECT max_rate_pps FROM max_rate WHERE case_name = ? AND frame_size = ?",
                    (case_name.unwrap_or_default(), frame_size.to_string()),
                    |row| row.get(0),
                )
                .optional()
        })
    }

    pub(crate) fn set_max_rate(
        &mut self,
        case_name: Option<&str>,
        frame_size: FrameSize,
        max_rate_pps: f64,
        origin: &str,
    ) -> Result<(), StoreError> {
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO max_rate (case_name, frame_size, max_rate_pps, origin) VALUES (?, ?, ?, ?)",
                (
                    case_name.unwrap_or_default(),
                    frame_size.to_string(),
                    max_rate_pps,
                    origin,
                ),
            )
        })?;
        Ok(())
    }

    /// Returns the row ID of a step, which is created if necessary.
    pub(crate) fn step_id(
        &mut self,
        round: u32,
        case_name: &str,
        frame_size: FrameSize,
        kind: &StepKind,
    ) -> Result<i64, StoreError> {
        let kind = json("a step's kind", kind)?;
        let key = (round, case_name, frame_size.to_string(), kind);
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO step (round, case_name, frame_size, kind_json) VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO NOTHING",
                (&key.0, &key.1, &key.2, &key.3),
            )?;
            transaction.query_row(
                "SELECT id FROM step WHERE round = ?1 AND case_name = ?2 AND frame_size = ?3 AND kind_json = ?4",
                (&key.0, &key.1, &key.2, &key.3),
                |row| row.get(0),
            )
        })
    }

    pub(crate) fn finish_step(&mut self, step_id: i64, found: &Found) -> Result<(), StoreError> {
        let (findings, procedure, application) = match found {
            Found::Nothing => (None, None, None),
            Found::Search(findings) => (
                Some(json("the findings of a search", findings)?),
                None,
                None,
            ),
            Found::Application(observed) => (None, None, Some(json(APPLICATION, &**observed)?)),
            Found::Procedure(result) => {
                // The actions are already stored one by one.
                let result = ProcedureResult {
                    history: Vec::new(),
                    ..(**result).clone()
                };
                (
                    None,
                    Some(json("the findings of a procedure", &result)?),
                    None,
                )
            }
        };
        self.write(|transaction| {
            transaction.execute(
                "UPDATE step SET is_finished = 1, findings_json = ?, procedure_json = ?, application_json = ? WHERE id = ?",
                (findings, procedure, application, step_id),
            )
        })?;
        Ok(())
    }

    /// Stores one action of a procedure. On return it is durable.
    pub(crate) fn add_action(
        &mut self,
        step_id: i64,
        sequence: u32,
        action: &Action,
        observation: &Observation,
        activity: &TrialActivity,
    ) -> Result<(), StoreError> {
        let action = json("an action of a procedure", action)?;
        let observation = json("an observation of a procedure", observation)?;
        let activity = packed_activity(activity)?;
        let run_id = self.run_id;
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO action (step_id, sequence, run_id, stored_unix_ns, action_json, observation_json, activity_zstd) \
                 VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    step_id,
                    sequence,
                    run_id,
                    unix_ns(),
                    action,
                    observation,
                    activity,
                ),
            )
        })?;
        Ok(())
    }

    /// Stores one trial. On return it is durable.
    pub(crate) fn add_trial(
        &mut self,
        step_id: i64,
        sequence: u32,
        request: &Trial,
        measured: &Measured,
    ) -> Result<(), StoreError> {
        let result: &TrialResult = &measured.result;
        let request_json = json("a trial's request", request)?;
        let (result_json, histograms) = split_result(result)?;
        let activity = packed_activity(&measured.activity)?;
        let series = packed_series(&result.series)?;
        let run_id = self.run_id;
        self.write(|transaction| {
            transaction.execute(
                "INSERT INTO trial (step_id, sequence, run_id, stored_unix_ns, is_valid, offered_rate_pps, \
                 forwarding_rate_pps, loss_ratio, request_json, result_json, histograms, activity_zstd) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    step_id,
                    sequence,
                    run_id,
                    unix_ns(),
                    result.is_valid(),
                    request.offered_rate_pps,
                    result.forwarding_rate_pps,
                    result.loss_ratio,
                    request_json,
                    result_json,
                    histograms,
                    activity,
                ),
            )?;
            if let Some(series) = series {
                transaction.execute(
                    "INSERT INTO trial_series (trial_id, series_zstd) VALUES (?, ?)",
                    (transaction.last_insert_rowid(), series),
                )?;
            }
            Ok(())
        })
    }
}
