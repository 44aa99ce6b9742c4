// SPDX-License-Identifier: Apache-2.0
//! Transition from the running plan to another. First everything is created that can fail to be created. Then threads are ordered to do
//! what the new plan says; if one does not reply, the former plan is restored. Only then is removed what the new plan does not contain.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use quietwire_dpdk::ring::{self, FrameReceiver};
use quietwire_dpdk::{
    DEVICES_MAX, KernelCounts, Mempool, Port, PortOptions, PortUri, RxQueue, too_many_devices,
};
use quietwire_packet::FCS_LENGTH;
use quietwire_tables::fdb::Fdb;
use quietwire_tables::fragment_order::HELD_FRAGMENTS;

use super::Engine;
use super::buffers::{Need, PortBuffers, buffers, need_of_own, need_of_shared};
use super::connections::connection_stage;
use super::driver_drops::DriverDrops;
use super::links::Link;
use super::maker::step;
use super::slot::Slot;
use super::threads::{Forwarder, ThreadStart};
use super::wiring::share_of;
use crate::config::{Group, Idle, Plan, PortPlan};
use crate::counters::{PORTS_MAX, ThreadCounters};
use crate::error::SwitchError;
use crate::forward::{HELD_MAX, RING_FRAMES, Segmenter, Stage, WorkerCommand};
use crate::layer3::FollowedTables;
use crate::report::PortCounts;

/// Maximum number of copies of flooded frames in flight, and of others but those that wait.
const BUFFERS_COPIES: u32 = buffers(2047);
/// Minimum number of copies that may wait for inspectors. Each thread has space for [`HELD_MAX`].
const BUFFERS_HELD: u32 = buffers(1536);
/// Maximum of that number: the space of 16 threads, in some 20 MiB of frames of the usual size.
const BUFFERS_HELD_MAX: u32 = buffers(16 * 512);
/// Minimum and maximum number of fragments that may wait for the first one of their datagram. Each thread has space for
/// [`HELD_FRAGMENTS`].
const BUFFERS_FRAGMENTS: u32 = buffers(512);
const BUFFERS_FRAGMENTS_MAX: u32 = buffers(16 * 256);
/// Maximum number of segments in flight, most of them in transmit queues. Guests may use a small segment size.
const BUFFERS_SEGMENTS: u32 = 4095;
const BUFFERS_SEGMENTS_OF_GUESTS: u32 = 8191;
/// Maximum number of stages in an order, so that it does not delay the frames of the thread for long.
const STAGES_AN_ORDER: usize = 32;
/// Buffers of this size have space for frames of the usual size. There are fewer buffers if each has more space.
const USUAL_SPACE: u32 = 2048;

/// Returns the number of buffers for copies that wait for inspectors, if so many threads forward at the start. Further threads share them.
fn buffers_held(threads: usize) -> u32 {
    buffers_of_threads(threads, HELD_MAX).clamp(BUFFERS_HELD, BUFFERS_HELD_MAX)
}

/// Returns the same for fragments that wait for the first one of their datagram.
fn buffers_of_fragments(threads: usize) -> u32 {
    buffers_of_threads(threads, HELD_FRAGMENTS).clamp(BUFFERS_FRAGMENTS, BUFFERS_FRAGMENTS_MAX)
}

/// Returns the number of buffers of threads that have space for `each`.
fn buffers_of_threads(threads: usize, each: usize) -> u32 {
    u32::try_from(threads.saturating_mul(each)).map_or(u32::MAX, buffers)
}

/// Resources allocated for a plan and not in use yet.
struct Prepared {
    ports: Vec<(Slot, Vec<RxQueue>)>,
    threads: Vec<(Forwarder, FrameReceiver)>,
    segmenter: Option<Segmenter>,
    /// Tables of new bridges, by name.
    fdbs: BTreeMap<String, Arc<Fdb>>,
    /// The kernel tables to follow, if they change.
    followed: Option<FollowedTables>,
}

/// Effect of a failed order on the orders after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effort {
    /// No further order is given.
    UntilFailure,
    /// All orders are given.
    Best,
}

/// Failures of a series of orders.
#[derive(Debug)]
pub(super) struct Tally {
    effort: Effort,
    first: Option<SwitchError>,
}

impl Tally {
    pub(super) const fn new(effort: Effort) -> Self {
        Self {
            effort,
            first: None,
        }
    }

    /// Counts the result of an order.
    ///
    /// # Errors
    /// The failure, if no further order may follow.
    pub(super) fn note<T>(&mut self, result: Result<T, SwitchError>) -> Result<(), SwitchError> {
        match result {
            Ok(_) => Ok(()),
            Err(error) if self.effort == Effort::UntilFailure => Err(error),
            Err(error) => {
                self.first.get_or_insert(error);
                Ok(())
            }
        }
    }

    /// Returns the first failure.
    pub(super) fn end(self) -> Result<(), SwitchError> {
        self.first.map_or(Ok(()), Err)
    }
}

impl Engine {
    /// Applies a plan completely or not at all.
    ///
    /// # Errors
    /// The resource that cannot be created; a setting that cannot change at run time; [`SwitchError::Thread`] if a thread does not reply.
    /// The running plan stays in force.
    pub(crate) fn apply(&mut self, next: Plan) -> Result<(), SwitchError> {
        self.plan.check_changeable(&next)?;
        // The kernel does not know the settings that change.
        self.pause_kernel_forwarding();
        let applied = self.apply_while_paused(next);
        self.settle_kernel_forwarding();
        applied
    }

    fn apply_while_paused(&mut self, next: Plan) -> Result<(), SwitchError> {
        self.withdraw_offloaded();
        self.settle()?;
        let made = self
            .prepare(&next)
            .inspect_err(|_| self.drop_preparations())?;
        let former = self.snapshot();
        match self.change_to(next, made) {
            Ok(()) => {
                self.settle_addresses(former.bridge_ports());
                self.end_published_mappings(former.nats());
                self.clean_up_or_warn();
                self.removed.keep(&self.plan);
                Ok(())
            }
            Err(error) => {
                self.undo(former);
                Err(error)
            }
        }
    }

    fn prepare(&mut self, next: &Plan) -> Result<Prepared, SwitchError> {
        let there = |port: &&PortPlan| self.ports().any(|(_, slot)| slot.plan.is_same_device(port));
        let new: Vec<PortPlan> = next
            .ports
            .iter()
            .filter(|port| !there(port) && !self.removed.contains(port))
            .cloned()
            .collect();
        for port in &new {
            if self.number(&port.name).is_some() {
                return Err(SwitchError::Config {
                    location: format!("port '{}'", port.name),
                    what: "the port exists; its URI and queues cannot change at run time (delete the port first)".to_owned(),
                });
            }
        }
        if self.ports().count().saturating_add(new.len()) > PORTS_MAX {
            return Err(SwitchError::Config {
                location: "ports".to_owned(),
                what: format!("too many ports (maximum: {PORTS_MAX})"),
            });
        }
        // Those that are being closed are still open.
        let open = self.ports().map(|(_, slot)| &slot.plan);
        let devices = open.chain(&new).filter(|port| port.uri.kind().is_device());
        if devices.count() > DEVICES_MAX {
            return Err(SwitchError::Config {
                location: "ports".to_owned(),
                what: too_many_devices(),
            });
        }
        let ports = if new.is_empty() {
            Vec::new()
        } else {
            self.open(next, &new)?
        };
        let maker = Arc::clone(&self.maker);
        let copies = step(&*maker, "buffers of copies", || self.copies(next))?;
        let segmenter = step(&*maker, "buffers of segments", || self.segmenter_for(next))?;
        let fdbs = step(&*maker, "tables of addresses", || self.new_fdbs(next))?;
        let followed = step(&*maker, "router", || self.prepare_router(next))?;
        let running: BTreeSet<u32> = self.forwarders.iter().map(|one| one.cpu).collect();
        let threads = next
            .forwarding_cpus
            .iter()
            .filter(|cpu| !running.contains(&cpu.0))
            .map(|cpu| {
                if self.ending.iter().any(|one| one.cpu == cpu.0) {
                    return Err(SwitchError::Thread {
                        name: crate::threads::forwarding_name(cpu.0),
                        what: "the former thread on this CPU has not ended yet (try again later)"
                            .to_owned(),
                    });
                }
                let bell = self.service_bell.clone();
                let (sender, frames) = ring::channel_with_bell(&self.eal, RING_FRAMES, bell);
                let counters = self.ended.get(&cpu.0).cloned();
                let counters = counters.unwrap_or_else(|| Arc::new(ThreadCounters::new()));
                let connections = step(&*maker, "connection table", || {
                    connection_stage(next, share_of(next, cpu.0))
                })?;
                let start = ThreadStart {
                    eal: &self.eal,
                    plan: next,
                    cpu: cpu.0,
                    copies: &copies,
                    service: sender,
                    counters: Arc::clone(&counters),
                    connections,
                    shared: &self.shared,
                };
                let started = step(&*maker, "thread", || maker.start_thread(start))?;
                let mut forwarder = Forwarder::new(cpu.0, counters, started);
                forwarder.connections.clone_from(&next.connections);
                Ok((forwarder, frames))
            })
            .collect::<Result<_, SwitchError>>()?;
        Ok(Prepared {
            ports,
            threads,
            segmenter,
            fdbs,
            followed,
        })
    }

    /// Returns the pool for copies of frames.
    fn copies(&mut self, plan: &Plan) -> Result<Mempool, SwitchError> {
        if let Some(pool) = &self.copies {
            return Ok(pool.clone());
        }
        let data_room = PortOptions::new("copies", plan.frame_size_max).data_room();
        let name = format!("{}-copies", self.maker.pools());
        let held = buffers_held(plan.forwarding_cpus.len());
        let fragments = buffers_of_fragments(plan.forwarding_cpus.len());
        let count = BUFFERS_COPIES
            .saturating_add(held)
            .saturating_add(fragments);
        let pool = Mempool::new(&self.eal, &name, count, data_room)?;
        self.held.give(held as usize);
        self.held_fragments.give(fragments as usize);
        self.layer3.lock().exchange().set_pool(pool.clone());
        self.copies = Some(pool.clone());
        Ok(pool)
    }

    /// Returns the resources for segmenting TCP data, if the plan requires it.
    fn segmenter_for(&self, plan: &Plan) -> Result<Option<Segmenter>, SwitchError> {
        let mut uris = plan.ports.iter().map(|port| &port.uri);
        let is_needed = uris.clone().any(PortUri::has_segmentation);
        if self.segmenter.is_some() || !is_needed {
            return Ok(self.segmenter.clone());
        }
        let has_guests = uris.any(|uri| uri.has_segmentation() && uri.is_shared_memory());
        let usual = if has_guests {
            BUFFERS_SEGMENTS_OF_GUESTS
        } else {
            BUFFERS_SEGMENTS
        };
        let data_room = PortOptions::new("segments", plan.frame_size_max).data_room();
        let name = format!("{}-segments", self.maker.pools());
        let count = usual
            .saturating_mul(USUAL_SPACE)
            .checked_div(u32::from(data_room).max(USUAL_SPACE))
            .unwrap_or(usual);
        let pool = Mempool::new(&self.eal, &name, count, data_room)?;
        let length_max = usize::from(plan.frame_size_max).saturating_sub(FCS_LENGTH);
        Ok(Some(Segmenter::new(pool, length_max)))
    }

    /// Returns tables for the bridges of a plan that do not have suitable ones.
    fn new_fdbs(&self, plan: &Plan) -> Result<BTreeMap<String, Arc<Fdb>>, SwitchError> {
        let mut fdbs = BTreeMap::new();
        for group in &plan.groups {
            let Group::Bridge(bridge) = group else {
                continue;
            };
            if self.bridges.iter().any(|view| view.suits(bridge)) {
                continue;
            }
            let fdb = Fdb::try_new(bridge.max_entries, bridge.ageing_s).map_err(|error| {
                SwitchError::MissingPrerequisite(format!(
                    "bridge '{}': {error} (lower max-entries, or add memory)",
                    bridge.name
                ))
            })?;
            fdbs.insert(bridge.name.clone(), Arc::new(fdb));
        }
        Ok(fdbs)
    }

    /// Returns the buffers of each of these new ports.
    ///
    /// # Errors
    /// There is too little memory.
    fn buffers_of(
        &mut self,
        plan: &Plan,
        new: &[PortPlan],
        options: &[PortOptions],
    ) -> Result<Vec<PortBuffers>, SwitchError> {
        if new.iter().all(|port| port.uri.copies_frames()) {
            let ports = new.iter().zip(options);
            let each = ports.map(|(port, options)| {
                let need = need_of_shared(plan, port, options.data_room());
                self.shared_buffers(need)
            });
            return each.collect();
        }
        let pool = self.new_pool(need_of_own(plan, new, options))?;
        Ok(new.iter().map(|_| PortBuffers::own(pool.clone())).collect())
    }

    fn shared_buffers(&mut self, need: Need) -> Result<PortBuffers, SwitchError> {
        let mut pools = std::mem::take(&mut self.shared_pools);
        let given = pools.take(need, || self.new_pool(need));
        self.shared_pools = pools;
        given
    }

    fn new_pool(&mut self, need: Need) -> Result<Mempool, SwitchError> {
        self.pools = self.pools.wrapping_add(1);
        let maker = Arc::clone(&self.maker);
        let name = format!("{}-{}", maker.pools(), self.pools);
        step(&*maker, "buffers of ports", || {
            Mempool::new(&self.eal, &name, need.count, need.data_room)
        })
    }

    /// Opens ports.
    fn open(
        &mut self,
        plan: &Plan,
        new: &[PortPlan],
    ) -> Result<Vec<(Slot, Vec<RxQueue>)>, SwitchError> {
        let options = new.iter().map(|port| PortOptions {
            ring_stock: self.ring_stock.clone(),
            ..options(plan, port)
        });
        let options: Vec<PortOptions> = options.collect();
        let pools = self.buffers_of(plan, new, &options)?;
        let maker = Arc::clone(&self.maker);
        let mut opened = Vec::new();
        for ((plan, options), buffers) in new.iter().zip(&options).zip(pools) {
            let started = step(&*maker, "port", || {
                Port::open(&self.eal, &plan.uri, options, buffers.pool())?.start()
            })?;
            let slot = Slot {
                plan: plan.clone(),
                handle: started.handle,
                queues: Vec::new(),
                tx_queues: u16::try_from(started.tx.len()).unwrap_or(u16::MAX),
                homes: Vec::new(),
                guests: Vec::new(),
                spare_tx: started.tx,
                is_closing: false,
                stage: Arc::new(Stage::Drop),
                base: PortCounts::default(),
                driver: DriverDrops::default(),
                link: Link::default(),
                kernel: KernelCounts::default(),
                _buffers: buffers,
            };
            opened.push((slot, started.rx));
        }
        Ok(opened)
    }

    /// Puts a plan in force. After an error, [`Self::undo`] restores the former plan.
    fn change_to(&mut self, next: Plan, made: Prepared) -> Result<(), SwitchError> {
        for (forwarder, frames) in made.threads {
            let cpu = forwarder.cpu;
            self.ended.remove(&cpu);
            self.layer3.lock().exchange().add_thread(cpu, frames);
            self.forwarders.push(forwarder);
        }
        // Once enabled, it stays.
        self.segmenter = made.segmenter;
        for (slot, rx) in made.ports {
            self.add_port(slot, rx);
        }
        self.number_interfaces(&next);
        let maker = Arc::clone(&self.maker);
        self.bridges = step(&*maker, "bridges", || self.bridges_of(&next, &made.fdbs))?;
        self.plan = next;
        self.take_plans();
        self.count_rules();
        self.count_steering();
        let known = self.publish_router();
        let began = Instant::now();
        self.transition(Effort::UntilFailure)?;
        self.rules.times.note_swap(began.elapsed());
        let mut layer3 = self.layer3.lock();
        // A failure restores the former interfaces.
        maker.pass("interfaces")?;
        layer3.set_interfaces(known)?;
        if let Some(followed) = made.followed {
            layer3.follow(followed);
        }
        Ok(())
    }

    /// Orders all threads to apply the plan. Orders that a thread has executed before change nothing.
    ///
    /// # Errors
    /// The first failure.
    pub(super) fn transition(&mut self, effort: Effort) -> Result<(), SwitchError> {
        let mut tally = Tally::new(effort);
        for cpu in self.cpus() {
            tally.note(self.equip(cpu))?;
        }
        // Outputs first, then the stages that use them, then the queues that feed the stages.
        let places = self.assignment(&self.leaving());
        for (port, cpu) in self.needed_tx_paths(&places) {
            tally.note(self.open_tx_path(port, cpu))?;
        }
        tally.note(self.place_relays())?;
        self.give_fragments(&mut tally)?;
        self.give_connections(&mut tally)?;
        // Before the router knows an outside interface, so that no packet leaves by it without translation.
        self.show_nat(&mut tally)?;
        self.show_balancers(&mut tally)?;
        // A new thread gets frames of others as soon as it shares their connections.
        self.send_output_rules(&mut tally)?;
        self.give_name_flows(&mut tally)?;
        self.give_inspection(&mut tally)?;
        self.show_shares(&mut tally)?;
        self.show_router(&mut tally)?;
        self.set_stages(&mut tally)?;
        self.free_name_flows(&mut tally)?;
        self.free_inspection(&mut tally)?;
        self.free_connections(&mut tally)?;
        self.free_fragments(&mut tally)?;
        for (id, cpu) in places {
            tally.note(self.place_queue(id, cpu))?;
        }
        tally.note(self.set_statics())?;
        self.steer(&mut tally)?;
        tally.end()
    }

    /// Enables segmentation on a thread if the switch requires it, permanently, and adds the thread to the active watches.
    fn equip(&mut self, cpu: u32) -> Result<(), SwitchError> {
        let has_segmenter = |one: &Forwarder| one.cpu == cpu && one.has_segmenter;
        if let Some(segmenter) = self.segmenter.clone()
            && !self.forwarders.iter().any(has_segmenter)
        {
            self.send_command(cpu, WorkerCommand::Segment(segmenter))?;
            let mut forwarders = self.forwarders.iter_mut();
            if let Some(forwarder) = forwarders.find(|one| one.cpu == cpu) {
                forwarder.has_segmenter = true;
            }
        }
        self.watch_on(cpu)
    }

    /// Orders all threads to apply the plan, and removes resources that it does not contain, after an interrupted change.
    pub(super) fn bring_to_plan(&mut self) -> Result<(), SwitchError> {
        let settled = self.transition(Effort::Best);
        settled.and(self.clean_up())
    }

    /// Stores the plan of each open port.
    pub(super) fn take_plans(&mut self) {
        for slot in self.slots.iter_mut().flatten() {
            let mut ports = self.plan.ports.iter();
            if let Some(port) = ports.find(|port| port.is_same_device(&slot.plan)) {
                slot.plan = port.clone();
            }
        }
    }

    /// Sends the stage of each port to the threads that process its frames, many in one order: the wait for a reply takes longer than the
    /// order.
    fn set_stages(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        // A stage is dropped here, once no thread uses it.
        self.former_stages
            .retain(|stage| Arc::strong_count(stage) > 1);
        let numbers: Vec<u16> = self.ports().map(|(number, _)| number).collect();
        let members = self.members_of_groups();
        let sharing = self.sharing_cpus();
        let mut by_cpu: BTreeMap<u32, Vec<(u16, Arc<Stage>)>> = BTreeMap::new();
        for port in numbers {
            let stage = Arc::new(self.stage_of(port, &members));
            let Some(slot) = self.slot_mut(port) else {
                continue;
            };
            let serving = slot.queues.iter().filter_map(|queue| queue.cpu);
            let cpus: BTreeSet<u32> = serving.chain(sharing.iter().copied()).collect();
            let former = std::mem::replace(&mut slot.stage, Arc::clone(&stage));
            self.former_stages.push(former);
            for cpu in cpus {
                let stages = by_cpu.entry(cpu).or_default();
                stages.push((port, Arc::clone(&stage)));
            }
        }
        for (cpu, stages) in by_cpu {
            for some in stages.chunks(STAGES_AN_ORDER) {
                let order = WorkerCommand::Stages(some.to_vec());
                tally.note(self.send_command(cpu, order))?;
            }
        }
        Ok(())
    }
}

/// Returns the options for opening a port.
fn options(plan: &Plan, port: &PortPlan) -> PortOptions {
    PortOptions {
        name: port.name.clone(),
        rx_queues: port.rx_queues,
        tx_queues: port.tx_queues(plan.forwarding_cpus.len()),
        // Threads without one send through another thread.
        fewer_tx_queues: port.tx_queues.is_none(),
        rx_ring_size: plan.rx_ring_size,
        tx_ring_size: plan.tx_ring_size,
        frame_size_max: plan.frame_size_max,
        rx_interrupts: match plan.idle {
            Idle::Poll | Idle::Yield => false,
            // The kernel's ports only: a peer in shared memory would have to signal frames.
            Idle::Sleep => port.uri.is_signalled_by_kernel(),
            Idle::Interrupt => true,
        },
        uses_card_offloads: true,
        steer: plan.device_rules(port),
        ring_stock: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_buffers_for_the_packets_of_each_thread_that_wait() {
        let space = |threads: usize| buffers(u32::try_from(threads * HELD_MAX).unwrap());
        assert_eq!(buffers_held(1), BUFFERS_HELD);
        for threads in [4, 8, 16] {
            assert_eq!(buffers_held(threads), space(threads));
        }
        assert_eq!(buffers_held(64), space(16));
        assert_eq!(buffers_of_fragments(1), BUFFERS_FRAGMENTS);
        assert_eq!(
            buffers_of_fragments(4),
            buffers(4 * u32::try_from(HELD_FRAGMENTS).unwrap())
        );
        assert_eq!(buffers_of_fragments(64), BUFFERS_FRAGMENTS_MAX);
    }
}
