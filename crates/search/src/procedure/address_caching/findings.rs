// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the address caching capacity.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::positive;

/// Parameters of an [`AddressCaching`](super::AddressCaching).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressCachingConfig {
    /// Largest number of addresses, which is tried first.
    pub max_addresses: u32,
    /// Resolution: the search ends when the largest number that was kept and the smallest that was not differ by no more than this.
    pub resolution_addresses: u32,
    /// Rate of the learning frames, frames per second. The switch must be able to learn at this rate.
    pub learning_rate_pps: f64,
    /// Rate of the frames to learned addresses, frames per second. The switch must be able to forward at this rate.
    pub probe_rate_pps: f64,
    /// Largest number of repeats of an invalid action before the procedure ends.
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

/// Findings of an [`AddressCaching`](super::AddressCaching).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AddressCachingFindings {
    /// The parameters.
    pub config: AddressCachingConfig,
    /// Largest number of addresses kept without flooding or loss; `None` if not even the smallest number tried was kept.
    pub capacity_addresses: Option<u32>,
    /// True if that is the largest number allowed: the switch may keep more.
    pub is_limit: bool,
}
