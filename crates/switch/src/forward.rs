// SPDX-License-Identifier: Apache-2.0
//! The loop of a forwarding thread: receive a burst, decide, send, count; run to completion.
//!
//! This path has no lock, no allocation, no unbounded loop and no system call, except `sched_yield`, a short sleep or epoll(7) without
//! frames if the idle strategy requires it. Frames that an output does not accept at once are dropped and counted, because waiting for one
//! output would delay all others.

mod balance;
mod bridge;
mod command;
mod connections;
mod doze;
mod effects;
mod ends;
mod filter;
mod fragments;
mod input;
mod inspect;
mod lengths;
mod line;
mod link_mtus;
mod mark;
mod merge;
mod nat;
mod nat64;
mod nat66;
mod nat_events;
mod output;
mod path;
mod prefix_copy;
mod prefixes;
mod punts;
mod replicated;
mod route;
mod saved;
mod segment;
mod sessions;
mod share;
mod stage;
mod steer;
mod sync;
mod telemetry;
mod translate;
mod worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quietwire_dpdk::{BURST_MAX, Burst};
use quietwire_tables::bridge::{Decisions, Storm};
use quietwire_tables::drops::PortDrop;
use quietwire_tables::filter::{NameFlows, RuleCounters, Verdict, Verdicts};
use quietwire_tables::fragment_order::ReleaseCause;

use crate::config::Idle;
use crate::counters::Step;
use crate::filter_log::FilterLog;

pub(crate) use balance::{BalanceQuery, BalanceStage, BalancerTotals, ReplicatedBalancer};
pub(crate) use bridge::BridgeStage;
use bridge::Bridging;
pub(crate) use command::{CommandReceiver, CommandSender, Reply, Unanswered, WorkerCommand, line};
pub(crate) use connections::{ConnectionQuery, ConnectionStage, ConnectionTotals};
pub(crate) use doze::Doze;
pub(crate) use effects::Effects;
use filter::FilterContext;
pub(crate) use fragments::FragmentStage;
use fragments::{DATAGRAMS_A_TURN, FragmentContext, drop_late};
pub(crate) use input::{Input, PortStages};
use inspect::RELEASES_MAX;
pub(crate) use inspect::{Boards, HELD_MAX, HeldBudget, InspectStage};
pub(crate) use link_mtus::{LinkFrames, LinkMtus};
pub(crate) use mark::Mark;
pub(crate) use nat::{
    FamilyPass, MappingFilter, Nat64Place, Nat66Place, NatBinding, NatIdentity, NatInstance,
    NatQuery, NatStage, NatTables, NatTotals,
};
pub(crate) use nat_events::{EventSink, Ipv6Ends, LogEvent, StampedEvent};
pub(crate) use output::{Output, OutputRules, Relay, TxPath};
use path::{Leaving, Path};
pub(crate) use replicated::{ApplyCounts, Outgoing, Replicated, Take};
use route::RouteContext;
pub(crate) use route::{BridgeContext, Domain, RouteStage, Routing};
pub(crate) use saved::{RestoreCounts, Transfer};
pub(crate) use segment::{Segmenter, SegmentingQueue};
pub(crate) use share::ShareStage;
pub(crate) use stage::{FilteredStage, Stage, SteeredStage};
use worker::TURNS_BEFORE_YIELD;
pub(crate) use worker::Worker;

/// State shared by all forwarding threads.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Stop flag of all threads.
    pub(crate) stop: Arc<AtomicBool>,
    /// Coarse clock: seconds since the switch started.
    pub(crate) now_s: AtomicU32,
    /// Log of filter rules.
    pub(crate) log: FilterLog,
    /// Counters of filter rules.
    pub(crate) rule_counters: RuleCounters,
}

impl Shared {
    /// Returns true once the stop flag is set.
    pub(crate) fn is_ending(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Size of a ring between two threads, frames.
pub(crate) const RING_FRAMES: usize = 1024;
/// Bursts of a full ring.
const BURSTS_OF_RING: usize = RING_FRAMES.div_ceil(BURST_MAX);

/// Forwards until the stop flag is set.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "64 bits count turns, polls and yields for longer than a machine runs"
)]
pub(crate) fn run(worker: &mut Worker, shared: &Shared) {
    // An earlier thread on this CPU may have counted.
    let mut turns = worker.counters.turns.get();
    let mut polls = worker.counters.polls.get();
    let mut empty_polls = worker.counters.empty_polls.get();
    let mut yields = worker.counters.yields.get();
    let mut idle_turns = 0;
    while !worker.ended && !shared.stop.load(Ordering::Relaxed) {
        let (empty, has_relayed) = turn(worker, shared);
        // An order that arrives later waits for the next turn, so none is executed before the frames that precede it.
        if worker.commands.has_order() {
            if worker.share.is_some() {
                drain_handed(worker, shared);
            }
            worker.run_commands(shared.now_s.load(Ordering::Relaxed));
        }
        let inputs = worker.inputs.len() as u64;
        turns += 1;
        worker.counters.turns.set(turns);
        polls += inputs;
        empty_polls += empty;
        worker.counters.polls.set(polls);
        worker.counters.empty_polls.set(empty_polls);
        if empty < inputs || has_relayed {
            if idle_turns >= TURNS_BEFORE_YIELD {
                worker.wake_up();
            }
            idle_turns = 0;
        } else if worker.idle != Idle::Poll {
            idle_turns = idle_turns.saturating_add(1);
            if idle_turns >= TURNS_BEFORE_YIELD && worker.rest(idle_turns) {
                worker.telemetry.lap(Step::Idle);
                yields += 1;
                worker.counters.yields.set(yields);
            }
        }
    }
    worker.abandon_held();
}

/// Serves each receive queue once. Returns the number of empty queues, and whether frames were sent for other threads.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "at most the receive queues of a thread"
)]
#[inline(always)]
fn turn(worker: &mut Worker, shared: &Shared) -> (u64, bool) {
    let mut empty = 0;
    for input in &mut worker.inputs {
        let started = worker.telemetry.last();
        let frames = input.rx.receive(&mut worker.received, BURST_MAX);
        if frames == 0 {
            empty += 1;
            continue;
        }
        worker.telemetry.lap_of(Step::Receive, frames);
        if worker.telemetry.is_watched() {
            worker
                .telemetry
                .received(input.port, input.queue, &worker.received);
        }
        let began = worker.telemetry.last();
        if let Some(connections) = worker.connections.as_deref_mut() {
            connections.received(frames);
            connections.begin_burst(started);
        }
        let has_own = match worker.share.as_deref_mut() {
            None => true,
            Some(share) => share.hand_over(
                input.port,
                (&mut worker.received, &mut worker.kept),
                &worker.counters.ports,
                &mut worker.telemetry,
            ),
        };
        let mut path = Path {
            received: &mut worker.received,
            outputs: &mut worker.outputs,
            counters: &worker.counters.ports,
            telemetry: &mut worker.telemetry,
            leaving: Leaving {
                rules: worker.output_rules.as_deref(),
                from: Some(input.port),
                spare: &mut worker.spare,
                effects: &mut worker.effects,
                pool: &worker.copies,
            },
        };
        let port = usize::from(input.port);
        let mut context = RouteContext {
            routing: &mut worker.routing,
            counters: &worker.counters.router,
            pool: &worker.copies,
            now_s: shared.now_s.load(Ordering::Relaxed),
        };
        let resources = Resources {
            connections: worker.connections.as_deref_mut(),
            names: worker.name_flows.as_deref_mut(),
            inspection: worker.inspection.as_deref_mut(),
            fragments: worker.fragments.as_deref_mut(),
            share: worker.share.as_deref_mut(),
            kept: &mut worker.kept,
            verdicts: &mut worker.verdicts,
            decisions: &mut worker.decisions,
        };
        if has_own {
            let of_port = (port, &*input.stage, &mut input.storm);
            process(&mut path, &mut context, resources, of_port);
        }
        // Frames left by a stage would be sent twice.
        worker.received.free();
        if worker.telemetry.is_watched() {
            worker.telemetry.finish();
        }
        worker.telemetry.lap(Step::Send);
        input.counters.found(frames);
        let ended = worker.telemetry.last();
        input.counters.cycles.add(ended.wrapping_sub(began));
        if let Some(connections) = worker.connections.as_deref_mut() {
            connections.end_burst(ended);
        }
    }
    let handed = worker.share.is_some() && process_handed(worker, shared);
    let released = worker.holds_frames() && release_held(worker, shared);
    let ordered = worker.holds_fragments() && release_fragments(worker, shared);
    let relayed = relay(worker, shared) || handed || released || ordered;
    if let Some(connections) = worker.connections.as_deref_mut() {
        connections.pass_sessions(worker.routing.nat.as_deref_mut());
    }
    let is_idle = !relayed && empty == worker.inputs.len() as u64;
    if relayed {
        worker.telemetry.lap(Step::Relay);
    } else if is_idle {
        worker.telemetry.lap(Step::Idle);
    }
    if let Some(connections) = worker.connections.as_deref_mut() {
        connections.end_turn(worker.telemetry.last(), is_idle);
    }
    (empty, relayed)
}

/// Resources of the stages of a port, beside the path of the burst.
struct Resources<'worker> {
    /// Connection tracking, if it is configured.
    connections: Option<&'worker mut ConnectionStage>,
    /// Names of connections, if rules match on them.
    names: Option<&'worker mut NameFlows>,
    /// Inspected flows, if rules inspect some.
    inspection: Option<&'worker mut InspectStage>,
    /// Fragments that wait for the first one of their datagram, if the thread orders fragments.
    fragments: Option<&'worker mut FragmentStage>,
    /// Part in the state of connections that several threads share, if they do.
    share: Option<&'worker mut ShareStage>,
    /// Empty before and after.
    kept: &'worker mut Burst,
    verdicts: &'worker mut Verdicts,
    decisions: &'worker mut Decisions,
}

/// Processes the received burst of a port by its stage.
#[inline(always)]
fn process(
    path: &mut Path<'_>,
    context: &mut RouteContext<'_>,
    resources: Resources<'_>,
    (port, stage, storm): (usize, &Stage, &mut Storm),
) {
    let Resources {
        connections,
        names,
        inspection,
        fragments,
        share,
        kept,
        verdicts,
        decisions,
    } = resources;
    let stage = match stage {
        Stage::Steered(steered) if !path.steer(port, steered, kept) => return,
        stage => stage.behind_steering(),
    };
    if let Stage::Filtered(filtered) = stage
        && let Some(guard) = &filtered.guard
        && !path.pass_guard(port, guard)
    {
        return;
    }
    let is_tracked = connections.is_some() && stage.has_rules();
    if (is_tracked || context.routing.nat.is_some())
        && let Some(stage_of_fragments) = fragments
        && path.may_have_fragments()
    {
        let order = FragmentContext {
            stage: stage_of_fragments,
            share,
            zone: stage.zone(),
            now_s: context.now_s,
            kept: &mut *kept,
            pool: context.pool,
        };
        let routing = &*context.routing;
        let needs_first = |octets: &[u8]| is_tracked || routing.may_translate(octets);
        if !path.order_fragments(port, order, needs_first) {
            return;
        }
    }
    let resources = RuleResources {
        connections,
        names,
        inspection,
        kept,
        verdicts,
        decisions,
    };
    process_ordered(path, context, resources, (port, stage, storm));
}

/// Resources of the rules of a port, and of the stages behind them.
struct RuleResources<'worker> {
    connections: Option<&'worker mut ConnectionStage>,
    names: Option<&'worker mut NameFlows>,
    inspection: Option<&'worker mut InspectStage>,
    /// Empty before and after.
    kept: &'worker mut Burst,
    verdicts: &'worker mut Verdicts,
    decisions: &'worker mut Decisions,
}

/// Processes the frames of a port behind its steering rules and its source guard, with fragments in order.
#[inline(always)]
fn process_ordered(
    path: &mut Path<'_>,
    context: &mut RouteContext<'_>,
    resources: RuleResources<'_>,
    (port, stage, storm): (usize, &Stage, &mut Storm),
) {
    let RuleResources {
        connections,
        names,
        inspection,
        kept,
        verdicts,
        decisions,
    } = resources;
    let stage = match stage {
        Stage::Filtered(filtered) => {
            let filter = FilterContext {
                connections,
                names,
                inspection,
                inside: context.routing.inside(),
                now_s: context.now_s,
                kept,
                verdicts,
                pool: context.pool,
            };
            if !path.pass_rules(port, filtered, filter) {
                return;
            }
            &filtered.then
        }
        stage => stage,
    };
    process_accepted(path, context, decisions, (port, stage, storm));
}

/// Processes the frames of a port that have passed its rules.
#[inline(always)]
fn process_accepted(
    path: &mut Path<'_>,
    context: &mut RouteContext<'_>,
    decisions: &mut Decisions,
    (port, stage, storm): (usize, &Stage, &mut Storm),
) {
    match stage {
        Stage::CrossConnect { output } => path.cross_connect(port, *output),
        Stage::Bridge(stage) => {
            let bridging = Bridging {
                stage,
                storm,
                decisions,
                context,
            };
            path.bridge(port, bridging);
        }
        Stage::Route(stage) => path.route_port(port, stage, context),
        Stage::Inspector(boards) => path.take_answers(port, boards),
        // The inner stage of accepted frames is never filtered or steered.
        Stage::Drop | Stage::Filtered(_) | Stage::Steered(_) => path.drop_all(port),
    }
}

/// Processes the frames that wait for a verdict no longer. Returns false if all wait.
#[inline(never)]
fn release_held(worker: &mut Worker, shared: &Shared) -> bool {
    if !worker.inspection.as_mut().is_some_and(|one| one.settle()) {
        return false;
    }
    for _ in 0..RELEASES_MAX {
        let Some(stage) = worker.inspection.as_deref_mut() else {
            break;
        };
        let Some(released) = stage.take_decided(&mut worker.received) else {
            break;
        };
        released.count(&worker.counters.ports);
        if worker.received.is_empty() {
            continue;
        }
        let frames = worker.received.len();
        worker.telemetry.lap_of(Step::Filter, frames);
        let mut path = Path {
            received: &mut worker.received,
            outputs: &mut worker.outputs,
            counters: &worker.counters.ports,
            telemetry: &mut worker.telemetry,
            leaving: Leaving {
                rules: worker.output_rules.as_deref(),
                from: Some(released.port),
                spare: &mut worker.spare,
                effects: &mut worker.effects,
                pool: &worker.copies,
            },
        };
        let mut context = RouteContext {
            routing: &mut worker.routing,
            counters: &worker.counters.router,
            pool: &worker.copies,
            now_s: shared.now_s.load(Ordering::Relaxed),
        };
        let port = usize::from(released.port);
        let mut inputs = worker.inputs.iter_mut();
        let input = inputs.find(|input| input.port == released.port);
        let stage = match input {
            Some(input) => Some((&*input.stage, &mut input.storm)),
            None => worker.stages.of(released.port),
        };
        match stage {
            Some((stage, storm)) => {
                let of_port = (port, stage.behind_rules(), storm);
                process_accepted(&mut path, &mut context, &mut worker.decisions, of_port);
            }
            None => path.drop_all(port),
        }
        // Frames left by a stage would be sent twice.
        worker.received.free();
        worker.telemetry.lap(Step::Send);
    }
    true
}

/// Processes the fragments whose first one has arrived, and drops those that have waited too long. Returns false if all wait.
#[inline(never)]
fn release_fragments(worker: &mut Worker, shared: &Shared) -> bool {
    let now_s = shared.now_s.load(Ordering::Relaxed);
    let mut has_released = false;
    for _ in 0..DATAGRAMS_A_TURN {
        let Some(fragments) = worker.fragments.as_deref_mut() else {
            break;
        };
        let Some(released) = fragments.take_released(&mut worker.received, now_s) else {
            break;
        };
        has_released = true;
        if worker.telemetry.is_watched() {
            worker.telemetry.adopt(&worker.received);
        }
        match released.cause {
            ReleaseCause::FirstArrived => {
                begin_burst(worker);
                process_released(worker, released.port, now_s);
            }
            ReleaseCause::Timeout => {
                if worker.telemetry.is_watched() {
                    let verdicts = [Verdict::Guarded(PortDrop::FragmentTimeout); BURST_MAX];
                    worker.telemetry.filtered(&worker.received, &verdicts);
                }
                let counters = worker.counters.ports.get(usize::from(released.port));
                drop_late(&mut worker.received, counters);
            }
        }
        // Frames left by a stage would be sent twice.
        worker.received.free();
        if worker.telemetry.is_watched() {
            worker.telemetry.finish();
        }
        worker.telemetry.lap(Step::Send);
        end_burst(worker);
    }
    has_released
}

/// Begins the processing of a burst that no receive queue has returned, in the limit of the time for new connections.
fn begin_burst(worker: &mut Worker) {
    if let Some(connections) = worker.connections.as_deref_mut() {
        connections.begin_burst(worker.telemetry.last());
    }
}

/// Ends the processing of a burst that no receive queue has returned.
fn end_burst(worker: &mut Worker) {
    if let Some(connections) = worker.connections.as_deref_mut() {
        connections.end_burst(worker.telemetry.last());
    }
}

/// Processes the received fragments of a port behind the first one of their datagram.
fn process_released(worker: &mut Worker, port: u16, now_s: u32) {
    let mut path = Path {
        received: &mut worker.received,
        outputs: &mut worker.outputs,
        counters: &worker.counters.ports,
        telemetry: &mut worker.telemetry,
        leaving: Leaving {
            rules: worker.output_rules.as_deref(),
            from: Some(port),
            spare: &mut worker.spare,
            effects: &mut worker.effects,
            pool: &worker.copies,
        },
    };
    if let Some(share) = worker.share.as_deref_mut()
        && !path.pass_fragments_on(port, share, &mut worker.kept, now_s)
    {
        return;
    }
    let mut context = RouteContext {
        routing: &mut worker.routing,
        counters: &worker.counters.router,
        pool: &worker.copies,
        now_s,
    };
    let resources = RuleResources {
        connections: worker.connections.as_deref_mut(),
        names: worker.name_flows.as_deref_mut(),
        inspection: worker.inspection.as_deref_mut(),
        kept: &mut worker.kept,
        verdicts: &mut worker.verdicts,
        decisions: &mut worker.decisions,
    };
    let mut inputs = worker.inputs.iter_mut();
    let input = inputs.find(|input| input.port == port);
    let stage = match input {
        Some(input) => Some((&*input.stage, &mut input.storm)),
        None => worker.stages.of(port),
    };
    match stage {
        Some((stage, storm)) => {
            let of_port = (usize::from(port), stage.behind_steering(), storm);
            process_ordered(&mut path, &mut context, resources, of_port);
        }
        None => path.drop_all(usize::from(port)),
    }
}

/// Processes the frames that other threads have handed over until now, before an order. So no frame overtakes one that another thread
/// received before it released a queue, and none is lost with a ring.
#[cold]
fn drain_handed(worker: &mut Worker, shared: &Shared) {
    for _ in 0..BURSTS_OF_RING {
        if !process_handed(worker, shared) {
            return;
        }
    }
}

/// Processes frames that other threads received and this one owns: at most a burst of each ring. Returns false if there were none.
#[inline(never)]
fn process_handed(worker: &mut Worker, shared: &Shared) -> bool {
    let mut has_found = false;
    for ring in 0.. {
        let Some(share) = worker.share.as_deref_mut() else {
            break;
        };
        match share.receive(ring) {
            None => break,
            Some(0) => continue,
            Some(frames) => {
                has_found = true;
                if let Some(connections) = worker.connections.as_deref_mut() {
                    connections.received(frames);
                }
                worker.telemetry.lap_of(Step::Relay, frames);
            }
        }
        // A burst has at most as many marks as frames.
        for _ in 0..BURST_MAX {
            if !process_part(worker, shared) {
                break;
            }
        }
    }
    has_found
}

/// Processes the received frames of other threads that have one mark. Returns false if there are none.
fn process_part(worker: &mut Worker, shared: &Shared) -> bool {
    let Some(share) = worker.share.as_deref_mut() else {
        return false;
    };
    let Some(mark) = share.next_part(&mut worker.received) else {
        return false;
    };
    let mark = Mark::of_number(mark);
    let port = match mark {
        Some(Mark::Relayed(port)) => Some(port),
        _ => None,
    };
    begin_burst(worker);
    if worker.telemetry.is_watched() {
        worker.telemetry.adopt(&worker.received);
    }
    let mut path = Path {
        received: &mut worker.received,
        outputs: &mut worker.outputs,
        counters: &worker.counters.ports,
        telemetry: &mut worker.telemetry,
        leaving: Leaving {
            rules: worker.output_rules.as_deref(),
            from: port,
            spare: &mut worker.spare,
            effects: &mut worker.effects,
            pool: &worker.copies,
        },
    };
    let mut context = RouteContext {
        routing: &mut worker.routing,
        counters: &worker.counters.router,
        pool: &worker.copies,
        now_s: shared.now_s.load(Ordering::Relaxed),
    };
    match port {
        None => path.send_marked(&mut context, None),
        Some(port) => {
            let resources = Resources {
                connections: worker.connections.as_deref_mut(),
                names: worker.name_flows.as_deref_mut(),
                inspection: worker.inspection.as_deref_mut(),
                fragments: worker.fragments.as_deref_mut(),
                share: worker.share.as_deref_mut(),
                kept: &mut worker.kept,
                verdicts: &mut worker.verdicts,
                decisions: &mut worker.decisions,
            };
            match worker.stages.of(port) {
                Some((stage, storm)) => {
                    let of_port = (usize::from(port), stage, storm);
                    process(&mut path, &mut context, resources, of_port);
                }
                None => path.drop_all(usize::from(port)),
            }
        }
    }
    // Frames left by a stage would be sent twice.
    worker.received.free();
    if worker.telemetry.is_watched() {
        worker.telemetry.finish();
    }
    worker.telemetry.lap(Step::Send);
    end_burst(worker);
    true
}

/// Sends for the service thread and for other forwarding threads. Returns false if there was nothing to send.
#[inline(always)]
fn relay(worker: &mut Worker, shared: &Shared) -> bool {
    let mut relayed = false;
    if worker.routing.injected.is_some() {
        let mut path = Path {
            received: &mut worker.received,
            outputs: &mut worker.outputs,
            counters: &worker.counters.ports,
            telemetry: &mut worker.telemetry,
            leaving: Leaving {
                rules: worker.output_rules.as_deref(),
                from: None,
                spare: &mut worker.spare,
                effects: &mut worker.effects,
                pool: &worker.copies,
            },
        };
        let mut context = RouteContext {
            routing: &mut worker.routing,
            counters: &worker.counters.router,
            pool: &worker.copies,
            now_s: shared.now_s.load(Ordering::Relaxed),
        };
        relayed = path.send_injected(&mut context, worker.share.as_deref_mut());
    }
    for relay in &mut worker.relays {
        let frames = relay.frames.receive(&mut worker.received, BURST_MAX);
        if frames > 0 {
            relayed = true;
            worker.telemetry.count(Step::Relay, frames);
            path::send_relayed(
                &mut worker.received,
                &mut worker.outputs,
                &worker.counters.ports,
                &mut worker.telemetry,
                relay.port,
            );
        }
    }
    relayed
}
