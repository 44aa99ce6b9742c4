// SPDX-License-Identifier: Apache-2.0
//! Frames, latency and the device's cycles over the time of a trial, in at most [`SERIES_POINTS_MAX`] intervals.
//!
//! A lane notes its totals when its thread checks the links, every few milliseconds: nothing is added to the work on a frame or a burst.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::clock::ticks_of_us;
use crate::latency::{LatencySummary, Recorder};

/// Most points of each part of a series.
pub const SERIES_POINTS_MAX: usize = 60;
/// Intervals of the counted part. One more point has the frames that arrived after it.
const INTERVALS: u64 = SERIES_POINTS_MAX as u64 - 1;
/// Shortest interval, microseconds: twice the time between two checks of the links.
const INTERVAL_US_MIN: u64 = 10_000;

/// Course of a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrialSeries {
    /// Frames and latency of the intervals, in the order of time. Empty if the tester records none.
    pub frames: Vec<FramePoint>,
    /// Work of the device, in intervals of its own. Empty if the device does not count its cycles, or no CPU is left for reading them.
    pub device: Vec<DevicePoint>,
}

impl TrialSeries {
    /// Returns true without points.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.device.is_empty()
    }
}

/// Frames and latency of an interval, which begins where the previous one ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FramePoint {
    /// End of the interval, seconds after the start of the counted part.
    pub end_s: f64,
    /// Frames offered in the interval.
    pub offered_frames: u64,
    /// Frames received in the interval. Frames that are on their way at its end count in the next one.
    pub received_frames: u64,
    /// Mean latency of the received frames, nanoseconds; none without frames.
    pub latency_mean_ns: Option<f64>,
    /// Largest latency of the received frames, nanoseconds; none without frames.
    pub latency_max_ns: Option<u64>,
}

impl FramePoint {
    /// Returns the share of the offered frames that did not arrive in the interval, 0 to 1; none if no frame was offered. A device that
    /// empties its queues receives less than it sends: then it is 0.
    #[must_use]
    pub fn loss_ratio(&self) -> Option<f64> {
        let lost = self.offered_frames.saturating_sub(self.received_frames);
        (self.offered_frames > 0).then(|| lost as f64 / self.offered_frames as f64)
    }
}

/// Work of a device in an interval, which begins where the previous one ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DevicePoint {
    /// End of the interval, seconds after the start of the counted part.
    pub end_s: f64,
    /// Cycles that the device counted for frames.
    pub cycles: u64,
    /// Frames that it received.
    pub frames: u64,
}

impl DevicePoint {
    /// Returns the cycles per frame; none without frames.
    #[must_use]
    pub fn cycles_per_frame(&self) -> Option<f64> {
        (self.frames > 0).then(|| self.cycles as f64 / self.frames as f64)
    }
}

/// Totals of a lane at the end of an interval.
#[derive(Clone, Copy, Debug)]
struct Totals {
    /// Number of the interval; the largest number after the drain.
    slot: u64,
    tick: u64,
    offered: u64,
    received: u64,
    latency_ns: u128,
    /// Largest latency since the previous totals.
    longest_ns: u64,
}

/// Number of the last interval of every lane.
const LAST: u64 = u64::MAX;

/// Totals of a lane over time. Its memory is allocated before the trial.
#[derive(Debug)]
pub(crate) struct LaneSeries {
    start: u64,
    width: u64,
    /// When the present interval ends, ticks.
    next: u64,
    /// Largest latency so far.
    longest_ns: u64,
    totals: Vec<Totals>,
}

impl Default for LaneSeries {
    /// Returns a series that ends no interval before it begins.
    fn default() -> Self {
        Self {
            start: 0,
            width: 1,
            next: u64::MAX,
            longest_ns: 0,
            totals: Vec::with_capacity(SERIES_POINTS_MAX),
        }
    }
}

impl LaneSeries {
    /// Begins a part of a trial, which lasts from `start` to `end`, ticks.
    pub(crate) fn begin(&mut self, start: u64, end: u64, ticks_per_second: u64) {
        let shortest = ticks_of_us(INTERVAL_US_MIN, ticks_per_second);
        self.start = start;
        self.width = (end.saturating_sub(start) / INTERVALS).max(shortest).max(1);
        self.next = start.saturating_add(self.width);
        self.longest_ns = 0;
        self.totals.clear();
    }

    /// Returns true if an interval has ended.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.next
    }

    /// Ends an interval with the totals of the lane.
    pub(crate) fn add(&mut self, now: u64, offered: u64, latency: &mut Recorder) {
        let since = now.saturating_sub(self.start);
        // The width is at least 1.
        let passed = since.checked_div(self.width).unwrap_or(0);
        let until_next = passed.saturating_add(1).saturating_mul(self.width);
        self.next = self.start.saturating_add(until_next);
        // The last point is kept free for the end.
        if self.totals.len().saturating_add(1) < SERIES_POINTS_MAX {
            self.push(passed, now, offered, latency);
        }
    }

    /// Ends the last interval, which contains the drain.
    pub(crate) fn end(&mut self, now: u64, offered: u64, latency: &mut Recorder) {
        self.next = u64::MAX;
        self.push(LAST, now, offered, latency);
        latency.raise_max(self.longest_ns);
    }

    fn push(&mut self, slot: u64, now: u64, offered: u64, latency: &mut Recorder) {
        // The packet path does not allocate memory.
        if self.totals.len() >= self.totals.capacity() {
            return;
        }
        let longest_ns = latency.take_max();
        self.longest_ns = self.longest_ns.max(longest_ns);
        self.totals.push(Totals {
            slot,
            tick: now,
            offered,
            received: latency.samples(),
            latency_ns: latency.sum(),
            longest_ns,
        });
    }

    /// Returns the totals at the end of an interval, or the latest before it.
    fn until(&self, slot: u64) -> Option<&Totals> {
        self.totals.iter().rev().find(|totals| totals.slot <= slot)
    }

    /// Returns the totals of exactly this interval.
    fn of(&self, slot: u64) -> Option<&Totals> {
        self.totals.iter().find(|totals| totals.slot == slot)
    }
}

/// Sums of all lanes.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    offered: u64,
    received: u64,
    latency_ns: u128,
}

/// Returns the intervals of all lanes together. Without measured latency, as with replayed frames, no frame is known to have arrived, and
/// there are none.
pub(crate) fn merged<'a>(
    lanes: impl Iterator<Item = &'a LaneSeries>,
    start: u64,
    ticks_per_second: u64,
) -> Vec<FramePoint> {
    let lanes: Vec<&LaneSeries> = lanes.collect();
    let totals = lanes.iter().flat_map(|lane| &lane.totals);
    let slots: BTreeSet<u64> = totals.map(|totals| totals.slot).collect();
    let mut before = Sums::default();
    let mut points = Vec::new();
    for slot in slots.into_iter().take(SERIES_POINTS_MAX) {
        let of_slot = || lanes.iter().filter_map(move |lane| lane.of(slot));
        let tick = of_slot().map(|totals| totals.tick).max().unwrap_or(start);
        let longest_ns = of_slot().map(|totals| totals.longest_ns).max();
        let mut now = Sums::default();
        for totals in lanes.iter().filter_map(|lane| lane.until(slot)) {
            now.offered = now.offered.saturating_add(totals.offered);
            now.received = now.received.saturating_add(totals.received);
            now.latency_ns = now.latency_ns.saturating_add(totals.latency_ns);
        }
        let received = now.received.saturating_sub(before.received);
        let latency_ns = now.latency_ns.saturating_sub(before.latency_ns);
        points.push(FramePoint {
            end_s: tick.saturating_sub(start) as f64 / ticks_per_second.max(1) as f64,
            offered_frames: now.offered.saturating_sub(before.offered),
            received_frames: received,
            latency_mean_ns: (received > 0).then(|| latency_ns as f64 / received as f64),
            latency_max_ns: longest_ns.filter(|_| received > 0),
        });
        before = now;
    }
    if before.received == 0 {
        points.clear();
    }
    points
}

/// Intervals of a simulated trial.
const SIMULATED_INTERVALS: u64 = 10;

/// Returns the course of a simulated trial, in which nothing changes.
pub(crate) fn even(
    duration_s: f64,
    (offered, received): (u64, u64),
    latency: &LatencySummary,
) -> Vec<FramePoint> {
    let until = |frames: u64, number: u64| {
        let part = u128::from(frames).saturating_mul(u128::from(number));
        let part = part.checked_div(u128::from(SIMULATED_INTERVALS));
        part.map_or(0, |part| u64::try_from(part).unwrap_or(u64::MAX))
    };
    let within = |frames: u64, number: u64| {
        let before = until(frames, number.saturating_sub(1));
        until(frames, number).saturating_sub(before)
    };
    let point = |number: u64| {
        let frames = within(received, number);
        let has_latency = frames > 0 && latency.samples > 0;
        FramePoint {
            end_s: duration_s * number as f64 / SIMULATED_INTERVALS as f64,
            offered_frames: within(offered, number),
            received_frames: frames,
            latency_mean_ns: has_latency.then_some(latency.mean_ns),
            latency_max_ns: has_latency.then_some(latency.max_ns),
        }
    };
    (1..=SIMULATED_INTERVALS).map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HZ: u64 = 1_000_000_000;

    #[test]
    fn intervals_have_the_frames_between_two_totals() {
        let mut latency = Recorder::default();
        let mut lane = LaneSeries::default();
        assert!(!lane.is_due(u64::MAX - 1));
        lane.begin(HZ, 2 * HZ, HZ);
        let width = HZ / INTERVALS;
        assert!(!lane.is_due(HZ + width - 1) && lane.is_due(HZ + width));
        latency.record(1000, 90);
        latency.record(5000, 10);
        lane.add(HZ + width + 7, 100, &mut latency);
        assert!(!lane.is_due(HZ + 2 * width - 1) && lane.is_due(HZ + 2 * width));
        latency.record(2000, 50);
        lane.end(2 * HZ, 200, &mut latency);
        let points = merged([&lane].into_iter(), HZ, HZ);
        assert_eq!(points.len(), 2);
        assert_eq!(points[0].end_s, (width + 7) as f64 / HZ as f64);
        assert_eq!(
            (points[0].offered_frames, points[0].received_frames),
            (100, 100)
        );
        assert_eq!(points[0].latency_mean_ns, Some(1400.0));
        assert_eq!(points[0].latency_max_ns, Some(5000));
        assert_eq!(
            (points[1].offered_frames, points[1].received_frames),
            (100, 50)
        );
        assert_eq!(points[1].loss_ratio(), Some(0.5));
        assert_eq!(points[1].latency_max_ns, Some(2000));
        // The recorder has its largest value again.
        assert_eq!(latency.summary().unwrap().max_ns, 5000);
    }

    #[test]
    fn a_long_trial_has_no_more_points_than_a_short_one() {
        for seconds in [1, 3600] {
            let mut latency = Recorder::default();
            let mut lane = LaneSeries::default();
            lane.begin(0, seconds * HZ, HZ);
            let mut offered = 0;
            // Totals as often as the links are checked, and far beyond the end.
            for now in (0..2 * seconds * HZ).step_by(5_000_000) {
                latency.record(1000, 1);
                offered += 1;
                if lane.is_due(now) {
                    lane.add(now, offered, &mut latency);
                }
            }
            lane.end(2 * seconds * HZ, offered, &mut latency);
            let points = merged([&lane].into_iter(), 0, HZ);
            assert_eq!(points.len(), SERIES_POINTS_MAX, "{seconds}");
            let frames: u64 = points.iter().map(|point| point.received_frames).sum();
            assert_eq!(frames, offered);
            assert!(points.is_sorted_by(|a, b| a.end_s < b.end_s));
        }
    }

    #[test]
    fn lanes_of_different_threads_are_summed_up() {
        let mut lanes = [LaneSeries::default(), LaneSeries::default()];
        let mut latencies = [Recorder::default(), Recorder::default()];
        for lane in &mut lanes {
            lane.begin(0, HZ, HZ);
        }
        let width = HZ / INTERVALS;
        let step = |lane: &mut LaneSeries, latency: &mut Recorder, now, frames| {
            latency.record(1000, frames);
            lane.add(now, latency.samples(), latency);
        };
        // The second lane is stalled during the first interval.
        step(&mut lanes[0], &mut latencies[0], width + 1, 10);
        step(&mut lanes[0], &mut latencies[0], 2 * width + 1, 10);
        step(&mut lanes[1], &mut latencies[1], 2 * width + 9, 30);
        for (lane, latency) in lanes.iter_mut().zip(&mut latencies) {
            let offered = latency.samples();
            lane.end(HZ, offered, latency);
        }
        let points = merged(lanes.iter(), 0, HZ);
        let frames: Vec<u64> = points.iter().map(|point| point.received_frames).collect();
        assert_eq!(frames, [10, 40, 0]);
        assert_eq!(points[2].latency_mean_ns, None);
        assert_eq!(points[1].end_s, (2 * width + 9) as f64 / HZ as f64);
    }

    #[test]
    fn a_simulated_course_has_all_frames() {
        let latency = LatencySummary {
            samples: 13,
            mean_ns: 5.0,
            max_ns: 9,
            ..LatencySummary::default()
        };
        let points = even(2.0, (17, 13), &latency);
        let sum = |of: fn(&FramePoint) -> u64| points.iter().map(of).sum::<u64>();
        assert_eq!(sum(|point| point.offered_frames), 17);
        assert_eq!(sum(|point| point.received_frames), 13);
        assert_eq!(points.last().unwrap().end_s, 2.0);
        assert!(points.iter().all(|point| point.latency_max_ns == Some(9)));
        let none = even(2.0, (17, 0), &LatencySummary::default());
        assert!(none.iter().all(|point| point.latency_mean_ns.is_none()));
    }

    #[test]
    fn without_latency_there_is_no_series() {
        let mut lane = LaneSeries::default();
        lane.begin(0, HZ, HZ);
        lane.end(HZ, 100, &mut Recorder::default());
        assert!(merged([&lane].into_iter(), 0, HZ).is_empty());
        assert!(TrialSeries::default().is_empty());
        assert_eq!(FramePoint::default().loss_ratio(), None);
        assert_eq!(DevicePoint::default().cycles_per_frame(), None);
    }
}
