// SPDX-License-Identifier: Apache-2.0
//! Assembly of a trial's result from the lanes and threads.

use crate::account::PortTotals;
use crate::engine::{LoopHealth, Timetable};
use crate::lane::{Lane, Sent, TX_BURST};
use crate::latency::{DelayVariation, LowRateStreams, Recorder, Samples, Scale, SignedRecorder};
use crate::pacer::{Pace, Pacer};
use crate::received::Received;
use crate::series::{LaneSeries, TrialSeries, merged};
use crate::tester::peer_of;
use crate::trial::{FlowResult, Misdirected, PortResult, TesterHealth, Trial, TrialResult};
use crate::validity::Validity;
use crate::watch::Slices;

/// Largest number of flows listed in a result.
const FLOWS_LISTED_MAX: usize = 64;

/// Data of a lane after its trial.
#[derive(Debug)]
pub(crate) struct LaneResult {
    pub(crate) port: usize,
    pub(crate) received: Received,
    pub(crate) sent: Sent,
    /// Frames sent, by transmit time, if the run observes losses.
    pub(crate) slices: Option<Slices>,
    /// Transmit times of the low-rate frames, ticks, if the lane noted them.
    pub(crate) low_rate_ticks: Vec<u64>,
    /// Totals over time.
    series: LaneSeries,
    scheduled: u64,
    unsent: u64,
    /// Unsent frames that were due in stalls.
    stalled: u64,
    /// Frames sent late.
    late: u64,
    offered: u64,
    missed_at_most: u64,
    /// Low-rate frames that were skipped or sent late.
    low_rate_missed: u64,
    link_losses: u64,
    /// Offered frames of each flow, with the low-rate stream last; empty if nothing was sent.
    offered_of_flow: Vec<u64>,
}

impl LaneResult {
    pub(crate) fn from_lane(mut lane: Lane<'_>) -> Self {
        let abandoned = lane.abandon_waiting();
        if let Some(slices) = &mut lane.slices {
            slices.take_back(abandoned);
        }
        let offer = Offer::of(&lane, abandoned);
        Self {
            port: lane.role.port,
            offered_of_flow: offer.of_flows(lane.received.flows, |flow| {
                lane.writer.written_of_flow(flow)
            }),
            unsent: offer.unsent(),
            scheduled: offer.schedule.map_or(0, |schedule| schedule.frames),
            offered: offer.frames(),
            stalled: lane.pacer.as_ref().map_or(0, Pacer::stalled),
            late: lane.pacer.as_ref().map_or(0, Pacer::late),
            missed_at_most: lane.missed_at_most(),
            low_rate_missed: lane.low_rate_missed(),
            link_losses: lane.link_losses(),
            received: lane.received,
            sent: lane.sent,
            slices: lane.slices,
            low_rate_ticks: lane.low_rate_ticks,
            series: lane.series,
        }
    }
}

/// Transmission of a lane compared with its schedule.
#[derive(Clone, Copy, Debug)]
struct Offer {
    /// `None` if the lane sends learning frames only.
    schedule: Option<Schedule>,
    /// Frames written, including those of the low-rate stream.
    written: u64,
    low_rate: u64,
    /// Frames not written because no buffer was free.
    no_buffers: u64,
    /// Frames written but never accepted by a device's ring: they were not offered.
    abandoned: u64,
}

/// Counters of the pacer.
#[derive(Clone, Copy, Debug)]
struct Schedule {
    frames: u64,
    unsent: u64,
}

impl Offer {
    fn of(lane: &Lane<'_>, abandoned: u64) -> Self {
        Self {
            schedule: lane.pacer.as_ref().map(|pacer| Schedule {
                frames: pacer.scheduled(),
                unsent: pacer.unsent(),
            }),
            written: lane.writer.written(),
            low_rate: lane.writer.low_rate_written(),
            no_buffers: lane.sent.no_buffers,
            abandoned,
        }
    }

    /// Returns the frames offered to the device.
    fn frames(&self) -> u64 {
        self.schedule
            .map_or(0, |_| self.written.saturating_sub(self.abandoned))
    }

    /// Returns the number of frames that were due and not offered.
    fn unsent(&self) -> u64 {
        let unsent = self.schedule.map_or(0, |schedule| schedule.unsent);
        unsent
            .saturating_add(self.no_buffers)
            .saturating_add(self.abandoned)
    }

    /// Returns the number of frames of each of `flows` flows, the last of which is the low-rate stream. Empty if nothing was sent.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a flow has a number of 16 bits"
    )]
    fn of_flows(&self, flows: usize, of_load: impl Fn(u16) -> u64) -> Vec<u64> {
        if self.schedule.is_none() {
            return Vec::new();
        }
        let load = (0..flows.saturating_sub(1)).map(|flow| of_load(flow as u16));
        load.chain([self.low_rate]).collect()
    }
}

pub(crate) fn assemble(
    trial: &Trial,
    times: &Timetable,
    names: &[String],
    paired: usize,
    lanes: &[LaneResult],
    threads: &[LoopHealth],
) -> Result<TrialResult, String> {
    let hz = times.ticks_per_second as f64;
    let sum = |part: fn(&LaneResult) -> u64| lanes.iter().map(part).sum::<u64>();
    // The latency of unsent frames is unknown. The latency of frames sent late excludes their delay, unless it starts when they are due.
    let late = if times.latency_is_from_due() {
        0
    } else {
        sum(|l| l.late)
    };
    let missed_ratio = ratio(sum(|l| l.unsent).saturating_add(late), sum(|l| l.scheduled));
    let (offered, scheduled, unsent) =
        (sum(|l| l.offered), sum(|l| l.scheduled), sum(|l| l.unsent));
    let flows = Flows::of(lanes, names.len(), |port| home_of(trial, port, paired));
    let received: u64 = flows.all.iter().map(|flow| flow.received_frames).sum();
    let damaged = sum(|lane| lane.received.damaged);
    let lost = offered.saturating_sub(received);
    let elapsed_s = elapsed_s(lanes, times, hz);
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
        damaged_frames: damaged,
        damage_check: Some(trial.damage_check()),
        stale_frames: flows.stale,
        achieved_rate_pps: rate(offered),
        forwarding_rate_pps: rate(received),
        latency: latency(lanes).summary()?.withheld_beyond(missed_ratio),
        variation: variation(lanes)?.withheld_beyond(missed_ratio),
        low_rate: low_rate(lanes, times.low_rate_pps)?,
        ports: names
            .iter()
            .zip(&flows.misdirected)
            .enumerate()
            .map(|(port, (name, misdirected))| port_result(name, port, lanes, *misdirected))
            .collect(),
        health: TesterHealth {
            unsent_frames: unsent,
            stalled_unsent_frames: sum(|lane| lane.stalled),
            late_frames: sum(|lane| lane.late),
            rate_error_ratio: rate_error_ratio(trial, times, rate(offered)),
            pacing_miss_ratio: ratio(unsent, scheduled),
            excess_frames: flows.all.iter().map(excess).sum(),
            phantom_frames: flows
                .phantoms
                .saturating_add(sum(|lane| lane.received.unknown)),
            ..health(lanes, threads, times)?
        },
        flows: flows.eventful(),
        calibration: None,
        loss_account: None,
        series: TrialSeries {
            frames: merged(
                lanes.iter().map(|lane| &lane.series),
                times.start,
                times.ticks_per_second,
            ),
            device: Vec::new(),
        },
        validity: Validity::Valid,
    })
}

/// Returns the relative error of the achieved rate; `None` if the rate is not constant.
fn rate_error_ratio(trial: &Trial, times: &Timetable, achieved_pps: f64) -> Option<f64> {
    let is_constant = matches!(times.pace, Pace::Rate(rate_pps) if rate_pps > 0.0);
    is_constant.then(|| achieved_pps / trial.offered_rate_pps - 1.0)
}

/// Returns the port at which the frames of a port count. The first `paired` ports form pairs.
fn home_of(trial: &Trial, port: usize, paired: usize) -> usize {
    if trial.reflected {
        port
    } else {
        peer_of(port, paired)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// Returns the time over which frames were offered, seconds: until the last burst, but at least until the end of the schedule.
fn elapsed_s(lanes: &[LaneResult], times: &Timetable, hz: f64) -> f64 {
    let last = lanes
        .iter()
        .map(|lane| lane.sent.last_tick)
        .max()
        .unwrap_or(0);
    let nominal = times.end.saturating_sub(times.start);
    let observed = last.saturating_sub(times.start);
    observed.max(nominal) as f64 / hz
}

fn latency(lanes: &[LaneResult]) -> Recorder {
    let mut all = Recorder::default();
    for lane in lanes {
        all.merge(&lane.received.latency);
    }
    all
}

/// Returns the number of pairs of consecutive frames in flows with these numbers of frames.
fn pairs(offered: impl Iterator<Item = u64>) -> u64 {
    offered.map(|frames| frames.saturating_sub(1)).sum()
}

/// Returns the delay variation of all frames of the load.
fn variation(lanes: &[LaneResult]) -> Result<DelayVariation, String> {
    let (mut ipdv, mut pdv) = (SignedRecorder::default(), Recorder::default());
    let mut of_ports: Vec<Recorder> = Vec::new();
    for lane in lanes {
        ipdv.merge(&lane.received.delays.ipdv);
        if of_ports.len() <= lane.port {
            of_ports.resize_with(lane.port.saturating_add(1), Recorder::default);
        }
        if let Some(of_port) = of_ports.get_mut(lane.port) {
            of_port.merge(&lane.received.latency);
        }
    }
    // The smallest delay is that of the port, regardless of the receive queue.
    for of_port in of_ports {
        pdv.merge(&of_port.above_minimum());
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

/// Returns the results of the low-rate streams: evaluated separately, then combined.
#[expect(
    clippy::cast_possible_truncation,
    reason = "a port has a number of 8 bits"
)]
fn low_rate(lanes: &[LaneResult], rate_pps: f64) -> Result<LowRateStreams, String> {
    let mut all = Samples::default();
    for lane in lanes {
        all.merge(&lane.received.samples);
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
    // The offered frames include those sent late, so the ratio is rather too high.
    let missed = lanes.iter().map(|lane| lane.low_rate_missed).sum();
    let missed_ratio = ratio(missed, offered().sum::<u64>().saturating_add(missed));
    let variation = DelayVariation {
        ipdv: ipdv.summary(pairs(offered()).saturating_sub(ipdv.samples()))?,
        pdv: pdv.summary()?,
    };
    Ok(LowRateStreams {
        rate_pps,
        offered_frames: offered().sum(),
        received_frames: all.len() as u64,
        latency: latency.summary()?.withheld_beyond(missed_ratio),
        variation: variation.withheld_beyond(missed_ratio),
    })
}

fn port_result(
    name: &str,
    port: usize,
    lanes: &[LaneResult],
    misdirected_frames: u64,
) -> PortResult {
    let own = || lanes.iter().filter(|lane| lane.port == port);
    let trackers = own().flat_map(|lane| lane.received.trackers.iter());
    let received: u64 = trackers.map(|tracker| tracker.received()).sum();
    PortResult {
        name: name.to_owned(),
        offered_frames: own().map(|lane| lane.offered).sum(),
        refused_frames: own().map(|lane| lane.sent.refused).sum(),
        received_frames: received.saturating_sub(misdirected_frames),
        damaged_frames: own().map(|lane| lane.received.damaged).sum(),
        foreign_frames: own().map(|lane| lane.received.foreign).sum(),
        misdirected_frames,
        // Every lane of a port sees the same link.
        link_losses: own().map(|lane| lane.link_losses).max().unwrap_or(0),
        totals: PortTotals::default(),
    }
}

/// Results of all flows of all ports.
#[derive(Debug, Default)]
struct Flows {
    all: Vec<FlowResult>,
    /// Misdirected frames, by receiving port.
    misdirected: Vec<u64>,
    /// Frames with sequence numbers that were never sent.
    phantoms: u64,
    /// Frames behind the window of their flow.
    stale: u64,
}

/// Frames of one flow received on a port, over all its lanes.
#[derive(Clone, Copy, Debug, Default)]
struct Arrived {
    received: u64,
    duplicates: u64,
    reordered: u64,
}

impl Flows {
    /// Returns the results of the flows of each transmitting port. They count only at the port that `home_of` returns.
    fn of(lanes: &[LaneResult], ports: usize, home_of: impl Fn(usize) -> usize) -> Self {
        let mut flows = Self {
            misdirected: vec![0; ports],
            ..Self::default()
        };
        let count = lanes.first().map_or(0, |lane| lane.received.flows);
        for port in 0..ports {
            for flow in 0..count {
                // A port that sent nothing has no counters, so every frame of it is a phantom.
                let own = lanes.iter().filter(|lane| lane.port == port);
                let offered = own.filter_map(|lane| lane.offered_of_flow.get(flow));
                flows.add(lanes, home_of(port), (port, flow), offered.sum());
            }
        }
        flows
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "ports and flows have numbers of 16 bits"
    )]
    fn add(
        &mut self,
        lanes: &[LaneResult],
        home: usize,
        (port, flow): (usize, usize),
        offered: u64,
    ) {
        let ports = self.misdirected.len();
        let mut arrived = vec![Arrived::default(); ports];
        for lane in lanes {
            let first = port.saturating_mul(lane.received.flows);
            let trackers = &lane.received.trackers;
            let tracker = trackers.get(first.saturating_add(flow));
            if let (Some(tracker), Some(arrived)) = (tracker, arrived.get_mut(lane.port)) {
                self.phantoms = self.phantoms.saturating_add(tracker.beyond(offered));
                arrived.received = arrived.received.saturating_add(tracker.received());
                arrived.duplicates = arrived.duplicates.saturating_add(tracker.duplicates());
                arrived.reordered = arrived.reordered.saturating_add(tracker.reordered());
                self.stale = self.stale.saturating_add(tracker.stale());
            }
        }
        let mut result = FlowResult {
            port: port as u16,
            flow: flow as u16,
            offered_frames: offered,
            ..FlowResult::default()
        };
        for (at, arrived) in arrived.iter().enumerate() {
            if at == home {
                result.received_frames = arrived.received;
                result.duplicate_frames = arrived.duplicates;
                result.reordered_frames = arrived.reordered;
            } else if let Some(misdirected) = self.misdirected.get_mut(at) {
                *misdirected = misdirected.saturating_add(arrived.received);
                if arrived.received > 0 {
                    result.misdirected.push(Misdirected {
                        port: at as u16,
                        frames: arrived.received,
                    });
                }
            }
        }
        self.all.push(result);
    }

    /// Returns the first flows with loss, duplicates, reordering or misdirected frames.
    fn eventful(self) -> Vec<FlowResult> {
        let is_clean = |flow: &FlowResult| {
            flow.received_frames == flow.offered_frames
                && flow.duplicate_frames == 0
                && flow.reordered_frames == 0
                && flow.misdirected.is_empty()
        };
        let eventful = self.all.into_iter().filter(|flow| !is_clean(flow));
        eventful.take(FLOWS_LISTED_MAX).collect()
    }
}

/// Returns the number of frames of a flow received in excess of those offered.
fn excess(flow: &FlowResult) -> u64 {
    flow.received_frames.saturating_sub(flow.offered_frames)
}

/// Returns the health of the tester from its lanes and threads.
fn health(
    lanes: &[LaneResult],
    threads: &[LoopHealth],
    times: &Timetable,
) -> Result<TesterHealth, String> {
    let scale = Scale::new(times.ticks_per_second);
    let most = |part: fn(&LoopHealth) -> u64| threads.iter().map(part).max().unwrap_or(0);
    let sum = |part: fn(&Sent) -> u64| lanes.iter().map(|lane| part(&lane.sent)).sum::<u64>();
    let offered = lanes.iter().map(|lane| lane.offered).sum();
    let (mut gaps, mut stalled) = (Recorder::default(), Recorder::default());
    for lane in lanes {
        gaps.merge(&lane.sent.gaps);
        stalled.merge(&lane.sent.stalled_gaps);
    }
    let last = lanes.iter().map(|lane| lane.sent.last_tick).max();
    let after_end = last.unwrap_or(0).saturating_sub(times.end);
    Ok(TesterHealth {
        late_bursts: sum(|sent| sent.late_bursts),
        bursts: sum(|sent| sent.bursts),
        generate_cycles: ratio(sum(|sent| sent.generate_ticks), offered),
        check_cycles: ratio(sum(|sent| sent.check_ticks), sum(|sent| sent.checked)),
        longest_gap_ns: scale.ns(most(|thread| thread.longest_gap)),
        longest_host_gap_ns: scale.ns(most(|thread| thread.longest_host_gap)),
        host_stalls: threads.iter().map(|thread| thread.host_stalls).sum(),
        host_stall_time_ns: scale.ns(threads.iter().map(|thread| thread.host_stall_ticks).sum()),
        missed_at_most_frames: lanes.iter().map(|lane| lane.missed_at_most).sum(),
        gaps_over_100us: threads.iter().map(|thread| thread.gaps_over_100us).sum(),
        gap_time_ns: scale.ns(threads.iter().map(|thread| thread.gap_ticks).sum()),
        idle_ratio: threads
            .iter()
            .filter(|thread| thread.offer_ticks > 0)
            .map(|thread| ratio(thread.idle_ticks, thread.offer_ticks))
            .reduce(f64::min),
        burst_gaps: gaps.summary()?,
        stalled_gaps: stalled.summary()?,
        burst_time_ns: times
            .pace
            .rate_pps()
            .map_or(0.0, |rate_pps| TX_BURST as f64 / rate_pps * 1e9),
        stretch_ratio: ratio(after_end, times.end.saturating_sub(times.start)),
        overrun_ns: scale.ns(most(|thread| thread.ended).saturating_sub(times.drain_end)),
        ..TesterHealth::default()
    })
}

#[cfg(test)]
mod tests;
