// SPDX-License-Identifier: Apache-2.0
//! Rings owned by this side, in forwarding threads.

use std::sync::Arc;

use quietwire_memory::gate::GateReader;
use quietwire_memory::{Doorbell, Mapping, SlotBuffer, Span};
use quietwire_vhost::driver::{self, Layout, Packed, Queue, Rest, SetupError, Split};
use quietwire_vhost::ring::{OffloadHeader, RawHeader};

use crate::burst::{Burst, Mbuf};
use crate::mempool::Mempool;
use crate::port::counters::QueueCounters;
use crate::port::in_place::{self, BufferSink, FrameReader, FrameSource, FramesTaken, Scratch};
use crate::port::transfer::{self, Arrival, Next, Outcome, Outgoing, Passed, Sink, Source};

/// A receive ring of either kind.
#[derive(Debug)]
enum RxKind {
    Split(Box<driver::Receiver<Split>>),
    Packed(Box<driver::Receiver<Packed>>),
}

/// A transmit ring of either kind.
#[derive(Debug)]
enum TxKind {
    Split(Box<driver::Sender<Split>>),
    Packed(Box<driver::Sender<Packed>>),
}

/// Context of a ring.
#[derive(Debug)]
struct RingContext {
    /// Eventfd that notifies the back end.
    kick: Doorbell,
    passed: Passed,
}

impl RingContext {
    #[inline(always)]
    fn notify(&self, is_wanted: bool) -> u64 {
        if is_wanted {
            u64::from(self.kick.ring())
        } else {
            0
        }
    }
}

/// A ring from which frames are received.
#[derive(Debug)]
pub(crate) struct RxRing {
    kind: RxKind,
    context: RingContext,
}

/// A ring to which frames are sent.
#[derive(Debug)]
pub(crate) struct TxRing {
    kind: TxKind,
    context: RingContext,
}

impl RxRing {
    /// Lays out the ring of queue `index`.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        index: u32,
        features: u64,
        is_packed: bool,
        kick: Doorbell,
    ) -> Result<Self, SetupError> {
        let kind = if is_packed {
            RxKind::Packed(Box::new(driver::Receiver::new(
                mapping, layout, index, features,
            )?))
        } else {
            RxKind::Split(Box::new(driver::Receiver::new(
                mapping, layout, index, features,
            )?))
        };
        let context = RingContext {
            kick,
            passed: Passed::default(),
        };
        Ok(Self { kind, context })
    }

    /// Notifies the back end, which may wait for the first buffers.
    pub(super) fn kick(&self) {
        self.context.kick.ring();
    }
}

impl TxRing {
    /// Lays out the ring of queue `index`.
    pub(super) fn new(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        index: u32,
        features: u64,
        is_packed: bool,
        kick: Doorbell,
    ) -> Result<Self, SetupError> {
        let kind = if is_packed {
            TxKind::Packed(Box::new(driver::Sender::new(
                mapping, layout, index, features,
            )?))
        } else {
            TxKind::Split(Box::new(driver::Sender::new(
                mapping, layout, index, features,
            )?))
        };
        let context = RingContext {
            kick,
            passed: Passed::default(),
        };
        Ok(Self { kind, context })
    }
}

/// One kind of ring, for one burst.
struct RxBurst<'ring, Q> {
    ring: &'ring mut driver::Receiver<Q>,
    context: &'ring mut RingContext,
}

impl<Q: Queue> Source for RxBurst<'_, Q> {
    type Offload = RawHeader;
    type Rest<'ring>
        = Rest<'ring>
    where
        Self: 'ring;

    #[inline(always)]
    fn ready(&mut self, most: usize) -> usize {
        self.ring.ready(most)
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>, Option<RawHeader>),
    ) -> usize {
        let mut count = 0_usize;
        while count < most
            && let Some((frame, header)) = self.ring.next_contiguous()
        {
            let is_whole = frame.len() <= longest && header.is_plain();
            take(frame, (!is_whole).then_some(header));
            // At most `most`.
            count = count.wrapping_add(1);
        }
        count
    }

    #[inline(always)]
    fn take_while(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>) -> bool,
    ) -> usize {
        self.ring.take_while(
            most,
            #[inline(always)]
            |frame, header| frame.len() <= longest && header.is_plain() && take(frame),
        )
    }

    #[inline]
    fn next(&mut self) -> Option<Next<'_, Rest<'_>, RawHeader>> {
        Some(match self.ring.next()? {
            driver::Received::Frame(frame) => Next::Frame(Arrival {
                first: frame.first,
                rest: frame.rest,
                offload: frame.header,
            }),
            driver::Received::Bad => Next::Malformed,
        })
    }

    #[inline(always)]
    fn release(&mut self) {
        let is_wanted = self.ring.release();
        self.context.notify(is_wanted);
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        self.context.passed.take(self.ring.errors())
    }

    #[inline(always)]
    fn length_max(_: RawHeader, limit: u32) -> u32 {
        limit
    }

    #[inline(always)]
    fn is_complete(offload: RawHeader) -> bool {
        offload.is_plain()
    }

    /// Refuses any offload: none is negotiated, so the device must not request one.
    fn complete(_: RawHeader, _: &mut Mbuf<'_>, _: u32) -> bool {
        false
    }
}

/// One kind of ring, for one burst.
struct TxBurst<'ring, Q> {
    ring: &'ring mut driver::Sender<Q>,
    context: &'ring mut RingContext,
    is_wanted: bool,
}

impl<Q: Queue> Sink for TxBurst<'_, Q> {
    #[inline(always)]
    fn ready(&mut self, count: usize) {
        self.ring.ready(count);
    }

    #[inline(always)]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        let header = OffloadHeader::default();
        let length = frame.length() as usize;
        outcome(self.ring.put(&header, frame.segments(), length))
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.is_wanted = self.ring.publish();
    }

    #[inline(always)]
    fn notify(&mut self) -> u64 {
        self.context.notify(self.is_wanted)
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        self.context.passed.take(self.ring.errors())
    }
}

impl<Q: Queue> BufferSink for TxBurst<'_, Q> {
    #[inline(always)]
    fn announce(&mut self, _: usize, changed: usize) {
        self.ring.announce(changed);
    }

    #[inline(always)]
    fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, Outcome> {
        self.ring.buffer(length).map_err(outcome)
    }

    #[inline(always)]
    fn fill(&mut self, length: usize) {
        self.ring.fill(length);
    }

    fn put_octets(&mut self, frame: &[u8]) -> Outcome {
        let header = OffloadHeader::default();
        outcome(self.ring.put(&header, std::iter::once(frame), frame.len()))
    }
}

#[inline(always)]
fn outcome(put: driver::PutResult) -> Outcome {
    match put {
        driver::PutResult::Sent => Outcome::Accepted,
        driver::PutResult::Full => Outcome::Full,
        driver::PutResult::Bad => Outcome::Refused,
    }
}

impl<'ring, Q: Queue> TxBurst<'ring, Q> {
    #[inline(always)]
    fn new(ring: &'ring mut driver::Sender<Q>, context: &'ring mut RingContext) -> Self {
        Self {
            ring,
            context,
            is_wanted: false,
        }
    }
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: GateReader<RxRing>,
    pool: Mempool,
    /// Octets of the longest frame, without FCS.
    limit: u32,
    counters: Arc<QueueCounters>,
}

impl Receiver {
    pub(super) fn new(
        ring: GateReader<RxRing>,
        pool: Mempool,
        limit: u32,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            ring,
            pool,
            limit,
            counters,
        }
    }

    #[inline(always)]
    pub(crate) fn receive(&mut self, burst: &mut Burst, most: usize) -> usize {
        let Some(mut visit) = self.ring.enter() else {
            return 0;
        };
        let RxRing { kind, context } = &mut *visit;
        match kind {
            RxKind::Split(ring) => transfer::receive(
                &mut RxBurst { ring, context },
                burst,
                most,
                &self.pool,
                self.limit,
                &self.counters,
            ),
            RxKind::Packed(ring) => transfer::receive(
                &mut RxBurst { ring, context },
                burst,
                most,
                &self.pool,
                self.limit,
                &self.counters,
            ),
        }
    }

    /// Reads up to `most` frames where they lie. Returns their number.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        most: usize,
        scratch: &mut Scratch,
        reader: &mut impl FrameReader,
    ) -> usize {
        let Some(mut visit) = self.ring.enter() else {
            return 0;
        };
        let RxRing { kind, context } = &mut *visit;
        let (limit, counters) = (self.limit, &*self.counters);
        match kind {
            RxKind::Split(ring) => {
                let mut source = RxBurst { ring, context };
                in_place::read(&mut source, most, scratch, reader, limit, counters)
            }
            RxKind::Packed(ring) => {
                let mut source = RxBurst { ring, context };
                in_place::read(&mut source, most, scratch, reader, limit, counters)
            }
        }
    }
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: GateReader<TxRing>,
    counters: Arc<QueueCounters>,
}

impl Sender {
    pub(super) fn new(ring: GateReader<TxRing>, counters: Arc<QueueCounters>) -> Self {
        Self { ring, counters }
    }

    #[inline(always)]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        let Some(mut visit) = self.ring.enter() else {
            return 0;
        };
        let TxRing { kind, context } = &mut *visit;
        let counters = &*self.counters;
        match kind {
            TxKind::Split(ring) => {
                transfer::send(&mut TxBurst::new(ring, context), burst, counters)
            }
            TxKind::Packed(ring) => {
                transfer::send(&mut TxBurst::new(ring, context), burst, counters)
            }
        }
    }

    /// Writes up to `count` frames of a source where the peer reads them.
    #[inline(always)]
    pub(crate) fn write(
        &mut self,
        count: usize,
        source: &mut impl FrameSource,
        scratch: &mut Scratch,
    ) -> FramesTaken {
        let Some(mut visit) = self.ring.enter() else {
            return FramesTaken::default();
        };
        let TxRing { kind, context } = &mut *visit;
        let counters = &*self.counters;
        match kind {
            TxKind::Split(ring) => {
                let mut sink = TxBurst::new(ring, context);
                in_place::write(&mut sink, count, source, scratch, counters)
            }
            TxKind::Packed(ring) => {
                let mut sink = TxBurst::new(ring, context);
                in_place::write(&mut sink, count, source, scratch, counters)
            }
        }
    }
}
