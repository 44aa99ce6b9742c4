// SPDX-License-Identifier: Apache-2.0
//! Memory of forwarding threads for inspected flows, and the stage of inspectors' ports.

use std::sync::Arc;

use super::Engine;
use super::apply::Tally;
use super::threads::Forwarder;
use crate::error::SwitchError;
use crate::forward::{Boards, InspectStage, Stage, WorkerCommand};

impl Engine {
    /// Returns true if some rule inspects flows.
    pub(super) fn inspects(&self) -> bool {
        let mut rules = self.distinct_rules();
        rules.any(|rule| rule.statements.inspect.is_some())
    }

    /// Gives all threads memory for inspected flows, if some rule inspects them.
    pub(super) fn give_inspection(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.inspects() {
            true => self.send_inspection(true, tally),
            false => Ok(()),
        }
    }

    /// Frees the memory for inspected flows, if no rule inspects them. The threads must not have other rules.
    pub(super) fn free_inspection(&mut self, tally: &mut Tally) -> Result<(), SwitchError> {
        match self.inspects() {
            true => Ok(()),
            false => self.send_inspection(false, tally),
        }
    }

    fn send_inspection(&mut self, wanted: bool, tally: &mut Tally) -> Result<(), SwitchError> {
        for cpu in self.cpus() {
            let is_as_wanted = |one: &Forwarder| one.cpu == cpu && one.board.is_some() == wanted;
            if !self.forwarders.iter().any(is_as_wanted) {
                tally.note(self.order_inspection(cpu, wanted))?;
            }
        }
        Ok(())
    }

    fn order_inspection(&mut self, cpu: u32, wanted: bool) -> Result<(), SwitchError> {
        let made = wanted.then(|| InspectStage::new(&self.eal, cpu, Arc::clone(&self.held)));
        let made = made.transpose().map_err(|error| SwitchError::Config {
            location: "rules".to_owned(),
            what: error.to_string(),
        })?;
        let (stage, board) = made.unzip();
        let reply = self.order(cpu, WorkerCommand::Inspection(stage.map(Box::new)));
        // A thread that executes the order late is recorded as if it had replied.
        let takes_effect = reply.as_ref().err().is_none_or(|one| one.takes_effect);
        let mut forwarders = self.forwarders.iter_mut();
        if takes_effect && let Some(forwarder) = forwarders.find(|one| one.cpu == cpu) {
            forwarder.board = board;
        }
        // The former memory is freed here.
        reply.map(drop).map_err(SwitchError::from)
    }

    /// Returns the stage of an inspector's port; `None` if the port has no inspector.
    pub(super) fn inspector_stage(&self, number: u16) -> Option<Stage> {
        let name = &self.slot(number)?.plan.name;
        let mut rules = self.distinct_rules();
        if !rules.any(|rule| rule.statements.inspect.as_ref() == Some(name)) {
            return None;
        }
        let boards = self.forwarders.iter().filter_map(|one| {
            let board = one.board.as_ref()?;
            Some((one.cpu, Arc::clone(board)))
        });
        Some(Stage::Inspector(Boards::new(boards)))
    }
}
