// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of best-of-N and worst-of-N.

use serde::{Deserialize, Serialize};

use crate::{ConfigError, SearchEnd, SingleRunConfig};

/// Which of the two searches are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sides {
    /// Best-of-N: the rate falls only after N trials lost too much.
    Best,
    /// Worst-of-N: the rate rises only after N trials held.
    Worst,
    /// Both, best first. A trial at a rate counts for both and is never repeated.
    Both,
}

/// Parameters of a [`BestWorst`](super::BestWorst).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestWorstConfig {
    /// Rates, steps and tolerance of the search. Its `best_of` is 1, since `trials` takes its place.
    pub search: SingleRunConfig,
    /// N: most valid trials at each rate. Five in practice.
    pub trials: u32,
    /// Which searches are made.
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

    /// Most trials that a search with these parameters can take, whatever the outcomes. Never over `max_trials`.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        let sides = match self.sides {
            Sides::Best | Sides::Worst => 1,
            Sides::Both => 2,
        };
        self.search
            .trial_bound()
            .saturating_mul(self.trials)
            .saturating_mul(sides)
            .min(self.search.max_trials)
    }
}

/// What all trials at one rate told.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateTally {
    /// The rate, frames per second.
    pub rate_pps: f64,
    /// Valid trials that lost no more than the tolerance.
    pub held: u32,
    /// Valid trials that lost more.
    pub lost: u32,
}

/// What one side's search found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SideFindings {
    /// How it ended.
    pub end: SearchEnd,
    /// The result: the highest rate that held, which is one trial for the best and all N for the worst.
    pub highest_held_pps: Option<f64>,
    /// Rates at or under that which did not hold, when they were judged: the device contradicted itself.
    pub lost_at_or_under_highest_held: u32,
    /// The rate at which the method, as published, stops; none when it ended before.
    pub published_pps: Option<f64>,
    /// Whether that rate held.
    pub published_held: Option<bool>,
}

/// What a [`BestWorst`](super::BestWorst) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BestWorstFindings {
    /// The parameters it ran with.
    pub config: BestWorstConfig,
    /// Best-of-N, where asked for.
    pub best: Option<SideFindings>,
    /// Worst-of-N, where asked for.
    pub worst: Option<SideFindings>,
    /// All rates in ascending order.
    pub rates: Vec<RateTally>,
}
