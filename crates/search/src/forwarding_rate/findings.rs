// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the forwarding rate.

use serde::{Deserialize, Serialize};

/// Parameters of a [`ForwardingRate`](super::ForwardingRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateConfig {
    /// Maximum offered load, frames per second: the line rate, or the highest rate of the tester.
    pub max_rate_pps: f64,
    /// Further loads below it, frames per second, each once. The maximum forwarding rate is the maximum over all loads.
    pub lower_rates_pps: Vec<f64>,
    /// Length of every trial, seconds. RFC 2889 requires 30.
    pub trial_duration_s: f64,
    /// Largest number of repeats of an invalid trial before its load is left out.
    pub max_invalid_repeats: u32,
}

/// Forwarding rate at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// The load, frames per second.
    pub offered_pps: f64,
    /// The forwarding rate, frames per second.
    pub forwarded_pps: f64,
}

/// Findings of a [`ForwardingRate`](super::ForwardingRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateFindings {
    /// The parameters.
    pub config: ForwardingRateConfig,
    /// Forwarding rate at maximum offered load, frames per second; `None` if the tester failed.
    pub at_max_load_pps: Option<f64>,
    /// Highest forwarding rate at any load, with that load (the lowest of equals): the maximum forwarding rate.
    pub maximum: Option<Forwarded>,
    /// All loads with a valid trial, in trial order.
    pub loads: Vec<Forwarded>,
}
