// SPDX-License-Identifier: Apache-2.0
//! The figures of one case.

use quietwire_tester::InvalidCause;
use serde::Serialize;

use super::activity::{CpuShare, NeighbourShare, ThreadShare};
use super::application::Applications;
use super::cycles::CyclesPerFrame;
use super::further::MethodResult;
use super::latency::RoundTrip;
use super::losses::LossPlaces;
use super::throughput::{GoalSummary, HighestLoad, LossPoint, SweepPoint};

/// What was seen in one case at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseSummary {
    /// Its name.
    pub name: String,
    /// What it is, in words.
    pub description: String,
    /// What 100 % of the load is, frames per second; none when that was not found.
    pub max_rate_pps: Option<f64>,
    /// One for each goal of the search.
    pub goals: Vec<GoalSummary>,
    /// The highest load of the sweep at which all cases with the same 100 % had a valid trial.
    pub highest_load: Option<HighestLoad>,
    /// The sweep, in order of the load.
    pub sweep: Vec<SweepPoint>,
    /// Every valid trial of searches and sweeps.
    pub points: Vec<LossPoint>,
    /// The trials at a low load.
    pub round_trip: Option<RoundTrip>,
    /// What applications saw.
    pub applications: Option<Applications>,
    /// What further methods found, by step and round.
    pub methods: Vec<MethodResult>,
    /// What a frame cost the device; none where that cannot be told.
    pub cycles: Option<CyclesPerFrame>,
    /// What every figure has to carry: who shares which CPU, what runs in software emulation.
    pub warnings: Vec<String>,
    /// What CPUs did, over all valid trials.
    pub cpus: Vec<CpuShare>,
    /// Threads of device and tester that ran for a good part of the time, over all valid trials.
    pub threads: Vec<ThreadShare>,
    /// How hard its neighbours worked, over all valid trials; none without neighbours.
    pub neighbours: Option<NeighbourShare>,
    /// Where frames were lost, over all valid trials; none if no device told its counters.
    pub losses: Option<LossPlaces>,
    /// How the tester did.
    pub health: Health,
}

/// How the tester did in one case.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Health {
    /// Trials.
    pub trials: usize,
    /// Of those, invalid.
    pub invalid: usize,
    /// Why, and how often; the most frequent first. A trial counts under the cause of its first reason.
    pub causes: Vec<(InvalidCause, usize)>,
    /// The sentences, and how often; the most frequent first. Digits are left out, so that alike sentences count together.
    pub reasons: Vec<(String, usize)>,
    /// Of valid trials: the largest part of the schedule that was missed, 0 to 1.
    pub worst_pacing_miss_ratio: f64,
    /// Of all trials: longest gap of the tester's own loop, nanoseconds; median over trials.
    pub median_longest_gap_ns: u64,
    /// Of all trials: longest gap of the tester's own loop, nanoseconds.
    pub longest_gap_ns: u64,
    /// Gaps over 100 microseconds in all trials together.
    pub gaps_over_100us: u64,
    /// Frames that the tester's own receive side dropped.
    pub receive_drops: u64,
    /// Trials without real-time priority.
    pub without_realtime: usize,
}
