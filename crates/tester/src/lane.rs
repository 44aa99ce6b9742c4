// SPDX-License-Identifier: Apache-2.0
//! One port's part in a trial: what it sends, and what it makes of what it receives.

use std::path::Path;

use quietwire_dpdk::{Burst, Eal, Mempool, PortHandle, RxQueue, TxQueue, cycles};

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
}

/// What the rings of a port are like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rings {
    /// Descriptors of a receive ring.
    pub(crate) receive_size: u16,
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
    /// When the current part of the trial began, ticks.
    began: u64,
    /// Frames that the receive ring holds.
    receive_ring_size: u64,
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
}

impl Default for LowRate {
    /// Never.
    fn default() -> Self {
        Self {
            next: u64::MAX,
            interval: 0,
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
        }
    }

    /// Goes on to the next one after `now`: what a stall made late is left out, so that frames stay apart.
    fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.next) / self.interval;
        self.next += (passed + 1) * self.interval;
    }
}

/// What a lane sent in the counted part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) bursts: u64,
    pub(crate) late_bursts: u64,
    pub(crate) refused: u64,
    pub(crate) no_buffers: u64,
    /// Frames that may have found the receive ring full, because the tester did not receive.
    pub(crate) missed_at_most: u64,
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
            began: 0,
            receive_ring_size: u64::from(rings.receive_size),
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
        self.began = pacer.start();
        self.pacer = self.role.transmits.then_some(pacer);
    }

    /// True when nothing is left to send.
    #[inline(always)]
    pub(crate) fn is_done(&self) -> bool {
        self.pacer.as_ref().is_none_or(Pacer::is_done)
    }

    /// Sends what is due; true when something was.
    #[inline(always)]
    pub(crate) fn transmit(&mut self) -> bool {
        let Some(pacer) = &mut self.pacer else {
            return false;
        };
        if !self.tx_burst.is_empty() {
            // Only where a full queue makes the tester wait.
            self.tx.send(&mut self.tx_burst);
            if !self.tx_burst.is_empty() {
                return false;
            }
        }
        let now = cycles::now();
        let of_low_rate = now >= self.low_rate.next;
        let due = pacer.due(now, if of_low_rate { 1 } else { TX_BURST });
        if due.frames == 0 {
            return false;
        }
        if !self.tx_burst.allocate(self.pool, due.frames as usize) {
            self.sent.no_buffers += due.frames;
            return true;
        }
        if of_low_rate {
            self.low_rate.advance(now);
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
        true
    }

    /// Receives what has come; true when something has.
    #[inline(always)]
    pub(crate) fn receive(&mut self) -> bool {
        for turn in 0..RX_BURSTS_A_TURN {
            let received = self.rx.receive(&mut self.rx_burst, RX_BURST);
            if received == 0 {
                return turn > 0;
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
            if received < RX_BURST {
                return true;
            }
        }
        true
    }

    /// Takes note of a time of `gap` ticks, until `now`, in which nothing was received, and empties the receive ring before
    /// anything else is sent.
    ///
    /// At the rate at which frames came before, the ring has been full from some moment on: what came then was lost by the
    /// tester, even if the device dropped it.
    #[cold]
    pub(crate) fn was_away(&mut self, gap: u64, now: u64) {
        let before = now.saturating_sub(self.began).saturating_sub(gap);
        if before > 0 {
            let came = self.sent.checked as f64 / before as f64 * gap as f64;
            let room = self.receive_ring_size.saturating_sub(RX_BURST as u64);
            self.sent.missed_at_most += (came as u64).saturating_sub(room);
        }
        for _ in 0..self.receive_ring_size / (RX_BURST * RX_BURSTS_A_TURN) as u64 {
            if !self.receive() {
                break;
            }
        }
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
