// SPDX-License-Identifier: Apache-2.0
//! Transmit schedule of one port: the frames that are due at an instant.
//!
//! Frame `k` is due at `start + k / rate`. After a stall, the tester sends late frames in a row only up to a limit. Frames further behind
//! count as unsent. The pacer sends them later at up to 0.2 % above the rate, too little for the device to lose frames because of it.
//! Frames still unsent at the end stay unsent. So a stall of the tester shows as a missed rate in the result, and not as a burst at the
//! device.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::clock::{ticks_of_s, ticks_of_us};
use crate::narrow::whole;

/// Spacing of frames.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// This many frames per second.
    Rate(f64),
    /// As fast as the tester can.
    Unpaced,
    /// This number of frames, as fast as the tester can.
    Burst(u64),
    /// A number of frames at a rate. After a stall, the remaining frames follow at that rate: the pacer drops none of them.
    Spread {
        /// Frames.
        frames: u64,
        /// Frames per second.
        rate_pps: f64,
    },
    /// A rate, and a second rate after a given time.
    Step {
        /// The first rate, frames per second.
        rate_pps: f64,
        /// Duration of the first rate, seconds.
        after_s: f64,
        /// The second rate, frames per second.
        then_pps: f64,
    },
}

impl Pace {
    /// Returns the pace of a lane: the rate times `share`, or the lane's part of a burst, `burst` frames.
    pub(crate) fn of_lane(self, share: f64, burst: u64) -> Self {
        match self {
            Self::Rate(rate_pps) => Self::Rate(rate_pps * share),
            Self::Unpaced => Self::Unpaced,
            Self::Burst(_) => Self::Burst(burst),
            // A single lane sends these frames.
            Self::Spread { .. } => self,
            Self::Step {
                rate_pps,
                after_s,
                then_pps,
            } => Self::Step {
                rate_pps: rate_pps * share,
                after_s,
                then_pps: then_pps * share,
            },
        }
    }

    /// Returns the initial rate, frames per second; `None` without a schedule.
    pub(crate) fn rate_pps(self) -> Option<f64> {
        match self {
            Self::Rate(rate_pps) | Self::Spread { rate_pps, .. } | Self::Step { rate_pps, .. } => {
                Some(rate_pps)
            }
            Self::Unpaced | Self::Burst(_) => None,
        }
    }
}

impl Pace {
    /// Returns the highest rate, frames per second; `None` without a schedule.
    pub(crate) fn highest_rate_pps(self) -> Option<f64> {
        match self {
            Self::Step {
                rate_pps, then_pps, ..
            } => Some(rate_pps.max(then_pps)),
            _ => self.rate_pps(),
        }
    }
}

/// Splits `frames` among lanes in proportion to their shares. The parts are the nearest whole numbers that add up to `frames`.
pub(crate) fn dealt(frames: u64, shares: &[f64]) -> Vec<u64> {
    let all: f64 = shares.iter().sum();
    let (mut before, mut so_far) = (0_u64, 0.0);
    shares
        .iter()
        .map(|share| {
            so_far += share;
            // Without shares the quotient is NaN, whose whole part is zero.
            let until = whole((frames as f64 * (so_far / all)).round());
            let part = until.saturating_sub(before);
            before = before.saturating_add(part);
            part
        })
        .collect()
}

/// Largest excess over the rate while the pacer catches up on unsent frames, as a ratio. It is below the rate difference that searches
/// resolve.
const SURPLUS: f64 = 0.002;

/// Largest number of frames of a spread schedule that a late tester sends in a row. A longer row would be a burst at another rate.
const SPREAD_CATCH_UP: u64 = 32;

/// Frames to send at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Due {
    /// Frames to send now, at most the burst size requested.
    pub(crate) frames: u64,
    /// True if the first of these frames was due more than one burst ago.
    pub(crate) late: bool,
    /// Frames of `frames` that are sent late: those of a late burst, those that were unsent, and those due more than [`LATE_US`] ago.
    pub(crate) late_frames: u64,
}

/// Delay after which a frame counts as late regardless of the burst size, microseconds.
const LATE_US: u64 = 100;

/// Times at which frames are due, for schedules with individual times.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Times {
    /// Time of each frame after the start of a round, in order, ticks.
    ticks: Box<[u64]>,
    /// Length of a round, ticks.
    period: NonZeroU64,
}

impl Times {
    /// Creates the times from nanoseconds, `speed` times faster.
    pub(crate) fn new(times_ns: &[u64], period_ns: u64, speed: f64, ticks_per_second: u64) -> Self {
        let ticks = |ns: u64| ns as f64 * (ticks_per_second as f64 / 1e9) / speed;
        Self {
            ticks: times_ns.iter().map(|ns| whole(ticks(*ns))).collect(),
            // The period is rounded up and the times down, so that no round begins early.
            period: NonZeroU64::new(whole(ticks(period_ns).ceil())).unwrap_or(NonZeroU64::MIN),
        }
    }

    /// Returns the number of frames due within `elapsed` ticks.
    fn due(&self, elapsed: u64) -> u64 {
        let rounds = elapsed / self.period;
        let within = elapsed % self.period;
        let of_round = self.ticks.partition_point(|tick| *tick <= within);
        rounds
            .saturating_mul(self.ticks.len() as u64)
            .saturating_add(of_round as u64)
    }
}

/// Returns the frames due in the first `elapsed` ticks at a rate, followed by the rate of `then`.
#[inline(always)]
fn frames_within(elapsed: u64, frames_per_tick: f64, then: Option<(u64, f64)>) -> f64 {
    let Some((after, then_per_tick)) = then else {
        return elapsed as f64 * frames_per_tick;
    };
    let (first, second) = (elapsed.min(after), elapsed.saturating_sub(after));
    first as f64 * frames_per_tick + second as f64 * then_per_tick
}

/// Every `of`-th frame of a schedule, from the `index`-th on, which is below `of`.
#[derive(Clone, Copy, Debug)]
struct Part {
    index: u64,
    of: NonZeroU64,
}

impl Part {
    const WHOLE: Self = Self {
        index: 0,
        of: NonZeroU64::MIN,
    };

    /// Returns how many of the first `frames` frames of the schedule belong to the part.
    #[inline(always)]
    fn count_of(self, frames: u64) -> u64 {
        if self.of == NonZeroU64::MIN {
            return frames;
        }
        // Those after the part's own frame of a group of `of`.
        let others = self.of.get().wrapping_sub(1).wrapping_sub(self.index);
        frames.saturating_add(others) / self.of
    }
}

/// Schedule of one port. All times are ticks of one clock.
#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    start: u64,
    frames_per_tick: f64,
    scheduled: u64,
    /// True if frames are due as fast as the tester can send them.
    is_unpaced: bool,
    /// True if a stall shifts the schedule instead of leaving frames unsent.
    is_spread: bool,
    /// Ticks after the start at which the second rate begins, and that rate in frames per tick.
    then: Option<(u64, f64)>,
    catch_up: u64,
    /// Delay after which a frame counts as late, ticks.
    late_after: u64,
    /// Frames sent late.
    late: u64,
    /// Frames per group: all frames of a group are due at once.
    together: u64,
    /// Individual times of the frames instead of a rate.
    times: Option<Arc<Times>>,
    /// The frames of the schedule that this pacer sends.
    part: Part,
    offered: u64,
    /// Frames that the tester did not send in time. They stay unsent unless the pacer catches up on them.
    unsent: u64,
    /// Of those, frames that were due in a stall. The pacer catches up on them before the others.
    stalled: u64,
    /// When the pacer began to catch up, and the number of unsent frames sent since then.
    owed_since: u64,
    made_good: u64,
    /// True if the caller stamps frames with [`Pacer::next_due`]. Unsent frames stay unsent then: when they were due is not kept.
    is_stamped_when_due: bool,
}

impl Pacer {
    /// Creates a schedule of `rate * duration_ticks` frames from `start` on, or of the number of frames that the pace gives. Frames more
    /// than `catch_up` behind count as unsent.
    #[must_use]
    pub(crate) fn new(
        pace: Pace,
        start: u64,
        duration_ticks: u64,
        ticks_per_second: u64,
        catch_up: u64,
    ) -> Self {
        let per_tick = |rate_pps: f64| rate_pps / ticks_per_second as f64;
        let frames_per_tick = per_tick(pace.rate_pps().unwrap_or(0.0));
        let then = match pace {
            Pace::Step {
                after_s, then_pps, ..
            } => {
                let after = ticks_of_s(after_s, ticks_per_second);
                Some((after.min(duration_ticks), per_tick(then_pps)))
            }
            _ => None,
        };
        let scheduled = match pace {
            Pace::Rate(_) | Pace::Step { .. } => {
                whole(frames_within(duration_ticks, frames_per_tick, then).round())
            }
            Pace::Unpaced => u64::MAX,
            Pace::Burst(frames) | Pace::Spread { frames, .. } => frames,
        };
        Self {
            start,
            frames_per_tick,
            scheduled,
            is_unpaced: matches!(pace, Pace::Unpaced | Pace::Burst(_)),
            is_spread: matches!(pace, Pace::Spread { .. }),
            then,
            catch_up: if matches!(pace, Pace::Spread { .. }) {
                catch_up.min(SPREAD_CATCH_UP)
            } else {
                catch_up
            },
            late_after: ticks_of_us(LATE_US, ticks_per_second),
            late: 0,
            together: 1,
            times: None,
            part: Part::WHOLE,
            offered: 0,
            unsent: 0,
            stalled: 0,
            owed_since: 0,
            made_good: 0,
            is_stamped_when_due: false,
        }
    }

    /// Makes [`Pacer::next_due`] return when frames were due, at the end of all settings. Schedules that have no time for each frame
    /// (unpaced ones, those that stalls shift, groups, steps and individual times) stay without.
    #[must_use]
    pub(crate) fn stamped_when_due(mut self, is_wanted: bool) -> Self {
        self.is_stamped_when_due = is_wanted
            && !self.is_unpaced
            && !self.is_spread
            && self.together == 1
            && self.then.is_none()
            && self.times.is_none();
        self
    }

    /// Returns when the next frame is due, ticks; `None` without [`Self::stamped_when_due`].
    #[inline(always)]
    pub(crate) fn next_due(&self) -> Option<u64> {
        self.is_stamped_when_due.then(|| {
            let frame = self.passed().saturating_mul(self.part.of.get());
            let frame = frame.saturating_add(self.part.index);
            let after = whole(frame as f64 / self.frames_per_tick);
            self.start.saturating_add(after)
        })
    }

    /// Returns the number of frames that were offered or count as unsent.
    #[inline(always)]
    fn passed(&self) -> u64 {
        self.offered.saturating_add(self.unsent)
    }

    /// Groups the frames: `frames` of them are due at once, when the first of them is due. Number and mean rate stay the same.
    #[must_use]
    pub(crate) fn in_bursts(mut self, frames: u16) -> Self {
        self.together = u64::from(frames.max(1));
        self.catch_up = self.catch_up.saturating_add(self.together);
        self
    }

    /// Replaces the rate by individual times of the frames, for `duration_ticks`.
    #[must_use]
    pub(crate) fn by_times(mut self, times: Option<Arc<Times>>, duration_ticks: u64) -> Self {
        if let Some(times) = &times {
            self.scheduled = times.due(duration_ticks.saturating_sub(1));
        }
        self.times = times;
        self
    }

    /// Leaves to this pacer every `of`-th frame of the schedule, from the `index`-th on; pacers of the same schedule with the other indices
    /// send the others. A schedule without times, or one that stalls shift, is not shared.
    #[must_use]
    pub(crate) fn shared(mut self, index: u16, of: u16) -> Self {
        let all = NonZeroU64::new(u64::from(of)).filter(|_| index < of);
        if let Some(of) = all.filter(|_| !self.is_unpaced && !self.is_spread) {
            self.part = Part {
                index: u64::from(index),
                of,
            };
            self.scheduled = self.part.count_of(self.scheduled);
        }
        self
    }

    /// Returns the time in which as many frames are due as may be sent in a row beside `waiting` ones, ticks; `None` without a rate,
    /// and for schedules that stalls shift and those of individual times.
    pub(crate) fn catch_up_ticks(&self, waiting: u64) -> Option<u64> {
        let per_tick = self.then.map_or(self.frames_per_tick, |(_, then)| {
            then.max(self.frames_per_tick)
        });
        let frames = self.catch_up.saturating_sub(waiting);
        let frames = frames.saturating_mul(self.part.of.get());
        let has_rate = per_tick > 0.0 && !self.is_spread && self.times.is_none();
        has_rate.then(|| whole(frames as f64 / per_tick))
    }

    /// Returns when the schedule begins, ticks.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Returns the frames due at `now`, at most `burst`. The caller must offer exactly that many.
    #[inline(always)]
    pub(crate) fn due(&mut self, now: u64, burst: u64) -> Due {
        let Some(elapsed) = now.checked_sub(self.start) else {
            return Due {
                frames: 0,
                late: false,
                late_frames: 0,
            };
        };
        let due = if self.is_unpaced {
            self.offered.saturating_add(burst).min(self.scheduled)
        } else if self.is_spread && self.times.is_none() {
            self.due_spread(elapsed)
        } else {
            self.due_within(elapsed)
        };
        let mut made_good = 0_u64;
        let mut behind = due.saturating_sub(self.passed());
        if behind > self.catch_up {
            let struck = behind.saturating_sub(self.catch_up);
            self.unsent = self.unsent.saturating_add(struck);
            behind = self.catch_up;
            (self.owed_since, self.made_good) = (now, 0);
        } else if self.unsent != 0
            && self.together == 1
            && self.times.is_none()
            && !self.is_stamped_when_due
        {
            made_good = self.catch_up(now, burst.saturating_sub(behind));
        }
        let frames = behind.saturating_add(made_good).min(burst);
        let late = behind >= burst.max(self.together).saturating_mul(2);
        let late_frames = if late {
            frames
        } else if frames > 0 {
            // Frames sent to catch up were unsent before, so they are not among those behind.
            let next = self.passed().saturating_add(made_good);
            let others = frames.saturating_sub(made_good);
            made_good.saturating_add(self.late_from(next, elapsed).min(others))
        } else {
            0
        };
        self.offered = self.offered.wrapping_add(frames);
        self.late = self.late.wrapping_add(late_frames);
        Due {
            frames,
            late,
            late_frames,
        }
    }

    /// Returns the number of frames due within `elapsed` ticks. Frame 0 is due at the start, so the result is at least 1.
    #[inline(always)]
    fn due_within(&self, elapsed: u64) -> u64 {
        if let Some(times) = &self.times {
            return self.part.count_of(times.due(elapsed)).min(self.scheduled);
        }
        let due = whole(frames_within(elapsed, self.frames_per_tick, self.then));
        let due = due.saturating_add(1);
        let due = if self.together == 1 {
            due
        } else {
            // Groups are due as a whole.
            due.checked_next_multiple_of(self.together).unwrap_or(due)
        };
        self.part.count_of(due).min(self.scheduled)
    }

    /// Returns the number of frames from `next` on that were due more than [`LATE_US`] ago; 0 if stalls shift the schedule.
    #[inline(always)]
    fn late_from(&self, next: u64, elapsed: u64) -> u64 {
        if self.is_unpaced || self.is_spread {
            return 0;
        }
        let then = elapsed.checked_sub(self.late_after.saturating_add(1));
        then.map_or(0, |then| self.due_within(then).saturating_sub(next))
    }

    /// Returns the frames due of a schedule that stalls shift. Shifts the schedule if the tester is behind.
    fn due_spread(&mut self, elapsed: u64) -> u64 {
        let due = whole(elapsed as f64 * self.frames_per_tick).saturating_add(1);
        let most = self.offered.saturating_add(self.catch_up);
        let beyond = due.saturating_sub(most);
        let shift = whole(beyond as f64 / self.frames_per_tick);
        self.start = self.start.saturating_add(shift);
        due.min(most).min(self.scheduled)
    }

    /// Ends the schedule at `now`: frames due later are no longer part of it.
    pub(crate) fn cut(&mut self, now: u64) {
        if self.is_unpaced || self.times.is_some() {
            return;
        }
        let elapsed = now.saturating_sub(self.start);
        let due = whole(frames_within(elapsed, self.frames_per_tick, self.then));
        let due = self.part.count_of(due);
        self.scheduled = self.scheduled.min(due.max(self.offered));
    }

    /// Returns the number of unsent frames to send in addition to those due, at most `space`.
    #[cold]
    fn catch_up(&mut self, now: u64, space: u64) -> u64 {
        let passed = now.saturating_sub(self.owed_since) as f64;
        let frames_per_tick = self.frames_per_tick / self.part.of.get() as f64;
        let allowed = whole(passed * frames_per_tick * SURPLUS);
        let frames = allowed
            .saturating_sub(self.made_good)
            .min(self.unsent)
            .min(space);
        self.made_good = self.made_good.saturating_add(frames);
        self.unsent = self.unsent.saturating_sub(frames);
        self.stalled = self.stalled.saturating_sub(frames);
        frames
    }

    /// Counts the frames that the last call of [`Pacer::due`] left unsent as frames of a stall. `before` is [`Pacer::unsent`] before that
    /// call.
    #[cold]
    pub(crate) fn note_stall(&mut self, before: u64) {
        let left_out = self.unsent.saturating_sub(before);
        self.stalled = self.stalled.saturating_add(left_out);
    }

    /// Returns true if every frame of the schedule was offered or counts as unsent.
    #[inline(always)]
    #[must_use]
    pub(crate) fn is_done(&self) -> bool {
        self.passed() >= self.scheduled
    }

    /// Ends the schedule early: the remaining frames count as unsent.
    pub(crate) fn close(&mut self) {
        if self.scheduled != u64::MAX {
            self.unsent = self.scheduled.saturating_sub(self.offered);
        }
    }

    /// Returns the number of frames in the schedule; for an unpaced schedule, the frames offered.
    #[must_use]
    pub(crate) fn scheduled(&self) -> u64 {
        if self.scheduled == u64::MAX {
            self.offered
        } else {
            self.scheduled
        }
    }

    /// Returns the number of frames offered so far.
    #[must_use]
    pub(crate) fn offered(&self) -> u64 {
        self.offered
    }

    /// Returns the number of frames sent late so far (see [`Due::late_frames`]).
    #[must_use]
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of unsent frames so far.
    #[must_use]
    pub(crate) fn unsent(&self) -> u64 {
        self.unsent
    }

    /// Returns how many of the unsent frames were due in stalls ([`Pacer::note_stall`]).
    #[must_use]
    pub(crate) fn stalled(&self) -> u64 {
        self.stalled.min(self.unsent)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    mod by_ticks;

    const HZ: u64 = 2_600_000_000;

    #[test]
    fn a_punctual_tester_offers_every_frame_and_none_early() {
        let rate = 1_234_567.0;
        let mut pacer = Pacer::new(Pace::Rate(rate), 1000, HZ, HZ, 512);
        let mut now = 1000;
        while !pacer.is_done() {
            let due = pacer.due(now, 32);
            assert!(!due.late);
            let latest = ((now - 1000) as f64 / HZ as f64 * rate) as u64 + 1;
            assert!(pacer.offered() <= latest);
            now += 5000;
        }
        assert_eq!((pacer.offered(), pacer.unsent()), (1_234_567, 0));
        assert!(now <= 1000 + HZ + 10_000);
    }

    #[test]
    fn a_rate_is_kept_to_the_frame_over_an_hour() {
        const RATE: u64 = 9_999_999;
        const SECONDS: u64 = 3600;
        let mut pacer = Pacer::new(Pace::Rate(RATE as f64), 0, SECONDS * HZ, HZ, u64::MAX);
        for tenth in 0..10 * SECONDS {
            // A quarter of a frame later, so that the instant is never that of a frame.
            let now = tenth * HZ / 10 + HZ / RATE / 4;
            pacer.due(now, 1 << 40);
            let due = u128::from(now) * u128::from(RATE) / u128::from(HZ) + 1;
            assert_eq!(u128::from(pacer.offered()), due, "at {now}");
        }
        pacer.due(SECONDS * HZ, 1 << 40);
        assert_eq!((pacer.offered(), pacer.unsent()), (RATE * SECONDS, 0));
        assert!(pacer.is_done());
    }

    #[test]
    fn a_long_stall_is_struck_and_a_short_one_is_made_up() {
        let mut pacer = Pacer::new(Pace::Rate(1e6), 0, HZ, HZ, 512);
        pacer.due(0, 32);
        // 400 frames behind: within the limit. All are sent in bursts, the first of them late.
        let now = HZ / 1_000_000 * 400;
        assert!(pacer.due(now, 32).late);
        while pacer.due(now, 32).frames > 0 {}
        assert_eq!((pacer.offered(), pacer.unsent()), (401, 0));
        // 4000 more frames behind: 512 are sent, the others are unsent.
        let now = now + HZ / 1_000_000 * 4000;
        while pacer.due(now, 32).frames > 0 {}
        assert_eq!((pacer.offered(), pacer.unsent()), (401 + 512, 4000 - 512));
    }

    #[test]
    fn frames_of_a_rate_are_due_in_the_time_of_those_in_a_row() {
        let of = |pace| Pacer::new(pace, 0, HZ, HZ, 512);
        assert_eq!(of(Pace::Unpaced).catch_up_ticks(0), None);
        let (frames, rate_pps) = (100, 1e6);
        let spread = of(Pace::Spread { frames, rate_pps });
        assert_eq!(spread.catch_up_ticks(0), None);
        let ticks = |waiting| of(Pace::Rate(1e6)).catch_up_ticks(waiting);
        assert_eq!(ticks(0), Some(512 * HZ / 1_000_000));
        assert_eq!(ticks(32), Some(480 * HZ / 1_000_000));
        let ticks = of(Pace::Rate(1e6)).shared(1, 2).catch_up_ticks(0);
        assert_eq!(ticks, Some(1024 * HZ / 1_000_000));
        let step = Pace::Step {
            rate_pps: 1e6,
            after_s: 0.5,
            then_pps: 4e6,
        };
        assert_eq!(of(step).catch_up_ticks(0), Some(128 * HZ / 1_000_000));
    }

    #[test]
    fn bursts_keep_the_rate() {
        let mut pacer = Pacer::new(Pace::Rate(1e6), 0, HZ, HZ, 512).in_bursts(100);
        assert_eq!(pacer.due(0, 32).frames, 32);
        while pacer.due(0, 32).frames > 0 {}
        assert_eq!(pacer.offered(), 100);
        let microsecond = HZ / 1_000_000;
        assert_eq!(pacer.due(99 * microsecond, 32).frames, 0);
        assert_eq!(pacer.due(100 * microsecond + 1, 32).frames, 32);
        while pacer.due(HZ, 512).frames > 0 {}
        pacer.close();
        assert_eq!(pacer.offered() + pacer.unsent(), 1_000_000);
    }

    #[test]
    fn unsent_frames_are_sent_later_at_a_limited_rate() {
        let microsecond = HZ / 1_000_000;
        let mut pacer = Pacer::new(Pace::Rate(1e6), 0, 10 * HZ, HZ, 512);
        pacer.due(0, 32);
        // A stall of 5 ms: 4488 frames are unsent, in addition to the 512 that are sent at once.
        let stalled = 5000 * microsecond;
        while pacer.due(stalled, 32).frames > 0 {}
        assert_eq!((pacer.offered(), pacer.unsent()), (513, 4488));
        let mut most = 0;
        let mut now = stalled;
        let (mut second, mut before) = (0, pacer.offered());
        while !pacer.is_done() {
            now += microsecond;
            pacer.due(now, 32);
            if (now - stalled) / HZ > second {
                second += 1;
                most = most.max(pacer.offered() - before);
                before = pacer.offered();
            }
        }
        assert_eq!((pacer.offered(), pacer.unsent()), (10_000_000, 0));
        assert!((1_001_900..=1_002_001).contains(&most), "{most}");
    }

    #[test]
    fn unsent_frames_of_stalls_are_counted_apart_and_made_up_first() {
        let microsecond = HZ / 1_000_000;
        let mut pacer = Pacer::new(Pace::Rate(1e6), 0, HZ, HZ, 512);
        pacer.due(0, 32);
        // A slow tester is 1000 frames beyond the limit, then a stall of 5 ms follows.
        let slow = 1512 * microsecond + microsecond / 2;
        while pacer.due(slow, 32).frames > 0 {}
        assert_eq!((pacer.unsent(), pacer.stalled()), (1000, 0));
        let mut now = slow + 5000 * microsecond;
        let before = pacer.unsent();
        pacer.due(now, 32);
        pacer.note_stall(before);
        let stalled = 5000 - 512;
        assert_eq!((pacer.unsent(), pacer.stalled()), (1000 + stalled, stalled));
        while now < HZ {
            now += 10 * microsecond;
            pacer.due(now, 32);
        }
        while pacer.due(now, 32).frames > 0 {}
        pacer.close();
        // 0.2 % of the frames after the stall are made up, all of them those of the stall.
        assert_eq!(pacer.unsent() - pacer.stalled(), 1000);
        assert!(
            pacer.stalled().abs_diff(stalled - 1987) <= 4,
            "{}",
            pacer.stalled()
        );
        // No stall has more of them than there are.
        pacer.note_stall(0);
        assert_eq!(pacer.stalled(), pacer.unsent());
    }

    #[test]
    fn frames_with_times_are_due_at_them_again_and_again() {
        // Times: start, 10 and 11 us after it; rounds of 20 us, twice as fast.
        let times = Times::new(&[0, 10_000, 11_000], 20_000, 2.0, HZ);
        let microsecond = HZ / 1_000_000;
        let pacer = Pacer::new(Pace::Rate(1.0), 0, HZ / 1000, HZ, 512);
        let mut pacer = pacer.by_times(Some(Arc::new(times)), HZ / 1000);
        assert_eq!(pacer.scheduled(), 300);
        for (at, frames) in [(0, 1), (4, 0), (6, 2), (9, 0), (11, 1), (16, 2)] {
            assert_eq!(pacer.due(at * microsecond, 32).frames, frames, "{at}");
        }
        while pacer.due(HZ, 512).frames > 0 {}
        assert_eq!(pacer.offered() + pacer.unsent(), 300);
        assert!(pacer.is_done());
    }

    #[test]
    fn a_burst_has_its_frames_and_begins_on_time() {
        let mut pacer = Pacer::new(Pace::Burst(100), 1000, 0, HZ, 512);
        assert_eq!(pacer.due(999, 32).frames, 0);
        let sent: Vec<u64> = (0..6).map(|_| pacer.due(1000, 32).frames).collect();
        assert_eq!(sent, [32, 32, 32, 4, 0, 0]);
        pacer.close();
        assert!(pacer.is_done());
        assert_eq!((pacer.scheduled(), pacer.unsent()), (100, 0));
    }

    #[test]
    fn a_spread_schedule_leaves_no_frame_out_and_never_hurries() {
        let microsecond = HZ / 1_000_000;
        let pace = Pace::Spread {
            frames: 1000,
            rate_pps: 1e5,
        };
        let mut pacer = Pacer::new(pace, 0, HZ / 100, HZ, 512);
        assert_eq!(pacer.due(0, 32).frames, 1);
        // A stall of a second, a hundred times the schedule: one burst, then the rate again.
        let mut now = HZ;
        assert_eq!(pacer.due(now, 32).frames, 32);
        assert_eq!(pacer.due(now, 32).frames, 0);
        while !pacer.is_done() {
            now += 10 * microsecond + 1;
            assert!(pacer.due(now, 32).frames <= 2);
        }
        assert_eq!((pacer.offered(), pacer.unsent()), (1000, 0));
        assert!((now - HZ).abs_diff(967 * 10 * microsecond) < 20 * microsecond);
    }

    #[test]
    fn a_step_has_both_rates_and_no_gap() {
        let pace = Pace::Step {
            rate_pps: 1e6,
            after_s: 0.5,
            then_pps: 1e5,
        };
        let mut pacer = Pacer::new(pace, 0, HZ, HZ, 512);
        assert_eq!(pacer.scheduled(), 550_000);
        let mut now = 0;
        while now < HZ / 2 {
            pacer.due(now, 32);
            now += 10_000;
        }
        assert!(pacer.offered().abs_diff(500_000) <= 4);
        let mut after = 0;
        while !pacer.is_done() {
            let due = pacer.due(now, 32).frames;
            after += due;
            assert!(due <= 1 || after <= 4);
            now += 10_000;
        }
        assert_eq!((pacer.offered(), pacer.unsent()), (550_000, 0));
    }

    #[test]
    fn a_schedule_that_is_cut_owes_only_what_was_due() {
        let mut pacer = Pacer::new(Pace::Rate(1e6), 0, 100 * HZ, HZ, 512);
        let mut now = 0;
        while now < HZ {
            pacer.due(now, 32);
            now += 10_000;
        }
        // A stall at the end. Without the cut, 512 frames would be sent to catch up.
        pacer.cut(now + HZ / 100);
        pacer.close();
        assert!(pacer.offered().abs_diff(1_000_000) <= 4);
        assert!(pacer.unsent().abs_diff(10_000) <= 4, "{}", pacer.unsent());
        assert_eq!(pacer.scheduled(), pacer.offered() + pacer.unsent());
    }

    #[test]
    fn an_unpaced_schedule_never_ends_and_misses_nothing() {
        let mut pacer = Pacer::new(Pace::Unpaced, 0, HZ, HZ, 512);
        for now in 0..100 {
            assert_eq!(
                pacer.due(now, 32),
                Due {
                    frames: 32,
                    late: false,
                    late_frames: 0
                }
            );
        }
        pacer.close();
        assert!(!pacer.is_done());
        assert_eq!((pacer.scheduled(), pacer.unsent()), (3200, 0));
    }

    #[test]
    fn the_second_frame_of_the_lowest_rates_is_never_due() {
        // It is due after the end of the counter.
        let pacer = Pacer::new(Pace::Rate(1e-12), 1000, HZ, HZ, 512);
        let mut pacer = pacer.stamped_when_due(true);
        pacer.offered = 1;
        assert_eq!(pacer.next_due(), Some(u64::MAX));
        // Neither do such times, nor a share of all frames, exceed the counter.
        let times = Times::new(&[0, 0, 0], 0, 1.0, HZ);
        assert_eq!(times.due(u64::MAX), u64::MAX);
        let endless = Pacer::new(Pace::Rate(1e10), 0, u64::MAX, 1, 512);
        assert_eq!(endless.scheduled, u64::MAX);
        assert_eq!(endless.shared(0, 3).scheduled, u64::MAX / 3);
    }

    #[test]
    fn schedules_without_times_and_ones_that_stalls_shift_are_not_shared() {
        let spread = Pace::Spread {
            frames: 100,
            rate_pps: 1000.0,
        };
        for pace in [spread, Pace::Burst(100)] {
            let pacer = Pacer::new(pace, 0, HZ, HZ, 64);
            assert_eq!(pacer.clone().shared(0, 2).scheduled(), 100, "{pace:?}");
        }
        // There is no third of two.
        let pacer = Pacer::new(Pace::Rate(100.0), 0, HZ, HZ, 64);
        assert_eq!(pacer.clone().shared(1, 2).scheduled(), 50);
        assert_eq!(pacer.shared(2, 2).scheduled(), 100);
    }

    proptest! {
        #[test]
        fn frames_are_dealt_out_to_the_last(frames in 0u64..1_000_000_000, shares in prop::collection::vec(0.01f64..2.0, 1..9)) {
            let parts = dealt(frames, &shares);
            prop_assert_eq!(parts.iter().sum::<u64>(), frames);
            let all: f64 = shares.iter().sum();
            for (part, share) in parts.iter().zip(&shares) {
                prop_assert!((*part as f64 - frames as f64 * share / all).abs() <= 1.0 + 1e-6 * frames as f64);
            }
        }

        #[test]
        fn pacers_that_share_a_schedule_send_each_of_its_frames_once(
            rate in 1.0f64..1e7,
            of in 1u16..6,
            together in prop_oneof![Just(1u16), 2u16..40],
            steps in prop::collection::vec(0..HZ / 50, 1..60),
        ) {
            let mut whole = Pacer::new(Pace::Rate(rate), 0, HZ, HZ, 1 << 60).in_bursts(together);
            let mut parts: Vec<Pacer> = (0..of).map(|index| whole.clone().shared(index, of)).collect();
            let mut now = 0;
            for step in steps.into_iter().chain([HZ]) {
                whole.due(now, 1 << 40);
                for (index, part) in parts.iter_mut().enumerate() {
                    part.due(now, 1 << 40);
                    // Every `of`-th frame from its own first one.
                    let own = (index..whole.offered() as usize).step_by(of as usize);
                    prop_assert_eq!(part.offered(), own.len() as u64);
                }
                now += step;
            }
            whole.due(now, 1 << 40);
            prop_assert_eq!(whole.offered(), whole.scheduled());
            let scheduled: u64 = parts.iter().map(Pacer::scheduled).sum();
            prop_assert_eq!(scheduled, whole.scheduled());
        }

        #[test]
        fn offered_and_unsent_make_up_the_schedule(
            rate in 1.0f64..2e7,
            steps in prop::collection::vec(0u64..5_000_000, 1..200),
            catch_up in 64u64..2048,
        ) {
            let mut pacer = Pacer::new(Pace::Rate(rate), 0, HZ / 10, HZ, catch_up);
            let mut now = 0;
            for step in steps {
                now += step;
                let due = pacer.due(now, 32);
                prop_assert!(due.frames <= 32);
                prop_assert!(pacer.offered() + pacer.unsent() <= pacer.scheduled());
            }
            pacer.close();
            prop_assert!(pacer.is_done());
            prop_assert_eq!(pacer.offered() + pacer.unsent(), pacer.scheduled());
        }
    }
}
