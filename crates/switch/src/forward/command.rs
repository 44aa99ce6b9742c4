// SPDX-License-Identifier: Apache-2.0
//! Messages between the control thread and a forwarding thread: orders one way, one reply per order the other way. The forwarding thread
//! neither allocates nor frees memory: what an order replaces returns with the reply, and the control thread drops it.
//!
//! One order is under way at a time. Orders have numbers, and a reply counts only for the order with its number. If the thread does not
//! reply in time, the control thread withdraws the order, so that it is never executed. An order that the thread is already executing
//! cannot be withdrawn. Either way the thread is late until it replies again, and gets no further order meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use quietwire_dpdk::Bell;
use quietwire_dpdk::ring::FrameReceiver;
use quietwire_tables::connections::Timeouts;
use quietwire_tables::filter::NameFlows;
use quietwire_tables::owner::Owners;

use super::balance::{BalanceQuery, BalanceStage};
use super::connections::{ConnectionQuery, ConnectionStage};
use super::fragments::FragmentStage;
use super::input::{Input, PortStages};
use super::inspect::InspectStage;
use super::line::{GivenUp, OrderReceiver, OrderSender};
use super::nat::{NatQuery, NatStage};
use super::output::{Output, OutputRules, Relay};
use super::route::Domain;
use super::segment::Segmenter;
use super::share::ShareStage;
use super::stage::Stage;
use super::sync::PAUSE;
use crate::error::SwitchError;
use crate::observe::{CaptureTap, Tracer};

/// Timeout of a reply. A forwarding thread checks for orders once a turn, and may have been preempted.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a reply once the switch is ending.
const TIMEOUT_AT_END: Duration = Duration::from_millis(500);

/// An order to a forwarding thread.
#[derive(Debug)]
#[allow(clippy::vec_box)]
pub(crate) enum WorkerCommand {
    /// Serve this receive queue.
    Adopt(Box<Input>),
    /// Send everything received from the receive queue, and return the queue.
    Release {
        /// Number of the port.
        port: u16,
        /// Number of its receive queue.
        queue: u16,
    },
    /// Process the frames of ports with these stages, each with the number of its port.
    Stages(Vec<(u16, Arc<Stage>)>),
    /// Set or remove the output to a port.
    Output {
        /// Number of the port.
        port: u16,
        /// The output.
        output: Option<Box<Output>>,
    },
    /// Send for another thread, which has no transmit queue at a port.
    Relay(Box<Relay>),
    /// Stop sending to this port for others. Frames still in the rings are sent first.
    EndRelays {
        /// Number of the port.
        port: u16,
    },
    /// Send the last frames of rings whose writer has ended, and return the rings.
    EndAbandonedRelays,
    /// Send all frames that are in the rings of other threads now. Precedes the move of a queue, so that no frame overtakes one that the
    /// previous thread put into a ring.
    DrainRelays,
    /// Replace the thread that sent to a port for others. The change is atomic, so that no frame of this thread overtakes one that it put
    /// into a ring before.
    Inherit {
        /// Number of the port.
        port: u16,
        /// The transmit queue, unless this thread has one already.
        output: Option<Box<Output>>,
        /// The rings.
        relays: Vec<Box<Relay>>,
    },
    /// Use this router state.
    Domain(Option<Arc<Domain>>),
    /// Apply these rules to frames that leave.
    OutputRules(Option<Arc<OutputRules>>),
    /// Use this memory for names in connections, or none.
    NameFlows(Option<Box<NameFlows>>),
    /// Use this memory for inspected flows, or none. Packets that wait are dropped.
    Inspection(Option<Box<InspectStage>>),
    /// Use this memory for fragments that wait for the first one of their datagram, or none. Fragments that wait are dropped.
    Fragments(Option<Box<FragmentStage>>),
    /// Read frames of the service thread from this ring, or stop reading.
    Inject(Option<Box<FrameReceiver>>),
    /// Start or stop copying frames for a capture.
    Capture(Option<Box<CaptureTap>>),
    /// Start or stop tracing frames.
    Trace(Option<Box<Tracer>>),
    /// Expect frames with TCP data of any length: see [`super::Segmenter`].
    Segment(Segmenter),
    /// Use this table of connections, or none.
    Track(Option<Box<ConnectionStage>>),
    /// Use these limits for connections, if there is a table.
    ConnectionLimits {
        /// Timeouts.
        timeouts: Timeouts,
        /// Maximum number of half-open connections.
        half_open_max: u32,
        /// Share of the time of a saturated thread for frames that begin connections, percent. `None`: no limit.
        new_share: Option<u32>,
    },
    /// List or remove connections.
    Connections(Box<ConnectionQuery>),
    /// Use these instances of NAT, or none.
    Nat(Option<Box<NatStage>>),
    /// List mappings of NAT.
    NatQuery(Box<NatQuery>),
    /// Use these load balancers, or none.
    Balance(Option<Box<BalanceStage>>),
    /// Return the numbers of load balancers.
    BalanceQuery(Box<BalanceQuery>),
    /// Share the state of connections with other threads.
    Share {
        /// The part of this thread.
        share: Box<ShareStage>,
        /// Stages of all ports.
        stages: PortStages,
    },
    /// Hand frames over to these owners.
    Owners(Arc<Owners>),
    /// No operation. The reply confirms that all earlier work is complete.
    Nothing,
    /// End. The thread returns its resources by ending.
    End,
}

/// Reply to an order, one per order.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done; no resource returns.
    Done,
    /// The stages that the thread has now.
    Stages {
        /// To be dropped.
        _stages: Vec<(u16, Arc<Stage>)>,
    },
    /// The receive queue; `None` if the thread did not serve it.
    Input(Option<Box<Input>>),
    /// The previous output to a port.
    Output {
        /// Number of the port.
        port: u16,
        /// The output, to be dropped or used again.
        former: Option<Box<Output>>,
    },
    /// Rings that the thread no longer reads.
    #[allow(clippy::vec_box)]
    Relays(Vec<Box<Relay>>),
    /// The previous output, and the rings that did not fit.
    #[allow(clippy::vec_box)]
    Inherited {
        /// Number of the port.
        port: u16,
        /// The previous output.
        former: Option<Box<Output>>,
        /// Rings that the thread no longer reads.
        left: Vec<Box<Relay>>,
    },
    /// The previous router state.
    Domain {
        /// To be dropped.
        _former: Option<Arc<Domain>>,
    },
    /// The previous rules of frames that leave.
    OutputRules {
        /// To be dropped.
        _former: Option<Arc<OutputRules>>,
    },
    /// The previous memory for names in connections.
    NameFlows {
        /// To be dropped.
        _former: Option<Box<NameFlows>>,
    },
    /// The previous memory for inspected flows.
    Inspection {
        /// To be dropped.
        _former: Option<Box<InspectStage>>,
    },
    /// The previous memory for fragments.
    Fragments {
        /// To be dropped.
        _former: Option<Box<FragmentStage>>,
    },
    /// The previous ring of the service thread.
    Injected {
        /// To be dropped.
        _former: Option<Box<FrameReceiver>>,
    },
    /// The previous capture.
    Capture {
        /// To be dropped.
        _former: Option<Box<CaptureTap>>,
    },
    /// The previous tracer.
    Trace {
        /// To be dropped.
        _former: Option<Box<Tracer>>,
    },
    /// The previous table of connections.
    Track {
        /// To be dropped.
        _former: Option<Box<ConnectionStage>>,
    },
    /// The answered request about connections.
    Connections(Box<ConnectionQuery>),
    /// The previous instances of NAT.
    Nat {
        /// Number of static forwards for which there was no space.
        without_space: usize,
        /// To be dropped.
        _former: Option<Box<NatStage>>,
    },
    /// The answered request about NAT.
    NatQuery(Box<NatQuery>),
    /// The previous load balancers.
    Balance {
        /// To be dropped.
        _former: Option<Box<BalanceStage>>,
    },
    /// The answered request about load balancers.
    BalanceQuery(Box<BalanceQuery>),
    /// The previous part in the sharing.
    Share {
        /// To be dropped.
        _former: Option<Box<ShareStage>>,
        /// To be dropped.
        _stages: PortStages,
    },
    /// The previous owners.
    Owners {
        /// To be dropped.
        _former: Option<Arc<Owners>>,
    },
    /// The order failed for lack of space and is returned.
    Full(WorkerCommand),
}

/// An order that had no reply in time.
#[derive(Debug)]
pub(crate) struct Unanswered {
    /// The order, if it was not and will never be executed. `None` if the thread is executing it: then its reply follows.
    pub(crate) order: Option<WorkerCommand>,
    /// The reason.
    pub(crate) error: SwitchError,
}

/// A thread that does not reply.
#[derive(Clone, Copy, Debug)]
struct LateThread {
    since: Instant,
    /// Number of the order whose reply ends the state. None if no order could be given.
    number: Option<u64>,
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct CommandSender {
    name: String,
    /// Wake-up event of a thread that may sleep.
    bell: Option<Arc<Bell>>,
    orders: OrderSender<WorkerCommand, Reply>,
    late: Option<LateThread>,
    /// Stop flag of the switch.
    stop: Arc<AtomicBool>,
}

/// The forwarding thread's end.
pub(crate) type CommandReceiver = OrderReceiver<WorkerCommand, Reply>;

/// Creates both ends of a line to the thread with this name. With the `stop` flag set, replies have a short timeout.
pub(crate) fn line(
    name: &str,
    bell: Option<Arc<Bell>>,
    stop: &Arc<AtomicBool>,
) -> (CommandSender, CommandReceiver) {
    let (orders, commands) = super::line::line();
    let line = CommandSender {
        name: name.to_owned(),
        bell,
        orders,
        late: None,
        stop: Arc::clone(stop),
    };
    (line, commands)
}

impl CommandSender {
    /// Sends an order and waits for the reply. A thread that is late gets no order.
    ///
    /// # Errors
    /// [`Unanswered`] if the thread does not reply in time, or has ended.
    pub(crate) fn ask(&mut self, order: WorkerCommand) -> Result<Reply, Box<Unanswered>> {
        if self.late.is_some() {
            let error = self.is_late();
            let order = Some(order);
            return Err(Box::new(Unanswered { order, error }));
        }
        let began = Instant::now();
        let number = match self.put(order) {
            Ok(number) => number,
            Err(order) => {
                let number = None;
                let since = began;
                self.late = Some(LateThread { since, number });
                return Err(Box::new(Unanswered {
                    order: Some(order),
                    error: self.silent(began),
                }));
            }
        };
        loop {
            if let Some(reply) = self.reply_to(number) {
                return Ok(reply);
            }
            if self.orders.is_abandoned() {
                // The reply may have arrived just before the thread ended.
                return self.reply_to(number).ok_or_else(|| {
                    Box::new(Unanswered {
                        order: self.orders.take_back(number),
                        error: self.ended(),
                    })
                });
            }
            let is_ending = self.stop.load(Ordering::Relaxed);
            let timeout = if is_ending { TIMEOUT_AT_END } else { TIMEOUT };
            if began.elapsed() >= timeout {
                return self.give_up(number, began);
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Withdraws an order without reply. From here on the thread is late.
    fn give_up(&mut self, number: u64, began: Instant) -> Result<Reply, Box<Unanswered>> {
        let ignored = ignored_by(&self.name);
        let given_up = self.orders.give_up(number, WorkerCommand::Nothing, ignored);
        let (order, awaited) = match given_up {
            GivenUp::Replied(reply) => return Ok(reply),
            GivenUp::TakenBack { order, awaited } => {
                self.ring_bell();
                (Some(order), awaited)
            }
            GivenUp::Executing => (None, Some(number)),
        };
        self.late = Some(LateThread {
            since: began,
            number: awaited,
        });
        let error = self.silent(began);
        tracing::error!("{error}");
        Err(Box::new(Unanswered { order, error }))
    }

    /// Looks whether a late thread replies again. Returns the reply to an order that it was executing meanwhile.
    pub(crate) fn collect(&mut self) -> Option<Reply> {
        let late = self.late?;
        let Some(number) = late.number else {
            let number = self.put(WorkerCommand::Nothing).ok();
            self.late = Some(LateThread { number, ..late });
            return None;
        };
        let reply = self.reply_to(number)?;
        self.late = None;
        tracing::warn!(
            "thread {} replies again after {:.1} s",
            self.name,
            late.since.elapsed().as_secs_f64()
        );
        Some(reply)
    }

    /// Returns for how long the thread has not replied; `None` if it is not late.
    pub(crate) fn late_for(&self) -> Option<Duration> {
        Some(self.late?.since.elapsed())
    }

    /// Returns the error that the thread is late.
    pub(crate) fn is_late(&self) -> SwitchError {
        self.silent(self.late.map_or_else(Instant::now, |late| late.since))
    }

    /// Gives an order. The error returns the order: the thread stopped while it held the lock of the slot.
    fn put(&mut self, order: WorkerCommand) -> Result<u64, WorkerCommand> {
        let number = self.orders.put(order)?;
        self.ring_bell();
        Ok(number)
    }

    fn ring_bell(&self) {
        if let Some(bell) = &self.bell {
            bell.ring();
        }
    }

    /// Returns the reply to the order with this number, if it has arrived.
    fn reply_to(&mut self, number: u64) -> Option<Reply> {
        self.orders.reply_to(number, ignored_by(&self.name))
    }

    fn ended(&self) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: "the thread has ended".to_owned(),
        }
    }

    fn silent(&self, since: Instant) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: format!(
                "no reply for {:.1} s (check what keeps the thread from running: a debugger, or a program with a higher priority on its CPU)",
                since.elapsed().as_secs_f64()
            ),
        }
    }
}

/// Logs replies to other orders than the last one.
fn ignored_by(name: &str) -> impl FnMut(u64) {
    move |given| {
        tracing::error!(
            "thread {name} replied to order {given} out of turn: reply ignored (this is a bug in the switch)"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (CommandSender, CommandReceiver) {
        line("qw-fwd-1", None, &Arc::default())
    }

    /// Returns the ends of a line, and a stop flag that makes its timeout short.
    fn pair_with_stop() -> (CommandSender, CommandReceiver, Arc<AtomicBool>) {
        let stop = Arc::default();
        let (line, commands) = line("qw-fwd-1", None, &stop);
        (line, commands, stop)
    }

    /// Executes one order.
    fn obey(commands: &mut CommandReceiver) {
        let (number, _) = commands.take().unwrap();
        commands.reply(number, Reply::Done);
    }

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let (mut line, commands) = pair();
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let commands = commands;
            // The thread ends without reading its orders, as after the stop flag.
            while !commands.has_order() && began.elapsed() < TIMEOUT {
                std::thread::yield_now();
            }
        });
        let unanswered = line.ask(WorkerCommand::End).unwrap_err();
        thread.join().unwrap();
        let error = unanswered.error.to_string();
        assert!(error.contains("the thread has ended"), "{error}");
        assert!(matches!(unanswered.order, Some(WorkerCommand::End)));
    }

    #[test]
    fn the_last_answer_of_a_thread_arrives() {
        let (mut line, mut commands) = pair();
        let thread = std::thread::spawn(move || {
            while !commands.has_order() {
                std::thread::yield_now();
            }
            obey(&mut commands);
        });
        let reply = line.ask(WorkerCommand::End);
        thread.join().unwrap();
        assert!(matches!(reply, Ok(Reply::Done)), "{reply:?}");
    }

    #[test]
    fn an_order_that_a_stopped_thread_has_not_taken_is_never_executed() {
        let (mut line, mut commands, stop) = pair_with_stop();
        stop.store(true, Ordering::Relaxed);
        let unanswered = line.ask(WorkerCommand::DrainRelays).unwrap_err();
        assert!(matches!(unanswered.order, Some(WorkerCommand::DrainRelays)));
        assert!(line.late_for().is_some());
        // Further orders are refused at once, and never reach the thread.
        let refused = line.ask(WorkerCommand::EndAbandonedRelays).unwrap_err();
        assert!(matches!(
            refused.order,
            Some(WorkerCommand::EndAbandonedRelays)
        ));
        assert!(line.collect().is_none() && line.late_for().is_some());
        // The thread runs again.
        let (number, order) = commands.take().unwrap();
        assert!(matches!(order, WorkerCommand::Nothing), "{order:?}");
        assert!(commands.take().is_none() && !commands.has_order());
        commands.reply(number, Reply::Done);
        assert!(matches!(line.collect(), Some(Reply::Done)));
        assert!(line.late_for().is_none());
    }

    #[test]
    fn a_late_reply_is_not_taken_for_the_next_one() {
        let (mut line, mut commands, stop) = pair_with_stop();
        let its_stop = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !commands.has_order() {
                std::thread::yield_now();
            }
            let taken = commands.take().unwrap();
            // The timeout becomes short once the thread has the order.
            its_stop.store(true, Ordering::Relaxed);
            (commands, taken)
        });
        let unanswered = line.ask(WorkerCommand::EndRelays { port: 1 }).unwrap_err();
        assert!(unanswered.order.is_none(), "the thread executes it");
        let (mut commands, (number, _)) = thread.join().unwrap();
        stop.store(false, Ordering::Relaxed);
        assert!(line.collect().is_none());
        commands.reply(number, Reply::Relays(Vec::new()));
        assert!(matches!(line.collect(), Some(Reply::Relays(_))));
        let thread = std::thread::spawn(move || {
            while !commands.has_order() {
                std::thread::yield_now();
            }
            obey(&mut commands);
            commands
        });
        let reply = line.ask(WorkerCommand::Nothing);
        drop(thread.join().unwrap());
        assert!(matches!(reply, Ok(Reply::Done)), "{reply:?}");
    }

    #[test]
    fn a_thread_that_stops_while_it_takes_an_order_is_late() {
        let (mut line, mut commands) = pair();
        commands.while_locked(|| {
            let unanswered = line.ask(WorkerCommand::End).unwrap_err();
            assert!(unanswered.order.is_some() && line.late_for().is_some());
            assert!(line.collect().is_none());
        });
        // Now the order that shows that the thread runs can be given.
        assert!(line.collect().is_none());
        obey(&mut commands);
        assert!(line.collect().is_some() && line.late_for().is_none());
    }
}
