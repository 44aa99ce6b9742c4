// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the system recovery.

use serde::{Deserialize, Serialize};

use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Overload, as a multiple of the throughput.
pub(super) const OVERLOAD: f64 = 1.1;

/// Parameters of a [`SystemRecovery`](super::SystemRecovery).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemRecoveryConfig {
    /// Throughput of the device, measured before, frames per second. The overload is 110 % of it, or `max_rate_pps` if that is less.
    pub throughput_pps: f64,
    /// Highest rate that the tester or the medium allows, frames per second.
    pub max_rate_pps: f64,
    /// Duration of the overload, seconds. RFC 2544 requires at least 60.
    pub overload_s: f64,
    /// Duration of the load afterwards, half of the overload, seconds.
    pub reduced_s: f64,
    /// Number of repetitions.
    pub repeats: u32,
    /// Confidence level of the interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// Largest number of repeats of an invalid repetition before the procedure ends.
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

    /// Returns the rate of the overload, frames per second.
    #[must_use]
    pub fn overload_pps(&self) -> f64 {
        (OVERLOAD * self.throughput_pps).min(self.max_rate_pps)
    }
}

/// Findings of a [`SystemRecovery`](super::SystemRecovery).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SystemRecoveryFindings {
    /// The parameters.
    pub config: SystemRecoveryConfig,
    /// Time from the reduction of the load to the last lost frame in each repetition, seconds; `None` if frames were lost until the end.
    pub recoveries_s: Vec<Option<f64>>,
    /// Statistics of the repetitions in which the device recovered, seconds. The mean is the result.
    pub recovery_s: Option<Statistics>,
}
