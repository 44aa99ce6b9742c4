// SPDX-License-Identifier: Apache-2.0
//! Later fragments that arrive before the first one of their datagram, before connection tracking and NAT.
//!
//! A fragment waits as a copy in the pool of copies, so it keeps no buffer of the port that received it. The numbers of datagrams and
//! fragments of a thread and of a source are bounded ([`FragmentOrder`]), and the fragments of all threads have a part of the pool
//! ([`HeldBudget`]). A released fragment continues behind the steering rules and the source guard of its port, which it has passed.

use std::sync::Arc;

use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool};
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{Verdict, Verdicts};
use quietwire_tables::fragment_order::{
    Arrival, FragmentOrder, FrameFragment, HELD_DATAGRAMS, HELD_OF_SOURCE, ReleasedPlace,
    may_be_fragment,
};

use super::inspect::HeldBudget;
use super::lengths::measure;
use super::mark::Mark;
use super::path::Path;
use super::route::Routing;
use super::share::ShareStage;
use super::telemetry::Telemetry;
use crate::counters::{PortCounters, Step};

/// Most datagrams in a turn whose fragments wait no longer.
pub(super) const DATAGRAMS_A_TURN: usize = 16;

// The fragments of a datagram are in one burst.
const _: () = assert!(HELD_OF_SOURCE <= BURST_MAX);

/// Later fragments of a thread that wait.
#[derive(Debug)]
pub(crate) struct FragmentStage {
    order: FragmentOrder,
    /// The fragments of each datagram, by the number of its place.
    held: Box<[Burst]>,
    /// Has one for each fragment that waits.
    budget: Arc<HeldBudget>,
}

impl FragmentStage {
    /// Creates the stage without fragments and with all of its memory, about 0.4 MiB.
    pub(crate) fn new(eal: &Eal, budget: Arc<HeldBudget>) -> Self {
        Self {
            order: FragmentOrder::new(),
            held: (0..HELD_DATAGRAMS).map(|_| Burst::new(eal)).collect(),
            budget,
        }
    }

    /// Returns true if fragments wait.
    #[inline(always)]
    pub(super) const fn holds(&self) -> bool {
        self.order.held() > 0
    }

    /// Stores a copy of a fragment in its place. Returns false, and revokes the place, if there is no buffer.
    fn hold(
        &mut self,
        place: usize,
        frame: &Mbuf<'_>,
        pool: &Mempool,
        telemetry: &mut Telemetry,
    ) -> bool {
        if !self.budget.take() {
            self.order.cancel(place);
            return false;
        }
        // A frame with data to be segmented may be in many buffers.
        let copy = frame.copy(pool);
        let copy = copy.filter(|copy| copy.octets().len() == copy.length() as usize);
        if let (Some(copy), Some(held)) = (copy, self.held.get_mut(place)) {
            let buffer = copy.buffer();
            if held.push(copy).is_ok() {
                if telemetry.is_watched() {
                    telemetry.held(frame.buffer(), buffer);
                }
                return true;
            }
        }
        self.budget.give(1);
        self.order.cancel(place);
        false
    }

    /// Moves the fragments of a datagram that wait no longer to an empty burst. `None` if all wait.
    pub(super) fn take_released(&mut self, burst: &mut Burst, now_s: u32) -> Option<ReleasedPlace> {
        let released = self.order.release(now_s)?;
        if let Some(held) = self.held.get_mut(released.place) {
            std::mem::swap(held, burst);
        }
        self.budget.give(burst.len());
        Some(released)
    }

    /// Drops the fragments of a port with these counters. Another port may get its number.
    pub(super) fn forget(&mut self, port: u16, counters: Option<&PortCounters>) {
        while let Some(place) = self.order.forget(port) {
            if let Some(held) = self.held.get_mut(place) {
                self.budget.give(held.len());
                drop_late(held, counters);
            }
        }
    }

    /// Counts the fragments that wait as dropped, before the stage is dropped. `counters` are those of all ports.
    pub(super) fn abandon(&self, counters: &[PortCounters]) {
        for (place, port) in self.order.waiting() {
            let of_port = counters.get(usize::from(port));
            if let (Some(held), Some(of_port)) = (self.held.get(place), of_port) {
                count_late(held, of_port);
            }
        }
    }
}

impl Drop for FragmentStage {
    fn drop(&mut self) {
        self.budget.give(self.order.held());
    }
}

/// Drops fragments whose first one has not arrived in time.
pub(super) fn drop_late(burst: &mut Burst, counters: Option<&PortCounters>) {
    if let Some(counters) = counters {
        count_late(burst, counters);
    }
    burst.free();
}

/// Counts fragments whose first one has not arrived in time.
fn count_late(burst: &Burst, counters: &PortCounters) {
    let (frames, (octets, _)) = (burst.len() as u64, measure(burst));
    counters.drop_received(PortDrop::FragmentTimeout, frames, octets);
}

impl Routing {
    /// Returns true if NAT may translate a frame to the router, by its addresses alone.
    pub(super) fn may_translate(&self, frame: &[u8]) -> bool {
        let (Some(nat), Some(domain)) = (&self.nat, &self.domain) else {
            return false;
        };
        let Some(destination) = frame.first_chunk::<6>() else {
            return false;
        };
        let mut interfaces = domain.router.interfaces.iter();
        interfaces.any(|(_, one)| one.mac.0 == *destination) && nat.may_translate(frame)
    }
}

/// Resources to order the fragments of a burst.
pub(super) struct FragmentContext<'worker> {
    pub(super) stage: &'worker mut FragmentStage,
    /// Part in the state of connections that several threads share, if they do.
    pub(super) share: Option<&'worker mut ShareStage>,
    /// Zone of the port's connections.
    pub(super) zone: u16,
    pub(super) now_s: u32,
    /// Empty before and after.
    pub(super) kept: &'worker mut Burst,
    pub(super) pool: &'worker Mempool,
}

impl Path<'_> {
    /// Returns true if a fragment may be in the burst.
    #[inline(always)]
    pub(super) fn may_have_fragments(&self) -> bool {
        self.received.frames().any(may_be_fragment)
    }

    /// Lets later fragments wait for the first one of their datagram, and hands those over that another thread owns. `needs_first` returns
    /// true for frames to be tracked or translated. Returns false if no frame is left.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "numbers of ports have 16 bits, and a burst has at most BURST_MAX frames"
    )]
    #[inline(never)]
    pub(super) fn order_fragments(
        &mut self,
        input: usize,
        context: FragmentContext<'_>,
        needs_first: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let FragmentContext {
            stage,
            mut share,
            zone,
            now_s,
            kept,
            pool,
        } = context;
        let port = input as u16;
        let mut arrivals = [Arrival::Pass; BURST_MAX];
        let mut owners = [None; BURST_MAX];
        let places = arrivals.iter_mut().zip(&mut owners);
        for (octets, (arrival, owner)) in self.received.frames().zip(places) {
            if !may_be_fragment(octets) || !needs_first(octets) {
                continue;
            }
            if let Some(fragment) = FrameFragment::of_frame(octets, zone) {
                *arrival = stage.order.arrive(&fragment, port, now_s);
                if *arrival == Arrival::Pass
                    && let Some(share) = share.as_deref_mut()
                {
                    *owner = share.owner_of_fragment(octets, now_s);
                }
            }
        }
        if self.telemetry.is_watched() {
            let mut verdicts: Verdicts = [Verdict::Short; BURST_MAX];
            for (verdict, arrival) in verdicts.iter_mut().zip(&arrivals) {
                if *arrival == Arrival::Overflow {
                    *verdict = Verdict::Guarded(PortDrop::FragmentOverflow);
                }
            }
            self.telemetry.filtered(self.received, &verdicts);
        }
        let (mut overflow, mut octets) = (0, 0);
        let mut others = 0;
        let decisions = arrivals.into_iter().zip(owners);
        for (mut frame, (arrival, owner)) in self.received.drain().zip(decisions) {
            let length = u64::from(frame.length());
            let has_space = match (arrival, owner, share.as_deref_mut()) {
                (Arrival::Pass, Some(owner), Some(share)) => {
                    frame.set_mark(Mark::Relayed(port).number());
                    share.put(owner, frame);
                    others += 1;
                    true
                }
                (Arrival::Pass, ..) => {
                    // `kept` has space for a burst.
                    drop(kept.push(frame));
                    true
                }
                (Arrival::Hold(place), ..) => stage.hold(place, &frame, pool, self.telemetry),
                (Arrival::Overflow, ..) => false,
            };
            if !has_space {
                overflow += 1;
                octets += length;
            }
        }
        std::mem::swap(self.received, kept);
        let counters = self.counters.get(input);
        if overflow > 0
            && let Some(counters) = counters
        {
            counters.drop_received(PortDrop::FragmentOverflow, overflow, octets);
        }
        if others > 0
            && let Some(share) = share
        {
            share.flush_of(counters, self.telemetry);
            self.telemetry.lap_of(Step::Relay, others);
        }
        !self.received.is_empty()
    }

    /// Hands released fragments of a port over that another thread owns. Returns false if no frame is left. `kept` is empty before and after.
    pub(super) fn pass_fragments_on(
        &mut self,
        port: u16,
        share: &mut ShareStage,
        kept: &mut Burst,
        now_s: u32,
    ) -> bool {
        for mut frame in self.received.drain() {
            match share.owner_of_fragment(frame.octets(), now_s) {
                // `kept` has space for a burst.
                None => drop(kept.push(frame)),
                Some(owner) => {
                    frame.set_mark(Mark::Relayed(port).number());
                    share.put(owner, frame);
                }
            }
        }
        std::mem::swap(self.received, kept);
        let counters = self.counters.get(usize::from(port));
        share.flush_of(counters, self.telemetry);
        !self.received.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use quietwire_tables::filter::RuleCounters;

    use super::super::effects::Effects;
    use super::super::path::Leaving;
    use super::*;
    use crate::counters::ThreadCounters;
    use crate::filter_log::FilterLog;
    use crate::testing::eal;

    const BUFFERS: u32 = 511;

    /// Returns the frame of a fragment with this number in its datagram, 8 octets each.
    fn frame(identification: u8, number: u8) -> Vec<u8> {
        let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
        frame.extend([
            0x45,
            0,
            0,
            28,
            0,
            identification,
            0x20,
            number,
            64,
            17,
            0,
            0,
        ]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.resize(60, 0);
        frame
    }

    struct World {
        stage: FragmentStage,
        budget: Arc<HeldBudget>,
        of_port: Mempool,
        copies: Mempool,
        counters: Arc<ThreadCounters>,
        telemetry: Telemetry,
        burst: Burst,
    }

    /// Creates a stage in which this number of fragments may wait.
    fn world(eal: &Eal, name: &str, space: usize) -> World {
        let budget = Arc::new(HeldBudget::default());
        budget.give(space);
        let counters = Arc::new(ThreadCounters::new());
        let pool = |of: &str| Mempool::new(eal, &format!("{name}-{of}"), BUFFERS, 256).unwrap();
        World {
            stage: FragmentStage::new(eal, Arc::clone(&budget)),
            budget,
            of_port: pool("port"),
            copies: pool("copies"),
            telemetry: Telemetry::new(Arc::clone(&counters)),
            counters,
            burst: Burst::new(eal),
        }
    }

    impl World {
        /// Returns true if a fragment waits.
        fn arrive(&mut self, eal: &Eal, octets: &[u8], port: u16, now_s: u32) -> bool {
            let frame = Mbuf::new(eal, &self.of_port, octets).unwrap();
            let fragment = FrameFragment::of_frame(octets, 0).unwrap();
            match self.stage.order.arrive(&fragment, port, now_s) {
                Arrival::Hold(place) => {
                    let telemetry = &mut self.telemetry;
                    self.stage.hold(place, &frame, &self.copies, telemetry)
                }
                Arrival::Pass | Arrival::Overflow => false,
            }
        }

        /// Returns port and octets of the fragments of a datagram that wait no longer.
        fn release(&mut self, now_s: u32) -> Option<(u16, Vec<Vec<u8>>)> {
            let released = self.stage.take_released(&mut self.burst, now_s)?;
            let octets = self.burst.frames().map(<[u8]>::to_vec).collect();
            self.burst.free();
            Some((released.port, octets))
        }

        /// Checks that this number of fragments waits, each with one buffer of the pool of copies.
        fn assert_held(&self, count: u32) {
            assert_eq!(self.stage.order.held() as u32, count);
            assert_eq!(self.copies.available(), BUFFERS - count);
            assert_eq!(self.of_port.available(), BUFFERS, "a port misses a buffer");
        }
    }

    #[test]
    fn fragments_wait_as_copies_and_leave_in_order() {
        let eal = eal();
        let mut world = world(&eal, "fragments", 100);
        for (port, number) in [(4, 3), (5, 1), (4, 2)] {
            assert!(world.arrive(&eal, &frame(7, number), port, 0));
        }
        world.assert_held(3);
        assert!(world.stage.holds() && world.release(1).is_none());
        assert!(!world.arrive(&eal, &frame(7, 0), 4, 1));
        let mut released = [world.release(1), world.release(1)].map(Option::unwrap);
        released.sort();
        let of_ports = [(4, vec![frame(7, 3), frame(7, 2)]), (5, vec![frame(7, 1)])];
        assert_eq!(released, of_ports);
        assert!(world.release(1).is_none() && !world.stage.holds());
        world.assert_held(0);
    }

    #[test]
    fn a_burst_leaves_without_the_fragments_before_the_first_one() {
        let eal = eal();
        let mut world = world(&eal, "fragments-burst", 1);
        let mut whole = frame(9, 0);
        whole[20] = 0;
        let sent = [frame(7, 2), whole, frame(7, 1), frame(7, 0), frame(7, 3)];
        let counters = Arc::clone(&world.counters);
        let frames = RuleCounters::default().thread();
        let mut effects = Effects::new(frames, FilterLog::default().writer(), &eal);
        let (mut kept, mut spare) = (Burst::new(&eal), Burst::new(&eal));
        for (needs_first, passing) in [(false, vec![0, 1, 2, 3, 4]), (true, vec![1, 3, 4])] {
            for octets in &sent {
                let frame = Mbuf::new(&eal, &world.of_port, octets).unwrap();
                assert!(world.burst.push(frame).is_ok());
            }
            let mut path = Path {
                received: &mut world.burst,
                outputs: &mut [],
                counters: &counters.ports,
                telemetry: &mut world.telemetry,
                leaving: Leaving {
                    rules: None,
                    from: Some(4),
                    spare: &mut spare,
                    effects: &mut effects,
                    pool: &world.copies,
                },
            };
            let context = FragmentContext {
                stage: &mut world.stage,
                share: None,
                zone: 0,
                now_s: 0,
                kept: &mut kept,
                pool: &world.copies,
            };
            assert!(path.may_have_fragments());
            assert!(path.order_fragments(4, context, |_| needs_first));
            let left: Vec<Vec<u8>> = world.burst.frames().map(<[u8]>::to_vec).collect();
            let expected: Vec<Vec<u8>> =
                passing.iter().map(|number| sent[*number].clone()).collect();
            assert_eq!(left, expected);
            world.burst.free();
        }
        // There is a buffer for one.
        let of_port = &counters.ports[4];
        assert_eq!(of_port.dropped(PortDrop::FragmentOverflow).get(), 1);
        assert_eq!((of_port.rx_frames.get(), of_port.rx_octets.get()), (1, 60));
        assert_eq!(world.release(0), Some((4, vec![frame(7, 2)])));
        world.assert_held(0);
    }

    #[test]
    fn fragments_without_a_buffer_have_no_space() {
        let eal = eal();
        let mut world = world(&eal, "fragments-few", 2);
        let waits: Vec<bool> = (1..5)
            .map(|number| world.arrive(&eal, &frame(7, number), 4, 0))
            .collect();
        assert_eq!(waits, [true, true, false, false]);
        world.assert_held(2);
        assert_eq!(world.release(2), Some((4, vec![frame(7, 1), frame(7, 2)])));
        // Their space is free again.
        assert!(world.arrive(&eal, &frame(8, 1), 4, 2));
        world.assert_held(1);
    }

    #[test]
    fn fragments_of_a_port_that_leaves_are_counted_and_freed() {
        let eal = eal();
        let mut world = world(&eal, "fragments-port", 3);
        for (port, number) in [(4, 3), (5, 1), (4, 2)] {
            assert!(world.arrive(&eal, &frame(port, number), port.into(), 0));
        }
        let counters = Arc::clone(&world.counters);
        world.stage.forget(4, counters.ports.get(4));
        world.assert_held(1);
        let of_port = &counters.ports[4];
        let dropped = of_port.dropped(PortDrop::FragmentTimeout).get();
        let received = (of_port.rx_frames.get(), of_port.rx_octets.get());
        assert_eq!((dropped, received), (2, (2, 120)));
        // The thread ends.
        world.stage.abandon(&counters.ports);
        let of_other = &counters.ports[5];
        assert_eq!(of_other.dropped(PortDrop::FragmentTimeout).get(), 1);
        let received = (of_other.rx_frames.get(), of_other.rx_octets.get());
        assert_eq!(received, (1, 60));
        assert_eq!(of_port.dropped(PortDrop::FragmentTimeout).get(), 2);
        let World {
            stage,
            budget,
            copies,
            ..
        } = world;
        drop(stage);
        assert_eq!(copies.available(), BUFFERS, "a buffer is lost");
        let left = (0..5).filter(|_| budget.take()).count();
        assert_eq!(left, 3, "space is lost");
    }
}
