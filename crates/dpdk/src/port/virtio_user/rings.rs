// SPDX-License-Identifier: Apache-2.0
//! Rings owned by this side, in forwarding threads.

use std::sync::Arc;

use quietwire_memory::gate::GateReader;
use quietwire_memory::{Doorbell, Mapping, SlotBuffer, Span};
use quietwire_vhost::driver::{self, Layout, Packed, Queue, Rest, SetupError, Split};
use quietwire_vhost::features::{NET_F_CSUM, NET_F_HOST_TSO4, NET_F_HOST_TSO6, NET_F_HOST_USO};
use quietwire_vhost::ring::OffloadHeader;

use crate::burst::{Burst, Mbuf};
use crate::mempool::Mempool;
use crate::port::counters::QueueCounters;
use crate::port::in_place::{self, BufferSink, FrameReader, FrameSource, FramesTaken, Scratch};
use crate::port::offload::{DeviceOffloads, Offload, SEGMENTED_BUFFERS_MAX, header_of};
use crate::port::peer::Status;
use crate::port::transfer::{self, Arrival, Next, Outcome, Outgoing, Passed, Sink, Source};
use crate::segment::LargeKind;

/// Segmentation that a back end may offer for transmitted frames.
const SEGMENTATION: u64 = NET_F_HOST_TSO4 | NET_F_HOST_TSO6 | NET_F_HOST_USO;

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
    /// Offloads that the back end may leave to this side.
    offloads: DeviceOffloads,
    /// True if the back end accepts large frames.
    has_segmentation: bool,
    passed: Passed,
}

impl RingContext {
    fn new(kick: Doorbell, features: u64) -> Self {
        Self {
            kick,
            offloads: DeviceOffloads::of(features),
            has_segmentation: features & SEGMENTATION != 0,
            passed: Passed::default(),
        }
    }

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
        let context = RingContext::new(kick, features);
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
        let context = RingContext::new(kick, features);
        Ok(Self { kind, context })
    }
}

/// One kind of ring, for one burst.
struct RxBurst<'ring, Q> {
    ring: &'ring mut driver::Receiver<Q>,
    context: &'ring mut RingContext,
}

impl<Q: Queue> Source for RxBurst<'_, Q> {
    type Offload = Offload;
    type Rest<'ring>
        = Rest<'ring>
    where
        Self: 'ring;

    #[inline(always)]
    fn ready(&mut self, most: usize) -> usize {
        let ready = self.ring.ready(most);
        if ready == 0 {
            let is_wanted = self.ring.settle();
            self.context.notify(is_wanted);
        }
        ready
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>, Option<Offload>),
    ) -> usize {
        let offloads = self.context.offloads;
        let mut count = 0_usize;
        while count < most
            && let Some((frame, header)) = self.ring.next_contiguous()
        {
            let is_whole = frame.len() <= longest && header.is_plain();
            take(
                frame,
                (!is_whole).then(|| Offload::of_device(header, offloads)),
            );
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
    fn next(&mut self) -> Option<Next<'_, Rest<'_>, Offload>> {
        let offloads = self.context.offloads;
        Some(match self.ring.next()? {
            driver::Received::Frame(frame) => Next::Frame(Arrival {
                first: frame.first,
                rest: frame.rest,
                offload: Offload::of_device(frame.header, offloads),
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
    fn length_max(offload: Offload, limit: u32) -> u32 {
        offload.length_max(limit)
    }

    #[inline(always)]
    fn is_complete(offload: Offload) -> bool {
        offload.is_none()
    }

    /// Also refuses an offload that was not negotiated: the device must not request it.
    fn complete(offload: Offload, frame: &mut Mbuf<'_>, limit: u32) -> bool {
        offload.complete(frame, limit)
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
        // The ring reclaims no buffers between the frames of a burst, and a large frame requires many.
        let pieces = if self.context.has_segmentation {
            SEGMENTED_BUFFERS_MAX
        } else {
            1
        };
        self.ring.ready(count.saturating_mul(pieces));
    }

    #[inline(always)]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        let header = header_of(frame).parse();
        let length = frame.length() as usize;
        outcome(self.ring.put(&header, frame.segments(), length))
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.is_wanted = self.ring.publish();
    }

    #[inline(always)]
    fn notify(&mut self) -> u64 {
        let is_wanted = self.is_wanted || self.ring.settle();
        self.context.notify(is_wanted)
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

    #[inline(always)]
    fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        write: impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize {
        self.ring.fill_each(most, length, write)
    }

    #[inline(always)]
    fn notify_known(&mut self) -> u64 {
        self.context.notify(self.is_wanted)
    }

    #[inline(always)]
    fn settle(&mut self) -> u64 {
        let is_wanted = self.ring.settle();
        self.context.notify(is_wanted)
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
    status: Arc<Status>,
    counters: Arc<QueueCounters>,
}

impl Sender {
    pub(super) fn new(
        ring: GateReader<TxRing>,
        status: Arc<Status>,
        counters: Arc<QueueCounters>,
    ) -> Self {
        Self {
            ring,
            status,
            counters,
        }
    }

    /// Returns true while the back end accepts frames of this kind with data of any length.
    pub(crate) fn accepts_whole(&self, kind: LargeKind) -> bool {
        accepts_whole(self.status.features(), kind)
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

    /// Notifies the back end of frames written by [`Self::write`] if it waits for them.
    pub(crate) fn settle(&mut self) {
        let Some(mut visit) = self.ring.enter() else {
            return;
        };
        let TxRing { kind, context } = &mut *visit;
        match kind {
            TxKind::Split(ring) => {
                in_place::settle(&mut TxBurst::new(ring, context), &self.counters);
            }
            TxKind::Packed(ring) => {
                in_place::settle(&mut TxBurst::new(ring, context), &self.counters);
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

fn accepts_whole(features: u64, kind: LargeKind) -> bool {
    let segmentation = match (kind.is_tcp, kind.is_ipv4) {
        (true, true) => NET_F_HOST_TSO4,
        (true, false) => NET_F_HOST_TSO6,
        (false, _) => NET_F_HOST_USO,
    };
    let needed = NET_F_CSUM | segmentation;
    // Ports do not negotiate TCP segmentation with ECN.
    !kind.has_cwr && features & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_back_end_takes_large_frames_of_the_kinds_that_were_negotiated() {
        let kind = |is_tcp, is_ipv4, has_cwr| LargeKind {
            is_ipv4,
            is_tcp,
            has_cwr,
        };
        let takes = |features| {
            [(true, true), (true, false), (false, true), (false, false)]
                .map(|(is_tcp, is_ipv4)| accepts_whole(features, kind(is_tcp, is_ipv4, false)))
        };
        let [none, all] = [[false; 4], [true; 4]];
        assert_eq!(takes(0), none);
        assert_eq!(takes(SEGMENTATION), none);
        assert_eq!(takes(NET_F_CSUM), none);
        let of_ipv4 = [true, false, false, false];
        assert_eq!(takes(NET_F_CSUM | NET_F_HOST_TSO4), of_ipv4);
        let of_udp = [false, false, true, true];
        assert_eq!(takes(NET_F_CSUM | NET_F_HOST_USO), of_udp);
        assert_eq!(takes(NET_F_CSUM | SEGMENTATION), all);
        let reduced = kind(true, true, true);
        assert!(!accepts_whole(NET_F_CSUM | SEGMENTATION, reduced));
    }
}
