// SPDX-License-Identifier: Apache-2.0
//! Cycles of the device over the time of a trial, read by a thread on CPUs that neither tester nor forwarding threads use.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use quietwire_base::unix_time_ns;
use quietwire_host::CpuList;
use quietwire_host::threads::set_affinity;
use quietwire_lab::{CycleCount, CycleReader};
use quietwire_tester::{DevicePoint, SERIES_POINTS_MAX, TrialResult};

/// Shortest time between two readings.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// Time that the device has to answer.
const TIMEOUT: Duration = Duration::from_secs(1);
/// Most readings: the tester prepares the device before a trial, for a time that the sampler does not know.
const READINGS_MAX: usize = 4 * SERIES_POINTS_MAX;

/// A reading.
#[derive(Clone, Debug)]
struct Reading {
    /// Time of the clock that nothing sets.
    at: Instant,
    /// Nanoseconds since the Unix epoch at this time.
    unix_ns: u64,
    count: CycleCount,
}

/// Readings of the device's cycles during a trial.
#[derive(Debug)]
pub(super) struct CycleReadings(Vec<Reading>);

impl CycleReadings {
    /// Returns the work of the device in the intervals of the counted part.
    pub(super) fn points(&self, result: &TrialResult) -> Vec<DevicePoint> {
        points(&self.0, result)
    }
}

/// Sampler of the device's cycles. It stops when it is dropped.
#[derive(Debug)]
pub(super) struct CycleSampler {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Vec<Reading>>>,
}

impl CycleSampler {
    /// Starts a thread on `cpus` for a trial of `duration_s` seconds. None if there is no CPU for it, or no thread.
    pub(super) fn start(reader: CycleReader, cpus: &CpuList, duration_s: f64) -> Option<Self> {
        if cpus.is_empty() {
            return None;
        }
        let (stop, stopped) = channel();
        let (cpus, interval) = (cpus.clone(), interval(duration_s));
        let sample = move || {
            // Sampling on a forwarding CPU would disturb what is measured.
            match set_affinity(0, &cpus) {
                Ok(()) => sample_until(&reader, interval, &stopped),
                Err(_) => Vec::new(),
            }
        };
        let thread = Builder::new().name("qw-cycles".to_owned()).spawn(sample);
        Some(Self {
            stop: Some(stop),
            thread: Some(thread.ok()?),
        })
    }

    /// Stops sampling.
    pub(super) fn finish(mut self) -> CycleReadings {
        CycleReadings(self.end())
    }

    fn end(&mut self) -> Vec<Reading> {
        // The thread ends when the channel closes.
        self.stop = None;
        let ended = self.thread.take().map(JoinHandle::join);
        ended.and_then(Result::ok).unwrap_or_default()
    }
}

impl Drop for CycleSampler {
    fn drop(&mut self) {
        self.end();
    }
}

/// Returns the time between two readings in a trial of `duration_s` seconds.
fn interval(duration_s: f64) -> Duration {
    let interval = Duration::try_from_secs_f64(duration_s / SERIES_POINTS_MAX as f64);
    interval.unwrap_or(INTERVAL_MIN).max(INTERVAL_MIN)
}

fn sample_until(reader: &CycleReader, interval: Duration, stopped: &Receiver<()>) -> Vec<Reading> {
    let mut readings = Vec::new();
    while readings.len() < READINGS_MAX {
        // A device that does not answer leaves a gap.
        if let Ok(count) = reader.read(TIMEOUT) {
            readings.push(Reading {
                at: Instant::now(),
                unix_ns: unix_time_ns(),
                count,
            });
        }
        if stopped.recv_timeout(interval) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    readings
}

/// Returns the nanoseconds from one time to another, negative if the other one is earlier.
fn nanoseconds(from: Instant, to: Instant) -> i128 {
    let after = to.saturating_duration_since(from).as_nanos();
    let before = from.saturating_duration_since(to).as_nanos();
    after.cast_signed().saturating_sub(before.cast_signed())
}

/// Returns the increases between readings, all of which are in the counted part or in the drain.
fn points(readings: &[Reading], result: &TrialResult) -> Vec<DevicePoint> {
    let started_ns = result.started_unix_ns;
    // The tester reports its start in the time of the wall clock, which may be set during the trial. The last reading before relates it to
    // the time of the others.
    let before = readings.iter().take_while(|one| one.unix_ns <= started_ns);
    let Some(relation) = before.last().or(readings.first()) else {
        return Vec::new();
    };
    let relation_ns = i128::from(relation.unix_ns).saturating_sub(i128::from(started_ns));
    let since_start_s = |reading: &Reading| {
        let since_ns = relation_ns.saturating_add(nanoseconds(relation.at, reading.at));
        since_ns as f64 / 1e9
    };
    let end_s = result.elapsed_s + result.trial.drain_s;
    let pairs = readings.windows(2).filter_map(|pair| {
        let [first, second] = pair else { return None };
        let (from_s, to_s) = (since_start_s(first), since_start_s(second));
        if from_s < 0.0 || to_s > end_s {
            return None;
        }
        let work = second.count.since(&first.count)?;
        Some(DevicePoint {
            end_s: to_s,
            cycles: work.cycles,
            frames: work.frames,
        })
    });
    pairs.take(SERIES_POINTS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use quietwire_tester::{FrameSizes, LatencySummary, Trial};

    use super::*;

    #[test]
    fn intervals_outside_of_the_counted_part_are_left_out() {
        let trial = Trial::new(1000.0, 1.0, FrameSizes::Fixed(64));
        let mut result = TrialResult::of_counts(&trial, 1.0, 1000, 1000, LatencySummary::default());
        result.started_unix_ns = 10_000_000_000;
        let began = Instant::now();
        let reading = |ms: u64, cycles, frames| Reading {
            at: began + Duration::from_millis(ms),
            unix_ns: ms * 1_000_000,
            count: CycleCount {
                cycles,
                frames,
                threads: vec![cycles],
                bursts: frames,
                input_cycles: None,
            },
        };
        let mut readings = [
            reading(9_900, 100, 1),
            reading(10_100, 200, 2),
            reading(10_600, 700, 7),
            // The counters began again.
            reading(10_700, 10, 1),
            reading(10_900, 50, 5),
            reading(11_100, 90, 9),
        ];
        let point = |end_s, cycles, frames| DevicePoint {
            end_s,
            cycles,
            frames,
        };
        let wanted = [point(0.6, 500, 5), point(0.9, 40, 4)];
        assert_eq!(points(&readings, &result), wanted);
        assert!(points(&readings[..1], &result).is_empty());
        // The wall clock is set during the trial.
        for reading in &mut readings[2..] {
            reading.unix_ns -= 500_000_000;
        }
        assert_eq!(points(&readings, &result), wanted);
        // Without a reading before the start, the first one relates both clocks.
        assert_eq!(points(&readings[1..], &result), wanted);
    }

    #[test]
    fn readings_are_as_many_in_a_long_trial_as_in_a_short_one() {
        assert_eq!(interval(0.5), INTERVAL_MIN);
        assert_eq!(interval(600.0), Duration::from_secs(10));
    }
}
