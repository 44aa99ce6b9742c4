// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the reset.

use serde::{Deserialize, Serialize};

use super::super::action::RestartKind;
use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Parameters of a [`Reset`](super::Reset).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetConfig {
    /// Kind of the restart.
    pub kind: RestartKind,
    /// Load during the restart, frames per second: the throughput of the smallest frames.
    pub rate_pps: f64,
    /// Time limit for frames to return, seconds.
    pub limit_s: f64,
    /// Number of restarts.
    pub repeats: u32,
    /// Confidence level of the interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// Largest number of repeats of an invalid restart before the procedure ends.
    pub max_invalid_repeats: u32,
}

impl ResetConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("rate_pps", self.rate_pps)?;
        positive("limit_s", self.limit_s)?;
        confidence(self.confidence)?;
        if self.repeats == 0 {
            return Err(ConfigError::Zero { name: "repeats" });
        }
        Ok(())
    }
}

/// Outage of one restart after which frames returned.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Lost frames divided by the load, seconds (RFC 6201, "frame-loss method").
    pub by_loss_s: f64,
    /// Time from the last frame before to the first frame after the restart, seconds, if the tester measured it ("timestamp method").
    pub by_time_s: Option<f64>,
}

/// Findings of a [`Reset`](super::Reset).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetFindings {
    /// The parameters.
    pub config: ResetConfig,
    /// Outage of each restart; `None` if no frame returned within the limit.
    pub outages: Vec<Option<Outage>>,
    /// Statistics by the frame-loss method of the restarts after which frames returned, seconds. The mean is the result.
    pub reset_s: Option<Statistics>,
}
