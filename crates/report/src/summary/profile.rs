// SPDX-License-Identifier: Apache-2.0
//! Profile of the trial that speaks most against an objective that fails: what CPUs, threads and the device did in it.

use std::collections::BTreeMap;

use quietwire_search::Findings;
use quietwire_study::{
    Case, FrameSize, Measure, Quantity, StepKind, StepRecord, StudyResults, TrialRecord,
};
use serde::Serialize;

use super::activity::{CpuShare, ThreadShare, cpus, threads};
use super::method_tables::load_name;
use super::samples::{of_signed, of_times};

/// Profile of a trial.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TrialProfile {
    /// Its number in the list of all trials, from 1.
    pub trial: usize,
    /// Number of the round, from 0.
    pub round: u32,
    /// Step.
    pub step: String,
    /// Achieved rate, frames per second.
    pub achieved_rate_pps: f64,
    /// Share of the frames that were lost, 0 to 1.
    pub loss_ratio: f64,
    /// Largest round trip, nanoseconds; none if no frame returned.
    pub latency_max_ns: Option<u64>,
    /// CPUs.
    pub cpus: Vec<CpuShare>,
    /// Busy threads of device and tester.
    pub threads: Vec<ThreadShare>,
    /// Counters of the device about its own work, by element and part, such as cycles by step. Empty if it has none.
    pub counters: BTreeMap<String, BTreeMap<String, u64>>,
    /// Memory of ports by element and port: KiB by NUMA node. Empty if it is unknown.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub memory: BTreeMap<String, BTreeMap<u32, u64>>,
    /// Unavailable sources of such counters, by element and source, with the reason as a clause.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub unavailable: BTreeMap<String, String>,
}

/// Returns the profile of the worst valid trial of a quantity; none if no single trial is the worst, as for procedures.
pub(super) fn of_worst(
    results: &StudyResults,
    size: FrameSize,
    case: &Case,
    measure: &Measure,
) -> Option<TrialProfile> {
    let is_own = |step: &StepRecord| step.case_name == case.name && step.frame_size == size;
    let valid = (1..)
        .zip(results.trials())
        .filter(|(_, (step, trial))| is_own(step) && trial.result.is_valid());
    let judged = valid.filter_map(|(number, (step, trial))| {
        let badness = badness(results, size, case, measure, step, trial)?;
        Some((badness, number, step, trial))
    });
    let worst = judged.max_by(|(one, ..), (other, ..)| one.total_cmp(other));
    worst.map(|(_, number, step, trial)| profile(number, step, trial))
}

/// Returns how much a trial speaks against the quantity; none if it does not count for it.
fn badness(
    results: &StudyResults,
    size: FrameSize,
    case: &Case,
    measure: &Measure,
    step: &StepRecord,
    trial: &TrialRecord,
) -> Option<f64> {
    let result = &trial.result;
    let is_latency = match &measure.load {
        Some(load) => is_at_load(step, trial, load),
        None => step.kind == StepKind::Latency,
    };
    match &measure.quantity {
        // The lowest rate that lost too much bounds the rate that is found.
        Quantity::Rate(name) if step.kind.searches_for(name) => {
            let mut goals = results.file.search.iter().flat_map(|search| &search.goals);
            let goal = goals.find(|goal| goal.name == *name)?;
            (result.loss_ratio > goal.loss_ratio).then_some(-result.achieved_rate_pps)
        }
        Quantity::Loss if step.kind == StepKind::Sweep => {
            let load_pps = measure.load_percent?.of(results.max_rate_pps(case, size)?);
            let is_at_load = (trial.request.offered_rate_pps / load_pps - 1.0).abs() < 1e-6;
            is_at_load.then_some(result.loss_ratio)
        }
        Quantity::Latency if is_latency => of_times(&result.latency, measure.point),
        Quantity::Pdv if is_latency => of_times(&result.variation.pdv, measure.point),
        Quantity::Ipdv if is_latency => of_signed(&result.variation, measure.point),
        _ => None,
    }
}

/// Returns whether a trial is one of a load of the latency plan. Trials of a plan that was not finished are of unknown loads.
fn is_at_load(step: &StepRecord, trial: &TrialRecord, load: &str) -> bool {
    let Some(Findings::LatencyPlan(plan)) = &step.findings else {
        return false;
    };
    plan.points.iter().any(|planned| {
        planned.point.rate_pps == trial.request.offered_rate_pps
            && planned
                .point
                .stands_for
                .iter()
                .any(|known| load_name(known) == load)
    })
}

fn profile(number: usize, step: &StepRecord, trial: &TrialRecord) -> TrialProfile {
    let result = &trial.result;
    let (mut counters, mut unavailable) = (BTreeMap::new(), BTreeMap::new());
    let mut memory = BTreeMap::new();
    for element in &trial.activity.elements {
        let parts = element.own_view.iter().flat_map(|view| &view.parts);
        for (part, view) in parts.filter(|(_, view)| !view.counters.is_empty()) {
            counters.insert(format!("{} {part}", element.name), view.counters.clone());
        }
        let drivers = element.own_view.iter().flat_map(|view| &view.drivers);
        for (port, statistics) in drivers {
            let name = format!("{} driver of {port}", element.name);
            counters.insert(name, statistics.clone());
        }
        let ports = element.own_view.iter().flat_map(|view| &view.memory);
        for port in ports {
            let nodes: BTreeMap<u32, u64> =
                port.nodes.iter().map(|one| (one.node, one.kib)).collect();
            memory.insert(format!("{} {}", element.name, port.port), nodes);
        }
        let reasons = element.own_view.iter().flat_map(|view| &view.unavailable);
        for (source, reason) in reasons {
            unavailable.insert(format!("{} {source}", element.name), reason.clone());
        }
        if let Some(reason) = &element.own_view_unavailable {
            unavailable.insert(element.name.clone(), reason.clone());
        }
    }
    TrialProfile {
        trial: number,
        round: step.round,
        step: step.kind.to_string(),
        achieved_rate_pps: result.achieved_rate_pps,
        loss_ratio: result.loss_ratio,
        latency_max_ns: (result.latency.samples > 0).then_some(result.latency.max_ns),
        cpus: cpus(&[trial]),
        threads: threads(&[trial]),
        counters,
        memory,
        unavailable,
    }
}
