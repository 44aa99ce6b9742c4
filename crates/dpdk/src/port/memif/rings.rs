// SPDX-License-Identifier: Apache-2.0
//! Rings of a port with what their peer is notified by.

use quietwire_memif::ring;
use quietwire_memory::{Doorbell, SlotBuffer, Span};

use crate::burst::Mbuf;
use crate::port::in_place::BufferSink;
use crate::port::interrupts::Watched;
use crate::port::transfer::{Arrival, Next, Outcome, Outgoing, Passed, Sink, Source};

/// A ring from which frames are received.
#[derive(Debug)]
pub(crate) struct RxRing {
    pub(super) ring: ring::Receiver,
    passed: Passed,
    /// The peer's eventfd, while threads may wait for it.
    _interrupt: Option<Watched>,
}

impl RxRing {
    pub(super) fn new(mut ring: ring::Receiver, interrupt: Option<Watched>) -> Self {
        ring.mask_interrupts();
        Self {
            ring,
            passed: Passed::default(),
            _interrupt: interrupt,
        }
    }

    /// Offers the buffers of a client to the server after the connection.
    pub(super) fn offer(&mut self) {
        self.ring.offer();
    }
}

/// A ring to which frames are sent.
#[derive(Debug)]
pub(crate) struct TxRing {
    ring: ring::Sender,
    /// The ring's interrupt, and whether the peer requests one for the last burst.
    doorbell: Doorbell,
    is_wanted: bool,
    passed: Passed,
}

impl TxRing {
    pub(super) fn new(ring: ring::Sender, doorbell: Doorbell) -> Self {
        Self {
            ring,
            doorbell,
            is_wanted: false,
            passed: Passed::default(),
        }
    }
}

impl Source for RxRing {
    type Offload = ();
    type Rest<'ring> = ring::Pieces<'ring>;

    #[inline(always)]
    fn ready(&mut self, most: usize) -> usize {
        self.ring.ready(most)
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>, Option<()>),
    ) -> usize {
        self.ring.take_contiguous(
            most,
            #[inline(always)]
            |frame| take(frame, (frame.len() > longest).then_some(())),
        )
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
            |frame| frame.len() <= longest && take(frame),
        )
    }

    #[inline]
    fn next(&mut self) -> Option<Next<'_, ring::Pieces<'_>, ()>> {
        Some(match self.ring.next()? {
            ring::Received::Frame(frame) => Next::Frame(Arrival {
                first: frame.first,
                rest: frame.rest,
                offload: (),
            }),
            ring::Received::Bad => Next::Malformed,
        })
    }

    #[inline(always)]
    fn release(&mut self) {
        self.ring.release();
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        self.passed.take(self.ring.errors())
    }

    #[inline(always)]
    fn length_max((): (), limit: u32) -> u32 {
        limit
    }

    #[inline(always)]
    fn is_complete((): ()) -> bool {
        true
    }

    fn complete((): (), _: &mut Mbuf<'_>, _: u32) -> bool {
        true
    }
}

impl Sink for TxRing {
    #[inline(always)]
    fn ready(&mut self, count: usize) {
        self.ring.space(count);
    }

    #[inline(always)]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        outcome(self.ring.put(frame.segments()))
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.is_wanted = self.ring.publish();
    }

    #[inline(always)]
    fn notify(&mut self) -> u64 {
        if !self.is_wanted && !self.ring.settle() {
            return 0;
        }
        u64::from(self.doorbell.ring())
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        self.passed.take(self.ring.errors())
    }
}

impl BufferSink for TxRing {
    #[inline(always)]
    fn announce(&mut self, length: usize, changed: usize) {
        self.ring.announce(length, changed);
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

    fn put_octets(&mut self, frame: &[u8]) -> Outcome {
        outcome(self.ring.put(std::iter::once(frame)))
    }

    #[inline(always)]
    fn notify_known(&mut self) -> u64 {
        u64::from(self.is_wanted && self.doorbell.ring())
    }

    #[inline(always)]
    fn settle(&mut self) -> u64 {
        u64::from(self.ring.settle() && self.doorbell.ring())
    }
}

#[inline(always)]
fn outcome(put: ring::PutResult) -> Outcome {
    match put {
        ring::PutResult::Sent => Outcome::Accepted,
        ring::PutResult::Full => Outcome::Full,
        ring::PutResult::Bad => Outcome::Refused,
    }
}
