// SPDX-License-Identifier: Apache-2.0
//! The loop of a forwarding thread: receive a burst, decide, send, count; run to completion.
//!
//! On this path there is no lock, no allocation, no system call (other than `sched_yield` when that was asked
//! for) and no loop without a bound. Frames that an output does not take at once are dropped and counted:
//! waiting for one output would delay all others.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use quietwire_dpdk::{BURST_MAX, Burst, RxQueue, TxQueue};
use quietwire_packet::ETHERNET_HEADER_LENGTH;

use crate::bridge::{Decision, Decisions, decide};
use crate::config::Idle;
use crate::counters::{PortCounters, ThreadCounters};
use crate::fdb::Fdb;

/// What forwarding threads read of the others.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Set once, to end all threads.
    pub(crate) stop: Arc<AtomicBool>,
    /// The coarse clock: seconds since the switch started.
    pub(crate) now_s: AtomicU32,
}

/// What is done with the frames of a receive queue.
#[derive(Debug)]
pub(crate) enum Stage {
    /// All go out of one port.
    CrossConnect {
        /// Its number.
        output: usize,
    },
    /// They are bridged.
    Bridge {
        /// Addresses of the bridge.
        fdb: Arc<Fdb>,
        /// Numbers of its other ports.
        others: Vec<usize>,
    },
}

/// A receive queue and what is done with its frames.
#[derive(Debug)]
pub(crate) struct Input {
    pub(crate) rx: RxQueue,
    /// Number of the port.
    pub(crate) port: usize,
    pub(crate) stage: Stage,
}

/// A transmit queue and the frames that wait for the end of the burst.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) tx: TxQueue,
    pub(crate) waiting: Burst,
}

/// Everything that one forwarding thread has.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) inputs: Vec<Input>,
    /// By number of the port; only those that this thread sends to.
    pub(crate) outputs: Vec<Option<Output>>,
    pub(crate) received: Burst,
    pub(crate) decisions: Decisions,
    pub(crate) idle: Idle,
    pub(crate) counters: Arc<ThreadCounters>,
}

/// Looks in vain at all queues before the CPU is yielded.
const TURNS_BEFORE_YIELD: u32 = 32;

/// Forwards until it is told to stop.
pub(crate) fn run(worker: &mut Worker, shared: &Shared) {
    let (mut polls, mut empty_polls, mut yields) = (0, 0, 0);
    let mut idle_turns = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let empty = turn(worker, shared);
        let inputs = worker.inputs.len() as u64;
        polls += inputs;
        empty_polls += empty;
        worker.counters.polls.set(polls);
        worker.counters.empty_polls.set(empty_polls);
        if empty < inputs {
            idle_turns = 0;
        } else if worker.idle == Idle::Yield {
            idle_turns += 1;
            if idle_turns >= TURNS_BEFORE_YIELD {
                std::thread::yield_now();
                yields += 1;
                worker.counters.yields.set(yields);
            }
        }
    }
}

/// Serves each receive queue once; returns how many had nothing.
#[inline(always)]
fn turn(worker: &mut Worker, shared: &Shared) -> u64 {
    let mut empty = 0;
    for input in &mut worker.inputs {
        if input.rx.receive(&mut worker.received, BURST_MAX) == 0 {
            empty += 1;
            continue;
        }
        let mut path = Path {
            received: &mut worker.received,
            outputs: &mut worker.outputs,
            counters: &worker.counters.ports,
        };
        match &input.stage {
            Stage::CrossConnect { output } => path.cross_connect(input.port, *output),
            Stage::Bridge { fdb, others } => {
                let now_s = shared.now_s.load(Ordering::Relaxed);
                path.bridge(input.port, fdb, others, now_s, &mut worker.decisions);
            }
        }
        // Whatever a stage has left would be sent a second time.
        worker.received.free();
    }
    empty
}

/// One burst on its way through.
struct Path<'worker> {
    received: &'worker mut Burst,
    outputs: &'worker mut [Option<Output>],
    counters: &'worker [PortCounters],
}

/// Octets of a burst, and how many of its frames are shorter than an Ethernet header.
#[inline(always)]
fn measure(burst: &Burst) -> (u64, u64) {
    let (mut octets, mut short) = (0, 0);
    for length in burst.lengths() {
        octets += u64::from(length);
        short += u64::from(length < ETHERNET_HEADER_LENGTH as u32);
    }
    (octets, short)
}

impl Path<'_> {
    #[inline(always)]
    fn cross_connect(&mut self, input: usize, output: usize) {
        let (octets, short) = measure(self.received);
        let frames = self.received.len() as u64;
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames);
            counters.rx_octets.add(octets);
            counters.short.add(short);
        }
        if short == 0 {
            self.send_all(input, output, octets);
        } else {
            self.send_sound(output);
        }
    }

    /// Sends the burst as it is.
    #[inline(always)]
    fn send_all(&mut self, input: usize, output: usize, octets: u64) {
        match (self.outputs.get_mut(output), self.counters.get(output)) {
            (Some(Some(place)), Some(counters)) => {
                transmit(&mut place.tx, self.received, octets, counters);
            }
            _ => self.no_output(input),
        }
    }

    /// Sends the frames that have an Ethernet header.
    #[cold]
    fn send_sound(&mut self, output: usize) {
        if let Some(Some(place)) = self.outputs.get_mut(output) {
            for frame in self.received.drain() {
                if frame.length() >= ETHERNET_HEADER_LENGTH as u32 {
                    // There is room: a burst came in, and less goes out.
                    drop(place.waiting.push(frame));
                }
            }
        }
        self.flush(output);
    }

    #[inline(always)]
    fn bridge(
        &mut self,
        input: usize,
        fdb: &Fdb,
        others: &[usize],
        now_s: u32,
        decisions: &mut Decisions,
    ) {
        let (octets, _) = measure(self.received);
        let frames = self.received.len() as u64;
        let tally = decide(fdb, input as u16, now_s, self.received.frames(), decisions);
        if let Some(counters) = self.counters.get(input) {
            counters.rx_frames.add(frames);
            counters.rx_octets.add(octets);
            counters.short.add(tally.short);
            counters.filtered.add(tally.filtered);
            counters.reserved.add(tally.reserved);
            counters.flooded.add(tally.flooded);
            counters.learned.add(tally.learned);
            counters.moved.add(tally.moved);
            counters.not_learned.add(tally.not_learned);
        }
        match (decisions.sole(), others) {
            (Some(Decision::Forward(output)), _) => {
                self.send_all(input, usize::from(output), octets);
            }
            (Some(Decision::Flood), [output]) => self.send_all(input, *output, octets),
            (Some(Decision::Drop(_)), _) => self.received.free(),
            _ => self.distribute(input, others, decisions.as_slice()),
        }
    }

    /// Sends each frame where it was decided, and then all outputs' bursts.
    fn distribute(&mut self, input: usize, others: &[usize], decisions: &[Decision]) {
        let mut lost = 0;
        for (frame, decision) in self.received.drain().zip(decisions) {
            let ports: &[usize] = match decision {
                Decision::Forward(output) => &[usize::from(*output)],
                Decision::Flood => others,
                Decision::Drop(_) => continue,
            };
            let Some((last, ports)) = ports.split_last() else {
                continue;
            };
            for port in ports {
                match self.outputs.get_mut(*port) {
                    // There is room: each output gets at most the burst that came in.
                    Some(Some(place)) => drop(place.waiting.push(frame.share())),
                    _ => lost += 1,
                }
            }
            match self.outputs.get_mut(*last) {
                Some(Some(place)) => drop(place.waiting.push(frame)),
                _ => lost += 1,
            }
        }
        if let Some(counters) = self.counters.get(input) {
            counters.no_output.add(lost);
        }
        for output in others {
            self.flush(*output);
        }
    }

    /// Sends what waits for an output.
    #[inline(always)]
    fn flush(&mut self, output: usize) {
        if let (Some(Some(place)), Some(counters)) =
            (self.outputs.get_mut(output), self.counters.get(output))
            && !place.waiting.is_empty()
        {
            let (octets, _) = measure(&place.waiting);
            transmit(&mut place.tx, &mut place.waiting, octets, counters);
        }
    }

    #[cold]
    fn no_output(&mut self, input: usize) {
        if let Some(counters) = self.counters.get(input) {
            counters.no_output.add(self.received.len() as u64);
        }
        self.received.free();
    }
}

/// Sends a burst of so many octets and drops what the queue does not take.
#[inline(always)]
fn transmit(tx: &mut TxQueue, burst: &mut Burst, octets: u64, counters: &PortCounters) {
    let sent = tx.send(burst) as u64;
    let mut sent_octets = octets;
    if !burst.is_empty() {
        sent_octets -= measure(burst).0;
        counters.tx_full.add(burst.len() as u64);
        burst.free();
    }
    counters.tx_frames.add(sent);
    counters.tx_octets.add(sent_octets);
}
