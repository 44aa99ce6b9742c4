// SPDX-License-Identifier: Apache-2.0
//! Measures 100 % of the load with trials.

use std::time::Duration;

use quietwire_tester::{InvalidCause, Trial, TrialResult};

/// Longest duration of a trial that measures the highest rate, seconds.
pub(crate) const CALIBRATION_S: f64 = 0.5;
/// Shortest duration of such a trial, seconds.
const CALIBRATION_MIN_S: f64 = 0.2;
/// Share of a rate kept by the tester that becomes 100 % of the load. The speed of a virtual machine changes from minute to minute,
/// and a rate that the tester itself cannot keep shows nothing about the device.
pub(crate) const CALIBRATION_MARGIN: f64 = 0.9;
/// Share of the clean rate of a calibration that becomes 100 % of the load. The rings of a device cost the tester more than a loop, and
/// the remaining share allows the tester to catch up after the machine takes time from it.
pub(crate) const CLEAN_SHARE: f64 = 0.75;
/// Factors by which the rate is lowered if the tester cannot keep it: at least and at most; and the maximum number of steps.
const STEP: f64 = 0.95;
const STEP_MAX: f64 = 0.5;
const STEPS_MAX: u32 = 20;
/// Number of trials in which the tester keeps a rate until it counts as kept, and the highest number of others until it is lowered. A single
/// trial may be invalid because the host paused the tester.
const KEPT_TRIALS: u32 = 3;
const INVALID_TRIALS: u32 = 6;
/// Allowed rate error of a trial, as a share of the rate: half of the width of a search that finds rates to within 0.5 %.
const TOLERANCE: f64 = 0.0025;
/// Number of trials without a schedule while the device forwards nothing.
const UNPACED_TRIALS_MAX: u32 = 5;
/// Factor by which the rate is raised while the device forwards all frames; the maximum number of such steps; the share of frames that may be
/// lost, or not offered, at such a rate; and the number of trials with more that end it.
const RAISE: f64 = 1.5;
const RAISES_MAX: u32 = 12;
const RAISE_LOSS: f64 = 0.01;
const LOSSES: u32 = 3;
/// Lowest rate to try, frames per second.
const LEAST_PPS: f64 = 500.0;
/// 100 % of the load is at most this factor above the maximum forwarding rate of the device: so far above that no search ends at a load
/// that the device still forwards, although its speed differs from trial to trial. Higher loads show nothing new.
const DEVICE_SHARE: f64 = 1.25;

/// Returns the duration of a trial in the measurement of the highest rate for trials of this duration, seconds. The tester has to keep the
/// rate for no longer than in a trial of the study.
pub(crate) fn calibration_s(duration_s: f64) -> f64 {
    duration_s.clamp(CALIBRATION_MIN_S, CALIBRATION_S)
}

/// Pace of the frames of a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Scheduled at the trial's rate.
    Scheduled,
    /// As fast as possible.
    Unpaced,
}

/// Runs a trial.
pub(crate) type Run<'a, E> = dyn FnMut(&Trial, Pace) -> Result<TrialResult, E> + 'a;

/// Runs a trial, and logs its rates.
fn try_rate<E>(run: &mut Run<'_, E>, trial: &Trial, pace: Pace) -> Result<TrialResult, E> {
    let result = run(trial, pace)?;
    let asked = match pace {
        Pace::Scheduled => format!("{:.0}", trial.offered_rate_pps),
        Pace::Unpaced => "all".to_owned(),
    };
    tracing::debug!(
        "highest rate: {asked} frames per second: {:.0} offered, {:.0} forwarded, {:?}",
        result.achieved_rate_pps,
        result.forwarding_rate_pps,
        result.validity
    );
    Ok(result)
}

/// Returns the rate that tester and device reach together, before [`CALIBRATION_MARGIN`]. The first trials are as fast as possible; if the
/// device forwards nothing, each further trial has half the rate. An overloaded device may forward nothing at all, or less than without
/// overload (receive livelock).
///
/// # Errors
/// Errors of trials.
pub(crate) fn rate_of_both<E>(run: &mut Run<'_, E>, mut trial: Trial) -> Result<f64, E> {
    let mut tester_pps: f64 = 1.0;
    // A device that got no CPU time at that moment forwards nothing, so the trial is repeated.
    for _ in 0..UNPACED_TRIALS_MAX {
        let unpaced = try_rate(run, &trial, Pace::Unpaced)?;
        tester_pps = unpaced.achieved_rate_pps;
        if unpaced.forwarding_rate_pps > 0.0 {
            let from_pps = most_of_device(unpaced.forwarding_rate_pps);
            return raised(run, trial, from_pps, tester_pps);
        }
    }
    let mut rate_pps = tester_pps / 2.0;
    while rate_pps > LEAST_PPS {
        trial.offered_rate_pps = rate_pps;
        let paced = try_rate(run, &trial, Pace::Scheduled)?;
        if paced.forwarding_rate_pps > 0.0 {
            let from_pps = most_of_device(paced.forwarding_rate_pps);
            return raised(run, trial, from_pps, rate_pps);
        }
        rate_pps /= 2.0;
    }
    Ok(tester_pps)
}

/// Raises a rate while the device forwards all frames at it, at most to `most_pps`. Otherwise 100 % of the load would be a rate that the
/// device can forward, if it forwards less under overload.
fn raised<E>(
    run: &mut Run<'_, E>,
    mut trial: Trial,
    from_pps: f64,
    most_pps: f64,
) -> Result<f64, E> {
    let mut rate_pps = from_pps;
    for _ in 0..RAISES_MAX {
        if rate_pps >= most_pps {
            return Ok(most_pps);
        }
        trial.offered_rate_pps = rate_pps * CALIBRATION_MARGIN;
        if !is_forwarded(run, &trial)? {
            break;
        }
        rate_pps *= RAISE;
    }
    Ok(rate_pps.min(most_pps))
}

/// Returns true if the tester offers and the device forwards all frames of a trial but a few. It is repeated, because the first trial after
/// overload may find the device still busy.
fn is_forwarded<E>(run: &mut Run<'_, E>, trial: &Trial) -> Result<bool, E> {
    for _ in 0..LOSSES {
        let result = try_rate(run, trial, Pace::Scheduled)?;
        let is_kept = result.achieved_rate_pps >= trial.offered_rate_pps * (1.0 - RAISE_LOSS);
        if is_kept && result.loss_ratio <= RAISE_LOSS {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns the rate that is [`DEVICE_SHARE`] times a forwarding rate after the margin. The margin is one of the tester, not of the device.
fn most_of_device(forwarding_pps: f64) -> f64 {
    forwarding_pps * DEVICE_SHARE / CALIBRATION_MARGIN
}

/// Lowers a rate until the tester keeps its schedule in most trials. Returns the first rate that it keeps, or one below all
/// rates tried. A trial also counts as kept if stalls explain all frames that were not sent: a lower rate would lose as much of its time.
/// `pause` returns the pause before a trial after this number of invalid ones. A study that repeats invalid trials less often
/// (`invalid_repeats`) tries a rate less often, too.
///
/// # Errors
/// Errors of trials.
pub(crate) fn kept_rate<E>(
    run: &mut Run<'_, E>,
    mut trial: Trial,
    from_pps: f64,
    invalid_repeats: u32,
    pause: impl Fn(u32) -> Duration,
) -> Result<f64, E> {
    let invalid_trials = invalid_repeats.saturating_add(1).min(INVALID_TRIALS);
    let mut rate_pps = from_pps.max(1.0);
    for _ in 0..STEPS_MAX {
        trial.offered_rate_pps = rate_pps;
        trial.rate_tolerance_pps = Some(rate_pps * TOLERANCE);
        let mut most_pps: f64 = 0.0;
        let (mut kept, mut invalid) = (0_u32, 0_u32);
        while invalid < invalid_trials {
            std::thread::sleep(pause(invalid));
            let result = try_rate(run, &trial, Pace::Scheduled)?;
            if result.is_valid() || is_stalled(&result) {
                kept = kept.saturating_add(1);
            } else {
                invalid = invalid.saturating_add(1);
            }
            if kept == KEPT_TRIALS {
                return Ok(rate_pps);
            }
            most_pps = most_pps.max(result.achieved_rate_pps);
        }
        let lower_pps = most_pps.clamp(rate_pps * STEP_MAX, rate_pps * STEP);
        rate_pps = lower_pps.max(1.0);
    }
    Ok(rate_pps)
}

/// Returns true if the tester would have kept the rate of a trial without its stalls.
fn is_stalled(result: &TrialResult) -> bool {
    let error = result.error_without_stalls_ratio();
    let has_stalls = result.health.stalled_unsent_frames > 0;
    let is_about_rate = result.validity.reasons().iter().all(|reason| {
        matches!(
            reason.cause,
            InvalidCause::HostStall | InvalidCause::RateMissed | InvalidCause::RateOutsideWidth
        )
    });
    is_about_rate && has_stalls && error.is_some_and(|error| error.abs() <= TOLERANCE)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use quietwire_tester::{
        InvalidReason, SimOptions, SimulatedDevice, TrafficGenerator, Validity,
    };

    use super::*;
    use crate::run::frames;
    use crate::tests::small;

    /// Runs the search with a tester that keeps up to this rate (frames per second), and fails in the first trials at any rate.
    fn kept(most_pps: f64, failing: u32) -> f64 {
        kept_with(most_pps, failing, 10)
    }

    /// Does the same in a study that repeats invalid trials so often.
    fn kept_with(most_pps: f64, mut failing: u32, invalid_repeats: u32) -> f64 {
        let file = small();
        let trial = frames(&file, &file.cases[0], file.traffic.frame_sizes[0]);
        let mut device = SimulatedDevice::new(SimOptions::default());
        let mut run = |trial: &Trial, _: Pace| {
            let mut result = device.run(trial).unwrap();
            let is_kept = trial.offered_rate_pps <= most_pps && failing == 0;
            failing = failing.saturating_sub(1);
            result.achieved_rate_pps = trial.offered_rate_pps.min(most_pps);
            if !is_kept {
                result.validity = Validity::Invalid(vec![InvalidReason {
                    cause: InvalidCause::RateMissed,
                    text: "late".to_owned(),
                }]);
            }
            Ok::<_, Infallible>(result)
        };
        let Ok(rate_pps) = kept_rate(&mut run, trial, 4e6, invalid_repeats, |_| Duration::ZERO);
        rate_pps
    }

    /// Returns 100 % of the load for a tester and a device of these rates, frames per second. With `is_livelocked`, the device forwards
    /// nothing of a load above its rate.
    fn full_load(tester_pps: f64, device_pps: f64, is_livelocked: bool) -> f64 {
        let file = small();
        let trial = frames(&file, &file.cases[0], file.traffic.frame_sizes[0]);
        let mut device = SimulatedDevice::new(SimOptions::default());
        let mut run = |trial: &Trial, pace: Pace| {
            let mut result = device.run(trial).unwrap();
            let offered_pps = match pace {
                Pace::Scheduled => trial.offered_rate_pps,
                Pace::Unpaced => tester_pps,
            };
            result.achieved_rate_pps = offered_pps;
            result.forwarding_rate_pps = if is_livelocked && offered_pps > device_pps {
                0.0
            } else {
                offered_pps.min(device_pps)
            };
            result.loss_ratio = 1.0 - result.forwarding_rate_pps / offered_pps;
            Ok::<_, Infallible>(result)
        };
        let Ok(rate_pps) = rate_of_both(&mut run, trial);
        rate_pps * CALIBRATION_MARGIN
    }

    #[test]
    fn a_device_that_forwards_less_under_overload_is_overloaded_at_full_load() {
        let file = small();
        let trial = frames(&file, &file.cases[0], file.traffic.frame_sizes[0]);
        let mut device = SimulatedDevice::new(SimOptions::default());
        let mut trials = 0;
        let mut run = |trial: &Trial, pace: Pace| {
            trials += 1;
            let mut result = device.run(trial).unwrap();
            let offered_pps = match pace {
                Pace::Scheduled => trial.offered_rate_pps,
                Pace::Unpaced => 10e6,
            };
            result.achieved_rate_pps = offered_pps;
            // The trial after overload finds it busy.
            let is_busy = trials == 2 || offered_pps > 1e6;
            result.forwarding_rate_pps = if is_busy { 5e4 } else { offered_pps };
            result.loss_ratio = 1.0 - result.forwarding_rate_pps / offered_pps;
            Ok::<_, Infallible>(result)
        };
        let Ok(rate_pps) = rate_of_both(&mut run, trial);
        assert!((1e6..1.5e6).contains(&(rate_pps * CALIBRATION_MARGIN)));
        assert!(trials < 15, "{trials}");
    }

    #[test]
    fn the_trials_are_no_longer_than_those_of_the_study_within_bounds() {
        assert_eq!(
            [0.01, 0.3, 10.0].map(calibration_s),
            [CALIBRATION_MIN_S, 0.3, CALIBRATION_S]
        );
    }

    #[test]
    fn a_full_load_is_above_the_rate_of_any_device_that_the_tester_can_overload() {
        // A slow device limits the load to a quarter above its rate.
        assert!((full_load(10e6, 1e6, false) / 1.25e6 - 1.0).abs() < 1e-9);
        // A device of 90 cycles a frame, with a tester of 70, gets more than it can forward.
        let cycles_hz = 2.3e9;
        let (tester_pps, device_pps) = (cycles_hz / 70.0, cycles_hz / 90.0);
        assert!(full_load(tester_pps, device_pps, false) > device_pps);
        // The margin of the tester remains.
        assert!((full_load(1e6, 2e6, false) / 0.9e6 - 1.0).abs() < 1e-9);
        // 10 Mpps are halved until 625,000 pps come through: they are all that was observed of the device.
        assert!((full_load(10e6, 1e6, true) / 0.5625e6 - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_that_is_kept_stays_and_one_that_is_not_is_lowered_to_what_is() {
        assert_eq!(kept(5e6, 0), 4e6);
        assert_eq!(kept(5e6, 5), 4e6);
        assert_eq!(kept(5e6, 6), 3.8e6);
        assert_eq!(kept(3e6, 0), 3e6);
        // A study that repeats less lowers it earlier.
        assert_eq!(kept_with(5e6, 2, 2), 4e6);
        assert_eq!(kept_with(5e6, 3, 2), 3.8e6);
        assert_eq!(kept_with(5e6, 1, 0), 3.8e6);
        // In all cases the rate is lowered by at most half at a time.
        assert_eq!(kept(1e6, 0), 1e6);
        assert!(kept(0.0, 0) < 10.0);
    }

    #[test]
    fn a_rate_that_the_tester_misses_only_while_the_host_stalls_it_is_kept() {
        let file = small();
        let trial = frames(&file, &file.cases[0], file.traffic.frame_sizes[0]);
        // The host takes `taken` of each of the first trials, and the tester misses `missed` of the frames.
        let kept = |stalled: u32, taken: f64, missed: f64, cause| {
            let mut device = SimulatedDevice::new(SimOptions::default());
            let mut left = stalled;
            let mut run = |trial: &Trial, _: Pace| {
                let mut result = device.run(trial).unwrap();
                result.achieved_rate_pps = trial.offered_rate_pps;
                if left > 0 {
                    left -= 1;
                    result.achieved_rate_pps *= 1.0 - missed;
                    let due = trial.offered_rate_pps * result.elapsed_s;
                    result.offered_frames = (due * (1.0 - missed)) as u64;
                    result.health.stalled_unsent_frames = (due * taken) as u64;
                    result.validity = Validity::Invalid(vec![InvalidReason {
                        cause,
                        text: "late".to_owned(),
                    }]);
                }
                Ok::<_, Infallible>(result)
            };
            let Ok(rate_pps) = kept_rate(&mut run, trial.clone(), 4e6, 10, |_| Duration::ZERO);
            rate_pps
        };
        let host = InvalidCause::HostStall;
        assert_eq!(kept(KEPT_TRIALS, 0.1, 0.1, host), 4e6);
        // However long it lasts: a lower rate would not help.
        assert_eq!(kept(u32::MAX, 0.1, 0.1, host), 4e6);
        // The tester misses more than the host took, or fails in another way.
        assert_eq!(kept(INVALID_TRIALS, 0.05, 0.1, host), 3.6e6);
        assert_eq!(kept(INVALID_TRIALS, 0.0, 0.001, host), 3.8e6);
        assert_eq!(
            kept(INVALID_TRIALS, 0.1, 0.1, InvalidCause::ReceiveGap),
            3.6e6
        );
    }
}
