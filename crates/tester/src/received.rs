// SPDX-License-Identifier: Apache-2.0
//! Frames received by one lane in a trial.

// Frames from outside: no cast loses a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss))]

use std::sync::Arc;

use quietwire_dpdk::{FilledSlots, FrameReader, RowTaken, cycles};
use quietwire_memory::Span;

use crate::checksums::Checksums;
use crate::frame::{Epoch, PlainFrame, SIGNATURE, Signature, read_row, signature_place};
use crate::latency::{Delays, Recorder, Sample, Samples, Scale};
use crate::narrow::low_u32;
use crate::tracker::{Arrival, Tracked, Trackers};
use crate::traffic::{Capture, Pattern};
use crate::trial::IpVersion;
use crate::watch::{Arrivals, Slices};

/// Octets from which a frame of a description is verified in place. A copy of a shorter one costs less.
const IN_PLACE_MIN: usize = 192;

/// Marks by which the frames of a trial are recognised.
#[derive(Clone, Debug)]
pub(crate) struct FrameIdentity {
    /// Offset of the signature in a frame.
    pub(crate) place: usize,
    /// Number of flows of one port: those of the load, then the low-rate stream.
    pub(crate) flows: usize,
    /// The port whose frames count here. Frames of other ports are misdirected: they are counted without latency.
    pub(crate) source: usize,
    /// Frames of the window of each flow (see [`Trackers::new`]).
    pub(crate) window: u64,
    /// Checksums of the frames.
    pub(crate) checksums: Checksums,
    /// Pattern of the payloads, if they have one.
    pub(crate) pattern: Option<Arc<Pattern>>,
    /// Replayed frames without a signature, and the port that sends them here.
    pub(crate) replayed: Option<(Arc<Capture>, usize)>,
}

/// Frames sent in one burst and received in one burst.
#[derive(Clone, Copy)]
struct ArrivalGroup {
    /// Transmit time, ticks.
    stamp: u64,
    /// Receive time, ticks.
    now: u64,
    count: u64,
}

/// Transmit and receive times of frames, if the run observes them.
#[derive(Debug, Default)]
pub(crate) struct Times {
    /// Frames received, by transmit time.
    pub(crate) slices: Option<Slices>,
    /// Receive times of frames.
    pub(crate) arrivals: Option<Arrivals>,
}

impl Times {
    #[inline(always)]
    fn note(&mut self, frames: ArrivalGroup) {
        if let Some(slices) = &mut self.slices {
            slices.add(frames.stamp, frames.count);
        }
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.came(frames.now);
        }
    }
}

/// Counters and statistics of the frames that a lane received.
#[derive(Debug)]
pub(crate) struct Received {
    epoch: Epoch,
    /// Offset of the signature in a frame.
    place: usize,
    source: usize,
    checksums: Checksums,
    /// The IP version if all frames are plain: they are verified where they lie.
    plain: Option<IpVersion>,
    /// Octets of headers and signature if frames are those of a description, and only checksums protect their payload: long ones are
    /// verified where they lie.
    described_head: Option<usize>,
    /// Pattern of the payloads, if they have one.
    pattern: Option<Arc<Pattern>>,
    replayed: Option<(Arc<Capture>, usize)>,
    replayed_observed: u32,
    scale: Scale,
    /// Number of flows of one port: those of the load, then the low-rate stream.
    pub(crate) flows: usize,
    /// By source port, then flow.
    pub(crate) trackers: Trackers,
    pub(crate) latency: Recorder,
    pub(crate) delays: Delays,
    /// Samples of the low-rate streams.
    pub(crate) samples: Samples,
    pub(crate) foreign: u64,
    /// Frames with this trial's mark, but of a port or flow that does not exist.
    pub(crate) unknown: u64,
    /// Frames that changed on the way.
    pub(crate) damaged: u64,
    /// Times in addition to the latency.
    pub(crate) times: Times,
}

impl Received {
    /// Creates the statistics for a trial with `ports` ports and `low_rate_frames` frames per low-rate stream.
    pub(crate) fn new(
        epoch: Epoch,
        low_rate_frames: usize,
        identity: FrameIdentity,
        ports: usize,
        ticks_per_second: u64,
    ) -> Self {
        let flows = identity.flows;
        let has_other_check = identity.pattern.is_some() || identity.replayed.is_some();
        let plain = identity.checksums.plain().filter(|ip| {
            // The place of the signature is that of plain frames.
            !has_other_check && identity.place == signature_place(*ip)
        });
        let head = identity.place.saturating_add(SIGNATURE);
        let is_in_place = !has_other_check && plain.is_none() && head <= IN_PLACE_MIN;
        Self {
            epoch,
            plain,
            described_head: is_in_place.then_some(head),
            place: identity.place,
            source: identity.source,
            checksums: identity.checksums,
            pattern: identity.pattern,
            replayed: identity.replayed,
            replayed_observed: 0,
            scale: Scale::new(ticks_per_second),
            flows,
            trackers: Trackers::new(ports.saturating_mul(flows), identity.window),
            latency: Recorder::default(),
            delays: Delays::new(ports.saturating_mul(flows)),
            samples: Samples::with_capacity(low_rate_frames.saturating_mul(ports)),
            foreign: 0,
            unknown: 0,
            damaged: 0,
            times: Times::default(),
        }
    }

    /// Returns the number of frames received, of any kind, without those of the learning and the warm-up.
    pub(crate) fn counted(&self) -> u64 {
        let others = [self.foreign, self.unknown, self.damaged];
        let of_flow = |flow: Tracked<'_>| [flow.received(), flow.duplicates(), flow.stale()];
        self.trackers.iter().flat_map(of_flow).chain(others).sum()
    }

    /// Returns the number of distinct frames that arrived from the port whose frames count here.
    pub(crate) fn arrived(&self) -> u64 {
        let first = self.source.saturating_mul(self.flows);
        let flows = first..first.saturating_add(self.flows);
        let flows = flows.filter_map(|flow| self.trackers.get(flow));
        flows.map(|flow| flow.received()).sum()
    }

    /// Records a frame of a capture. They have no numbers and are recognised by their last octets.
    #[inline(never)]
    fn record_replayed(&mut self, frame: &[u8]) {
        let Some((capture, port)) = &self.replayed else {
            return;
        };
        if capture.holds(frame) {
            let flow = port.wrapping_mul(self.flows);
            self.trackers.record(flow, self.replayed_observed);
            self.replayed_observed = self.replayed_observed.wrapping_add(1);
        } else {
            self.foreign = self.foreign.wrapping_add(1);
        }
    }

    /// Returns true for a frame of the tester that changed on the way. A frame that lost the signature's magic number is foreign.
    #[inline(always)]
    fn is_damaged(&self, frame: &[u8]) -> bool {
        let payload = frame.get(self.place..).unwrap_or_default();
        if !Signature::is_at_front(payload) {
            return false;
        }
        let is_intact = match &self.pattern {
            Some(pattern) => pattern.is_intact(payload),
            None => true,
        };
        !is_intact || !self.checksums.are_right(frame)
    }

    /// Records frames received together at tick `now`.
    #[inline(always)]
    pub(crate) fn record<'frame>(&mut self, frames: impl Iterator<Item = &'frame [u8]>, now: u64) {
        let mut turn = Turn::at(now);
        for frame in frames {
            self.record_frame(&mut turn, frame);
        }
        self.end(turn);
    }

    /// Records a frame that was received with the others of a turn.
    #[inline(always)]
    pub(crate) fn record_frame(&mut self, turn: &mut Turn, frame: &[u8]) {
        if self.replayed.is_some() {
            self.record_replayed(frame);
            return;
        }
        if self.is_damaged(frame) {
            let of_warm_up = Signature::is_of_warm_up(frame, self.place, self.epoch);
            self.damaged = self.damaged.wrapping_add(u64::from(!of_warm_up));
            return;
        }
        let Some(signature) =
            Signature::read(frame, self.place).filter(|signature| signature.epoch == self.epoch)
        else {
            let of_warm_up = Signature::is_of_warm_up(frame, self.place, self.epoch);
            self.foreign = self.foreign.wrapping_add(u64::from(!of_warm_up));
            return;
        };
        self.record_signature(turn, signature);
    }

    /// Records an undamaged frame of this part of the trial by its signature. Returns the index of its flow if the frame is one of the
    /// load from the port whose frames count here, and arrived in order.
    #[inline(always)]
    fn record_signature(&mut self, turn: &mut Turn, signature: Signature) -> Option<usize> {
        let flow = usize::from(signature.flow);
        let first = usize::from(signature.port).wrapping_mul(self.flows);
        let index = first.wrapping_add(flow);
        let is_known = flow < self.flows;
        let arrival = is_known.then(|| self.trackers.record(index, signature.sequence));
        let Some(arrival) = arrival.flatten() else {
            self.unknown = self.unknown.wrapping_add(1);
            return None;
        };
        let is_home = usize::from(signature.port) == self.source;
        if !is_home || matches!(arrival, Arrival::Duplicate | Arrival::Stale) {
            return None;
        }
        if signature.tick != turn.stamp {
            self.note(turn);
            turn.stamp = signature.tick;
            turn.count = 0;
            turn.delay_ns = self.scale.ns(turn.now.saturating_sub(turn.stamp));
        }
        turn.count = turn.count.wrapping_add(1);
        if flow.wrapping_add(1) == self.flows {
            self.samples.add(Sample {
                port: signature.port,
                sequence: signature.sequence,
                delay_ns: turn.delay_ns,
            });
            return None;
        }
        let tracker = self.trackers.get(index)?;
        let even = self
            .delays
            .record(index, tracker, signature.sequence, arrival, turn.delay_ns);
        turn.even = turn.even.wrapping_add(even);
        (arrival == Arrival::InOrder).then_some(index)
    }

    /// Records a frame in place. Returns false, and records nothing, if that takes a copy of the frame.
    #[inline(always)]
    fn record_in_place(&mut self, turn: &mut Turn, frame: Span<'_>) -> bool {
        let Some(ip) = self.plain else {
            return frame.len() >= IN_PLACE_MIN && self.record_described(turn, frame);
        };
        let Some(frame) = PlainFrame::read(frame, ip) else {
            return false;
        };
        if turn.row.is_continued_by(&frame) {
            turn.row.next = turn.row.next.wrapping_add(1);
            turn.row.count = turn.row.count.wrapping_add(1);
            return true;
        }
        self.begin_row(turn, &frame)
    }

    /// Records a long frame of a description in place. Returns false, and records nothing, if that takes a copy of the frame. Only its
    /// head is copied, and each octet is read once.
    // Not inlined, so that the loop over plain frames has all registers.
    #[inline(never)]
    fn record_described(&mut self, turn: &mut Turn, frame: Span<'_>) -> bool {
        let Some(length) = self.described_head else {
            return false;
        };
        let mut octets = [0_u8; IN_PLACE_MIN];
        let head = octets.get_mut(..length).unwrap_or_default();
        let (start, rest) = frame.split_at(length);
        start.copy_to(head);
        let signature = Signature::read(head, self.place);
        let Some(signature) = signature.filter(|it| it.epoch == self.epoch) else {
            return false;
        };
        if !self.checksums.are_right_in_place(head, rest) {
            return false;
        }
        self.record_signature(turn, signature);
        true
    }

    /// Records the first frame of a row. Returns false if it does not belong to this part of the trial.
    // Not inlined, so that the loop over the frames of a row has all registers.
    #[inline(never)]
    fn begin_row(&mut self, turn: &mut Turn, frame: &PlainFrame) -> bool {
        if turn.row.count > 0 {
            turn.short_rows = 0;
        } else if turn.row.identity != 0 {
            turn.short_rows = turn.short_rows.saturating_add(1);
        }
        self.end_row(turn);
        let signature = frame.signature();
        if signature.epoch != self.epoch {
            return false;
        }
        if let Some(index) = self.record_signature(turn, signature) {
            turn.row = Row {
                identity: frame.identity,
                next: frame.sequence.wrapping_add(1),
                tick: frame.tick,
                index,
                count: 0,
            };
        }
        true
    }

    /// Records the frames of a row after its first.
    #[inline(always)]
    fn end_row(&mut self, turn: &mut Turn) {
        let row = std::mem::take(&mut turn.row);
        if row.count == 0 {
            return;
        }
        if let Some(first) = self.trackers.record_row(row.index, row.count) {
            self.delays
                .record_row(row.index, first, row.count, turn.delay_ns);
            turn.count = turn.count.wrapping_add(row.count);
            turn.even = turn.even.wrapping_add(row.count);
        }
    }

    /// Records the latency of the frames since the last change of the time stamp.
    #[inline(always)]
    fn note(&mut self, turn: &Turn) {
        let Turn {
            stamp, now, count, ..
        } = *turn;
        if count > 0 {
            self.latency.record(turn.delay_ns, count);
            self.times.note(ArrivalGroup { stamp, now, count });
        }
    }

    /// Ends a turn.
    #[inline(always)]
    pub(crate) fn end(&mut self, turn: Turn) {
        self.note(&turn);
        self.delays.record_even(turn.even);
    }
}

/// Frames received together. Frames of one transmit burst carry the same time stamp: their latency is computed and recorded once.
#[derive(Debug)]
pub(crate) struct Turn {
    stamp: u64,
    now: u64,
    delay_ns: u64,
    count: u64,
    even: u64,
    row: Row,
    /// Rows of a single frame since the last that had more.
    short_rows: u32,
}

/// Rows of a single frame after which the next frames of a turn are not expected to make longer ones.
const SHORT_ROWS_MAX: u32 = 2;

/// Frames of a turn that follow one another in the same flow, in order and with the same time stamp. The first was recorded by itself,
/// the others are recorded together at the end of the row.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// That of the frames ([`PlainFrame::identity`]); 0 if there is no row.
    identity: u64,
    /// Sequence number of the next frame.
    next: u32,
    tick: u64,
    /// Index of the flow.
    index: usize,
    /// Frames after the first.
    count: u64,
}

impl Row {
    #[inline(always)]
    fn is_continued_by(&self, frame: &PlainFrame) -> bool {
        frame.identity == self.identity && frame.sequence == self.next && frame.tick == self.tick
    }
}

impl Turn {
    /// Returns a turn of frames received at tick `now`.
    #[inline(always)]
    pub(crate) fn at(now: u64) -> Self {
        Self {
            stamp: now,
            now,
            delay_ns: 0,
            count: 0,
            even: 0,
            row: Row::default(),
            short_rows: 0,
        }
    }
}

/// Reader of the frames of a turn in a ring.
pub(crate) struct Reader<'r> {
    received: &'r mut Received,
    turn: Turn,
}

impl<'r> Reader<'r> {
    #[inline(always)]
    pub(crate) fn new(received: &'r mut Received) -> Self {
        Self {
            received,
            turn: Turn::at(0),
        }
    }

    /// Ends the turn. Returns the tick at which its frames were received.
    #[inline(always)]
    pub(crate) fn end(mut self) -> u64 {
        let now = self.turn.now;
        self.received.end_row(&mut self.turn);
        self.received.end(self.turn);
        now
    }
}

impl FrameReader for Reader<'_> {
    #[inline(always)]
    fn begin(&mut self) {
        self.turn = Turn::at(cycles::now());
    }

    #[inline(always)]
    fn read_in_place(&mut self, frame: Span<'_>) -> bool {
        self.received.record_in_place(&mut self.turn, frame)
    }

    #[inline(always)]
    fn read(&mut self, frame: &[u8]) {
        self.received.end_row(&mut self.turn);
        self.received.record_frame(&mut self.turn, frame);
    }

    #[inline(always)]
    fn read_row(&mut self, slots: &mut impl FilledSlots, most: usize) -> RowTaken {
        let row = self.turn.row;
        let Some(ip) = self.received.plain.filter(|_| row.identity != 0) else {
            return RowTaken::default();
        };
        let taken = read_row(
            slots,
            most,
            ip,
            #[inline(always)]
            |frame| row.is_continued_by(frame),
        );
        let frames = taken.frames as u64;
        self.turn.row.next = row.next.wrapping_add(low_u32(frames));
        self.turn.row.count = row.count.wrapping_add(frames);
        taken
    }

    #[inline(always)]
    fn one_by_one(&self) -> usize {
        if self.received.plain.is_some() && self.turn.short_rows < SHORT_ROWS_MAX {
            1
        } else {
            usize::MAX
        }
    }
}

#[cfg(test)]
mod tests;
