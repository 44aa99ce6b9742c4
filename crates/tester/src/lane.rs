// SPDX-License-Identifier: Apache-2.0
//! One port's part in a trial: what it sends, and what it makes of what it receives.

use std::path::Path;

use quietwire_dpdk::{Burst, Eal, Mempool, PortHandle, RxQueue, TxQueue, cycles};

use crate::backlog::{Backlog, Ring};
use crate::clock::ticks_per_second;
use crate::frame::Epoch;
use crate::latency::{Recorder, Scale};
use crate::pacer::Pacer;
use crate::seen::Seen;
use crate::watch::Slices;
use crate::writer::Writer;

/// Frames in a transmit burst at most. Short, so that a paced stream stays even.
pub(crate) const TX_BURST: u64 = 32;
/// Frames in a receive burst at most: what DPDK's memif driver copies at a time.
const RX_BURST: usize = 32;
/// Receive bursts in one turn at most, so that transmission is never held up for long.
const RX_BURSTS_A_TURN: usize = 8;

/// Which part of a trial a lane has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Role {
    /// Index of the port.
    pub(crate) port: usize,
    /// Part of the rate that the lane has, 1 where all have the same.
    pub(crate) share: f64,
    /// Whether the port sends more than its learning frames.
    pub(crate) transmits: bool,
    /// Whether the lane has the low-rate stream of its port.
    pub(crate) has_low_rate: bool,
    /// Frames of a burst that are the lane's.
    pub(crate) burst: u64,
    /// Frames per second that the lane receives if the device loses none; `None` if the trial has no rate.
    pub(crate) arrival_rate_pps: Option<f64>,
}

/// What the rings of a port are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// The receive ring.
    pub(crate) receive: Ring,
    /// A full queue of the peer loses the frame (shared memory) or makes the tester wait (a device).
    pub(crate) drops_when_full: bool,
}

/// What one port does in one trial, or one pair of its queues.
#[derive(Debug)]
pub(crate) struct Lane<'port> {
    rx: &'port mut RxQueue,
    tx: &'port mut TxQueue,
    pool: &'port Mempool,
    link: Link<'port>,
    scale: Scale,
    /// A full queue of the peer loses the frame (shared memory) or makes the tester wait (a device).
    drops_when_full: bool,
    pub(crate) role: Role,
    pub(crate) writer: Writer,
    pub(crate) pacer: Option<Pacer>,
    low_rate: LowRate,
    /// What the receive ring may have had no room for.
    backlog: Backlog,
    /// Receive turns that empty a full ring.
    turns_of_ring: u64,
    tx_burst: Burst,
    rx_burst: Burst,
    pub(crate) seen: Seen,
    pub(crate) sent: Sent,
    /// Frames sent by when they were, where that is asked for.
    pub(crate) slices: Option<Slices>,
}

/// What is seen of a port's link during a trial.
#[derive(Debug)]
struct Link<'port> {
    handle: &'port PortHandle,
    /// Looking takes a system call and more: the kernel counts by itself.
    changes_before: Option<u64>,
    is_up: bool,
    losses: u64,
}

/// How often the link of an interface of the kernel's has come and gone (Documentation/ABI/testing/sysfs-class-net); none
/// for other ports, whose link can only be looked at.
fn carrier_changes(handle: &PortHandle) -> Option<u64> {
    let interface = handle.uri().interface()?;
    let path = Path::new("/sys/class/net").join(interface);
    let changes = std::fs::read_to_string(path.join("carrier_changes")).ok()?;
    changes.trim().parse().ok()
}

impl<'port> Link<'port> {
    fn new(handle: &'port PortHandle) -> Self {
        Self {
            handle,
            changes_before: carrier_changes(handle),
            is_up: true,
            losses: 0,
        }
    }

    fn look(&mut self) {
        if self.changes_before.is_some() {
            return;
        }
        let is_up = self.handle.link_is_up();
        self.losses += u64::from(self.is_up && !is_up);
        self.is_up = is_up;
    }

    fn losses(&self) -> u64 {
        let changes = carrier_changes(self.handle).zip(self.changes_before);
        // Each loss is one change, and the return another.
        self.losses + changes.map_or(0, |(now, before)| now.saturating_sub(before).div_ceil(2))
    }
}

/// When frames of the low-rate stream are due, ticks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LowRate {
    next: u64,
    interval: u64,
    /// Frames that were due and left out, or sent late.
    missed: u64,
}

impl Default for LowRate {
    /// Never.
    fn default() -> Self {
        Self {
            next: u64::MAX,
            interval: 0,
            missed: 0,
        }
    }
}

impl LowRate {
    /// From `start` on, `rate_pps` in each second.
    pub(crate) fn new(rate_pps: f64, start: u64, ticks_per_second: u64) -> Self {
        if rate_pps <= 0.0 {
            return Self::default();
        }
        Self {
            next: start,
            interval: ((ticks_per_second as f64 / rate_pps) as u64).max(1),
            missed: 0,
        }
    }

    /// Goes on to the next one after `now`: what a stall made late is left out, so that frames stay apart. The one sent now
    /// may be late as well.
    fn advance(&mut self, now: u64, is_late: bool) {
        let passed = now.saturating_sub(self.next) / self.interval;
        self.next += (passed + 1) * self.interval;
        self.missed += passed + u64::from(is_late);
    }
}

/// What a lane sent in the counted part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) bursts: u64,
    pub(crate) late_bursts: u64,
    pub(crate) refused: u64,
    pub(crate) no_buffers: u64,
    /// When the latest burst left; 0 before the first.
    pub(crate) last_tick: u64,
    /// Ticks spent on making frames, without the driver's part.
    pub(crate) generate_ticks: u64,
    /// Ticks spent on looking at received frames, without the driver's part.
    pub(crate) check_ticks: u64,
    /// Frames received, of whatever kind.
    pub(crate) checked: u64,
    /// Time from each burst to the next, nanoseconds.
    pub(crate) gaps: Recorder,
    /// Of those times, what is in ones of [`PAUSE_NS`] and more, nanoseconds.
    pub(crate) pauses_ns: u64,
}

/// A time between two bursts that is a pause of the tester's where frames go out as fast as they can, nanoseconds.
const PAUSE_NS: u64 = 100_000;

impl<'port> Lane<'port> {
    pub(crate) fn new(
        eal: &Eal,
        (rx, tx, handle): (&'port mut RxQueue, &'port mut TxQueue, &'port PortHandle),
        pool: &'port Mempool,
        rings: Rings,
        role: Role,
        writer: Writer,
        seen: Seen,
    ) -> Self {
        Self {
            rx,
            tx,
            pool,
            link: Link::new(handle),
            scale: Scale::new(ticks_per_second()),
            drops_when_full: rings.drops_when_full,
            role,
            writer,
            pacer: None,
            low_rate: LowRate::default(),
            backlog: Backlog::new(rings.receive, role.arrival_rate_pps, ticks_per_second()),
            turns_of_ring: rings.receive.frames() / (RX_BURST * RX_BURSTS_A_TURN) as u64 + 1,
            tx_burst: Burst::new(eal),
            rx_burst: Burst::new(eal),
            seen,
            sent: Sent::default(),
            slices: None,
        }
    }

    /// Begins a part of the trial: from now on frames are of this epoch and on this schedule.
    pub(crate) fn begin(&mut self, epoch: Epoch, pacer: Pacer, low_rate: LowRate) {
        self.low_rate = low_rate;
        self.writer.begin(epoch);
        self.sent = Sent::default();
        self.backlog.begin(pacer.start());
        self.pacer = self.role.transmits.then_some(pacer);
    }

    /// True when nothing is left to send.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.pacer.as_ref().is_none_or(Pacer::is_done)
    }

    /// Sends what is due, a burst at most; returns how many frames were.
    #[inline(always)]
    pub(crate) fn transmit(&mut self) -> u64 {
        let Some(pacer) = &mut self.pacer else {
            return 0;
        };
        if !self.tx_burst.is_empty() {
            // Only where a full queue makes the tester wait.
            self.tx.send(&mut self.tx_burst);
            if !self.tx_burst.is_empty() {
                return 0;
            }
        }
        let now = cycles::now();
        let of_low_rate = now >= self.low_rate.next;
        let due = pacer.due(now, if of_low_rate { 1 } else { TX_BURST });
        if due.frames == 0 {
            return 0;
        }
        if !self.tx_burst.allocate(self.pool, due.frames as usize) {
            self.sent.no_buffers += due.frames;
            return due.frames;
        }
        if of_low_rate {
            self.low_rate.advance(now, due.late_frames > 0);
            self.writer.write_low_rate(&mut self.tx_burst, now);
        } else {
            self.writer.write(&mut self.tx_burst, now);
        }
        self.sent.generate_ticks += cycles::now().saturating_sub(now);
        if let Some(slices) = &mut self.slices {
            slices.add(now, due.frames);
        }
        self.tx.send(&mut self.tx_burst);
        self.sent.bursts += 1;
        self.sent.late_bursts += u64::from(due.late);
        if self.sent.last_tick > 0 {
            let gap = self.scale.ns(now.saturating_sub(self.sent.last_tick));
            self.sent.gaps.record(gap, 1);
            if gap >= PAUSE_NS {
                self.sent.pauses_ns += gap;
            }
        }
        self.sent.last_tick = now;
        if self.drops_when_full {
            self.sent.refused += self.tx_burst.len() as u64;
            self.tx_burst.free();
        }
        due.frames
    }

    /// Receives what has come, a few bursts at most; returns how many frames have. `before` is a tick not later than now.
    #[inline(always)]
    pub(crate) fn receive(&mut self, before: u64) -> u64 {
        let mut all = 0;
        for _ in 0..RX_BURSTS_A_TURN {
            let received = self.rx.receive(&mut self.rx_burst, RX_BURST);
            if received == 0 {
                self.saw_empty(before);
                return all;
            }
            // Frames of shared memory were copied by this CPU just now and are in its cache.
            if !self.drops_when_full {
                self.rx_burst.prefetch();
            }
            let now = cycles::now();
            self.seen.record(self.rx_burst.frames(), now);
            self.rx_burst.free();
            self.sent.check_ticks += cycles::now().saturating_sub(now);
            self.sent.checked += received as u64;
            all += received as u64;
            self.backlog.take(received as u64);
            if received < RX_BURST {
                self.saw_empty(before);
                return all;
            }
        }
        all
    }

    /// Takes note that the receive ring is empty.
    #[inline(always)]
    fn saw_empty(&mut self, before: u64) {
        if self.backlog.may_have_been_full() {
            self.backlog.end_row(cycles::now(), self.sent.checked);
        }
        self.backlog.begin_row(before);
    }

    /// Receives until the ring is empty, or as many frames as it holds were received.
    #[cold]
    pub(crate) fn empty_ring(&mut self) {
        for _ in 0..self.turns_of_ring {
            self.receive(cycles::now());
            if self.backlog.is_empty() {
                break;
            }
        }
    }

    /// Ends the receiving.
    pub(crate) fn end(&mut self) {
        self.empty_ring();
        self.saw_empty(cycles::now());
    }

    /// Returns the most frames of this part of the trial that may have found the receive ring full.
    pub(crate) fn missed_at_most(&self) -> u64 {
        self.backlog.missed_at_most()
    }

    /// Returns the frames of the low-rate stream that were left out or sent late.
    pub(crate) fn low_rate_missed(&self) -> u64 {
        self.low_rate.missed
    }

    /// Looks whether the port still has its link.
    #[cold]
    pub(crate) fn look_at_link(&mut self) {
        self.link.look();
    }

    /// How often the port lost its link since the trial began.
    pub(crate) fn link_losses(&self) -> u64 {
        self.link.losses()
    }

    /// Frees frames that wait for a full queue; returns how many. They were never offered.
    pub(crate) fn give_up(&mut self) -> u64 {
        let waiting = self.tx_burst.len() as u64;
        self.tx_burst.free();
        waiting
    }

    /// Sends the learning frames (RFC 2889, section 5.6.3): one from each source address, in bursts, each
    /// followed by a turn of receiving.
    pub(crate) fn learning_turn(&mut self) -> bool {
        let left = self.writer.learning_frames_left();
        if left > 0
            && self.tx_burst.is_empty()
            && self
                .tx_burst
                .allocate(self.pool, left.min(TX_BURST as usize))
        {
            self.writer.write_learning(&mut self.tx_burst);
        }
        self.tx.send(&mut self.tx_burst);
        self.tx_burst.is_empty() && self.writer.learning_frames_left() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_rate_stream_counts_what_a_stall_left_out_or_made_late() {
        // Every 100 ticks from 1000 on.
        let mut stream = LowRate::new(10.0, 1000, 1000);
        stream.advance(1000, false);
        stream.advance(1199, false);
        assert_eq!((stream.next, stream.missed), (1200, 0));
        // Those of 1300 and 1400 are left out, and that of 1200 is late.
        stream.advance(1450, true);
        assert_eq!((stream.next, stream.missed), (1500, 3));
    }
}
