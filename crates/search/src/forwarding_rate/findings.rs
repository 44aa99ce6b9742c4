// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the forwarding rate.

use serde::{Deserialize, Serialize};

/// Parameters of a [`ForwardingRate`](super::ForwardingRate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateConfig {
    /// Maximum offered load, frames per second: line rate, or what the tester itself can send.
    pub max_rate_pps: f64,
    /// Further loads under it, frames per second, each once: among all of them is the maximum forwarding rate.
    pub lower_rates_pps: Vec<f64>,
    /// Length of every trial, seconds. RFC 2889 asks for 30.
    pub trial_duration_s: f64,
    /// How often one trial is repeated because it was invalid, before its load is left out.
    pub max_invalid_repeats: u32,
}

/// What came through at one load.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forwarded {
    /// The load, frames per second.
    pub offered_pps: f64,
    /// What came through, frames per second.
    pub forwarded_pps: f64,
}

/// What a [`ForwardingRate`](super::ForwardingRate) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForwardingRateFindings {
    /// The parameters it ran with.
    pub config: ForwardingRateConfig,
    /// Forwarding rate at maximum offered load, frames per second; none when the tester failed there.
    pub at_max_load_pps: Option<f64>,
    /// The highest forwarding rate at any load, with that load (the lowest of equals): the maximum forwarding rate.
    pub maximum: Option<Forwarded>,
    /// Every load whose trial was valid, in the order of the trials.
    pub loads: Vec<Forwarded>,
}
