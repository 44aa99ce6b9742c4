// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of latency at chosen loads.

use serde::{Deserialize, Serialize};

/// Parts of a rate at which latency is measured, percent.
pub(super) const PERCENTS: [u8; 3] = [10, 50, 90];

/// Of which rate parts are offered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PartsOf {
    /// The highest rate without loss.
    Ndr,
    /// The highest rate with no more loss than stated.
    #[default]
    Pdr,
}

/// What a load stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "load")]
pub enum LatencyLoad {
    /// The highest rate without loss.
    Ndr,
    /// The highest rate with no more loss than stated.
    Pdr,
    /// The last step of the linear phase under NDR.
    StepUnderNdr,
    /// The last step of the linear phase under PDR.
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

/// One load of the plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPoint {
    /// The load, frames per second.
    pub rate_pps: f64,
    /// What it stands for; more than one thing where loads coincide.
    pub stands_for: Vec<LatencyLoad>,
}

/// What a [`LatencyTrials`](super::LatencyTrials) found: how much was lost at each load. The latencies are the tester's to tell, trial by trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPlanFindings {
    /// The loads in ascending order; none where neither rate was found.
    pub points: Vec<LatencyPlanPoint>,
}

/// One load of a plan, when its trial is through.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatencyPlanPoint {
    /// The load.
    #[serde(flatten)]
    pub point: LatencyPoint,
    /// Loss in its trial; none when the tester failed there and failed again.
    pub loss_ratio: Option<f64>,
}
