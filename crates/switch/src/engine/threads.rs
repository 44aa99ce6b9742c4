// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads: start, orders, end.

use std::sync::Arc;
use std::thread::JoinHandle;

use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{Bell, Eal, Mempool};
use quietwire_dpdk::{Registered, thread};

use crate::config::{Idle, Pinning, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::forward::{self, CommandSender, Doze, Reply, Routing, Shared, Worker, WorkerCommand};
use crate::threads::{forwarding_name, spawn};

/// Control-thread handle of a forwarding thread.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) cpu: u32,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Wake-up event of the thread, if it may sleep.
    bell: Option<Arc<Bell>>,
    line: CommandSender,
    handle: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts an idle thread on a CPU. It continues with the given counters.
    pub(crate) fn start(
        eal: &Eal,
        plan: &Plan,
        cpu: u32,
        copies: &Mempool,
        service: FrameSender,
        (counters, shared): (Arc<ThreadCounters>, &Arc<Shared>),
    ) -> Result<Self, SwitchError> {
        let name = forwarding_name(cpu);
        let doze = (plan.idle == Idle::Interrupt).then(Doze::new);
        let doze = doze.transpose().map_err(|cause| SwitchError::Thread {
            name: name.clone(),
            what: format!("cannot wait for receive interrupts: {cause}"),
        })?;
        let bell = doze.as_ref().map(|doze| Arc::clone(doze.bell()));
        let (line, commands) = forward::line(&name, bell.clone());
        let mut worker = Worker::new(
            eal,
            copies.clone(),
            Routing::new(eal, service),
            (plan.idle, doze),
            Arc::clone(&counters),
            commands,
        );
        let (eal, shared) = (eal.clone(), Arc::clone(shared));
        let pinned = plan.pinning == Pinning::Roles;
        let handle = spawn(
            &name,
            move || {
                if pinned {
                    thread::pin(&[cpu])?;
                }
                Registered::new(&eal)
            },
            move || forward::run(&mut worker, &shared),
        )?;
        Ok(Self {
            cpu,
            counters,
            bell,
            line,
            handle: Some(handle),
        })
    }

    /// Sends an order and waits for the reply.
    pub(crate) fn ask(&mut self, order: WorkerCommand) -> Result<Reply, SwitchError> {
        match self.line.ask(order)? {
            Reply::Full(order) => Err(SwitchError::Thread {
                name: forwarding_name(self.cpu),
                what: format!("no room for {order:?} (use more forwarding CPUs)"),
            }),
            reply => Ok(reply),
        }
    }

    /// Returns the wake-up event of the thread, if it may sleep.
    pub(crate) fn bell(&self) -> Option<Arc<Bell>> {
        self.bell.clone()
    }

    /// Returns whether the thread is waiting for frames; `None` if it always polls.
    pub(crate) fn is_asleep(&self) -> Option<bool> {
        self.bell.as_ref().map(|bell| bell.is_asleep())
    }

    /// Returns true if the thread has ended unexpectedly.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Stops the thread and waits for its end.
    pub(crate) fn end(mut self) -> Result<(), SwitchError> {
        self.ask(WorkerCommand::End)?;
        match self.handle.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(SwitchError::Thread {
                name: forwarding_name(self.cpu),
                what: "the thread panicked (this is a bug in the switch)".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Drop for Forwarder {
    /// Waits for the end of the thread, after the stop flag or an order to end.
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            if !handle.is_finished()
                && let Err(error) = self.line.ask(WorkerCommand::End)
            {
                // If the stop flag is set, the thread may end without a reply.
                tracing::debug!("{error}");
            }
            handle.thread().unpark();
            if handle.join().is_err() {
                tracing::error!("thread {} panicked", forwarding_name(self.cpu));
            }
        }
    }
}
