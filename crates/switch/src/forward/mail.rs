// SPDX-License-Identifier: Apache-2.0
//! How the control thread and a forwarding thread talk: orders one way, a reply to each order the other way, both over
//! bounded rings between one writer and one reader. A forwarding thread allocates and frees nothing for it: whatever an
//! order replaces travels back with the reply and is dropped by the control thread.

use std::sync::Arc;
use std::time::{Duration, Instant};

use quietwire_dpdk::Bell;
use quietwire_dpdk::ring::FrameReceiver;
use rtrb::{Consumer, Producer, RingBuffer};

use super::input::Input;
use super::output::{Output, Relay};
use super::route::Domain;
use super::segment::Cutter;
use super::stage::Stage;
use crate::error::SwitchError;
use crate::observe::{CaptureTap, Tracer};

/// Orders on their way at once.
const ORDERS: usize = 256;
/// How long a forwarding thread may take to answer: it looks once a turn, and may have been kept from its CPU.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_micros(20);

/// What a forwarding thread is told.
#[derive(Debug)]
#[allow(clippy::vec_box)]
pub(crate) enum Order {
    /// Serve this receive queue from now on.
    Adopt(Box<Input>),
    /// Give the receive queue back, everything received from it sent.
    Release {
        /// Number of the port.
        port: u16,
        /// Number of its receive queue.
        queue: u16,
    },
    /// Do this with the frames of a port from now on.
    Stage {
        /// Number of the port.
        port: u16,
        /// What to do.
        stage: Arc<Stage>,
    },
    /// Send to a port this way from now on, or not any more.
    Output {
        /// Number of the port.
        port: u16,
        /// The way.
        output: Option<Box<Output>>,
    },
    /// Send for another thread, which has no transmit queue of its own at a port.
    Relay(Box<Relay>),
    /// Send no more to this port for others; frames still in the rings are sent first.
    EndRelays {
        /// Number of the port.
        port: u16,
    },
    /// Send the last frames of rings whose writer is gone, and give the rings back.
    EndAbandonedRelays,
    /// Send what is in the rings of other threads, all of it that is there now: before a queue is served by another
    /// thread, so that no frame overtakes one that its former thread put into a ring.
    DrainRelays,
    /// Take the place of the thread that sent to a port for others: at once, so that no frame of this thread overtakes
    /// one that it put into a ring before.
    Inherit {
        /// Number of the port.
        port: u16,
        /// The transmit queue, unless this thread has one already.
        output: Option<Box<Output>>,
        /// The rings.
        relays: Vec<Box<Relay>>,
    },
    /// Know the router and its bridges like this from now on.
    Domain(Option<Arc<Domain>>),
    /// Send what is in this ring of the service thread's from now on, or send for it no more.
    Inject(Option<Box<FrameReceiver>>),
    /// Copy frames for a capture from now on, or no more.
    Capture(Option<Box<CaptureTap>>),
    /// Follow frames for a trace from now on, or no more.
    Trace(Option<Box<Tracer>>),
    /// Expect frames with TCP data of any length from now on: see [`super::Cutter`].
    Cut(Cutter),
    /// Do nothing: the reply says that everything begun before is done.
    Nothing,
    /// End: the thread gives everything back by ending.
    End,
}

/// What a forwarding thread answers, one reply to each order.
#[derive(Debug)]
pub(crate) enum Reply {
    /// Done, and nothing comes back.
    Done,
    /// The receive queue; `None` when the thread did not have it.
    Input(Option<Box<Input>>),
    /// The way that was replaced.
    Output(Option<Box<Output>>),
    /// Rings that are not read any more.
    #[allow(clippy::vec_box)]
    Relays(Vec<Box<Relay>>),
    /// The way that was replaced, and the rings that there was no room for.
    #[allow(clippy::vec_box)]
    Inherited {
        /// To be dropped.
        _output: Option<Box<Output>>,
        /// Rings that are not read any more.
        left: Vec<Box<Relay>>,
    },
    /// What was known of the router.
    Domain {
        /// To be dropped.
        _former: Option<Arc<Domain>>,
    },
    /// The service thread's ring that was read.
    Injected {
        /// To be dropped.
        _former: Option<Box<FrameReceiver>>,
    },
    /// The capture that there was.
    Capture {
        /// To be dropped.
        _former: Option<Box<CaptureTap>>,
    },
    /// The trace that there was.
    Trace {
        /// To be dropped.
        _former: Option<Box<Tracer>>,
    },
    /// The order could not be carried out for want of room, and comes back.
    NoRoom(Order),
}

/// The control thread's end.
#[derive(Debug)]
pub(crate) struct Line {
    name: String,
    /// Of a thread that may sleep.
    bell: Option<Arc<Bell>>,
    orders: Producer<Order>,
    replies: Consumer<Reply>,
}

/// The forwarding thread's end.
#[derive(Debug)]
pub(crate) struct Mailbox {
    pub(super) orders: Consumer<Order>,
    pub(super) replies: Producer<Reply>,
}

/// Both ends of a line to the thread of this name.
pub(crate) fn line(name: &str, bell: Option<Arc<Bell>>) -> (Line, Mailbox) {
    let (order_writer, order_reader) = RingBuffer::new(ORDERS);
    let (reply_writer, reply_reader) = RingBuffer::new(ORDERS);
    let line = Line {
        name: name.to_owned(),
        bell,
        orders: order_writer,
        replies: reply_reader,
    };
    let mailbox = Mailbox {
        orders: order_reader,
        replies: reply_writer,
    };
    (line, mailbox)
}

impl Line {
    /// Gives an order and waits for the reply.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not answer in time, or has ended.
    pub(crate) fn ask(&mut self, order: Order) -> Result<Reply, SwitchError> {
        self.orders
            .push(order)
            .map_err(|_| self.silent("its orders pile up"))?;
        if let Some(bell) = &self.bell {
            bell.ring();
        }
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.replies.pop() {
                Ok(reply) => return Ok(reply),
                // It may have answered just before.
                Err(_) if self.replies.is_abandoned() => {
                    let last = self.replies.pop();
                    return last.map_err(|_| self.ended());
                }
                Err(_) if Instant::now() >= deadline => {
                    return Err(self.silent("it does not answer"));
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }

    fn ended(&self) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: "it has ended".to_owned(),
        }
    }

    fn silent(&self, what: &str) -> SwitchError {
        SwitchError::Thread {
            name: self.name.clone(),
            what: format!("{what}; this is a fault of the switch, or its CPU is taken away"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_has_ended_is_not_waited_for() {
        let (mut line, mailbox) = line("qw-fwd-1", None);
        let began = Instant::now();
        let thread = std::thread::spawn(move || {
            let mailbox = mailbox;
            // It ends without a look at its orders, as one that the stop flag ends.
            while mailbox.orders.is_empty() && began.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        });
        let error = line.ask(Order::End).unwrap_err();
        thread.join().unwrap();
        assert!(error.to_string().contains("it has ended"), "{error}");
    }

    #[test]
    fn the_last_answer_of_a_thread_arrives() {
        let (mut line, mut mailbox) = line("qw-fwd-1", None);
        mailbox.replies.push(Reply::Done).unwrap();
        drop(mailbox);
        let reply = line.ask(Order::End);
        assert!(matches!(reply, Ok(Reply::Done)), "{reply:?}");
    }
}
