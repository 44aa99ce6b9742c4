// SPDX-License-Identifier: Apache-2.0
//! Removal of ports and threads that the plan does not contain. Resources of a late thread are removed once it replies.

use std::sync::Arc;
use std::time::Duration;

use quietwire_base::wait_until;

use super::apply::{Effort, Tally};
use super::{Engine, Forwarder, threads};
use crate::error::SwitchError;
use crate::forward::WorkerCommand;

/// Timeout for the end of a thread that has confirmed it. Threads of tests end at once, or not at all.
const END: Duration = Duration::from_millis(if cfg!(test) { 0 } else { 1000 });

impl Engine {
    /// Returns the numbers of open ports that the plan does not contain.
    pub(super) fn leaving(&self) -> Vec<u16> {
        let is_planned = |slot: &super::Slot| {
            self.plan
                .ports
                .iter()
                .any(|one| one.is_same_device(&slot.plan))
        };
        self.ports()
            .filter(|(_, slot)| slot.is_closing || !is_planned(slot))
            .map(|(number, _)| number)
            .collect()
    }

    /// Removes ports and threads that the plan does not contain.
    ///
    /// # Errors
    /// The first failure. A later call removes the remaining ones.
    pub(super) fn clean_up(&mut self) -> Result<(), SwitchError> {
        let mut tally = Tally::new(Effort::Best);
        for number in self.leaving() {
            tally.note(self.remove(number))?;
        }
        self.shared_pools.free_unused();
        self.layer3.lock().keep_vrfs(&self.plan.layer3.vrfs);
        for cpu in self.cpus() {
            if !self.plan.forwarding_cpus.iter().any(|one| one.0 == cpu) {
                tally.note(self.end_thread(cpu))?;
            }
        }
        tally.note(self.end_abandoned_relays())?;
        tally.note(self.reap())?;
        tally.end()
    }

    /// Like [`Self::clean_up`], for a plan that is in force already.
    pub(super) fn clean_up_or_warn(&mut self) {
        if let Err(error) = self.clean_up() {
            self.loose.is_unsettled = true;
            tracing::warn!("removal of former ports and threads continues later: {error}");
        }
    }

    /// Removes a port. The stages of other ports do not send to it any more.
    fn remove(&mut self, port: u16) -> Result<(), SwitchError> {
        let Some(slot) = self.slot_mut(port) else {
            return Ok(());
        };
        slot.is_closing = true;
        let ids: Vec<_> = slot.queues.iter().map(|one| (one.id, one.cpu)).collect();
        for ((port, queue), cpu) in ids {
            if self.loose.inputs.remove(&(port, queue)).is_none()
                && let Some(cpu) = cpu
            {
                drop(self.send_command(cpu, WorkerCommand::Release { port, queue })?);
            }
            let slot = self.slot_mut(port);
            let queues = slot.into_iter().flat_map(|slot| &mut slot.queues);
            for one in queues.filter(|one| one.id == (port, queue)) {
                one.cpu = None;
            }
        }
        self.forget_stage(port)?;
        let slot = self.slot(port);
        let guests = slot.map_or_else(Vec::new, |slot| slot.guests.clone());
        let homes = slot.map_or_else(Vec::new, |slot| slot.homes.clone());
        for cpu in guests {
            drop(self.send_command(cpu, WorkerCommand::Output { port, output: None })?);
        }
        for cpu in homes {
            drop(self.send_command(cpu, WorkerCommand::EndRelays { port })?);
            drop(self.send_command(cpu, WorkerCommand::Output { port, output: None })?);
        }
        self.loose.relays.retain(|relay| relay.port != port);
        for bridge in &self.bridges {
            bridge.forget_port(port);
        }
        // Dropping its last queue closes the device.
        if let Some(slot) = self.slots.get_mut(usize::from(port)) {
            *slot = None;
        }
        Ok(())
    }

    /// Ends a thread. Its receive queues are already assigned to other threads.
    fn end_thread(&mut self, cpu: u32) -> Result<(), SwitchError> {
        let queues = self.ports().flat_map(|(_, slot)| &slot.queues);
        if queues
            .into_iter()
            .any(|one| self.server_of(one) == Some(cpu))
        {
            return Err(SwitchError::Thread {
                name: crate::threads::forwarding_name(cpu),
                what: "the thread still serves receive queues".to_owned(),
            });
        }
        let ports: Vec<u16> = self.ports().map(|(number, _)| number).collect();
        for port in ports {
            self.take_tx_path(port, cpu)?;
        }
        if let Err(failed) = self.order(cpu, WorkerCommand::End)
            && !failed.takes_effect
        {
            return Err(failed.error);
        }
        if let Some(index) = self.forwarders.iter().position(|one| one.cpu == cpu) {
            let forwarder = self.forwarders.remove(index);
            self.layer3.lock().exchange().del_thread(cpu);
            self.ended.insert(cpu, Arc::clone(&forwarder.counters));
            self.ending.push(forwarder);
        }
        Ok(())
    }

    /// Waits for the end of all threads after the stop flag is set. Returns the names of threads that do not end, and leaves them to the
    /// end of the process.
    pub(crate) fn end_forwarding(&mut self) -> Vec<String> {
        let all = || self.forwarders.iter().chain(&self.ending);
        wait_until(threads::END, || all().all(Forwarder::has_ended));
        let mut left = Vec::new();
        for late in self.forwarders.iter_mut().chain(&mut self.ending) {
            if !late.has_ended() {
                left.push(crate::threads::forwarding_name(late.cpu));
                late.leave();
            }
        }
        left
    }

    /// Joins threads that have ended.
    fn reap(&mut self) -> Result<(), SwitchError> {
        if !self.ending.is_empty() {
            let ending = &mut self.ending;
            wait_until(END, || {
                ending.retain(|one| !one.has_ended());
                ending.is_empty()
            });
        }
        match self.ending.first() {
            Some(late) => Err(late.does_not_end()),
            None => Ok(()),
        }
    }
}
