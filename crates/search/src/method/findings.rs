// SPDX-License-Identifier: Apache-2.0
//! What a search found.

use serde::{Deserialize, Serialize};

use super::trial::Attempt;
use crate::{
    BestWorstFindings, ForwardingRateFindings, LatencyPlanFindings, LossDistributionFindings,
    LossSweepFindings, MlrFindings, RepeatConfig, SingleRunFindings, SoakFindings, Statistics,
};

/// What a search found, with every trial it took. Each method has findings of its own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The findings, tagged with the method's name.
    pub findings: Findings,
    /// All trials in the order they were run, invalid ones included.
    pub history: Vec<Attempt>,
}

/// Findings by method. The tag is [`Method::name`](super::Method::name).
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

/// One of the searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedRun {
    /// Results in frames per second, one a goal or side; none where that search had no result. One that is only a limit,
    /// since no higher rate was allowed, counts as what was seen to hold.
    pub results_pps: Vec<Option<f64>>,
    /// Trials that it took, invalid ones included.
    pub trials: u32,
    /// Time that its trials asked for, seconds.
    pub duration_s: f64,
    /// Everything that it found.
    pub findings: Findings,
}

/// What a [`Repeat`](super::super::Repeat) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatFindings {
    /// The parameters it ran with.
    pub config: RepeatConfig,
    /// The searches, in order.
    pub runs: Vec<RepeatedRun>,
    /// Of the results, one a goal or side, over the searches that had one: `count` says how many. None where none had.
    pub statistics: Vec<Option<Statistics>>,
}
