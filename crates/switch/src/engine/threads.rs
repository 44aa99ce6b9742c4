// SPDX-License-Identifier: Apache-2.0
//! Forwarding threads: start, orders, end.

use std::fmt::Debug;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use quietwire_base::wait_until;
use quietwire_dpdk::ring::FrameSender;
use quietwire_dpdk::{Bell, Eal, Mempool};
use quietwire_dpdk::{Registered, thread};
use quietwire_tables::filter::Board;

use super::wiring::ThreadShare;
use crate::config::balance::LoadBalancerSetting;
use crate::config::connections::ConnectionsSetting;
use crate::config::{Idle, Pinning, Plan};
use crate::counters::ThreadCounters;
use crate::error::SwitchError;
use crate::forward::{
    self, CommandReceiver, CommandSender, ConnectionStage, Doze, Effects, NatBinding, Reply,
    Routing, Shared, Unanswered, Worker, WorkerCommand,
};
use crate::threads::{forwarding_name, spawn};

/// Timeout for the end of a thread after the stop flag or an order to end.
pub(super) const END: Duration = Duration::from_secs(2);

/// A forwarding thread as the engine sees it: it carries out orders until it ends. Tests replace it by one that fails at any order.
pub(crate) trait ForwardingThread: Debug + Send {
    /// Sends an order and waits for the reply.
    ///
    /// # Errors
    /// [`Unanswered`] if the thread does not reply in time, or has ended.
    fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>>;

    /// Looks whether a late thread replies again. Returns the reply to an order that it was executing meanwhile.
    fn collect(&mut self) -> Option<Reply>;

    /// Returns for how long the thread has not replied to an order; `None` if it replies.
    fn late_for(&self) -> Option<Duration>;

    /// Returns the error that the thread is late.
    fn is_late(&self) -> SwitchError;

    /// Returns true if the thread has ended.
    fn has_ended(&self) -> bool;

    /// Leaves the thread to the end of the process. It keeps what it uses: its queues, and with them their ports.
    fn leave(&mut self);
}

/// Settings and resources of a new thread.
#[derive(Debug)]
pub(crate) struct ThreadStart<'a> {
    pub(crate) eal: &'a Eal,
    pub(crate) plan: &'a Plan,
    pub(crate) cpu: u32,
    /// Pool for copies of frames.
    pub(crate) copies: &'a Mempool,
    /// To the service thread.
    pub(crate) service: FrameSender,
    /// It continues with these.
    pub(crate) counters: Arc<ThreadCounters>,
    /// Connection tracking, if the plan has it.
    pub(crate) connections: Option<Box<ConnectionStage>>,
    pub(crate) shared: &'a Arc<Shared>,
}

impl ThreadStart<'_> {
    /// Returns the state of the idle thread.
    pub(crate) fn worker(self, doze: Option<Doze>, commands: CommandReceiver) -> Worker {
        Worker::new(
            self.eal,
            self.copies.clone(),
            (
                Routing::new(self.eal, self.service),
                self.connections,
                Effects::new(
                    self.shared.rule_counters.thread(),
                    self.shared.log.writer(),
                    self.eal,
                ),
            ),
            (self.plan.idle, doze),
            self.counters,
            commands,
        )
    }
}

/// A thread and its wake-up event, if it may sleep.
pub(crate) type StartedThread = (Box<dyn ForwardingThread>, Option<Arc<Bell>>);

/// Control-thread handle of a forwarding thread.
#[derive(Debug)]
pub(crate) struct Forwarder {
    pub(crate) cpu: u32,
    pub(crate) counters: Arc<ThreadCounters>,
    /// Wake-up event of the thread, if it may sleep.
    bell: Option<Arc<Bell>>,
    thread: Box<dyn ForwardingThread>,
    /// True if segmentation is enabled on the thread.
    pub(super) has_segmenter: bool,
    /// True if the thread has had rules of frames that leave.
    pub(super) has_output_rules: bool,
    /// True if the thread has memory for names in connections.
    pub(super) has_name_flows: bool,
    /// True if the thread has memory for fragments.
    pub(super) has_fragments: bool,
    /// Settings of the table of connections that the thread has.
    pub(super) connections: Option<ConnectionsSetting>,
    /// Verdicts on inspected flows, if the thread has memory for them.
    pub(super) board: Option<Arc<Board>>,
    /// Instances of NAT that the thread has.
    pub(super) nat: Vec<NatBinding>,
    /// Load balancers that the thread has.
    pub(super) balancers: Vec<LoadBalancerSetting>,
    /// Its part in the state of connections that several threads share.
    pub(super) share: ThreadShare,
    /// True if the thread copies frames for a capture.
    pub(crate) has_capture: bool,
    /// True if the thread traces frames.
    pub(crate) has_trace: bool,
}

impl Forwarder {
    /// Returns the handle of a thread on a CPU.
    pub(super) fn new(
        cpu: u32,
        counters: Arc<ThreadCounters>,
        (thread, bell): StartedThread,
    ) -> Self {
        Self {
            cpu,
            counters,
            bell,
            thread,
            has_segmenter: false,
            has_output_rules: false,
            has_name_flows: false,
            has_fragments: false,
            connections: None,
            board: None,
            nat: Vec::new(),
            balancers: Vec::new(),
            share: ThreadShare::default(),
            has_capture: false,
            has_trace: false,
        }
    }

    /// Sends an order and waits for the reply.
    pub(super) fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>> {
        match self.thread.ask(order)? {
            Reply::Full(order) => {
                let error = SwitchError::Thread {
                    name: forwarding_name(self.cpu),
                    what: format!("no space for {order:?} (use more forwarding CPUs)"),
                };
                let order = Some(order);
                Err(Box::new(Unanswered { order, error }))
            }
            reply => Ok(reply),
        }
    }

    /// Looks whether a late thread replies again. Returns the reply to an order that it was executing meanwhile.
    pub(super) fn collect(&mut self) -> Option<Reply> {
        self.thread.collect()
    }

    /// Returns for how long the thread has not replied to an order; `None` if it replies.
    pub(crate) fn late_for(&self) -> Option<Duration> {
        self.thread.late_for()
    }

    /// Returns the error that the thread is late.
    pub(super) fn is_late(&self) -> SwitchError {
        self.thread.is_late()
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
        self.thread.has_ended()
    }

    /// Leaves the thread to the end of the process. It keeps what it uses: its queues, and with them their ports.
    pub(super) fn leave(&mut self) {
        self.thread.leave();
    }
}

/// A thread of the operating system.
#[derive(Debug)]
struct SystemThread {
    name: String,
    line: CommandSender,
    handle: Option<JoinHandle<()>>,
}

/// Returns the sleep state of a thread, if threads wait instead of polling without frames.
pub(super) fn doze_of(thread: &str, idle: Idle) -> Result<Option<Doze>, SwitchError> {
    let doze = matches!(idle, Idle::Sleep | Idle::Interrupt).then(Doze::new);
    doze.transpose().map_err(|cause| SwitchError::Thread {
        name: thread.to_owned(),
        what: format!("cannot wait for receive interrupts: {cause}"),
    })
}

/// Starts a thread of the operating system.
pub(super) fn start_system_thread(start: ThreadStart<'_>) -> Result<StartedThread, SwitchError> {
    let name = forwarding_name(start.cpu);
    let doze = doze_of(&name, start.plan.idle)?;
    let bell = doze.as_ref().map(|doze| Arc::clone(doze.bell()));
    let (line, commands) = forward::line(&name, bell.clone(), &start.shared.stop);
    let (eal, shared, cpu) = (start.eal.clone(), Arc::clone(start.shared), start.cpu);
    let pinned = start.plan.pinning == Pinning::Roles;
    let seccomp = start.plan.seccomp;
    let mut worker = start.worker(doze, commands);
    let stop = Arc::clone(&shared.stop);
    let handle = spawn(
        &name,
        (&stop, seccomp),
        move || {
            if pinned {
                thread::pin(&[cpu])?;
            }
            Registered::new(&eal)
        },
        move || forward::run(&mut worker, &shared),
    )?;
    let handle = Some(handle);
    Ok((Box::new(SystemThread { name, line, handle }), bell))
}

impl ForwardingThread for SystemThread {
    fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>> {
        self.line.ask(order)
    }

    fn collect(&mut self) -> Option<Reply> {
        self.line.collect()
    }

    fn late_for(&self) -> Option<Duration> {
        self.line.late_for()
    }

    fn is_late(&self) -> SwitchError {
        self.line.is_late()
    }

    fn has_ended(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn leave(&mut self) {
        self.handle = None;
    }
}

impl Drop for SystemThread {
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
                self.name
            );
        } else if handle.join().is_err() {
            tracing::error!("thread {} panicked", self.name);
        }
    }
}
