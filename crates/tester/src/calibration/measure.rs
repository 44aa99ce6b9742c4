// SPDX-License-Identifier: Apache-2.0
//! Calibration of a tester over a loop: ports that are connected only to each other.

use std::time::Instant;

use quietwire_base::unix_time_ns;
use quietwire_dpdk::cycles;

use super::{Calibration, PacingCalibration, SizeCalibration};
use crate::clock::{ClockCheck, ticks_per_second};
use crate::error::TesterError;
use crate::pause::leave_cpu;
use crate::tester::Tester;
use crate::traffic::Traffic;
use crate::trial::{Directions, FrameSizes, IpVersion, Trial, TrialResult};

/// Options of a calibration.
#[derive(Clone, Debug, PartialEq)]
pub struct CalibrationOptions {
    /// Frame sizes, each measured separately.
    pub frame_sizes: Vec<FrameSizes>,
    /// Directions of the traffic.
    pub directions: Directions,
    /// IP version of the frames.
    pub ip: IpVersion,
    /// Traffic description of the frames, without captures and timing. It overrides the options above. A description that specifies sizes
    /// is measured once.
    pub traffic: Option<Traffic>,
    /// Duration of the warm-up before each trial, seconds ([`CalibrationOptions::WARM_UP_S`]).
    pub warm_up_s: f64,
    /// Duration of one trial of the search, seconds.
    pub search_s: f64,
    /// Duration of one trial that measures pacing, seconds.
    pub pacing_s: f64,
    /// Maximum number of rates that the search tries after the first ([`CalibrationOptions::STEPS`]).
    pub steps: u32,
}

/// Progress report: the measurement that has just finished.
#[derive(Clone, Copy, Debug)]
pub enum Step<'calibration> {
    /// A trial of the search for the clean rate.
    Trial {
        /// Frame sizes of the trial.
        frame_sizes: FrameSizes,
        /// Rate of the trial, frames per second.
        rate_pps: f64,
        /// Reason why the trial was not clean; `None` if it was.
        flaw: Option<&'calibration str>,
    },
    /// All measurements of one frame size or mix.
    Size(&'calibration SizeCalibration),
}

/// Largest share of the schedule that a clean trial may miss: the host occasionally preempts the tester.
const MISS_RATIO_MAX: f64 = 1e-3;
/// Long trials of a rate, of which one must be clean and precise.
const LASTING_TRIALS: u32 = 2;
/// Largest share of the schedule that such a trial may miss, without the frames of stalls.
const LASTING_MISS_MAX: f64 = 1e-4;
/// Frames that it may miss in any case: those of a few bursts at its end.
const LASTING_MISSED_FRAMES: f64 = 128.0;
/// First rate of the search as a share of the highest rate of the tester. At its highest rate, the tester cannot catch up after a
/// preemption by the host.
const TOP: f64 = 0.9;
/// Factors by which the rate decreases while no rate is clean. Most testers are clean not far below their highest rate.
const DOWN: [f64; 4] = [0.95, 0.9, 0.8, 0.5];
/// Relative width at which the search ends.
const WIDTH: f64 = 0.02;
/// Clean trials after which a rate is clean. Several trials decide in each case: one disturbed trial does not show a limit of the tester,
/// and one undisturbed trial does not prove that the rate is clean.
const CLEAN_TRIALS: u32 = 3;
const UNCLEAN_TRIALS: u32 = 6;
/// Shares of the clean rate at which pacing is measured.
const SHARES: [f64; 3] = [0.1, 0.5, 0.9];
const DRAIN_S: f64 = 0.1;

/// Returns why a trial is not good enough; `None` if it is.
type FlawOf = fn(&TrialResult) -> Option<String>;

impl Tester {
    /// Calibrates the tester over its own ports, which must be connected to each other. Calls `reported` after each step.
    ///
    /// # Errors
    /// Errors of [`Tester::run`]; [`TesterError::NoLoop`] if no frame comes back; [`TesterError::BadTrial`] if the traffic description
    /// contains a capture or timing.
    pub fn calibrate(
        &mut self,
        options: &CalibrationOptions,
        reported: impl FnMut(Step<'_>),
    ) -> Result<Calibration, TesterError> {
        // A loop makes no copies of frames: nothing comes after the last one.
        let before = std::mem::replace(&mut self.ends_when_complete, true);
        let calibration = self.calibrate_sizes(options, reported);
        self.ends_when_complete = before;
        calibration
    }

    fn calibrate_sizes(
        &mut self,
        options: &CalibrationOptions,
        mut reported: impl FnMut(Step<'_>),
    ) -> Result<Calibration, TesterError> {
        let (clock, began) = (ClockCheck::begin(), Instant::now());
        let mut sizes = Vec::new();
        for frame_sizes in options.frame_sizes()? {
            let size = self.calibrate_size(frame_sizes, options, &mut reported)?;
            reported(Step::Size(&size));
            sizes.push(size);
        }
        Ok(Calibration {
            tester: self.kind(),
            measured_unix_ns: unix_time_ns(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            timestamp_ns: timestamp_ns(),
            ticks_per_second: ticks_per_second(),
            clock_error_ppm: clock.error_ratio() * 1e6,
            clock_span_s: began.elapsed().as_secs_f64(),
            sizes,
        })
    }

    fn calibrate_size(
        &mut self,
        frame_sizes: FrameSizes,
        options: &CalibrationOptions,
        reported: &mut impl FnMut(Step<'_>),
    ) -> Result<SizeCalibration, TesterError> {
        let traffic = options.traffic.clone().map(Box::new);
        let directions = options.directions();
        let trial = |rate_pps: f64, duration_s: f64| Trial {
            warm_up_s: options.warm_up_s,
            drain_s: DRAIN_S,
            directions,
            ip: options.ip,
            traffic: traffic.clone(),
            ..Trial::new(rate_pps, duration_s, frame_sizes)
        };
        let unpaced = self.run_unpaced(&trial(1.0, options.search_s))?;
        if unpaced.received_frames == 0 {
            return Err(TesterError::NoLoop {
                offered: unpaced.offered_frames,
            });
        }
        let unpaced_pps = unpaced.forwarding_rate_pps;
        // Threads without a real-time priority leave their CPU to others without a pause.
        let is_realtime = self.options.realtime_priority.is_some();
        let pause = || {
            if is_realtime {
                leave_cpu();
            }
        };
        let mut trials = 1_u32;
        let mut is_clean = |tester: &mut Self, rate_pps, duration_s, flaw_of: FlawOf| {
            trials = trials.saturating_add(1);
            pause();
            let flaw = flaw_of(&tester.run(&trial(rate_pps, duration_s))?);
            reported(Step::Trial {
                frame_sizes,
                rate_pps,
                flaw: flaw.as_deref(),
            });
            Ok::<_, TesterError>(flaw.is_none())
        };
        let clean_rate_pps = highest_clean(unpaced_pps * TOP, options.steps, |rate_pps| {
            let (mut clean, mut unclean) = (0_u32, 0_u32);
            while clean < CLEAN_TRIALS && unclean < UNCLEAN_TRIALS {
                match is_clean(self, rate_pps, options.search_s, unclean_reason)? {
                    true => clean = clean.saturating_add(1),
                    false => unclean = unclean.saturating_add(1),
                }
            }
            Ok::<_, TesterError>(clean == CLEAN_TRIALS)
        })?;
        let clean_rate_pps = highest_lasting(clean_rate_pps, options.steps, |rate_pps| {
            for _ in 0..LASTING_TRIALS {
                if is_clean(self, rate_pps, options.pacing_s, unlasting_reason)? {
                    return Ok::<_, TesterError>(true);
                }
            }
            Ok(false)
        })?;
        let mut size = SizeCalibration {
            frame_sizes,
            directions,
            ip: options.ip,
            traffic: traffic.clone(),
            unpaced_pps,
            clean_rate_pps,
            trials,
            pacing: Vec::new(),
            latency_floor: Default::default(),
            generate_cycles: unpaced.health.generate_cycles,
            check_cycles: unpaced.health.check_cycles,
        };
        if clean_rate_pps > 0.0 {
            for share in SHARES {
                pause();
                let result = self.run(&trial(clean_rate_pps * share, options.pacing_s))?;
                size.add(share, result);
            }
        }
        Ok(size)
    }
}

impl CalibrationOptions {
    /// Default of [`CalibrationOptions::steps`].
    pub const STEPS: u32 = 9;
    /// Default of [`CalibrationOptions::warm_up_s`].
    pub const WARM_UP_S: f64 = 0.1;

    /// Returns the frame sizes measured separately. A description with its own sizes is measured once.
    fn frame_sizes(&self) -> Result<Vec<FrameSizes>, TesterError> {
        let Some(traffic) = &self.traffic else {
            return Ok(self.frame_sizes.clone());
        };
        if traffic.replay.is_some() {
            return Err(TesterError::BadTrial(
                "a capture cannot be used for calibration, because its frames have no time stamps (describe equivalent headers instead)"
                    .to_owned(),
            ));
        }
        if traffic.has_rate() {
            return Err(TesterError::BadTrial(
                "the traffic description sets the rate, but a calibration searches for the rate (remove gap-us from the burst)"
                    .to_owned(),
            ));
        }
        Ok(if traffic.sizes.is_some() {
            vec![FrameSizes::Fixed(traffic.frame_size_min())]
        } else {
            self.frame_sizes.clone()
        })
    }

    fn directions(&self) -> Directions {
        let given = self.traffic.as_ref().and_then(|traffic| traffic.directions);
        given.unwrap_or(self.directions)
    }
}

impl SizeCalibration {
    /// Stores the result of a trial at a share of the clean rate.
    fn add(&mut self, share: f64, result: TrialResult) {
        let latency = result.latency.without_histogram();
        let error_without_stalls_ratio = result.error_without_stalls_ratio();
        if self.pacing.is_empty() {
            self.latency_floor = result.latency;
        }
        self.pacing.push(PacingCalibration {
            latency,
            share,
            requested_pps: result.trial.offered_rate_pps,
            error_ratio: result.achieved_rate_pps / result.trial.offered_rate_pps - 1.0,
            error_without_stalls_ratio,
            burst_time_ns: result.health.burst_time_ns,
            burst_gaps: result.health.burst_gaps,
            stalled_gaps: result.health.stalled_gaps,
            host_stalls: result.health.host_stalls,
            host_stall_time_ns: result.health.host_stall_time_ns,
        });
    }
}

/// Returns the reason why a trial is not clean.
fn unclean_reason(result: &TrialResult) -> Option<String> {
    if let Some(text) = result.validity.text() {
        return Some(text);
    }
    if result.lost_frames > 0 {
        return Some(format!("{} frames were lost", result.lost_frames));
    }
    let miss_ratio = result.health.pacing_miss_ratio;
    (miss_ratio > MISS_RATIO_MAX)
        .then(|| format!("{:.3} % of the schedule was missed", miss_ratio * 100.0))
}

/// Returns why a trial does not confirm that its rate lasts: it is not clean, or missed too much of the schedule without a stall.
fn unlasting_reason(result: &TrialResult) -> Option<String> {
    unclean_reason(result).or_else(|| imprecise_reason(result))
}

/// Returns why the rate of a trial is not precise enough for a rate that lasts.
fn imprecise_reason(result: &TrialResult) -> Option<String> {
    let stalled = result.health.stalled_unsent_frames;
    let missed = result.health.unsent_frames.saturating_sub(stalled) as f64;
    let due = result.scheduled_frames.saturating_sub(stalled).max(1) as f64;
    (missed > (due * LASTING_MISS_MAX).max(LASTING_MISSED_FRAMES)).then(|| {
        format!(
            "{:.3} % of the schedule was missed without a stall",
            missed / due * 100.0
        )
    })
}

/// Returns the factors by which a rate decreases, one after the other.
fn factors_down() -> impl Iterator<Item = f64> {
    let [.., last] = DOWN;
    DOWN.into_iter().chain(std::iter::repeat(last))
}

/// Returns the highest clean rate, first downward from `top`, then by bisection; 0 if no rate is clean. It tries at most `steps` rates below
/// `top`.
fn highest_clean<E>(
    top: f64,
    steps: u32,
    mut is_clean: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    if is_clean(top)? {
        return Ok(top);
    }
    let (mut clean, mut unclean) = (0.0, top);
    for factor in factors_down().take(steps as usize) {
        let next = if clean == 0.0 {
            unclean * factor
        } else {
            (clean + unclean) / 2.0
        };
        if is_clean(next)? {
            clean = next;
        } else {
            unclean = next;
        }
        // A smaller width exceeds the accuracy of the measurement.
        if unclean - clean < WIDTH * unclean {
            break;
        }
    }
    Ok(clean)
}

/// Returns the highest rate that a long trial confirms, downward from `clean`; 0 if no rate does. It tries at most `steps` rates below `clean`.
fn highest_lasting<E>(
    clean: f64,
    steps: u32,
    mut lasts: impl FnMut(f64) -> Result<bool, E>,
) -> Result<f64, E> {
    let mut rate = clean;
    let factors = std::iter::once(1.0).chain(factors_down());
    for factor in factors.take((steps as usize).saturating_add(1)) {
        rate *= factor;
        if rate == 0.0 || lasts(rate)? {
            return Ok(rate);
        }
    }
    Ok(0.0)
}

/// Returns the cost of reading the time stamp counter, nanoseconds: the best of several series of readings.
fn timestamp_ns() -> f64 {
    const ROWS: u32 = 50;
    const READINGS: u32 = 1000;
    let ticks = (0..ROWS)
        .map(|_| {
            let begin = cycles::now();
            for _ in 0..READINGS {
                std::hint::black_box(cycles::now());
            }
            cycles::now().saturating_sub(begin)
        })
        .min()
        .unwrap_or(0);
    ticks as f64 / f64::from(READINGS) / ticks_per_second().max(1) as f64 * 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::LatencySummary;

    #[test]
    fn pacing_has_the_gaps_of_its_trial_and_the_stalls_of_the_host_apart() {
        let mut size = SizeCalibration {
            frame_sizes: FrameSizes::Fixed(64),
            directions: Directions::OneWay,
            ip: IpVersion::V4,
            traffic: None,
            unpaced_pps: 2e6,
            clean_rate_pps: 1e6,
            trials: 4,
            pacing: Vec::new(),
            latency_floor: LatencySummary::default(),
            generate_cycles: 20.0,
            check_cycles: 30.0,
        };
        let with_samples = |samples: u64| LatencySummary {
            samples,
            ..LatencySummary::default()
        };
        for (share, offered) in SHARES.into_iter().zip([100_010, 500_000, 900_000]) {
            let trial = Trial::new(1e6 * share, 1.0, FrameSizes::Fixed(64));
            let mut result =
                TrialResult::of_counts(&trial, 1.0, offered, offered, with_samples(offered));
            result.health.burst_gaps = with_samples(7);
            result.health.stalled_gaps = with_samples(2);
            result.health.host_stalls = 3;
            result.health.host_stall_time_ns = 45_000;
            result.health.stalled_unsent_frames = offered / 100;
            size.add(share, result);
        }
        assert_eq!(size.latency_floor.samples, 100_010);
        assert_eq!(size.pacing.len(), SHARES.len());
        assert!((size.pacing[0].error_ratio - 1e-4).abs() < 1e-9);
        assert_eq!(size.pacing[1].error_ratio, 0.0);
        // 5,000 of 500,000 frames due.
        let running = size.pacing[1].error_without_stalls_ratio.unwrap();
        assert!((running - 1.0 / 99.0).abs() < 1e-9, "{running}");
        for pacing in &size.pacing {
            assert_eq!(pacing.requested_pps, 1e6 * pacing.share);
            assert_eq!(pacing.burst_gaps.samples, 7);
            assert_eq!(pacing.stalled_gaps.samples, 2);
            assert_eq!((pacing.host_stalls, pacing.host_stall_time_ns), (3, 45_000));
        }
    }

    #[test]
    fn frames_that_only_stalls_left_unsent_are_no_error_of_the_pacing() {
        let error = |offered: u64, stalled: u64| {
            let trial = Trial::new(1e6, 1.0, FrameSizes::Fixed(64));
            let latency = LatencySummary::default();
            let mut result = TrialResult::of_counts(&trial, 1.0, offered, offered, latency);
            result.health.stalled_unsent_frames = stalled;
            result.error_without_stalls_ratio()
        };
        assert_eq!(error(1_000_000, 0), Some(0.0));
        assert_eq!(error(990_000, 10_000), Some(0.0));
        // Of 2,000 frames that are missing, stalls explain a half.
        let other = error(998_000, 1000).unwrap();
        assert!((other + 1000.0 / 999_000.0).abs() < 1e-12, "{other}");
        // Frames in excess are an error.
        assert!((error(1_000_100, 0).unwrap() - 1e-4).abs() < 1e-12);
        assert_eq!(error(0, 1_000_000), None);
        let reason = |unsent: u64, stalled: u64| {
            let trial = Trial::new(1e7, 1.0, FrameSizes::Fixed(64));
            let latency = LatencySummary::default();
            let mut result = TrialResult::of_counts(&trial, 1.0, 9_000_000, 9_000_000, latency);
            result.scheduled_frames = 10_000_000;
            result.health.unsent_frames = unsent;
            result.health.stalled_unsent_frames = stalled;
            imprecise_reason(&result)
        };
        assert_eq!((reason(999, 0), reason(50_990, 50_000)), (None, None));
        let missed = "0.020 % of the schedule was missed without a stall";
        assert_eq!(reason(2000, 0).as_deref(), Some(missed));
    }

    #[test]
    fn the_highest_clean_rate_is_found_from_below() {
        for limit in [0.97e6, 0.6e6, 0.2e6, 0.99e6, 1e6, 2e6] {
            let mut tried = Vec::new();
            let found = highest_clean(1e6, CalibrationOptions::STEPS, |rate| {
                tried.push(rate);
                Ok::<_, ()>(rate <= limit)
            })
            .unwrap();
            assert!(
                found <= limit && found >= 0.96 * limit.min(1e6),
                "{found} for {limit}"
            );
            assert!(tried.contains(&found) && tried.len() <= 10);
        }
        assert_eq!(highest_clean(1e6, 9, |_| Ok::<_, ()>(false)), Ok(0.0));
        assert_eq!(highest_clean(1e6, 9, |_| Err("gone")), Err("gone"));
    }

    #[test]
    fn a_clean_rate_lasts_as_long_as_its_pacing_is_measured() {
        for (limit, found) in [(1e6, 1e6), (0.96e6, 0.95e6), (0.7e6, 0.684e6), (1.0, 0.0)] {
            let lasting = highest_lasting(1e6, 4, |rate| Ok::<_, ()>(rate <= limit)).unwrap();
            assert!((lasting - found).abs() < 1e-6, "{lasting} for {limit}");
        }
        // Without a clean rate, or without steps below it.
        assert_eq!(highest_lasting(0.0, 4, |_| Err("tried")), Ok(0.0));
        assert_eq!(highest_lasting(1e6, 0, |_| Ok::<_, ()>(true)), Ok(1e6));
        assert_eq!(highest_lasting(1e6, 0, |_| Ok::<_, ()>(false)), Ok(0.0));
        assert_eq!(highest_lasting(1e6, 4, |_| Err("gone")), Err("gone"));
    }

    #[test]
    fn no_more_rates_are_tried_than_allowed() {
        for steps in [0, 1, 5] {
            let mut tried = 0;
            let found = highest_clean(1e6, steps, |_| {
                tried += 1;
                Ok::<_, ()>(false)
            });
            assert_eq!((found, tried), (Ok(0.0), steps + 1));
        }
    }
}
