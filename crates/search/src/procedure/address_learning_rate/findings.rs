// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the address learning rate.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::positive;

/// Parameters of an [`AddressLearningRate`](super::AddressLearningRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateConfig {
    /// Addresses to learn: no more than the caching capacity that [`super::super::AddressCaching`] found.
    pub addresses: u32,
    /// Highest rate of learning frames, frames per second, and the first one tried.
    pub max_rate_pps: u32,
    /// The search stops when the highest rate that was learned at and the lowest that was not are so near, frames per
    /// second.
    pub resolution_pps: u32,
    /// Rate of the frames to learned addresses, frames per second: one that the switch is sure to forward.
    pub probe_rate_pps: f64,
    /// How often one action is repeated because it was invalid, before all is given up.
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

/// What an [`AddressLearningRate`](super::AddressLearningRate) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressLearningRateFindings {
    /// The parameters it ran with.
    pub config: AddressLearningRateConfig,
    /// Highest rate at which all addresses were learned, frames per second; none when they were at no rate tried.
    pub learning_rate_pps: Option<u32>,
    /// True when that is the highest that was allowed to be tried: the switch may learn faster.
    pub is_limit: bool,
}
