// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of back-to-back frames.

use serde::{Deserialize, Serialize};

use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics};

/// Parameters of a [`BackToBack`](super::BackToBack).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackConfig {
    /// Rate of a burst if the tester does not measure it: the highest rate of the medium, frames per second ("Max Theoretical Frame
    /// Rate").
    pub max_rate_pps: f64,
    /// Throughput at this frame size, measured before, frames per second. It must be below `max_rate_pps`: otherwise the device never
    /// buffers frames, and the test has no result (RFC 9004, section 4).
    pub throughput_pps: f64,
    /// Longest burst, frames. RFC 2544 requires at least 2 s.
    pub max_burst_frames: u64,
    /// Resolution: the search ends when the longest burst without loss and the shortest with loss differ by no more than this, frames.
    pub resolution_frames: u64,
    /// Number of searches. RFC 2544 recommends 50.
    pub repeats: u32,
    /// Wait after each burst, seconds.
    pub pause_s: f64,
    /// Confidence level of the interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// Largest number of repeats of an invalid burst before the procedure ends.
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

/// Findings of a [`BackToBack`](super::BackToBack).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBackFindings {
    /// The parameters.
    pub config: BackToBackConfig,
    /// Longest burst without loss of each repetition, frames; 0 if none passed.
    pub longest_frames: Vec<u64>,
    /// Number of repetitions in which the longest burst allowed passed: the true value may be higher.
    pub at_limit: u32,
    /// Statistics of the longest bursts, frames. The mean is the result. `None` before the first repetition.
    pub frames: Option<Statistics>,
    /// Rate of the longest bursts, frames per second, if the tester measured it.
    #[serde(default)]
    pub burst_rate_pps: Option<Statistics>,
    /// Duration of the mean burst, seconds ("Implied DUT Buffer Time").
    pub implied_buffer_s: Option<f64>,
    /// Duration of the mean burst minus the frames forwarded meanwhile, seconds ("Corrected DUT Buffer Time", RFC 9004, section 6.4);
    /// `None` if the burst rate did not exceed the forwarding rate.
    pub corrected_buffer_s: Option<f64>,
}
