// SPDX-License-Identifier: Apache-2.0
//! Orders to forwarding threads, and the resources in orders without a reply in time.
//!
//! A queue or ring that is in no thread is loose: the engine keeps it until [`Engine::transition`] gives it to a thread again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_dpdk::Bell;

use super::Engine;
use super::threads::Forwarder;
use crate::error::SwitchError;
use crate::forward::{Input, Output, Reply, Unanswered, WorkerCommand};

/// Interval between attempts to complete a change that was interrupted.
const AGAIN: Duration = Duration::from_secs(1);

/// An order that was not executed in time.
#[derive(Debug)]
pub(super) struct Failed {
    /// True if the thread is executing the order: it takes effect when the thread runs again.
    pub(super) takes_effect: bool,
    pub(super) error: SwitchError,
}

impl From<Failed> for SwitchError {
    fn from(failed: Failed) -> Self {
        failed.error
    }
}

/// Returns the error of a reply that does not belong to its order. `location` is the part of the configuration that the order is about.
pub(super) fn unexpected_reply(location: &str) -> SwitchError {
    SwitchError::Config {
        location: location.to_owned(),
        what: "a thread gave an unexpected reply (this is a bug in the switch)".to_owned(),
    }
}

impl Engine {
    /// Sends an order to a thread and waits for the reply.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not exist or does not reply in time. Resources in the order are kept.
    pub(crate) fn send_command(
        &mut self,
        cpu: u32,
        order: WorkerCommand,
    ) -> Result<Reply, SwitchError> {
        Ok(self.order(cpu, order)?)
    }

    /// Like [`Self::send_command`]. `record` notes what the thread has then, also if the thread executes the order late: if the change is
    /// undone, the thread gets back what it had.
    ///
    /// # Errors
    /// Those of [`Self::send_command`].
    pub(crate) fn send_and_record(
        &mut self,
        cpu: u32,
        order: WorkerCommand,
        record: impl FnOnce(&mut Forwarder),
    ) -> Result<Reply, SwitchError> {
        let reply = self.order(cpu, order);
        let takes_effect = reply.as_ref().err().is_none_or(|one| one.takes_effect);
        let mut forwarders = self.forwarders.iter_mut();
        if takes_effect && let Some(forwarder) = forwarders.find(|one| one.cpu == cpu) {
            record(forwarder);
        }
        Ok(reply?)
    }

    /// Like [`Self::send_command`]; the error shows whether the order takes effect later.
    pub(super) fn order(&mut self, cpu: u32, order: WorkerCommand) -> Result<Reply, Failed> {
        self.collect_late_replies();
        let is_check = matches!(
            order,
            WorkerCommand::Nothing
                | WorkerCommand::Connections(_)
                | WorkerCommand::NatQuery(_)
                | WorkerCommand::BalanceQuery(_)
        );
        let reply = match self.forwarders.iter_mut().find(|one| one.cpu == cpu) {
            Some(forwarder) => forwarder.ask(order),
            None => Err(Box::new(Unanswered {
                order: Some(order),
                error: SwitchError::Thread {
                    name: crate::threads::forwarding_name(cpu),
                    what: "the thread does not exist (this is a bug in the switch)".to_owned(),
                },
            })),
        };
        reply.map_err(|unanswered| {
            let Unanswered { order, error } = *unanswered;
            self.loose.is_unsettled |= !is_check;
            let takes_effect = order.is_none();
            if let Some(order) = order {
                self.keep_order(order);
            }
            Failed {
                takes_effect,
                error,
            }
        })
    }

    /// Returns the wake-up event of a thread, if it may sleep.
    pub(super) fn bell(&self, cpu: u32) -> Option<Arc<Bell>> {
        let mut forwarders = self.forwarders.iter();
        forwarders.find(|one| one.cpu == cpu)?.bell()
    }

    /// Returns the CPUs of all forwarding threads.
    pub(crate) fn cpus(&self) -> Vec<u32> {
        self.forwarders.iter().map(|one| one.cpu).collect()
    }

    pub(super) fn is_late(&self, cpu: u32) -> bool {
        let mut forwarders = self.forwarders.iter();
        forwarders.any(|one| one.cpu == cpu && one.late_for().is_some())
    }

    /// Receives the replies of threads that were late, and keeps the resources in them.
    fn collect_late_replies(&mut self) {
        let late = self.forwarders.iter_mut();
        let replies: Vec<Reply> = late.filter_map(|one| one.collect()).collect();
        for reply in replies {
            self.keep_reply(reply);
        }
    }

    /// Keeps the resources in a reply that no operation waits for.
    pub(super) fn keep_reply(&mut self, reply: Reply) {
        match reply {
            Reply::Input(Some(input)) => self.keep_input(input),
            Reply::Output { port, former } => self.keep_output(port, former),
            Reply::Relays(relays) => self.loose.relays.extend(relays),
            Reply::Inherited { port, former, left } => {
                self.keep_output(port, former);
                self.loose.relays.extend(left);
            }
            Reply::Full(order) => self.keep_order(order),
            Reply::Done
            | Reply::Stages { .. }
            | Reply::Input(None)
            | Reply::Domain { .. }
            | Reply::OutputRules { .. }
            | Reply::NameFlows { .. }
            | Reply::Inspection { .. }
            | Reply::Fragments { .. }
            | Reply::Injected { .. }
            | Reply::Capture { .. }
            | Reply::Trace { .. }
            | Reply::Track { .. }
            | Reply::Connections(_)
            | Reply::Nat { .. }
            | Reply::NatQuery(_)
            | Reply::Balance { .. }
            | Reply::BalanceQuery(_)
            | Reply::Share { .. }
            | Reply::Owners { .. } => {}
        }
    }

    /// Keeps the resources in an order that was not executed.
    fn keep_order(&mut self, order: WorkerCommand) {
        match order {
            WorkerCommand::Adopt(input) => self.keep_input(input),
            WorkerCommand::Output { port, output } => self.keep_output(port, output),
            WorkerCommand::Inherit {
                port,
                output,
                relays,
            } => {
                self.keep_output(port, output);
                self.loose.relays.extend(relays);
            }
            _ => {}
        }
    }

    fn keep_input(&mut self, input: Box<Input>) {
        if self.slot(input.port).is_some() {
            self.loose.inputs.insert((input.port, input.queue), input);
        }
    }

    /// Keeps the transmit queue of an output.
    pub(super) fn keep_output(&mut self, port: u16, output: Option<Box<Output>>) {
        let queue = output.and_then(|output| output.tx_path.into_queue());
        if let Some(slot) = self.slot_mut(port) {
            slot.spare_tx.extend(queue);
        }
    }

    /// Waits until every thread has finished its current turn.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if a thread does not reply. All others have replied.
    pub(super) fn check_threads(&mut self) -> Result<(), SwitchError> {
        let mut outcome = Ok(());
        for cpu in self.cpus() {
            let reply = self.send_command(cpu, WorkerCommand::Nothing);
            outcome = outcome.and(reply.map(drop));
        }
        match self.ending.first() {
            // It may still read tables.
            Some(ending) if !ending.has_ended() => outcome.and(Err(ending.does_not_end())),
            _ => outcome,
        }
    }

    /// Completes or undoes changes that a late thread interrupted, as soon as all threads reply.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] for a thread that does not reply.
    pub(crate) fn settle(&mut self) -> Result<(), SwitchError> {
        self.collect_late_replies();
        if let Some(late) = self.forwarders.iter().find(|one| one.late_for().is_some()) {
            return Err(late.is_late());
        }
        if self.loose.is_unsettled {
            self.loose.is_unsettled = false;
            let done = self.bring_to_plan();
            self.loose.is_unsettled |= done.is_err();
            done?;
            tracing::info!("all forwarding threads are in the configured state again");
        }
        Ok(())
    }

    /// Calls [`Self::settle`] if a change was interrupted, from time to time.
    pub(crate) fn settle_periodically(&mut self) {
        let now = Instant::now();
        self.collect_late_replies();
        let is_again = |tried| now.saturating_duration_since(tried) >= AGAIN;
        let is_due = self.loose.tried.is_none_or(is_again);
        if !self.loose.is_unsettled || !is_due {
            return;
        }
        if self.forwarders.iter().any(|one| one.late_for().is_some()) {
            return;
        }
        self.loose.tried = Some(now);
        if let Err(error) = self.settle() {
            tracing::warn!("cannot complete the interrupted change: {error}");
        }
    }
}
