// SPDX-License-Identifier: Apache-2.0
//! Frames between forwarding threads that share the state of connections. The thread that receives a frame hands it over to the thread that
//! owns the connection, which processes it as if it had received it. The thread of its addresses orders the fragments to external addresses of
//! NAT, and hands them over to the thread of the first one.
//!
//! Each pair of threads has a bounded ring in each direction. A full ring drops frames: waiting for one thread would delay all others.
//! Frames of one connection that arrive in one receive queue pass one ring, so they stay in order.

use std::sync::Arc;

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf};
use quietwire_tables::drops::PortDrop;
use quietwire_tables::owner::{FragmentOwners, Owners};

use super::lengths::measure;
use super::mark::Mark;
use super::telemetry::Telemetry;
use crate::counters::{PortCounters, Step};

/// Changes of the set of threads for which their former rings are read.
const FORMER: usize = 2;

/// The ring to an owner, and the frames that wait for the end of the burst.
#[derive(Debug)]
struct OwnerOutput {
    ring: FrameSender,
    waiting: Burst,
}

/// A thread's part in the sharing. The control thread makes all memory.
#[derive(Debug)]
pub(crate) struct ShareStage {
    owners: Arc<Owners>,
    /// Owners of the fragments that this thread orders.
    fragments: Box<FragmentOwners>,
    /// Number of this thread among the owners; `None` for a thread that owns nothing, because it is about to end.
    number: Option<u16>,
    /// By number of the owner. `None` for this thread itself.
    to_owners: Vec<Option<OwnerOutput>>,
    from_others: Vec<FrameReceiver>,
    /// Rings of earlier sets of threads, which may have frames.
    former: [Vec<FrameReceiver>; FORMER],
    /// Frames of one ring.
    received: Burst,
    /// Empty between two steps.
    rest: Burst,
}

impl ShareStage {
    /// Creates the part of the thread with this number among the owners. `senders` are the rings to owners by number, `receivers` those
    /// from all others.
    pub(crate) fn new(
        eal: &Eal,
        (owners, number): (Arc<Owners>, Option<u16>),
        senders: impl IntoIterator<Item = Option<FrameSender>>,
        receivers: Vec<FrameReceiver>,
    ) -> Self {
        let to_owner = |ring: Option<FrameSender>| {
            let waiting = Burst::new(eal);
            ring.map(|ring| OwnerOutput { ring, waiting })
        };
        Self {
            owners,
            fragments: Box::default(),
            number,
            to_owners: senders.into_iter().map(to_owner).collect(),
            from_others: receivers,
            former: Default::default(),
            received: Burst::new(eal),
            rest: Burst::new(eal),
        }
    }

    /// Continues to read the rings of the former set of threads. Allocates nothing. The table of fragments starts empty, because other
    /// threads own them.
    pub(super) fn inherit(&mut self, former: &mut Self) {
        let [last, before] = &mut self.former;
        let [other_last, _] = &mut former.former;
        std::mem::swap(last, &mut former.from_others);
        std::mem::swap(before, other_last);
    }

    /// Returns its number, and the numbers of rings to and from others.
    #[cfg(test)]
    pub(super) fn rings(&self) -> (Option<u16>, usize, usize) {
        let senders = self.to_owners.iter().flatten().count();
        (self.number, senders, self.from_others.len())
    }

    /// Replaces the owners of packets. Returns the former ones.
    pub(super) fn replace_owners(&mut self, owners: Arc<Owners>) -> Arc<Owners> {
        std::mem::replace(&mut self.owners, owners)
    }

    /// Returns the number of the owner of a frame if it is another thread.
    #[inline(always)]
    pub(super) fn other_owner(&self, octets: &[u8]) -> Option<u16> {
        let owner = self.owners.of_frame(octets)?;
        let has_ring = || matches!(self.to_owners.get(usize::from(owner)), Some(Some(_)));
        (self.number != Some(owner) && has_ring()).then_some(owner)
    }

    /// Returns the number of the owner of a fragment, if it is another thread than this one, which orders the fragments between its addresses.
    /// Later fragments follow the first one.
    pub(super) fn owner_of_fragment(&mut self, octets: &[u8], now_s: u32) -> Option<u16> {
        // No other thread passes fragments on, so none returns.
        if self.owners.of_frame(octets) != self.number {
            return None;
        }
        let owner = self.owners.of_ordered(octets, &mut self.fragments, now_s)?;
        let has_ring = || matches!(self.to_owners.get(usize::from(owner)), Some(Some(_)));
        (self.number != Some(owner) && has_ring()).then_some(owner)
    }

    /// Adds a frame to those for another thread, of which there are at most a burst.
    #[inline(always)]
    pub(super) fn put(&mut self, owner: u16, frame: Mbuf<'_>) {
        if let Some(Some(to)) = self.to_owners.get_mut(usize::from(owner)) {
            drop(to.waiting.push(frame));
        }
    }

    /// Hands the frames of a received burst over that other threads own. Returns false if no frame is left. `kept` is empty before and
    /// after.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(never)]
    pub(super) fn hand_over(
        &mut self,
        port: u16,
        (burst, kept): (&mut Burst, &mut Burst),
        counters: &[PortCounters],
        telemetry: &mut Telemetry,
    ) -> bool {
        let frames = burst.len();
        let mut owners = [None; BURST_MAX];
        let mut others = 0;
        for (octets, owner) in burst.frames().zip(&mut owners) {
            *owner = self.other_owner(octets);
            others += usize::from(owner.is_some());
        }
        if others == 0 {
            return true;
        }
        for (mut frame, owner) in burst.drain().zip(owners) {
            match owner {
                // `kept` has space for a burst.
                None => drop(kept.push(frame)),
                Some(owner) => {
                    frame.set_mark(Mark::Relayed(port).number());
                    self.put(owner, frame);
                }
            }
        }
        std::mem::swap(burst, kept);
        self.flush_of(counters.get(usize::from(port)), telemetry);
        telemetry.lap_of(Step::Relay, others);
        others < frames
    }

    /// Sends the waiting frames of a port with these counters to their owners.
    pub(super) fn flush_of(&mut self, counters: Option<&PortCounters>, telemetry: &mut Telemetry) {
        let (dropped, octets) = self.flush(telemetry);
        if let Some(counters) = counters {
            // The owner counts the others.
            counters.drop_received(PortDrop::OwnerBusy, dropped, octets);
        }
    }

    /// Sends the waiting frames to their owners. Returns frames and octets of those that were dropped because a ring was full.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most BURST_MAX frames for each thread"
    )]
    pub(super) fn flush(&mut self, telemetry: &mut Telemetry) -> (u64, u64) {
        let (mut dropped, mut octets) = (0, 0);
        for OwnerOutput { ring, waiting } in self.to_owners.iter_mut().flatten() {
            if waiting.is_empty() {
                continue;
            }
            if telemetry.is_watched() {
                telemetry.hand_over(waiting);
            }
            ring.send(waiting);
            if waiting.is_empty() {
                continue;
            }
            if telemetry.is_watched() {
                telemetry.not_handed_over(waiting);
            }
            dropped += waiting.len() as u64;
            octets += measure(waiting).0;
            waiting.free();
        }
        (dropped, octets)
    }

    /// Receives at most a burst from the ring with this number. Returns the number of frames; `None` behind the last ring.
    pub(super) fn receive(&mut self, ring: usize) -> Option<usize> {
        // The oldest frames first.
        let former = self.former.iter_mut().rev().flatten();
        let mut rings = former.chain(&mut self.from_others);
        Some(rings.nth(ring)?.receive(&mut self.received, BURST_MAX))
    }

    /// Moves the received frames with the mark of the first one into an empty burst. Returns the mark; `None` without frames.
    pub(super) fn next_part(&mut self, burst: &mut Burst) -> Option<u32> {
        let mark = self.received.marks().next()?;
        for frame in self.received.drain() {
            // Both have space for all frames.
            drop(if frame.mark() == mark {
                burst.push(frame)
            } else {
                self.rest.push(frame)
            });
        }
        std::mem::swap(&mut self.received, &mut self.rest);
        Some(mark)
    }
}

#[cfg(test)]
mod tests {
    use quietwire_dpdk::{Mempool, ring};

    use super::*;
    use crate::counters::ThreadCounters;
    use crate::testing::eal;

    /// Frames of all ports are between hosts of one network.
    fn udp(host: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend([10, 0, 0, host, 10, 0, 0, 254, 0, 1, 0, 2, 0, 8, 0, 0]);
        frame.resize(60, 0);
        frame
    }

    struct Pair {
        shares: Vec<ShareStage>,
        telemetry: Telemetry,
        counters: Arc<ThreadCounters>,
    }

    /// Creates two threads with rings of this many frames.
    fn pair(eal: &Eal, capacity: usize) -> Pair {
        let owners = Arc::new(Owners::new(2));
        let (to_second, from_first) = ring::channel(eal, capacity);
        let (to_first, from_second) = ring::channel(eal, capacity);
        let ends = [
            ([None, Some(to_second)], from_second),
            ([Some(to_first), None], from_first),
        ];
        let share = |(number, (senders, receiver)): (u16, ([Option<FrameSender>; 2], _))| {
            let part = (Arc::clone(&owners), Some(number));
            ShareStage::new(eal, part, senders, vec![receiver])
        };
        let counters = Arc::new(ThreadCounters::new());
        Pair {
            shares: (0..).zip(ends).map(share).collect(),
            telemetry: Telemetry::new(Arc::clone(&counters)),
            counters,
        }
    }

    fn fill(burst: &mut Burst, eal: &Eal, pool: &Mempool, frames: &[Vec<u8>]) {
        for octets in frames {
            let frame = Mbuf::new(eal, pool, octets).unwrap();
            assert!(burst.push(frame).is_ok());
        }
    }

    fn octets(burst: &Burst) -> Vec<Vec<u8>> {
        burst.frames().map(<[u8]>::to_vec).collect()
    }

    #[test]
    fn each_frame_stays_or_goes_to_its_owner_with_its_port() {
        let eal = eal();
        let pool = Mempool::new(&eal, "share", 511, 256).unwrap();
        let mut pair = pair(&eal, 64);
        let sent: Vec<Vec<u8>> = (0..40).map(udp).collect();
        let (mut burst, mut kept) = (Burst::new(&eal), Burst::new(&eal));
        fill(&mut burst, &eal, &pool, &sent);
        let counters = Arc::clone(&pair.counters);
        let bursts = (&mut burst, &mut kept);
        assert!(pair.shares[0].hand_over(3, bursts, &counters.ports, &mut pair.telemetry));
        let owners = Owners::new(2);
        let of = |owner| -> Vec<Vec<u8>> {
            let frames = sent
                .iter()
                .filter(|one| owners.of_frame(one) == Some(owner));
            frames.cloned().collect()
        };
        assert!(!of(0).is_empty() && !of(1).is_empty());
        assert_eq!((octets(&burst), kept.len()), (of(0), 0));
        burst.free();
        // The owner gets the others, in order, and none twice.
        let second = &mut pair.shares[1];
        assert_eq!(second.receive(0), Some(of(1).len()));
        assert_eq!(second.receive(1), None);
        let mark = second.next_part(&mut burst).unwrap();
        assert_eq!(Mark::of_number(mark), Some(Mark::Relayed(3)));
        assert_eq!(octets(&burst), of(1));
        // Its own frames stay.
        let bursts = (&mut burst, &mut kept);
        assert!(pair.shares[1].hand_over(3, bursts, &counters.ports, &mut pair.telemetry));
        assert_eq!(octets(&burst), of(1));
        burst.free();
        assert_eq!(counters.ports[3].dropped(PortDrop::OwnerBusy).get(), 0);
        drop(pair);
        assert_eq!(pool.available(), 511, "a buffer is lost");
    }

    #[test]
    fn frames_that_a_full_ring_refuses_are_counted() {
        let eal = eal();
        let pool = Mempool::new(&eal, "share-full", 511, 256).unwrap();
        let mut pair = pair(&eal, 4);
        let owners = Owners::new(2);
        let host = (0..100).find(|host| owners.of_frame(&udp(*host)) == Some(1));
        let sent = vec![udp(host.unwrap()); 10];
        let (mut burst, mut kept) = (Burst::new(&eal), Burst::new(&eal));
        fill(&mut burst, &eal, &pool, &sent);
        let counters = Arc::clone(&pair.counters);
        let bursts = (&mut burst, &mut kept);
        let has_own = pair.shares[0].hand_over(3, bursts, &counters.ports, &mut pair.telemetry);
        assert!(!has_own && burst.is_empty());
        let of_port = &counters.ports[3];
        assert_eq!(of_port.dropped(PortDrop::OwnerBusy).get(), 6);
        assert_eq!((of_port.rx_frames.get(), of_port.rx_octets.get()), (6, 360));
        assert_eq!(pair.shares[1].receive(0), Some(4));
        drop(pair);
        assert_eq!(pool.available(), 511, "a buffer is lost");
    }

    #[test]
    fn the_rings_of_the_former_threads_are_read_until_they_are_empty() {
        let eal = eal();
        let pool = Mempool::new(&eal, "share-former", 511, 256).unwrap();
        let (mut former, mut next) = (pair(&eal, 8), pair(&eal, 8));
        let owners = Owners::new(2);
        let host = (0..100).find(|host| owners.of_frame(&udp(*host)) == Some(1));
        let sent = vec![udp(host.unwrap()); 3];
        let (mut burst, mut kept) = (Burst::new(&eal), Burst::new(&eal));
        fill(&mut burst, &eal, &pool, &sent);
        let counters = Arc::clone(&former.counters);
        let bursts = (&mut burst, &mut kept);
        former.shares[0].hand_over(3, bursts, &counters.ports, &mut former.telemetry);
        next.shares[1].inherit(&mut former.shares[1]);
        drop(former);
        let second = &mut next.shares[1];
        assert_eq!(second.receive(0), Some(3));
        assert!(second.next_part(&mut burst).is_some());
        assert_eq!([1, 2].map(|ring| second.receive(ring)), [Some(0), None]);
        assert_eq!(octets(&burst), sent);
        burst.free();
        drop(next);
        assert_eq!(pool.available(), 511, "a buffer is lost");
    }
}
