// SPDX-License-Identifier: Apache-2.0
//! Cost of a frame in each part of a service chain: the switch, and the network functions in the order of the chain.

use std::collections::BTreeMap;

use quietwire_study::{Role, TrialRecord};
use serde::Serialize;

use super::cycles::{highest_load, with_traffic_s};
use super::spread::Spread;

/// Cost of the switch, or of the network functions at one position of all chains, in the trials at the highest load.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FunctionCost {
    /// Name of the switch, or position and program of the functions: `1 nat`.
    pub function: String,
    /// Position in the chain, from 1; none for the switch.
    pub position: Option<usize>,
    /// Counted cycles per received frame. The switch of a chain receives a frame once before and once behind each function.
    pub cycles: Spread,
    /// Counted cycles per frame that the device forwarded from end to end; none if it forwarded none.
    pub cycles_per_forwarded: Option<Spread>,
    /// Counted cycles per second of traffic, divided by the number of chains: cost of a tenant.
    pub cycles_per_chain_hz: Option<Spread>,
}

/// Counters of one trial.
#[derive(Debug, Default)]
struct Group {
    name: String,
    elements: u32,
    cycles: u64,
    frames: u64,
}

/// Figures of all trials.
#[derive(Debug, Default)]
struct Samples {
    name: String,
    per_frame: Vec<f64>,
    per_forwarded: Vec<f64>,
    per_chain_hz: Vec<f64>,
}

/// Returns the counters of the switch, then of the functions at each position. Elements that do not count all
/// cycles of frames are left out.
fn groups(trial: &TrialRecord) -> BTreeMap<Option<usize>, Group> {
    let mut groups: BTreeMap<Option<usize>, Group> = BTreeMap::new();
    for element in &trial.activity.elements {
        let name = match (element.function, element.role) {
            (Some(function), _) => format!("{} {}", function.position, function.program),
            (None, Role::Switch) => element.name.clone(),
            (None, _) => continue,
        };
        let counted = element.counted.as_ref();
        let counted = counted.filter(|count| count.is_complete());
        let Some(count) = counted.filter(|count| count.frames > 0 && count.cycles > 0) else {
            continue;
        };
        let position = element.function.map(|function| function.position);
        let group = groups.entry(position).or_default();
        group.name = name;
        group.elements = group.elements.saturating_add(1);
        group.cycles = group.cycles.saturating_add(count.cycles);
        group.frames = group.frames.saturating_add(count.frames);
    }
    groups
}

/// Returns the costs of the parts of a chain; none if no function counts its cycles.
pub(super) fn of_chain(trials: &[&TrialRecord]) -> Vec<FunctionCost> {
    let mut all: BTreeMap<Option<usize>, Samples> = BTreeMap::new();
    for trial in highest_load(trials) {
        let groups = groups(trial);
        let functions = groups.iter().filter(|(position, _)| position.is_some());
        let chains = functions.map(|(_, group)| group.elements).max();
        let seconds = with_traffic_s(trial);
        let forwarded = trial.result.forwarding_rate_pps * seconds;
        for (position, group) in groups {
            let samples = all.entry(position).or_default();
            samples.name = group.name;
            let cycles = group.cycles as f64;
            samples.per_frame.push(cycles / group.frames as f64);
            if forwarded > 0.0 {
                samples.per_forwarded.push(cycles / forwarded);
            }
            if seconds > 0.0 {
                let chains = f64::from(chains.unwrap_or(1));
                samples.per_chain_hz.push(cycles / seconds / chains);
            }
        }
    }
    if !all.keys().any(Option::is_some) {
        return Vec::new();
    }
    let cost = |(position, samples): (Option<usize>, Samples)| {
        Some(FunctionCost {
            function: samples.name,
            position,
            cycles: Spread::of(samples.per_frame)?,
            cycles_per_forwarded: Spread::of(samples.per_forwarded),
            cycles_per_chain_hz: Spread::of(samples.per_chain_hz),
        })
    };
    all.into_iter().filter_map(cost).collect()
}
