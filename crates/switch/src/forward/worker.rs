// SPDX-License-Identifier: Apache-2.0
//! State of a forwarding thread, and its changes by orders between two turns.
// Inputs and relays are boxed because orders carry them: moving a box allocates nothing.
#![allow(clippy::vec_box)]

use std::sync::Arc;
use std::time::Duration;

use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mempool};

use super::doze::Doze;
use super::input::Input;
use super::mail::{Mailbox, Order, Reply};
use super::notes::Notes;
use super::output::{Output, Relay, Way};
use super::path::send_relayed;
use super::route::Routing;
use super::segment::{Cutter, CuttingQueue};
use super::stage::Stage;
use crate::config::Idle;
use crate::counters::{PORTS_MAX, Step, ThreadCounters};
use quietwire_tables::bridge::Decisions;

/// Maximum number of receive queues of a thread.
const INPUTS_MAX: usize = 1024;
/// Duration of a sleep between polls.
const NAP: Duration = Duration::from_micros(50);
/// Empty polls of all queues before a thread waits for interrupts: about 50 us, in which a busy peer sends more.
const TURNS_BEFORE_SLEEP: u32 = 512;
/// Maximum number of relay rings of a thread.
const RELAYS_MAX: usize = 256;

/// State of a forwarding thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(super) inputs: Vec<Box<Input>>,
    pub(super) relays: Vec<Box<Relay>>,
    /// Outputs by number of the port; only ports that this thread sends to.
    pub(super) outputs: Vec<Option<Box<Output>>>,
    pub(super) received: Burst,
    /// Accepted frames while the filter drops others. Empty between two steps.
    pub(super) kept: Burst,
    pub(super) decisions: Decisions,
    /// Pool for copies of frames.
    pub(super) copies: Mempool,
    pub(super) routing: Routing,
    pub(super) idle: Idle,
    /// Sleep state, if threads sleep until a receive interrupt.
    doze: Option<Doze>,
    pub(super) counters: Arc<ThreadCounters>,
    pub(super) notes: Notes,
    pub(super) mailbox: Mailbox,
    pub(super) ended: bool,
    eal: Eal,
}

impl Worker {
    pub(crate) fn new(
        eal: &Eal,
        copies: Mempool,
        routing: Routing,
        (idle, doze): (Idle, Option<Doze>),
        counters: Arc<ThreadCounters>,
        mailbox: Mailbox,
    ) -> Self {
        Self {
            inputs: Vec::with_capacity(INPUTS_MAX),
            relays: Vec::with_capacity(RELAYS_MAX),
            outputs: (0..PORTS_MAX).map(|_| None).collect(),
            received: Burst::new(eal),
            kept: Burst::new(eal),
            decisions: Decisions::default(),
            copies,
            routing,
            idle,
            doze,
            notes: Notes::new(Arc::clone(&counters)),
            counters,
            mailbox,
            ended: false,
            eal: eal.clone(),
        }
    }

    /// Yields the CPU or sleeps after this number of turns without frames. Returns false if the limit is not reached yet.
    #[inline(never)]
    pub(super) fn rest(&mut self, idle_turns: u32) -> bool {
        match self.idle {
            Idle::Poll | Idle::Yield => std::thread::yield_now(),
            Idle::Sleep => std::thread::sleep(NAP),
            Idle::Interrupt if self.hears_all() => {
                return idle_turns >= TURNS_BEFORE_SLEEP && self.sleep();
            }
            Idle::Interrupt => std::thread::sleep(NAP),
        }
        true
    }

    /// Returns whether every relay ring wakes this thread. Rings inherited from an ended thread ring the bell of that thread.
    fn hears_all(&self) -> bool {
        let Some(doze) = &self.doze else { return false };
        let mut relays = self.relays.iter();
        relays.all(|relay| relay.frames.rings(doze.bell()))
    }

    /// Arms the queues, or sleeps if they are armed already: the turn in between was empty.
    fn sleep(&mut self) -> bool {
        let Some(doze) = &mut self.doze else {
            return false;
        };
        if !doze.is_armed() {
            doze.arm(&mut self.inputs);
            return false;
        }
        doze.sleep();
        doze.disarm(&mut self.inputs);
        true
    }

    /// Disarms the queues if the thread was about to sleep.
    #[cold]
    pub(super) fn wake_up(&mut self) {
        if let Some(doze) = &mut self.doze
            && doze.is_armed()
        {
            doze.disarm(&mut self.inputs);
        }
    }

    /// Executes one order, if there is one. Runs between two turns, when no frame waits in any output.
    #[inline(always)]
    pub(super) fn obey(&mut self) {
        if !self.mailbox.orders.is_empty() {
            self.obey_one();
        }
    }

    #[cold]
    fn obey_one(&mut self) {
        let Ok(order) = self.mailbox.orders.pop() else {
            return;
        };
        // A queue that moves to another thread must not be armed.
        self.wake_up();
        let reply = self.carry_out(order);
        // The ring has room: each order has one reply, and the ring holds as many replies as there can be orders.
        drop(self.mailbox.replies.push(reply));
        self.notes.lap(Step::Control);
    }

    fn carry_out(&mut self, order: Order) -> Reply {
        match order {
            Order::Adopt(input) if self.inputs.len() == INPUTS_MAX => {
                Reply::NoRoom(Order::Adopt(input))
            }
            Order::Adopt(input) => {
                if let Some(doze) = &self.doze {
                    doze.adopt(&input.rx);
                }
                self.inputs.push(input);
                Reply::Done
            }
            Order::Release { port, queue } => Reply::Input(self.release(port, queue)),
            Order::Stage { port, stage } => {
                self.set_stage(port, &stage);
                Reply::Done
            }
            Order::Output { port, output } => Reply::Output(self.set_output(port, output)),
            Order::Relay(relay) if self.relays.len() == RELAYS_MAX => {
                Reply::NoRoom(Order::Relay(relay))
            }
            Order::Relay(relay) => {
                self.relays.push(relay);
                Reply::Done
            }
            Order::EndRelays { port } => Reply::Relays(self.end_relays(port)),
            Order::EndAbandonedRelays => Reply::Relays(self.end_abandoned_relays()),
            Order::DrainRelays => {
                self.drain_relays(|_| true);
                Reply::Done
            }
            Order::Inherit {
                port,
                output,
                mut relays,
            } => {
                let output = match output {
                    Some(output) => self.set_output(port, Some(output)),
                    None => None,
                };
                let room = RELAYS_MAX - self.relays.len();
                self.relays.extend(relays.drain(..room.min(relays.len())));
                self.drain_relays(|relay| relay.port == port);
                // The emptied list returns too and is not freed here.
                Reply::Inherited {
                    _output: output,
                    left: relays,
                }
            }
            Order::Domain(domain) => Reply::Domain {
                _former: std::mem::replace(&mut self.routing.domain, domain),
            },
            Order::Inject(frames) => Reply::Injected {
                _former: std::mem::replace(&mut self.routing.injected, frames),
            },
            Order::Capture(capture) => Reply::Capture {
                _former: self.notes.set_capture(capture),
            },
            Order::Trace(trace) => Reply::Trace {
                _former: self.notes.set_trace(trace),
            },
            Order::Cut(cutter) => {
                self.cut_from_now_on(&cutter);
                Reply::Done
            }
            Order::Nothing => Reply::Done,
            Order::End => {
                self.ended = true;
                Reply::Done
            }
        }
    }

    fn release(&mut self, port: u16, queue: u16) -> Option<Box<Input>> {
        let index = self
            .inputs
            .iter()
            .position(|input| input.port == port && input.queue == queue)?;
        let input = self.inputs.remove(index);
        if let Some(doze) = &self.doze {
            doze.release(&input.rx);
        }
        Some(input)
    }

    /// The control thread holds references to the former and to the new stage, so neither is freed here.
    fn set_stage(&mut self, port: u16, stage: &Arc<Stage>) {
        for input in self.inputs.iter_mut().filter(|input| input.port == port) {
            input.stage = Arc::clone(stage);
            input.storm = stage.storm();
        }
    }

    fn set_output(&mut self, port: u16, output: Option<Box<Output>>) -> Option<Box<Output>> {
        let place = self.outputs.get_mut(usize::from(port))?;
        std::mem::replace(place, output)
    }

    /// Enables segmentation. It allocates, which is acceptable for an operator's request outside the packet path.
    fn cut_from_now_on(&mut self, cutter: &Cutter) {
        for place in &mut self.outputs {
            if let Some(output) = place.take() {
                let Output { way, waiting } = *output;
                let way = match way {
                    Way::Queue(tx) => {
                        let queue = CuttingQueue::new(&self.eal, tx, cutter.clone());
                        Way::Cutting(Box::new(queue))
                    }
                    way => way,
                };
                *place = Some(Box::new(Output { way, waiting }));
            }
        }
        self.routing.cut_from_now_on(&self.eal, cutter);
    }

    fn end_relays(&mut self, port: u16) -> Vec<Box<Relay>> {
        self.drain_relays(|relay| relay.port == port);
        // It allocates, which is acceptable for an operator's request outside the packet path.
        self.relays
            .extract_if(.., |relay| relay.port == port)
            .collect()
    }

    fn end_abandoned_relays(&mut self) -> Vec<Box<Relay>> {
        self.drain_relays(|relay| relay.frames.is_abandoned());
        // It allocates, which is acceptable for an operator's request outside the packet path.
        self.relays
            .extract_if(.., |relay| {
                relay.frames.is_abandoned() && relay.frames.is_empty()
            })
            .collect()
    }

    /// Sends the frames that are in the rings now. Frames added meanwhile may stay.
    fn drain_relays(&mut self, which: impl Fn(&Relay) -> bool) {
        for relay in self.relays.iter_mut().filter(|relay| which(relay)) {
            let mut left = relay.frames.len();
            while left > 0 {
                let count = relay
                    .frames
                    .receive(&mut self.received, BURST_MAX.min(left));
                if count == 0 {
                    break;
                }
                left -= count;
                send_relayed(
                    &mut self.received,
                    &mut self.outputs,
                    &self.counters.ports,
                    &mut self.notes,
                    relay.port,
                );
            }
        }
    }
}
