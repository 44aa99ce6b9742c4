// SPDX-License-Identifier: Apache-2.0
//! State of a forwarding thread, and its changes by orders between two turns.
// Inputs and relays are boxed because orders carry them: moving a box allocates nothing.
#![allow(clippy::vec_box)]

use std::sync::Arc;
use std::time::Duration;

use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mempool, cycles};

use super::balance::BalanceQuery;
use super::command::{CommandReceiver, Reply, WorkerCommand};
use super::connections::{ConnectionQuery, ConnectionStage};
use super::doze::Doze;
use super::effects::Effects;
use super::fragments::FragmentStage;
use super::input::{Input, PortStages};
use super::inspect::InspectStage;
use super::nat::{NatQuery, NatStage};
use super::output::{Output, OutputRules, Relay, TxPath};
use super::path::send_relayed;
use super::route::Routing;
use super::segment::{Segmenter, SegmentingQueue};
use super::share::ShareStage;
use super::stage::Stage;
use super::telemetry::Telemetry;
use crate::config::Idle;
use crate::counters::{PORTS_MAX, Step, ThreadCounters};
use quietwire_tables::bridge::Decisions;
use quietwire_tables::filter::{NameFlows, Verdict, Verdicts};

/// Maximum number of receive queues of a thread.
const INPUTS_MAX: usize = 1024;
/// Empty polls of all queues before a thread yields the CPU or sleeps.
pub(super) const TURNS_BEFORE_YIELD: u32 = 32;
/// Duration of a sleep between polls.
const NAP: Duration = Duration::from_micros(50);
/// Time of empty polls before a thread waits for interrupts, µs. A thread that still polls when a peer replies need not be woken for the
/// reply. docs/performance.md has round trips with shorter times.
const LINGER_US: u64 = 100;
/// Empty polls before a thread that sleeps for [`NAP`] between polls waits for interrupts: some milliseconds, because each wait and wake-up
/// costs more than a nap.
const NAPS_BEFORE_SLEEP: u32 = 64;
/// Maximum number of relay rings of a thread.
const RELAYS_MAX: usize = 2048;

/// State of a forwarding thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) inputs: Vec<Box<Input>>,
    pub(super) relays: Vec<Box<Relay>>,
    /// Outputs by number of the port; only ports that this thread sends to.
    pub(super) outputs: Vec<Option<Box<Output>>>,
    pub(super) received: Burst,
    /// Accepted frames while the filter drops others. Empty between two steps.
    pub(super) kept: Burst,
    /// Verdicts of the filter on the latest burst.
    pub(super) verdicts: Box<Verdicts>,
    /// Accepted frames that leave, while the filter drops others. Empty between two steps.
    pub(super) spare: Burst,
    /// Rules of frames that leave, if there are any.
    pub(super) output_rules: Option<Arc<OutputRules>>,
    /// Memory for names in connections, if rules compare them.
    pub(super) name_flows: Option<Box<NameFlows>>,
    /// Inspected flows, if rules inspect some.
    pub(super) inspection: Option<Box<InspectStage>>,
    pub(super) decisions: Decisions,
    /// Later fragments that wait for the first one of their datagram, if the thread orders fragments.
    pub(super) fragments: Option<Box<FragmentStage>>,
    /// Pool for copies of frames.
    pub(super) copies: Mempool,
    pub(super) routing: Routing,
    /// Connection tracking, if it is configured.
    pub(super) connections: Option<Box<ConnectionStage>>,
    /// Part in the state of connections that several threads share, if they do.
    pub(super) share: Option<Box<ShareStage>>,
    /// Stages of all ports, if threads share the state of connections.
    pub(super) stages: PortStages,
    /// Resources for effects of filter rules.
    pub(super) effects: Effects,
    pub(super) idle: Idle,
    /// Sleep state, if threads may sleep until a receive interrupt.
    doze: Option<Doze>,
    /// Time at which the queues were first without frames, and [`LINGER_US`], in ticks.
    idle_since: u64,
    linger: u64,
    pub(super) counters: Arc<ThreadCounters>,
    pub(super) telemetry: Telemetry,
    pub(super) commands: CommandReceiver,
    pub(super) ended: bool,
    eal: Eal,
}

impl Worker {
    pub(crate) fn new(
        eal: &Eal,
        copies: Mempool,
        (routing, connections, effects): (Routing, Option<Box<ConnectionStage>>, Effects),
        (idle, doze): (Idle, Option<Doze>),
        counters: Arc<ThreadCounters>,
        commands: CommandReceiver,
    ) -> Self {
        Self {
            inputs: Vec::with_capacity(INPUTS_MAX),
            relays: Vec::with_capacity(RELAYS_MAX),
            outputs: (0..PORTS_MAX).map(|_| None).collect(),
            received: Burst::new(eal),
            kept: Burst::new(eal),
            verdicts: Box::new([Verdict::Short; BURST_MAX]),
            spare: Burst::new(eal),
            output_rules: None,
            name_flows: None,
            inspection: None,
            decisions: Decisions::default(),
            fragments: None,
            copies,
            routing,
            connections,
            share: None,
            stages: PortStages::default(),
            effects,
            idle,
            doze,
            idle_since: 0,
            linger: (cycles::hz() / 1_000_000).saturating_mul(LINGER_US),
            telemetry: Telemetry::new(Arc::clone(&counters)),
            counters,
            commands,
            ended: false,
            eal: eal.clone(),
        }
    }

    /// Returns true if frames wait for the verdict of an inspector.
    #[inline(always)]
    pub(super) fn holds_frames(&self) -> bool {
        self.inspection.as_ref().is_some_and(|stage| stage.holds())
    }

    /// Returns true if fragments wait for the first one of their datagram.
    #[inline(always)]
    pub(super) fn holds_fragments(&self) -> bool {
        self.fragments.as_ref().is_some_and(|stage| stage.holds())
    }

    /// Yields the CPU or sleeps after this number of turns without frames. Returns false if the limit is not reached yet.
    #[inline(never)]
    pub(super) fn rest(&mut self, idle_turns: u32) -> bool {
        match self.idle {
            // No verdict wakes a thread.
            _ if self.holds_frames() => std::thread::yield_now(),
            Idle::Poll | Idle::Yield => std::thread::yield_now(),
            Idle::Sleep if idle_turns >= NAPS_BEFORE_SLEEP && self.is_signalled() => {
                return self.sleep();
            }
            Idle::Sleep => std::thread::sleep(NAP),
            Idle::Interrupt if self.hears_all() => {
                return self.has_lingered(idle_turns) && self.sleep();
            }
            Idle::Interrupt => std::thread::sleep(NAP),
        }
        true
    }

    /// Returns true if the thread has polled empty queues for [`LINGER_US`].
    fn has_lingered(&mut self, idle_turns: u32) -> bool {
        let now = cycles::now();
        if idle_turns <= TURNS_BEFORE_YIELD {
            self.idle_since = now;
        }
        now.wrapping_sub(self.idle_since) >= self.linger
    }

    /// Returns whether every receive queue and every relay ring wakes this thread.
    fn is_signalled(&self) -> bool {
        let mut inputs = self.inputs.iter();
        inputs.all(|input| input.rx.interrupt().is_some()) && self.hears_all()
    }

    /// Returns whether every relay ring wakes this thread. Rings inherited from an ended thread ring the bell of that thread.
    fn hears_all(&self) -> bool {
        let Some(doze) = &self.doze else { return false };
        let mut relays = self.relays.iter();
        relays.all(|relay| relay.frames.rings(doze.bell()))
    }

    /// Arms the queues, or sleeps if they are armed already: the turn in between was empty.
    fn sleep(&mut self) -> bool {
        let Some(doze) = &mut self.doze else {
            return false;
        };
        if !doze.is_armed() {
            doze.arm(&mut self.inputs);
            return false;
        }
        doze.sleep(&self.inputs);
        doze.disarm(&mut self.inputs);
        true
    }

    /// Disarms the queues if the thread was about to sleep.
    #[cold]
    pub(super) fn wake_up(&mut self) {
        if let Some(doze) = &mut self.doze
            && doze.is_armed()
        {
            doze.disarm(&mut self.inputs);
        }
    }

    /// Executes one order, if there is one. Runs between two turns, when no frame waits in any output.
    #[inline(always)]
    pub(super) fn run_commands(&mut self, now_s: u32) {
        if self.commands.has_order() {
            self.run_command(now_s);
        }
    }

    #[cold]
    fn run_command(&mut self, now_s: u32) {
        let Some((number, order)) = self.commands.take() else {
            return;
        };
        // A queue that moves to another thread must not be armed.
        self.wake_up();
        let reply = self.carry_out(order, now_s);
        self.commands.reply(number, reply);
        self.telemetry.lap(Step::Control);
    }

    fn carry_out(&mut self, order: WorkerCommand, now_s: u32) -> Reply {
        match order {
            WorkerCommand::Adopt(input) => self.adopt(input),
            WorkerCommand::Release { port, queue } => Reply::Input(self.release(port, queue)),
            WorkerCommand::Stages(stages) => {
                for (port, stage) in &stages {
                    self.set_stage(*port, stage);
                }
                // The list is not freed here.
                Reply::Stages { _stages: stages }
            }
            WorkerCommand::Output { port, output } => Reply::Output {
                port,
                former: self.set_output(port, output),
            },
            WorkerCommand::Relay(relay) => self.add_relay(relay),
            WorkerCommand::EndRelays { port } => Reply::Relays(self.end_relays(port)),
            WorkerCommand::EndAbandonedRelays => Reply::Relays(self.end_abandoned_relays()),
            WorkerCommand::DrainRelays => {
                self.drain_relays(|_| true);
                Reply::Done
            }
            WorkerCommand::Inherit {
                port,
                output,
                relays,
            } => self.inherit(port, output, relays),
            WorkerCommand::Domain(domain) => Reply::Domain {
                _former: std::mem::replace(&mut self.routing.domain, domain),
            },
            WorkerCommand::OutputRules(rules) => Reply::OutputRules {
                _former: std::mem::replace(&mut self.output_rules, rules),
            },
            WorkerCommand::NameFlows(flows) => Reply::NameFlows {
                _former: std::mem::replace(&mut self.name_flows, flows),
            },
            WorkerCommand::Inspection(inspection) => Reply::Inspection {
                _former: self.replace_inspection(inspection),
            },
            WorkerCommand::Fragments(fragments) => Reply::Fragments {
                _former: self.replace_fragments(fragments),
            },
            WorkerCommand::Inject(frames) => Reply::Injected {
                _former: std::mem::replace(&mut self.routing.injected, frames),
            },
            WorkerCommand::Capture(capture) => Reply::Capture {
                _former: self.telemetry.set_capture(capture),
            },
            WorkerCommand::Trace(trace) => Reply::Trace {
                _former: self.telemetry.set_trace(trace),
            },
            WorkerCommand::Segment(segmenter) => {
                self.enable_segmentation(&segmenter);
                Reply::Done
            }
            WorkerCommand::Track(connections) => Reply::Track {
                _former: std::mem::replace(&mut self.connections, connections),
            },
            WorkerCommand::ConnectionLimits {
                timeouts,
                half_open_max,
                new_share,
            } => {
                if let Some(connections) = &mut self.connections {
                    connections.set_limits(timeouts, half_open_max, new_share);
                }
                Reply::Done
            }
            WorkerCommand::Connections(query) => self.answer_connections(query, now_s),
            WorkerCommand::Nat(nat) => self.set_nat(nat),
            WorkerCommand::Balance(balance) => Reply::Balance {
                _former: self.routing.replace_balance(balance),
            },
            WorkerCommand::BalanceQuery(query) => self.answer_balance(query, now_s),
            WorkerCommand::NatQuery(query) => self.answer_nat(query, now_s),
            WorkerCommand::Share { share, stages } => Reply::Share {
                _former: self.replace_share(share),
                _stages: std::mem::replace(&mut self.stages, stages),
            },
            WorkerCommand::Owners(owners) => {
                let share = self.share.as_mut();
                Reply::Owners {
                    _former: share.map(|share| share.replace_owners(owners)),
                }
            }
            WorkerCommand::Nothing => {
                self.expire_more(now_s);
                Reply::Done
            }
            WorkerCommand::End => {
                self.ended = true;
                Reply::Done
            }
        }
    }

    fn adopt(&mut self, input: Box<Input>) -> Reply {
        if self.inputs.len() == INPUTS_MAX {
            return Reply::Full(WorkerCommand::Adopt(input));
        }
        if let Some(doze) = &self.doze {
            doze.adopt(&input.rx);
        }
        self.inputs.push(input);
        Reply::Done
    }

    fn add_relay(&mut self, relay: Box<Relay>) -> Reply {
        if self.relays.len() == RELAYS_MAX {
            return Reply::Full(WorkerCommand::Relay(relay));
        }
        self.relays.push(relay);
        Reply::Done
    }

    /// Takes over a port from the thread that sent to it for others, with as many of its rings as there is space for.
    fn inherit(
        &mut self,
        port: u16,
        output: Option<Box<Output>>,
        mut relays: Vec<Box<Relay>>,
    ) -> Reply {
        let former = match output {
            Some(output) => self.set_output(port, Some(output)),
            None => None,
        };
        let space = RELAYS_MAX.saturating_sub(self.relays.len());
        self.relays.extend(relays.drain(..space.min(relays.len())));
        self.drain_relays(|relay| relay.port == port);
        // The emptied list returns too and is not freed here.
        Reply::Inherited {
            port,
            former,
            left: relays,
        }
    }

    fn release(&mut self, port: u16, queue: u16) -> Option<Box<Input>> {
        let index = self
            .inputs
            .iter()
            .position(|input| input.port == port && input.queue == queue)?;
        let input = self.inputs.remove(index);
        if !self.inputs.iter().any(|input| input.port == port) {
            self.forget_held(port);
        }
        if let Some(doze) = &self.doze {
            doze.release(&input.rx);
        }
        Some(input)
    }

    /// The control thread holds references to the former and to the new stage, so neither is freed here.
    fn set_stage(&mut self, port: u16, stage: &Arc<Stage>) {
        for input in self.inputs.iter_mut().filter(|input| input.port == port) {
            input.stage = Arc::clone(stage);
            input.storm = stage.storm();
        }
        self.stages.set(port, stage);
    }

    /// Drops the packets that wait in the former memory.
    fn replace_inspection(
        &mut self,
        inspection: Option<Box<InspectStage>>,
    ) -> Option<Box<InspectStage>> {
        if let Some(former) = &self.inspection {
            former.abandon(&self.counters.ports);
        }
        std::mem::replace(&mut self.inspection, inspection)
    }

    /// Drops the fragments that wait in the former memory.
    fn replace_fragments(
        &mut self,
        fragments: Option<Box<FragmentStage>>,
    ) -> Option<Box<FragmentStage>> {
        if let Some(former) = &self.fragments {
            former.abandon(&self.counters.ports);
        }
        std::mem::replace(&mut self.fragments, fragments)
    }

    /// Replaces NAT, and counts the static forwards for which there is no space.
    fn set_nat(&mut self, nat: Option<Box<NatStage>>) -> Reply {
        let _former = self.routing.replace_nat(nat);
        let nat = self.routing.nat.as_ref();
        Reply::Nat {
            without_space: nat.map_or(0, |nat| nat.without_space()),
            _former,
        }
    }

    fn answer_connections(&mut self, mut query: Box<ConnectionQuery>, now_s: u32) -> Reply {
        match &mut self.connections {
            Some(stage) => stage.answer(&mut query, self.routing.nat.as_deref(), now_s),
            None => query.from = None,
        }
        Reply::Connections(query)
    }

    fn answer_nat(&mut self, mut query: Box<NatQuery>, now_s: u32) -> Reply {
        match &mut self.routing.nat {
            Some(nat) => nat.answer(&mut query, now_s),
            None => query.from = None,
        }
        Reply::NatQuery(query)
    }

    fn answer_balance(&mut self, mut query: Box<BalanceQuery>, now_s: u32) -> Reply {
        if let Some(balance) = &mut self.routing.balance {
            balance.answer(&mut query, now_s);
        } else {
            query.end();
        }
        Reply::BalanceQuery(query)
    }

    /// Removes more expired entries of NAT and of load balancers.
    fn expire_more(&mut self, now_s: u32) {
        if let Some(nat) = &mut self.routing.nat {
            nat.rest(now_s);
        }
        if let Some(balance) = &mut self.routing.balance {
            balance.rest(now_s);
        }
    }

    /// Continues to read the rings of the former part.
    fn replace_share(&mut self, mut share: Box<ShareStage>) -> Option<Box<ShareStage>> {
        let mut former = self.share.take();
        if let Some(former) = &mut former {
            share.inherit(former);
        }
        self.share = Some(share);
        former
    }

    /// Drops the frames of a port that wait for the verdict of an inspector, or for the first fragment of their datagram.
    fn forget_held(&mut self, port: u16) {
        let counters = self.counters.ports.get(usize::from(port));
        if let Some(fragments) = &mut self.fragments {
            fragments.forget(port, counters);
        }
        if let Some(inspection) = &mut self.inspection {
            inspection.forget(port);
        }
    }

    /// Counts the frames that wait as dropped, before the thread ends.
    pub(super) fn abandon_held(&self) {
        let counters = &self.counters.ports;
        if let Some(fragments) = &self.fragments {
            fragments.abandon(counters);
        }
        if let Some(inspection) = &self.inspection {
            inspection.abandon(counters);
        }
    }

    fn set_output(&mut self, port: u16, output: Option<Box<Output>>) -> Option<Box<Output>> {
        if output.is_none() {
            self.forget_held(port);
        }
        let place = self.outputs.get_mut(usize::from(port))?;
        std::mem::replace(place, output)
    }

    /// Enables segmentation. It allocates, which is acceptable for an operator's request outside the packet path.
    fn enable_segmentation(&mut self, segmenter: &Segmenter) {
        for place in &mut self.outputs {
            if let Some(output) = place.take() {
                let Output { tx_path, waiting } = *output;
                let tx_path = match tx_path {
                    TxPath::Queue(tx) => {
                        let queue = SegmentingQueue::new(&self.eal, tx, segmenter.clone());
                        TxPath::Segmenting(Box::new(queue))
                    }
                    tx_path => tx_path,
                };
                *place = Some(Box::new(Output { tx_path, waiting }));
            }
        }
        self.routing.enable_segmentation(&self.eal, segmenter);
    }

    fn end_relays(&mut self, port: u16) -> Vec<Box<Relay>> {
        self.drain_relays(|relay| relay.port == port);
        // It allocates, which is acceptable for an operator's request outside the packet path.
        self.relays
            .extract_if(.., |relay| relay.port == port)
            .collect()
    }

    fn end_abandoned_relays(&mut self) -> Vec<Box<Relay>> {
        self.drain_relays(|relay| relay.frames.is_abandoned());
        // It allocates, which is acceptable for an operator's request outside the packet path.
        self.relays
            .extract_if(.., |relay| {
                relay.frames.is_abandoned() && relay.frames.is_empty()
            })
            .collect()
    }

    /// Sends the frames that are in the rings now. Frames added meanwhile may stay.
    fn drain_relays(&mut self, which: impl Fn(&Relay) -> bool) {
        for relay in self.relays.iter_mut().filter(|relay| which(relay)) {
            let mut left = relay.frames.len();
            while left > 0 {
                let count = relay
                    .frames
                    .receive(&mut self.received, BURST_MAX.min(left));
                if count == 0 {
                    break;
                }
                left = left.saturating_sub(count);
                send_relayed(
                    &mut self.received,
                    &mut self.outputs,
                    &self.counters.ports,
                    &mut self.telemetry,
                    relay.port,
                );
            }
        }
    }
}

/// Access of tests of the control thread to a thread, which runs in the test itself.
#[cfg(test)]
impl Worker {
    /// Executes an order.
    pub(crate) fn obey(&mut self, order: WorkerCommand) -> Reply {
        self.wake_up();
        self.carry_out(order, 0)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns the receive queues and the stage of each.
    pub(crate) fn queues(&self) -> impl Iterator<Item = ((u16, u16), &Arc<Stage>)> {
        let inputs = self.inputs.iter();
        inputs.map(|input| ((input.port, input.queue), &input.stage))
    }

    /// Returns the ports that the thread sends to, and whether by a transmit queue of its own.
    pub(crate) fn ports(&self) -> impl Iterator<Item = (u16, bool)> {
        let outputs = (0u16..).zip(&self.outputs);
        outputs.filter_map(|(port, output)| {
            let is_ring = matches!(output.as_ref()?.tx_path, TxPath::Ring(_));
            Some((port, !is_ring))
        })
    }

    /// Returns the ports that the thread sends to for others, without rings that have no writer.
    pub(crate) fn relayed(&self) -> impl Iterator<Item = u16> {
        let relays = self.relays.iter();
        relays
            .filter(|relay| !relay.frames.is_abandoned())
            .map(|relay| relay.port)
    }

    /// Returns its number among the owners of connections, and the numbers of rings to and from others.
    pub(crate) fn rings(&self) -> Option<(Option<u16>, usize, usize)> {
        self.share.as_ref().map(|share| share.rings())
    }

    /// Returns the instances of NAT, and whether each has tables.
    pub(crate) fn nat(&self) -> impl Iterator<Item = (&super::NatBinding, bool)> {
        let instances = self.routing.nat.iter().flat_map(|nat| &nat.instances);
        instances.map(|one| (&one.place, one.tables.is_some()))
    }

    /// Returns the load balancers.
    pub(crate) fn balance(&self) -> Option<&super::BalanceStage> {
        self.routing.balance.as_deref()
    }

    /// Returns true if it has memory for names in connections.
    pub(crate) const fn has_name_flows(&self) -> bool {
        self.name_flows.is_some()
    }

    /// Returns true if it has memory for inspected flows.
    pub(crate) const fn has_inspection(&self) -> bool {
        self.inspection.is_some()
    }

    /// Returns true if it has a table of connections.
    pub(crate) const fn has_connections(&self) -> bool {
        self.connections.is_some()
    }

    /// Returns true if it has memory for fragments.
    pub(crate) const fn has_fragments(&self) -> bool {
        self.fragments.is_some()
    }

    /// Returns the stage for a port's frames that other threads have received.
    pub(crate) fn stage_for_others(&self, port: u16) -> Option<&Arc<Stage>> {
        self.stages.get(port)
    }

    pub(crate) fn domain(&self) -> Option<&Arc<super::route::Domain>> {
        self.routing.domain.as_ref()
    }
}
