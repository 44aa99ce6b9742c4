// SPDX-License-Identifier: Apache-2.0
//! Packets for the service thread. A flood of one interface, such as packets without a route, must not keep those of others from it: without
//! ARP and the packets of routing protocols, the others lose their neighbours.

use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{Burst, Eal};

use super::mark::interface_of;

/// Packets of an interface in a second that are passed on while at least half of the ring is in use. ARP and routing protocols have fewer.
const CROWDED_PER_SECOND: u32 = 1000;
/// Numbers of interfaces are below this one (`Adjacency`).
const INTERFACES: usize = 4096;

/// Packets of an interface in a second of the coarse clock.
#[derive(Clone, Copy, Debug, Default)]
struct Passed {
    second: u32,
    count: u32,
}

/// The ring to the service thread, and what each interface has passed to it.
#[derive(Debug)]
pub(super) struct PuntSender {
    ring: FrameSender,
    passed: Box<[Passed]>,
    /// Empty before and after.
    kept: Burst,
}

impl PuntSender {
    /// Creates the sender with all of its memory, 32 KiB.
    pub(super) fn new(eal: &Eal, ring: FrameSender) -> Self {
        Self {
            ring,
            passed: vec![Passed::default(); INTERFACES].into_boxed_slice(),
            kept: Burst::new(eal),
        }
    }

    /// Sends marked packets, and empties the burst. Returns the number of those that are lost: the ring was full, or at least half of it was
    /// in use and their interface had passed its share in the second `now_s`.
    pub(super) fn send(&mut self, punts: &mut Burst, now_s: u32) -> u64 {
        let before = punts.len();
        let is_crowded = self.ring.is_half_full();
        for frame in punts.drain() {
            if self.may_pass(interface_of(frame.mark()), is_crowded, now_s) {
                // `kept` has space for a burst.
                drop(self.kept.push(frame));
            }
        }
        let sent = self.ring.send(&mut self.kept);
        self.kept.free();
        before.saturating_sub(sent) as u64
    }

    /// Returns true if a packet of an interface may be passed on, and counts it.
    fn may_pass(&mut self, interface: u16, is_crowded: bool, now_s: u32) -> bool {
        let Some(passed) = self.passed.get_mut(usize::from(interface)) else {
            return !is_crowded;
        };
        if passed.second != now_s {
            *passed = Passed {
                second: now_s,
                count: 0,
            };
        }
        let may = !is_crowded || passed.count < CROWDED_PER_SECOND;
        passed.count = passed.count.saturating_add(u32::from(may));
        may
    }
}

#[cfg(test)]
mod tests {
    use quietwire_dpdk::{BURST_MAX, Mbuf, Mempool, ring};
    use quietwire_tables::route::Punt;

    use super::super::mark::Mark;
    use super::*;
    use crate::testing::eal;

    #[test]
    fn a_flood_of_an_interface_leaves_half_of_the_ring_to_others() {
        const ROUND: usize = 32;
        let eal = eal();
        let pool = Mempool::new(&eal, "punts", 511, 256).unwrap();
        let (sender, mut receiver) = ring::channel(&eal, 2 * ROUND);
        let mut punts = PuntSender::new(&eal, sender);
        let (mut burst, mut received) = (Burst::new(&eal), Burst::new(&eal));
        // Returns the number of lost packets.
        let mut pass = |interface: u16, count: usize, now_s: u32| {
            for _ in 0..count {
                let frame = Mbuf::new(&eal, &pool, &[0; 60]).unwrap();
                Mark::Punt(Punt::NoRoute, interface, false).push(frame, &mut burst);
            }
            punts.send(&mut burst, now_s)
        };
        // As long as the service thread keeps up, all packets pass.
        for _ in 0..=CROWDED_PER_SECOND as usize / ROUND {
            assert_eq!(pass(1, ROUND, 7), 0);
            assert_eq!(receiver.receive(&mut received, BURST_MAX), ROUND);
            received.free();
        }
        assert_eq!(pass(1, ROUND, 7), 0);
        assert_eq!((pass(1, 8, 7), pass(2, 8, 7)), (8, 0));
        // The next second.
        assert_eq!(pass(1, 8, 8), 0);
        // A full ring.
        assert_eq!(pass(2, ROUND, 8), 16);
        assert_eq!(receiver.len(), 2 * ROUND);
        drop(receiver);
        assert_eq!(pool.available(), 511);
    }
}
