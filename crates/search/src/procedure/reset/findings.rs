// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the reset.

use serde::{Deserialize, Serialize};

use super::super::action::RestartKind;
use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Parameters of a [`Reset`](super::Reset).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetConfig {
    /// How the device is restarted.
    pub kind: RestartKind,
    /// Load meanwhile, frames per second: the throughput of the smallest frames.
    pub rate_pps: f64,
    /// How long to wait for frames to come again, seconds.
    pub limit_s: f64,
    /// How often.
    pub repeats: u32,
    /// Level of the confidence interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// How often one restart is made again because it was invalid, before all is given up.
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

/// One restart after which frames came again.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outage {
    /// Lost frames over the load, seconds (RFC 6201, "frame-loss method").
    pub by_loss_s: f64,
    /// From the last frame before to the first one after, seconds, where the tester has it ("timestamp method").
    pub by_time_s: Option<f64>,
}

/// What a [`Reset`](super::Reset) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResetFindings {
    /// The parameters it ran with.
    pub config: ResetConfig,
    /// Each restart; none where no frame came within the limit.
    pub outages: Vec<Option<Outage>>,
    /// By the frame-loss method, of the restarts after which frames came again, seconds: the mean is the result.
    pub reset_s: Option<Statistics>,
}
