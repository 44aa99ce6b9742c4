// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of latency at chosen loads.

use serde::{Deserialize, Serialize};

/// Parts of a rate at which latency is measured, percent.
pub(super) const PERCENTS: [u8; 3] = [10, 50, 90];

/// Rate of which parts are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartsOf {
    /// The highest rate without loss.
    Ndr,
    /// The highest rate with at most the loss of the PDR goal.
    #[default]
    Pdr,
}

/// Meaning of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "load")]
pub enum LatencyLoad {
    /// The highest rate without loss.
    Ndr,
    /// The highest rate with at most the loss of the PDR goal.
    Pdr,
    /// The last step of the linear phase below NDR.
    StepUnderNdr,
    /// The last step of the linear phase below PDR.
    StepUnderPdr,
    /// A part of NDR.
    PartOfNdr {
        /// Percent.
        percent: u8,
    },
    /// A part of PDR.
    PartOfPdr {
        /// Percent.
        percent: u8,
    },
}

/// Load of a latency plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// The load, frames per second.
    pub rate_pps: f64,
    /// Meanings of the load; several if loads coincide.
    pub stands_for: Vec<LatencyLoad>,
}

/// Findings of a [`LatencyTrials`](super::LatencyTrials): the loss at each load. The tester reports the latencies, trial by trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPlanFindings {
    /// The loads in ascending order; empty if neither rate was found.
    pub points: Vec<LatencyPlanPoint>,
}

/// Load of a plan after its trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPlanPoint {
    /// The load.
    #[serde(flatten)]
    pub point: LatencyPoint,
    /// Loss ratio of its trial; `None` if the tester failed repeatedly.
    pub loss_ratio: Option<f64>,
}
