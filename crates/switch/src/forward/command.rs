// SPDX-License-Identifier: Apache-2.0
//! Messages between the control thread and a forwarding thread: orders one way, one reply per order the other way. The forwarding thread
//! neither allocates nor frees memory: what an order replaces returns with the reply, and the control thread drops it.
//!
//! One order is under way at a time. Orders have numbers, and a reply counts only for the order with its number. If the thread does not
//! reply in time, the control thread withdraws the order, so that it is never executed. An order that the thread is already executing
//! cannot be withdrawn. Either way the thread is late until it replies again, and gets no further order meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

use quietwire_base::Deadline;
use quietwire_dpdk::Bell;
use quietwire_dpdk::ring::FrameReceiver;
use rtrb::{Consumer, Producer, RingBuffer};

use super::input::Input;
use super::output::{Output, Relay};
use super::route::Domain;
use super::segment::Segmenter;
use super::stage::Stage;
use crate::error::SwitchError;
use crate::observe::{CaptureTap, Tracer};

/// Number of replies that have room: one for the order under way, and some to spare.
const REPLIES: usize = 4;
/// Timeout of a reply. A forwarding thread checks for orders once a turn, and may have been preempted.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Timeout of a reply once the switch is ending.
const TIMEOUT_AT_END: Duration = Duration::from_millis(500);
/// Timeout for the lock of the letter box. The other side holds it for a few instructions.
const LOCK: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_micros(20);

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
    /// Process the frames of a port with this stage.
    Stage {
        /// Number of the port.
        port: u16,
        /// The stage.
        stage: Arc<Stage>,
    },
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
    /// Read frames of the service thread from this ring, or stop reading.
    Inject(Option<Box<FrameReceiver>>),
    /// Start or stop copying frames for a capture.
    Capture(Option<Box<CaptureTap>>),
    /// Start or stop tracing frames.
    Trace(Option<Box<Tracer>>),
    /// Expect frames with TCP data of any length: see [`super::Segmenter`].
    Segment(Segmenter),
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
    /// The order failed for lack of room and is returned.
    Full(WorkerCommand),
}

/// The letter box of a forwarding thread.
#[derive(Debug, Default)]
struct LetterBox {
    /// True while there is an order. The only part that a forwarding thread reads every turn.
    is_full: AtomicBool,
    /// Neither side ever waits for this lock.
    order: Mutex<Option<(u64, WorkerCommand)>>,
}

impl LetterBox {
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<(u64, WorkerCommand)>>> {
        match self.order.try_lock() {
            Ok(order) => Some(order),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
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
struct Late {
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
    letter_box: Arc<LetterBox>,
    replies: Consumer<(u64, Reply)>,
    /// Number of the last order.
    number: u64,
    late: Option<Late>,
    /// Stop flag of the switch.
    stop: Arc<AtomicBool>,
}

/// The forwarding thread's end.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    letter_box: Arc<LetterBox>,
    replies: Producer<(u64, Reply)>,
}

/// Creates both ends of a line to the thread with this name. With the `stop` flag set, replies have a short timeout.
pub(crate) fn line(
    name: &str,
    bell: Option<Arc<Bell>>,
    stop: &Arc<AtomicBool>,
) -> (CommandSender, CommandReceiver) {
    let (reply_writer, reply_reader) = RingBuffer::new(REPLIES);
    let letter_box = Arc::new(LetterBox::default());
    let line = CommandSender {
        name: name.to_owned(),
        bell,
        letter_box: Arc::clone(&letter_box),
        replies: reply_reader,
        number: 0,
        late: None,
        stop: Arc::clone(stop),
    };
    let commands = CommandReceiver {
        letter_box,
        replies: reply_writer,
    };
    (line, commands)
}

impl CommandReceiver {
    /// Returns true if there is an order.
    #[inline(always)]
    pub(super) fn has_order(&self) -> bool {
        self.letter_box.is_full.load(Ordering::Acquire)
    }

    /// Takes the order. `None` if the control thread is taking it back at this moment.
    pub(super) fn take(&mut self) -> Option<(u64, WorkerCommand)> {
        let mut order = self.letter_box.try_lock()?;
        self.letter_box.is_full.store(false, Ordering::Relaxed);
        order.take()
    }

    /// Replies to the order with this number.
    pub(super) fn reply(&mut self, number: u64, reply: Reply) {
        // The ring has room: there is one order at a time, and the control thread reads the replies of earlier ones first.
        drop(self.replies.push((number, reply)));
    }
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
                self.late = Some(Late { since, number });
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
            if self.replies.is_abandoned() {
                // The reply may have arrived just before the thread ended.
                return self.reply_to(number).ok_or_else(|| {
                    Box::new(Unanswered {
                        order: self.take_back(number),
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

    /// Takes back an order without reply. From here on the thread is late.
    fn give_up(&mut self, number: u64, began: Instant) -> Result<Reply, Box<Unanswered>> {
        let order = self.take_back(number);
        if order.is_none()
            && let Some(reply) = self.reply_to(number)
        {
            return Ok(reply);
        }
        let awaited = match &order {
            // The reply to this order will show that the thread runs again.
            Some(_) => self.put(WorkerCommand::Nothing).ok(),
            None => Some(number),
        };
        self.late = Some(Late {
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
            self.late = Some(Late { number, ..late });
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

    /// Puts an order into the letter box, which is empty. The error returns the order: the thread stopped while it held the lock.
    fn put(&mut self, order: WorkerCommand) -> Result<u64, WorkerCommand> {
        let letter_box = Arc::clone(&self.letter_box);
        let lock = || letter_box.try_lock();
        let Some(mut place) = Deadline::after(LOCK).poll(PAUSE, lock) else {
            return Err(order);
        };
        self.number += 1;
        *place = Some((self.number, order));
        letter_box.is_full.store(true, Ordering::Release);
        drop(place);
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        Ok(self.number)
    }

    /// Removes an order from the letter box. `None` if the thread has taken it, or is about to.
    fn take_back(&mut self, number: u64) -> Option<WorkerCommand> {
        let lock = || self.letter_box.try_lock();
        let mut place = Deadline::after(LOCK).poll(PAUSE, lock)?;
        let (_, order) = place.take_if(|(given, _)| *given == number)?;
        self.letter_box.is_full.store(false, Ordering::Relaxed);
        Some(order)
    }

    /// Returns the reply to the order with this number, if it has arrived. Replies to other orders are dropped.
    fn reply_to(&mut self, number: u64) -> Option<Reply> {
        while let Ok((given, reply)) = self.replies.pop() {
            if given == number {
                return Some(reply);
            }
            tracing::error!(
                "thread {} replied to order {given} instead of {number}: reply ignored (this is a bug in the switch)",
                self.name
            );
        }
        None
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

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (CommandSender, CommandReceiver) {
        line("qw-fwd-1", None, &Arc::default())
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
        let (mut line, mut commands) = pair();
        let unanswered = line.ask(WorkerCommand::DrainRelays).unwrap_err();
        assert!(matches!(unanswered.order, Some(WorkerCommand::DrainRelays)));
        assert!(line.late_for().is_some());
        // Further orders are refused at once, and never seen by the thread.
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
        let (mut line, mut commands) = pair();
        let thread = std::thread::spawn(move || {
            while !commands.has_order() {
                std::thread::yield_now();
            }
            let taken = commands.take().unwrap();
            (commands, taken)
        });
        let unanswered = line.ask(WorkerCommand::EndRelays { port: 1 }).unwrap_err();
        assert!(unanswered.order.is_none(), "the thread executes it");
        let (mut commands, (number, _)) = thread.join().unwrap();
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
        let letter_box = Arc::clone(&commands.letter_box);
        let held = letter_box.try_lock().unwrap();
        let unanswered = line.ask(WorkerCommand::End).unwrap_err();
        assert!(unanswered.order.is_some() && line.late_for().is_some());
        assert!(line.collect().is_none());
        drop(held);
        // Now the order that shows that the thread runs can be given.
        assert!(line.collect().is_none());
        obey(&mut commands);
        assert!(line.collect().is_some() && line.late_for().is_none());
    }
}
