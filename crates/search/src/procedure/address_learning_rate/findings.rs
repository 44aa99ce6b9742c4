// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the address learning rate.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::positive;

/// Parameters of an [`AddressLearningRate`](super::AddressLearningRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateConfig {
    /// Number of addresses, at most the caching capacity that [`super::super::AddressCaching`] found.
    pub addresses: u32,
    /// Highest rate of learning frames, frames per second, which is tried first.
    pub max_rate_pps: u32,
    /// Resolution: the search ends when the highest rate that was learned and the lowest that was not differ by no more than this, frames
    /// per second.
    pub resolution_pps: u32,
    /// Rate of the frames to learned addresses, frames per second. The switch must be able to forward at this rate.
    pub probe_rate_pps: f64,
    /// Largest number of repeats of an invalid action before the procedure ends.
    pub max_invalid_repeats: u32,
}

impl AddressLearningRateConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("probe_rate_pps", self.probe_rate_pps)?;
        for (name, count) in [
            ("addresses", self.addresses),
            ("max_rate_pps", self.max_rate_pps),
            ("resolution_pps", self.resolution_pps),
        ] {
            if count == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// Findings of an [`AddressLearningRate`](super::AddressLearningRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateFindings {
    /// The parameters.
    pub config: AddressLearningRateConfig,
    /// Highest rate at which all addresses were learned, frames per second; `None` if there was none.
    pub learning_rate_pps: Option<u32>,
    /// True if that is the highest rate allowed: the switch may learn faster.
    pub is_limit: bool,
}
