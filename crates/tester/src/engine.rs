// SPDX-License-Identifier: Apache-2.0
//! Loop of one tester thread: runs the parts of a trial in order over the lanes of the thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use quietwire_dpdk::cycles;

use crate::clock::ticks_of_us;
use crate::frame::Epoch;
use crate::lane::{Lane, LowRate, STALL_US, TX_BURST};
use crate::narrow::whole;
use crate::pacer::{Pace, Pacer, Times};
use crate::trial::LatencyStart;

/// Instants and rates of a trial, in ticks of the time stamp counter. All threads share them.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    pub(crate) epoch: Epoch,
    /// Rate of each lane, in the order of the lanes over all threads.
    pub(crate) pace: Pace,
    /// Frames per second of each lane's low-rate stream.
    pub(crate) low_rate_pps: f64,
    /// Frames per burst: all of them are due at once.
    pub(crate) burst: u16,
    /// Times at which frames are due, instead of a rate.
    pub(crate) times: Option<Arc<Times>>,
    /// Start of latencies at a constant rate.
    pub(crate) latency_start: LatencyStart,
    pub(crate) ticks_per_second: u64,
    /// When the transmission of learning frames ends.
    pub(crate) learning_end: u64,
    /// When the warm-up begins.
    pub(crate) warm_up_start: u64,
    /// When the counted part begins.
    pub(crate) start: u64,
    /// When the last frame of the counted part is due.
    pub(crate) end: u64,
    /// When the transmission ends, even if frames are still due.
    pub(crate) limit: u64,
    /// Time to receive after the transmission, ticks.
    pub(crate) drain: u64,
    /// Latest end of receiving.
    pub(crate) drain_end: u64,
    /// True if the transmission ends with the last frame instead of at a time.
    pub(crate) ends_with_frames: bool,
    /// True if receiving ends when all frames that the thread sent have arrived.
    pub(crate) ends_when_complete: bool,
    /// When a thread leaves its CPU to others for a moment.
    pub(crate) leave: Leave,
}

impl Timetable {
    /// Returns true if latencies start when frames are due. Only at a constant rate is each frame due at a time of its own.
    pub(crate) fn latency_is_from_due(&self) -> bool {
        self.latency_start == LatencyStart::Due
            && matches!(self.pace, Pace::Rate(_))
            && self.burst == 1
            && self.times.is_none()
    }
}

/// When a thread of the tester sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Never.
    Never,
    /// When there is nothing to do.
    WhenIdle,
    /// When nothing more is due and nothing more has come.
    BetweenBursts,
}

impl Leave {
    /// Returns how long to sleep after a turn of so many frames in its largest burst.
    fn after(self, frames: u64) -> Option<Duration> {
        match self {
            Self::WhenIdle if frames == 0 => Some(Duration::from_micros(LENIENCE_US)),
            Self::BetweenBursts if frames < TX_BURST => Some(Duration::from_micros(BETWEEN_US)),
            Self::Never | Self::WhenIdle | Self::BetweenBursts => None,
        }
    }
}

/// Flags by which other threads control a running trial.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Signals<'a> {
    /// Aborts the trial without a result.
    pub(crate) abort: &'a AtomicBool,
    /// Ends the transmission early; the result stands.
    pub(crate) stop_sending: &'a AtomicBool,
}

impl Signals<'_> {
    fn is_aborted(self) -> bool {
        self.abort.load(Ordering::Relaxed)
    }

    fn ends_sending(self) -> bool {
        self.is_aborted() || self.stop_sending.load(Ordering::Relaxed)
    }
}

/// Health of a thread's loop in the counted part.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopHealth {
    pub(crate) longest_gap: u64,
    /// Longest time between two consecutive clock readings, without work of the tester in between. The host causes it.
    pub(crate) longest_host_gap: u64,
    /// Number and sum of such times over [`HOST_STALL_US`].
    pub(crate) host_stalls: u64,
    pub(crate) host_stall_ticks: u64,
    pub(crate) gaps_over_100us: u64,
    pub(crate) gap_ticks: u64,
    /// Time in turns that sent and received nothing, and between turns. Long gaps do not count.
    pub(crate) idle_ticks: u64,
    /// Time in which frames were offered.
    pub(crate) offer_ticks: u64,
    pub(crate) aborted: bool,
    /// When the thread finished, ticks.
    pub(crate) ended: u64,
}

impl LoopHealth {
    /// Records a time between two consecutive clock readings. A stall is longer than `stall`.
    #[inline(always)]
    fn note_host_gap(&mut self, gap: u64, stall: u64) {
        if gap > self.longest_host_gap {
            self.longest_host_gap = gap;
        }
        if gap > stall {
            self.host_stalls = self.host_stalls.saturating_add(1);
            self.host_stall_ticks = self.host_stall_ticks.saturating_add(gap);
        }
    }

    /// Takes note of a time in which the thread did nothing; returns whether it is longer than `long`.
    #[inline(always)]
    fn is_long(&mut self, gap: u64, long: u64) -> bool {
        self.longest_gap = self.longest_gap.max(gap);
        let is_long = gap > long;
        if is_long {
            self.gaps_over_100us = self.gaps_over_100us.saturating_add(1);
            self.gap_ticks = self.gap_ticks.saturating_add(gap);
        }
        is_long
    }
}

/// Frames that a late tester may send in a row to catch up, at any rate and with rings of any size.
pub(crate) const CATCH_UP: u64 = 8 * TX_BURST;

/// Interval of the link checks, microseconds.
const LINK_POLL_US: u64 = 5_000;

/// Time between two consecutive clock readings over which the host stalled the thread, microseconds.
const HOST_STALL_US: u64 = 10;

/// Time by which a schedule may overrun its end to send frames that are due, microseconds.
const GRACE_US: u64 = 500;

/// Sleep interval while the device settles, microseconds.
const PAUSE_US: u64 = 500;

/// Sleep interval of a lenient thread, microseconds. It is short enough for the receive rings to hold the frames that arrive meanwhile.
const LENIENCE_US: u64 = 20;

/// Sleep of a thread between bursts, microseconds: at 2 million frames per second 100 frames become due, fewer than may be
/// sent in a row.
const BETWEEN_US: u64 = 50;

/// Returns the time after its end in which a schedule may still send due frames, ticks.
pub(crate) fn grace(ticks_per_second: u64) -> u64 {
    ticks_of_us(GRACE_US, ticks_per_second)
}

/// Runs a trial over the lanes of one thread. The timetable bounds the run time, whatever the ports do.
pub(crate) fn run(lanes: &mut [Lane<'_>], times: &Timetable, signals: Signals<'_>) -> LoopHealth {
    learn(lanes, times, signals);
    settle(lanes, times, signals);
    if times.start > times.warm_up_start {
        begin(
            lanes,
            times,
            times.epoch.warm_up(),
            times.warm_up_start,
            times.start,
        );
        let mut ignored = LoopHealth::default();
        offer(
            lanes,
            (times.start, times.start),
            times,
            signals,
            &mut ignored,
        );
    }
    begin(lanes, times, times.epoch, times.start, times.end);
    let mut health = LoopHealth::default();
    offer(lanes, (times.end, times.limit), times, signals, &mut health);
    let ended = cycles::now();
    let has_enough = signals.stop_sending.load(Ordering::Relaxed);
    for lane in lanes.iter_mut() {
        if let Some(pacer) = &mut lane.pacer {
            if has_enough {
                pacer.cut(ended);
            }
            pacer.close();
        }
    }
    let drain_end = if times.ends_with_frames || has_enough {
        times.drain_end.min(ended.saturating_add(times.drain))
    } else {
        times.drain_end
    };
    drain(lanes, drain_end, times, signals, &mut health);
    for lane in lanes.iter_mut() {
        // Frames that arrived in time are received even if a stall lasted until the end.
        lane.end();
        lane.look_at_link();
        lane.end_series(cycles::now());
    }
    health.aborted = signals.is_aborted();
    health.ended = cycles::now();
    health
}

/// Returns the frames that a late lane may send in a row, if it sends every `of`-th frame of a schedule: as many as are due in
/// the longest time that is no stall, but no more than half of its transmit ring, so that the frames in flight fit the rings of the device.
fn catch_up(pace: Pace, of: u16, ring: u64) -> u64 {
    let rate_pps = pace.highest_rate_pps().unwrap_or(0.0);
    let frames = rate_pps / f64::from(of.max(1)) * (STALL_US as f64 / 1e6);
    whole(frames).min(ring / 2).max(CATCH_UP)
}

fn begin(lanes: &mut [Lane<'_>], times: &Timetable, epoch: Epoch, start: u64, end: u64) {
    let duration = end.saturating_sub(start);
    for lane in lanes {
        let of_port = lane.role.of_port;
        let pace = times.pace.of_lane(lane.role.share, lane.role.burst);
        let catch_up = catch_up(pace, of_port.of, lane.transmit_ring);
        let pacer = Pacer::new(pace, start, duration, times.ticks_per_second, catch_up);
        let low_rate = if lane.role.has_low_rate {
            LowRate::new(times.low_rate_pps, start, times.ticks_per_second)
        } else {
            LowRate::default()
        };
        let pacer = pacer
            .in_bursts(times.burst)
            .by_times(times.times.clone(), duration)
            .shared(of_port.index, of_port.of)
            .stamped_when_due(times.latency_is_from_due());
        lane.begin(epoch, pacer, low_rate);
        lane.series.begin(start, end, times.ticks_per_second);
    }
}

fn learn(lanes: &mut [Lane<'_>], times: &Timetable, signals: Signals<'_>) {
    for lane in lanes.iter_mut() {
        lane.writer.begin(times.epoch.warm_up());
    }
    loop {
        let mut done = true;
        for lane in lanes.iter_mut() {
            done &= lane.learning_turn();
            lane.receive(cycles::now());
        }
        if done || cycles::now() >= times.learning_end || signals.is_aborted() {
            break;
        }
    }
    for lane in lanes {
        lane.abandon_waiting();
        // Frames that arrived between trials do not belong to this trial.
        lane.empty_ring();
    }
}

/// Sends nothing until the warm-up, so that the device and the CPU are idle, but keeps the receive rings empty.
fn settle(lanes: &mut [Lane<'_>], times: &Timetable, signals: Signals<'_>) {
    if times.warm_up_start <= times.learning_end {
        return;
    }
    let spare = ticks_of_us(2 * PAUSE_US, times.ticks_per_second);
    let wake = times.warm_up_start.saturating_sub(spare);
    while cycles::now() < wake && !signals.is_aborted() {
        for lane in lanes.iter_mut() {
            lane.receive(cycles::now());
        }
        std::thread::sleep(std::time::Duration::from_micros(PAUSE_US));
    }
}

/// Operations of [`offer`] on a lane, as a trait so that tests record their order.
trait Offers {
    fn transmit(&mut self) -> u64;
    fn receive(&mut self, before: u64) -> u64;
    fn is_done(&self) -> bool;
    fn empty_ring(&mut self);
    fn look_at_link(&mut self);
    fn note_totals(&mut self, now: u64);
    fn settle(&mut self);
}

impl Offers for Lane<'_> {
    #[inline(always)]
    fn transmit(&mut self) -> u64 {
        Lane::transmit(self)
    }

    #[inline(always)]
    fn receive(&mut self, before: u64) -> u64 {
        Lane::receive(self, before)
    }

    #[inline(always)]
    fn is_done(&self) -> bool {
        Lane::is_done(self)
    }

    fn empty_ring(&mut self) {
        Lane::empty_ring(self);
    }

    fn look_at_link(&mut self) {
        Lane::look_at_link(self);
    }

    fn note_totals(&mut self, now: u64) {
        Lane::note_totals(self, now);
    }

    #[inline(always)]
    fn settle(&mut self) {
        Lane::settle(self);
    }
}

/// Offers frames until `end`. Frames still due are sent until `limit` at the latest.
fn offer(
    lanes: &mut [impl Offers],
    (end, limit): (u64, u64),
    times: &Timetable,
    signals: Signals<'_>,
    health: &mut LoopHealth,
) {
    let long_gap = ticks_of_us(100, times.ticks_per_second);
    let host_stall = ticks_of_us(HOST_STALL_US, times.ticks_per_second);
    let poll_interval = ticks_of_us(LINK_POLL_US, times.ticks_per_second);
    let began = cycles::now();
    let mut last = began;
    let mut next_poll = last.saturating_add(poll_interval);
    loop {
        health.note_host_gap(cycles::now().saturating_sub(last), host_stall);
        let (mut done, mut largest) = (true, 0);
        for lane in lanes.iter_mut() {
            largest = largest.max(lane.transmit()).max(lane.receive(last));
            done &= lane.is_done();
        }
        let now = cycles::now();
        let gap = now.saturating_sub(last);
        if health.is_long(gap, long_gap) {
            // Before anything else is sent.
            lanes.iter_mut().for_each(Offers::empty_ring);
        } else if largest == 0 {
            health.idle_ticks = health.idle_ticks.saturating_add(gap);
        }
        last = now;
        if now >= next_poll {
            next_poll = now.saturating_add(poll_interval);
            lanes.iter_mut().for_each(Offers::look_at_link);
            lanes.iter_mut().for_each(|lane| lane.note_totals(now));
        }
        if (now >= end && done) || now >= limit || signals.ends_sending() {
            health.offer_ticks = now.saturating_sub(began);
            lanes.iter_mut().for_each(Offers::settle);
            return;
        }
        if let Some(pause) = times.leave.after(largest) {
            lanes.iter_mut().for_each(Offers::settle);
            std::thread::sleep(pause);
            let woken = cycles::now();
            let gap = woken.saturating_sub(last);
            if health.is_long(gap, long_gap) {
                lanes.iter_mut().for_each(Offers::empty_ring);
            } else {
                health.idle_ticks = health.idle_ticks.saturating_add(gap);
            }
            last = woken;
        }
    }
}

/// Returns true if as many frames have arrived at these lanes as they sent.
fn is_complete(lanes: &[Lane<'_>]) -> bool {
    let sent: u64 = lanes.iter().map(Lane::written).sum();
    let arrived: u64 = lanes.iter().map(|lane| lane.received.arrived()).sum();
    arrived >= sent
}

fn drain(
    lanes: &mut [Lane<'_>],
    end: u64,
    times: &Timetable,
    signals: Signals<'_>,
    health: &mut LoopHealth,
) {
    let mut last = cycles::now();
    // True if frames may have arrived since the last comparison with those that were sent.
    let mut is_new = times.ends_when_complete;
    loop {
        let now = cycles::now();
        health.longest_host_gap = health.longest_host_gap.max(now.saturating_sub(last));
        if now >= end || signals.is_aborted() {
            return;
        }
        let received = lanes.iter_mut().map(|lane| lane.receive(now));
        let largest = received.max().unwrap_or_default();
        if times.ends_when_complete {
            if is_new && largest == 0 && is_complete(lanes) {
                return;
            }
            is_new = largest > 0;
        }
        if times.leave == Leave::BetweenBursts
            && let Some(pause) = times.leave.after(largest)
        {
            std::thread::sleep(pause);
        }
        last = cycles::now();
        health.longest_gap = health.longest_gap.max(last.saturating_sub(now));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn a_thread_sleeps_only_if_it_may_and_nothing_more_can_be_waiting() {
        let sleeps = |leave: Leave, frames| leave.after(frames).is_some();
        for frames in [0, 1, TX_BURST - 1, TX_BURST] {
            assert!(!sleeps(Leave::Never, frames));
            assert_eq!(sleeps(Leave::WhenIdle, frames), frames == 0);
            assert_eq!(sleeps(Leave::BetweenBursts, frames), frames < TX_BURST);
        }
    }

    #[test]
    fn a_late_lane_catches_up_on_100_us_or_half_a_ring() {
        assert_eq!(catch_up(Pace::Unpaced, 1, 8192), CATCH_UP);
        assert_eq!(catch_up(Pace::Rate(1e6), 1, 8192), CATCH_UP);
        assert_eq!(catch_up(Pace::Rate(20e6), 1, 8192), 2000);
        assert_eq!(catch_up(Pace::Rate(20e6), 2, 8192), 1000);
        let step = Pace::Step {
            rate_pps: 1e6,
            after_s: 1.0,
            then_pps: 30e6,
        };
        assert_eq!(catch_up(step, 1, 8192), 3000);
        // The rings of the device have no space for more.
        assert_eq!(catch_up(step, 1, 1024), 512);
        assert_eq!(catch_up(step, 1, 256), CATCH_UP);
    }

    /// A lane that records its calls. Its second reception takes longer than the limit of a long gap.
    struct Recorded<'a> {
        name: u8,
        calls: &'a RefCell<Vec<(u8, &'static str)>>,
        receptions: usize,
        stall: u64,
    }

    impl Offers for Recorded<'_> {
        fn transmit(&mut self) -> u64 {
            self.calls.borrow_mut().push((self.name, "transmit"));
            1
        }

        fn receive(&mut self, _: u64) -> u64 {
            self.calls.borrow_mut().push((self.name, "receive"));
            self.receptions += 1;
            let end = cycles::now() + self.stall;
            while self.receptions == 2 && cycles::now() < end {
                std::hint::spin_loop();
            }
            0
        }

        fn is_done(&self) -> bool {
            self.receptions >= 3
        }

        fn empty_ring(&mut self) {
            self.calls.borrow_mut().push((self.name, "empty ring"));
        }

        fn look_at_link(&mut self) {}

        fn note_totals(&mut self, _: u64) {}

        fn settle(&mut self) {}
    }

    #[test]
    fn after_a_stall_all_rings_are_emptied_before_lost_time_is_made_up_for() {
        let per_second = crate::clock::ticks_per_second();
        let now = cycles::now();
        let times = Timetable {
            epoch: Epoch::of_trial(1),
            pace: Pace::Unpaced,
            low_rate_pps: 0.0,
            burst: 1,
            times: None,
            latency_start: LatencyStart::Sent,
            ticks_per_second: per_second,
            learning_end: now,
            warm_up_start: now,
            start: now,
            end: now,
            limit: now + 60 * per_second,
            drain: 0,
            drain_end: now,
            ends_with_frames: false,
            ends_when_complete: false,
            leave: Leave::Never,
        };
        let flags = [const { AtomicBool::new(false) }; 2];
        let signals = Signals {
            abort: &flags[0],
            stop_sending: &flags[1],
        };
        let calls = RefCell::new(Vec::new());
        let stall = ticks_of_us(200, per_second);
        let lane = |name, stall| Recorded {
            name,
            calls: &calls,
            receptions: 0,
            stall,
        };
        let mut lanes = [lane(0, 0), lane(1, stall)];
        let mut health = LoopHealth::default();
        offer(
            &mut lanes,
            (times.end, times.limit),
            &times,
            signals,
            &mut health,
        );
        assert!(health.gaps_over_100us >= 1, "{health:?}");
        let calls = calls.into_inner();
        let received: Vec<usize> = (0..calls.len())
            .filter(|index| calls[*index] == (1, "receive"))
            .collect();
        let after_stall = &calls[received[1] + 1..];
        assert_eq!(
            after_stall[..3],
            [(0, "empty ring"), (1, "empty ring"), (0, "transmit")]
        );
    }

    #[test]
    fn stalls_of_the_host_are_summed_up() {
        let mut health = LoopHealth::default();
        for gap in [5, 11, 10, 30] {
            health.note_host_gap(gap, 10);
        }
        assert_eq!((health.host_stalls, health.host_stall_ticks), (2, 41));
        assert_eq!(health.longest_host_gap, 30);
    }

    #[test]
    fn a_gap_counts_as_long_above_the_limit_only() {
        let mut health = LoopHealth::default();
        assert!(!health.is_long(100, 100));
        assert!(health.is_long(101, 100));
        assert_eq!((health.gaps_over_100us, health.gap_ticks), (1, 101));
        assert_eq!(health.longest_gap, 101);
    }
}
