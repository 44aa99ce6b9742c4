// SPDX-License-Identifier: Apache-2.0
//! A guest's rings in forwarding threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_memory::gate::GateReader;
use quietwire_memory::{Doorbell, Span};
use quietwire_vhost::address_space::Miss;
use quietwire_vhost::features::{
    F_ACCESS_PLATFORM, NET_F_GUEST_CSUM, NET_F_GUEST_TSO4, NET_F_GUEST_TSO6, NET_F_HOST_TSO4,
    NET_F_HOST_TSO6,
};
use quietwire_vhost::ring::{
    self, AHEAD_MAX, Pieces, PutResult, Receive, Received, Ring, Transmit,
};

use crate::burst::{Burst, Mbuf};
use crate::mempool::Mempool;
use crate::port::counters::QueueCounters;
use crate::port::offload::{Offload, header_for_guest};
use crate::port::peer::Status;
use crate::port::transfer::{self, Arrival, Next, Outcome, Outgoing, Passed, Sink, Source};

/// Misses are reported for whole pages of this size.
pub(super) const IOTLB_PAGE: u64 = 4096;

/// Addresses that a ring waits for, reported to the peer thread. A free word is 0; the lowest bit of the others is
/// set.
#[derive(Debug, Default)]
pub(super) struct Misses([AtomicU64; AHEAD_MAX]);

impl Misses {
    // The low bits of a page's address are free.
    const IS_SET: u64 = 1;
    const IS_WRITE: u64 = 2;

    /// Records an address. If there is no free word, it is lost, and the ring will miss it again.
    #[cold]
    pub(super) fn add(&self, miss: Miss) {
        let page = miss.iova & !(IOTLB_PAGE - 1);
        let write = if miss.write { Self::IS_WRITE } else { 0 };
        let word = page | Self::IS_SET | write;
        for place in &self.0 {
            match place.load(Ordering::Relaxed) {
                0 => return place.store(word, Ordering::Relaxed),
                other if other == word => return,
                _ => {}
            }
        }
    }

    /// Returns the addresses recorded since the last call, each that of a page.
    pub(super) fn take(&self) -> impl Iterator<Item = Miss> + '_ {
        self.0
            .iter()
            .map(|place| place.swap(0, Ordering::Relaxed))
            .filter_map(Self::miss_of)
    }

    /// Forgets the addresses for which `is_kept` returns false.
    pub(super) fn retain(&self, is_kept: impl Fn(&Miss) -> bool) {
        for place in &self.0 {
            let word = place.load(Ordering::Relaxed);
            if Self::miss_of(word).is_some_and(|miss| !is_kept(&miss)) {
                // The ring fills free words only, so this word is unchanged.
                place.store(0, Ordering::Relaxed);
            }
        }
    }

    fn miss_of(word: u64) -> Option<Miss> {
        (word != 0).then_some(Miss {
            iova: word & !(IOTLB_PAGE - 1),
            write: word & Self::IS_WRITE != 0,
        })
    }
}

/// Common context of a ring, for both directions.
#[derive(Debug)]
pub(super) struct RingContext {
    /// The guest's interrupt; none if the guest polls.
    pub(super) call: Option<Doorbell>,
    pub(super) misses: Arc<Misses>,
    has_iotlb: bool,
    pub(super) has_tso: bool,
    /// True if frames to the guest may have reports about checksums.
    has_guest_checksum: bool,
    /// The connection that the ring belongs to.
    pub(super) connection: u32,
    passed: Passed,
}

impl RingContext {
    pub(super) fn new(
        call: Option<Doorbell>,
        misses: Arc<Misses>,
        features: u64,
        connection: u32,
    ) -> Self {
        Self {
            call,
            misses,
            has_iotlb: features & F_ACCESS_PLATFORM != 0,
            has_tso: features & (NET_F_HOST_TSO4 | NET_F_HOST_TSO6) != 0,
            has_guest_checksum: features & NET_F_GUEST_CSUM != 0,
            connection,
            passed: Passed::default(),
        }
    }

    /// Interrupts the guest if it requests that. Returns the number of interrupts.
    #[inline(always)]
    fn notify(&self, ring: &mut impl Ring) -> u64 {
        match &self.call {
            Some(call) if ring.wants_notification() => u64::from(call.ring()),
            _ => 0,
        }
    }
}

/// A ring through which a guest sends frames.
#[derive(Debug)]
pub(crate) struct RxRing {
    pub(super) ring: ring::Receiver,
    pub(super) context: RingContext,
    /// Address to announce after the migration of a guest to this host (`VHOST_USER_SEND_RARP`).
    pub(super) announce: Option<[u8; 6]>,
}

/// A ring through which a guest receives frames.
#[derive(Debug)]
pub(crate) struct TxRing {
    pub(super) ring: ring::Sender,
    pub(super) context: RingContext,
}

/// One kind of ring, for one burst.
struct RxBurst<'ring, R> {
    ring: &'ring mut R,
    context: &'ring mut RingContext,
}

impl<R: Receive> Source for RxBurst<'_, R> {
    type Offload = Offload;
    type Rest<'ring>
        = Pieces<'ring>
    where
        Self: 'ring;

    #[inline(always)]
    fn ready(&mut self, most: usize) -> usize {
        // Notifies of buffers returned by the last burst, whose writes have reached the cache by now.
        self.context.notify(self.ring);
        self.ring.ready(most)
    }

    #[inline(always)]
    fn take_contiguous(
        &mut self,
        most: usize,
        longest: usize,
        mut take: impl FnMut(Span<'_>, Option<Offload>),
    ) -> usize {
        let has_tso = self.context.has_tso;
        self.ring.take_contiguous(
            most,
            longest,
            #[inline(always)]
            |frame, header| take(frame, header.map(|header| Offload::new(header, has_tso))),
        )
    }

    #[inline]
    fn next(&mut self) -> Option<Next<'_, Pieces<'_>, Offload>> {
        let has_tso = self.context.has_tso;
        match self.ring.next()? {
            Received::Frame {
                header,
                first,
                rest,
                ..
            } => Some(Next::Frame(Arrival {
                first,
                rest,
                offload: Offload::new(header, has_tso),
            })),
            Received::Bad => Some(Next::Malformed),
            Received::Miss(miss) => {
                self.context.misses.add(miss);
                None
            }
        }
    }

    #[inline(always)]
    fn release(&mut self) {
        self.ring.commit();
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        self.context.passed.take(self.ring.counters().resyncs)
    }

    #[inline(always)]
    fn length_max(offload: Offload, limit: u32) -> u32 {
        offload.length_max(limit)
    }

    #[inline(always)]
    fn is_complete(offload: Offload) -> bool {
        offload.is_none()
    }

    fn complete(offload: Offload, frame: &mut Mbuf<'_>, limit: u32) -> bool {
        offload.complete(frame, limit)
    }
}

/// One kind of ring, for one burst.
struct TxBurst<'ring, R> {
    ring: &'ring mut R,
    context: &'ring mut RingContext,
}

impl<R: Transmit> Sink for TxBurst<'_, R> {
    #[inline(always)]
    fn ready(&mut self, count: usize) {
        self.ring.ready(count);
    }

    #[inline(always)]
    fn put_contiguous<'burst, F: Iterator<Item = &'burst [u8]>>(
        &mut self,
        frames: impl Fn(usize) -> F,
    ) -> (usize, u64) {
        self.ring.put_contiguous(frames)
    }

    #[inline(always)]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        let header = header_for_guest(frame, self.context.has_guest_checksum);
        match self.ring.put(header, frame.segments(), frame.length()) {
            PutResult::Sent => Outcome::Accepted,
            PutResult::Full => Outcome::Full,
            PutResult::Bad | PutResult::TooLong => Outcome::Refused,
            PutResult::Miss(miss) => {
                self.context.misses.add(miss);
                Outcome::Full
            }
        }
    }

    #[inline(always)]
    fn reports_checksums(&self) -> bool {
        self.context.has_guest_checksum
    }

    #[inline(always)]
    fn publish(&mut self) {
        self.ring.commit();
    }

    #[inline(always)]
    fn notify(&mut self) -> u64 {
        self.context.notify(self.ring)
    }

    #[inline(always)]
    fn take_malformed(&mut self) -> u64 {
        let counters = self.ring.counters();
        let malformed = counters.resyncs.wrapping_add(counters.bad);
        self.context.passed.take(malformed)
    }
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: GateReader<RxRing>,
    pool: Mempool,
    /// Octets of the longest frame without segmentation, without FCS.
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
        let RxRing {
            ring,
            context,
            announce,
        } = &mut *visit;
        if announce.is_some() {
            return receive_announcement(announce, burst, &self.pool);
        }
        let limit = self.limit;
        let count = match ring {
            ring::Receiver::Split(ring) => transfer::receive(
                &mut RxBurst {
                    ring: &mut **ring,
                    context,
                },
                burst,
                most,
                &self.pool,
                limit,
                &self.counters,
            ),
            ring::Receiver::Packed(ring) => transfer::receive(
                &mut RxBurst {
                    ring: &mut **ring,
                    context,
                },
                burst,
                most,
                &self.pool,
                limit,
                &self.counters,
            ),
        };
        if context.has_iotlb {
            ring.look_ahead(|miss| context.misses.add(miss));
        }
        count
    }

    /// Has the guest kick for frames from now on. A ring that is attached later does so once the queue is armed again.
    pub(crate) fn arm(&mut self) {
        self.request_kicks(true);
    }

    pub(crate) fn disarm(&mut self) {
        self.request_kicks(false);
    }

    fn request_kicks(&mut self, wanted: bool) {
        if let Some(mut visit) = self.ring.enter() {
            visit.ring.request_notifications(wanted);
        }
    }
}

/// Receives a RARP request in the name of the guest (RFC 903), from which bridges learn its new port.
#[cold]
fn receive_announcement(
    announce: &mut Option<[u8; 6]>,
    burst: &mut Burst,
    pool: &Mempool,
) -> usize {
    let Some(address) = announce.take() else {
        return 0;
    };
    if !burst.is_empty() || !burst.allocate(pool, 1) {
        *announce = Some(address);
        return burst.len();
    }
    let frame = rarp_request(address);
    let length = u16::try_from(frame.len()).unwrap_or(u16::MAX);
    burst.write_each(|blank| {
        if let Some(octets) = blank.octets(length) {
            octets.copy_from_slice(&frame);
        }
    });
    1
}

/// Returns a broadcast RARP request with the smallest frame size.
fn rarp_request(address: [u8; 6]) -> [u8; 60] {
    // Ethernet, IPv4, sizes of their addresses, and the operation 'request reverse'.
    const FIXED: [u8; 8] = [0, 1, 8, 0, 6, 4, 0, 3];
    let mut frame = [0; 60];
    let parts: [(usize, &[u8]); 6] = [
        (0, &[0xff; 6]),
        (6, &address),
        (12, &[0x80, 0x35]),
        (14, &FIXED),
        (22, &address),
        (32, &address),
    ];
    for (at, octets) in parts {
        let rest = frame.get_mut(at..).unwrap_or_default();
        if let Some(place) = rest.get_mut(..octets.len()) {
            place.copy_from_slice(octets);
        }
    }
    frame
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

    #[inline(always)]
    pub(crate) fn send(&mut self, burst: &mut Burst) -> usize {
        let Some(mut visit) = self.ring.enter() else {
            return 0;
        };
        let TxRing { ring, context } = &mut *visit;
        let count = match ring {
            ring::Sender::Split(ring) => transfer::send(
                &mut TxBurst {
                    ring: &mut **ring,
                    context,
                },
                burst,
                &self.counters,
            ),
            ring::Sender::Packed(ring) => transfer::send(
                &mut TxBurst {
                    ring: &mut **ring,
                    context,
                },
                burst,
                &self.counters,
            ),
        };
        if context.has_iotlb {
            ring.look_ahead(|miss| context.misses.add(miss));
        }
        count
    }

    /// Returns true while the guest accepts frames with TCP data of any length, over this version of IP.
    pub(crate) fn accepts_tso(&self, is_ipv4: bool) -> bool {
        accepts_tso(self.status.features(), is_ipv4)
    }
}

fn accepts_tso(features: u64, is_ipv4: bool) -> bool {
    let segmentation = if is_ipv4 {
        NET_F_GUEST_TSO4
    } else {
        NET_F_GUEST_TSO6
    };
    let needed = NET_F_GUEST_CSUM | segmentation;
    features & needed == needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_takes_tso_data_when_it_accepted_both_features() {
        let takes = |features| [true, false].map(|is_ipv4| accepts_tso(features, is_ipv4));
        assert_eq!(takes(NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6), [false, false]);
        assert_eq!(takes(NET_F_GUEST_CSUM | NET_F_GUEST_TSO4), [true, false]);
        assert_eq!(takes(NET_F_GUEST_CSUM | NET_F_GUEST_TSO6), [false, true]);
        assert_eq!(takes(0), [false, false]);
    }

    #[test]
    fn misses_are_passed_on_once() {
        let misses = Misses::default();
        assert_eq!(misses.take().count(), 0);
        let miss = |iova, write| Miss { iova, write };
        for iova in [0x1234_5678, 0x1234_5fff, 0x1234_6000] {
            misses.add(miss(iova, true));
        }
        misses.add(miss(0x1234_5000, false));
        let expected = [
            miss(0x1234_5000, true),
            miss(0x1234_6000, true),
            miss(0x1234_5000, false),
        ];
        assert_eq!(misses.take().collect::<Vec<_>>(), expected);
        assert_eq!(misses.take().count(), 0);
        misses.add(miss(0x1000, false));
        misses.add(miss(0x2000, false));
        misses.retain(|miss| miss.iova != 0x1000);
        assert_eq!(misses.take().collect::<Vec<_>>(), [miss(0x2000, false)]);
        // Addresses without a free word are lost.
        for page in 0..2 * AHEAD_MAX as u64 {
            misses.add(miss(page << 12, false));
        }
        assert_eq!(misses.take().count(), AHEAD_MAX);
    }
}
