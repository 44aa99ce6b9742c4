// SPDX-License-Identifier: Apache-2.0
//! Memory of forwarding threads for fragments that wait for the first one of their datagram.

use std::sync::Arc;

use super::Engine;
use super::apply::Tally;
use super::threads::Forwarder;
use crate::error::SwitchError;
use crate::forward::{FragmentStage, WorkerCommand};

impl Engine {
    /// Returns true if threads order fragments: before connection tracking and NAT.
    pub(super) fn orders_fragments(&self) -> bool {
        self.plan.connections.is_some() || !self.plan.nats.is_empty()
    }

    /// Gives all threads memory for fragments, if they order them.
    pub(super) fn give_fragments(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.orders_fragments() {
            true => self.send_fragments(true, tally),
            false => Ok(()),
        }
    }

    /// Frees the memory for fragments, if threads do not order them. The threads must not have NAT.
    pub(super) fn free_fragments(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.orders_fragments() {
            true => Ok(()),
            false => self.send_fragments(false, tally),
        }
    }

    fn send_fragments(&mut self, wanted: bool, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            let is_as_wanted = |one: &Forwarder| one.cpu == cpu && one.has_fragments == wanted;
            if !self.forwarders.iter().any(is_as_wanted) {
                tally.note(self.order_fragments(cpu, wanted))?;
            }
        }
        Ok(())
    }

    fn order_fragments(&mut self, cpu: u32, wanted: bool) -> Result<(), SwitchError> {
        let made = || FragmentStage::new(&self.eal, Arc::clone(&self.held_fragments));
        let order = WorkerCommand::Fragments(wanted.then(made).map(Box::new));
        let record = |forwarder: &mut Forwarder| forwarder.has_fragments = wanted;
        // The former memory is freed here.
        self.send_and_record(cpu, order, record).map(drop)
    }
}
