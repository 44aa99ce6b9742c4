// SPDX-License-Identifier: Apache-2.0
//! Sections for methods that take more than trials: bursts, overloads, restarts, addresses.

use quietwire_search::procedure::RestartKind;
use serde::{Deserialize, Serialize};

use super::Percent;

/// The throughput that a procedure starts from: a goal's result, or a part of the maximum rate.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Throughput<'a> {
    /// What was found for this goal.
    OfGoal(&'a str),
    /// This part of the maximum rate.
    Of(Percent),
}

/// Without a rate, the goal that is called so.
const GOAL: &str = "NDR";

fn throughput<'a>(goal: Option<&'a String>, rate: Option<Percent>) -> Throughput<'a> {
    match (goal, rate) {
        (_, Some(rate)) => Throughput::Of(rate),
        (goal, None) => Throughput::OfGoal(goal.map_or(GOAL, String::as_str)),
    }
}

/// `[back-to-back]`: the longest burst without loss (RFC 2544, section 26.4; RFC 9004).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct BackToBackPlan {
    /// Name of the goal whose rate is the throughput. Without it `NDR`.
    pub goal: Option<String>,
    /// The throughput in percent of the maximum rate, in place of a goal.
    pub rate_percent: Option<Percent>,
    /// Longest burst, seconds of frames at the maximum rate. Without it 2, as RFC 2544 asks.
    #[serde(default = "longest_burst_s")]
    pub longest_burst_s: f64,
    /// The search for the longest burst stops at this, frames. Without it 1.
    #[serde(default = "one")]
    pub resolution_frames: u32,
    /// How often that search is made. Without it 50, as RFC 2544 recommends.
    #[serde(default = "fifty")]
    pub repeats: u32,
    /// How long to wait after each burst, seconds. Without it 2, the time of the longest burst, or `drain-s` of `[trials]`,
    /// whichever is longest (RFC 9004, section 6.2).
    pub pause_s: Option<f64>,
}

/// `[system-recovery]`: how long a device goes on losing after an overload (RFC 2544, section 26.5).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct SystemRecoveryPlan {
    /// Name of the goal whose rate is the throughput. Without it `NDR`.
    pub goal: Option<String>,
    /// The throughput in percent of the maximum rate, in place of a goal.
    pub rate_percent: Option<Percent>,
    /// How long 110 % of it is offered, seconds. Without it 60, as RFC 2544 asks.
    #[serde(default = "overload_s")]
    pub overload_s: f64,
    /// How long half of that is offered then, seconds. Without it 10.
    #[serde(default = "reduced_s")]
    pub reduced_s: f64,
    /// How often. Without it 5.
    #[serde(default = "five")]
    pub repeats: u32,
}

/// `[reset]`: how long nothing is forwarded when the device is restarted (RFC 6201).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ResetPlan {
    /// Name of the goal whose rate is offered meanwhile. Without it `NDR`.
    pub goal: Option<String>,
    /// What is offered meanwhile, in percent of the maximum rate, in place of a goal.
    pub rate_percent: Option<Percent>,
    /// How it is restarted. Without it `software`, the only kind that the lab can do.
    #[serde(default = "software")]
    pub kind: RestartKind,
    /// How long to wait for frames to come again, seconds. Without it 60.
    #[serde(default = "limit_s")]
    pub limit_s: f64,
    /// How often. Without it 5.
    #[serde(default = "five")]
    pub repeats: u32,
}

/// `[address-caching]`: how many addresses a switch keeps (RFC 2889, section 5.7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddressCachingPlan {
    /// Most addresses to try.
    pub max_addresses: u32,
    /// The search stops at this many. Without it 1.
    #[serde(default = "one")]
    pub resolution_addresses: u32,
    /// Rate of learning frames, frames per second. Without it 1000.
    #[serde(default = "learning_rate_pps")]
    pub learning_rate_pps: f64,
    /// Rate of frames to learned addresses, frames per second. Without it 10 000.
    #[serde(default = "probe_rate_pps")]
    pub probe_rate_pps: f64,
    /// How long the device keeps addresses, seconds, which is waited for before each number: only where neither the lab nor a
    /// simulation can empty its table.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing_s: Option<f64>,
}

/// `[address-learning-rate]`: how fast new addresses may come (RFC 2889, section 5.8).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct AddressLearningRatePlan {
    /// How many addresses, no more than the switch keeps.
    pub addresses: u32,
    /// Highest rate of learning frames to try, frames per second.
    pub max_rate_pps: u32,
    /// The search stops at this, frames per second. Without it 100.
    #[serde(default = "hundred")]
    pub resolution_pps: u32,
    /// Rate of frames to learned addresses, frames per second. Without it 10 000.
    #[serde(default = "probe_rate_pps")]
    pub probe_rate_pps: f64,
    /// As for `[address-caching]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ageing_s: Option<f64>,
}

/// Shortest pause after a burst, seconds (RFC 9004, section 6.2).
const PAUSE_MIN_S: f64 = 2.0;

impl BackToBackPlan {
    /// How long to wait after each burst, where trials wait so long for their last frames, seconds.
    pub(crate) fn pause_s(&self, drain_s: f64) -> f64 {
        self.pause_s
            .unwrap_or(PAUSE_MIN_S.max(self.longest_burst_s).max(drain_s))
    }

    pub(crate) fn throughput(&self) -> Throughput<'_> {
        throughput(self.goal.as_ref(), self.rate_percent)
    }
}

impl SystemRecoveryPlan {
    pub(crate) fn throughput(&self) -> Throughput<'_> {
        throughput(self.goal.as_ref(), self.rate_percent)
    }
}

impl ResetPlan {
    pub(crate) fn throughput(&self) -> Throughput<'_> {
        throughput(self.goal.as_ref(), self.rate_percent)
    }
}

fn one() -> u32 {
    1
}

fn five() -> u32 {
    5
}

fn fifty() -> u32 {
    50
}

fn hundred() -> u32 {
    100
}

fn longest_burst_s() -> f64 {
    2.0
}

fn overload_s() -> f64 {
    60.0
}

fn reduced_s() -> f64 {
    10.0
}

fn limit_s() -> f64 {
    60.0
}

fn learning_rate_pps() -> f64 {
    1000.0
}

fn probe_rate_pps() -> f64 {
    10_000.0
}

fn software() -> RestartKind {
    RestartKind::Software
}
