// SPDX-License-Identifier: Apache-2.0
//! Sections for the methods beside the search and the sweep.

use quietwire_search::PartsOf;
use serde::{Deserialize, Serialize};

use super::Percent;

/// `[loss-distribution]`: many trials at each of a few rates. Exactly one of `loads-percent` and `between` is given.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LossDistributionPlan {
    /// Offered loads, percent of the maximum rate.
    pub loads_percent: Option<Vec<Percent>>,
    /// Name of a goal: the rates are between what worst-of-N and best-of-N found for it.
    pub between: Option<String>,
    /// With `between`: how many rates, evenly apart. Without it five.
    pub rates: Option<u32>,
    /// Trials at each rate.
    pub trials: u32,
    /// Length of each, seconds. Without it `duration-s` of `[trials]`.
    pub duration_s: Option<f64>,
}

/// `[soak]`: the load at which a tiny part is lost over a long time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SoakPlan {
    /// The part that may be lost, above 0 and under 1. Without it 1e-7.
    #[serde(default = "soak_loss_ratio")]
    pub loss_ratio: f64,
    /// Rate under which nothing is offered. Without it 0.1 %.
    pub min_rate_percent: Option<Percent>,
    /// Length of the first trial, seconds. Without it `duration-s` of `[trials]`.
    pub first_trial_duration_s: Option<f64>,
    /// By how much each valid trial is longer than the one before, seconds. Without it 0.1.
    #[serde(default = "soak_trial_growth_s")]
    pub trial_growth_s: f64,
    /// How long the valid trials are together, seconds.
    pub duration_s: f64,
}

/// `[forwarding-rate]`: what comes through of the maximum offered load, and of lower ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ForwardingRatePlan {
    /// Lower loads, percent of the maximum rate, each under 100.
    #[serde(default)]
    pub lower_loads_percent: Vec<Percent>,
    /// Length of each trial, seconds. Without it `duration-s` of `[trials]`; RFC 2889 asks for 30.
    pub duration_s: Option<f64>,
}

/// `[latency-plan]`: latency at NDR, at PDR, at the last linear step under each, and at 10, 50 and 90 % of one of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct LatencyPlanSection {
    /// Name of the goal that NDR is taken from.
    #[serde(default = "ndr")]
    pub ndr: String,
    /// Name of the goal that PDR is taken from.
    #[serde(default = "pdr")]
    pub pdr: String,
    /// Which of both 10, 50 and 90 % are of. Without it PDR.
    #[serde(default)]
    pub parts_of: PartsOf,
    /// First linear step. Without it that of `[search]`.
    pub start_rate_percent: Option<Percent>,
    /// Distance of linear steps. Without it that of `[search]`.
    pub start_step_percent: Option<Percent>,
    /// Length of each trial, seconds. Without it `duration-s` of `[trials]`; RFC 2544 asks for 120.
    pub duration_s: Option<f64>,
}

fn soak_loss_ratio() -> f64 {
    1e-7
}

fn soak_trial_growth_s() -> f64 {
    0.1
}

fn ndr() -> String {
    "NDR".to_owned()
}

fn pdr() -> String {
    "PDR".to_owned()
}
