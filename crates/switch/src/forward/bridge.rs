// SPDX-License-Identifier: Apache-2.0
//! Execution of bridge decisions: output to one port or to many, with or without a tag.

use std::sync::Arc;

use quietwire_dpdk::{Burst, Mbuf, Mempool, cycles};

use super::lengths::measure;
use super::output::Output;
use super::path::Path;
use super::route::{RouteContext, keep_for_router};
use super::telemetry::Telemetry;
use crate::counters::{PortCounters, Step};
use quietwire_tables::bridge::{
    BridgeTables, Clock, Copy, Decision, Decisions, Ingress, Storm, StormLimits, TagAction, Tally,
    decide, decide_with,
};
use quietwire_tables::drops::{PortDrop, PortDrops};
use quietwire_tables::fdb::Fdb;
use quietwire_tables::port_mask::PortMask;

/// Bridge state of a port, as read by forwarding threads.
#[derive(Debug)]
pub(crate) struct BridgeStage {
    /// Filtering database of the bridge.
    pub(crate) fdb: Arc<Fdb>,
    /// Tables of the bridge's settings.
    pub(crate) tables: Arc<BridgeTables>,
    /// Numbers of the other ports of the bridge.
    pub(crate) others: Vec<usize>,
    /// Storm limits of the port, divided among its receive queues.
    pub(crate) storm: StormLimits,
}

impl BridgeStage {
    /// Returns the storm state with full buckets.
    pub(super) fn storm(&self) -> Storm {
        Storm::new(&self.storm, cycles::hz(), cycles::now())
    }
}

/// Resources for bridging the frames of one queue.
pub(super) struct Bridging<'burst, 'worker> {
    pub(super) stage: &'burst BridgeStage,
    pub(super) storm: &'burst mut Storm,
    pub(super) decisions: &'burst mut Decisions,
    /// Resources for frames to the router, and for copies.
    pub(super) context: &'burst mut RouteContext<'worker>,
}

impl Path<'_> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of ports have 16 bits"
    )]
    #[inline(always)]
    pub(super) fn bridge(&mut self, input: usize, bridging: Bridging<'_, '_>) {
        let BridgeStage {
            fdb,
            tables,
            others,
            ..
        } = bridging.stage;
        if !tables.is_plain() {
            return self.bridge_with(input, bridging);
        }
        let (octets, _) = measure(self.received);
        let frames = self.received.len();
        let decisions = bridging.decisions;
        let now_s = bridging.context.now_s;
        let tally = decide(fdb, input as u16, now_s, self.received.frames(), decisions);
        self.telemetry.lap_of(Step::Bridge, frames);
        if self.telemetry.is_watched() {
            let from = Ingress::Port(input as u16);
            self.telemetry
                .bridged(from, self.received, decisions.as_slice());
        }
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames as u64);
            counters.rx_octets.add(octets);
            count(counters, &tally);
        }
        match (decisions.common(), others.as_slice()) {
            (Some(Decision::Forward(output)), _) => {
                self.send_all(input, usize::from(output), octets);
            }
            (Some(Decision::Flood), [output]) => self.send_all(input, *output, octets),
            (Some(Decision::Drop(_)), _) => self.received.free(),
            _ => self.distribute(input, others, decisions.as_slice()),
        }
    }

    /// Bridges a burst in a bridge with VLANs, limits or groups.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "numbers of ports have 16 bits"
    )]
    #[inline(never)]
    fn bridge_with(&mut self, input: usize, bridging: Bridging<'_, '_>) {
        let (octets, _) = measure(self.received);
        let frames = self.received.len();
        let from = Ingress::Port(input as u16);
        let clock = Clock {
            now_s: bridging.context.now_s,
            ticks: cycles::now(),
        };
        let BridgeStage { fdb, tables, .. } = bridging.stage;
        let tally = decide_with(
            tables,
            fdb,
            from,
            bridging.storm,
            clock,
            self.received.frames(),
            bridging.decisions,
        );
        self.telemetry.lap_of(Step::Bridge, frames);
        if self.telemetry.is_watched() {
            let decisions = bridging.decisions.as_slice();
            self.telemetry.bridged(from, self.received, decisions);
        }
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames as u64);
            counters.rx_octets.add(octets);
            count(counters, &tally);
        }
        match bridging.decisions.common() {
            Some(Decision::Forward(output)) => self.send_all(input, usize::from(output), octets),
            Some(Decision::Drop(_)) => self.received.free(),
            _ => {
                let Bridging {
                    stage,
                    decisions,
                    context,
                    ..
                } = bridging;
                let local = &mut context.routing.local;
                let decisions = decisions.as_slice();
                let (touched, lost) =
                    self.distribute_with(from, &stage.tables, decisions, local, context.pool);
                if let Some(counters) = self.counters.get(input) {
                    counters.dropped(PortDrop::NoOutput).add(lost);
                }
                self.telemetry.lap_of(Step::Rewrite, decisions.len());
                self.flush_all(touched);
                self.route_from_bridge(context);
            }
        }
    }

    /// Puts each frame to the output of its decision, and then sends the bursts of all outputs.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "copies of one burst, at most one for each port"
    )]
    fn distribute(&mut self, input: usize, others: &[usize], decisions: &[Decision]) {
        let mut lost = 0;
        // Outputs of frames that are not flooded.
        let mut touched = PortMask::default();
        let mut is_flooded = false;
        for (frame, decision) in self.received.drain().zip(decisions) {
            let ports: &[usize] = match decision {
                Decision::Forward(output) => {
                    touched.insert(*output);
                    &[usize::from(*output)]
                }
                Decision::Flood => {
                    is_flooded = true;
                    others
                }
                Decision::Drop(_) => continue,
                // Only `decide_with` returns these decisions; `decide` never does.
                Decision::ForwardTag(..) | Decision::FloodSet(_) | Decision::Local(..) => {
                    lost += 1;
                    continue;
                }
            };
            let Some((last, ports)) = ports.split_last() else {
                continue;
            };
            for port in ports {
                match self.outputs.get_mut(*port) {
                    // An output has space for the whole burst.
                    Some(Some(place)) => drop(place.waiting.push(frame.share())),
                    _ => lost += 1,
                }
            }
            match self.outputs.get_mut(*last) {
                Some(Some(place)) => drop(place.waiting.push(frame)),
                _ => lost += 1,
            }
        }
        if let Some(counters) = self.counters.get(input) {
            counters.dropped(PortDrop::NoOutput).add(lost);
        }
        self.telemetry.lap_of(Step::Rewrite, decisions.len());
        self.flush_all(touched);
        if is_flooded {
            for output in others {
                self.flush(*output);
            }
        }
    }

    /// Distributes with tags and to the router. Frames for the router wait in `local`. Returns the ports that frames wait for, and the number of
    /// lost frames.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "copies of one burst, at most one for each port and interface"
    )]
    pub(super) fn distribute_with(
        &mut self,
        from: Ingress,
        tables: &BridgeTables,
        decisions: &[Decision],
        local: &mut Burst,
        pool: &Mempool,
    ) -> (PortMask, u64) {
        let mut lost = 0;
        let mut outputs = Outputs {
            all: &mut *self.outputs,
            touched: PortMask::default(),
            telemetry: &mut *self.telemetry,
        };
        for (mut frame, decision) in self.received.drain().zip(decisions) {
            match *decision {
                Decision::Forward(port) => lost += outputs.put(port, frame),
                Decision::ForwardTag(port, action) => {
                    lost += outputs.put_tagged(port, frame, action);
                }
                Decision::FloodSet(flood) => {
                    lost += outputs.put_copies(frame, tables.copies(flood, from), local, pool);
                }
                Decision::Local(interface, action) => {
                    lost += if act(&mut frame, action) {
                        keep_for_router(local, frame, interface)
                    } else {
                        1
                    };
                }
                Decision::Drop(_) => {}
                // Decision of a plain bridge.
                Decision::Flood => lost += 1,
            }
        }
        (outputs.touched, lost)
    }
}

/// Copies of a frame, each after an action on its tag. Ports differ in few actions: remove the tag, or give it one of two types.
type TaggedCopies<'eal> = [Option<(TagAction, Mbuf<'eal>)>; 3];

/// The outputs of a thread.
struct Outputs<'worker> {
    /// By number of the port.
    all: &'worker mut [Option<Box<Output>>],
    /// Ports that frames wait for.
    touched: PortMask,
    telemetry: &'worker mut Telemetry,
}

impl Outputs<'_> {
    /// Adds a frame to the burst of a port. Returns 1 if the frame is lost, otherwise 0.
    #[inline(always)]
    fn put(&mut self, port: u16, frame: Mbuf<'_>) -> u64 {
        self.touched.insert(port);
        match self.all.get_mut(usize::from(port)) {
            Some(Some(place)) => u64::from(place.waiting.push(frame).is_err()),
            _ => 1,
        }
    }

    #[inline(always)]
    fn put_tagged(&mut self, port: u16, mut frame: Mbuf<'_>, action: TagAction) -> u64 {
        if act(&mut frame, action) {
            self.put(port, frame)
        } else {
            1
        }
    }

    /// Copies a frame and its trace state.
    fn copy<'eal>(&mut self, frame: &Mbuf<'eal>, pool: &Mempool) -> Option<Mbuf<'eal>> {
        let copy = frame.copy(pool)?;
        if self.telemetry.is_watched() {
            self.telemetry.copied(frame.buffer(), copy.buffer());
        }
        Some(copy)
    }

    /// Adds a copy of a frame after an action on its tag. `copies` has those of earlier ports: a port with the same action gets a reference to
    /// the same octets, so that the buffers for copies suffice for bursts to hundreds of ports.
    fn put_tagged_copy<'eal>(
        &mut self,
        frame: &Mbuf<'eal>,
        (port, action): (u16, TagAction),
        copies: &mut TaggedCopies<'eal>,
        pool: &Mempool,
    ) -> u64 {
        let mut known = copies.iter().flatten();
        if let Some((_, copy)) = known.find(|(same, _)| *same == action) {
            return self.put(port, copy.share());
        }
        let copy = self.copy(frame, pool);
        let Some(copy) = copy.and_then(|mut copy| act(&mut copy, action).then_some(copy)) else {
            return 1;
        };
        let lost = self.put(port, copy.share());
        if let Some(place) = copies.iter_mut().find(|place| place.is_none()) {
            *place = Some((action, copy));
        }
        lost
    }

    /// Adds copies of a frame: references to the same octets for ports with the same action on the tag. The last copy is the frame itself.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "copies of one frame, at most one for each port and interface"
    )]
    fn put_copies<'eal>(
        &mut self,
        frame: Mbuf<'eal>,
        copies: impl Iterator<Item = Copy>,
        local: &mut Burst,
        pool: &Mempool,
    ) -> u64 {
        let mut lost = 0;
        let mut copies = copies.peekable();
        let mut shared = false;
        let mut tagged: TaggedCopies<'eal> = Default::default();
        while let Some(copy) = copies.next() {
            let (port, action) = match copy {
                Copy::Port(port, action) => (port, action),
                Copy::Interface(interface, action) => {
                    // The router changes the octets, so the copy has its own.
                    let copy = self.copy(&frame, pool);
                    let ready = copy.and_then(|mut copy| act(&mut copy, action).then_some(copy));
                    lost += ready.map_or(1, |copy| keep_for_router(local, copy, interface));
                    continue;
                }
            };
            let is_last = copies.peek().is_none();
            if is_last && (!shared || action == TagAction::None) {
                return lost + self.put_tagged(port, frame, action);
            }
            lost += if action == TagAction::None {
                shared = true;
                self.put(port, frame.share())
            } else {
                self.put_tagged_copy(&frame, (port, action), &mut tagged, pool)
            };
        }
        lost
    }
}

/// Applies a tag action to a frame. Returns false if the action fails.
#[inline(always)]
fn act(frame: &mut Mbuf<'_>, action: TagAction) -> bool {
    match action {
        TagAction::None => true,
        TagAction::Pop => frame.pop_tag(),
        TagAction::Push(tag) => frame.push_tag(tag.tpid.0, tag.tci),
        TagAction::Replace(tag) => frame.replace_tag(tag.tpid.0, tag.tci),
    }
}

#[inline(always)]
fn count(counters: &PortCounters, tally: &Tally) {
    counters.flooded.add(tally.flooded);
    counters.learned.add(tally.learned);
    counters.moved.add(tally.moved);
    counters.flapped.add(tally.flapped);
    counters.not_learned.add(tally.not_learned);
    counters.static_elsewhere.add(tally.static_elsewhere);
    if tally.dropped > 0 {
        count_drops(counters, &tally.drops);
    }
}

#[inline(never)]
fn count_drops(counters: &PortCounters, drops: &PortDrops) {
    for (reason, count) in drops.iter() {
        counters.dropped(reason).add(count);
    }
}
