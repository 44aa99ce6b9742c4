// SPDX-License-Identifier: Apache-2.0
//! What the lanes and threads saw, put together into one result.

use crate::engine::{LoopHealth, Timetable};
use crate::lane::{Lane, Sent};
use crate::latency::{DelayVariation, LowRateStreams, Recorder, Samples, SignedRecorder};
use crate::seen::Seen;
use crate::trial::{FlowResult, PortResult, TesterHealth, Trial, TrialResult, Validity};

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
    /// Offered frames of each flow, that of the low-rate stream last; empty where nothing was sent.
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
        let flows = if sends { lane.seen.flows - 1 } else { 0 };
        let low_rate = sends.then(|| lane.writer.low_rate_written());
        Self {
            offered_of_flow: (0..flows)
                .map(|flow| lane.writer.written_of_flow(flow as u16))
                .chain(low_rate)
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
        latency: latency(&lanes).summary()?,
        variation: variation(&lanes)?,
        low_rate: low_rate(&lanes, times.low_rate_pps)?,
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

fn latency(lanes: &[LaneResult]) -> Recorder {
    let mut all = Recorder::default();
    for lane in lanes {
        all.merge(&lane.seen.latency);
    }
    all
}

/// Pairs of consecutive frames that the flows with these numbers of frames have.
fn pairs(offered: impl Iterator<Item = u64>) -> u64 {
    offered.map(|frames| frames.saturating_sub(1)).sum()
}

/// The delay variation of every frame of the load.
fn variation(lanes: &[LaneResult]) -> Result<DelayVariation, String> {
    let (mut ipdv, mut pdv) = (SignedRecorder::default(), Recorder::default());
    for lane in lanes {
        ipdv.merge(&lane.seen.delays.ipdv);
        pdv.merge(&lane.seen.latency.above_minimum());
    }
    let of_load = lanes
        .iter()
        .filter_map(|lane| lane.offered_of_flow.split_last())
        .flat_map(|(_low_rate, load)| load.iter().copied());
    Ok(DelayVariation {
        ipdv: ipdv.summary(pairs(of_load).saturating_sub(ipdv.samples()))?,
        pdv: pdv.summary()?,
    })
}

/// What came of the low-rate streams, each by itself and then together.
fn low_rate(lanes: &[LaneResult], rate_pps: f64) -> Result<LowRateStreams, String> {
    let mut all = Samples::default();
    for lane in lanes {
        all.merge(&lane.seen.samples);
    }
    let (mut latency, mut pdv) = (Recorder::default(), Recorder::default());
    let mut ipdv = SignedRecorder::default();
    for port in 0..lanes.len() {
        let stream = all.of_port(port as u8);
        latency.merge(&stream.delays());
        pdv.merge(&stream.pdv());
        ipdv.merge(&stream.ipdv());
    }
    let offered = || {
        lanes
            .iter()
            .filter_map(|lane| lane.offered_of_flow.last())
            .copied()
    };
    Ok(LowRateStreams {
        rate_pps,
        offered_frames: offered().sum(),
        received_frames: all.len() as u64,
        latency: latency.summary()?,
        variation: DelayVariation {
            ipdv: ipdv.summary(pairs(offered()).saturating_sub(ipdv.samples()))?,
            pdv: pdv.summary()?,
        },
    })
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
