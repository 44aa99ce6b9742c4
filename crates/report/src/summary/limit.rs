// SPDX-License-Identifier: Apache-2.0
//! Limits of the rates that searches find: the tester, the CPUs of the device, or something else.

use quietwire_study::{Goal, StepKind, TrialRecord};
use serde::Serialize;

use super::cycles::{element_of, with_traffic_s};
use super::spread::Spread;
use super::steps::{Steps, of_kind};
use super::throughput::GoalSummary;
use crate::format;

/// A thread with less idle time than this share has none to spare.
const IDLE_MIN: f64 = 0.05;

/// Limit of a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limiter {
    /// The tester: the highest rate that it offered held.
    Tester,
    /// The device: above the rate it lost frames, and a forwarding thread had no idle time.
    DeviceCpu,
    /// The device: above the rate it lost frames. The idle time of its forwarding threads is unknown.
    Device,
    /// Not the CPUs of the device: above the rate it lost frames, although all its forwarding threads had idle time.
    NotDeviceCpu,
}

/// Limit of the rate that was found for a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The part that limited the rate.
    pub by: Limiter,
    /// Share of the time with traffic, 0 to 1, in which the device's busiest forwarding thread had no frames. None if the device does not
    /// count cycles.
    pub device_idle_ratio: Option<Spread>,
    /// Share of the time in which frames were offered, 0 to 1, in which the tester's busiest thread had none to send or to receive. None
    /// if the tester does not measure it.
    pub tester_idle_ratio: Option<Spread>,
}

impl Limiter {
    /// Returns the word for it: `tester`, `device`, `not the CPU`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Tester => "tester",
            Self::DeviceCpu | Self::Device => "device",
            Self::NotDeviceCpu => "not the CPU",
        }
    }
}

impl Limit {
    /// Formats the limit: `tester, device idle 43 %`.
    pub(crate) fn text(&self) -> String {
        let idle = |of: &str, ratio: &Option<Spread>| {
            ratio.as_ref().map_or_else(String::new, |ratio| {
                format!(", {of} idle {}", format::percent(ratio.median * 100.0))
            })
        };
        let idle = match self.by {
            Limiter::Tester | Limiter::NotDeviceCpu => idle("device", &self.device_idle_ratio),
            Limiter::DeviceCpu | Limiter::Device => idle("tester", &self.tester_idle_ratio),
        };
        format!("{}{idle}", self.by.word())
    }
}

/// Returns the limit of the rate that was found for a goal; none if none was found.
pub(super) fn of_goal(steps: &Steps<'_>, goal: &Goal, found: &GoalSummary) -> Option<Limit> {
    let rate_pps = found.rate_pps.as_ref()?.median;
    if rate_pps <= 0.0 {
        return None;
    }
    let kinds = [StepKind::Search(goal.name.clone()), StepKind::Goals];
    let trials: Vec<&TrialRecord> = kinds
        .iter()
        .flat_map(|kind| of_kind(steps, kind))
        .flat_map(|step| &step.trials)
        .filter(|trial| trial.result.is_valid())
        .collect();
    let has_held = |trial: &&&TrialRecord| trial.result.loss_ratio <= goal.loss_ratio;
    let at_limit: Vec<&TrialRecord> = if found.is_lower_limit_only {
        let held = trials.iter().filter(has_held);
        nearest(held.copied().collect(), |one, other| one > other)
    } else {
        let lost = trials
            .iter()
            .filter(|trial| !has_held(trial) && trial.result.achieved_rate_pps > rate_pps);
        nearest(lost.copied().collect(), |one, other| one < other)
    };
    let device_idle_ratio =
        Spread::of(at_limit.iter().filter_map(|one| device_idle(one)).collect());
    let tester_idle = |trial: &&TrialRecord| trial.result.health.idle_ratio;
    let tester_idle_ratio = Spread::of(at_limit.iter().filter_map(tester_idle).collect());
    let by = match &device_idle_ratio {
        _ if found.is_lower_limit_only => Limiter::Tester,
        None => Limiter::Device,
        Some(idle) if idle.median < IDLE_MIN => Limiter::DeviceCpu,
        Some(_) => Limiter::NotDeviceCpu,
    };
    Some(Limit {
        by,
        device_idle_ratio,
        tester_idle_ratio,
    })
}

/// Returns the trials at the first intended rate in the given order.
fn nearest(trials: Vec<&TrialRecord>, is_before: fn(f64, f64) -> bool) -> Vec<&TrialRecord> {
    let rate = |trial: &TrialRecord| trial.request.offered_rate_pps;
    let first = trials
        .iter()
        .map(|trial| rate(trial))
        .reduce(|one, other| if is_before(other, one) { other } else { one });
    trials
        .into_iter()
        .filter(|trial| Some(rate(trial)) == first)
        .collect()
}

/// Returns the share of the time with traffic in which the device's busiest forwarding thread had no frames.
fn device_idle(trial: &TrialRecord) -> Option<f64> {
    let element = element_of(trial)?;
    let busiest = *element.counted.as_ref()?.threads.iter().max()?;
    let ticks = with_traffic_s(trial) * element.tsc_hz as f64;
    (busiest > 0 && ticks > 0.0).then(|| (1.0 - busiest as f64 / ticks).max(0.0))
}
