// SPDX-License-Identifier: Apache-2.0
//! Figures of one case.

use quietwire_tester::{DamageCheck, InvalidCause};
use serde::Serialize;

use super::activity::{CpuShare, NeighbourShare, ThreadShare};
use super::application::Applications;
use super::cycles::{CpuRate, CyclesPerFrame};
use super::efficiency::Efficiency;
use super::functions::FunctionCost;
use super::latency::RoundTrip;
use super::limit::Limit;
use super::losses::LossPlaces;
use super::method_tables::MethodResult;
use super::throughput::{GoalSummary, HighestLoad, LossPoint, SweepPoint};

/// Results of one case at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// Its name.
    pub name: String,
    /// Description.
    pub description: String,
    /// 100 % of the load, frames per second; none if it was not found.
    pub max_rate_pps: Option<f64>,
    /// One summary for each goal of the search.
    pub goals: Vec<GoalSummary>,
    /// Limit of the rate of each goal; none without a rate.
    pub limits: Vec<Option<Limit>>,
    /// The highest load of the sweep at which all cases with the same 100 % had a valid trial.
    pub highest_load: Option<HighestLoad>,
    /// Loads of the sweep, in ascending order.
    pub sweep: Vec<SweepPoint>,
    /// Every valid trial of searches and sweeps.
    pub points: Vec<LossPoint>,
    /// Round trips at a low load.
    #[serde(serialize_with = "super::latency::without_withheld")]
    pub round_trip: Option<RoundTrip>,
    /// Application measurements.
    pub applications: Option<Applications>,
    /// Results of further methods, by step and round.
    pub methods: Vec<MethodResult>,
    /// Cost of a frame in the device; none if unknown.
    pub cycles: Option<CyclesPerFrame>,
    /// Cost of a frame by the device's own account; none if it counts no cycles.
    pub own_cycles: Option<CyclesPerFrame>,
    /// Cost of a frame by a measure that is the same for all devices: CPU time divided by the forwarded frames; none if unknown.
    pub cpu_cycles: Option<CyclesPerFrame>,
    /// Frames forwarded per second of CPU time, which follows from the same measure.
    pub cpu_rate: Option<CpuRate>,
    /// Cost of a frame in the switch and in each network function of a chain; empty if no function counts its cycles.
    pub functions: Vec<FunctionCost>,
    /// Physical cores of the device, and frames for each joule; none if neither is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub efficiency: Option<Efficiency>,
    /// Caveats of all figures: elements that share a CPU, elements in software emulation.
    pub warnings: Vec<String>,
    /// Activity of CPUs, over all valid trials.
    pub cpus: Vec<CpuShare>,
    /// Threads of device and tester that ran for a large share of the time, over all valid trials.
    pub threads: Vec<ThreadShare>,
    /// Load by the neighbours, over all valid trials; none without neighbours.
    pub neighbours: Option<NeighbourShare>,
    /// Lost frames by place, over all valid trials; none if no device provides counters.
    pub losses: Option<LossPlaces>,
    /// Quality of the tester's work.
    pub health: Health,
}

impl CaseSummary {
    /// Returns true if the case has results, although it has no trials: of applications, or of methods that open connections.
    pub(crate) fn has_results_without_trials(&self) -> bool {
        self.health.trials == 0 && (!self.methods.is_empty() || self.applications.is_some())
    }

    /// Returns true if the limit of some goal's rate is known.
    pub(crate) fn has_limits(&self) -> bool {
        self.limits.iter().any(Option::is_some)
    }
}

/// Quality of the tester's work in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    /// Number of trials.
    pub trials: usize,
    /// Invalid trials.
    pub invalid: usize,
    /// Causes of invalid trials with their counts, the most frequent first. A trial counts under the cause of its first reason.
    pub causes: Vec<(InvalidCause, usize)>,
    /// Reasons with their counts, the most frequent first. Digits are masked, so that reasons that differ in numbers only count together.
    pub reasons: Vec<(String, usize)>,
    /// Valid trials: largest share of the schedule that was missed, 0 to 1.
    pub worst_pacing_miss_ratio: f64,
    /// All trials: longest gap of the tester's loop, nanoseconds, median over trials.
    pub median_longest_gap_ns: u64,
    /// All trials: longest gap of the tester's loop, nanoseconds.
    pub longest_gap_ns: u64,
    /// Gaps over 100 µs in all trials together.
    pub gaps_over_100us: u64,
    /// Scopes of the check for damage in received frames, each once. Empty if the tester reports none.
    pub damage_checks: Vec<DamageCheck>,
    /// Received frames that the tester dropped.
    pub receive_drops: u64,
    /// Trials without real-time priority.
    pub without_realtime: usize,
}
