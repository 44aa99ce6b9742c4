// SPDX-License-Identifier: Apache-2.0
//! Following frames through a forwarding thread: by the buffer that each is in, from the time it is received until it is
//! sent, dropped or in other hands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use quietwire_dpdk::{BURST_MAX, Burst, cycles};
use rtrb::{Consumer, Producer, RingBuffer};

use super::filter::Sieve;
use quietwire_tables::bridge::{self, Ingress};
use quietwire_tables::filter::{Verdict, Verdicts};
use quietwire_tables::route;

/// Events of one thread that wait to be taken.
const EVENTS: usize = 4096;
/// Buffers that one thread follows at a time: a burst, and copies.
const FOLLOWED: usize = 4 * BURST_MAX;
/// Octets of a frame that an event has.
const SHOWN: usize = 96;
/// Frames that are between two threads.
const HANDED: usize = 256;

/// What happened to a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// It came in.
    Received {
        /// Number of the port.
        port: u16,
        /// Number of its receive queue.
        queue: u16,
    },
    /// The rules of the port decided.
    Filtered(Verdict),
    /// A bridge decided.
    Bridged(Ingress, bridge::Decision),
    /// The router decided; it came in by this interface.
    Routed(u16, route::Decision),
    /// It, or a copy, was taken by a port's driver.
    Sent(u16),
    /// The port's transmit queue had no room.
    NoRoom(u16),
    /// It went to the thread that has a transmit queue of this port.
    HandedOver(u16),
    /// The service thread did something with it.
    Served(Served),
    /// It went nowhere: no buffer for a copy, or no way to its port.
    Lost,
}

/// What the service thread did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It answered an echo request.
    Echoed,
    /// It told the sender what is wrong.
    Error,
    /// It gave it to the kernel.
    ToKernel,
    /// It keeps it until a neighbour is found.
    Waits,
    /// It took it for the table of neighbours.
    Neighbours,
    /// Nobody here takes it.
    Unclaimed,
    /// Nothing that is counted.
    Nothing,
}

/// One thing that happened to one frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) ticks: u64,
    /// Which of the frames that are followed, from 0.
    pub(super) packet: u32,
    pub(super) what: What,
    /// Octets of the frame then; 0 where that is not looked at.
    pub(super) length: u32,
    shown: usize,
    octets: [u8; SHOWN],
}

impl Event {
    /// The frame's first octets, where they were looked at.
    pub(super) fn octets(&self) -> &[u8] {
        self.octets.get(..self.shown).unwrap_or(&[])
    }
}

/// Frames in the hands of another thread, by their buffers.
#[derive(Debug)]
pub(crate) struct Handed([(AtomicUsize, AtomicU32); HANDED]);

impl Handed {
    pub(super) fn new() -> Self {
        Self(std::array::from_fn(|_| Default::default()))
    }

    /// Notes a frame before it goes; without room it is not followed any further.
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

    /// Which frame that is followed this buffer holds. It is forgotten here.
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
struct Followed {
    buffer: usize,
    packet: u32,
    /// What became of it was told.
    settled: bool,
}

/// A thread's side.
#[derive(Debug)]
pub(crate) struct Tracer {
    sieve: Arc<Sieve>,
    /// Frames that were chosen, by all threads.
    chosen: Arc<AtomicU32>,
    /// Frames to be followed.
    wanted: u32,
    handed: Arc<Handed>,
    events: Producer<Event>,
    missed: Arc<AtomicU64>,
    /// Never longer than [`FOLLOWED`], so that nothing is allocated.
    followed: Vec<Followed>,
    /// Frames that a driver is being handed, with their places in the burst.
    offered: Vec<(usize, Event)>,
}

/// The control thread's side.
#[derive(Debug)]
pub(super) struct TraceReader {
    pub(super) events: Consumer<Event>,
    missed: Arc<AtomicU64>,
}

impl TraceReader {
    /// Events that there was no room for.
    pub(super) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

/// What all threads of a trace share.
#[derive(Clone, Debug)]
pub(super) struct Common {
    pub(super) sieve: Arc<Sieve>,
    pub(super) chosen: Arc<AtomicU32>,
    pub(super) wanted: u32,
    pub(super) handed: Arc<Handed>,
}

/// Both sides for one thread.
pub(super) fn trace(common: &Common) -> (Tracer, TraceReader) {
    let (writer, reader) = RingBuffer::new(EVENTS);
    let missed = Arc::new(AtomicU64::new(0));
    let tracer = Tracer {
        sieve: Arc::clone(&common.sieve),
        chosen: Arc::clone(&common.chosen),
        wanted: common.wanted,
        handed: Arc::clone(&common.handed),
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

fn event(packet: u32, what: What, length: u32, octets: &[u8]) -> Event {
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
    fn tell(&mut self, event: Event) {
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
            self.followed.push(Followed {
                buffer,
                packet,
                settled: false,
            });
        }
    }

    /// What became of a frame is told: nothing has to be said of it when its burst is done with.
    fn settle(&mut self, packet: u32) {
        for one in self.followed.iter_mut().filter(|one| one.packet == packet) {
            one.settled = true;
        }
    }

    /// A burst came in: some of its frames are chosen.
    pub(crate) fn received(&mut self, port: u16, queue: u16, burst: &Burst) {
        if self.chosen.load(Ordering::Relaxed) >= self.wanted {
            return;
        }
        for ((octets, length), buffer) in burst.frames().zip(burst.lengths()).zip(burst.buffers()) {
            if !self.sieve.lets_through(port, octets) {
                continue;
            }
            let packet = self.chosen.fetch_add(1, Ordering::Relaxed);
            if packet >= self.wanted {
                // Another thread was faster.
                self.chosen.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            self.follow(buffer, packet);
            self.tell(event(
                packet,
                What::Received { port, queue },
                length,
                octets,
            ));
        }
    }

    /// The rules of a port have decided on a burst.
    pub(crate) fn filtered(&mut self, burst: &Burst, verdicts: &Verdicts) {
        for (buffer, verdict) in burst.buffers().zip(verdicts) {
            if let Some(packet) = self.packet_in(buffer)
                && *verdict != Verdict::Short
            {
                self.tell(event(packet, What::Filtered(*verdict), 0, &[]));
                if !verdict.lets_through() {
                    self.settle(packet);
                }
            }
        }
    }

    /// A bridge has decided on a burst.
    pub(crate) fn bridged(&mut self, from: Ingress, burst: &Burst, decisions: &[bridge::Decision]) {
        for (buffer, decision) in burst.buffers().zip(decisions) {
            if let Some(packet) = self.packet_in(buffer) {
                self.tell(event(packet, What::Bridged(from, *decision), 0, &[]));
                if matches!(decision, bridge::Decision::Drop(_)) {
                    self.settle(packet);
                }
            }
        }
    }

    /// The router has decided on a burst.
    pub(crate) fn routed(&mut self, burst: &Burst, from: &[u16], decisions: &route::Decisions) {
        for ((buffer, from), decision) in burst.buffers().zip(from).zip(decisions.iter()) {
            if let Some(packet) = self.packet_in(buffer) {
                self.tell(event(packet, What::Routed(*from, decision), 0, &[]));
                match decision {
                    route::Decision::Drop(_) => self.settle(packet),
                    route::Decision::Punt(_) => {
                        self.settle(packet);
                        self.handed.put(buffer, packet);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A frame goes on in another buffer too.
    pub(crate) fn copied(&mut self, from: usize, to: usize) {
        if let Some(packet) = self.packet_in(from) {
            self.follow(to, packet);
        }
    }

    /// A burst is handed to a driver, or to another thread; [`Self::sent`] follows.
    pub(crate) fn offered(&mut self, port: u16, is_ring: bool, burst: &Burst) {
        self.offered.clear();
        let frames = burst.frames().zip(burst.lengths()).zip(burst.buffers());
        for (place, ((octets, length), buffer)) in frames.enumerate() {
            let Some(packet) = self.packet_in(buffer) else {
                continue;
            };
            let what = if is_ring {
                self.handed.put(buffer, packet);
                What::HandedOver(port)
            } else {
                What::Sent(port)
            };
            if self.offered.len() < BURST_MAX {
                self.offered
                    .push((place, event(packet, what, length, octets)));
            }
        }
    }

    /// So many of the frames were taken, from the first.
    pub(crate) fn sent(&mut self, port: u16, count: usize) {
        for at in 0..self.offered.len() {
            let Some((place, mut event)) = self.offered.get(at).copied() else {
                return;
            };
            if place >= count {
                event.what = What::NoRoom(port);
            }
            self.tell(event);
            self.settle(event.packet);
        }
        self.offered.clear();
    }

    /// Frames of another thread that this one sends: those that are followed go on being so.
    pub(crate) fn adopt(&mut self, burst: &Burst) {
        for buffer in burst.buffers() {
            if let Some(packet) = self.handed.take(buffer) {
                self.follow(buffer, packet);
            }
        }
    }

    /// Frames that the service thread got; which of them are followed.
    pub(crate) fn taken(&self, buffer: usize) -> Option<u32> {
        self.handed.take(buffer)
    }

    /// The service thread did this with a frame.
    pub(crate) fn served(&mut self, packet: u32, what: Served) {
        self.tell(event(packet, What::Served(what), 0, &[]));
    }

    /// The burst is done with: its buffers hold other frames soon.
    pub(crate) fn finish(&mut self) {
        for at in 0..self.followed.len() {
            if let Some(one) = self.followed.get(at).copied()
                && !one.settled
            {
                self.settle(one.packet);
                self.tell(event(one.packet, What::Lost, 0, &[]));
            }
        }
        self.followed.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_handed_over_is_found_once() {
        let handed = Handed::new();
        handed.put(0x1000, 3);
        handed.put(0x2000, 4);
        assert_eq!(handed.take(0x3000), None);
        assert_eq!(handed.take(0x1000), Some(3));
        assert_eq!(handed.take(0x1000), None);
        assert_eq!(handed.take(0x2000), Some(4));
        // More than there is room for: not followed, and nothing else.
        for buffer in 2..HANDED + 10 {
            handed.put(buffer, 1);
        }
        assert_eq!(
            (2..HANDED + 10).filter_map(|one| handed.take(one)).count(),
            HANDED
        );
    }

    #[test]
    fn a_frame_of_which_nothing_is_told_is_lost_and_one_told_of_is_not() {
        let common = Common {
            sieve: Arc::new(Sieve::new(super::super::filter::Filter::default(), None)),
            chosen: Arc::default(),
            wanted: 2,
            handed: Arc::new(Handed::new()),
        };
        let (mut tracer, mut reader) = trace(&common);
        tracer.follow(0x10, 0);
        tracer.follow(0x20, 1);
        // A copy of the first is lost for want of room, and that is told.
        tracer.copied(0x10, 0x30);
        tracer
            .offered
            .push((5, event(0, What::Sent(1), 60, &[1; 200])));
        tracer.sent(1, 5);
        tracer.finish();
        let mut seen = Vec::new();
        while let Ok(event) = reader.events.pop() {
            assert!(event.octets().len() <= SHOWN);
            seen.push((event.packet, event.what));
        }
        assert_eq!(seen, [(0, What::NoRoom(1)), (1, What::Lost)]);
        assert_eq!(tracer.packet_in(0x10), None);
        assert_eq!(reader.missed(), 0);
    }
}
