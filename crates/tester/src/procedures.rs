// SPDX-License-Identifier: Apache-2.0
//! Runs of the built-in tester other than plain trials: bursts, overloads, restarts, addresses.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::sleep;
use std::time::Duration;

use quietwire_dpdk::cycles;

use crate::assemble::LaneResult;
use crate::clock::ticks_of_s;
use crate::error::TesterError;
use crate::generator::{Outage, Probed, Restart, StepDown, SteppedDown};
use crate::pacer::Pace;
use crate::tester::Tester;
use crate::trial::{Directions, IpVersion, Trial, TrialResult};
use crate::trial_run::{Addressing, Senders, TrialControl, TrialProfile, TrialRun, Watch};
use crate::validity::{InvalidCause, Validity};
use crate::watch::{Pulse, Slices, last_loss};

/// Lowest rate of a burst, frames per second. A tester that is slower has failed.
const BURST_PPS_MIN: f64 = 5e5;
/// Time that a burst may take in addition, seconds.
const BURST_SLACK_S: f64 = 5.0;
/// Largest share of a burst's time in which the tester may have paused, if no frame was lost.
const PAUSE_RATIO_MAX: f64 = 0.01;

/// Time for which load is offered before a restart, and after frames return, seconds.
const AROUND_RESTART_S: f64 = 0.2;
/// Timeout of the first frame before a restart, seconds.
const FIRST_FRAME_S: f64 = 1.0;
/// Interval of the checks of the lanes.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Ports of RFC 2889, section 5.7.3: the first sends frames to learned addresses, the second sends learning frames, and the third
/// receives flooded frames.
const TEST_PORT: usize = 0;
const LEARNING_PORT: usize = 1;
const PORTS_OF_ADDRESSES: usize = 3;
/// Time that a spread schedule may take in addition to its length, seconds.
const SPREAD_SLACK_S: f64 = 1.0;
/// Largest excess of the learning time over the time at the rate, as a ratio or in seconds, whichever is more.
const LEARNING_STRETCH_MAX: f64 = 0.01;
const LEARNING_STRETCH_S: f64 = 0.001;

/// Returns the trial without warm-up and low-rate stream, because only the effect of the run's own frames counts.
fn alone(trial: &Trial, duration_s: f64) -> Trial {
    Trial {
        warm_up_s: 0.0,
        low_rate_pps: 0.0,
        duration_s,
        ..trial.clone()
    }
}

impl Tester {
    /// Sends `frames` frames as fast as possible, distributed over the sending ports, without a warm-up (RFC 2544, section 26.4; RFC
    /// 9004). A burst without loss in which the tester paused is invalid, because it was not back to back.
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    pub fn burst(&mut self, trial: &Trial, frames: u64) -> Result<TrialResult, TesterError> {
        let senders = self.transmitting(trial)?;
        let profile = TrialProfile::of_load(Pace::Burst(frames), senders);
        let longest_s = BURST_SLACK_S + frames as f64 / BURST_PPS_MIN;
        let TrialRun {
            mut result, lanes, ..
        } = self.run_trial(&alone(trial, longest_s), &profile, &mut |_| ())?;
        let pauses_ns = lanes.iter().map(|lane| lane.sent.pauses_ns).max();
        let paused_s = pauses_ns.unwrap_or(0) as f64 / 1e9;
        let is_doubtful = result.lost_frames == 0 && paused_s > PAUSE_RATIO_MAX * result.elapsed_s;
        let reason = is_doubtful.then(|| {
            let cause = result.health.cause(InvalidCause::Stretched);
            cause.because(format!(
                "the tester paused for {:.3} ms in a burst of {:.3} ms: it was not back to back",
                paused_s * 1e3,
                result.elapsed_s * 1e3
            ))
        });
        result.validity = result.validity.and(reason);
        result.trial = trial.clone();
        Ok(result)
    }

    /// Offers an overload, followed without a gap by a reduced load, and returns when the last lost frame was sent. The resolution is 0.1
    /// ms, or a hundred-thousandth of the time under reduced load if that is more (RFC 2544, section 26.5).
    ///
    /// # Errors
    /// Errors of [`Self::run`].
    pub fn step_down(&mut self, trial: &Trial, step: StepDown) -> Result<SteppedDown, TesterError> {
        let senders = self.transmitting(trial)?;
        let ports = senders.count() as f64;
        let pace = Pace::Step {
            rate_pps: step.overload_pps / ports,
            after_s: step.overload_s,
            then_pps: step.reduced_pps / ports,
        };
        let profile = TrialProfile {
            watch: Watch::Losses {
                from_s: step.overload_s,
                length_s: step.reduced_s,
            },
            ..TrialProfile::of_load(pace, senders)
        };
        let trial = alone(trial, step.overload_s + step.reduced_s);
        let trial_run = self.run_trial(&trial, &profile, &mut |_| ())?;
        let sent = merged(
            trial_run
                .lanes
                .iter()
                .filter_map(|lane| lane.slices.as_ref()),
        );
        let came = merged(
            trial_run
                .lanes
                .iter()
                .filter_map(|lane| lane.received.times.slices.as_ref()),
        );
        let after = sent
            .zip(came)
            .and_then(|(sent, came)| last_loss(&sent, &came));
        Ok(SteppedDown {
            recovered_after_s: after.map(|ticks| {
                (ticks as f64 / trial_run.ticks_per_second as f64).min(step.reduced_s)
            }),
            validity: trial_run.result.validity,
        })
    }

    /// Offers a load, restarts the device, and waits at most `limit_s` for frames to return on every port that received frames before
    /// (RFC 6201). Idle threads release their CPU, because the device may need it to start.
    ///
    /// # Errors
    /// Errors of [`Self::run`], and [`TesterError::Restart`].
    pub fn outage(
        &mut self,
        trial: &Trial,
        limit_s: f64,
        restart: &mut Restart<'_>,
    ) -> Result<Outage, TesterError> {
        let senders = self.transmitting(trial)?;
        let pace = Pace::Rate(trial.offered_rate_pps / senders.count() as f64);
        let profile = TrialProfile {
            watch: Watch::Silence,
            ..TrialProfile::of_load(pace, senders)
        };
        let longest_s = FIRST_FRAME_S + limit_s + 2.0 * AROUND_RESTART_S;
        let trial = Trial {
            warm_up_s: trial.warm_up_s,
            ..alone(trial, longest_s)
        };
        let mut observed = Restarted::NoFrames;
        let trial_run = self.run_trial(&trial, &profile, &mut |control| {
            observed = restart_meanwhile(control, limit_s, restart);
            control.stop_sending.store(true, Ordering::Relaxed);
        })?;
        let validity = trial_run.result.validity.clone();
        let silent = |lanes: &[bool]| longest_silence(&trial_run, lanes);
        Ok(match observed {
            Restarted::Failed(reason) => return Err(TesterError::Restart(reason)),
            Restarted::NoFrames => Outage {
                lost_frames: None,
                gap_s: None,
                validity: validity.and(Some(
                    InvalidCause::NoFrames
                        .because("the device forwarded no frame before the restart"),
                )),
            },
            Restarted::NotBack => Outage {
                lost_frames: None,
                gap_s: None,
                validity,
            },
            Restarted::Back(lanes) => Outage {
                lost_frames: Some(trial_run.result.lost_frames),
                gap_s: silent(&lanes),
                validity,
            },
        })
    }

    /// Sends a frame from each of `addresses` addresses into the second port, at the trial's rate, after the device has learned the first
    /// port's own address (RFC 2889, sections 5.7 and 5.8). The frames have the trial's sizes; its other parameters are not used.
    ///
    /// # Errors
    /// [`TesterError`] as in [`Self::run`]; [`TesterError::BadTrial`] if the tester does not have three ports.
    pub fn learn(&mut self, trial: &Trial, addresses: u32) -> Result<Validity, TesterError> {
        let addressing = Addressing::FromMany(addresses);
        let trial_run = self.address(trial, addresses, LEARNING_PORT, addressing)?;
        let result = &trial_run.result;
        let asked_s = f64::from(addresses) / trial.offered_rate_pps;
        let late_s = result.health.stretch_ratio * asked_s;
        let is_late = late_s > (LEARNING_STRETCH_MAX * asked_s).max(LEARNING_STRETCH_S);
        let reason = is_late.then(|| {
            let cause = result.health.cause(InvalidCause::Stretched);
            cause.because(format!(
                "learning frames for {:.3} ms took {:.3} ms longer: the tester stalled",
                asked_s * 1e3,
                late_s * 1e3
            ))
        });
        Ok(validity_with_unsent(result).and(reason))
    }

    /// Sends a frame from the first port to each of `addresses` addresses, at the trial's rate, and counts where they come out.
    ///
    /// # Errors
    /// Errors of [`Self::learn`].
    pub fn probe(&mut self, trial: &Trial, addresses: u32) -> Result<Probed, TesterError> {
        let addressing = Addressing::ToMany(addresses);
        let trial_run = self.address(trial, addresses, TEST_PORT, addressing)?;
        let offered = trial_run.result.offered_frames;
        let at_home = arrived_to(&trial_run.lanes, |port| port == LEARNING_PORT);
        Ok(Probed {
            flooded_frames: arrived_to(&trial_run.lanes, |port| port != LEARNING_PORT),
            lost_frames: offered.saturating_sub(at_home),
            validity: validity_with_unsent(&trial_run.result),
        })
    }

    /// Sends one frame for each address from a single port.
    fn address(
        &mut self,
        trial: &Trial,
        addresses: u32,
        sender: usize,
        addressing: Addressing,
    ) -> Result<TrialRun, TesterError> {
        if self.port_count() != PORTS_OF_ADDRESSES {
            return Err(TesterError::BadTrial(format!(
                "{} ports are given, and address procedures require three: one that sends to the addresses, one \
                 that has them, and one that receives flooded frames (RFC 2889, section 5.7)",
                self.port_count()
            )));
        }
        let rate_pps = trial.offered_rate_pps;
        let pace = Pace::Spread {
            frames: u64::from(addresses),
            rate_pps,
        };
        let profile = TrialProfile {
            addressing,
            ..TrialProfile::of_load(pace, Senders::Only(sender))
        };
        let longest_s = 2.0 * f64::from(addresses) / rate_pps + SPREAD_SLACK_S;
        let trial = Trial {
            directions: Directions::OneWay,
            flows: 1,
            mac_addresses: 1,
            destinations: 1,
            ip: IpVersion::V4,
            traffic: None,
            ..alone(trial, longest_s)
        };
        self.run_trial(&trial, &profile, &mut |_| ())
    }
}

/// Returns the validity of a result; invalid if a frame was not sent.
fn validity_with_unsent(result: &TrialResult) -> Validity {
    let unsent = result.health.unsent_frames;
    let reason = (unsent > 0).then(|| {
        let cause = result.health.cause(InvalidCause::RateMissed);
        cause.because(format!(
            "the tester sent {} of {} frames, one for each address",
            result.offered_frames, result.scheduled_frames
        ))
    });
    result.validity.clone().and(reason)
}

/// Returns the number of the test port's frames received on the ports that `is_it` selects.
fn arrived_to(lanes: &[LaneResult], is_it: impl Fn(usize) -> bool) -> u64 {
    let lanes = lanes.iter().filter(|lane| is_it(lane.port));
    lanes
        .filter_map(|lane| lane.received.trackers.get(TEST_PORT * lane.received.flows))
        .map(|tracker| tracker.received())
        .sum()
}

fn merged<'a>(mut all: impl Iterator<Item = &'a Slices>) -> Option<Slices> {
    let mut sum = all.next()?.clone();
    all.for_each(|slices| sum.merge(slices));
    Some(sum)
}

/// Outcome of a restart.
enum Restarted {
    /// No frame came through beforehand, so the device was not restarted.
    NoFrames,
    /// The restart failed for this reason.
    Failed(String),
    /// Frames did not return in time.
    NotBack,
    /// Frames returned. One flag per lane: true if the lane received frames.
    Back(Vec<bool>),
}

/// Returns the longest time without a frame on the lanes selected, seconds.
fn longest_silence(trial_run: &TrialRun, lanes: &[bool]) -> Option<f64> {
    let lanes = trial_run
        .lanes
        .iter()
        .zip(lanes)
        .filter(|(_, is_one)| **is_one);
    let silences = lanes.filter_map(|(lane, _)| lane.received.times.arrivals.as_ref()?.silence());
    let longest = silences.max()?;
    Some(longest as f64 / trial_run.ticks_per_second as f64)
}

/// Restarts the device once frames flow, and waits until they flow again.
fn restart_meanwhile(
    control: &TrialControl<'_>,
    limit_s: f64,
    restart: &mut Restart<'_>,
) -> Restarted {
    let after = |tick: u64, seconds: f64| {
        tick.saturating_add(ticks_of_s(seconds, control.ticks_per_second))
    };
    let is_aborted = || control.abort.load(Ordering::Relaxed);
    // Returns true when the condition holds; false at the deadline or after an abort.
    let wait = |deadline: u64, is_it: &dyn Fn() -> bool| loop {
        if is_it() {
            return true;
        }
        if cycles::now() >= deadline || is_aborted() {
            return false;
        }
        sleep(POLL_INTERVAL);
    };
    let last = |pulse: &Arc<Pulse>| pulse.last.load(Ordering::Relaxed);
    let settled = after(control.start, AROUND_RESTART_S);
    wait(settled, &|| false);
    let flows = || control.pulses.iter().any(|pulse| last(pulse) > 0);
    if !wait(after(settled, FIRST_FRAME_S - AROUND_RESTART_S), &flows) {
        return Restarted::NoFrames;
    }
    let lanes: Vec<bool> = control.pulses.iter().map(|pulse| last(pulse) > 0).collect();
    control.armed.store(true, Ordering::Relaxed);
    let began = cycles::now();
    if let Err(reason) = restart() {
        return Restarted::Failed(reason);
    }
    // Frames received before this instant may be from before the restart.
    let up = cycles::now();
    let are_back = || {
        let mut pulses = control.pulses.iter().zip(&lanes);
        pulses.all(|(pulse, is_one)| !is_one || last(pulse) > up)
    };
    if !wait(after(began, limit_s), &are_back) {
        return Restarted::NotBack;
    }
    wait(after(cycles::now(), AROUND_RESTART_S), &|| false);
    Restarted::Back(lanes)
}
