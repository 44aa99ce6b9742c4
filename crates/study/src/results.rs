// SPDX-License-Identifier: Apache-2.0
//! Content of a store, in memory.

use quietwire_host::inventory::CpuPlace;
use quietwire_lab::IsolationRecord;
use quietwire_search::procedure::{Action, Observation, ProcedureResult};
use quietwire_search::{Attempt, Findings, Outcome, TrialRequest};
use quietwire_tester::{InvalidCause, MissingCalibration, Trial, TrialResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::activity::TrialActivity;
use crate::bench::ApplicationResult;
use crate::file::{Case, FrameSize, StudyFile};
use crate::methods::{StepKind, TenantsPlan};

/// All results in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyResults {
    /// Study file.
    pub file: StudyFile,
    /// Text of the study file.
    pub file_text: String,
    /// SHA-256 of the text, hexadecimal.
    pub file_sha256: String,
    /// First start of the study, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// All starts and resumptions, in order.
    pub runs: Vec<RunRecord>,
    /// All case setups, in order.
    pub entries: Vec<CaseEntry>,
    /// 100 % of the load.
    pub max_rates: Vec<MaxRateRecord>,
    /// Steps in the order in which they started.
    pub steps: Vec<StepRecord>,
    /// Console output of guests, in the order in which their cases were left.
    pub consoles: Vec<ConsoleRecord>,
}

/// Console output of a guest during one setup of its case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConsoleRecord {
    /// Number of the round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// Element that is the guest.
    pub element: String,
    /// Output, boot included. If it was larger than 4 MiB, its middle is left out.
    pub output: String,
}

/// 100 % of the load for one frame size.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxRateRecord {
    /// Case that it was measured in. It also applies to all cases with the same device and traffic; none if it
    /// applies to all cases.
    pub case_name: Option<String>,
    /// Frame size.
    pub frame_size: FrameSize,
    /// Rate, frames per second.
    pub rate_pps: f64,
}

/// One start or resumption of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// Start, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// End and its time; none if the run is still active or was killed.
    pub end: Option<(RunEnd, u64)>,
    /// The machine, as stored. Only shown.
    pub machine: Value,
    /// Versions of the software, as stored. Only shown.
    pub versions: Value,
    /// Parsed part of both.
    pub facts: RunFacts,
    /// Conditions that differ from those of earlier runs, each as a clause; the run was resumed nevertheless.
    pub resumed_despite: Vec<String>,
}

/// End of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Finished.
    Finished,
    /// Interrupted by a user.
    Interrupted,
    /// Failed.
    Failed(String),
}

/// Parsed part of the machine of a run ([`crate::MachineRecord`]). Everything else about it is only shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct RunFacts {
    /// True if the device is simulated and nothing is measured.
    #[serde(default, rename = "simulated")]
    pub is_simulated: bool,
    /// Name of the processor, if known.
    #[serde(default)]
    pub cpu_model: Option<String>,
    /// Place of each CPU in the topology. Empty if unknown.
    #[serde(default)]
    pub cpus: Vec<CpuPlace>,
}

/// Parsed part of the settings of a case ([`crate::CaseSettings`]). The other settings are only shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct CaseFacts {
    /// Why the machine could not run the case; none if it was set up.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// True if the machine has everything for the case, but its device did not start or stopped.
    #[serde(default)]
    pub failed: bool,
    /// Calibrations of the tester that trials could not cite.
    #[serde(default)]
    pub calibration_missing: Vec<MissingCalibration>,
    /// Record of the lab about a topology.
    #[serde(default)]
    pub lab: Option<LabFacts>,
    /// The tester of a case in the lab.
    #[serde(default)]
    pub tester: Option<TesterFacts>,
    /// Isolation around a running device; none for a device that the lab starts.
    #[serde(skip)]
    pub isolation: Option<IsolationRecord>,
}

/// Record of the lab about a topology that it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LabFacts {
    /// Caveats of all figures, one sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Record of the tester of a case.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct TesterFacts {
    /// Link speeds of its ports, Mbit/s; empty unless all are network cards with a known speed, and in stores of earlier versions.
    #[serde(default)]
    pub link_speeds_mbps: Vec<u32>,
    /// Caveats of all figures, one sentence each, beside a device that the lab did not start.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Key that only the record of an isolation around a running device has.
const ISOLATED_CPUS: &str = "isolated_cpus";

impl CaseFacts {
    /// Reads the settings of a case.
    ///
    /// # Errors
    /// A value has a type that no version stores.
    pub(crate) fn of(settings: &Value) -> Result<Self, serde_json::Error> {
        let is_around = settings.get(ISOLATED_CPUS).is_some();
        Ok(Self {
            isolation: is_around
                .then(|| IsolationRecord::deserialize(settings))
                .transpose()?,
            ..Self::deserialize(settings)?
        })
    }
}

/// One setup of a case, or the finding that the machine cannot run it.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseEntry {
    /// Number of the round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// Time, nanoseconds since the Unix epoch.
    pub entered_unix_ns: u64,
    /// All commands and settings, as shown to users.
    pub settings: Value,
    /// Parsed part of them.
    pub facts: CaseFacts,
}

/// One search, sweep or latency step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// Row ID in the store.
    pub id: i64,
    /// Number of the round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// Frame size.
    pub frame_size: FrameSize,
    /// Kind of the step.
    pub kind: StepKind,
    /// True if it finished.
    pub is_finished: bool,
    /// Findings of a search or sweep.
    pub findings: Option<Findings>,
    /// Findings of a procedure. Their history is empty: it is in `actions`.
    pub procedure: Option<ProcedureResult>,
    /// Results of the application measurements.
    pub application: Option<ApplicationResult>,
    /// Actions of a procedure, in order, invalid ones included.
    pub actions: Vec<ActionRecord>,
    /// Trials, in order, invalid ones included.
    pub trials: Vec<TrialRecord>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRecord {
    /// Position in its step, from 0.
    pub sequence: u32,
    /// Run that made it, as an index into [`StudyResults::runs`].
    pub run: usize,
    /// Time of storing, nanoseconds since the Unix epoch.
    pub stored_unix_ns: u64,
    /// Request.
    pub request: Trial,
    /// Result.
    pub result: TrialResult,
    /// Activity of the machine during the trial.
    pub activity: TrialActivity,
}

/// Returns the outcome of a trial for a search.
pub(crate) fn outcome(result: &TrialResult) -> Outcome {
    match result.validity.text() {
        None => Outcome::Valid {
            loss_ratio: result.loss_ratio,
            effective_duration_s: effective_duration_s(result),
        },
        Some(reason) => Outcome::Invalid {
            reason,
            achieved_rate_pps: is_rate_missed(result).then_some(result.achieved_rate_pps),
        },
    }
}

/// Returns true if the trial is invalid because the tester did not reach its rate, and not because the host stopped it.
fn is_rate_missed(result: &TrialResult) -> bool {
    matches!(
        result.validity.cause(),
        Some(InvalidCause::RateMissed | InvalidCause::RateOutsideWidth)
    )
}

/// Returns the duration of a trial in sums of durations: the time that it took, warm-up and drain included.
fn effective_duration_s(result: &TrialResult) -> Option<f64> {
    let around_s = result.trial.warm_up_s + result.trial.drain_s;
    Some(result.elapsed_s + around_s).filter(|it| it.is_finite() && *it > 0.0)
}

/// Returns true if the loss goal of `[tenants]` held in these trials, which are those of one number of tenants.
pub(crate) fn holds(plan: &TenantsPlan, trials: &[TrialRecord]) -> bool {
    let is_good =
        |trial: &TrialRecord| trial.result.is_valid() && trial.result.loss_ratio <= plan.loss_ratio;
    trials.iter().any(is_good)
}

/// One action of a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct ActionRecord {
    /// Position in its step, from 0.
    pub sequence: u32,
    /// Run that made it, as an index into [`StudyResults::runs`].
    pub run: usize,
    /// Time of storing, nanoseconds since the Unix epoch.
    pub stored_unix_ns: u64,
    /// Action.
    pub action: Action,
    /// Observation.
    pub observation: Observation,
    /// Activity of the machine during the action.
    pub activity: TrialActivity,
}

impl StepRecord {
    /// Returns the trials as a search sees them, in order.
    #[must_use]
    pub fn attempts(&self) -> Vec<Attempt> {
        let attempt = |trial: &TrialRecord| Attempt {
            request: TrialRequest {
                rate_pps: trial.request.offered_rate_pps,
                duration_s: trial.request.duration_s,
            },
            outcome: outcome(&trial.result),
        };
        self.trials.iter().map(attempt).collect()
    }
}

impl StudyResults {
    /// Returns why the machine of the last run that tried could not run a case; none if it was set up.
    #[must_use]
    pub fn unavailable(&self, case_name: &str) -> Option<&str> {
        self.last_entry(case_name)?.facts.unavailable.as_deref()
    }

    /// Returns true if a case was left out although the machine has everything for it: its device did not start, or stopped.
    #[must_use]
    pub fn has_failed(&self, case_name: &str) -> bool {
        self.last_entry(case_name)
            .is_some_and(|entry| entry.facts.failed)
    }

    fn last_entry(&self, case_name: &str) -> Option<&CaseEntry> {
        let mut of_case = self.entries.iter().rev();
        of_case.find(|entry| entry.case_name == case_name)
    }

    /// Returns true if the loss goal of `[tenants]` held in a case of it, at all frame sizes; none if a frame size is unfinished.
    #[must_use]
    pub fn held(&self, case: &Case, round: u32) -> Option<bool> {
        let plan = self.file.tenants?;
        let of_size = |size: &FrameSize| {
            let mut steps = self.steps.iter();
            let step = steps.find(|step| {
                step.kind == StepKind::Tenants
                    && (step.round, step.frame_size) == (round, *size)
                    && step.case_name == case.name
            });
            step.filter(|step| step.is_finished)
                .map(|step| holds(&plan, &step.trials))
        };
        let mut sizes = self.file.traffic.frame_sizes.iter();
        sizes.try_fold(true, |all, size| Some(all && of_size(size)?))
    }

    /// Returns true if a case was set up once, or found to be unavailable.
    #[must_use]
    pub fn was_tried(&self, case: &Case) -> bool {
        self.last_entry(&case.name).is_some()
    }

    /// Returns 100 % of the load in a case, frames per second; none if it was not measured yet.
    #[must_use]
    pub fn max_rate_pps(&self, case: &Case, frame_size: FrameSize) -> Option<f64> {
        let scale = self.file.scale_of(case).map(|case| &case.name);
        let mut all = self.max_rates.iter();
        let of_case = |record: &&MaxRateRecord| {
            record.frame_size == frame_size && record.case_name.as_ref() == scale
        };
        all.find(of_case).map(|record| record.rate_pps)
    }

    /// Returns all trials with their steps, in order.
    pub fn trials(&self) -> impl Iterator<Item = (&StepRecord, &TrialRecord)> {
        self.steps
            .iter()
            .flat_map(|step| step.trials.iter().map(move |trial| (step, trial)))
    }
}
