// SPDX-License-Identifier: Apache-2.0
//! Frames received by one lane in a trial.

use std::sync::Arc;

use quietwire_dpdk::{FrameReader, cycles};

use crate::checksums::Checksums;
use crate::frame::{Epoch, Signature};
use crate::latency::{Delays, Recorder, Sample, Samples, Scale};
use crate::tracker::{Arrival, Tracked, Trackers};
use crate::traffic::{Capture, Pattern};
use crate::watch::{Arrivals, Slices};

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
    /// Pattern of the payloads, if they have one.
    pattern: Option<Arc<Pattern>>,
    replayed: Option<(Arc<Capture>, usize)>,
    replayed_seen: u32,
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
        Self {
            epoch,
            place: identity.place,
            source: identity.source,
            checksums: identity.checksums,
            pattern: identity.pattern,
            replayed: identity.replayed,
            replayed_seen: 0,
            scale: Scale::new(ticks_per_second),
            flows,
            trackers: Trackers::new(ports * flows, identity.window),
            latency: Recorder::default(),
            delays: Delays::new(ports * flows),
            samples: Samples::with_capacity(low_rate_frames * ports),
            foreign: 0,
            unknown: 0,
            damaged: 0,
            times: Times::default(),
        }
    }

    /// Returns the number of frames received, of any kind, without those of the learning and the warm-up.
    pub(crate) fn counted(&self) -> u64 {
        let of_flow = |flow: Tracked<'_>| flow.received() + flow.duplicates() + flow.stale();
        let flows: u64 = self.trackers.iter().map(of_flow).sum();
        flows + self.foreign + self.unknown + self.damaged
    }

    /// Records a frame of a capture. They have no numbers and are recognised by their last octets.
    #[inline(never)]
    fn record_replayed(&mut self, frame: &[u8]) {
        let Some((capture, port)) = &self.replayed else {
            return;
        };
        if capture.holds(frame) {
            self.trackers.record(port * self.flows, self.replayed_seen);
            self.replayed_seen = self.replayed_seen.wrapping_add(1);
        } else {
            self.foreign += 1;
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
            self.damaged += u64::from(!of_warm_up);
            return;
        }
        let Some(signature) =
            Signature::read(frame, self.place).filter(|signature| signature.epoch == self.epoch)
        else {
            self.foreign += u64::from(!Signature::is_of_warm_up(frame, self.place, self.epoch));
            return;
        };
        let flow = usize::from(signature.flow);
        let index = usize::from(signature.port) * self.flows + flow;
        let is_known = flow < self.flows;
        let arrival = is_known.then(|| self.trackers.record(index, signature.sequence));
        let Some(arrival) = arrival.flatten() else {
            self.unknown += 1;
            return;
        };
        let is_home = usize::from(signature.port) == self.source;
        if !is_home || matches!(arrival, Arrival::Duplicate | Arrival::Stale) {
            return;
        }
        if signature.tick != turn.stamp {
            self.note(turn);
            turn.stamp = signature.tick;
            turn.count = 0;
            turn.delay_ns = self.scale.ns(turn.now.saturating_sub(turn.stamp));
        }
        turn.count += 1;
        if flow + 1 == self.flows {
            self.samples.add(Sample {
                port: signature.port,
                sequence: signature.sequence,
                delay_ns: turn.delay_ns,
            });
        } else if let Some(tracker) = self.trackers.get(index) {
            turn.even +=
                self.delays
                    .record(index, tracker, signature.sequence, arrival, turn.delay_ns);
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
    pub(crate) fn end(self) -> u64 {
        let now = self.turn.now;
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
    fn read(&mut self, frame: &[u8]) {
        self.received.record_frame(&mut self.turn, frame);
    }
}

#[cfg(test)]
mod tests;
