// SPDX-License-Identifier: Apache-2.0
//! Execution of a trial: lanes over the ports, a timetable, threads that run the lanes, and one result.

mod profile;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_base::unix_time;
use quietwire_dpdk::{PortStats, cycles};

use crate::account::PortTotals;
use crate::assemble::{LaneResult, assemble};
use crate::clock::{ClockCheck, ticks_of_s, ticks_per_second};
use crate::engine::{self, Leave, LoopHealth, Signals, Timetable};
use crate::error::TesterError;
use crate::frame::Epoch;
use crate::judge::{Limits, judge};
use crate::lane::Lane;
use crate::latency::{Samples, Scale};
use crate::narrow::{index, whole};
use crate::pacer::{Pace, dealt};
use crate::tester::{FrameAccess, Ready, Tester, TesterIdle, TesterOptions, number_of};
use crate::threads::{guard_realtime, run_threads};
use crate::time_stamps::{Stream, TIMES_MAX, TrialStart};
use crate::trial::{PortResult, Trial, TrialResult};
use crate::trial_context::TrialContext;
use crate::watch::{Arrivals, Pulse, Slices};

pub(crate) use profile::{Addressing, Senders, TrialProfile, Watch};

/// View of a running trial for the thread that waits for it, with the flags that control the trial.
pub(crate) struct TrialControl<'a> {
    /// When the counted part begins, ticks.
    pub(crate) start: u64,
    pub(crate) ticks_per_second: u64,
    /// One per lane if the run observes [`Watch::Silence`].
    pub(crate) pulses: &'a [Arc<Pulse>],
    /// Set by the waiting thread to begin the recording of times without frames.
    pub(crate) armed: &'a AtomicBool,
    /// Set by the waiting thread to end the transmission.
    pub(crate) stop_sending: &'a AtomicBool,
    /// Set by another thread to abort the trial.
    pub(crate) abort: &'a AtomicBool,
}

/// Outcome of a completed trial.
pub(crate) struct TrialRun {
    pub(crate) result: TrialResult,
    pub(crate) lanes: Vec<LaneResult>,
    pub(crate) ticks_per_second: u64,
}

/// Observations of the threads of a trial.
struct LanesRun {
    /// Names of the ports that took part.
    names: Vec<String>,
    lanes: Vec<LaneResult>,
    healths: Vec<LoopHealth>,
    realtime: bool,
    clock_error_ratio: f64,
}

impl Tester {
    /// Runs one trial. Calls `meanwhile` on the calling thread while the trial runs.
    pub(crate) fn run_trial(
        &mut self,
        trial: &Trial,
        profile: &TrialProfile,
        meanwhile: &mut dyn FnMut(&TrialControl<'_>),
    ) -> Result<TrialRun, TesterError> {
        self.check(trial)?;
        self.prepare_traffic(trial)?;
        self.trials = self.trials.wrapping_add(1);
        let epoch = Epoch::of_trial(self.trials);
        let before: Vec<PortStats> = self
            .ports
            .iter()
            .map(|port| port.port.handle.stats())
            .collect();
        let preparation = self.options.preparation;
        let lead_s = preparation.lead_s(trial);
        guard_realtime(trial, lead_s, self.options.realtime_priority.is_some());

        let until_start_s = lead_s + preparation.settle_s + trial.warm_up_s;
        let until_start = Duration::try_from_secs_f64(until_start_s).unwrap_or(Duration::MAX);
        let started = unix_time().saturating_add(until_start);
        let times = Timetable {
            // A thread knows only the frames of its own ports.
            ends_when_complete: self.ends_when_complete && self.options.cpus.len() == 1,
            times: self.ready.as_ref().and_then(Ready::times),
            ..timetable(trial, epoch, profile, &self.options)
        };
        let run = self.run_lanes(trial, profile, &times, meanwhile)?;
        let mut result = assemble(
            trial,
            &times,
            &run.names,
            self.paired(),
            &run.lanes,
            &run.healths,
        )
        .map_err(TesterError::Result)?;
        result.started_unix_ns = u64::try_from(started.as_nanos()).unwrap_or(u64::MAX);
        result.health.realtime = run.realtime;
        result.health.receive_drops = self.receive_drops(&before);
        self.set_totals(&mut result, &before, &run.lanes);
        result.health.clock_error_ratio = run.clock_error_ratio;
        self.judge(&mut result, profile);
        self.add_time_stamps(&result, times.start, &run.lanes)?;
        Ok(TrialRun {
            result,
            lanes: run.lanes,
            ticks_per_second: times.ticks_per_second,
        })
    }

    /// Creates the lanes of a trial and runs them on the threads of the tester. Calls `meanwhile` on the calling thread while they run.
    fn run_lanes(
        &mut self,
        trial: &Trial,
        profile: &TrialProfile,
        times: &Timetable,
        meanwhile: &mut dyn FnMut(&TrialControl<'_>),
    ) -> Result<LanesRun, TesterError> {
        let clock = ClockCheck::begin();
        let paired = self.paired();
        let used = match profile.addressing {
            Addressing::AsAsked => paired,
            Addressing::FromMany(_) | Addressing::ToMany(_) => self.ports.len(),
        };
        let names: Vec<String> = self
            .ports
            .iter()
            .take(used)
            .map(|port| port.port.handle.name().to_owned())
            .collect();
        let context = TrialContext {
            eal: &self.eal,
            pool: &self.pool,
            trial,
            epoch: times.epoch,
            profile,
            ports: used,
            paired,
            ready: self.ready.as_ref(),
            receive_ring_size: self.options.receive_ring_size,
            may_be_in_place: self.options.frame_access == FrameAccess::InPlace,
        };
        let mut lanes = Vec::new();
        for (index, port) in self.ports.iter_mut().take(used).enumerate() {
            lanes.extend(context.lanes(port, index)?);
        }
        deal_burst(&mut lanes, profile.pace);
        let (armed, stop_sending) = (Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
        if self.time_stamps.is_some() {
            let frames = low_rate_frames_max(trial);
            lanes.iter_mut().for_each(|lane| lane.note_low_rate(frames));
        }
        let pulses = set_watch(&mut lanes, profile.watch, times, &armed);
        let control = TrialControl {
            start: times.start,
            ticks_per_second: times.ticks_per_second,
            pulses: &pulses,
            armed: &armed,
            stop_sending: &stop_sending,
            abort: &self.abort,
        };
        let signals = Signals {
            abort: &self.abort,
            stop_sending: &stop_sending,
        };
        let (lanes, healths, realtime) = run_threads(
            &self.eal,
            (&self.options, self.seccomp),
            lanes,
            times,
            signals,
            &mut || {
                meanwhile(&control);
            },
        )?;
        let clock_error_ratio = clock.error_ratio();
        if self.abort.load(Ordering::Relaxed) || healths.iter().any(|health| health.aborted) {
            return Err(TesterError::Aborted);
        }
        Ok(LanesRun {
            names,
            lanes: lanes.into_iter().map(LaneResult::from_lane).collect(),
            healths,
            realtime,
            clock_error_ratio,
        })
    }

    /// Sets the calibration and the validity of the result.
    fn judge(&self, result: &mut TrialResult, profile: &TrialProfile) {
        result.calibration = self.cited(&result.trial, result.achieved_rate_pps);
        let links_down = if profile.watch == Watch::Silence {
            let ports = result.ports.iter_mut();
            ports.for_each(|port| port.link_losses = 0);
            Vec::new()
        } else {
            self.links_down()
        };
        let limits = match profile.pace {
            // Delays shift such a schedule. Callers that need it in time check that themselves.
            Pace::Spread { .. } => Limits {
                stretch_ratio: f64::INFINITY,
                ..self.options.limits
            },
            _ => self.options.limits,
        };
        result.validity = judge(result, limits, &links_down);
    }

    /// Adds the times of the low-rate frames to the file, if there is one.
    fn add_time_stamps(
        &mut self,
        result: &TrialResult,
        start: u64,
        lanes: &[LaneResult],
    ) -> Result<(), TesterError> {
        let Some(file) = &mut self.time_stamps else {
            return Ok(());
        };
        let mut received = Samples::default();
        lanes
            .iter()
            .for_each(|lane| received.merge(&lane.received.samples));
        // One lane of a port sends its stream.
        let senders = lanes.iter().filter(|lane| !lane.low_rate_ticks.is_empty());
        let streams: Vec<Stream<'_>> = senders
            .map(|lane| Stream {
                port: number_of(lane.port),
                sent: &lane.low_rate_ticks,
            })
            .collect();
        let start = TrialStart {
            unix_ns: result.started_unix_ns,
            tick: start,
        };
        let scale = Scale::new(ticks_per_second());
        let added = file.append(start, scale, &streams, &received);
        added.map_err(|error| TesterError::TimeStamps {
            path: file.path().to_owned(),
            error,
        })
    }

    /// Records the counters of each port over the whole trial.
    fn set_totals(&self, result: &mut TrialResult, before: &[PortStats], lanes: &[LaneResult]) {
        let ports = result.ports.iter_mut().zip(&self.ports).zip(before);
        for (index, ((result, port), before)) in ports.enumerate() {
            let own: Vec<&LaneResult> = lanes.iter().filter(|lane| lane.port == index).collect();
            let now = port.port.handle.stats();
            result.totals = totals((before, &now), &own, result);
        }
    }

    fn check(&self, trial: &Trial) -> Result<(), TesterError> {
        trial.validate().map_err(TesterError::BadTrial)?;
        if trial.frame_size_largest() > self.options.frame_size_max {
            return Err(TesterError::BadTrial(format!(
                "frames of {} octets exceed the limit of the open ports, {} octets",
                trial.frame_size_largest(),
                self.options.frame_size_max
            )));
        }
        Ok(())
    }
}

/// Returns the increase of a port's counters. `lanes` and `result` cover the counted part.
fn totals(
    (before, now): (&PortStats, &PortStats),
    lanes: &[&LaneResult],
    result: &PortResult,
) -> PortTotals {
    let grown = |of: fn(&PortStats) -> u64| of(now).saturating_sub(of(before));
    let sent_frames = grown(|stats| stats.tx_frames);
    let send_error_frames = grown(|stats| stats.tx_errors);
    let received_frames = grown(|stats| stats.rx_frames);
    let counted: u64 = lanes.iter().map(|lane| lane.received.counted()).sum();
    let accepted = result.offered_frames.saturating_sub(result.refused_frames);
    PortTotals {
        sent_frames,
        sent_before_frames: sent_frames
            .saturating_add(send_error_frames)
            .saturating_sub(accepted),
        received_frames,
        received_before_frames: received_frames.saturating_sub(counted),
        send_error_frames,
        receive_drop_frames: grown(|stats| {
            let drops = stats.rx_missed.saturating_add(stats.rx_no_buffers);
            drops.saturating_add(stats.rx_errors)
        }),
    }
}

/// Assigns to each sending lane its part of a burst.
fn deal_burst(lanes: &mut [Lane<'_>], pace: Pace) {
    let Pace::Burst(frames) = pace else {
        return;
    };
    let senders = || lanes.iter().filter(|lane| lane.role.transmits);
    let share = |lane: &Lane<'_>| lane.role.share / f64::from(lane.role.of_port.of);
    let shares: Vec<f64> = senders().map(share).collect();
    let parts = dealt(frames, &shares);
    let senders = lanes.iter_mut().filter(|lane| lane.role.transmits);
    for (lane, part) in senders.zip(parts) {
        lane.role.burst = part;
    }
}

/// Sets up the observation on the lanes. Returns the pulses that other threads can read.
fn set_watch(
    lanes: &mut [Lane<'_>],
    watch: Watch,
    times: &Timetable,
    armed: &Arc<AtomicBool>,
) -> Vec<Arc<Pulse>> {
    let ticks = |seconds: f64| ticks_of_s(seconds, times.ticks_per_second);
    let mut pulses = Vec::new();
    for lane in lanes {
        match watch {
            Watch::Nothing => {}
            Watch::Losses { from_s, length_s } => {
                let origin = times.start.saturating_add(ticks(from_s));
                let slices = Slices::new(origin, ticks(length_s), times.ticks_per_second);
                lane.slices = Some(slices.clone());
                lane.received.times.slices = Some(slices);
            }
            Watch::Silence => {
                let pulse = Arc::<Pulse>::default();
                lane.received.times.arrivals =
                    Some(Arrivals::new(Arc::clone(armed), Arc::clone(&pulse)));
                pulses.push(pulse);
            }
        }
    }
    pulses
}

/// Returns the rate of each low-rate stream, frames per second: the trial's, but at most half of the load.
fn low_rate_pps(trial: &Trial, pace: Pace) -> f64 {
    match pace.rate_pps() {
        Some(rate_pps) => trial.low_rate_pps.min(rate_pps / 2.0),
        None => trial.low_rate_pps,
    }
}

/// Returns an upper bound of the frames of a low-rate stream that a file of time stamps has space for.
fn low_rate_frames_max(trial: &Trial) -> usize {
    let scheduled = whole((trial.low_rate_pps * trial.duration_s).ceil()).saturating_add(2);
    index(scheduled.min(TIMES_MAX))
}

fn timetable(
    trial: &Trial,
    epoch: Epoch,
    profile: &TrialProfile,
    options: &TesterOptions,
) -> Timetable {
    let preparation = options.preparation;
    let leave = match options.idle {
        _ if profile.watch == Watch::Silence => Leave::WhenIdle,
        TesterIdle::Poll => Leave::Never,
        // Without a schedule there is nothing to wait for.
        TesterIdle::Sleep if profile.pace == Pace::Unpaced => Leave::Never,
        TesterIdle::Sleep => Leave::BetweenBursts,
    };
    let ticks_per_second = ticks_per_second();
    let after =
        |tick: u64, seconds: f64| tick.saturating_add(ticks_of_s(seconds, ticks_per_second));
    let learning_end = after(cycles::now(), preparation.lead_s(trial));
    let warm_up_start = after(learning_end, preparation.settle_s);
    let start = after(warm_up_start, trial.warm_up_s);
    let (end, limit, ends_with_frames) = match profile.pace {
        // For a number of frames, the duration is the time limit.
        Pace::Burst(_) => (start, after(start, trial.duration_s), true),
        Pace::Spread { frames, rate_pps } => (
            after(start, frames as f64 / rate_pps),
            after(start, trial.duration_s),
            true,
        ),
        Pace::Rate(_) | Pace::Unpaced | Pace::Step { .. } => {
            let end = after(start, trial.duration_s);
            let grace = engine::grace(ticks_per_second);
            (end, end.saturating_add(grace), false)
        }
    };
    let drain = ticks_of_s(trial.drain_s, ticks_per_second);
    Timetable {
        epoch,
        pace: profile.pace,
        low_rate_pps: low_rate_pps(trial, profile.pace),
        burst: trial.burst(),
        times: None,
        latency_start: trial.latency_start,
        ticks_per_second,
        learning_end,
        warm_up_start,
        start,
        end,
        limit,
        drain,
        drain_end: drain.saturating_add(if ends_with_frames { limit } else { end }),
        ends_with_frames,
        ends_when_complete: false,
        leave,
    }
}
