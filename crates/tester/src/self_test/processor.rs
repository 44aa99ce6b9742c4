// SPDX-License-Identifier: Apache-2.0
//! Frame processing of the device: applies the script to each frame and counts the outcome.

use std::collections::BTreeMap;

use quietwire_base::unix_time_ns;
use quietwire_dpdk::{Eal, Mbuf, Mempool, TxQueue, cycles};

use super::connection_device::{ConnectionDevice, ConnectionLedger, ConnectionScript, Disposition};
use super::ledger::{DamageEffect, Ledger, Tally};
use super::line::{DelayLine, FrameFacts, Kind};
use super::link::Orders;
use super::script::{Action, Draws, Plan};
use crate::clock::{ticks_of_us, ticks_per_second};
use crate::frame::{Epoch, Signature, signature_place};
use crate::latency::Scale;
use crate::narrow::index;
use crate::trial::IpVersion;

/// Time without received frames after which a direction releases its held frames, microseconds.
const IDLE_US: u64 = 50_000;
/// One in this many damaged frames is damaged in its last octet.
const LAST_OCTET_EVERY: u64 = 4;

/// Delayed frames of one direction, ordered by their release.
#[derive(Debug, Default)]
struct DelayedFrames<'a> {
    /// Key: number of received frames at which the frame is released, and a serial number.
    frames: BTreeMap<(u64, u64), (Mbuf<'a>, FrameFacts)>,
    serial: u64,
}

impl<'a> DelayedFrames<'a> {
    fn insert(&mut self, release: u64, frame: Mbuf<'a>, note: FrameFacts) {
        self.serial = self.serial.saturating_add(1);
        self.frames.insert((release, self.serial), (frame, note));
    }

    /// Takes out the next frame that is released at `received` or earlier.
    #[inline(always)]
    fn released(&mut self, received: u64) -> Option<(Mbuf<'a>, FrameFacts)> {
        let entry = self.frames.first_entry()?;
        (entry.key().0 <= received).then(|| entry.remove())
    }
}

/// One direction of a trial.
#[derive(Debug)]
struct Direction<'a> {
    plan: Plan,
    draws: Draws,
    held: DelayedFrames<'a>,
    tally: Tally,
    /// Frames damaged so far.
    damages: u64,
    /// One more than the highest sequence number forwarded.
    next: u32,
    /// When the last frame was received, ticks.
    last: u64,
    latency_min: u64,
    latency_max: u64,
    latency_sum: u64,
}

impl Direction<'_> {
    fn new(orders: &Orders, side: usize) -> Self {
        const DAMAGES: u64 = 1 << 32;
        Self {
            plan: Plan::new(&orders.script, side as u64),
            draws: Draws::new(orders.script.seed, DAMAGES | side as u64),
            held: DelayedFrames::default(),
            tally: Tally::default(),
            damages: 0,
            next: 0,
            last: 0,
            latency_min: u64::MAX,
            latency_max: 0,
            latency_sum: 0,
        }
    }

    /// Counts a frame that was sent at tick `now`.
    #[inline(always)]
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counters of 64 bits: no trial has so many frames or ticks"
    )]
    fn count(&mut self, note: &FrameFacts, now: u64) {
        let ahead = note.sequence.wrapping_sub(self.next).cast_signed();
        let tally = &mut self.tally;
        match note.kind {
            Kind::Forwarded => {
                tally.forwarded += 1;
                if ahead < 0 {
                    tally.reordered += 1;
                } else {
                    self.next = note.sequence.wrapping_add(1);
                }
                let latency = now.saturating_sub(note.tick);
                self.latency_min = self.latency_min.min(latency);
                self.latency_max = self.latency_max.max(latency);
                self.latency_sum += latency;
            }
            Kind::Copy => {
                tally.copies += 1;
                let distance = u64::from(ahead.unsigned_abs());
                tally.copy_distance_max = tally.copy_distance_max.max(distance);
            }
            Kind::Damaged => tally.damaged += 1,
            Kind::Unrecognisable => tally.unrecognisable += 1,
            Kind::Misdirected => tally.misdirected += 1,
            Kind::Uncounted => {}
        }
    }

    /// Counts a frame that was not sent.
    fn count_unsent(&mut self, note: &FrameFacts) {
        // The original of a copy is counted separately.
        let is_counted = !matches!(note.kind, Kind::Copy | Kind::Uncounted);
        self.tally.unsent = self.tally.unsent.saturating_add(u64::from(is_counted));
    }

    /// Flips a bit of a frame. Returns the kind of the damaged frame.
    fn damage(&mut self, frame: &mut Mbuf<'_>, place: usize) -> Kind {
        let Some(octets) = frame.octets_mut() else {
            return Kind::Forwarded;
        };
        let is_last = self.damages.is_multiple_of(LAST_OCTET_EVERY);
        self.damages = self.damages.saturating_add(1);
        let last = octets.len().saturating_sub(1);
        let bits = (octets.len() as u64).saturating_mul(8);
        let bit = index(self.draws.below(bits));
        let at = if is_last { last } else { bit / 8 };
        if let Some(octet) = octets.get_mut(at) {
            *octet ^= 1 << (bit % 8);
        }
        match DamageEffect::of(at, place) {
            DamageEffect::Ethernet => {
                let changes = self.tally.ethernet_changes;
                self.tally.ethernet_changes = changes.saturating_add(1);
                Kind::Forwarded
            }
            DamageEffect::Magic => Kind::Unrecognisable,
            DamageEffect::Checked => Kind::Damaged,
        }
    }

    fn finish(mut self, scale: Scale) -> Tally {
        for (_, note) in std::mem::take(&mut self.held.frames).into_values() {
            self.count_unsent(&note);
        }
        if self.tally.forwarded > 0 {
            self.tally.latency_min_ns = scale.ns(self.latency_min);
            self.tally.latency_max_ns = scale.ns(self.latency_max);
            self.tally.latency_sum_ns = scale.ns(self.latency_sum);
        }
        self.tally
    }
}

/// State of a trial.
#[derive(Debug)]
struct ProcessorTrial<'a> {
    epoch: Epoch,
    /// Ticks for which the device holds each frame.
    delay: u64,
    directions: [Direction<'a>; 2],
    /// When the last frame was sent, ticks; 0 before the first.
    last_sent: u64,
}

/// Frame processing between the two ports.
#[derive(Debug)]
pub(super) struct FrameProcessor<'a> {
    eal: &'a Eal,
    pool: &'a Mempool,
    /// Octets from the start of a frame to its signature.
    place: usize,
    work: Option<ProcessorTrial<'a>>,
    /// Stateful device of a trial with connections.
    connection_device: Option<ConnectionDevice>,
    /// When the device began its last turn, ticks.
    turned: u64,
    /// By the port that sends them.
    lines: [DelayLine; 2],
}

impl<'a> FrameProcessor<'a> {
    pub(super) fn new(eal: &'a Eal, pool: &'a Mempool) -> Self {
        Self {
            eal,
            pool,
            place: signature_place(IpVersion::V4),
            work: None,
            connection_device: None,
            turned: 0,
            lines: [DelayLine::new(eal), DelayLine::new(eal)],
        }
    }

    /// Begins a trial.
    pub(super) fn begin(&mut self, orders: &Orders) {
        self.work = Some(ProcessorTrial {
            epoch: Epoch::of_trial(orders.trial),
            delay: ticks(orders.script.delay_us),
            directions: [0, 1].map(|side| Direction::new(orders, side)),
            last_sent: 0,
        });
    }

    /// Ends a trial. Frames still held are dropped and counted.
    pub(super) fn finish(&mut self) -> Ledger {
        let mut work = self.work.take();
        for line in &mut self.lines {
            line.clear(|note| {
                let directions = work.as_mut().map(|work| &mut work.directions);
                if let Some(direction) = directions.and_then(|all| all.get_mut(note.side)) {
                    direction.count_unsent(note);
                }
            });
        }
        let Some(work) = work else {
            return Ledger::default();
        };
        let scale = Scale::new(ticks_per_second());
        let ago_ns = scale.ns(cycles::now().saturating_sub(work.last_sent));
        Ledger {
            directions: work.directions.map(|direction| direction.finish(scale)),
            last_sent_unix_ns: if work.last_sent > 0 {
                unix_time_ns().saturating_sub(ago_ns)
            } else {
                0
            },
        }
    }

    /// Begins a trial with connections.
    pub(super) fn begin_connections(&mut self, script: ConnectionScript) {
        self.connection_device = Some(ConnectionDevice::new(script));
        self.turned = cycles::now();
    }

    /// Ends a trial with connections.
    pub(super) fn finish_connections(&mut self) -> ConnectionLedger {
        self.connection_device
            .take()
            .map_or_else(ConnectionLedger::default, ConnectionDevice::into_ledger)
    }

    /// Notes the begin of a turn.
    #[inline(always)]
    pub(super) fn note_turn(&mut self) {
        if let Some(device) = &mut self.connection_device {
            let now = cycles::now();
            let gap = now.saturating_sub(self.turned);
            device.note_gap(Scale::new(ticks_per_second()).ns(gap));
            self.turned = now;
        }
    }

    /// Lets the stateful device decide on a frame.
    #[cold]
    fn forward_by_connections(&mut self, side: usize, mut frame: Mbuf<'_>, now: u64) {
        let octets = frame.octets_mut();
        let disposition = match (&mut self.connection_device, octets) {
            (Some(device), Some(octets)) => device.judge(octets),
            _ => Disposition::Forward,
        };
        let to = match disposition {
            Disposition::Forward => side ^ 1,
            Disposition::Return => side,
            Disposition::Drop => return,
        };
        if let Some(line) = self.lines.get_mut(to) {
            line.push(frame, FrameFacts::UNCOUNTED, now);
        }
    }

    /// Applies the script to a frame received on port `side` at tick `now`.
    #[inline(always)]
    pub(super) fn take(&mut self, side: usize, frame: Mbuf<'_>, now: u64) {
        if self.connection_device.is_some() {
            self.forward_by_connections(side, frame, now);
            return;
        }
        let opposite = side ^ 1;
        let place = self.place;
        let counted = self.work.as_mut().and_then(|work| {
            let signature = Signature::read(frame.octets(), place)?;
            (signature.epoch == work.epoch).then_some((work, signature))
        });
        let Some((work, signature)) = counted else {
            if let Some(line) = self.lines.get_mut(opposite) {
                line.push(frame, FrameFacts::UNCOUNTED, now);
            }
            return;
        };
        let due = now.saturating_add(work.delay);
        let note = FrameFacts {
            kind: Kind::Forwarded,
            side,
            sequence: signature.sequence,
            tick: signature.tick,
        };
        let [left, right] = &mut self.lines;
        let (on, back) = if side == 0 {
            (right, left)
        } else {
            (left, right)
        };
        let Some(direction) = work.directions.get_mut(side) else {
            return;
        };
        direction.tally.received = direction.tally.received.saturating_add(1);
        direction.last = now;
        match direction.plan.next_action() {
            None => on.push(frame, note, due),
            Some(action) => {
                let context = ActionContext {
                    eal: self.eal,
                    pool: self.pool,
                    place,
                    due,
                };
                context.act(action, direction, (frame, note), on, back);
            }
        }
        while let Some((frame, note)) = direction.held.released(direction.tally.received) {
            on.push(frame, note, due);
        }
    }

    /// Releases the held frames of a direction that receives no more frames.
    pub(super) fn release_idle(&mut self) {
        let Some(work) = &mut self.work else {
            return;
        };
        let now = cycles::now();
        let [left, right] = &mut self.lines;
        for (direction, line) in work.directions.iter_mut().zip([right, left]) {
            if now.saturating_sub(direction.last) < ticks(IDLE_US) {
                continue;
            }
            while let Some((frame, note)) = direction.held.released(u64::MAX) {
                line.push(frame, note, now);
            }
        }
    }

    /// Sends the frames due on port `side`.
    #[inline(always)]
    pub(super) fn send(&mut self, side: usize, tx: &mut TxQueue) {
        let Some(line) = self.lines.get_mut(side) else {
            return;
        };
        let work = &mut self.work;
        line.send(tx, |note, now| {
            if note.kind == Kind::Uncounted {
                return;
            }
            let Some(work) = work.as_mut() else { return };
            work.last_sent = now;
            if let Some(direction) = work.directions.get_mut(note.side) {
                direction.count(note, now);
            }
        });
    }
}

/// Context of an action.
struct ActionContext<'a> {
    eal: &'a Eal,
    pool: &'a Mempool,
    place: usize,
    due: u64,
}

impl<'a> ActionContext<'a> {
    #[cold]
    fn act(
        &self,
        action: Action,
        direction: &mut Direction<'a>,
        (mut frame, note): (Mbuf<'_>, FrameFacts),
        on: &mut DelayLine,
        back: &mut DelayLine,
    ) {
        let received = direction.tally.received;
        let of_kind = |kind| FrameFacts { kind, ..note };
        match action {
            Action::Lose => direction.tally.lost = direction.tally.lost.saturating_add(1),
            Action::Misdirect => back.push(frame, of_kind(Kind::Misdirected), self.due),
            Action::Damage => {
                let kind = direction.damage(&mut frame, self.place);
                on.push(frame, of_kind(kind), self.due);
            }
            Action::Stall { length_us } => {
                direction.tally.stalls = direction.tally.stalls.saturating_add(1);
                on.push(frame, note, self.due.saturating_add(ticks(length_us)));
            }
            // Without a buffer for a copy, the frame is forwarded like any other.
            Action::Duplicate { after } => {
                if let Some(copy) = self.copy(&frame) {
                    let copied = of_kind(Kind::Copy);
                    let release = received.saturating_add(after);
                    direction.held.insert(release, copy, copied);
                }
                on.push(frame, note, self.due);
            }
            Action::Reorder { after } => match self.copy(&frame) {
                Some(copy) => {
                    let release = received.saturating_add(after);
                    direction.held.insert(release, copy, note);
                }
                None => on.push(frame, note, self.due),
            },
        }
    }

    fn copy(&self, frame: &Mbuf<'_>) -> Option<Mbuf<'a>> {
        Mbuf::new(self.eal, self.pool, frame.octets())
    }
}

fn ticks(microseconds: u64) -> u64 {
    ticks_of_us(microseconds, ticks_per_second())
}
