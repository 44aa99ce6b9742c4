// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of best-of-N and worst-of-N.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, SearchEnd, SingleRunConfig};

/// Sides of the search.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sides {
    /// Best-of-N: the rate falls only after N trials lost too much.
    Best,
    /// Worst-of-N: the rate rises only after N trials held.
    Worst,
    /// Both, best first, then the search by the first trial at each rate. A trial at a rate counts for all of them and is not repeated.
    Both,
}

/// Parameters of a [`BestWorst`](super::BestWorst).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestWorstConfig {
    /// Rates, steps and tolerance of the search. Its `best_of` must be 1, because `trials` replaces it.
    pub search: SingleRunConfig,
    /// N: largest number of valid trials at each rate. Usually 5.
    pub trials: u32,
    /// The sides.
    pub sides: Sides,
}

impl BestWorstConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        self.search.validate()?;
        if self.trials == 0 {
            return Err(ConfigError::Zero { name: "trials" });
        }
        if self.search.best_of != 1 {
            return Err(ConfigError::BestOfBesideTrials(self.search.best_of));
        }
        Ok(())
    }

    /// Returns the largest possible number of trials with these parameters. It never exceeds `max_trials`.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        let at_each_rate = match self.sides {
            Sides::Best | Sides::Worst => self.trials,
            // The search by the first trials has one at each rate.
            Sides::Both => self.trials.saturating_mul(2).saturating_add(1),
        };
        self.search
            .trial_bound()
            .saturating_mul(at_each_rate)
            .min(self.search.max_trials)
    }
}

/// Outcomes of all trials at one rate.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateTally {
    /// The rate, frames per second.
    pub rate_pps: f64,
    /// Valid trials that lost no more than the tolerance.
    pub held: u32,
    /// Valid trials that lost more.
    pub lost: u32,
}

/// Findings of one side's search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideFindings {
    /// Reason for the end.
    pub end: SearchEnd,
    /// The result: the highest rate that held. For the best side, one trial must hold; for the worst side, all N; for the single search, the
    /// first.
    pub highest_held_pps: Option<f64>,
    /// Number of rates at or below the result that did not hold when they were judged: the device was inconsistent.
    pub lost_at_or_under_highest_held: u32,
    /// Rate at which the published method ends; `None` if it ended before.
    pub published_pps: Option<f64>,
    /// Whether that rate held.
    pub published_held: Option<bool>,
}

/// Findings of a [`BestWorst`](super::BestWorst).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestWorstFindings {
    /// The parameters.
    pub config: BestWorstConfig,
    /// Findings of best-of-N, if it was run.
    pub best: Option<SideFindings>,
    /// Findings of worst-of-N, if it was run.
    pub worst: Option<SideFindings>,
    /// Findings of the search by the first trial at each rate, if both sides were run. Stores of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub single: Option<SideFindings>,
    /// All rates in ascending order.
    pub rates: Vec<RateTally>,
}
