// SPDX-License-Identifier: Apache-2.0
//! What the lanes and threads saw, put together into one result.

use crate::engine::{LoopHealth, Timetable};
use crate::lane::{Lane, Sent, TX_BURST};
use crate::latency::{DelayVariation, LowRateStreams, Recorder, Samples, Scale, SignedRecorder};
use crate::pacer::Pace;
use crate::seen::Seen;
use crate::tester::peer_of;
use crate::tracker::FlowTracker;
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
    link_losses: u64,
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
            link_losses: lane.link_losses(),
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
    let flows = Flows::of(&lanes);
    let received: u64 = flows.all.iter().map(|flow| flow.received_frames).sum();
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
        duplicate_frames: flows.all.iter().map(|flow| flow.duplicate_frames).sum(),
        reordered_frames: flows.all.iter().map(|flow| flow.reordered_frames).sum(),
        achieved_rate_pps: rate(offered),
        forwarding_rate_pps: rate(received),
        latency: latency(&lanes).summary()?,
        variation: variation(&lanes)?,
        low_rate: low_rate(&lanes, times.low_rate_pps)?,
        ports: names
            .iter()
            .zip(&lanes)
            .zip(&flows.misdirected)
            .map(|((name, lane), misdirected)| port_result(name, lane, *misdirected))
            .collect(),
        health: TesterHealth {
            unsent_frames: unsent,
            pacing_miss_ratio: ratio(unsent, scheduled),
            excess_frames: flows.all.iter().map(excess).sum(),
            phantom_frames: flows.phantoms + sum(|lane| lane.seen.unknown),
            ..health(&lanes, threads, times)?
        },
        flows: flows.eventful(),
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

fn port_result(name: &str, lane: &LaneResult, misdirected_frames: u64) -> PortResult {
    let trackers = lane.seen.trackers.iter();
    let received: u64 = trackers.map(|tracker| tracker.received()).sum();
    PortResult {
        name: name.to_owned(),
        offered_frames: lane.offered,
        refused_frames: lane.sent.refused,
        received_frames: received - misdirected_frames,
        foreign_frames: lane.seen.foreign,
        misdirected_frames,
        link_losses: lane.link_losses,
    }
}

/// What came of each flow of each port.
#[derive(Debug, Default)]
struct Flows {
    all: Vec<FlowResult>,
    /// By receiving port: frames of flows that count at another.
    misdirected: Vec<u64>,
    /// Frames of numbers that were never sent.
    phantoms: u64,
}

impl Flows {
    /// A flow is told by its transmitting port, and counts at the port opposite; where none of it arrived there, at the one
    /// where most did, as with a device that sends frames back.
    fn of(lanes: &[LaneResult]) -> Self {
        let mut flows = Self {
            misdirected: vec![0; lanes.len()],
            ..Self::default()
        };
        for (port, sender) in lanes.iter().enumerate() {
            for flow in 0..sender.seen.flows {
                // A port that sent nothing has no figures, and whatever came of it is a phantom.
                let offered = sender.offered_of_flow.get(flow).copied().unwrap_or(0);
                flows.add(lanes, port, flow, offered);
            }
        }
        flows
    }

    fn add(&mut self, lanes: &[LaneResult], port: usize, flow: usize, offered: u64) {
        let mut result = FlowResult {
            port: port as u16,
            flow: flow as u16,
            offered_frames: offered,
            ..FlowResult::default()
        };
        let tracker_of = |lane: &LaneResult| {
            let index = port * lane.seen.flows + flow;
            lane.seen.trackers.get(index).cloned().unwrap_or_default()
        };
        let trackers: Vec<FlowTracker> = lanes.iter().map(tracker_of).collect();
        let peer = peer_of(port, lanes.len());
        let home = trackers
            .iter()
            .enumerate()
            .filter(|(_, tracker)| tracker.received() > 0)
            .max_by_key(|(lane, tracker)| (*lane == peer, tracker.received()))
            .map(|(lane, _)| lane);
        for (lane, tracker) in trackers.iter().enumerate() {
            self.phantoms += tracker.beyond(offered);
            if Some(lane) == home {
                result.received_frames = tracker.received();
                result.duplicate_frames = tracker.duplicates();
                result.reordered_frames = tracker.reordered();
            } else if let Some(misdirected) = self.misdirected.get_mut(lane) {
                *misdirected += tracker.received();
            }
        }
        self.all.push(result);
    }

    /// Those in which something happened, the first of them.
    fn eventful(self) -> Vec<FlowResult> {
        let is_clean = |flow: &FlowResult| {
            flow.received_frames == flow.offered_frames
                && flow.duplicate_frames == 0
                && flow.reordered_frames == 0
        };
        let eventful = self.all.into_iter().filter(|flow| !is_clean(flow));
        eventful.take(FLOWS_LISTED_MAX).collect()
    }
}

/// Frames of a flow that came over those that went.
fn excess(flow: &FlowResult) -> u64 {
    flow.received_frames.saturating_sub(flow.offered_frames)
}

/// What the lanes and threads tell of themselves.
fn health(
    lanes: &[LaneResult],
    threads: &[LoopHealth],
    times: &Timetable,
) -> Result<TesterHealth, String> {
    let scale = Scale::new(times.ticks_per_second);
    let most = |part: fn(&LoopHealth) -> u64| threads.iter().map(part).max().unwrap_or(0);
    let mut gaps = Recorder::default();
    lanes.iter().for_each(|lane| gaps.merge(&lane.sent.gaps));
    let last = lanes.iter().map(|lane| lane.sent.last_tick).max();
    let after_end = last.unwrap_or(0).saturating_sub(times.end);
    Ok(TesterHealth {
        late_bursts: lanes.iter().map(|lane| lane.sent.late_bursts).sum(),
        bursts: lanes.iter().map(|lane| lane.sent.bursts).sum(),
        longest_gap_ns: scale.ns(most(|thread| thread.longest_gap)),
        gaps_over_100us: threads.iter().map(|thread| thread.gaps_over_100us).sum(),
        gap_time_ns: scale.ns(threads.iter().map(|thread| thread.gap_ticks).sum()),
        burst_gaps: gaps.summary()?,
        burst_time_ns: match times.pace {
            Pace::Rate(rate_pps) => TX_BURST as f64 / rate_pps * 1e9,
            Pace::Unpaced => 0.0,
        },
        stretch_ratio: ratio(after_end, times.end - times.start),
        overrun_ns: scale.ns(most(|thread| thread.ended).saturating_sub(times.drain_end)),
        ..TesterHealth::default()
    })
}
