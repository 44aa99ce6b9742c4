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
    /// Step of the linear phase, and the one that the binary phase halves. A capacity under
    /// `start_rate_pps - 2 * start_step_pps` is out of the method's reach: a start rate no larger than the step
    /// puts the whole range down to `min_rate_pps` within it.
    pub start_step_pps: f64,
    /// The search stops once its step is under this. The rate found is then less than this under the capacity
    /// of a device that loses above a fixed rate and not below it.
    pub resolution_pps: f64,
    /// Loss at or under which a trial holds: zero for NDR, more for PDR.
    pub loss_tolerance: LossRatio,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// Rate under which nothing is ever offered.
    pub min_rate_pps: f64,
    /// Rate over which nothing is ever offered: line rate, or what the tester itself can send.
    pub max_rate_pps: f64,
    /// Most valid trials at one visit of a rate: the rate is taken as lost only once so many in a row have lost too much.
    /// One is the published single run, more its best-of-N.
    pub best_of: u32,
    /// How often one trial is repeated because it was invalid, before the search is given up.
    pub max_invalid_repeats: u32,
    /// Most trials in the whole search, invalid ones included.
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

    /// Most trials that a search with these parameters can take, whatever the outcomes: for estimates of time
    /// and for progress bars. Never over `max_trials`.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        let linear = ((self.max_rate_pps - self.start_rate_pps) / self.start_step_pps).ceil() + 1.0;
        // One at the unhalved step, then one for each halving until the step is under the resolution.
        let binary = (self.start_step_pps / self.resolution_pps).log2().floor() + 2.0;
        let repeats = (f64::from(self.max_invalid_repeats) + 1.0) * f64::from(self.best_of);
        // A rounding error more in the linear phase is one trial more.
        let bound = (linear + 1.0 + binary) * repeats;
        // The cast saturates.
        (bound as u32).min(self.max_trials)
    }
}

/// How a [`SingleRun`](super::SingleRun) ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SearchEnd {
    /// The step came under the resolution and at least one rate held.
    Converged,
    /// The highest rate allowed held: the capacity is at least that.
    HeldAtMaxRate,
    /// Not even the lowest rate allowed held: no result.
    NothingHeldAtMinRate,
    /// The step came under the resolution and no rate tried had held: no result. The capacity is under the
    /// method's reach; start lower, or with a larger step.
    NothingHeldInReach {
        /// Lowest rate that was tried.
        lowest_tried_pps: f64,
    },
    /// A trial and all its repeats were invalid: the tester failed, not the device.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
    /// `max_trials` trials were run before the step came under the resolution.
    TrialLimit,
}

/// What a [`SingleRun`](super::SingleRun) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleRunFindings {
    /// The parameters it ran with.
    pub config: SingleRunConfig,
    /// How it ended.
    pub end: SearchEnd,
    /// The result: the highest rate at which a valid trial lost no more than the tolerance. None when no trial did.
    pub highest_held_pps: Option<f64>,
    /// Valid trials at that rate or a lower one that lost *more* than the tolerance: more than zero means that the
    /// device contradicted itself, and that the result would not have been found by another order of trials.
    pub lost_at_or_under_highest_held: u32,
    /// The rate at which the method, as published, stops and which it calls the result: the last one tried, which may
    /// itself have lost too much. None when the search ended before the step came under the resolution.
    pub published_pps: Option<f64>,
    /// Whether the trial at `published_pps` held. None where that is none.
    pub published_held: Option<bool>,
}

impl SingleRunFindings {
    /// True when the capacity may be higher than the result, because a higher rate was not allowed.
    #[must_use]
    pub fn is_lower_limit_only(&self) -> bool {
        self.end == SearchEnd::HeldAtMaxRate
    }
}
