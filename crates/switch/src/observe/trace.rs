// SPDX-License-Identifier: Apache-2.0
//! Trace of frames through a forwarding thread. A frame is identified by its buffer, from its reception until it is sent, dropped or handed
//! to another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use quietwire_dpdk::{BURST_MAX, Burst, cycles};
use rtrb::{Consumer, Producer, RingBuffer};

use super::filter::FrameMatcher;
use quietwire_tables::bridge::{self, Ingress};
use quietwire_tables::filter::{Verdict, Verdicts};
use quietwire_tables::route;

/// Maximum number of unread events of one thread.
const EVENTS: usize = 4096;
/// Maximum number of buffers that one thread traces at a time: a burst, and copies.
const FOLLOWED: usize = 4 * BURST_MAX;
/// Octets of a frame in an event.
const SHOWN: usize = 96;
/// Maximum number of traced frames between two threads.
const IN_FLIGHT: usize = 256;

/// Event of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Received.
    Received {
        /// Number of the port.
        port: u16,
        /// Number of its receive queue.
        queue: u16,
    },
    /// Verdict of the port's filter rules.
    Filtered(Verdict),
    /// Bridge decision.
    Bridged(Ingress, bridge::Decision),
    /// Router decision, and the ingress interface.
    Routed(u16, route::Decision),
    /// The frame, or a copy, was accepted by a port's driver.
    Sent(u16),
    /// The port's transmit queue had no space.
    QueueFull(u16),
    /// Handed to the thread that owns a transmit queue of this port.
    HandedOver(u16),
    /// Handed to the thread that owns the connection.
    HandedToOwner,
    /// The ring to that thread had no space.
    OwnerBusy,
    /// Result of the service thread.
    Handled(ServiceOutcome),
    /// Lost: no buffer for a copy, or no output to its port.
    Lost,
}

/// Result of the service thread for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServiceOutcome {
    /// Answered an echo request.
    Echoed,
    /// Sent an ICMP error.
    Error,
    /// Passed to the kernel.
    ToKernel,
    /// Held until the neighbour is resolved.
    Waits,
    /// Consumed by the neighbour table.
    Neighbours,
    /// The packet has no receiver.
    NoReceiver,
    /// No counted result.
    Nothing,
}

/// One event of one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) ticks: u64,
    /// Index of the traced frame, from 0.
    pub(super) packet: u32,
    pub(super) what: EventKind,
    /// Length of the frame; 0 if it was not examined.
    pub(super) length: u32,
    shown: usize,
    octets: [u8; SHOWN],
}

impl Event {
    /// Returns the first octets of the frame, if they were examined.
    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.shown).unwrap_or(&[])
    }
}

/// Traced frames held by another thread, by buffer.
#[derive(Debug)]
pub(crate) struct InFlight([(AtomicUsize, AtomicU32); IN_FLIGHT]);

impl InFlight {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }

    /// Records a frame before it is handed over. If there is no space, its trace ends.
    fn put(&self, buffer: usize, packet: u32) {
        for (place, number) in &self.0 {
            if place
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                number.store(packet, Ordering::Relaxed);
                place.store(buffer, Ordering::Release);
                return;
            }
        }
    }

    /// Returns the traced frame in this buffer and removes it.
    pub(crate) fn take(&self, buffer: usize) -> Option<u32> {
        for (place, number) in &self.0 {
            if place.load(Ordering::Acquire) == buffer {
                let packet = number.load(Ordering::Relaxed);
                place.store(0, Ordering::Release);
                return Some(packet);
            }
        }
        None
    }
}

#[derive(Clone, Copy, Debug)]
struct TracedFrame {
    buffer: usize,
    packet: u32,
    /// The final result of the frame is recorded.
    settled: bool,
}

/// A thread's side.
#[derive(Debug)]
pub(crate) struct Tracer {
    matcher: Arc<FrameMatcher>,
    /// Number of frames selected by all threads.
    chosen: Arc<AtomicU32>,
    /// Number of frames to trace.
    wanted: u32,
    in_flight: Arc<InFlight>,
    events: Producer<Event>,
    missed: Arc<AtomicU64>,
    /// Never longer than [`FOLLOWED`], so that nothing is allocated.
    followed: Vec<TracedFrame>,
    /// Traced frames offered to a driver, with their positions in the burst.
    offered: Vec<(usize, Event)>,
}

/// The control thread's side.
#[derive(Debug)]
pub(super) struct TraceReader {
    pub(super) events: Consumer<Event>,
    missed: Arc<AtomicU64>,
}

impl TraceReader {
    /// Returns the number of events lost because the buffer was full.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// State shared by all threads of a trace.
#[derive(Clone, Debug)]
pub(super) struct SharedTrace {
    pub(super) matcher: Arc<FrameMatcher>,
    pub(super) chosen: Arc<AtomicU32>,
    pub(super) wanted: u32,
    pub(super) in_flight: Arc<InFlight>,
}

/// Creates both sides for one thread.
pub(super) fn trace(common: &SharedTrace) -> (Tracer, TraceReader) {
    let (writer, reader) = RingBuffer::new(EVENTS);
    let missed = Arc::new(AtomicU64::new(0));
    let tracer = Tracer {
        matcher: Arc::clone(&common.matcher),
        chosen: Arc::clone(&common.chosen),
        wanted: common.wanted,
        in_flight: Arc::clone(&common.in_flight),
        events: writer,
        missed: Arc::clone(&missed),
        followed: Vec::with_capacity(FOLLOWED),
        offered: Vec::with_capacity(BURST_MAX),
    };
    let reader = TraceReader {
        events: reader,
        missed,
    };
    (tracer, reader)
}

fn event(packet: u32, what: EventKind, length: u32, octets: &[u8]) -> Event {
    let mut shown = [0; SHOWN];
    let kept = octets.len().min(SHOWN);
    if let (Some(to), Some(from)) = (shown.get_mut(..kept), octets.get(..kept)) {
        to.copy_from_slice(from);
    }
    Event {
        ticks: cycles::now(),
        packet,
        what,
        length,
        shown: kept,
        octets: shown,
    }
}

impl Tracer {
    fn record(&mut self, event: Event) {
        if self.events.push(event).is_err() {
            self.missed.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn packet_in(&self, buffer: usize) -> Option<u32> {
        let found = self.followed.iter().find(|one| one.buffer == buffer);
        found.map(|one| one.packet)
    }

    fn follow(&mut self, buffer: usize, packet: u32) {
        if self.followed.len() < FOLLOWED {
            self.followed.push(TracedFrame {
                buffer,
                packet,
                settled: false,
            });
        }
    }

    /// Marks a frame as settled: no further event is due at the end of its burst.
    fn settle(&mut self, packet: u32) {
        for one in self.followed.iter_mut().filter(|one| one.packet == packet) {
            one.settled = true;
        }
    }

    /// Selects frames of a received burst.
    pub(crate) fn received(&mut self, port: u16, queue: u16, burst: &Burst) {
        if self.chosen.load(Ordering::Relaxed) >= self.wanted {
            return;
        }
        for ((octets, length), buffer) in burst.frames().zip(burst.lengths()).zip(burst.buffers()) {
            if !self.matcher.accepts(port, octets) {
                continue;
            }
            let packet = self.chosen.fetch_add(1, Ordering::Relaxed);
            if packet >= self.wanted {
                // Another thread selected the last frame.
                self.chosen.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            self.follow(buffer, packet);
            self.record(event(
                packet,
                EventKind::Received { port, queue },
                length,
                octets,
            ));
        }
    }

    /// Records the verdicts of the port's filter rules on a burst.
    pub(crate) fn filtered(&mut self, burst: &Burst, verdicts: &Verdicts) {
        for (buffer, verdict) in burst.buffers().zip(verdicts) {
            if let Some(packet) = self.packet_in(buffer)
                && *verdict != Verdict::Short
            {
                self.record(event(packet, EventKind::Filtered(*verdict), 0, &[]));
                if !verdict.accepts() {
                    self.settle(packet);
                }
            }
        }
    }

    /// Records the decisions of a bridge on a burst.
    pub(crate) fn bridged(&mut self, from: Ingress, burst: &Burst, decisions: &[bridge::Decision]) {
        for (buffer, decision) in burst.buffers().zip(decisions) {
            if let Some(packet) = self.packet_in(buffer) {
                self.record(event(packet, EventKind::Bridged(from, *decision), 0, &[]));
                if matches!(decision, bridge::Decision::Drop(_)) {
                    self.settle(packet);
                }
            }
        }
    }

    /// Records the decisions of the router on a burst.
    pub(crate) fn routed(&mut self, burst: &Burst, from: &[u16], decisions: &route::Decisions) {
        for ((buffer, from), decision) in burst.buffers().zip(from).zip(decisions.iter()) {
            if let Some(packet) = self.packet_in(buffer) {
                self.record(event(packet, EventKind::Routed(*from, decision), 0, &[]));
                match decision {
                    route::Decision::Drop(_) => self.settle(packet),
                    route::Decision::Punt(_) => {
                        self.settle(packet);
                        self.in_flight.put(buffer, packet);
                    }
                    _ => {}
                }
            }
        }
    }

    /// Records that a frame is copied to another buffer.
    pub(crate) fn copied(&mut self, from: usize, to: usize) {
        if let Some(packet) = self.packet_in(from) {
            self.follow(to, packet);
        }
    }

    /// Records that a burst is offered to a driver or to another thread; [`Self::sent`] follows.
    pub(crate) fn offered(&mut self, port: u16, is_ring: bool, burst: &Burst) {
        self.offered.clear();
        let frames = burst.frames().zip(burst.lengths()).zip(burst.buffers());
        for (place, ((octets, length), buffer)) in frames.enumerate() {
            let Some(packet) = self.packet_in(buffer) else {
                continue;
            };
            let what = if is_ring {
                self.in_flight.put(buffer, packet);
                EventKind::HandedOver(port)
            } else {
                EventKind::Sent(port)
            };
            if self.offered.len() < BURST_MAX {
                self.offered
                    .push((place, event(packet, what, length, octets)));
            }
        }
    }

    /// Records that the first `count` frames of the offered burst were accepted.
    pub(crate) fn sent(&mut self, port: u16, count: usize) {
        for at in 0..self.offered.len() {
            let Some((place, mut event)) = self.offered.get(at).copied() else {
                return;
            };
            if place >= count {
                event.what = EventKind::QueueFull(port);
            }
            self.record(event);
            self.settle(event.packet);
        }
        self.offered.clear();
    }

    /// Continues the trace of a frame in another buffer, in which it waits for other frames.
    pub(crate) fn held(&mut self, from: usize, to: usize) {
        if let Some(packet) = self.packet_in(from) {
            self.in_flight.put(to, packet);
            self.settle(packet);
        }
    }

    /// Records a burst before it is handed over to the thread that owns its connections.
    pub(crate) fn hand_over(&mut self, burst: &Burst) {
        for ((octets, length), buffer) in burst.frames().zip(burst.lengths()).zip(burst.buffers()) {
            if let Some(packet) = self.packet_in(buffer) {
                self.in_flight.put(buffer, packet);
                self.record(event(packet, EventKind::HandedToOwner, length, octets));
                self.settle(packet);
            }
        }
    }

    /// Records frames for which the ring to another thread had no space.
    pub(crate) fn not_handed_over(&mut self, burst: &Burst) {
        for buffer in burst.buffers() {
            if let Some(packet) = self.in_flight.take(buffer) {
                self.record(event(packet, EventKind::OwnerBusy, 0, &[]));
            }
        }
    }

    /// Continues the trace of frames that this thread sends for another thread.
    pub(crate) fn adopt(&mut self, burst: &Burst) {
        for buffer in burst.buffers() {
            if let Some(packet) = self.in_flight.take(buffer) {
                self.follow(buffer, packet);
            }
        }
    }

    /// Returns the traced frame in a buffer that the service thread received.
    pub(crate) fn taken(&self, buffer: usize) -> Option<u32> {
        self.in_flight.take(buffer)
    }

    /// Records a result of the service thread.
    pub(crate) fn served(&mut self, packet: u32, what: ServiceOutcome) {
        self.record(event(packet, EventKind::Handled(what), 0, &[]));
    }

    /// Completes the records of a burst, whose buffers are reused soon.
    pub(crate) fn finish(&mut self) {
        for at in 0..self.followed.len() {
            if let Some(one) = self.followed.get(at).copied()
                && !one.settled
            {
                self.settle(one.packet);
                self.record(event(one.packet, EventKind::Lost, 0, &[]));
            }
        }
        self.followed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_in_flight_is_found_once() {
        let in_flight = InFlight::new();
        in_flight.put(0x1000, 3);
        in_flight.put(0x2000, 4);
        assert_eq!(in_flight.take(0x3000), None);
        assert_eq!(in_flight.take(0x1000), Some(3));
        assert_eq!(in_flight.take(0x1000), None);
        assert_eq!(in_flight.take(0x2000), Some(4));
        // Frames that do not fit are not traced any further.
        for buffer in 2..IN_FLIGHT + 10 {
            in_flight.put(buffer, 1);
        }
        assert_eq!(
            (2..IN_FLIGHT + 10)
                .filter_map(|one| in_flight.take(one))
                .count(),
            IN_FLIGHT
        );
    }

    #[test]
    fn a_frame_of_which_nothing_is_reported_is_lost_and_one_reported_of_is_not() {
        let common = SharedTrace {
            matcher: Arc::new(FrameMatcher::new(
                super::super::filter::Filter::default(),
                None,
            )),
            chosen: Arc::default(),
            wanted: 2,
            in_flight: Arc::new(InFlight::new()),
        };
        let (mut tracer, mut reader) = trace(&common);
        tracer.follow(0x10, 0);
        tracer.follow(0x20, 1);
        // A copy of the first frame is lost for lack of space, and the trace reports it.
        tracer.copied(0x10, 0x30);
        tracer
            .offered
            .push((5, event(0, EventKind::Sent(1), 60, &[1; 200])));
        tracer.sent(1, 5);
        tracer.finish();
        let mut observed = Vec::new();
        while let Ok(event) = reader.events.pop() {
            assert!(event.octets().len() <= SHOWN);
            observed.push((event.packet, event.what));
        }
        assert_eq!(
            observed,
            [(0, EventKind::QueueFull(1)), (1, EventKind::Lost)]
        );
        assert_eq!(tracer.packet_in(0x10), None);
        assert_eq!(reader.missed(), 0);
    }
}
