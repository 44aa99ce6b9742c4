// SPDX-License-Identifier: Apache-2.0
//! `[trials]`.

use serde::{Deserialize, Serialize};

use super::values::MaxRate;

/// Settings of all trials (`[trials]`).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trials {
    /// Measurement time, seconds.
    pub duration_s: f64,
    /// Warm-up: time of load before the measurement, seconds.
    #[serde(default = "warm_up_s")]
    pub warm_up_s: f64,
    /// Drain: time of receiving after the measurement, seconds.
    #[serde(default = "drain_s")]
    pub drain_s: f64,
    /// 100 % of the load.
    #[serde(default)]
    pub max_rate_pps: MaxRate,
    /// Maximum number of repeats of a trial in which the tester failed.
    #[serde(default = "invalid_repeats")]
    pub invalid_repeats: u32,
}

fn warm_up_s() -> f64 {
    0.2
}

fn drain_s() -> f64 {
    0.1
}

/// Returns the default: if one trial in three is invalid, a search of a hundred trials fails once in a thousand searches.
fn invalid_repeats() -> u32 {
    10
}
