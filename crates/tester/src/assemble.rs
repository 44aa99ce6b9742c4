// SPDX-License-Identifier: Apache-2.0
//! What the lanes and threads saw, put together into one result.

use crate::engine::{LoopHealth, Timetable};
use crate::lane::{Lane, Seen, Sent};
use crate::latency::Recorder;
use crate::trial::{
    FlowResult, LatencySummary, PortResult, TesterHealth, Trial, TrialResult, Validity,
};

/// Flows listed in a result at most.
const FLOWS_LISTED_MAX: usize = 64;

/// What is left of a lane when its trial is over.
#[derive(Debug)]
pub(crate) struct LaneResult {
    seen: Seen,
    sent: Sent,
    scheduled: u64,
    unsent: u64,
    offered: u64,
    /// Offered frames of each flow; empty where nothing was sent.
    offered_of_flow: Vec<u64>,
}

impl LaneResult {
    pub(crate) fn from_lane(mut lane: Lane<'_>) -> Self {
        // A device's ring that never took these: they were never offered.
        let given_up = lane.give_up();
        let (scheduled, unsent) = lane
            .pacer
            .as_ref()
            .map_or((0, 0), |pacer| (pacer.scheduled(), pacer.unsent()));
        let sends = lane.pacer.is_some();
        let offered = if sends {
            lane.writer.written().saturating_sub(given_up)
        } else {
            0
        };
        let flows = if sends { lane.seen.flows } else { 0 };
        Self {
            offered_of_flow: (0..flows)
                .map(|flow| lane.writer.written_of_flow(flow as u16))
                .collect(),
            unsent: unsent + lane.sent.no_buffers + given_up,
            scheduled,
            offered,
            seen: lane.seen,
            sent: lane.sent,
        }
    }
}

pub(crate) fn assemble(
    trial: &Trial,
    times: &Timetable,
    names: &[String],
    lanes: Vec<LaneResult>,
    threads: &[LoopHealth],
) -> Result<TrialResult, String> {
    let hz = times.ticks_per_second as f64;
    let sum = |part: fn(&LaneResult) -> u64| lanes.iter().map(part).sum::<u64>();
    let (offered, scheduled, unsent) =
        (sum(|l| l.offered), sum(|l| l.scheduled), sum(|l| l.unsent));
    let trackers = || lanes.iter().flat_map(|lane| &lane.seen.trackers);
    let received: u64 = trackers().map(|tracker| tracker.received()).sum();
    let lost = offered.saturating_sub(received);
    let elapsed_s = elapsed_s(&lanes, times, hz);
    let rate = |frames: u64| {
        if elapsed_s > 0.0 {
            frames as f64 / elapsed_s
        } else {
            0.0
        }
    };
    Ok(TrialResult {
        trial: trial.clone(),
        started_unix_ns: 0,
        elapsed_s,
        scheduled_frames: scheduled,
        offered_frames: offered,
        received_frames: received,
        lost_frames: lost,
        loss_ratio: ratio(lost, offered),
        duplicate_frames: trackers().map(|tracker| tracker.duplicates()).sum(),
        reordered_frames: trackers().map(|tracker| tracker.reordered()).sum(),
        achieved_rate_pps: rate(offered),
        forwarding_rate_pps: rate(received),
        latency: latency(&lanes, times.ticks_per_second)?,
        ports: names
            .iter()
            .zip(&lanes)
            .map(|(name, lane)| port_result(name, lane))
            .collect(),
        flows: flow_results(&lanes),
        health: health(
            &lanes,
            threads,
            ratio(unsent, scheduled),
            unsent,
            times.ticks_per_second,
        ),
        validity: Validity::Valid,
    })
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Time over which frames were offered: to the last burst, and the time until the next would have been due.
fn elapsed_s(lanes: &[LaneResult], times: &Timetable, hz: f64) -> f64 {
    let last = lanes
        .iter()
        .map(|lane| lane.sent.last_tick)
        .max()
        .unwrap_or(0);
    let nominal = times.end - times.start;
    let seen = last.saturating_sub(times.start);
    seen.max(nominal) as f64 / hz
}

fn latency(lanes: &[LaneResult], ticks_per_second: u64) -> Result<LatencySummary, String> {
    let mut all = Recorder::default();
    for lane in lanes {
        all.merge(&lane.seen.latency);
    }
    all.summary(ticks_per_second)
}

fn port_result(name: &str, lane: &LaneResult) -> PortResult {
    PortResult {
        name: name.to_owned(),
        offered_frames: lane.offered,
        refused_frames: lane.sent.refused,
        received_frames: lane
            .seen
            .trackers
            .iter()
            .map(|tracker| tracker.received())
            .sum(),
        foreign_frames: lane.seen.foreign,
    }
}

/// Flows in which something happened. A flow is told by its transmitting port; where it arrived is summed.
fn flow_results(lanes: &[LaneResult]) -> Vec<FlowResult> {
    let mut results = Vec::new();
    for (port, lane) in lanes.iter().enumerate() {
        for (flow, offered) in lane.offered_of_flow.iter().enumerate() {
            let index = port * lane.seen.flows + flow;
            let mut result = FlowResult {
                port: port as u16,
                flow: flow as u16,
                offered_frames: *offered,
                ..FlowResult::default()
            };
            for tracker in lanes
                .iter()
                .filter_map(|lane| lane.seen.trackers.get(index))
            {
                result.received_frames += tracker.received();
                result.duplicate_frames += tracker.duplicates();
                result.reordered_frames += tracker.reordered();
            }
            let is_clean = result.received_frames == *offered
                && result.duplicate_frames == 0
                && result.reordered_frames == 0;
            if !is_clean && results.len() < FLOWS_LISTED_MAX {
                results.push(result);
            }
        }
    }
    results
}

fn health(
    lanes: &[LaneResult],
    threads: &[LoopHealth],
    pacing_miss_ratio: f64,
    unsent_frames: u64,
    ticks_per_second: u64,
) -> TesterHealth {
    let to_ns = |ticks: u64| {
        (u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1))) as u64
    };
    TesterHealth {
        unsent_frames,
        pacing_miss_ratio,
        late_bursts: lanes.iter().map(|lane| lane.sent.late_bursts).sum(),
        bursts: lanes.iter().map(|lane| lane.sent.bursts).sum(),
        longest_gap_ns: to_ns(
            threads
                .iter()
                .map(|thread| thread.longest_gap)
                .max()
                .unwrap_or(0),
        ),
        gaps_over_100us: threads.iter().map(|thread| thread.gaps_over_100us).sum(),
        gap_time_ns: to_ns(threads.iter().map(|thread| thread.gap_ticks).sum()),
        realtime: false,
        receive_drops: 0,
    }
}
