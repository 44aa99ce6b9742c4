// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the system recovery.

use serde::{Deserialize, Serialize};

use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Overload, as a part of the throughput.
pub(super) const OVERLOAD: f64 = 1.1;

/// Parameters of a [`SystemRecovery`](super::SystemRecovery).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemRecoveryConfig {
    /// Throughput of the device, found before, frames per second. The overload is 110 % of it, or `max_rate_pps` where
    /// that is less.
    pub throughput_pps: f64,
    /// Highest rate that the tester or the medium allows, frames per second.
    pub max_rate_pps: f64,
    /// How long the overload is offered, seconds. RFC 2544 asks for at least 60.
    pub overload_s: f64,
    /// How long half of it is offered then, seconds.
    pub reduced_s: f64,
    /// How often.
    pub repeats: u32,
    /// Level of the confidence interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// How often one repetition is made again because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl SystemRecoveryConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("throughput_pps", self.throughput_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        positive("overload_s", self.overload_s)?;
        positive("reduced_s", self.reduced_s)?;
        confidence(self.confidence)?;
        if self.repeats == 0 {
            return Err(ConfigError::Zero { name: "repeats" });
        }
        Ok(())
    }

    /// The load that is too much, frames per second.
    #[must_use]
    pub fn overload_pps(&self) -> f64 {
        (OVERLOAD * self.throughput_pps).min(self.max_rate_pps)
    }
}

/// What a [`SystemRecovery`](super::SystemRecovery) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemRecoveryFindings {
    /// The parameters it ran with.
    pub config: SystemRecoveryConfig,
    /// Of each repetition, from the reduction of the load to the last lost frame, seconds; none where frames were lost
    /// to the end.
    pub recoveries_s: Vec<Option<f64>>,
    /// Of the repetitions in which the device recovered, seconds: the mean is the result.
    pub recovery_s: Option<Statistics>,
}
