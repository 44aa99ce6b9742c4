// SPDX-License-Identifier: Apache-2.0
//! Cost of a frame in the device, in cycles of the time stamp counter.

use quietwire_study::{ElementActivity, Role, TrialRecord};
use serde::Serialize;

use super::spread::Spread;
use crate::format;

/// Source of a number of cycles.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CycleSource {
    /// The switch counts the cycles of the bursts that contain frames.
    Counted,
    /// The switch counts the cycles of its nodes. The nodes that receive frames are left out, because they count empty polls, too.
    WithoutInput,
    /// CPU time divided by the forwarded frames. For a process, which may poll, only trials in which it lost frames count, because it had
    /// no idle time in those.
    CpuTime,
    /// CPU time divided by the forwarded frames, of a process that may poll and lost no frames in any of the trials: an upper bound of
    /// the cost of a frame.
    AtMost,
}

/// Cost of a frame.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CyclesPerFrame {
    /// Element with this cost.
    pub element: String,
    /// Cycles per received frame of the element, in the trials at the highest load.
    pub cycles: Spread,
    /// Source of the number.
    pub cycle_source: CycleSource,
    /// The same with the nodes that receive frames and their empty polls: an upper bound of the cost of a frame. None if `cycles` include
    /// the cost to receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_input: Option<Spread>,
}

impl CyclesPerFrame {
    /// Formats the cost of a frame, with its source if it is not counted: `251`, `≈ 251 from CPU time`,
    /// `≤ 251 from CPU time`, `97 without the input node, ≤ 126 with it and its empty polls`.
    pub(crate) fn text(&self) -> String {
        let number = format::rounded(self.cycles.median);
        match self.cycle_source {
            CycleSource::Counted => number,
            CycleSource::WithoutInput => match &self.with_input {
                Some(all) => format!(
                    "{number} without the input node, ≤\u{202f}{} with it and its empty polls",
                    format::rounded(all.median)
                ),
                None => format!("{number} without the input node"),
            },
            CycleSource::CpuTime => format!("≈\u{202f}{number} from CPU time"),
            CycleSource::AtMost => format!("≤\u{202f}{number} from CPU time"),
        }
    }
}

/// Rate of a device by its CPU time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CpuRate {
    /// Frames forwarded per second of CPU time: the rate of a device that has the full share of one CPU.
    pub rate_pps: Spread,
    /// True if the device polls and lost no frames in any of the trials: it may forward more.
    pub is_at_least: bool,
}

impl CpuRate {
    /// Formats the rate in Mpps, with `≥` for a lower bound.
    pub(crate) fn text(&self) -> String {
        let rate = format::mpps(self.rate_pps.median);
        if self.is_at_least {
            format!("≥\u{202f}{rate}")
        } else {
            rate
        }
    }
}

/// Rates within this ratio of the highest count as the highest.
const NEAR: f64 = 0.999;

/// Returns the valid trials at the highest load offered.
pub(super) fn highest_load<'a>(trials: &[&'a TrialRecord]) -> Vec<&'a TrialRecord> {
    let mut valid = trials.to_vec();
    valid.retain(|trial| trial.result.is_valid());
    let offered = valid.iter().map(|trial| trial.request.offered_rate_pps);
    let highest_pps = offered.fold(0.0, f64::max);
    valid.retain(|trial| trial.request.offered_rate_pps >= NEAR * highest_pps);
    valid
}

/// Returns the valid trials at the highest load offered, with the activity of the device.
fn at_highest_load<'a>(trials: &[&'a TrialRecord]) -> Vec<(&'a TrialRecord, ElementActivity)> {
    let at_highest = highest_load(trials).into_iter();
    at_highest
        .filter_map(|trial| Some((trial, element_of(trial)?)))
        .collect()
}

/// Returns the cost in the valid trials at the highest load offered. There, bursts are full and a polling device has no idle time.
pub(super) fn of_frames(trials: &[&TrialRecord]) -> Option<CyclesPerFrame> {
    let reported = at_highest_load(trials);
    counted_completely(&reported).or_else(|| of_cpu_time(&reported))
}

/// Returns the cost in the same trials by the device's own account; none if it counts no cycles. If its counts do not separate empty polls
/// from the cost to receive, the nodes that receive are left out.
pub(super) fn by_own_account(trials: &[&TrialRecord]) -> Option<CyclesPerFrame> {
    let reported = at_highest_load(trials);
    counted_completely(&reported).or_else(|| counted_without_input(&reported))
}

fn counted_completely(reported: &[(&TrialRecord, ElementActivity)]) -> Option<CyclesPerFrame> {
    let counted = reported.iter().filter_map(|(_, element)| counted(element));
    Some(CyclesPerFrame {
        element: reported.first()?.1.name.clone(),
        cycles: Spread::of(counted.collect())?,
        cycle_source: CycleSource::Counted,
        with_input: None,
    })
}

fn counted_without_input(reported: &[(&TrialRecord, ElementActivity)]) -> Option<CyclesPerFrame> {
    let of_trials = reported.iter().filter_map(|(_, element)| {
        let count = element.counted.as_ref()?;
        let input_cycles = count.input_cycles.filter(|_| count.frames > 0)?;
        let frames = count.frames as f64;
        let cycles = count.cycles as f64;
        Some((cycles / frames, (cycles + input_cycles as f64) / frames))
    });
    let (without, with): (Vec<f64>, Vec<f64>) = of_trials.unzip();
    Some(CyclesPerFrame {
        element: reported.first()?.1.name.clone(),
        cycles: Spread::of(without)?,
        cycle_source: CycleSource::WithoutInput,
        with_input: Spread::of(with),
    })
}

/// Returns the cost in the same trials by a measure that is the same for all devices: CPU time divided by the forwarded frames. It
/// includes what a device that counts its own cycles does beside its frames.
pub(super) fn by_one_measure(trials: &[&TrialRecord]) -> Option<CyclesPerFrame> {
    of_cpu_time(&at_highest_load(trials))
}

/// Returns the frames forwarded per second of CPU time in the same trials, by the same measure.
pub(super) fn by_full_share(trials: &[&TrialRecord]) -> Option<CpuRate> {
    let reported = at_highest_load(trials);
    let tsc_hz = reported.first()?.1.tsc_hz as f64;
    let cost = of_cpu_time(&reported)?;
    let rates = cost.cycles.values.iter().map(|cycles| tsc_hz / cycles);
    Some(CpuRate {
        rate_pps: Spread::of(rates.collect())?,
        is_at_least: cost.cycle_source == CycleSource::AtMost,
    })
}

fn of_cpu_time(reported: &[(&TrialRecord, ElementActivity)]) -> Option<CyclesPerFrame> {
    let element = reported.first()?.1.name.clone();
    let of_those = |is_meant: &dyn Fn(&TrialRecord, &ElementActivity) -> bool| {
        let meant = reported.iter().filter(|(trial, of)| is_meant(trial, of));
        Spread::of(
            meant
                .filter_map(|(trial, of)| by_cpu_time(trial, of))
                .collect(),
        )
    };
    let (cycles, cycle_source) = match of_those(&|trial, of| !has_spare_time(trial, of)) {
        Some(cycles) => (cycles, CycleSource::CpuTime),
        None => (of_those(&|_, _| true)?, CycleSource::AtMost),
    };
    Some(CyclesPerFrame {
        element,
        cycles,
        cycle_source,
        with_input: None,
    })
}

/// Returns the switch, or the first forwarding element if there is no switch.
pub(super) fn element_of(trial: &TrialRecord) -> Option<ElementActivity> {
    let elements = &trial.activity.elements;
    let switch = elements.iter().find(|element| element.role == Role::Switch);
    switch.or(elements.first()).cloned()
}

/// Returns the time of a trial with traffic, warm-up included, seconds.
pub(super) fn with_traffic_s(trial: &TrialRecord) -> f64 {
    trial.request.warm_up_s + trial.result.elapsed_s
}

/// Threads that count frames but no cycles, such as those of Open vSwitch without DPDK, give no cost.
fn counted(element: &ElementActivity) -> Option<f64> {
    let count = element.counted.as_ref()?;
    (count.is_complete() && count.frames > 0 && count.cycles > 0)
        .then(|| count.cycles as f64 / count.frames as f64)
}

/// Returns true if the element may have had idle time. A process that polls is busy all the time, so only one that loses frames has no
/// idle time. The kernel uses CPU time only for work.
fn has_spare_time(trial: &TrialRecord, element: &ElementActivity) -> bool {
    trial.result.lost_frames == 0 && !element.is_kernels
}

/// Returns the time to divide: for a process, the whole observed time; for the kernel, the time with traffic, warm-up included.
fn by_cpu_time(trial: &TrialRecord, element: &ElementActivity) -> Option<f64> {
    let result = &trial.result;
    if element.cpu_time_s <= 0.0 {
        return None;
    }
    let looked_at_s = if element.is_kernels {
        with_traffic_s(trial)
    } else {
        trial.activity.machine.as_ref()?.elapsed_s
    };
    let frames = result.forwarding_rate_pps * looked_at_s;
    (frames > 0.0).then(|| element.cpu_time_s * element.tsc_hz as f64 / frames)
}

/// Returns the cycles that the switch counted per second of traffic, divided by `parts`; none if it does not count all
/// cycles of frames.
pub(super) fn per_second(trials: &[&TrialRecord], parts: f64) -> Option<Spread> {
    let valid = trials.iter().filter(|trial| trial.result.is_valid());
    let reported = valid.filter_map(|trial| {
        let count = element_of(trial)?.counted?;
        let came_s = with_traffic_s(trial);
        (count.is_complete() && count.cycles > 0 && came_s > 0.0)
            .then(|| count.cycles as f64 / came_s / parts)
    });
    Spread::of(reported.collect())
}
