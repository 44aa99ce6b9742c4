// SPDX-License-Identifier: Apache-2.0
//! Receive queues of ports: their assignment to threads, and moves between threads.

use std::collections::BTreeMap;
use std::sync::Arc;

use quietwire_dpdk::{BURST_MAX, RxQueue};

use super::Engine;
use super::assign::{self, Queue, QueueId, Thread};
use super::balance::Part;
use super::slot::{QueueSlot, Slot};
use crate::error::SwitchError;
use crate::forward::{Input, Reply, WorkerCommand};

/// Descriptors of a receive queue whose port does not know them.
const RING_SIZE_MAX: u16 = 4096;

impl Engine {
    /// Adds a port under a free number. Its queues are loose. [`Engine::prepare`] has checked that a number is free.
    pub(super) fn add_port(&mut self, mut slot: Slot, rx: Vec<RxQueue>) {
        let mut numbered = (0..).zip(&self.slots);
        let Some((port, _)) = numbered.find(|(_, slot)| slot.is_none()) else {
            return;
        };
        // Counts of an earlier port with this number.
        slot.base = self.counted(port);
        for (queue, rx) in (0..).zip(rx) {
            let queue = QueueSlot {
                id: (port, queue),
                cpu: None,
                counters: Arc::default(),
            };
            let (stage, counters) = (Arc::clone(&slot.stage), Arc::clone(&queue.counters));
            let input = Box::new(Input::new(rx, queue.id, stage, counters));
            self.loose.inputs.insert(queue.id, input);
            slot.queues.push(queue);
        }
        if let Some(free) = self.slots.get_mut(usize::from(port)) {
            *free = Some(slot);
        }
    }

    /// Returns the thread that each queue is assigned to.
    pub(super) fn assignment(&self, leaving: &[u16]) -> BTreeMap<QueueId, u32> {
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

    /// Gives a queue to its thread, unless the thread has it.
    pub(super) fn place_queue(&mut self, id: QueueId, cpu: u32) -> Result<(), SwitchError> {
        if self.loose.inputs.contains_key(&id) {
            self.adopt(id, cpu)
        } else {
            self.move_queue(id, cpu).map(drop)
        }
    }

    /// Gives a loose queue to a thread.
    fn adopt(&mut self, id: QueueId, cpu: u32) -> Result<(), SwitchError> {
        let Some(mut input) = self.loose.inputs.remove(&id) else {
            return Ok(());
        };
        let Some(slot) = self.slot_mut(id.0) else {
            return Ok(());
        };
        if let Some(queue) = slot.queues.iter_mut().find(|queue| queue.id == id) {
            queue.cpu = Some(cpu);
        }
        input.set_stage(Arc::clone(&slot.stage));
        self.send_command(cpu, WorkerCommand::Adopt(input))?;
        Ok(())
    }

    /// Moves a queue to another thread. Frames wait in the queue meanwhile. None is lost or reordered, because the previous thread sends
    /// everything it received before it releases the queue. If the move fails, the queue returns to its thread.
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
        self.release_queue(id, from)?;
        let moved = self.hand_over(id, from, to);
        if moved.is_err() && self.loose.inputs.contains_key(&id) {
            // If it cannot return now either, it is loose until all threads reply.
            drop(self.adopt(id, from));
        }
        moved.map(|()| true)
    }

    /// Takes a queue from its thread. It is loose then.
    fn release_queue(&mut self, id: QueueId, from: u32) -> Result<(), SwitchError> {
        let (port, queue) = id;
        match self.send_command(from, WorkerCommand::Release { port, queue })? {
            Reply::Input(Some(input)) => {
                self.loose.inputs.insert(id, input);
                Ok(())
            }
            _ => Err(SwitchError::Thread {
                name: crate::threads::forwarding_name(from),
                what: format!(
                    "the thread does not serve queue {queue} of port {port} (this is a bug in the switch)"
                ),
            }),
        }
    }

    /// Moves entries of the redirection table of a card from one of its queues to another. Their flows stay in order: the frames that later
    /// arrive in the other queue wait there until those in the first queue have left. Frames beyond the size of the other queue are lost
    /// meanwhile. Returns false if a queue is not with a thread.
    ///
    /// # Errors
    /// [`SwitchError::Dpdk`] if the card refuses the table; [`SwitchError::Thread`] if a thread does not reply.
    pub(super) fn move_entries(
        &mut self,
        (port, queue): QueueId,
        part: Part,
    ) -> Result<bool, SwitchError> {
        let other = (port, part.to_queue);
        let Some(handle) = self.slot(port).map(|slot| slot.handle.clone()) else {
            return Ok(false);
        };
        let servers = [(port, queue), other].map(|id| self.cpu_of(id));
        let [Some(from), Some(to)] = servers else {
            return Ok(false);
        };
        let former = handle.redirection_table();
        let mut table = former.clone();
        let of_queue = table.iter_mut().filter(|entry| **entry == queue);
        for entry in of_queue.take(part.entries.into()) {
            *entry = part.to_queue;
        }
        self.release_queue(other, to)?;
        let changed = handle.set_redirection_table(&table);
        let caught_up = match &changed {
            Ok(()) => self.catch_up((port, queue), from),
            Err(_) => Ok(()),
        };
        // If it cannot return now, it is loose until all threads reply.
        let returned = self.adopt(other, to);
        changed?;
        let done = caught_up.and(returned);
        if done.is_err()
            && let Err(error) = handle.set_redirection_table(&former)
        {
            tracing::error!(
                "{error}: {} entries still select queue {}",
                part.entries,
                part.to_queue
            );
        }
        done.map(|()| true)
    }

    /// Returns the CPU of the thread that serves a queue.
    pub(super) fn cpu_of(&self, id: QueueId) -> Option<u32> {
        let queues = &self.slot(id.0)?.queues;
        self.server_of(queues.iter().find(|queue| queue.id == id)?)
    }

    /// Waits until the frames that are in a receive queue now have left. Between two replies, its thread polls each of its queues.
    fn catch_up(&mut self, id: QueueId, cpu: u32) -> Result<(), SwitchError> {
        let counters = self.slot(id.0).and_then(|slot| {
            let queue = slot.queues.iter().find(|queue| queue.id == id)?;
            Some((
                Arc::clone(&queue.counters),
                slot.handle.ring_sizes().0.unwrap_or(RING_SIZE_MAX),
            ))
        });
        let Some((counters, ring_size)) = counters else {
            return Ok(());
        };
        self.send_command(cpu, WorkerCommand::Nothing)?;
        let polls = usize::from(ring_size).div_ceil(BURST_MAX);
        for _ in 0..polls {
            let before = counters.frames.get();
            self.send_command(cpu, WorkerCommand::Nothing)?;
            // A poll that does not fill a burst has emptied the queue.
            if counters.frames.get().saturating_sub(before) < BURST_MAX as u64 {
                break;
            }
        }
        self.drain_relays_from(cpu)
    }

    fn hand_over(&mut self, id: QueueId, from: u32, to: u32) -> Result<(), SwitchError> {
        self.drain_relays_from(from)?;
        self.adopt(id, to)
    }

    /// Has all other threads send what a thread put into rings: those frames precede frames that the next thread of their flows receives.
    fn drain_relays_from(&mut self, from: u32) -> Result<(), SwitchError> {
        for cpu in self.cpus().into_iter().filter(|cpu| *cpu != from) {
            self.send_command(cpu, WorkerCommand::DrainRelays)?;
        }
        Ok(())
    }

    /// Returns the CPU of the thread that serves a queue, if a thread does.
    pub(super) fn server_of(&self, queue: &QueueSlot) -> Option<u32> {
        queue
            .cpu
            .filter(|_| !self.loose.inputs.contains_key(&queue.id))
    }
}
