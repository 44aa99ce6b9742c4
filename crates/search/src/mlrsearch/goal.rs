// SPDX-License-Identifier: Apache-2.0
//! What an MLRsearch looks for (RFC 9971, "Search Goal"), and what it may try.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio};

/// Narrowest relative width: beneath it, neighbouring loads would differ by rounding only.
const WIDTH_MIN: f64 = 1e-9;

/// One search goal: when a load counts as a lower bound, and how near to each other the bounds have to come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrGoal {
    /// Trials at least this long are full-length, seconds ("Goal Final Trial Duration").
    pub final_trial_duration_s: f64,
    /// So much has to be measured at a load before it is classified, unless the rest could not change the class,
    /// seconds of effective duration ("Goal Duration Sum").
    pub duration_sum_s: f64,
    /// Loss at or under which a trial is a low-loss one ("Goal Loss Ratio").
    pub loss_ratio: LossRatio,
    /// Part of the duration sum that may be in high-loss trials at a lower bound, in \[0, 1) ("Goal Exceed Ratio").
    pub exceed_ratio: f64,
    /// The bounds are near enough when they differ by no more than this part of the upper one ("Goal Width").
    pub width: f64,
    /// Length of the first trial at a load, seconds ("Goal Initial Trial Duration").
    pub initial_trial_duration_s: f64,
}

impl MlrGoal {
    /// FD.io's goal: trials of 1 s, 21 s in all, half of them may exceed, width 0.5 %.
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

    /// The throughput of RFC 2544: one trial of 60 s without loss; narrowed down by trials of 1 s.
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

    /// The width as a difference of natural logarithms, in which all steps are made.
    pub(super) fn log_width(&self) -> f64 {
        -(-self.width).ln_1p()
    }

    /// True when the two bounds are near enough. A hair is allowed, since loads a width apart are meant to be.
    pub(super) fn is_narrow(&self, lower_pps: f64, upper_pps: f64) -> bool {
        upper_pps - lower_pps <= self.width * upper_pps * (1.0 + 1e-9)
    }
}

/// Parameters of a [`crate::MlrSearch`]. Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MlrSearchConfig {
    /// What to search for, at least one; a trial counts for every goal.
    pub goals: Vec<MlrGoal>,
    /// Rate under which nothing is ever offered.
    pub min_rate_pps: f64,
    /// Rate over which nothing is ever offered: line rate, or what the tester itself can send.
    pub max_rate_pps: f64,
    /// How often one trial is repeated because it was invalid, before the search is given up.
    pub max_invalid_repeats: u32,
    /// Most trials in the whole search, invalid ones included.
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
