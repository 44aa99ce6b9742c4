// SPDX-License-Identifier: Apache-2.0
//! `[trials]`.

use serde::{Deserialize, Serialize};

use super::values::MaxRate;

/// `[trials]`: what all trials have in common.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trials {
    /// How long frames are counted, seconds.
    pub duration_s: f64,
    /// How long the load is offered before that, seconds.
    #[serde(default = "warm_up_s")]
    pub warm_up_s: f64,
    /// How long the tester goes on receiving afterwards, seconds.
    #[serde(default = "drain_s")]
    pub drain_s: f64,
    /// What 100 % means.
    #[serde(default)]
    pub max_rate_pps: MaxRate,
    /// How often a trial in which the tester itself failed is made again.
    #[serde(default = "invalid_repeats")]
    pub invalid_repeats: u32,
}

fn warm_up_s() -> f64 {
    0.2
}

fn drain_s() -> f64 {
    0.1
}

/// With one trial in three invalid, a search of a hundred trials gives up in one of a thousand.
fn invalid_repeats() -> u32 {
    10
}
