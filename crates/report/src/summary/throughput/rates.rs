// SPDX-License-Identifier: Apache-2.0
//! Rates and loss of a case.

use quietwire_search::Readings;
use serde::Serialize;

use super::super::spread::Spread;

/// What the searches for one goal found, over all rounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GoalSummary {
    /// Name of the goal.
    pub name: String,
    /// Loss that it allows, 0 to 1.
    pub loss_ratio: f64,
    /// One for each round that was begun.
    pub outcomes: Vec<SearchOutcome>,
    /// What each of them would be if its invalid trials counted; none of a search that is not through.
    pub readings: Vec<Option<Readings>>,
    /// The rates found, frames per second, as they were achieved. A round in which no rate held counts as zero; one that the tester failed, or
    /// that was not ended, does not count. None without rounds that count.
    pub rate_pps: Option<Spread>,
    /// True when the highest rate of all held in a round of the median or one below it, so that the median may be
    /// too low: "at least".
    pub is_lower_limit_only: bool,
    /// The median in percent of the first case's.
    pub percent_of_baseline: Option<f64>,
}

/// What came out at the highest load of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HighestLoad {
    /// The load as the tester achieved it, frames per second, median.
    pub offered_pps: f64,
    /// What was forwarded, frames per second.
    pub forwarding_pps: Spread,
    /// The median in percent of the first case's.
    pub percent_of_baseline: Option<f64>,
}

/// One load of the sweep.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepPoint {
    /// The load as it was intended, frames per second.
    pub load_pps: f64,
    /// The load as the tester achieved it, frames per second, median; the intended one when no trial was valid.
    pub offered_pps: f64,
    /// Loss over the rounds, 0 to 1. None when no trial was valid.
    pub loss_ratio: Option<Spread>,
    /// Forwarding rate over the rounds, frames per second. None when no trial was valid.
    pub forwarding_pps: Option<Spread>,
    /// Frames lost in all valid trials.
    pub lost_frames: u64,
    /// Frames offered in all valid trials.
    pub offered_frames: u64,
    /// Trials.
    pub trials: usize,
    /// Of those, valid.
    pub valid_trials: usize,
}

/// One valid trial.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LossPoint {
    /// The load as the tester achieved it, frames per second.
    pub offered_pps: f64,
    /// Loss, 0 to 1.
    pub loss_ratio: f64,
}

/// How one search ended.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum SearchOutcome {
    /// The highest rate that was seen to hold.
    Held {
        /// Frames per second, as the tester achieved it.
        rate_pps: f64,
        /// Trials at or under it that lost too much: the device contradicted itself.
        contradictions: u32,
    },
    /// The highest rate allowed held: the device may well do more.
    AtLeast {
        /// Frames per second, as the tester achieved it.
        rate_pps: f64,
    },
    /// Every rate that was tried lost too much.
    NothingHeld {
        /// The lowest of them, frames per second.
        lowest_tried_pps: f64,
    },
    /// The tester failed over and over.
    TesterFailed,
    /// It did not come to its end.
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
