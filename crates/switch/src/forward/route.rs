// SPDX-License-Identifier: Apache-2.0
//! Execution of router decisions: output to ports, to bridges and to the service thread.

use std::sync::Arc;

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool, cycles};
use quietwire_packet::{ETHERNET_HEADER_LENGTH, VLAN_TAG_LENGTH};

use super::lengths::measure;
use super::mark::Mark;
use super::notes::Notes;
use super::output::Output;
use super::path::Path;
use super::segment::Cutter;
use crate::counters::{RouterCounters, Step};
use quietwire_tables::bridge::{self, BridgeTables, Ingress, Storm};
use quietwire_tables::drops::{PortDrop, RouterDrop};
use quietwire_tables::fdb::Fdb;
use quietwire_tables::route::{
    Adjacency, Decision, Interface, InterfacePlace, PortInterfaces, Router, decide, fragments,
    rewrite,
};

/// Router state of all forwarding threads, and the bridges that router interfaces are on.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) router: Router,
    /// Bridges by number.
    pub(crate) bridges: Vec<Option<Inside>>,
}

/// A bridge, seen from a router interface.
#[derive(Debug)]
pub(crate) struct Inside {
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) tables: Arc<BridgeTables>,
    /// Numbers of its ports.
    pub(crate) ports: Vec<usize>,
}

/// Router state of a port with interfaces.
#[derive(Debug)]
pub(crate) struct RouteStage {
    pub(crate) interfaces: PortInterfaces,
    pub(crate) domain: Arc<Domain>,
}

/// Bursts between the passes of routing, and the ring to the service thread.
#[derive(Debug)]
pub(crate) struct Routing {
    /// Frames for the router.
    pub(super) local: Burst,
    /// Frames from the router for bridges.
    inside: Burst,
    rest: Burst,
    punts: Burst,
    decisions: Box<quietwire_tables::route::Decisions>,
    bridge_decisions: Box<bridge::Decisions>,
    service: FrameSender,
    /// Frames from the service thread. One forwarding thread has this ring.
    pub(super) injected: Option<Box<FrameReceiver>>,
    pub(super) domain: Option<Arc<Domain>>,
    /// Segmentation of frames with TCP data, if enabled.
    cutting: Option<Box<Cutting>>,
}

/// Resources to segment frames before routing.
#[derive(Debug)]
struct Cutting {
    cutter: Cutter,
    whole: Burst,
}

impl Routing {
    pub(crate) fn new(eal: &Eal, service: FrameSender) -> Self {
        Self {
            local: Burst::new(eal),
            inside: Burst::new(eal),
            rest: Burst::new(eal),
            punts: Burst::new(eal),
            decisions: Box::default(),
            bridge_decisions: Box::default(),
            service,
            injected: None,
            domain: None,
            cutting: None,
        }
    }

    pub(super) fn cut_from_now_on(&mut self, eal: &Eal, cutter: &Cutter) {
        self.cutting.get_or_insert_with(|| {
            Box::new(Cutting {
                cutter: cutter.clone(),
                whole: Burst::new(eal),
            })
        });
    }
}

/// Resources for routing.
pub(super) struct Means<'worker> {
    pub(super) routing: &'worker mut Routing,
    pub(super) counters: &'worker RouterCounters,
    /// Pool for copies and fragments of frames.
    pub(super) pool: &'worker Mempool,
    pub(super) now_s: u32,
}

/// Set of ports that frames wait for, as a bit mask. There are fewer than 64 ports.
#[derive(Clone, Copy, Default)]
struct Touched(u64);

impl Path<'_> {
    /// Routes the frames received on a port.
    #[inline(never)]
    pub(super) fn route_port(&mut self, input: usize, stage: &RouteStage, means: &mut Means<'_>) {
        let (octets, short) = measure(self.received);
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(self.received.len() as u64);
            counters.rx_octets.add(octets);
            counters.dropped(PortDrop::Short).add(short);
        }
        let untagged = stage.interfaces.untagged();
        if let Some(interface) = untagged
            && !stage.interfaces.has_tagged()
            && short == 0
            && means.routing.cutting.is_none()
        {
            // All frames belong to one interface. A remaining tag has an EtherType that the router does not support.
            std::mem::swap(self.received, &mut means.routing.local);
            return self.route_burst(&stage.domain, &[interface; BURST_MAX], means);
        }
        let mut homeless = 0;
        for mut frame in self.received.drain() {
            let found = match tag_of(&frame).filter(|_| stage.interfaces.has_tagged()) {
                Some(tci) => stage.interfaces.tagged(tci).filter(|_| frame.pop_tag()),
                None => untagged,
            };
            match found {
                Some(interface) if frame.length() >= ETHERNET_HEADER_LENGTH as u32 => {
                    frame.set_mark(u32::from(interface));
                    // `local` has room for a burst.
                    drop(means.routing.local.push(frame));
                }
                Some(_) => {}
                None => homeless += 1,
            }
        }
        means.counters.dropped(RouterDrop::NoInterface, homeless);
        self.route_local(&stage.domain, means);
    }

    /// Routes the waiting frames, each marked with its interface.
    #[inline(always)]
    pub(super) fn route_local(&mut self, domain: &Domain, means: &mut Means<'_>) {
        if means.routing.local.is_empty() {
            return;
        }
        match means.routing.cutting.take() {
            None => self.route_marked(domain, means),
            Some(mut cutting) => {
                self.route_segments(&mut cutting, domain, means);
                means.routing.cutting = Some(cutting);
            }
        }
    }

    /// Routes the waiting frames and segments those with large TCP data first. Each segment is one packet to the router, so that an ICMP
    /// error about the MTU reaches a sender that understands it.
    #[inline(never)]
    fn route_segments(&mut self, cutting: &mut Cutting, domain: &Domain, means: &mut Means<'_>) {
        let Cutting { cutter, whole } = cutting;
        if !means.routing.local.has_uncut() {
            return self.route_marked(domain, means);
        }
        std::mem::swap(&mut means.routing.local, whole);
        for frame in whole.drain() {
            if !cutter.concerns(&frame) {
                self.route_next(frame, domain, means);
            } else if cutter.cut(&frame, |segment| self.route_next(segment, domain, means)) {
                means.counters.segmented.add(1);
            } else {
                means.counters.not_sent.add(1);
            }
        }
        self.route_marked(domain, means);
    }

    /// Adds a frame to the next routing pass, and runs the pass if it is full.
    fn route_next(&mut self, frame: Mbuf<'_>, domain: &Domain, means: &mut Means<'_>) {
        if means.routing.local.room() == 0 {
            self.route_marked(domain, means);
        }
        // The pass has just emptied the burst.
        drop(means.routing.local.push(frame));
    }

    #[inline(always)]
    fn route_marked(&mut self, domain: &Domain, means: &mut Means<'_>) {
        let mut interfaces = [0; BURST_MAX];
        for (mark, interface) in means.routing.local.marks().zip(&mut interfaces) {
            *interface = mark as u16;
        }
        self.route_burst(domain, &interfaces, means);
    }

    /// Routes the waiting frames with the interface of each.
    #[inline(always)]
    fn route_burst(
        &mut self,
        domain: &Domain,
        interfaces: &[u16; BURST_MAX],
        means: &mut Means<'_>,
    ) {
        let Routing {
            local,
            decisions,
            inside,
            punts,
            ..
        } = &mut *means.routing;
        let frames = local.len();
        let tally = decide(&domain.router, local.frames(), interfaces, decisions);
        self.notes.lap_of(Step::Route, frames);
        if self.notes.is_watched() {
            self.notes.routed(local, interfaces, decisions);
        }
        means.counters.count(&tally);
        let mut touched = Touched::default();
        let mut lost = 0;
        for ((mut frame, word), from) in local.drain().zip(decisions.words()).zip(interfaces) {
            if let Some(to) = word.forwarded() {
                let interface = to.interface();
                let sent = domain.router.interfaces.get(interface).and_then(|out| {
                    let frame = readdressed(frame, out, to, means.pool, self.notes)?;
                    leave(self.outputs, frame, interface, out, inside, &mut touched)
                });
                lost += u64::from(sent.is_none());
                continue;
            }
            match word.decision() {
                Decision::Fragment(to) => {
                    let interface = to.interface();
                    let sent = domain.router.interfaces.get(interface).and_then(|out| {
                        let frame = readdressed(frame, out, to, means.pool, self.notes)?;
                        self.cut(&frame, interface, out, inside, &mut touched, means.pool)
                    });
                    lost += u64::from(sent.is_none());
                }
                Decision::Punt(punt) => {
                    frame.set_mark(Mark::Punt(punt, *from).number());
                    drop(punts.push(frame));
                }
                Decision::Forward(_) | Decision::Drop(_) => {}
            }
        }
        means.counters.not_sent.add(lost);
        self.notes.lap_of(Step::Rewrite, frames);
        self.finish(domain, touched, means);
    }

    /// Sends frames of the service thread. Returns false if there were none.
    #[inline(never)]
    pub(super) fn send_injected(&mut self, means: &mut Means<'_>) -> bool {
        let Some(domain) = means.routing.domain.clone() else {
            return false;
        };
        let Some(injected) = &mut means.routing.injected else {
            return false;
        };
        let frames = injected.receive(self.received, BURST_MAX);
        if frames == 0 {
            return false;
        }
        self.notes.count(Step::Relay, frames);
        let mut touched = Touched::default();
        let mut lost = 0;
        for mut frame in self.received.drain() {
            match Mark::of_number(frame.mark()) {
                Some(Mark::Route(interface)) => {
                    frame.set_mark(u32::from(interface));
                    drop(means.routing.local.push(frame));
                }
                Some(Mark::Send(interface)) => {
                    let inside = &mut means.routing.inside;
                    let sent = domain.router.interfaces.get(interface).and_then(|out| {
                        leave(self.outputs, frame, interface, out, inside, &mut touched)
                    });
                    lost += u64::from(sent.is_none());
                }
                _ => lost += 1,
            }
        }
        means.counters.not_sent.add(lost);
        self.finish(&domain, touched, means);
        self.route_local(&domain, means);
        true
    }

    fn finish(&mut self, domain: &Domain, touched: Touched, means: &mut Means<'_>) {
        let Touched(mut ports) = touched;
        while ports != 0 {
            self.flush(ports.trailing_zeros() as usize);
            ports &= ports - 1;
        }
        if !means.routing.inside.is_empty() {
            self.bridge_inside(domain, means);
        }
        if !means.routing.punts.is_empty() {
            let Routing { punts, service, .. } = &mut *means.routing;
            service.send(punts);
            means.counters.service_full.add(punts.len() as u64);
            punts.free();
        }
    }
}

impl Path<'_> {
    /// Sends a packet in fragments.
    #[inline(never)]
    fn cut(
        &mut self,
        frame: &Mbuf<'_>,
        interface: u16,
        out: &Interface,
        inside: &mut Burst,
        touched: &mut Touched,
        pool: &Mempool,
    ) -> Option<()> {
        let (ethernet, packet) = frame.octets().split_first_chunk()?;
        let mut pieces = 0;
        // Maximum number of fragments: those of eight octets each.
        for fragment in fragments(packet, out.mtu) {
            let length = u16::try_from(fragment.frame_length()).ok()?;
            let mut piece = frame.sibling(pool, length)?;
            if !fragment.write(ethernet, piece.octets_mut()?) {
                return None;
            }
            self.notes.copied(frame.buffer(), piece.buffer());
            if let InterfacePlace::Port(port) = out.place
                && self.is_full(port)
            {
                self.flush(usize::from(port));
            }
            leave(self.outputs, piece, interface, out, inside, touched)?;
            pieces += 1;
        }
        (pieces > 0).then_some(())
    }

    fn is_full(&self, port: u16) -> bool {
        match self.outputs.get(usize::from(port)) {
            Some(Some(place)) => place.waiting.room() == 0,
            _ => false,
        }
    }

    /// Bridges the frames of each bridge interface.
    #[inline(never)]
    fn bridge_inside(&mut self, domain: &Domain, means: &mut Means<'_>) {
        for _ in 0..BURST_MAX {
            let Some(interface) = means.routing.inside.marks().next() else {
                return;
            };
            let Routing { inside, rest, .. } = &mut *means.routing;
            for frame in inside.drain() {
                // Both bursts have room for all frames.
                drop(if frame.mark() == interface {
                    self.received.push(frame)
                } else {
                    rest.push(frame)
                });
            }
            std::mem::swap(inside, rest);
            let interface = interface as u16;
            let bridge = domain.router.interfaces.get(interface).map(|one| one.place);
            let inside = match bridge {
                Some(InterfacePlace::Bridge(bridge)) => domain.bridges.get(usize::from(bridge)),
                _ => None,
            };
            match inside {
                Some(Some(inside)) => self.bridge_from(interface, inside, means),
                _ => {
                    means.counters.not_sent.add(self.received.len() as u64);
                    self.received.free();
                }
            }
        }
    }

    fn bridge_from(&mut self, interface: u16, inside: &Inside, means: &mut Means<'_>) {
        let clock = bridge::Clock {
            now_s: means.now_s,
            ticks: cycles::now(),
        };
        let from = Ingress::Interface(interface);
        bridge::decide_with(
            &inside.tables,
            &inside.fdb,
            from,
            &mut Storm::default(),
            clock,
            self.received.frames(),
            &mut means.routing.bridge_decisions,
        );
        self.notes.lap_of(Step::Bridge, self.received.len());
        if self.notes.is_watched() {
            let decisions = means.routing.bridge_decisions.as_slice();
            self.notes.bridged(from, self.received, decisions);
        }
        let Routing {
            bridge_decisions,
            local,
            ..
        } = &mut *means.routing;
        let lost = self.distribute_with(
            from,
            &inside.tables,
            bridge_decisions.as_slice(),
            local,
            means.pool,
        );
        means.counters.not_sent.add(lost);
        // A frame never returns to the bridge interface that sent it.
        local.free();
        for port in &inside.ports {
            self.flush(*port);
        }
    }

    /// Routes the frames that a bridge delivered to the router.
    #[inline(always)]
    pub(super) fn route_from_bridge(&mut self, means: &mut Means<'_>) {
        if means.routing.local.is_empty() {
            return;
        }
        self.notes.lap(Step::Send);
        match means.routing.domain.clone() {
            Some(domain) => self.route_local(&domain, means),
            None => means.routing.local.free(),
        }
    }
}

/// Returns the VLAN of a tagged frame (IEEE 802.1Q, table 9-1: customer or service tag).
#[inline(always)]
fn tag_of(frame: &Mbuf<'_>) -> Option<u16> {
    let octets = frame
        .octets()
        .first_chunk::<{ ETHERNET_HEADER_LENGTH + VLAN_TAG_LENGTH }>()?;
    let [.., a, b, c, d, _, _] = *octets;
    match [a, b] {
        [0x81, 0x00] | [0x88, 0xa8] => Some(u16::from_be_bytes([c, d])),
        _ => None,
    }
}

/// Rewrites addresses and TTL of a frame. Copies the frame first if its buffer is shared.
#[inline(always)]
fn readdressed<'eal>(
    mut frame: Mbuf<'eal>,
    out: &Interface,
    to: Adjacency,
    pool: &Mempool,
    notes: &mut Notes,
) -> Option<Mbuf<'eal>> {
    if !frame.is_exclusive() {
        let copy = frame.copy(pool)?;
        notes.copied(frame.buffer(), copy.buffer());
        frame = copy;
    }
    rewrite(frame.octets_mut()?, out.mac, to).then_some(frame)
}

/// Adds a frame to the burst of an interface. Returns `None` if the frame is lost.
#[inline(always)]
fn leave(
    outputs: &mut [Option<Box<Output>>],
    mut frame: Mbuf<'_>,
    interface: u16,
    out: &Interface,
    inside: &mut Burst,
    touched: &mut Touched,
) -> Option<()> {
    match out.place {
        InterfacePlace::Port(port) => {
            if let Some(vlan) = out.vlan
                && !frame.push_tag(0x8100, vlan.get())
            {
                return None;
            }
            touched.0 |= 1u64.checked_shl(u32::from(port))?;
            match outputs.get_mut(usize::from(port))? {
                Some(place) => place.waiting.push(frame).ok(),
                None => None,
            }
        }
        InterfacePlace::Bridge(_) => {
            frame.set_mark(u32::from(interface));
            inside.push(frame).ok()
        }
    }
}

/// Adds a frame from a bridge to the router's burst.
pub(super) fn keep_for_router(local: &mut Burst, mut frame: Mbuf<'_>, interface: u16) -> u64 {
    frame.set_mark(u32::from(interface));
    u64::from(local.push(frame).is_err())
}
