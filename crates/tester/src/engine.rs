// SPDX-License-Identifier: Apache-2.0
//! The loop of one tester thread: the parts of a trial, one after the other, over the lanes it was given.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use quietwire_dpdk::cycles;

use crate::frame::Epoch;
use crate::lane::{Lane, LowRate, TX_BURST};
use crate::pacer::{Pace, Pacer, Times};

/// Instants and rates of a trial, in ticks of the time stamp counter; the same for all threads.
#[derive(Clone, Debug)]
pub(crate) struct Timetable {
    pub(crate) epoch: Epoch,
    /// Rate of each lane, in order of lanes over all threads.
    pub(crate) pace: Pace,
    /// Frames per second of each lane's low-rate stream.
    pub(crate) low_rate_pps: f64,
    /// Frames that are due together.
    pub(crate) burst: u16,
    /// Times of frames, instead of the rate.
    pub(crate) times: Option<Arc<Times>>,
    pub(crate) ticks_per_second: u64,
    /// Until when learning frames are sent.
    pub(crate) learning_end: u64,
    /// When the warm-up begins.
    pub(crate) warm_up_start: u64,
    /// When the counted part begins.
    pub(crate) start: u64,
    /// When its last frame is due.
    pub(crate) end: u64,
    /// When receiving ends.
    pub(crate) drain_end: u64,
}

/// How a thread's own loop went in the counted part.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopHealth {
    pub(crate) longest_gap: u64,
    pub(crate) gaps_over_100us: u64,
    pub(crate) gap_ticks: u64,
    pub(crate) aborted: bool,
    /// When the thread was through, ticks.
    pub(crate) ended: u64,
}

/// Frames that a late tester may send in a row to catch up, beside the burst that is due anyway.
pub(crate) const CATCH_UP: u64 = 8 * TX_BURST;

/// How often the links are looked at, microseconds.
const LINK_LOOK_US: u64 = 5_000;

const MICROSECOND_HZ: u64 = 1_000_000;

/// How long a schedule may overrun its end to send what is due, microseconds.
const GRACE_US: u64 = 500;

/// How long the tester sleeps at a time while the device settles, microseconds.
const PAUSE_US: u64 = 500;

/// Runs a trial over the lanes of one thread. Bounded in time by the timetable whatever the ports do.
pub(crate) fn run(lanes: &mut [Lane<'_>], times: &Timetable, abort: &AtomicBool) -> LoopHealth {
    learn(lanes, times, abort);
    settle(lanes, times, abort);
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
            times.start,
            times.start,
            abort,
            &mut ignored,
            times.ticks_per_second,
        );
    }
    begin(lanes, times, times.epoch, times.start, times.end);
    let mut health = LoopHealth::default();
    let grace = times.ticks_per_second / MICROSECOND_HZ * GRACE_US;
    offer(
        lanes,
        times.end,
        times.end + grace,
        abort,
        &mut health,
        times.ticks_per_second,
    );
    for lane in lanes.iter_mut() {
        if let Some(pacer) = &mut lane.pacer {
            pacer.close();
        }
    }
    drain(lanes, times.drain_end, abort);
    lanes.iter_mut().for_each(Lane::look_at_link);
    health.aborted = abort.load(Ordering::Relaxed);
    health.ended = cycles::now();
    health
}

fn begin(lanes: &mut [Lane<'_>], times: &Timetable, epoch: Epoch, start: u64, end: u64) {
    for lane in lanes {
        let pacer = Pacer::new(
            times.pace.share(lane.role.share),
            start,
            end - start,
            times.ticks_per_second,
            CATCH_UP,
        );
        let low_rate = if lane.role.has_low_rate {
            LowRate::new(times.low_rate_pps, start, times.ticks_per_second)
        } else {
            LowRate::default()
        };
        let pacer = pacer
            .in_bursts(times.burst)
            .by_times(times.times.clone(), end - start);
        lane.begin(epoch, pacer, low_rate);
    }
}

fn learn(lanes: &mut [Lane<'_>], times: &Timetable, abort: &AtomicBool) {
    for lane in lanes.iter_mut() {
        lane.writer.begin(times.epoch.warm_up());
    }
    loop {
        let mut done = true;
        for lane in lanes.iter_mut() {
            done &= lane.learning_turn();
            lane.receive();
        }
        if done || cycles::now() >= times.learning_end || abort.load(Ordering::Relaxed) {
            break;
        }
    }
    for lane in lanes {
        lane.give_up();
    }
}

/// Leaves the device and the CPU alone until the warm-up, but keeps the receive rings empty.
fn settle(lanes: &mut [Lane<'_>], times: &Timetable, abort: &AtomicBool) {
    if times.warm_up_start <= times.learning_end {
        return;
    }
    let spare = times.ticks_per_second / MICROSECOND_HZ * 2 * PAUSE_US;
    let wake = times.warm_up_start.saturating_sub(spare);
    while cycles::now() < wake && !abort.load(Ordering::Relaxed) {
        for lane in lanes.iter_mut() {
            lane.receive();
        }
        std::thread::sleep(std::time::Duration::from_micros(PAUSE_US));
    }
}

/// Offers frames until `end`, and what is still due until `limit` at the latest.
fn offer(
    lanes: &mut [Lane<'_>],
    end: u64,
    limit: u64,
    abort: &AtomicBool,
    health: &mut LoopHealth,
    hz: u64,
) {
    let long_gap = hz / MICROSECOND_HZ * 100;
    let look_interval = hz / MICROSECOND_HZ * LINK_LOOK_US;
    let mut last = cycles::now();
    let mut next_look = last + look_interval;
    loop {
        let mut done = true;
        for lane in lanes.iter_mut() {
            lane.transmit();
            lane.receive();
            done &= lane.is_done();
        }
        let now = cycles::now();
        let gap = now - last;
        last = now;
        if gap > health.longest_gap {
            health.longest_gap = gap;
        }
        if gap > long_gap {
            health.gaps_over_100us += 1;
            health.gap_ticks += gap;
        }
        if now >= next_look {
            next_look = now + look_interval;
            lanes.iter_mut().for_each(Lane::look_at_link);
        }
        if (now >= end && done) || now >= limit || abort.load(Ordering::Relaxed) {
            return;
        }
    }
}

fn drain(lanes: &mut [Lane<'_>], end: u64, abort: &AtomicBool) {
    while cycles::now() < end && !abort.load(Ordering::Relaxed) {
        for lane in lanes.iter_mut() {
            lane.receive();
        }
    }
}
