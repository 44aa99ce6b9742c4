// SPDX-License-Identifier: Apache-2.0
//! What every search method has in common: the questions it asks, the answers it takes, the result it gives.

use serde::{Deserialize, Serialize};

use crate::{
    BestWorstFindings, ForwardingRateFindings, LatencyPlanFindings, LossDistributionFindings,
    LossSweepFindings, MlrFindings, RecordError, RepeatFindings, SingleRunFindings, SoakFindings,
};

/// One trial that a search wants run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRequest {
    /// Offered load, frames per second. What it sums over (one direction, both) is the caller's to define
    /// and to keep the same for the whole search.
    pub rate_pps: f64,
    /// How long frames are offered, seconds.
    pub duration_s: f64,
}

/// What a trial told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Outcome {
    /// The tester did what it was asked to do, so the loss is the device's.
    Valid {
        /// Lost over offered frames, 0 to 1.
        loss_ratio: f64,
        /// What the trial counts for where a method sums durations up, seconds; may include the time around the trial
        /// itself (RFC 9971, "Trial Effective Duration"). None: as long as was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        effective_duration_s: Option<f64>,
    },
    /// The tester itself failed: the trial says nothing about the device, and is never counted against it.
    Invalid {
        /// What went wrong, one sentence.
        reason: String,
    },
}

impl Outcome {
    /// A valid trial that lost this much of what was offered, 0 to 1, and counts for as long as was asked for.
    #[must_use]
    pub fn lost(loss_ratio: f64) -> Self {
        Self::Valid {
            loss_ratio,
            effective_duration_s: None,
        }
    }
}

/// One trial of a search: what was asked, what was seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attempt {
    /// What was asked.
    pub request: TrialRequest,
    /// What was seen.
    pub outcome: Outcome,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Run this trial, then [`Method::record`] its outcome.
    Run(TrialRequest),
    /// The search is over.
    Done(SearchResult),
}

/// What a search found, with every trial it took. Each method has findings of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The findings, tagged with the method's name.
    pub findings: Findings,
    /// All trials in the order they were run, invalid ones included.
    pub history: Vec<Attempt>,
}

/// Findings by method. The tag is [`Method::name`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
#[non_exhaustive]
pub enum Findings {
    /// Of [`crate::SingleRun`].
    SingleRun(SingleRunFindings),
    /// Of [`crate::LossSweep`].
    LossSweep(LossSweepFindings),
    /// Of [`crate::MlrSearch`].
    #[serde(rename = "mlrsearch")]
    MlrSearch(MlrFindings),
    /// Of [`crate::BestWorst`].
    #[serde(rename = "best-worst-of-n")]
    BestWorst(Box<BestWorstFindings>),
    /// Of [`crate::LossDistribution`].
    LossDistribution(LossDistributionFindings),
    /// Of [`crate::ForwardingRate`].
    #[serde(rename = "forwarding-rate-at-max-load")]
    ForwardingRate(Box<ForwardingRateFindings>),
    /// Of [`crate::Soak`].
    Soak(Box<SoakFindings>),
    /// Of [`crate::LatencyTrials`].
    LatencyPlan(LatencyPlanFindings),
    /// Of [`crate::Repeat`].
    Repeat(Box<RepeatFindings>),
}

/// A search: asks for a trial, is told the outcome, until it is done.
///
/// The rhythm is `step`, run, `record`, `step`, … . [`Method::step`] may be called again before the outcome is
/// known and gives the same request. No method takes a decision from anything but its parameters and the recorded
/// outcomes, so the same outcomes always give the same search.
pub trait Method {
    /// The method's name in kebab case, as in stored results: `single-run`.
    fn name(&self) -> &'static str;

    /// The trial to run now, or the result. After [`Step::Done`] it stays done.
    fn step(&mut self) -> Step;

    /// Takes the outcome of the trial that [`Method::step`] asked for last.
    ///
    /// # Errors
    /// [`RecordError::NothingPending`] when no trial was asked for since the last outcome, and
    /// [`RecordError::LossRatio`] for a loss ratio outside \[0, 1], [`RecordError::EffectiveDuration`] for an
    /// effective duration that is not above zero. Each leaves the search as it was, with the
    /// request (if any) still pending.
    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError>;

    /// Returns the width to which the search finds a rate near this one, frames per second. None if it does not search for one.
    fn width_pps(&self, _rate_pps: f64) -> Option<f64> {
        None
    }

    /// Trials recorded so far.
    fn history(&self) -> &[Attempt];
}
