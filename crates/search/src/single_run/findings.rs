// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the single run.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio};

/// Parameters of a [`SingleRun`](super::SingleRun). Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleRunConfig {
    /// First rate to try.
    pub start_rate_pps: f64,
    /// Step of the linear phase, which the binary phase halves. Capacities below `start_rate_pps - 2 * start_step_pps` are out of the
    /// method's reach. A start rate no larger than the step covers the whole range down to `min_rate_pps`.
    pub start_step_pps: f64,
    /// Step below which the search ends. For a device that loses above a fixed rate and not below it, the result is below the capacity by
    /// less than this.
    pub resolution_pps: f64,
    /// Largest loss ratio of a trial that holds: zero for NDR, more for PDR.
    pub loss_tolerance: LossRatio,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// Lowest rate offered.
    pub min_rate_pps: f64,
    /// Highest rate offered: the line rate, or the highest rate of the tester.
    pub max_rate_pps: f64,
    /// Largest number of valid trials per visit of a rate. The rate counts as lost only if this many trials in a row lose too much. One
    /// is the published single run, more is its best-of-N.
    pub best_of: u32,
    /// Largest number of repeats of an invalid trial before the search ends.
    pub max_invalid_repeats: u32,
    /// Largest number of trials in the whole search, including invalid ones.
    pub max_trials: u32,
}

impl SingleRunConfig {
    /// Lowers the maximum rate, and the first rate with it.
    pub(crate) fn limit_to(&mut self, max_rate_pps: f64) {
        self.max_rate_pps = max_rate_pps;
        self.start_rate_pps = self.start_rate_pps.min(max_rate_pps);
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("start_rate_pps", self.start_rate_pps)?;
        positive("start_step_pps", self.start_step_pps)?;
        positive("resolution_pps", self.resolution_pps)?;
        positive("trial_duration_s", self.trial_duration_s)?;
        positive("min_rate_pps", self.min_rate_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        for (name, count) in [("max_trials", self.max_trials), ("best_of", self.best_of)] {
            if count == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        ordered(self.min_rate_pps, self.max_rate_pps)?;
        if !(self.min_rate_pps..=self.max_rate_pps).contains(&self.start_rate_pps) {
            return Err(ConfigError::StartOutsideBounds {
                start_rate_pps: self.start_rate_pps,
                min_rate_pps: self.min_rate_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        if self.resolution_pps > self.start_step_pps {
            return Err(ConfigError::ResolutionOverStep {
                resolution_pps: self.resolution_pps,
                start_step_pps: self.start_step_pps,
            });
        }
        if self.max_rate_pps + self.start_step_pps <= self.max_rate_pps {
            return Err(ConfigError::StepVanishes {
                start_step_pps: self.start_step_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        Ok(())
    }

    /// Returns the largest possible number of trials with these parameters, for estimates of time and for progress bars. It never exceeds
    /// `max_trials`.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    pub fn trial_bound(&self) -> u32 {
        let linear = ((self.max_rate_pps - self.start_rate_pps) / self.start_step_pps).ceil() + 1.0;
        // One trial at the full step, then one for each halving until the step is below the resolution.
        let binary = (self.start_step_pps / self.resolution_pps).log2().floor() + 2.0;
        let repeats = (f64::from(self.max_invalid_repeats) + 1.0) * f64::from(self.best_of);
        // Rounding in the linear phase can add one trial.
        let bound = (linear + 1.0 + binary) * repeats;
        (bound as u32).min(self.max_trials)
    }
}

/// Reason for the end of a [`SingleRun`](super::SingleRun).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SearchEnd {
    /// The step fell below the resolution, and at least one rate held.
    Converged,
    /// The highest rate allowed held: the capacity is at least that.
    HeldAtMaxRate,
    /// The lowest rate allowed did not hold: no result.
    NothingHeldAtMinRate,
    /// The step fell below the resolution, and no rate tried held: no result. The capacity is below the method's reach. Start at a lower
    /// rate, or with a larger step.
    NothingHeldInReach {
        /// Lowest rate tried.
        lowest_tried_pps: f64,
    },
    /// A trial and all its repeats were invalid because the tester failed.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each trial, oldest first.
        reasons: Vec<String>,
    },
    /// The search reached `max_trials` before the step fell below the resolution.
    TrialLimit,
}

/// Findings of a [`SingleRun`](super::SingleRun).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleRunFindings {
    /// The parameters.
    pub config: SingleRunConfig,
    /// Reason for the end.
    pub end: SearchEnd,
    /// The result: the highest rate at which a valid trial lost no more than the tolerance. `None` if there was none.
    pub highest_held_pps: Option<f64>,
    /// Number of valid trials at or below that rate that lost more than the tolerance. If it is above zero, the device was inconsistent,
    /// and another order of trials would have given another result.
    pub lost_at_or_under_highest_held: u32,
    /// Rate at which the published method ends and which it reports: the last rate tried, which may itself have lost too much. `None` if
    /// the search ended before the step fell below the resolution.
    pub published_pps: Option<f64>,
    /// Whether the trial at `published_pps` held; `None` without that rate.
    pub published_held: Option<bool>,
}

impl SingleRunFindings {
    /// Returns true if the capacity may exceed the result, because no higher rate was allowed.
    #[must_use]
    pub fn is_lower_limit_only(&self) -> bool {
        self.end == SearchEnd::HeldAtMaxRate
    }
}
