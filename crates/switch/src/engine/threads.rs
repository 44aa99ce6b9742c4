// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads: start, orders, end.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use quietwire_base::wait_until;
use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{Bell, Eal, Mempool};
use quietwire_dpdk::{Registered, thread};

use crate::config::{Idle, Pinning, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::forward::{
    self, CommandSender, Doze, Reply, Routing, Shared, Unanswered, Worker, WorkerCommand,
};
use crate::threads::{forwarding_name, spawn};

/// Timeout for the end of a thread after the stop flag or an order to end.
pub(super) const END: Duration = Duration::from_secs(2);

/// Control-thread handle of a forwarding thread.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) cpu: u32,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Wake-up event of the thread, if it may sleep.
    bell: Option<Arc<Bell>>,
    line: CommandSender,
    handle: Option<JoinHandle<()>>,
    /// True if segmentation is enabled on the thread.
    pub(super) has_segmenter: bool,
    /// True if the thread copies frames for a capture.
    pub(crate) has_capture: bool,
    /// True if the thread traces frames.
    pub(crate) has_trace: bool,
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
        let (line, commands) = forward::line(&name, bell.clone(), &shared.stop);
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
        let stop = Arc::clone(&shared.stop);
        let handle = spawn(
            &name,
            &stop,
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
            has_segmenter: false,
            has_capture: false,
            has_trace: false,
        })
    }

    /// Sends an order and waits for the reply.
    pub(super) fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>> {
        match self.line.ask(order)? {
            Reply::Full(order) => {
                let error = SwitchError::Thread {
                    name: forwarding_name(self.cpu),
                    what: format!("no room for {order:?} (use more forwarding CPUs)"),
                };
                let order = Some(order);
                Err(Box::new(Unanswered { order, error }))
            }
            reply => Ok(reply),
        }
    }

    /// Looks whether a late thread replies again. Returns the reply to an order that it was executing meanwhile.
    pub(super) fn collect(&mut self) -> Option<Reply> {
        self.line.collect()
    }

    /// Returns for how long the thread has not replied to an order; `None` if it replies.
    pub(crate) fn late_for(&self) -> Option<Duration> {
        self.line.late_for()
    }

    /// Returns the error that the thread is late.
    pub(super) fn is_late(&self) -> SwitchError {
        self.line.is_late()
    }

    /// Returns the error that the thread does not end.
    pub(super) fn does_not_end(&self) -> SwitchError {
        SwitchError::Thread {
            name: forwarding_name(self.cpu),
            what: "the thread was ordered to end and has not ended yet".to_owned(),
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
}

impl Forwarder {
    /// Leaves the thread to the end of the process. It keeps what it uses: its queues, and with them their ports.
    pub(super) fn leave(&mut self) {
        self.handle = None;
    }
}

impl Drop for Forwarder {
    /// Waits for the end of the thread, after the stop flag or an order to end.
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        if !handle.is_finished()
            && let Err(unanswered) = self.line.ask(WorkerCommand::End)
        {
            // If the stop flag is set, the thread may end without a reply.
            tracing::debug!("{}", unanswered.error);
        }
        if !wait_until(END, || handle.is_finished()) {
            tracing::error!(
                "thread {} does not end, and is left to the end of the process",
                forwarding_name(self.cpu)
            );
        } else if handle.join().is_err() {
            tracing::error!("thread {} panicked", forwarding_name(self.cpu));
        }
    }
}
