// SPDX-License-Identifier: Apache-2.0
//! Execution of router decisions: output to ports, to bridges and to the service thread.

use std::sync::Arc;

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool, cycles};
use quietwire_packet::{ETHERNET_HEADER_LENGTH, VLAN_TAG_LENGTH};

use super::balance::BalanceStage;
use super::ends::{Ends, leave};
use super::lengths::measure;
use super::mark::{AGAIN, Mark, Places, interface_of};
use super::nat::NatStage;
use super::path::Path;
use super::prefixes;
use super::punts::PuntSender;
use super::segment::Segmenter;
use super::share::ShareStage;
use super::telemetry::Telemetry;
use super::translate::{Translators, TranslatorsView, exclusive};
use crate::counters::{RouterCounters, Step};
use quietwire_tables::bridge::{self, BridgeTables, Ingress, Storm};
use quietwire_tables::drops::{PortDrop, RouterDrop};
use quietwire_tables::fdb::Fdb;
use quietwire_tables::nptv6::PrefixTranslation;
use quietwire_tables::port_mask::PortMask;
use quietwire_tables::route::{
    Adjacency, Decision, DecisionWord, Interface, InterfaceBinding, PortInterfaces, Punt, Router,
    Source, decide, fragments, rewrite,
};

/// Router state of all forwarding threads, and the bridges that router interfaces are on.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) router: Router,
    /// Bridges by number.
    pub(crate) bridges: Vec<Option<BridgeContext>>,
    /// Prefix translation of IPv6.
    pub(crate) prefixes: PrefixTranslation,
}

/// A bridge from the side of a router interface.
#[derive(Debug)]
pub(crate) struct BridgeContext {
    pub(crate) fdb: Arc<Fdb>,
    pub(crate) tables: Arc<BridgeTables>,
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
    to_bridges: Burst,
    rest: Burst,
    punts: Burst,
    decisions: Box<quietwire_tables::route::Decisions>,
    bridge_decisions: Box<bridge::Decisions>,
    service: PuntSender,
    /// Frames from the service thread. One forwarding thread has this ring.
    pub(super) injected: Option<Box<FrameReceiver>>,
    pub(super) domain: Option<Arc<Domain>>,
    /// Segmentation of frames with TCP data, if enabled.
    segmentation: Option<Box<Segmentation>>,
    /// NAT, if there is any.
    pub(super) nat: Option<Box<NatStage>>,
    /// Load balancers, if there are any.
    pub(super) balance: Option<Box<BalanceStage>>,
}

/// Resources to segment frames before routing.
#[derive(Debug)]
struct Segmentation {
    segmenter: Segmenter,
    whole: Burst,
}

impl Routing {
    pub(crate) fn new(eal: &Eal, service: FrameSender) -> Self {
        Self {
            local: Burst::new(eal),
            to_bridges: Burst::new(eal),
            rest: Burst::new(eal),
            punts: Burst::new(eal),
            decisions: Box::default(),
            bridge_decisions: Box::default(),
            service: PuntSender::new(eal, service),
            injected: None,
            domain: None,
            segmentation: None,
            nat: None,
            balance: None,
        }
    }

    /// Returns what translates destinations of received packets.
    #[inline(always)]
    pub(super) fn inside(&self) -> TranslatorsView<'_> {
        TranslatorsView {
            nat: self.nat.as_deref(),
            balance: self.balance.as_deref(),
            prefixes: self.domain.as_deref().map(|domain| &domain.prefixes),
        }
    }

    /// Replaces the load balancers. One that was there before continues with its connections. Returns the former ones.
    pub(super) fn replace_balance(
        &mut self,
        mut balance: Option<Box<BalanceStage>>,
    ) -> Option<Box<BalanceStage>> {
        if let (Some(next), Some(former)) = (&mut balance, &mut self.balance) {
            next.inherit(former);
        }
        std::mem::replace(&mut self.balance, balance)
    }

    /// Replaces NAT. An instance that was there before continues with its tables. Returns the former one.
    pub(super) fn replace_nat(&mut self, mut nat: Option<Box<NatStage>>) -> Option<Box<NatStage>> {
        if let (Some(next), Some(former)) = (&mut nat, &mut self.nat) {
            next.inherit(former);
        } else if let Some(next) = &mut nat {
            next.begin();
        }
        std::mem::replace(&mut self.nat, nat)
    }

    pub(super) fn enable_segmentation(&mut self, eal: &Eal, segmenter: &Segmenter) {
        self.segmentation.get_or_insert_with(|| {
            Box::new(Segmentation {
                segmenter: segmenter.clone(),
                whole: Burst::new(eal),
            })
        });
    }
}

/// Resources for routing.
pub(super) struct RouteContext<'worker> {
    pub(super) routing: &'worker mut Routing,
    pub(super) counters: &'worker RouterCounters,
    /// Pool for copies and fragments of frames.
    pub(super) pool: &'worker Mempool,
    pub(super) now_s: u32,
}

impl Path<'_> {
    /// Routes the frames received on a port.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(never)]
    pub(super) fn route_port(
        &mut self,
        input: usize,
        stage: &RouteStage,
        context: &mut RouteContext<'_>,
    ) {
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
            && context.routing.segmentation.is_none()
            && !context.routing.has_nat64()
        {
            // All frames belong to one interface. A remaining tag has an EtherType that the router does not support.
            std::mem::swap(self.received, &mut context.routing.local);
            return self.route_burst(&stage.domain, (&[interface; BURST_MAX], false), context);
        }
        let mut unassigned = 0;
        for mut frame in self.received.drain() {
            let found = match tag_of(&frame).filter(|_| stage.interfaces.has_tagged()) {
                Some(tci) => stage.interfaces.tagged(tci).filter(|_| frame.pop_tag()),
                None => untagged,
            };
            match found {
                Some(interface) if frame.length() as usize >= ETHERNET_HEADER_LENGTH => {
                    frame.set_mark(u32::from(interface));
                    // `local` has space for a burst.
                    drop(context.routing.local.push(frame));
                }
                Some(_) => {}
                None => unassigned += 1,
            }
        }
        context
            .counters
            .dropped(RouterDrop::NoInterface, unassigned);
        self.route_local(&stage.domain, context);
    }

    /// Routes the waiting frames, each marked with its interface.
    #[inline(always)]
    pub(super) fn route_local(&mut self, domain: &Domain, context: &mut RouteContext<'_>) {
        if context.routing.local.is_empty() {
            return;
        }
        match context.routing.segmentation.take() {
            None => self.route_marked(domain, context),
            Some(mut segmentation) => {
                self.route_segments(&mut segmentation, domain, context);
                context.routing.segmentation = Some(segmentation);
            }
        }
    }

    /// Routes the waiting frames. Those with large TCP or UDP data are forwarded whole if their segments fit into the MTU of the egress
    /// interface. All others are segmented first: each segment is one packet to the router, so that an ICMP error reaches a sender that
    /// understands it.
    #[inline(never)]
    fn route_segments(
        &mut self,
        segmentation: &mut Segmentation,
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) {
        let Segmentation { segmenter, whole } = segmentation;
        if !context.routing.local.has_tso_frames() {
            return self.route_marked(domain, context);
        }
        std::mem::swap(&mut context.routing.local, whole);
        for frame in whole.drain() {
            if !Segmenter::concerns(&frame) {
                self.route_next(frame, domain, context);
                continue;
            }
            let frame = match segmenter.completed(None, frame) {
                Ok(frame) => {
                    self.route_next(frame, domain, context);
                    continue;
                }
                Err(frame) => frame,
            };
            let frame = match self.route_whole(frame, segmenter, domain, context) {
                Ok(()) => continue,
                Err(frame) => frame,
            };
            if segmenter.segment_into(&frame, |segment| self.route_next(segment, domain, context)) {
                context.counters.segmented.add(1);
            } else {
                context.counters.not_sent.add(1);
            }
        }
        self.route_marked(domain, context);
    }

    /// Forwards a frame with large data whole, after the waiting frames. The decision is that about its first segment. Returns the frame if
    /// it has to be segmented first, also if another port shares its octets.
    fn route_whole<'frame>(
        &mut self,
        mut frame: Mbuf<'frame>,
        segmenter: &Segmenter,
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) -> Result<(), Mbuf<'frame>> {
        if !context.routing.local.is_empty() {
            self.route_marked(domain, context);
        }
        // Segments are translated, not large frames.
        let is_translated = context.routing.nat.is_some() || context.routing.balance.is_some();
        if is_translated || !domain.prefixes.is_empty() {
            return Err(frame);
        }
        let interfaces = [interface_of(frame.mark())];
        let Routing {
            local,
            decisions,
            to_bridges,
            ..
        } = &mut *context.routing;
        let mut push = |leader: Mbuf<'_>| local.push(leader).is_ok();
        if frame.front_mut().is_none() || !segmenter.leader(&frame).is_some_and(&mut push) {
            return Err(frame);
        }
        let tally = decide(&domain.router, local.frames(), &interfaces, decisions);
        local.free();
        let Some(to) = decisions.words().next().and_then(|word| word.forwarded()) else {
            return Err(frame);
        };
        context.counters.count(&tally);
        // The burst has just been emptied.
        drop(local.push(frame));
        self.telemetry.lap_of(Step::Route, 1);
        if self.telemetry.is_watched() {
            self.telemetry.routed(local, &interfaces, decisions);
        }
        let mut ends = Ends::default();
        for mut frame in local.drain() {
            let ready = |out: &Interface| {
                let is_rewritten = rewrite(frame.front_mut()?, Source::new(out.mac), to);
                is_rewritten.then_some(frame)
            };
            ends.forward(
                self.outputs,
                to.interface(),
                &domain.router.interfaces,
                to_bridges,
                ready,
            );
        }
        self.finish_routed(domain, (1, ends), context);
        Ok(())
    }

    #[inline(always)]
    pub(super) fn route_marked(&mut self, domain: &Domain, context: &mut RouteContext<'_>) {
        if let Some(pass) = context.routing.take_nat64() {
            return self.route_families(pass, domain, context);
        }
        let mut interfaces = [0; BURST_MAX];
        for (mark, interface) in context.routing.local.marks().zip(&mut interfaces) {
            *interface = interface_of(mark);
        }
        self.route_burst(domain, (&interfaces, true), context);
    }

    /// Routes the waiting frames with the interface of each, which is in their marks too if `is_marked` is true.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(always)]
    fn route_burst(
        &mut self,
        domain: &Domain,
        (interfaces, is_marked): (&[u16; BURST_MAX], bool),
        context: &mut RouteContext<'_>,
    ) {
        let mut remaining;
        let mut interfaces = interfaces;
        let mut translated: Places = 0;
        let is_translated = context.routing.nat.is_some() || context.routing.balance.is_some();
        if is_translated {
            remaining = *interfaces;
            translated = self.translate_received(domain, &mut remaining, context);
            interfaces = &remaining;
        }
        let mut of_translated;
        let has_prefixes = !domain.prefixes.is_empty();
        if has_prefixes {
            of_translated = *interfaces;
            translated |= self.translate_prefixes(domain, &mut of_translated, context);
            interfaces = &of_translated;
        }
        let Routing {
            local,
            decisions,
            to_bridges,
            punts,
            nat,
            balance,
            ..
        } = &mut *context.routing;
        let frames = local.len();
        let tally = decide(&domain.router, local.frames(), interfaces, decisions);
        self.telemetry.lap_of(Step::Route, frames);
        if self.telemetry.is_watched() {
            self.telemetry.routed(local, interfaces, decisions);
        }
        context.counters.count(&tally);
        if let Some(nat) = nat {
            for (frame, word) in local.frames().zip(decisions.words()) {
                if let Some(to) = word.forwarded() {
                    nat.prefetch(frame, to.interface());
                }
            }
        }
        let mut ends = Ends::default();
        // Frames that are not translated, and leave by one interface, as most bursts do, are rewritten in place.
        let mut rewritten = 0;
        if !is_translated
            && !has_prefixes
            && let Some(exit) = decisions.exit()
            && let Some(out) = domain.router.interfaces.get(exit)
        {
            rewritten = ends.forward_all(self.outputs, out, local, decisions.words());
            if local.is_empty() {
                return self.finish_routed(domain, (frames, ends), context);
            }
        }
        let frames_from = local.drain().zip(decisions.words()).zip(interfaces);
        for (at, ((mut frame, word), from)) in frames_from.enumerate() {
            let is_changed = (translated >> at) & 1 != 0;
            let is_as_sent =
                |frame: &Mbuf<'_>| !(is_changed || is_marked && frame.mark() & AGAIN != 0);
            if is_translated && let Some(interface) = exit_of(word) {
                let place = (*from, vrf_of(domain, *from));
                let translated = Translators {
                    nat: nat.as_deref_mut(),
                    balance: balance.as_deref_mut(),
                    now_s: context.now_s,
                }
                .send(frame, interface, place, context.pool, self.telemetry);
                match translated {
                    Ok(Some(translated)) => frame = translated,
                    Ok(None) => {
                        ends.lost += 1;
                        continue;
                    }
                    Err((reason, frame)) => {
                        context.counters.dropped(reason, 1);
                        if reason.is_without_space() {
                            let as_sent = is_as_sent(&frame);
                            Mark::Punt(Punt::Unreachable, *from, as_sent).push(frame, punts);
                        }
                        continue;
                    }
                }
            }
            if has_prefixes && let Some(pair) = exit_of(word).and_then(|to| domain.prefixes.of(to))
            {
                match prefixes::send(frame, pair, context.pool, self.telemetry) {
                    Ok(Some(translated)) => frame = translated,
                    Ok(None) => {
                        ends.lost += 1;
                        continue;
                    }
                    Err(reason) => {
                        context.counters.dropped(reason, 1);
                        continue;
                    }
                }
            }
            if let Some(to) = word.forwarded() {
                let ready = |out: &Interface| {
                    if at < rewritten {
                        return Some(frame);
                    }
                    readdressed(frame, out, to, context.pool, self.telemetry)
                };
                ends.forward(
                    self.outputs,
                    to.interface(),
                    &domain.router.interfaces,
                    to_bridges,
                    ready,
                );
                continue;
            }
            match word.decision() {
                Decision::Fragment(to) => {
                    let interface = to.interface();
                    let sent = domain.router.interfaces.get(interface).and_then(|out| {
                        let frame = readdressed(frame, out, to, context.pool, self.telemetry)?;
                        self.segment_into(
                            &frame,
                            interface,
                            out,
                            to_bridges,
                            &mut ends.touched,
                            context.pool,
                        )
                    });
                    ends.lost += u64::from(sent.is_none());
                }
                Decision::Punt(punt) => {
                    Mark::Punt(punt, *from, is_as_sent(&frame)).push(frame, punts);
                }
                Decision::Forward(_) | Decision::Drop(_) => {}
            }
        }
        if let Some(nat) = nat {
            nat.end_burst(context.now_s);
        }
        if let Some(balance) = balance {
            balance.end_burst(context.now_s);
        }
        self.finish_routed(domain, (frames, ends), context);
    }

    /// Ends the routing of frames, a burst of packets or one large frame, that have been rewritten.
    #[inline(always)]
    fn finish_routed(
        &mut self,
        domain: &Domain,
        (frames, ends): (usize, Ends),
        context: &mut RouteContext<'_>,
    ) {
        context.counters.not_sent.add(ends.lost);
        self.telemetry.lap_of(Step::Rewrite, frames);
        self.finish(domain, ends.touched, context);
    }

    /// Translates the waiting frames that are of a load balancer or to external addresses. `interfaces` loses those of dropped frames.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(never)]
    fn translate_received(
        &mut self,
        domain: &Domain,
        interfaces: &mut [u16; BURST_MAX],
        context: &mut RouteContext<'_>,
    ) -> Places {
        let Routing {
            local,
            rest,
            nat,
            balance,
            ..
        } = &mut *context.routing;
        let mut translators = Translators {
            nat: nat.as_deref_mut(),
            balance: balance.as_deref_mut(),
            now_s: context.now_s,
        };
        let is_concerned = local.frames().zip(interfaces.iter()).any(|(frame, from)| {
            let vrf = vrf_for(domain, *from, frame);
            vrf.is_some_and(|vrf| translators.concern(frame, vrf))
        });
        if !is_concerned {
            return 0;
        }
        let ingress = *interfaces;
        let mut translated: Places = 0;
        let mut kept = 0;
        for (mut frame, from) in local.drain().zip(ingress) {
            let vrf = vrf_for(domain, from, frame.octets());
            if let Some(vrf) = vrf.filter(|vrf| translators.concern(frame.octets(), *vrf)) {
                let place = (from, vrf);
                let Some(own) = exclusive(frame, context.pool, self.telemetry) else {
                    context.counters.not_sent.add(1);
                    continue;
                };
                frame = own;
                if let Err(reason) = translators.translate(&mut frame, place) {
                    context.counters.dropped(reason, 1);
                    continue;
                }
                translated |= 1 << kept;
            }
            if let Some(interface) = interfaces.get_mut(kept) {
                *interface = from;
            }
            kept += 1;
            // `rest` is empty between two steps, and has space for a burst.
            drop(rest.push(frame));
        }
        std::mem::swap(local, rest);
        translated
    }

    /// Translates the waiting frames to external addresses of IPv6. `interfaces` loses those of dropped frames.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    #[inline(never)]
    fn translate_prefixes(
        &mut self,
        domain: &Domain,
        interfaces: &mut [u16; BURST_MAX],
        context: &mut RouteContext<'_>,
    ) -> Places {
        let Routing { local, rest, .. } = &mut *context.routing;
        let concerned = |frame: &[u8], from: u16| {
            let vrf = vrf_for(domain, from, frame);
            vrf.filter(|vrf| prefixes::concern(&domain.prefixes, frame, *vrf))
        };
        let is_concerned = local
            .frames()
            .zip(interfaces.iter())
            .any(|(frame, from)| concerned(frame, *from).is_some());
        if !is_concerned {
            return 0;
        }
        let ingress = *interfaces;
        let mut kept = 0;
        for (mut frame, from) in local.drain().zip(ingress) {
            if let Some(vrf) = concerned(frame.octets(), from) {
                let Some(own) = exclusive(frame, context.pool, self.telemetry) else {
                    context.counters.not_sent.add(1);
                    continue;
                };
                frame = own;
                if let Err(reason) = prefixes::receive(&domain.prefixes, &mut frame, vrf) {
                    context.counters.dropped(reason, 1);
                    continue;
                }
            }
            if let Some(interface) = interfaces.get_mut(kept) {
                *interface = from;
            }
            kept += 1;
            // `rest` is empty between two steps, and has space for a burst.
            drop(rest.push(frame));
        }
        std::mem::swap(local, rest);
        Places::MAX
    }

    /// Sends frames of the service thread. Returns false if there were none.
    #[inline(never)]
    pub(super) fn send_injected(
        &mut self,
        context: &mut RouteContext<'_>,
        share: Option<&mut ShareStage>,
    ) -> bool {
        if context.routing.domain.is_none() {
            return false;
        }
        let Some(injected) = &mut context.routing.injected else {
            return false;
        };
        let frames = injected.receive(self.received, BURST_MAX);
        if frames == 0 {
            return false;
        }
        self.telemetry.count(Step::Relay, frames);
        self.send_marked(context, share);
        true
    }

    /// Sends the waiting frames of the service thread, each by its mark. Frames that another thread owns, out of those that share the
    /// state of connections, are handed over to it.
    #[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX frames")]
    pub(super) fn send_marked(
        &mut self,
        context: &mut RouteContext<'_>,
        mut share: Option<&mut ShareStage>,
    ) {
        let Some(domain) = context.routing.domain.clone() else {
            context.counters.not_sent.add(self.received.len() as u64);
            return self.received.free();
        };
        let mut ends = Ends::default();
        for mut frame in self.received.drain() {
            if let Some(share) = share.as_deref_mut()
                && let Some(owner) = share.other_owner(frame.octets())
            {
                share.put(owner, frame);
                continue;
            }
            match Mark::of_number(frame.mark()) {
                Some(Mark::Route(interface)) => {
                    frame.set_mark(AGAIN | u32::from(interface));
                    drop(context.routing.local.push(frame));
                }
                Some(Mark::Send(interface, is_as_sent)) => {
                    if !is_as_sent && let Some(octets) = frame.octets_mut() {
                        context.routing.inside().send_own(octets, interface);
                        prefixes::send_own(&domain.prefixes, octets, interface);
                    }
                    let to_bridges = &mut context.routing.to_bridges;
                    let ready = |_: &Interface| Some(frame);
                    ends.forward(
                        self.outputs,
                        interface,
                        &domain.router.interfaces,
                        to_bridges,
                        ready,
                    );
                }
                _ => ends.lost += 1,
            }
        }
        if let Some(share) = share {
            ends.lost += share.flush(self.telemetry).0;
        }
        context.counters.not_sent.add(ends.lost);
        self.finish(&domain, ends.touched, context);
        self.route_local(&domain, context);
    }

    fn finish(&mut self, domain: &Domain, touched: PortMask, context: &mut RouteContext<'_>) {
        self.flush_all(touched);
        if !context.routing.to_bridges.is_empty() {
            self.bridge_routed(domain, context);
        }
        if !context.routing.punts.is_empty() {
            let Routing { punts, service, .. } = &mut *context.routing;
            let lost = service.send(punts, context.now_s);
            context.counters.service_full.add(lost);
        }
    }
}

impl Path<'_> {
    /// Sends a packet in fragments.
    #[inline(never)]
    fn segment_into(
        &mut self,
        frame: &Mbuf<'_>,
        interface: u16,
        out: &Interface,
        to_bridges: &mut Burst,
        touched: &mut PortMask,
        pool: &Mempool,
    ) -> Option<()> {
        let (ethernet, packet) = frame.octets().split_first_chunk()?;
        let mut sent = None;
        // Maximum number of fragments: those of eight octets each.
        for fragment in fragments(packet, out.mtu) {
            let length = u16::try_from(fragment.frame_length()).ok()?;
            let mut piece = frame.sibling(pool, length)?;
            if !fragment.write(ethernet, piece.octets_mut()?) {
                return None;
            }
            self.telemetry.copied(frame.buffer(), piece.buffer());
            if let InterfaceBinding::Port(port) = out.place
                && self.is_full(port)
            {
                self.flush(usize::from(port));
            }
            leave(self.outputs, piece, interface, out, to_bridges, touched)?;
            sent = Some(());
        }
        sent
    }

    fn is_full(&self, port: u16) -> bool {
        match self.outputs.get(usize::from(port)) {
            Some(Some(place)) => place.waiting.space() == 0,
            _ => false,
        }
    }

    /// Bridges the frames of each bridge interface.
    #[inline(never)]
    fn bridge_routed(&mut self, domain: &Domain, context: &mut RouteContext<'_>) {
        for _ in 0..BURST_MAX {
            let Some(interface) = context.routing.to_bridges.marks().next() else {
                return;
            };
            let Routing {
                to_bridges, rest, ..
            } = &mut *context.routing;
            for frame in to_bridges.drain() {
                // Both bursts have space for all frames.
                drop(if frame.mark() == interface {
                    self.received.push(frame)
                } else {
                    rest.push(frame)
                });
            }
            std::mem::swap(to_bridges, rest);
            let interface = interface_of(interface);
            let bridge = domain.router.interfaces.get(interface).map(|one| one.place);
            let to_bridges = match bridge {
                Some(InterfaceBinding::Bridge(bridge)) => domain.bridges.get(usize::from(bridge)),
                _ => None,
            };
            match to_bridges {
                Some(Some(to_bridges)) => self.bridge_from(interface, to_bridges, context),
                _ => {
                    context.counters.not_sent.add(self.received.len() as u64);
                    self.received.free();
                }
            }
        }
    }

    fn bridge_from(
        &mut self,
        interface: u16,
        to_bridges: &BridgeContext,
        context: &mut RouteContext<'_>,
    ) {
        let clock = bridge::Clock {
            now_s: context.now_s,
            ticks: cycles::now(),
        };
        let from = Ingress::Interface(interface);
        bridge::decide_with(
            &to_bridges.tables,
            &to_bridges.fdb,
            from,
            &mut Storm::default(),
            clock,
            self.received.frames(),
            &mut context.routing.bridge_decisions,
        );
        self.telemetry.lap_of(Step::Bridge, self.received.len());
        if self.telemetry.is_watched() {
            let decisions = context.routing.bridge_decisions.as_slice();
            self.telemetry.bridged(from, self.received, decisions);
        }
        let Routing {
            bridge_decisions,
            local,
            ..
        } = &mut *context.routing;
        let (touched, lost) = self.distribute_with(
            from,
            &to_bridges.tables,
            bridge_decisions.as_slice(),
            local,
            context.pool,
        );
        context.counters.not_sent.add(lost);
        // A frame never returns to the bridge interface that sent it.
        local.free();
        self.flush_all(touched);
    }

    /// Routes the frames that a bridge delivered to the router.
    #[inline(always)]
    pub(super) fn route_from_bridge(&mut self, context: &mut RouteContext<'_>) {
        if context.routing.local.is_empty() {
            return;
        }
        self.telemetry.lap(Step::Send);
        match context.routing.domain.clone() {
            Some(domain) => self.route_local(&domain, context),
            None => context.routing.local.free(),
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

/// Returns the number of an interface's VRF. There is no VRF with the number for unknown interfaces.
#[inline(always)]
fn vrf_of(domain: &Domain, interface: u16) -> u16 {
    let interface = domain.router.interfaces.get(interface);
    interface.map_or(u16::MAX, |interface| interface.vrf)
}

/// Returns the number of the VRF of a frame to an interface's own MAC address. Other frames are dropped later, and must begin nothing.
#[inline(always)]
pub(super) fn vrf_for(domain: &Domain, interface: u16, frame: &[u8]) -> Option<u16> {
    let interface = domain.router.interfaces.get(interface)?;
    let [a, b, c, d, e, f] = *frame.first_chunk::<6>()?;
    let destination = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    (destination == interface.mac.to_u64()).then_some(interface.vrf)
}

/// Returns the number of the interface that a packet leaves by.
#[inline(always)]
fn exit_of(word: DecisionWord) -> Option<u16> {
    if let Some(to) = word.forwarded() {
        return Some(to.interface());
    }
    match word.decision() {
        Decision::Fragment(to) => Some(to.interface()),
        _ => None,
    }
}

/// Rewrites addresses and TTL of a frame. Copies the frame first if its buffer is shared.
#[inline(always)]
fn readdressed<'eal>(
    frame: Mbuf<'eal>,
    out: &Interface,
    to: Adjacency,
    pool: &Mempool,
    telemetry: &mut Telemetry,
) -> Option<Mbuf<'eal>> {
    let mut frame = exclusive(frame, pool, telemetry)?;
    rewrite(frame.octets_mut()?, Source::new(out.mac), to).then_some(frame)
}

/// Adds a frame from a bridge to the router's burst.
pub(super) fn keep_for_router(local: &mut Burst, mut frame: Mbuf<'_>, interface: u16) -> u64 {
    frame.set_mark(u32::from(interface));
    u64::from(local.push(frame).is_err())
}
