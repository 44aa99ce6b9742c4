// SPDX-License-Identifier: Apache-2.0
//! A guest's rings as forwarding threads use them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_memory::Doorbell;
use quietwire_memory::gate::Visitor;
use quietwire_vhost::address_space::Miss;
use quietwire_vhost::features::{
    NET_F_GUEST_CSUM, NET_F_GUEST_TSO4, NET_F_GUEST_TSO6, NET_F_HOST_TSO4, NET_F_HOST_TSO6,
};
use quietwire_vhost::ring::{self, Pieces, Put, Receive, Received, Transmit};

use super::offload::{Offload, header_of};
use crate::burst::{Burst, Mbuf};
use crate::mempool::Mempool;
use crate::port::counters::QueueCounters;
use crate::port::peer::Status;
use crate::port::transfer::{self, Arrival, Next, Outcome, Outgoing, Passed, Sink, Source};

/// An address that a ring waits for, for the thread that talks to peers. 0 without one: the lowest bit of others is set.
#[derive(Debug, Default)]
pub(super) struct MissSlot(AtomicU64);

impl MissSlot {
    /// Misses are reported for whole pages, so the low bits are free.
    const PAGE: u64 = 4096;
    const IS_SET: u64 = 1;
    const IS_WRITE: u64 = 2;

    /// Notes what a ring waits for.
    #[cold]
    pub(super) fn set(&self, miss: Miss) {
        self.put_back(miss.iova, miss.write);
    }

    /// Notes an address, in place of any other.
    pub(super) fn put_back(&self, iova: u64, is_write: bool) {
        let page = iova / Self::PAGE * Self::PAGE;
        let write = if is_write { Self::IS_WRITE } else { 0 };
        self.0.store(page | Self::IS_SET | write, Ordering::Relaxed);
    }

    /// Returns the address and whether it is to be written to, once.
    pub(super) fn take(&self) -> Option<(u64, bool)> {
        match self.0.swap(0, Ordering::Relaxed) {
            0 => None,
            word => Some((word / Self::PAGE * Self::PAGE, word & Self::IS_WRITE != 0)),
        }
    }
}

/// What a ring needs beside itself, the same for both directions.
#[derive(Debug)]
pub(super) struct Surroundings {
    /// The guest's interrupt; none when it polls.
    pub(super) call: Option<Doorbell>,
    pub(super) miss: Arc<MissSlot>,
    pub(super) has_tso: bool,
    /// The connection that the ring belongs to.
    pub(super) connection: u32,
    passed: Passed,
}

impl Surroundings {
    pub(super) fn new(
        call: Option<Doorbell>,
        miss: Arc<MissSlot>,
        features: u64,
        connection: u32,
    ) -> Self {
        Self {
            call,
            miss,
            has_tso: features & (NET_F_HOST_TSO4 | NET_F_HOST_TSO6) != 0,
            connection,
            passed: Passed::default(),
        }
    }

    /// Wakes the guest. Returns the number of interrupts.
    #[inline(always)]
    fn notify(&self, is_wanted: bool) -> u64 {
        match &self.call {
            Some(call) if is_wanted => u64::from(call.ring()),
            _ => 0,
        }
    }
}

/// A ring that a guest sends frames through.
#[derive(Debug)]
pub(crate) struct RxRing {
    pub(super) ring: ring::Receiver,
    pub(super) around: Surroundings,
    /// A guest that came here by migration: its address is to be announced (`VHOST_USER_SEND_RARP`).
    pub(super) announce: Option<[u8; 6]>,
}

/// A ring that a guest receives frames through.
#[derive(Debug)]
pub(crate) struct TxRing {
    pub(super) ring: ring::Sender,
    pub(super) around: Surroundings,
}

/// One kind of ring, for one burst.
struct RxBurst<'ring, R> {
    ring: &'ring mut R,
    around: &'ring mut Surroundings,
    limit: u32,
}

impl<R: Receive> Source for RxBurst<'_, R> {
    type Offload = Offload;
    type Rest<'ring>
        = Pieces<'ring>
    where
        Self: 'ring;

    #[inline(always)]
    fn ready(&mut self, most: usize) -> usize {
        self.ring.ready(most)
    }

    #[inline(always)]
    fn next(&mut self) -> Option<Next<'_, Pieces<'_>, Offload>> {
        let (has_tso, limit) = (self.around.has_tso, self.limit);
        match self.ring.next()? {
            Received::Frame {
                header,
                first,
                rest,
                length,
            } => Some(Next::Frame(Arrival {
                first,
                rest,
                length,
                offload: Offload {
                    header,
                    has_tso,
                    limit,
                },
            })),
            Received::Bad => Some(Next::Unsound),
            Received::Miss(miss) => {
                self.around.miss.set(miss);
                None
            }
        }
    }

    #[inline(always)]
    fn release(&mut self) {
        let is_wanted = self.ring.release();
        self.around.notify(is_wanted);
    }

    #[inline(always)]
    fn take_unsound(&mut self) -> u64 {
        self.around.passed.take(self.ring.counters().resyncs)
    }

    #[inline(always)]
    fn length_max(offload: Offload, limit: u32) -> u32 {
        offload.length_max(limit)
    }

    #[inline(always)]
    fn complete(offload: Offload, frame: &mut Mbuf<'_>) -> bool {
        offload.header.is_plain() || offload.complete(frame)
    }
}

/// One kind of ring, for one burst.
struct TxBurst<'ring, R> {
    ring: &'ring mut R,
    around: &'ring mut Surroundings,
}

impl<R: Transmit> Sink for TxBurst<'_, R> {
    #[inline(always)]
    fn ready(&mut self, count: usize) {
        self.ring.ready(count);
    }

    #[inline(always)]
    fn put(&mut self, frame: &Outgoing<'_>) -> Outcome {
        let header = header_of(frame).unwrap_or_default();
        match self.ring.put(header, frame.segments(), frame.length()) {
            Put::Sent => Outcome::Taken,
            Put::Full => Outcome::Full,
            Put::Bad | Put::TooLong => Outcome::Refused,
            Put::Miss(miss) => {
                self.around.miss.set(miss);
                Outcome::Full
            }
        }
    }

    #[inline(always)]
    fn publish(&mut self) -> u64 {
        let is_wanted = self.ring.publish();
        self.around.notify(is_wanted)
    }

    #[inline(always)]
    fn take_unsound(&mut self) -> u64 {
        let counters = self.ring.counters();
        self.around.passed.take(counters.resyncs + counters.bad)
    }
}

/// A receive queue.
#[derive(Debug)]
pub(crate) struct Receiver {
    ring: Visitor<RxRing>,
    pool: Mempool,
    /// Octets of the longest frame without segmentation, without FCS.
    limit: u32,
    counters: Arc<QueueCounters>,
}

impl Receiver {
    pub(super) fn new(
        ring: Visitor<RxRing>,
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
            around,
            announce,
        } = &mut *visit;
        if announce.is_some() {
            return receive_announcement(announce, burst, &self.pool);
        }
        let limit = self.limit;
        match ring {
            ring::Receiver::Split(ring) => transfer::receive(
                &mut RxBurst {
                    ring: &mut **ring,
                    around,
                    limit,
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
                    around,
                    limit,
                },
                burst,
                most,
                &self.pool,
                limit,
                &self.counters,
            ),
        }
    }
}

/// Yields a RARP request from the guest (RFC 903), which has bridges learn where it is now.
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
    burst.write_each(|blank| {
        if let Some(octets) = blank.octets(frame.len() as u16) {
            octets.copy_from_slice(&frame);
        }
    });
    1
}

/// A broadcast RARP request of the smallest frame's size.
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
        if let Some(place) = frame.get_mut(at..at + octets.len()) {
            place.copy_from_slice(octets);
        }
    }
    frame
}

/// A transmit queue.
#[derive(Debug)]
pub(crate) struct Sender {
    ring: Visitor<TxRing>,
    status: Arc<Status>,
    counters: Arc<QueueCounters>,
}

impl Sender {
    pub(super) fn new(
        ring: Visitor<TxRing>,
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
        let TxRing { ring, around } = &mut *visit;
        match ring {
            ring::Sender::Split(ring) => transfer::send(
                &mut TxBurst {
                    ring: &mut **ring,
                    around,
                },
                burst,
                &self.counters,
            ),
            ring::Sender::Packed(ring) => transfer::send(
                &mut TxBurst {
                    ring: &mut **ring,
                    around,
                },
                burst,
                &self.counters,
            ),
        }
    }

    /// True while the guest takes frames with TCP data of any length, over this version of IP.
    pub(crate) fn takes_uncut(&self, is_ipv4: bool) -> bool {
        takes_uncut(self.status.features(), is_ipv4)
    }
}

fn takes_uncut(features: u64, is_ipv4: bool) -> bool {
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
    fn a_guest_takes_uncut_data_when_it_accepted_both_features() {
        let takes = |features| [true, false].map(|is_ipv4| takes_uncut(features, is_ipv4));
        assert_eq!(takes(NET_F_GUEST_TSO4 | NET_F_GUEST_TSO6), [false, false]);
        assert_eq!(takes(NET_F_GUEST_CSUM | NET_F_GUEST_TSO4), [true, false]);
        assert_eq!(takes(NET_F_GUEST_CSUM | NET_F_GUEST_TSO6), [false, true]);
        assert_eq!(takes(0), [false, false]);
    }

    #[test]
    fn misses_are_passed_on_once() {
        let slot = MissSlot::default();
        assert_eq!(slot.take(), None);
        slot.set(Miss {
            iova: 0x1234_5678,
            write: true,
        });
        assert_eq!(slot.take(), Some((0x1234_5000, true)));
        assert_eq!(slot.take(), None);
    }
}
