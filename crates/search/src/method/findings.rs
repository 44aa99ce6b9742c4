// SPDX-License-Identifier: Apache-2.0
//! Findings of a search.

use serde::{Deserialize, Serialize};

use super::trial::Attempt;
use crate::{
    BestWorstFindings, ForwardingRateFindings, LatencyPlanFindings, LossDistributionFindings,
    LossSweepFindings, MlrFindings, RepeatConfig, SingleRunFindings, SoakFindings, Statistics,
};

/// Findings of a search, with all its trials. Each method has its own findings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The findings, tagged with the method's name.
    pub findings: Findings,
    /// All trials in the order in which they were run, including invalid ones.
    pub history: Vec<Attempt>,
}

/// Findings by method. The tag is [`Method::name`](super::Method::name).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
#[non_exhaustive]
pub enum Findings {
    /// Findings of [`crate::SingleRun`].
    SingleRun(SingleRunFindings),
    /// Findings of [`crate::LossSweep`].
    LossSweep(LossSweepFindings),
    /// Findings of [`crate::MlrSearch`].
    #[serde(rename = "mlrsearch")]
    MlrSearch(MlrFindings),
    /// Findings of [`crate::BestWorst`].
    #[serde(rename = "best-worst-of-n")]
    BestWorst(Box<BestWorstFindings>),
    /// Findings of [`crate::LossDistribution`].
    LossDistribution(LossDistributionFindings),
    /// Findings of [`crate::ForwardingRate`].
    #[serde(rename = "forwarding-rate-at-max-load")]
    ForwardingRate(Box<ForwardingRateFindings>),
    /// Findings of [`crate::Soak`].
    Soak(Box<SoakFindings>),
    /// Findings of [`crate::LatencyTrials`].
    LatencyPlan(LatencyPlanFindings),
    /// Findings of [`crate::Repeat`].
    Repeat(Box<RepeatFindings>),
}

/// Findings of one of the repeated searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedRun {
    /// Results in frames per second, one per goal or side; `None` if the search had no result. A result at the highest rate allowed
    /// counts as that rate.
    pub results_pps: Vec<Option<f64>>,
    /// Number of trials, including invalid ones.
    pub trials: u32,
    /// Requested duration of its trials, seconds.
    pub duration_s: f64,
    /// Complete findings.
    pub findings: Findings,
}

/// Findings of a [`Repeat`](super::super::Repeat).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatFindings {
    /// The parameters.
    pub config: RepeatConfig,
    /// The searches, in order.
    pub runs: Vec<RepeatedRun>,
    /// Statistics of the results, one per goal or side, over the searches with a result (`count`); `None` if no search had one.
    pub statistics: Vec<Option<Statistics>>,
}
