// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads: made, told what to do, ended.

use std::sync::Arc;
use std::thread::JoinHandle;

use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{Bell, Eal, Mempool};
use quietwire_dpdk::{Registered, thread};

use crate::config::{Idle, Pinning, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::forward::{self, Doze, Line, Order, Reply, Routing, Shared, Worker};
use crate::threads::{forwarding_name, spawn};

/// A forwarding thread as the control thread holds it.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) cpu: u32,
    pub(crate) counters: Arc<ThreadCounters>,
    /// What wakes it, if it may sleep.
    bell: Option<Arc<Bell>>,
    line: Line,
    handle: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Makes a thread on a CPU, with nothing to do yet. It goes on with the counters that it is given.
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
            what: format!("it cannot wait for interrupts: {cause}"),
        })?;
        let bell = doze.as_ref().map(|doze| Arc::clone(doze.bell()));
        let (line, mailbox) = forward::line(&name, bell.clone());
        let mut worker = Worker::new(
            eal,
            copies.clone(),
            Routing::new(eal, service),
            (plan.idle, doze),
            Arc::clone(&counters),
            mailbox,
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

    /// Gives an order and waits for the reply.
    pub(crate) fn ask(&mut self, order: Order) -> Result<Reply, SwitchError> {
        match self.line.ask(order)? {
            Reply::NoRoom(order) => Err(SwitchError::Thread {
                name: forwarding_name(self.cpu),
                what: format!("it has no room for {order:?}; use more forwarding CPUs"),
            }),
            reply => Ok(reply),
        }
    }

    /// What wakes the thread, if it may sleep.
    pub(crate) fn bell(&self) -> Option<Arc<Bell>> {
        self.bell.clone()
    }

    /// Whether the thread waits for frames; none if it always polls.
    pub(crate) fn is_asleep(&self) -> Option<bool> {
        self.bell.as_ref().map(|bell| bell.is_asleep())
    }

    /// True when the thread ended by itself.
    pub(crate) fn has_ended(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread and waits for that.
    pub(crate) fn end(mut self) -> Result<(), SwitchError> {
        self.ask(Order::End)?;
        match self.handle.take().map(JoinHandle::join) {
            Some(Err(_)) => Err(SwitchError::Thread {
                name: forwarding_name(self.cpu),
                what: "it ended with a fault of the switch".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Drop for Forwarder {
    /// Waits for a thread that the stop flag ends, or asks it to end.
    fn drop(&mut self) {
        if let Some(handle) = self.handle.take() {
            if !handle.is_finished()
                && let Err(error) = self.line.ask(Order::End)
            {
                // With the stop flag set it may end without an answer.
                tracing::debug!("{error}");
            }
            handle.thread().unpark();
            if handle.join().is_err() {
                tracing::error!("thread {} ended with a fault", forwarding_name(self.cpu));
            }
        }
    }
}
