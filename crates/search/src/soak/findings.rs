// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the soak.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio};

/// Parameters of a [`Soak`](super::Soak). Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakConfig {
    /// Loss ratio at the critical load, above zero, such as 1e-7.
    pub loss_ratio: LossRatio,
    /// Lowest rate offered.
    pub min_rate_pps: f64,
    /// Highest rate offered.
    pub max_rate_pps: f64,
    /// Length of the first trial, seconds.
    pub first_trial_duration_s: f64,
    /// Increase of the duration from one valid trial to the next, seconds.
    pub trial_growth_s: f64,
    /// Total duration of the valid trials after which the soak ends, seconds.
    pub duration_s: f64,
    /// Largest number of repeats of an invalid trial before the soak ends.
    pub max_invalid_repeats: u32,
}

impl SoakConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("loss_ratio", self.loss_ratio.get())?;
        positive("min_rate_pps", self.min_rate_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        positive("first_trial_duration_s", self.first_trial_duration_s)?;
        positive("trial_growth_s", self.trial_growth_s)?;
        positive("duration_s", self.duration_s)?;
        ordered(self.min_rate_pps, self.max_rate_pps)?;
        Ok(())
    }
}

/// Reason for the end of a [`Soak`](super::Soak).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SoakEnd {
    /// The duration was reached.
    Finished,
    /// A trial and all its repeats were invalid because the tester failed.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each trial, oldest first.
        reasons: Vec<String>,
    },
}

/// Estimate of the critical load, frames per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriticalLoad {
    /// Mean of the estimate.
    pub mean_pps: f64,
    /// Standard deviation of the estimate.
    pub deviation_pps: f64,
}

/// Findings of a [`Soak`](super::Soak). The result is an estimate, not a rate at which the loss was observed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakFindings {
    /// The parameters.
    pub config: SoakConfig,
    /// Reason for the end.
    pub end: SoakEnd,
    /// Critical load: the mean of both shapes. Its deviation includes the distance between them. `None` without a valid trial.
    pub critical_load: Option<CriticalLoad>,
    /// Estimate by the shape with exponential tails.
    pub stretch: Option<CriticalLoad>,
    /// Estimate by the shape with normal tails.
    pub erf: Option<CriticalLoad>,
    /// True if the estimate exceeds the highest rate offered, at which the device did not lose enough.
    pub is_over_range: bool,
    /// Number of valid trials.
    pub trials: u32,
    /// Total duration of the valid trials, seconds.
    pub trials_s: f64,
}
