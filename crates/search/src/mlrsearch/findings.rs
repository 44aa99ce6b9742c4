// SPDX-License-Identifier: Apache-2.0
//! Findings of MLRsearch.

use serde::{Deserialize, Serialize};

use super::goal::{MlrGoal, MlrSearchConfig};
use super::load::DurationSums;

/// Reason for the end of an [`MlrSearch`](super::MlrSearch).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum MlrEnd {
    /// Every goal has its bounds, or an end of the range instead of one.
    Finished,
    /// A trial and all its repeats were invalid because the tester failed.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each trial, oldest first.
        reasons: Vec<String>,
    },
    /// The search reached `max_trials`.
    TrialLimit,
}

/// Relevant bound.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrBound {
    /// The load, frames per second.
    pub rate_pps: f64,
    /// Effective durations measured there, as the goal counts them.
    pub sums: DurationSums,
}

/// Reason why a goal's result is irregular.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MlrIrregularity {
    /// No load holds: the lowest rate allowed loses more than the goal permits, or the search ended early.
    NoLowerBound,
    /// No load loses too much: the highest rate allowed holds, or the search ended early.
    NoUpperBound,
    /// Both bounds exist, but are farther apart than the goal's width.
    NotNarrowed,
}

/// Result of one goal. A report must show `lower` with all attributes of the goal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrGoalResult {
    /// The goal.
    pub goal: MlrGoal,
    /// The relevant lower bound: the result.
    pub lower: Option<MlrBound>,
    /// The relevant upper bound.
    pub upper: Option<MlrBound>,
    /// Conditional throughput at the relevant lower bound, frames per second; `None` without a lower bound.
    pub conditional_throughput_pps: Option<f64>,
    /// `None` for a regular result. Everything that shows an irregular result must mark it.
    pub irregularity: Option<MlrIrregularity>,
}

/// Findings of an [`MlrSearch`](super::MlrSearch).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrFindings {
    /// The parameters.
    pub config: MlrSearchConfig,
    /// Reason for the end.
    pub end: MlrEnd,
    /// One result per goal, in the order of the goals.
    pub goals: Vec<MlrGoalResult>,
}
