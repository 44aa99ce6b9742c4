// SPDX-License-Identifier: Apache-2.0
//! Limits of the rates that searches find: the tester, the CPUs of the device, or something else.

use quietwire_study::{Goal, StepKind, SwitchCycles, TrialRecord};
use quietwire_tester::TrialResult;
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
    /// The device: above the rate it lost frames. The idle time of its forwarding threads is unknown, or, for the kernel, inexact.
    Device,
    /// Not the CPUs of the device: above the rate it lost frames, although all its forwarding threads had idle time.
    NotDeviceCpu,
}

/// Limit of the rate that was found for a goal.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Limit {
    /// The part that limited the rate.
    pub by: Limiter,
    /// Share of the time with traffic, 0 to 1, in which the device's busiest forwarding thread had no frames. For a device of the kernel,
    /// the share in which its CPUs did no work for it. None if the device does not count cycles.
    pub device_idle_ratio: Option<Spread>,
    /// Share of the time in which frames were offered, 0 to 1, in which the tester's busiest thread had none to send or to receive. None
    /// if the tester does not measure it.
    pub tester_idle_ratio: Option<Spread>,
}

/// Limit of the rate of a single trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialLimit {
    /// The part that limited the rate. None if all frames of the requested rate came through, and if the trial is invalid.
    pub by: Option<Limiter>,
    /// Share of the time with traffic, 0 to 1, in which the device's busiest forwarding thread had no frames. None if it is unknown.
    pub device_idle_ratio: Option<f64>,
    /// Share of the time in which frames were offered, 0 to 1, in which the tester's busiest thread had none to send or to receive. None
    /// if the tester does not measure it.
    pub tester_idle_ratio: Option<f64>,
    /// True if the trial is valid. An invalid one shows no limit.
    #[serde(skip)]
    is_valid: bool,
}

impl TrialLimit {
    /// Returns the limit of a trial, by the cycles of the device during it if they are known.
    #[must_use]
    pub fn of(result: &TrialResult, device: Option<&SwitchCycles>) -> Self {
        let device_idle_ratio = device.and_then(|device| {
            let with_traffic_s = result.trial.warm_up_s + result.elapsed_s;
            let ticks = with_traffic_s * device.tsc_hz as f64;
            device.count.idle_ratio(ticks)
        });
        let by = match (result.lost_frames, result.trial.is_unpaced()) {
            _ if !result.is_valid() => None,
            (0, true) => Some(Limiter::Tester),
            (0, false) => None,
            (1.., _) => Some(Limiter::of_device(device_idle_ratio)),
        };
        Self {
            by,
            device_idle_ratio,
            tester_idle_ratio: result.health.idle_ratio,
            is_valid: result.is_valid(),
        }
    }

    /// Formats the limit: `device, device idle 0.40 %, tester idle 37 %`.
    #[must_use]
    pub fn text(&self) -> String {
        let idle = |of: &str, ratio: Option<f64>| {
            ratio.map(|ratio| format!("{of} idle {}", format::percent(ratio * 100.0)))
        };
        let limit = match self.by {
            Some(by) => by.word(),
            None if self.is_valid => "none at this rate",
            None => "unknown",
        };
        let parts = [
            Some(limit.to_owned()),
            idle("device", self.device_idle_ratio),
            idle("tester", self.tester_idle_ratio),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        parts.join(", ")
    }
}

impl Limiter {
    /// Returns the limit of a rate above which the device lost frames, by the idle time of its busiest forwarding thread.
    fn of_device(idle_ratio: Option<f64>) -> Self {
        match idle_ratio {
            None => Self::Device,
            Some(idle) if idle < IDLE_MIN => Self::DeviceCpu,
            Some(_) => Self::NotDeviceCpu,
        }
    }

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
    /// Formats the limit with the idle time of both sides: `tester, device idle 43 %, tester idle 2.0 %`. An unknown one is named as such: a
    /// device without it is not busy.
    pub(crate) fn text(&self) -> String {
        let idle = |of: &str, ratio: &Option<Spread>| {
            let ratio = ratio.as_ref();
            let known = ratio.map(|ratio| format::percent(ratio.median * 100.0));
            format!("{of} idle {}", known.as_deref().unwrap_or("unknown"))
        };
        format!(
            "{}, {}, {}",
            self.by.word(),
            idle("device", &self.device_idle_ratio),
            idle("tester", &self.tester_idle_ratio)
        )
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
    let of_device = |idle: fn(&TrialRecord) -> Option<f64>| {
        let ratios = at_limit.iter().filter_map(|trial| idle(trial));
        Spread::of(ratios.collect())
    };
    let counted = of_device(device_idle);
    let tester_idle = |trial: &&TrialRecord| trial.result.health.idle_ratio;
    let tester_idle_ratio = Spread::of(at_limit.iter().filter_map(tester_idle).collect());
    let by = if found.is_lower_limit_only {
        Limiter::Tester
    } else {
        Limiter::of_device(counted.as_ref().map(|idle| idle.median))
    };
    let device_idle_ratio = counted.or_else(|| of_device(kernel_idle));
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
    let ticks = with_traffic_s(trial) * element.tsc_hz as f64;
    element.counted.as_ref()?.idle_ratio(ticks)
}

/// Returns the share of the time with traffic in which the kernel's CPUs did no work for a device of the kernel, on average. The kernel
/// accounts this time by its ticks, unless it measures that of interrupts.
fn kernel_idle(trial: &TrialRecord) -> Option<f64> {
    let element = element_of(trial)?;
    let available_s = element.kernel_cpus? as f64 * with_traffic_s(trial);
    (element.cpu_time_s > 0.0 && available_s > 0.0)
        .then(|| (1.0 - element.cpu_time_s / available_s).max(0.0))
}

#[cfg(test)]
mod tests {
    use quietwire_study::CycleCount;
    use quietwire_tester::{FrameSizes, LatencySummary, Trial, Validity};

    use super::*;

    /// Returns the limit of a trial of 1 s that lost these frames, beside a device that was busy for this share of the time.
    fn limit(rate_pps: f64, lost: u64, busy: Option<f64>) -> TrialLimit {
        TrialLimit::of(&result(rate_pps, lost), busy.map(cycles).as_ref())
    }

    fn result(rate_pps: f64, lost: u64) -> TrialResult {
        let trial = Trial::new(rate_pps, 1.0, FrameSizes::Fixed(64));
        let latency = LatencySummary::default();
        let mut result = TrialResult::of_counts(&trial, 1.0, 1000, 1000 - lost, latency);
        result.health.idle_ratio = Some(0.25);
        result
    }

    fn cycles(busy: f64) -> SwitchCycles {
        SwitchCycles {
            count: CycleCount {
                threads: vec![7, (busy * 2e9) as u64],
                ..CycleCount::default()
            },
            tsc_hz: 2_000_000_000,
        }
    }

    #[test]
    fn a_trial_has_a_limit_only_if_a_side_showed_that_it_was_one() {
        for (rate_pps, lost, busy, by, text) in [
            (1e3, 0, Some(0.5), None, "none at this rate, device idle 50"),
            (
                Trial::UNPACED,
                0,
                Some(0.99),
                Some(Limiter::Tester),
                "tester, device idle 1",
            ),
            (
                1e3,
                1,
                None,
                Some(Limiter::Device),
                "device, tester idle 25",
            ),
            (
                1e3,
                1,
                Some(0.98),
                Some(Limiter::DeviceCpu),
                "device, device idle 2",
            ),
            (
                Trial::UNPACED,
                1,
                Some(0.75),
                Some(Limiter::NotDeviceCpu),
                "not the CPU, device idle 25",
            ),
        ] {
            let found = limit(rate_pps, lost, busy);
            assert_eq!(found.by, by, "{found:?}");
            assert_eq!(found.device_idle_ratio.is_some(), busy.is_some());
            assert!(found.text().starts_with(text), "{}", found.text());
            assert!(found.text().contains("tester idle 25"), "{}", found.text());
        }
        // A failure of the tester shows no limit of the device.
        let mut failed = result(1e3, 5);
        failed.validity = Validity::Invalid(Vec::new());
        let found = TrialLimit::of(&failed, Some(&cycles(0.5)));
        assert_eq!(found.by, None);
        assert!(found.text().starts_with("unknown, device idle 50"));
    }
}
