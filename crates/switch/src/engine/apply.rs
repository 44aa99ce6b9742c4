// SPDX-License-Identifier: Apache-2.0
//! Transition from the running plan to another: everything that can fail is allocated first and then put in place while frames are
//! forwarded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quietwire_dpdk::ring::{self, FrameReceiver};
use quietwire_dpdk::{Bell, Burst, Mempool, Port, PortOptions, RxQueue};
use quietwire_packet::FCS_LENGTH;

use super::Engine;
use super::assign::{self, Queue, QueueId, Thread};
use super::driver_drops::DriverDrops;
use super::slot::{QueueSlot, Slot};
use super::threads::Forwarder;
use crate::config::{Idle, Plan, PortPlan};
use crate::counters::{PORTS_MAX, ThreadCounters};
use crate::error::SwitchError;
use crate::forward::{
    Input, Output, Relay, Reply, Segmenter, SegmentingQueue, Stage, TxPath, WorkerCommand,
};
use crate::report::PortCounts;

/// Buffers per thread: its cache (one and a half times its size), and bursts in flight.
const BUFFERS_A_THREAD: u32 = 1024;
const BUFFERS_SPARE: u32 = 1024;
/// Maximum number of copies of flooded frames in flight.
const BUFFERS_COPIES: u32 = 4095;
/// Maximum number of segments in flight, most of them in transmit queues.
const BUFFERS_SEGMENTS: u32 = 8191;
/// Size of a ring between two threads, frames.
const RING_FRAMES: usize = 1024;

/// Resources allocated for a plan and not in use yet.
struct Prepared {
    ports: Vec<(Slot, Vec<RxQueue>)>,
    threads: Vec<(Forwarder, FrameReceiver)>,
    segmenter: Option<Segmenter>,
}

impl Engine {
    /// Applies a plan. If a port or a thread cannot be created, the running plan stays in force and nothing changes.
    ///
    /// # Errors
    /// The resource that cannot be created; a setting that cannot change at run time; [`SwitchError::Thread`] if a thread does not reply.
    /// In the last case the switch is faulty and should be stopped.
    pub(crate) fn apply(&mut self, next: Plan) -> Result<(), SwitchError> {
        self.plan.check_changeable(&next)?;
        let made = self.make(&next)?;
        self.put_in_place(next, made)
    }

    fn make(&mut self, next: &Plan) -> Result<Prepared, SwitchError> {
        let there = |port: &&PortPlan| self.ports().any(|(_, slot)| slot.plan.is_same_device(port));
        let new: Vec<PortPlan> = next
            .ports
            .iter()
            .filter(|port| !there(port))
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
        if self.ports().count() + new.len() > PORTS_MAX {
            return Err(SwitchError::Config {
                location: "ports".to_owned(),
                what: format!("too many ports (maximum: {PORTS_MAX}, DPDK's limit)"),
            });
        }
        let ports = if new.is_empty() {
            Vec::new()
        } else {
            self.open(next, &new)?
        };
        let copies = self.copies(next)?;
        let segmenter = self.segmenter(next)?;
        self.layer3.lock().add_vrfs(&next.layer3.vrfs)?;
        let interfaces = next.layer3.interfaces.iter();
        let taps = interfaces.filter_map(|one| one.kernel.as_deref()).collect();
        self.layer3.lock().prepare_taps(&taps)?;
        let running: BTreeSet<u32> = self.forwarders.iter().map(|one| one.cpu).collect();
        let threads = next
            .forwarding_cpus
            .iter()
            .filter(|cpu| !running.contains(&cpu.0))
            .map(|cpu| {
                let (sender, frames) = ring::channel(&self.eal, RING_FRAMES);
                let counters = self.ended.get(&cpu.0).cloned();
                let counters = counters.unwrap_or_else(|| Arc::new(ThreadCounters::new()));
                let around = (counters, &self.shared);
                let made = Forwarder::start(&self.eal, next, cpu.0, &copies, sender, around);
                Ok((made?, frames))
            })
            .collect::<Result<_, SwitchError>>()?;
        Ok(Prepared {
            ports,
            threads,
            segmenter,
        })
    }

    /// Returns the pool for copies of frames.
    fn copies(&mut self, plan: &Plan) -> Result<Mempool, SwitchError> {
        if let Some(pool) = &self.copies {
            return Ok(pool.clone());
        }
        let data_room = PortOptions::new("copies", plan.frame_size_max).data_room();
        let pool = Mempool::new(&self.eal, "qw-switch-copies", BUFFERS_COPIES, data_room)?;
        self.layer3.lock().exchange().set_pool(pool.clone());
        self.copies = Some(pool.clone());
        Ok(pool)
    }

    /// Returns the resources for segmenting TCP data, if the plan requires it.
    fn segmenter(&mut self, plan: &Plan) -> Result<Option<Segmenter>, SwitchError> {
        let is_needed = plan.ports.iter().any(|port| port.uri.has_segmentation());
        if self.segmenter.is_some() || !is_needed {
            return Ok(self.segmenter.clone());
        }
        let data_room = PortOptions::new("segments", plan.frame_size_max).data_room();
        let pool = Mempool::new(&self.eal, "qw-switch-segments", BUFFERS_SEGMENTS, data_room)?;
        let length_max = usize::from(plan.frame_size_max).saturating_sub(FCS_LENGTH);
        Ok(Some(Segmenter::new(pool, length_max)))
    }

    /// Enables segmentation on every thread, permanently, once the first port can yield frames to be segmented. Threads are enabled before
    /// they get the outputs of this plan.
    fn enable_segmentation(&mut self, segmenter: Option<Segmenter>) -> Result<(), SwitchError> {
        self.segmenter = segmenter;
        let Some(segmenter) = self.segmenter.clone() else {
            return Ok(());
        };
        let cpus: Vec<u32> = self.forwarders.iter().map(|one| one.cpu).collect();
        for cpu in cpus {
            self.send_command(cpu, WorkerCommand::Segment(segmenter.clone()))?;
        }
        Ok(())
    }

    /// Opens ports, which share a buffer pool.
    fn open(
        &mut self,
        plan: &Plan,
        new: &[PortPlan],
    ) -> Result<Vec<(Slot, Vec<RxQueue>)>, SwitchError> {
        let options: Vec<PortOptions> = new.iter().map(|port| options(plan, port)).collect();
        let mut buffers = BUFFERS_SPARE + plan.forwarding_cpus.len() as u32 * BUFFERS_A_THREAD;
        let mut data_room = 0;
        for (port, options) in new.iter().zip(&options) {
            buffers += u32::from(options.rx_queues) * u32::from(options.rx_ring_size)
                + u32::from(options.tx_queues) * u32::from(options.tx_ring_size);
            buffers = buffers.saturating_add(port.uri.buffers_kept());
            data_room = data_room.max(options.data_room());
        }
        self.pools += 1;
        let pool = Mempool::new(
            &self.eal,
            &format!("qw-switch-{}", self.pools),
            buffers,
            data_room,
        )?;
        let mut opened = Vec::new();
        for (plan, options) in new.iter().zip(&options) {
            let started = Port::open(&self.eal, &plan.uri, options, &pool)?.start()?;
            let slot = Slot {
                plan: plan.clone(),
                handle: started.handle,
                queues: Vec::new(),
                tx_queues: options.tx_queues,
                homes: Vec::new(),
                guests: Vec::new(),
                spare_tx: started.tx,
                stage: Arc::new(Stage::Drop),
                base: PortCounts::default(),
                driver: DriverDrops::default(),
                _pool: pool.clone(),
            };
            opened.push((slot, started.rx));
        }
        Ok(opened)
    }

    fn put_in_place(&mut self, next: Plan, made: Prepared) -> Result<(), SwitchError> {
        for (forwarder, frames) in made.threads {
            let cpu = forwarder.cpu;
            self.ended.remove(&cpu);
            self.layer3.lock().exchange().add_thread(cpu, frames);
            self.forwarders.push(forwarder);
            self.watch_on(cpu)?;
        }
        self.enable_segmentation(made.segmenter)?;
        let mut queues = Vec::new();
        for (slot, rx) in made.ports {
            queues.extend(self.add_port_queues(slot, rx));
        }
        let before: Vec<_> = self
            .bridges
            .iter()
            .map(|view| (view.name.clone(), self.bridge_ports(&view.name)))
            .collect();
        self.number_interfaces(&next);
        self.bridges = self.bridges_of(&next)?;
        self.plan = next;
        self.settle_router()?;
        self.count_rules();
        let leaving = self.take_plans();
        let places = self.assignment(&leaving);
        // Outputs first, then the stages that use them, then the queues that feed the stages.
        self.open_tx_paths(&places)?;
        self.show_router()?;
        self.set_stages()?;
        for (id, rx) in queues {
            self.adopt(id, rx, places.get(&id).copied())?;
        }
        for (id, cpu) in places {
            self.move_queue(id, cpu)?;
        }
        self.settle_bridges(&before)?;
        for number in leaving {
            self.remove(number)?;
        }
        self.layer3.lock().keep_vrfs(&self.plan.layer3.vrfs);
        self.end_threads()
    }

    /// Stores the plan of each open port. Returns the numbers of ports that the plan does not contain.
    fn take_plans(&mut self) -> Vec<u16> {
        let mut leaving = Vec::new();
        for (number, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            match self
                .plan
                .ports
                .iter()
                .find(|port| port.is_same_device(&slot.plan))
            {
                Some(port) => slot.plan = port.clone(),
                None => leaving.push(number as u16),
            }
        }
        leaving
    }

    /// Assigns a number to a new port.
    fn add_port_queues(&mut self, mut slot: Slot, rx: Vec<RxQueue>) -> Vec<(QueueId, RxQueue)> {
        let Some(number) = self.slots.iter().position(Option::is_none) else {
            // Counts of an earlier port with this number.
            return Vec::new();
        };
        let port = number as u16;
        slot.base = self.counted(port);
        let queues: Vec<(QueueId, RxQueue)> = rx
            .into_iter()
            .enumerate()
            .map(|(queue, rx)| ((port, queue as u16), rx))
            .collect();
        slot.queues = queues
            .iter()
            .map(|(id, _)| QueueSlot {
                id: *id,
                cpu: None,
                counters: Arc::default(),
            })
            .collect();
        self.slots[number] = Some(slot);
        queues
    }

    /// Returns the thread that each queue is assigned to.
    fn assignment(&self, leaving: &[u16]) -> BTreeMap<QueueId, u32> {
        let mut queues = Vec::new();
        for (number, slot) in self.ports() {
            if leaving.contains(&number) {
                continue;
            }
            for (index, queue) in slot.queues.iter().enumerate() {
                queues.push(Queue {
                    id: queue.id,
                    mapped_to: slot.plan.cpu_of(index),
                    node: slot.handle.node(),
                    served_by: queue.cpu,
                });
            }
        }
        let threads: Vec<Thread> = self
            .plan
            .forwarding_cpus
            .iter()
            .map(|cpu| Thread {
                cpu: cpu.0,
                node: crate::threads::node_of(cpu.0),
            })
            .collect();
        assign::assign(&queues, &threads)
    }

    /// Creates the outputs that threads require for their queues. Transmit queues go first to threads that serve a queue of the port's
    /// group, because these send to the port most often.
    fn open_tx_paths(&mut self, places: &BTreeMap<QueueId, u32>) -> Result<(), SwitchError> {
        let mut needed: BTreeSet<(u16, u32)> = BTreeSet::new();
        for ((from, _), cpu) in places {
            needed.extend(self.reach(*from).into_iter().map(|to| (to, *cpu)));
        }
        // The thread that sends for the service thread.
        if let Some(cpu) = self.plan.forwarding_cpus.iter().next() {
            needed.extend(self.routed_ports().into_iter().map(|to| (to, cpu.0)));
        }
        for (port, cpu) in needed {
            self.open_tx_path(port, cpu)?;
        }
        Ok(())
    }

    /// Creates the output of a thread to a port, unless it exists.
    fn open_tx_path(&mut self, port: u16, cpu: u32) -> Result<(), SwitchError> {
        let (eal, segmenter) = (self.eal.clone(), self.segmenter.clone());
        let Some(slot) = self.slot_mut(port) else {
            return Ok(());
        };
        if slot.homes.contains(&cpu) || slot.guests.contains(&cpu) {
            return Ok(());
        }
        let tx_path = if let Some(tx) = slot.spare_tx.pop() {
            slot.homes.push(cpu);
            match segmenter {
                None => TxPath::Queue(tx),
                Some(segmenter) => {
                    TxPath::Segmenting(Box::new(SegmentingQueue::new(&eal, tx, segmenter)))
                }
            }
        } else {
            let turn = slot.guests.len();
            let Some(home) = slot.homes.get(turn % slot.homes.len().max(1)).copied() else {
                return Err(SwitchError::MissingPrerequisite(format!(
                    "port '{}' has no transmit queue",
                    slot.plan.name
                )));
            };
            slot.guests.push(cpu);
            let bell = self.bell(home);
            let (sender, frames) = ring::channel_with_bell(&self.eal, RING_FRAMES, bell);
            self.send_command(home, WorkerCommand::Relay(Box::new(Relay { frames, port })))?;
            TxPath::Ring(sender)
        };
        let output = Some(Box::new(Output {
            tx_path,
            waiting: Burst::new(&self.eal),
        }));
        self.send_command(cpu, WorkerCommand::Output { port, output })?;
        Ok(())
    }

    /// Returns the wake-up event of a thread, if it may sleep.
    pub(super) fn bell(&self, cpu: u32) -> Option<Arc<Bell>> {
        let mut forwarders = self.forwarders.iter();
        forwarders.find(|one| one.cpu == cpu)?.bell()
    }

    /// Sends an order to a thread.
    pub(crate) fn send_command(
        &mut self,
        cpu: u32,
        order: WorkerCommand,
    ) -> Result<Reply, SwitchError> {
        match self.forwarders.iter_mut().find(|one| one.cpu == cpu) {
            Some(forwarder) => forwarder.ask(order),
            None => Err(SwitchError::Thread {
                name: crate::threads::forwarding_name(cpu),
                what: "the thread does not exist (this is a bug in the switch)".to_owned(),
            }),
        }
    }

    /// Sends the stage of each port to all threads.
    fn set_stages(&mut self) -> Result<(), SwitchError> {
        let numbers: Vec<u16> = self.ports().map(|(number, _)| number).collect();
        for port in numbers {
            let stage = Arc::new(self.stage_of(port));
            let Some(slot) = self.slot_mut(port) else {
                continue;
            };
            let cpus: BTreeSet<u32> = slot.queues.iter().filter_map(|queue| queue.cpu).collect();
            // The previous stage is dropped here, once no thread uses it.
            let former = std::mem::replace(&mut slot.stage, Arc::clone(&stage));
            for cpu in cpus {
                let stage = Arc::clone(&stage);
                self.send_command(cpu, WorkerCommand::Stage { port, stage })?;
            }
            drop(former);
        }
        Ok(())
    }

    fn adopt(&mut self, id: QueueId, rx: RxQueue, cpu: Option<u32>) -> Result<(), SwitchError> {
        let Some(cpu) = cpu else {
            return Ok(());
        };
        let Some(slot) = self.slot_mut(id.0) else {
            return Ok(());
        };
        let Some(queue) = slot.queues.iter_mut().find(|queue| queue.id == id) else {
            return Ok(());
        };
        queue.cpu = Some(cpu);
        let input = Box::new(Input::new(
            rx,
            id,
            Arc::clone(&slot.stage),
            Arc::clone(&queue.counters),
        ));
        self.send_command(cpu, WorkerCommand::Adopt(input))?;
        Ok(())
    }

    /// Moves a queue to another thread. Frames wait in the queue meanwhile. None is lost or reordered, because the previous thread sends
    /// everything it received before it releases the queue.
    pub(super) fn move_queue(&mut self, id: QueueId, to: u32) -> Result<bool, SwitchError> {
        let from = self
            .slot(id.0)
            .and_then(|slot| slot.queues.iter().find(|queue| queue.id == id)?.cpu);
        let Some(from) = from.filter(|from| *from != to) else {
            return Ok(false);
        };
        for other in self.reach(id.0) {
            self.open_tx_path(other, to)?;
        }
        let (port, queue) = id;
        let Reply::Input(Some(input)) =
            self.send_command(from, WorkerCommand::Release { port, queue })?
        else {
            return Ok(false);
        };
        // Frames that the previous thread put into rings precede frames that the next thread receives.
        let others: Vec<u32> = self.forwarders.iter().map(|one| one.cpu).collect();
        for cpu in others.into_iter().filter(|cpu| *cpu != from) {
            self.send_command(cpu, WorkerCommand::DrainRelays)?;
        }
        self.send_command(to, WorkerCommand::Adopt(input))?;
        if let Some(slot) = self.slot_mut(port)
            && let Some(queue) = slot.queues.iter_mut().find(|queue| queue.id == id)
        {
            queue.cpu = Some(to);
        }
        Ok(true)
    }

    /// Removes a port. No thread sends to it any more at this point.
    fn remove(&mut self, port: u16) -> Result<(), SwitchError> {
        let Some(slot) = self.slot(port) else {
            return Ok(());
        };
        let queues: Vec<(QueueId, Option<u32>)> = slot
            .queues
            .iter()
            .map(|queue| (queue.id, queue.cpu))
            .collect();
        let (homes, guests) = (slot.homes.clone(), slot.guests.clone());
        for ((port, queue), cpu) in queues {
            if let Some(cpu) = cpu {
                drop(self.send_command(cpu, WorkerCommand::Release { port, queue })?);
            }
        }
        for cpu in guests {
            drop(self.send_command(cpu, WorkerCommand::Output { port, output: None })?);
        }
        for cpu in homes {
            drop(self.send_command(cpu, WorkerCommand::EndRelays { port })?);
            drop(self.send_command(cpu, WorkerCommand::Output { port, output: None })?);
        }
        for bridge in &self.bridges {
            bridge.forget_port(port);
        }
        // Dropping its last queue closes the device.
        self.slots[usize::from(port)] = None;
        Ok(())
    }

    /// Ends the threads that are not in the plan. Their receive queues are already assigned to other threads.
    fn end_threads(&mut self) -> Result<(), SwitchError> {
        let cpus: Vec<u32> = self.forwarders.iter().map(|one| one.cpu).collect();
        for cpu in cpus {
            if self.plan.forwarding_cpus.iter().any(|one| one.0 == cpu) {
                continue;
            }
            let ports: Vec<u16> = self.ports().map(|(number, _)| number).collect();
            for port in ports {
                self.take_tx_paths(port, cpu)?;
            }
            self.end_abandoned_relays(cpu)?;
            let index = self.forwarders.iter().position(|one| one.cpu == cpu);
            if let Some(index) = index {
                let forwarder = self.forwarders.remove(index);
                self.layer3.lock().exchange().del_thread(cpu);
                let counters = Arc::clone(&forwarder.counters);
                forwarder.end()?;
                self.ended.insert(cpu, counters);
            }
        }
        Ok(())
    }

    /// Makes all remaining threads return the rings whose writer is ending.
    fn end_abandoned_relays(&mut self, ending: u32) -> Result<(), SwitchError> {
        let cpus = self.forwarders.iter().map(|one| one.cpu);
        let others: Vec<u32> = cpus.filter(|cpu| *cpu != ending).collect();
        for cpu in others {
            drop(self.send_command(cpu, WorkerCommand::EndAbandonedRelays)?);
        }
        Ok(())
    }

    /// Removes a thread's output to a port. If other threads send through it, one of them gets the transmit queue and reads the rings from
    /// then on. Frames in the rings are delayed, not lost.
    fn take_tx_paths(&mut self, port: u16, cpu: u32) -> Result<(), SwitchError> {
        let Some(slot) = self.slot_mut(port) else {
            return Ok(());
        };
        let is_home = slot.homes.contains(&cpu);
        let is_guest = slot.guests.contains(&cpu);
        slot.homes.retain(|home| *home != cpu);
        slot.guests.retain(|guest| *guest != cpu);
        let heir = slot.homes.first().or(slot.guests.first()).copied();
        if !is_home && !is_guest {
            return Ok(());
        }
        let relays = match self.send_command(cpu, WorkerCommand::EndRelays { port })? {
            Reply::Relays(relays) => relays,
            _ => Vec::new(),
        };
        let output = match self.send_command(cpu, WorkerCommand::Output { port, output: None })? {
            Reply::Output(output) => output,
            _ => None,
        };
        let Some(heir) = heir else {
            // No thread sends to the port at this point.
            if let (Some(slot), Some(output)) = (self.slot_mut(port), output) {
                slot.spare_tx.extend(output.tx_path.into_queue());
            }
            return Ok(());
        };
        let mut inherited = None;
        if is_home && let Some(output) = output {
            match self.slot_mut(port) {
                Some(slot) if !slot.homes.contains(&heir) => {
                    slot.guests.retain(|guest| *guest != heir);
                    slot.homes.push(heir);
                    inherited = Some(output);
                }
                Some(slot) => {
                    slot.spare_tx.extend(output.tx_path.into_queue());
                }
                None => {}
            }
        }
        let output = inherited;
        let order = WorkerCommand::Inherit {
            port,
            output,
            relays,
        };
        match self.send_command(heir, order)? {
            Reply::Inherited { left, .. } if !left.is_empty() => Err(SwitchError::Thread {
                name: crate::threads::forwarding_name(heir),
                what: "the thread sends for too many other threads (use more transmit queues)"
                    .to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Returns the options for opening a port.
fn options(plan: &Plan, port: &PortPlan) -> PortOptions {
    PortOptions {
        name: port.name.clone(),
        rx_queues: port.rx_queues,
        tx_queues: port.tx_queues(plan.forwarding_cpus.len()),
        rx_ring_size: plan.rx_ring_size,
        tx_ring_size: plan.tx_ring_size,
        frame_size_max: plan.frame_size_max,
        rx_interrupts: plan.idle == Idle::Interrupt,
    }
}
