// SPDX-License-Identifier: Apache-2.0
//! Findings of MLRsearch.

use serde::{Deserialize, Serialize};

use super::goal::{MlrGoal, MlrSearchConfig};
use super::load::DurationSums;

/// How an [`MlrSearch`](super::MlrSearch) ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum MlrEnd {
    /// Every goal has its bounds, or the end of the range in place of one.
    Finished,
    /// A trial and all its repeats were invalid: the tester failed, not the device.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
    /// `max_trials` trials were run before.
    TrialLimit,
}

/// A relevant bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrBound {
    /// The load, frames per second.
    pub rate_pps: f64,
    /// What was measured there, as the goal counts it.
    pub sums: DurationSums,
}

/// Why a goal's result is irregular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MlrIrregularity {
    /// No load was found to hold: the lowest rate allowed is over what the goal takes, or the search ended early.
    NoLowerBound,
    /// No load was found to lose too much: the highest rate allowed holds, or the search ended early.
    NoUpperBound,
    /// There are both bounds, farther apart than the goal's width.
    NotNarrowed,
}

/// What was found for one goal. A report shows `lower` with all attributes of the goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrGoalResult {
    /// The goal.
    pub goal: MlrGoal,
    /// The relevant lower bound: the result.
    pub lower: Option<MlrBound>,
    /// The relevant upper bound.
    pub upper: Option<MlrBound>,
    /// The conditional throughput at the relevant lower bound, frames per second; none without one.
    pub conditional_throughput_pps: Option<f64>,
    /// None for a regular result; an irregular one has to be marked wherever it is shown.
    pub irregularity: Option<MlrIrregularity>,
}

/// What an [`MlrSearch`](super::MlrSearch) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrFindings {
    /// The parameters it ran with.
    pub config: MlrSearchConfig,
    /// How it ended.
    pub end: MlrEnd,
    /// One result a goal, in the goals' order.
    pub goals: Vec<MlrGoalResult>,
}
