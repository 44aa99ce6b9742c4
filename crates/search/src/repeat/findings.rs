// SPDX-License-Identifier: Apache-2.0
//! Parameters of repeated searches.

use serde::{Deserialize, Serialize};

use crate::ThroughputSearch;

/// Parameters of a [`Repeat`](super::Repeat).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatConfig {
    /// The search, the same each time.
    pub search: ThroughputSearch,
    /// Number of repeats. Many more than 10 show something about a device.
    pub runs: u32,
    /// Level of the confidence interval, between 0 and 1: 0.95.
    pub confidence: f64,
}
