// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of back-to-back frames.

use serde::{Deserialize, Serialize};

use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Parameters of a [`BackToBack`](super::BackToBack).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackConfig {
    /// Rate of a burst, unless its tester tells it: the highest that the medium allows, frames per second ("Max Theoretical
    /// Frame Rate").
    pub max_rate_pps: f64,
    /// Throughput of this frame size, found before, frames per second. Where it is not under `max_rate_pps`, the test
    /// tells nothing, since the device never has to store frames (RFC 9004, section 4).
    pub throughput_pps: f64,
    /// Longest burst, frames. RFC 2544 asks for at least 2 s of them.
    pub max_burst_frames: u64,
    /// The search stops when the longest burst that passed and the shortest that did not are so near, frames.
    pub resolution_frames: u64,
    /// How often the search is made. RFC 2544 recommends 50.
    pub repeats: u32,
    /// How long to wait after each burst, seconds.
    pub pause_s: f64,
    /// Level of the confidence interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// How often one burst is repeated because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl BackToBackConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("max_rate_pps", self.max_rate_pps)?;
        positive("throughput_pps", self.throughput_pps)?;
        positive("pause_s", self.pause_s)?;
        if self.throughput_pps >= self.max_rate_pps {
            return Err(ConfigError::NothingToStore {
                throughput_pps: self.throughput_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        confidence(self.confidence)?;
        for (name, is_zero) in [
            ("max_burst_frames", self.max_burst_frames == 0),
            ("resolution_frames", self.resolution_frames == 0),
            ("repeats", self.repeats == 0),
        ] {
            if is_zero {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// What a [`BackToBack`](super::BackToBack) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackFindings {
    /// The parameters it ran with.
    pub config: BackToBackConfig,
    /// The longest burst without loss of each repetition, frames; 0 where none passed.
    pub longest_frames: Vec<u64>,
    /// Repetitions in which the longest burst allowed passed: there the true value may be higher.
    pub at_limit: u32,
    /// Mean (the result), smallest, largest, deviation; none before the first repetition.
    pub frames: Option<Statistics>,
    /// Rate at which the longest bursts went out, frames per second, where the tester told it.
    #[serde(default)]
    pub burst_rate_pps: Option<Statistics>,
    /// How long the mean burst is, seconds ("Implied DUT Buffer Time").
    pub implied_buffer_s: Option<f64>,
    /// The same less what the device forwarded meanwhile, seconds ("Corrected DUT Buffer Time", RFC 9004, section 6.4); none
    /// where bursts went out no faster than that.
    pub corrected_buffer_s: Option<f64>,
}
