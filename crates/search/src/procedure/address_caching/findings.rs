// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the address caching capacity.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::positive;

/// Parameters of an [`AddressCaching`](super::AddressCaching).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressCachingConfig {
    /// Most addresses to try, and the first number tried.
    pub max_addresses: u32,
    /// The search stops when the most that were kept and the fewest that were not are so near.
    pub resolution_addresses: u32,
    /// Rate of the learning frames, frames per second: one that the switch is sure to learn at.
    pub learning_rate_pps: f64,
    /// Rate of the frames to learned addresses, frames per second: one that the switch is sure to forward.
    pub probe_rate_pps: f64,
    /// How often one action is repeated because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl AddressCachingConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("learning_rate_pps", self.learning_rate_pps)?;
        positive("probe_rate_pps", self.probe_rate_pps)?;
        for (name, count) in [
            ("max_addresses", self.max_addresses),
            ("resolution_addresses", self.resolution_addresses),
        ] {
            if count == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        Ok(())
    }
}

/// What an [`AddressCaching`](super::AddressCaching) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressCachingFindings {
    /// The parameters it ran with.
    pub config: AddressCachingConfig,
    /// Most addresses that were kept without a frame flooded or lost; none when not even the fewest tried were.
    pub capacity_addresses: Option<u32>,
    /// True when that is the most that were allowed to be tried: the switch may keep more.
    pub is_limit: bool,
}
