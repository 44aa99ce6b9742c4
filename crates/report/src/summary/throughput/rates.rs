// SPDX-License-Identifier: Apache-2.0
//! Rates and loss of a case.

use quietwire_search::Readings;
use serde::Serialize;

use super::super::spread::Spread;

/// Results of the searches for one goal, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalSummary {
    /// Name of the goal.
    pub name: String,
    /// Allowed loss ratio, 0 to 1.
    pub loss_ratio: f64,
    /// Outcome of each started round.
    pub outcomes: Vec<SearchOutcome>,
    /// Outcome of each round if its invalid trials counted; none for an unfinished search.
    pub readings: Vec<Option<Readings>>,
    /// Rates found, frames per second, as achieved. A round in which no rate held counts as zero. A round in which the tester failed, or
    /// that is unfinished, does not count. None without rounds that count.
    pub rate_pps: Option<Spread>,
    /// Rates of the best side, frames per second, if the search had both sides (`best-and-worst-of-n`). All other figures are then those of
    /// the worst side.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_pps: Option<Spread>,
    /// Rates of the search by the first trial at each rate, frames per second, if the search had both sides. None for stores of earlier
    /// versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub single_pps: Option<Spread>,
    /// True if the highest rate of the search held in a round of the median or one below it, so the median may be
    /// too low: "at least".
    pub is_lower_limit_only: bool,
    /// Median in percent of the first case's.
    pub percent_of_baseline: Option<f64>,
}

/// Forwarding at the highest load of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HighestLoad {
    /// Achieved load of the tester, frames per second, median.
    pub offered_pps: f64,
    /// Forwarding rate, frames per second.
    pub forwarding_pps: Spread,
    /// Median in percent of the first case's.
    pub percent_of_baseline: Option<f64>,
}

/// One load of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepPoint {
    /// Intended load, frames per second.
    pub load_pps: f64,
    /// Achieved load of the tester, frames per second, median; the intended load without valid trials.
    pub offered_pps: f64,
    /// Loss ratio over the rounds, 0 to 1. None without valid trials.
    pub loss_ratio: Option<Spread>,
    /// Forwarding rate over the rounds, frames per second. None without valid trials.
    pub forwarding_pps: Option<Spread>,
    /// 99th percentile of the round trips over the rounds, nanoseconds. None if no valid trial has enough frames.
    pub latency_p99_ns: Option<Spread>,
    /// CPUs that the device used over the rounds: its CPU time per second. None if it is unknown.
    pub device_cpus: Option<Spread>,
    /// Frames lost in all valid trials.
    pub lost_frames: u64,
    /// Frames offered in all valid trials.
    pub offered_frames: u64,
    /// Number of trials.
    pub trials: usize,
    /// Valid trials.
    pub valid_trials: usize,
}

/// One valid trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPoint {
    /// Achieved load of the tester, frames per second.
    pub offered_pps: f64,
    /// Loss ratio, 0 to 1.
    pub loss_ratio: f64,
}

/// Outcome of one search.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum SearchOutcome {
    /// A rate held.
    Held {
        /// Highest rate that held, frames per second, as achieved by the tester.
        rate_pps: f64,
        /// Trials at or below it with too much loss: contradictory results of the device.
        contradictions: u32,
    },
    /// The highest rate allowed held, so the device may forward more.
    AtLeast {
        /// Rate, frames per second, as achieved by the tester.
        rate_pps: f64,
    },
    /// No rate held: every trial lost too much.
    NothingHeld {
        /// Lowest rate tried, frames per second.
        lowest_tried_pps: f64,
    },
    /// The tester failed repeatedly.
    TesterFailed,
    /// The search is unfinished.
    Unfinished,
}

impl SearchOutcome {
    pub(super) fn counted_rate(self) -> Option<f64> {
        match self {
            Self::Held { rate_pps, .. } | Self::AtLeast { rate_pps } => Some(rate_pps),
            Self::NothingHeld { .. } => Some(0.0),
            Self::TesterFailed | Self::Unfinished => None,
        }
    }
}
