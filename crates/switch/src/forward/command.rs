// SPDX-License-Identifier: Apache-2.0
//! Messages between the control thread and a forwarding thread: orders one way, one reply per order the other way, over bounded rings with
//! one writer and one reader. The forwarding thread neither allocates nor frees memory: what an order replaces returns with the reply, and
//! the control thread drops it.

use std::sync::Arc;
use std::time::{Duration, Instant};

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

/// Maximum number of orders in flight.
const ORDERS: usize = 256;
/// Timeout of a reply. A forwarding thread checks for orders once a turn, and may have been preempted.
const TIMEOUT: Duration = Duration::from_secs(10);
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
    /// The previous output.
    Output(Option<Box<Output>>),
    /// Rings that the thread no longer reads.
    #[allow(clippy::vec_box)]
    Relays(Vec<Box<Relay>>),
    /// The previous output, and the rings that did not fit.
    #[allow(clippy::vec_box)]
    Inherited {
        /// To be dropped.
        _output: Option<Box<Output>>,
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

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct CommandSender {
    name: String,
    /// Wake-up event of a thread that may sleep.
    bell: Option<Arc<Bell>>,
    orders: Producer<WorkerCommand>,
    replies: Consumer<Reply>,
}

/// The forwarding thread's end.
#[derive(Debug)]
pub(crate) struct CommandReceiver {
    pub(super) orders: Consumer<WorkerCommand>,
    pub(super) replies: Producer<Reply>,
}

/// Creates both ends of a line to the thread with this name.
pub(crate) fn line(name: &str, bell: Option<Arc<Bell>>) -> (CommandSender, CommandReceiver) {
    let (order_writer, order_reader) = RingBuffer::new(ORDERS);
    let (reply_writer, reply_reader) = RingBuffer::new(ORDERS);
    let line = CommandSender {
        name: name.to_owned(),
        bell,
        orders: order_writer,
        replies: reply_reader,
    };
    let commands = CommandReceiver {
        orders: order_reader,
        replies: reply_writer,
    };
    (line, commands)
}

impl CommandSender {
    /// Sends an order and waits for the reply.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not reply in time, or has ended.
    pub(crate) fn ask(&mut self, order: WorkerCommand) -> Result<Reply, SwitchError> {
        self.orders
            .push(order)
            .map_err(|_| self.silent("its order queue is full"))?;
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.replies.pop() {
                Ok(reply) => return Ok(reply),
                // The reply may have arrived just before the thread ended.
                Err(_) if self.replies.is_abandoned() => {
                    let last = self.replies.pop();
                    return last.map_err(|_| self.ended());
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(self.silent("no reply"));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn ended(&self) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: "the thread has ended".to_owned(),
        }
    }

    fn silent(&self, what: &str) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: format!("{what} (bug in the switch, or its CPU is not available)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let (mut line, commands) = line("qw-fwd-1", None);
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let commands = commands;
            // The thread ends without reading its orders, as after the stop flag.
            while commands.orders.is_empty() && began.elapsed() < TIMEOUT {
                std::thread::yield_now();
            }
        });
        let error = line.ask(WorkerCommand::End).unwrap_err();
        thread.join().unwrap();
        assert!(
            error.to_string().contains("the thread has ended"),
            "{error}"
        );
    }

    #[test]
    fn the_last_answer_of_a_thread_arrives() {
        let (mut line, mut commands) = line("qw-fwd-1", None);
        commands.replies.push(Reply::Done).unwrap();
        drop(commands);
        let reply = line.ask(WorkerCommand::End);
        assert!(matches!(reply, Ok(Reply::Done)), "{reply:?}");
    }
}
