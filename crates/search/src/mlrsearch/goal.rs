// SPDX-License-Identifier: Apache-2.0
//! Goals of an MLRsearch (RFC 9971, "Search Goal"), and its limits.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio};

/// Smallest relative width. Below it, neighbouring loads would differ by rounding only.
const WIDTH_MIN: f64 = 1e-9;

/// Search goal: the conditions for a lower bound, and the width to which the bounds must converge.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrGoal {
    /// Duration from which trials are full-length, seconds ("Goal Final Trial Duration").
    pub final_trial_duration_s: f64,
    /// Effective duration to measure at a load before it is classified, unless the remaining time cannot change the class, seconds ("Goal
    /// Duration Sum").
    pub duration_sum_s: f64,
    /// Largest loss ratio of a low-loss trial ("Goal Loss Ratio").
    pub loss_ratio: LossRatio,
    /// Part of the duration sum that may be in high-loss trials at a lower bound, in \[0, 1) ("Goal Exceed Ratio").
    pub exceed_ratio: f64,
    /// Largest distance of the bounds, as a part of the upper one ("Goal Width").
    pub width: f64,
    /// Duration of the first trial at a load, seconds ("Goal Initial Trial Duration").
    pub initial_trial_duration_s: f64,
}

impl MlrGoal {
    /// Returns FD.io's goal: trials of 1 s, 21 s in total, half of them may exceed, width 0.5 %.
    #[must_use]
    pub fn fdio(loss_ratio: LossRatio) -> Self {
        Self {
            final_trial_duration_s: 1.0,
            duration_sum_s: 21.0,
            loss_ratio,
            exceed_ratio: 0.5,
            width: 0.005,
            initial_trial_duration_s: 1.0,
        }
    }

    /// Returns the goal of the RFC 2544 throughput: one trial of 60 s without loss, narrowed down by trials of 1 s.
    #[must_use]
    pub fn rfc2544() -> Self {
        Self {
            final_trial_duration_s: 60.0,
            duration_sum_s: 60.0,
            loss_ratio: LossRatio::ZERO,
            exceed_ratio: 0.0,
            width: 0.005,
            initial_trial_duration_s: 1.0,
        }
    }

    /// Checks every attribute.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("final_trial_duration_s", self.final_trial_duration_s)?;
        positive("duration_sum_s", self.duration_sum_s)?;
        positive("initial_trial_duration_s", self.initial_trial_duration_s)?;
        if !(0.0..1.0).contains(&self.exceed_ratio) {
            return Err(ConfigError::ExceedRatio(self.exceed_ratio));
        }
        if !(WIDTH_MIN..1.0).contains(&self.width) {
            return Err(ConfigError::Width(self.width));
        }
        if self.initial_trial_duration_s > self.final_trial_duration_s {
            return Err(ConfigError::InitialOverFinal {
                initial_s: self.initial_trial_duration_s,
                final_s: self.final_trial_duration_s,
            });
        }
        Ok(())
    }

    /// Returns the width as a difference of natural logarithms, the unit of all steps.
    pub(super) fn log_width(&self) -> f64 {
        -(-self.width).ln_1p()
    }

    /// Returns true if the two bounds are close enough. A small tolerance covers the rounding of loads that are one width apart.
    pub(super) fn is_narrow(&self, lower_pps: f64, upper_pps: f64) -> bool {
        upper_pps - lower_pps <= self.width * upper_pps * (1.0 + 1e-9)
    }
}

/// Parameters of a [`crate::MlrSearch`]. Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrSearchConfig {
    /// The goals, at least one. A trial counts for every goal.
    pub goals: Vec<MlrGoal>,
    /// Lowest rate offered.
    pub min_rate_pps: f64,
    /// Highest rate offered: the line rate, or the highest rate of the tester.
    pub max_rate_pps: f64,
    /// Largest number of repeats of an invalid trial before the search ends.
    pub max_invalid_repeats: u32,
    /// Largest number of trials in the whole search, including invalid ones.
    pub max_trials: u32,
}

impl MlrSearchConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.goals.is_empty() {
            return Err(ConfigError::NoGoals);
        }
        self.goals.iter().try_for_each(MlrGoal::validate)?;
        positive("min_rate_pps", self.min_rate_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        ordered(self.min_rate_pps, self.max_rate_pps)?;
        if self.max_trials == 0 {
            return Err(ConfigError::Zero { name: "max_trials" });
        }
        Ok(())
    }
}
