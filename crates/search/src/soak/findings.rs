// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the soak.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio};

/// Parameters of a [`Soak`](super::Soak). Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakConfig {
    /// The part that may be lost at the critical load, above zero: 1e-7.
    pub loss_ratio: LossRatio,
    /// Rate under which nothing is ever offered.
    pub min_rate_pps: f64,
    /// Rate over which nothing is ever offered.
    pub max_rate_pps: f64,
    /// Length of the first trial, seconds.
    pub first_trial_duration_s: f64,
    /// Every valid trial is longer than the one before by so much, seconds.
    pub trial_growth_s: f64,
    /// The soak ends when its valid trials were so long together, seconds.
    pub duration_s: f64,
    /// How often one trial is repeated because it was invalid, before all is given up.
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

/// How a [`Soak`](super::Soak) ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SoakEnd {
    /// The time was up.
    Finished,
    /// A trial and all its repeats were invalid: the tester failed, not the device.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
}

/// An estimate, frames per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriticalLoad {
    /// Its mean.
    pub mean_pps: f64,
    /// Its standard deviation.
    pub deviation_pps: f64,
}

/// What a [`Soak`](super::Soak) found. An estimate, not a rate that was seen to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakFindings {
    /// The parameters it ran with.
    pub config: SoakConfig,
    /// How it ended.
    pub end: SoakEnd,
    /// The critical load: the mean of both shapes; the deviation has how far apart they are in it. None without a valid
    /// trial.
    pub critical_load: Option<CriticalLoad>,
    /// By the shape with exponential tails.
    pub stretch: Option<CriticalLoad>,
    /// By the shape with normal tails.
    pub erf: Option<CriticalLoad>,
    /// True when the estimate is over the highest rate allowed: there the device was not seen to lose enough.
    pub is_over_range: bool,
    /// Valid trials.
    pub trials: u32,
    /// How long they were together, seconds.
    pub trials_s: f64,
}
