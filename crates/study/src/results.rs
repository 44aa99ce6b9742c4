// SPDX-License-Identifier: Apache-2.0
//! What a store holds, read back.

use quietwire_lab::IsolationRecord;
use quietwire_search::procedure::{Action, Observation, ProcedureResult};
use quietwire_search::{Attempt, Findings, Outcome, TrialRequest};
use quietwire_tester::{MissingCalibration, Trial, TrialResult};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::activity::TrialActivity;
use crate::bench::{ApplicationSeen, Environment};
use crate::file::{Case, FrameSize, StudyFile};
use crate::methods::{StepKind, TenantsPlan};

/// Everything in a store.
#[derive(Clone, Debug, PartialEq)]
pub struct StudyResults {
    /// The study file.
    pub file: StudyFile,
    /// Its text.
    pub file_text: String,
    /// SHA-256 of the text, hexadecimal.
    pub file_sha256: String,
    /// When the study was started first, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// Each time that it was started or resumed, in order.
    pub runs: Vec<RunRecord>,
    /// Each time that a case was set up, in order.
    pub entries: Vec<CaseEntry>,
    /// What 100 % of the load is.
    pub max_rates: Vec<MaxRateRecord>,
    /// Steps in the order in which they were begun.
    pub steps: Vec<StepRecord>,
    /// What guests' consoles said, in the order in which their cases were left.
    pub consoles: Vec<ConsoleRecord>,
}

/// What the console of a guest said while its case was set up once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConsoleRecord {
    /// Which round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// The element that is the guest.
    pub element: String,
    /// All of it, boot included.
    pub said: String,
}

/// What 100 % of the load is for one frame size.
#[derive(Clone, Debug, PartialEq)]
pub struct MaxRateRecord {
    /// The case that it was found in, and that it holds for with all others of the same device and traffic; none where it
    /// holds for all cases.
    pub case_name: Option<String>,
    /// The frame size.
    pub frame_size: FrameSize,
    /// Frames per second.
    pub rate_pps: f64,
}

/// One start or resumption of a study.
#[derive(Clone, Debug, PartialEq)]
pub struct RunRecord {
    /// When it began, nanoseconds since the Unix epoch.
    pub started_unix_ns: u64,
    /// How and when it ended; none while it goes on and when it was killed.
    pub end: Option<(RunEnd, u64)>,
    /// Machine and software.
    pub environment: Environment,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// Everything was done.
    Finished,
    /// It was asked to stop.
    Interrupted,
    /// Something failed.
    Failed(String),
}

/// Stands, with the reason, among the settings of a case that could not be had.
pub(crate) const UNAVAILABLE: &str = "unavailable";

/// Stands beside it: whether the case did not come up or stay up, where the machine lacks nothing.
pub(crate) const FAILED: &str = "failed";

/// What of the settings of a case is understood; the rest is only shown.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct CaseFacts {
    /// Why the machine could not have the case; none if it was set up.
    #[serde(default)]
    pub unavailable: Option<String>,
    /// True if the machine lacks nothing for the case: its device did not come up, or did not stay up.
    #[serde(default)]
    pub failed: bool,
    /// Calibrations of the tester that trials could not cite.
    #[serde(default)]
    pub calibration_missing: Vec<MissingCalibration>,
    /// What the lab says of a topology.
    #[serde(default)]
    pub lab: Option<LabFacts>,
    /// What was isolated around a device that runs already; none for a device of the lab's.
    #[serde(skip)]
    pub isolation: Option<IsolationRecord>,
}

/// What the lab says of a topology that it brought up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct LabFacts {
    /// What every figure has to carry, a sentence each.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Key that only the record of an isolation around a running device has.
const ISOLATED_CPUS: &str = "isolated_cpus";

impl CaseFacts {
    /// Reads the settings of a case.
    ///
    /// # Errors
    /// A value of another kind than any version stores.
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

/// One time that a case was set up, or that it was found out that the machine cannot have it.
#[derive(Clone, Debug, PartialEq)]
pub struct CaseEntry {
    /// Which round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// When, nanoseconds since the Unix epoch.
    pub entered_unix_ns: u64,
    /// Every command and setting, as it is shown.
    pub settings: Value,
    /// What of it is understood.
    pub facts: CaseFacts,
}

/// One search, sweep or latency step.
#[derive(Clone, Debug, PartialEq)]
pub struct StepRecord {
    /// Its row in the store.
    pub id: i64,
    /// Which round, from 0.
    pub round: u32,
    /// Name of the case.
    pub case_name: String,
    /// Frame size.
    pub frame_size: FrameSize,
    /// What it is for.
    pub kind: StepKind,
    /// Whether it came to its end.
    pub is_finished: bool,
    /// What a search or sweep found.
    pub findings: Option<Findings>,
    /// What a procedure found. Its history is empty: it is in `deeds`.
    pub procedure: Option<ProcedureResult>,
    /// What applications saw.
    pub application: Option<ApplicationSeen>,
    /// What was done for a procedure, in order, invalid ones included.
    pub deeds: Vec<DeedRecord>,
    /// Its trials, in order, invalid ones included.
    pub trials: Vec<TrialRecord>,
}

/// One trial.
#[derive(Clone, Debug, PartialEq)]
pub struct TrialRecord {
    /// Position in its step, from 0.
    pub sequence: u32,
    /// Which run made it, an index into [`StudyResults::runs`].
    pub run: usize,
    /// When it was stored, nanoseconds since the Unix epoch.
    pub stored_unix_ns: u64,
    /// What was asked.
    pub request: Trial,
    /// What was seen.
    pub result: TrialResult,
    /// What the machine did meanwhile.
    pub activity: TrialActivity,
}

/// Returns what a trial is to a search.
pub(crate) fn outcome(result: &TrialResult) -> Outcome {
    match result.validity.text() {
        None => Outcome::Valid {
            loss_ratio: result.loss_ratio,
            effective_duration_s: effective_duration_s(result),
        },
        Some(reason) => Outcome::Invalid { reason },
    }
}

/// What a trial counts for where durations are summed up: the time that it took, warm-up and drain included.
fn effective_duration_s(result: &TrialResult) -> Option<f64> {
    let around_s = result.trial.warm_up_s + result.trial.drain_s;
    Some(result.elapsed_s + around_s).filter(|it| it.is_finite() && *it > 0.0)
}

/// Whether the loss goal of `[tenants]` held in these trials, which are those of one number of tenants.
pub(crate) fn holds(plan: &TenantsPlan, trials: &[TrialRecord]) -> bool {
    let is_good =
        |trial: &TrialRecord| trial.result.is_valid() && trial.result.loss_ratio <= plan.loss_ratio;
    trials.iter().any(is_good)
}

/// One thing that was done for a procedure.
#[derive(Clone, Debug, PartialEq)]
pub struct DeedRecord {
    /// Position in its step, from 0.
    pub sequence: u32,
    /// Which run did it, an index into [`StudyResults::runs`].
    pub run: usize,
    /// When it was stored, nanoseconds since the Unix epoch.
    pub stored_unix_ns: u64,
    /// What was asked.
    pub action: Action,
    /// What was seen.
    pub observation: Observation,
    /// What the machine did meanwhile.
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
    /// Why the machine of the last run that tried could not have a case; none where it was set up.
    #[must_use]
    pub fn unavailable(&self, case_name: &str) -> Option<&str> {
        self.last_entry(case_name)?.facts.unavailable.as_deref()
    }

    /// Whether a case could not be had, though the machine lacks nothing for it: its device did not come up, or did not stay up.
    #[must_use]
    pub fn has_failed(&self, case_name: &str) -> bool {
        self.last_entry(case_name)
            .is_some_and(|entry| entry.facts.failed)
    }

    fn last_entry(&self, case_name: &str) -> Option<&CaseEntry> {
        let mut of_case = self.entries.iter().rev();
        of_case.find(|entry| entry.case_name == case_name)
    }

    /// Whether the loss goal of `[tenants]` held in a case of it, at all frame sizes; none where that was not seen to its end.
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

    /// Whether anything is known of a case: it was set up once, or found to be unavailable.
    #[must_use]
    pub fn was_tried(&self, case: &Case) -> bool {
        self.last_entry(&case.name).is_some()
    }

    /// What 100 % of the load is in a case, frames per second; none where it was not found yet.
    #[must_use]
    pub fn max_rate_pps(&self, case: &Case, frame_size: FrameSize) -> Option<f64> {
        let scale = self.file.scale_of(case).map(|case| &case.name);
        let mut all = self.max_rates.iter();
        let of_case = |record: &&MaxRateRecord| {
            record.frame_size == frame_size && record.case_name.as_ref() == scale
        };
        all.find(of_case).map(|record| record.rate_pps)
    }

    /// All trials with their steps, in order.
    pub fn trials(&self) -> impl Iterator<Item = (&StepRecord, &TrialRecord)> {
        self.steps
            .iter()
            .flat_map(|step| step.trials.iter().map(move |trial| (step, trial)))
    }
}
