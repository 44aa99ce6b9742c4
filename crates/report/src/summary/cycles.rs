// SPDX-License-Identifier: Apache-2.0
//! What a frame costs the device, in cycles of the time stamp counter.

use quietwire_study::{ElementActivity, TrialRecord};
use serde::Serialize;

use super::spread::Spread;
use crate::format;

/// How cycles were reckoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reckoned {
    /// The switch counts the cycles that go into frames.
    Counted,
    /// CPU time over the frames forwarded; of a process, which may poll, in trials in which it lost some and so had no time to
    /// spare.
    CpuTime,
    /// CPU time over the frames forwarded, of a process that may poll and lost none in any of the trials: what a frame cost is not
    /// more than that.
    AtMost,
}

/// What a frame cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CyclesPerFrame {
    /// The element that it cost.
    pub element: String,
    /// Cycles for each frame that came in there, of the trials at the highest load.
    pub cycles: Spread,
    /// How they were reckoned.
    pub reckoned: Reckoned,
}

impl CyclesPerFrame {
    /// What a frame cost, with how that was reckoned where nobody counted it: `251`, `≈ 251 from CPU time`,
    /// `≤ 251 from CPU time`.
    pub(crate) fn text(&self) -> String {
        let number = format::grouped(self.cycles.median.round() as u64);
        match self.reckoned {
            Reckoned::Counted => number,
            Reckoned::CpuTime => format!("≈\u{202f}{number} from CPU time"),
            Reckoned::AtMost => format!("≤\u{202f}{number} from CPU time"),
        }
    }
}

/// Rates this near to the highest count as the highest.
const NEAR: f64 = 0.999;

/// Of the valid trials at the highest load offered: there bursts are full, and a device that polls has no time to spare.
pub(super) fn of_frames(trials: &[&TrialRecord]) -> Option<CyclesPerFrame> {
    let valid = || trials.iter().filter(|trial| trial.result.is_valid());
    let highest_pps = valid()
        .map(|trial| trial.request.offered_rate_pps)
        .reduce(f64::max)?;
    let at_highest = valid().filter(|trial| trial.request.offered_rate_pps >= NEAR * highest_pps);
    let told: Vec<(&TrialRecord, ElementActivity)> = at_highest
        .filter_map(|trial| Some((*trial, element_of(trial)?)))
        .collect();
    let element = told.first()?.1.name.clone();
    let counted = told.iter().filter_map(|(_, element)| counted(element));
    if let Some(cycles) = Spread::of(counted.collect()) {
        return Some(CyclesPerFrame {
            element,
            cycles,
            reckoned: Reckoned::Counted,
        });
    }
    let of_those = |is_meant: &dyn Fn(&TrialRecord, &ElementActivity) -> bool| {
        let meant = told.iter().filter(|(trial, of)| is_meant(trial, of));
        Spread::of(
            meant
                .filter_map(|(trial, of)| by_cpu_time(trial, of))
                .collect(),
        )
    };
    let (cycles, reckoned) = match of_those(&|trial, of| !has_spare_time(trial, of)) {
        Some(cycles) => (cycles, Reckoned::CpuTime),
        None => (of_those(&|_, _| true)?, Reckoned::AtMost),
    };
    Some(CyclesPerFrame {
        element,
        cycles,
        reckoned,
    })
}

/// The switch, or what forwards first where there is none.
fn element_of(trial: &TrialRecord) -> Option<ElementActivity> {
    let elements = &trial.activity.elements;
    let switch = elements.iter().find(|element| element.role == "switch");
    switch.or(elements.first()).cloned()
}

/// Threads that count frames and no cycles, as Open vSwitch's that forwards without DPDK, tell nothing of these.
fn counted(element: &ElementActivity) -> Option<f64> {
    let count = element.counted?;
    (count.frames > 0 && count.cycles > 0).then(|| count.cycles as f64 / count.frames as f64)
}

/// A process that polls is busy all the time that it is looked at, and only one that loses frames has no time to spare. The kernel
/// works only while there is something to do.
fn has_spare_time(trial: &TrialRecord, element: &ElementActivity) -> bool {
    trial.result.lost_frames == 0 && !element.is_kernels
}

/// Of a process, over all the time that it is looked at; of the kernel, over the time in which frames came, warm-up included.
fn by_cpu_time(trial: &TrialRecord, element: &ElementActivity) -> Option<f64> {
    let result = &trial.result;
    if element.cpu_time_s <= 0.0 {
        return None;
    }
    let looked_at_s = if element.is_kernels {
        trial.request.warm_up_s + result.elapsed_s
    } else {
        trial.activity.machine.as_ref()?.elapsed_s
    };
    let frames = result.forwarding_rate_pps * looked_at_s;
    (frames > 0.0).then(|| element.cpu_time_s * element.tsc_hz as f64 / frames)
}

/// Cycles that the switch counted in a second while frames came, for each of so many; none where it counts none.
pub(super) fn per_second(trials: &[&TrialRecord], parts: f64) -> Option<Spread> {
    let valid = trials.iter().filter(|trial| trial.result.is_valid());
    let told = valid.filter_map(|trial| {
        let count = element_of(trial)?.counted?;
        let came_s = trial.request.warm_up_s + trial.result.elapsed_s;
        (count.cycles > 0 && came_s > 0.0).then(|| count.cycles as f64 / came_s / parts)
    });
    Spread::of(told.collect())
}
