// SPDX-License-Identifier: Apache-2.0
//! Frames between the forwarding threads and the service thread.

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool};

use crate::forward::Mark;
use crate::observe::Tracer;

/// The service thread's ends of the rings.
#[derive(Debug)]
pub(crate) struct Exchange {
    eal: Eal,
    pool: Option<Mempool>,
    /// One of each forwarding thread, by CPU.
    punts: Vec<(u32, FrameReceiver)>,
    injected: Option<FrameSender>,
    burst: Burst,
    waiting: Burst,
}

impl Exchange {
    pub(crate) fn new(eal: &Eal) -> Self {
        Self {
            eal: eal.clone(),
            pool: None,
            punts: Vec::new(),
            injected: None,
            burst: Burst::new(eal),
            waiting: Burst::new(eal),
        }
    }

    pub(crate) fn set_pool(&mut self, pool: Mempool) {
        self.pool = Some(pool);
    }

    /// Reads what the thread of this CPU hands over.
    pub(crate) fn add_thread(&mut self, cpu: u32, frames: FrameReceiver) {
        self.punts.push((cpu, frames));
    }

    pub(crate) fn del_thread(&mut self, cpu: u32) {
        self.punts.retain(|(one, _)| *one != cpu);
    }

    /// Sends by this ring from now on.
    pub(crate) fn set_injected(&mut self, frames: Option<FrameSender>) {
        self.injected = frames;
    }

    /// What was handed over: one burst of each thread at most.
    /// Each with its mark and, where somebody follows it, its number there.
    pub(super) fn receive(&mut self, tracer: Option<&Tracer>) -> Vec<(Mark, Vec<u8>, Option<u32>)> {
        let mut received = Vec::new();
        for (_, frames) in &mut self.punts {
            if frames.receive(&mut self.burst, BURST_MAX) == 0 {
                continue;
            }
            for frame in self.burst.drain() {
                if let Some(mark) = Mark::of_number(frame.mark()) {
                    let followed = tracer.and_then(|tracer| tracer.taken(frame.buffer()));
                    received.push((mark, frame.octets().to_vec(), followed));
                }
            }
        }
        received
    }

    /// Puts a frame to those that are sent with [`Self::send`]; false when it cannot be sent.
    pub(super) fn push(&mut self, mark: Mark, octets: &[u8]) -> bool {
        let Some(pool) = &self.pool else {
            return false;
        };
        if self.waiting.room() == 0 {
            // What there is no room for is lost, and counted by whoever looks at what `send` says.
            return false;
        }
        let Some(mut frame) = Mbuf::new(&self.eal, pool, octets) else {
            return false;
        };
        frame.set_mark(mark.number());
        self.waiting.push(frame).is_ok()
    }

    /// Sends what waits; returns how many frames were lost for want of room.
    pub(super) fn send(&mut self) -> u64 {
        if let Some(injected) = &mut self.injected {
            injected.send(&mut self.waiting);
        }
        let lost = self.waiting.len() as u64;
        self.waiting.free();
        lost
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.room() == 0
    }
}
