// SPDX-License-Identifier: Apache-2.0
//! Paths of frames from forwarding threads to ports: transmit queues, and rings to threads that own one.
//!
//! [`super::Slot`] records the paths of each port. A record changes only when the thread has executed the order, or is executing it.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_dpdk::{Burst, TxQueue, ring};

use super::Engine;
use super::assign::QueueId;
use super::orders::Failed;
use crate::error::SwitchError;
use crate::forward::{Output, RING_FRAMES, Relay, Reply, SegmentingQueue, TxPath, WorkerCommand};

impl Engine {
    /// Returns the outputs that threads require for their queues: ports, each with a CPU. Transmit queues go first to threads that serve a
    /// queue of the port's group, because these send to the port most often.
    pub(super) fn needed_tx_paths(&self, places: &BTreeMap<QueueId, u32>) -> Vec<(u16, u32)> {
        let mut needed: BTreeSet<(u16, u32)> = BTreeSet::new();
        // Owners send what other threads receive.
        let owners = self.owner_cpus();
        let (members, routed) = (self.members_of_groups(), self.routed_ports());
        for ((from, _), cpu) in places {
            let reach = self.reach_within(*from, &members, &routed);
            for cpu in owners.iter().chain([cpu]) {
                needed.extend(reach.iter().map(|to| (*to, *cpu)));
            }
        }
        // The thread that sends for the service thread.
        if let Some(cpu) = self.plan.forwarding_cpus.iter().next() {
            let copies = self.ports_of_copies(&routed);
            needed.extend(routed.iter().chain(&copies).map(|to| (*to, cpu.0)));
        }
        needed.into_iter().collect()
    }

    /// Creates the output of a thread to a port, unless it exists.
    pub(super) fn open_tx_path(&mut self, port: u16, cpu: u32) -> Result<(), SwitchError> {
        let Some(slot) = self.slot_mut(port) else {
            return Ok(());
        };
        if slot.homes.contains(&cpu) || slot.guests.contains(&cpu) {
            return Ok(());
        }
        if let Some(tx) = slot.spare_tx.pop() {
            let output = Some(self.output_to(tx));
            return self.set_output(port, cpu, output, |slot| &mut slot.homes);
        }
        let turn = slot.guests.len().checked_rem(slot.homes.len());
        let Some(home) = turn.and_then(|turn| slot.homes.get(turn)).copied() else {
            return Err(SwitchError::MissingPrerequisite(format!(
                "port '{}' has no transmit queue",
                slot.plan.name
            )));
        };
        let bell = self.bell(home);
        let (sender, frames) = ring::channel_with_bell(&self.eal, RING_FRAMES, bell);
        let relay = WorkerCommand::Relay(Box::new(Relay { frames, port }));
        if let Err(failed) = self.order(home, relay) {
            self.note_abandoned(home, failed.takes_effect);
            return Err(failed.error);
        }
        let output = Some(Box::new(Output {
            tx_path: TxPath::Ring(sender),
            waiting: Burst::new(&self.eal),
        }));
        let opened = self.set_output(port, cpu, output, |slot| &mut slot.guests);
        if opened.is_err() {
            let is_recorded = self
                .slot(port)
                .is_some_and(|slot| slot.guests.contains(&cpu));
            self.note_abandoned(home, !is_recorded);
        }
        opened
    }

    /// Notes that the thread may have a ring without a writer.
    fn note_abandoned(&mut self, home: u32, is_abandoned: bool) {
        if is_abandoned {
            self.loose.abandoned.insert(home);
        }
    }

    /// Gives a thread its output to a port, and records it.
    fn set_output(
        &mut self,
        port: u16,
        cpu: u32,
        output: Option<Box<Output>>,
        record: fn(&mut super::Slot) -> &mut Vec<u32>,
    ) -> Result<(), SwitchError> {
        let reply = self.order(cpu, WorkerCommand::Output { port, output });
        if !matches!(
            &reply,
            Err(Failed {
                takes_effect: false,
                ..
            })
        ) && let Some(slot) = self.slot_mut(port)
        {
            record(slot).push(cpu);
        }
        self.keep_reply(reply?);
        Ok(())
    }

    fn output_to(&self, tx: TxQueue) -> Box<Output> {
        let tx_path = match &self.segmenter {
            None => TxPath::Queue(tx),
            Some(segmenter) => {
                let queue = SegmentingQueue::new(&self.eal, tx, segmenter.clone());
                TxPath::Segmenting(Box::new(queue))
            }
        };
        Box::new(Output {
            tx_path,
            waiting: Burst::new(&self.eal),
        })
    }

    /// Removes a thread's output to a port. If other threads send through it, another thread gets the transmit queue and reads the rings
    /// from then on. Frames in the rings are delayed, not lost.
    pub(super) fn take_tx_path(&mut self, port: u16, cpu: u32) -> Result<(), SwitchError> {
        let Some(slot) = self.slot(port) else {
            return Ok(());
        };
        if slot.homes.contains(&cpu) {
            let relays = self.order(cpu, WorkerCommand::EndRelays { port })?;
            self.keep_reply(relays);
        } else if !slot.guests.contains(&cpu) {
            return Ok(());
        }
        let output = None;
        let former = self.order(cpu, WorkerCommand::Output { port, output })?;
        self.keep_reply(former);
        // A ring of this thread has no writer any more.
        let others = self.cpus().into_iter().filter(|one| *one != cpu);
        self.loose.abandoned.extend(others);
        if let Some(slot) = self.slot_mut(port) {
            slot.homes.retain(|home| *home != cpu);
            slot.guests.retain(|guest| *guest != cpu);
        }
        self.place_relays()
    }

    /// Gives loose rings to threads that have a transmit queue at the port of the ring.
    pub(super) fn place_relays(&mut self) -> Result<(), SwitchError> {
        let mut by_port: BTreeMap<u16, Vec<Box<Relay>>> = BTreeMap::new();
        for relay in std::mem::take(&mut self.loose.relays) {
            by_port.entry(relay.port).or_default().push(relay);
        }
        let mut outcome = Ok(());
        for (port, relays) in by_port {
            let placed = self.place_relays_of(port, relays);
            outcome = outcome.and(placed);
        }
        outcome
    }

    #[allow(clippy::vec_box)]
    fn place_relays_of(&mut self, port: u16, relays: Vec<Box<Relay>>) -> Result<(), SwitchError> {
        let Some(slot) = self.slot(port) else {
            // The port is removed, and frames to it with it.
            return Ok(());
        };
        let (homes, guests) = (slot.homes.clone(), slot.guests.clone());
        let stays = |cpu: &u32| {
            self.plan.forwarding_cpus.iter().any(|one| one.0 == *cpu) && !self.is_late(*cpu)
        };
        let home = homes.iter().find(|cpu| stays(cpu)).or(homes.first());
        let (heir, output) = match home {
            Some(home) => (*home, None),
            None => {
                let guest = guests.iter().find(|cpu| stays(cpu)).or(guests.first());
                let Some(guest) = guest.copied() else {
                    // No thread sends to the port at this point.
                    return Ok(());
                };
                let tx = self.slot_mut(port).and_then(|slot| slot.spare_tx.pop());
                let Some(tx) = tx else {
                    // The thread that has the transmit queue is late.
                    self.loose.relays.extend(relays);
                    self.loose.is_unsettled = true;
                    return Ok(());
                };
                (guest, Some(self.output_to(tx)))
            }
        };
        let becomes_home = output.is_some();
        let reply = self.order(
            heir,
            WorkerCommand::Inherit {
                port,
                output,
                relays,
            },
        );
        let is_done = !matches!(
            &reply,
            Err(Failed {
                takes_effect: false,
                ..
            })
        );
        if becomes_home
            && is_done
            && let Some(slot) = self.slot_mut(port)
        {
            slot.guests.retain(|guest| *guest != heir);
            slot.homes.push(heir);
            // Its own ring, to itself, has no writer any more.
            self.loose.abandoned.insert(heir);
        }
        match reply? {
            Reply::Inherited { port, former, left } if !left.is_empty() => {
                self.keep_output(port, former);
                self.loose.relays.extend(left);
                self.loose.is_unsettled = true;
                Err(SwitchError::Thread {
                    name: crate::threads::forwarding_name(heir),
                    what: "the thread sends for too many other threads (use more transmit queues)"
                        .to_owned(),
                })
            }
            reply => {
                self.keep_reply(reply);
                Ok(())
            }
        }
    }

    /// Makes threads return rings without a writer.
    pub(super) fn end_abandoned_relays(&mut self) -> Result<(), SwitchError> {
        for cpu in std::mem::take(&mut self.loose.abandoned) {
            if !self.forwarders.iter().any(|one| one.cpu == cpu) {
                continue;
            }
            match self.order(cpu, WorkerCommand::EndAbandonedRelays) {
                // The rings that return are dropped.
                Ok(_) => {}
                Err(failed) => {
                    self.loose.abandoned.insert(cpu);
                    return Err(failed.error);
                }
            }
        }
        Ok(())
    }
}
