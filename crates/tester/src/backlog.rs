// SPDX-License-Identifier: Apache-2.0
//! Estimate of the frames that found a receive ring full while the tester did not poll it.
//!
//! A row is a sequence of frames received without the ring being empty in between. A row shorter than the ring cannot have filled it. A
//! longer row means loss if the arrival rate times the length of the row exceeds the frames received: the difference found the ring full.
//! This holds for a stall of any length, before, during and after the transmission.

use std::num::NonZeroU64;

use crate::narrow::whole;

/// Octets of a peer's buffer: longer frames occupy several descriptors (memif's default size).
const BUFFER_SIZE: u64 = 2048;
/// Assumed arrival rate if the rate is unknown: the most frames per second that a port can carry.
const HIGHEST_RATE_PPS: f64 = 5e7;

/// A receive ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ring {
    frames: u64,
}

impl Ring {
    /// Creates a ring of `descriptors` descriptors for frames of up to `frame_size_max` octets.
    pub(crate) fn new(descriptors: u16, frame_size_max: u16) -> Self {
        let of_a_frame = NonZeroU64::new(u64::from(frame_size_max).div_ceil(BUFFER_SIZE))
            .unwrap_or(NonZeroU64::MIN);
        Self {
            frames: (u64::from(descriptors) / of_a_frame).max(1),
        }
    }

    /// Returns how many of the largest frames the ring holds.
    pub(crate) fn frames(self) -> u64 {
        self.frames
    }

    /// Returns the length of the shortest row that may have filled the ring. A peer may drop a whole burst even if the ring has space for
    /// a part of it.
    fn row_min(self) -> u64 {
        self.frames.saturating_sub(self.frames / 8)
    }
}

/// Rows of a lane's receive ring.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    /// The shortest row that may have filled the ring.
    row_min: u64,
    /// Frames per tick that arrive if the device loses none; `None` if unknown.
    expected_rate: Option<f64>,
    ticks_per_second: f64,
    /// When the current part of the trial began, ticks.
    began: u64,
    /// When the ring was last empty, ticks; 0 if it has not been empty yet.
    row_since: u64,
    /// Frames received since then.
    row: u64,
    missed_at_most: u64,
}

impl Backlog {
    /// Creates the backlog of a ring. `rate_pps` is the arrival rate if the device loses no frame; `None` if the trial has no rate.
    pub(crate) fn new(ring: Ring, rate_pps: Option<f64>, ticks_per_second: u64) -> Self {
        let ticks_per_second = ticks_per_second as f64;
        Self {
            row_min: ring.row_min(),
            expected_rate: rate_pps.map(|rate_pps| rate_pps / ticks_per_second),
            ticks_per_second,
            began: 0,
            row_since: 0,
            row: 0,
            missed_at_most: 0,
        }
    }

    /// Begins a part of the trial. The current row continues.
    pub(crate) fn begin(&mut self, began: u64) {
        self.began = began;
        self.missed_at_most = 0;
    }

    /// Counts received frames.
    #[inline(always)]
    pub(crate) fn take(&mut self, frames: u64) {
        self.row = self.row.wrapping_add(frames);
    }

    /// Returns true if no frame was received since the ring was last empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.row == 0
    }

    /// Returns true if the ring may have been full since it was last empty.
    #[inline(always)]
    pub(crate) fn may_have_been_full(&self) -> bool {
        self.row >= self.row_min
    }

    /// Begins a row: the ring was empty not before `now`.
    #[inline(always)]
    pub(crate) fn begin_row(&mut self, now: u64) {
        self.row_since = now;
        self.row = 0;
    }

    /// Ends a row that may have filled the ring. `received` is the number of frames received in this part of the trial, including those
    /// of the row.
    #[cold]
    pub(crate) fn end_row(&mut self, now: u64, received: u64) {
        let since = if self.row_since > 0 {
            self.row_since
        } else {
            self.began
        };
        let before = since.saturating_sub(self.began);
        let observed =
            (before > 0).then(|| received.saturating_sub(self.row) as f64 / before as f64);
        let rate = match (observed, self.expected_rate) {
            (Some(observed), Some(expected)) => observed.max(expected),
            (Some(rate), None) | (None, Some(rate)) => rate,
            (None, None) => HIGHEST_RATE_PPS / self.ticks_per_second,
        };
        let refused = refused_at_most(rate, now.saturating_sub(since), self.row);
        self.missed_at_most = self.missed_at_most.saturating_add(refused);
    }

    /// Returns the upper bound of the frames of this part of the trial that found the ring full.
    pub(crate) fn missed_at_most(&self) -> u64 {
        self.missed_at_most
    }
}

/// Returns the frames that arrive in `ticks` ticks at `rate` frames per tick, minus those received.
fn refused_at_most(rate: f64, ticks: u64, received: u64) -> u64 {
    whole((rate * ticks as f64).ceil()).saturating_sub(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ticks per second: 1000 per microsecond.
    const HZ: u64 = 1_000_000_000;
    const US: u64 = 1000;
    const BEGAN: u64 = 50_000 * US;

    /// Returns the backlog of a ring of 1024 descriptors at this rate, empty when the trial began.
    fn backlog(rate_pps: Option<f64>) -> Backlog {
        let mut backlog = Backlog::new(Ring::new(1024, 64), rate_pps, HZ);
        backlog.begin_row(BEGAN);
        backlog.begin(BEGAN);
        backlog
    }

    /// Ends a row of these frames at this tick if it may have filled the ring.
    fn end(backlog: &mut Backlog, now: u64, frames: u64, received: u64) -> u64 {
        backlog.take(frames);
        if backlog.may_have_been_full() {
            backlog.end_row(now, received);
        }
        backlog.begin_row(now);
        backlog.missed_at_most()
    }

    #[test]
    fn a_ring_holds_fewer_frames_that_need_several_descriptors() {
        assert_eq!(Ring::new(1024, 64).frames(), 1024);
        assert_eq!(Ring::new(1024, 2048).frames(), 1024);
        assert_eq!(Ring::new(1024, 2049).frames(), 512);
        assert_eq!(Ring::new(4096, 9000).frames(), 819);
        assert_eq!(Ring::new(1024, 0).frames(), 1024);
        // Smallest ring: less than one frame of this size fits.
        assert_eq!(
            (Ring::new(4, 9000).frames(), Ring::new(4, 9000).row_min()),
            (1, 1)
        );
        assert_eq!(Ring::new(1024, 64).row_min(), 896);
    }

    #[test]
    fn arrivals_beyond_the_received_frames_found_the_ring_full() {
        // 2 frames per microsecond for 600 us are 1200.
        assert_eq!(refused_at_most(0.002, 600 * US, 1024), 176);
        assert_eq!(refused_at_most(0.002, 600 * US, 1200), 0);
        assert_eq!(refused_at_most(0.002, 600 * US, 1300), 0);
        // A fraction of a frame counts as one frame.
        assert_eq!(refused_at_most(0.002, 600 * US + 1, 1200), 1);
        assert_eq!(refused_at_most(0.0, 600 * US, 0), 0);
    }

    #[test]
    fn a_gap_shorter_than_100_us_fills_a_small_ring_at_a_high_rate() {
        // 20 Mpps for 80 us are 1600 frames, and 1024 of them were in the ring.
        let mut backlog = backlog(Some(20e6));
        assert_eq!(end(&mut backlog, BEGAN + 80 * US, 1024, 1024), 576);
        // At 10 Mpps, 80 us are 800 frames: fewer than the ring holds.
        let mut backlog = self::backlog(Some(10e6));
        assert_eq!(end(&mut backlog, BEGAN + 80 * US, 800, 800), 0);
    }

    #[test]
    fn a_long_gap_in_which_nothing_came_missed_nothing() {
        // A tester that sends nothing during a stall has few frames in flight.
        let mut backlog = backlog(Some(10e6));
        assert_eq!(end(&mut backlog, BEGAN + 5000 * US, 895, 895), 0);
        assert_eq!(end(&mut backlog, BEGAN + 10_000 * US, 896, 1791), 49_104);
    }

    #[test]
    fn rows_add_up_until_another_part_of_the_trial_begins() {
        let mut backlog = backlog(Some(20e6));
        assert_eq!(end(&mut backlog, BEGAN + 80 * US, 1024, 1024), 576);
        // 81 us at the expected rate. The observed rate, 1024 frames in 80 us, is lower.
        assert_eq!(end(&mut backlog, BEGAN + 161 * US, 1024, 2048), 576 + 596);
        backlog.begin(BEGAN + 161 * US);
        assert_eq!(backlog.missed_at_most(), 0);
    }

    #[test]
    fn the_rate_is_the_higher_of_that_expected_and_that_observed() {
        let rates = [
            // 1000 frames in 1000 us; then 1 ms, in which 1024 were received.
            (Some(2e6), 976),
            (Some(1e6), 0),
            (Some(0.5e6), 0),
            (None, 0),
        ];
        for (rate_pps, missed) in rates {
            let mut backlog = backlog(rate_pps);
            backlog.begin_row(BEGAN + 1000 * US);
            let now = BEGAN + 2000 * US;
            assert_eq!(end(&mut backlog, now, 1024, 2024), missed, "{rate_pps:?}");
        }
        // 3000 frames in 1000 us: 3000 more in the next 1000 us.
        for rate_pps in [Some(1e6), None] {
            let mut backlog = backlog(rate_pps);
            backlog.begin_row(BEGAN + 1000 * US);
            let now = BEGAN + 2000 * US;
            assert_eq!(end(&mut backlog, now, 1024, 4024), 1976, "{rate_pps:?}");
        }
    }

    #[test]
    fn a_gap_before_anything_was_received_counts() {
        // 1 Mpps for 2 ms.
        let mut known = backlog(Some(1e6));
        assert_eq!(end(&mut known, BEGAN + 2000 * US, 1024, 1024), 976);
        // Without a rate, the highest rate of a port applies: 50 frames per microsecond.
        let mut unknown = backlog(None);
        assert_eq!(end(&mut unknown, BEGAN + 30 * US, 1024, 1024), 476);
        // A ring that was never empty: the row begins with the trial.
        let mut full = Backlog::new(Ring::new(1024, 64), Some(1e6), HZ);
        full.begin(BEGAN);
        assert_eq!(end(&mut full, BEGAN + 2000 * US, 1024, 1024), 976);
    }

    #[test]
    fn a_row_that_began_before_the_counted_part_is_as_long_as_it_was() {
        let mut backlog = Backlog::new(Ring::new(1024, 64), Some(1e6), HZ);
        backlog.begin_row(BEGAN - 1000 * US);
        backlog.take(100);
        backlog.begin(BEGAN);
        assert!(!backlog.is_empty());
        // 2 ms at 1 Mpps, and 1124 frames were received in all.
        assert_eq!(end(&mut backlog, BEGAN + 1000 * US, 1024, 1024), 876);
        assert!(backlog.is_empty());
    }
}
