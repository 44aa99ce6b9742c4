// SPDX-License-Identifier: Apache-2.0
//! Frame exchange between the forwarding threads and the service thread.

use quietwire_dpdk::ring::{FrameReceiver, FrameSender};
use quietwire_dpdk::{BURST_MAX, Burst, Eal, Mbuf, Mempool};

use crate::forward::Mark;
use crate::observe::Tracer;

/// The service thread's ends of the rings.
#[derive(Debug)]
pub(crate) struct Exchange {
    eal: Eal,
    pool: Option<Mempool>,
    /// One ring per forwarding thread, by CPU.
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

    /// Adds the ring of the thread on this CPU.
    pub(crate) fn add_thread(&mut self, cpu: u32, frames: FrameReceiver) {
        self.punts.push((cpu, frames));
    }

    pub(crate) fn del_thread(&mut self, cpu: u32) {
        self.punts.retain(|(one, _)| *one != cpu);
    }

    /// Sets the ring for frames to forwarding threads.
    pub(crate) fn set_injected(&mut self, frames: Option<FrameSender>) {
        self.injected = frames;
    }

    /// Receives at most one burst per thread. Each frame has its mark and, if it is traced, its number in the trace.
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

    /// Queues a frame for [`Self::send`]. Returns false if no ring or buffer is available.
    pub(super) fn push(&mut self, mark: Mark, octets: &[u8]) -> bool {
        let Some(pool) = &self.pool else {
            return false;
        };
        if self.waiting.space() == 0 {
            // Frames that do not fit are lost; the caller of `send` counts them.
            return false;
        }
        let Some(mut frame) = Mbuf::new(&self.eal, pool, octets) else {
            return false;
        };
        frame.set_mark(mark.number());
        self.waiting.push(frame).is_ok()
    }

    /// Sends the queued frames. Returns the number of frames lost because the ring was full.
    pub(super) fn send(&mut self) -> u64 {
        if let Some(injected) = &mut self.injected {
            injected.send(&mut self.waiting);
        }
        let lost = self.waiting.len() as u64;
        self.waiting.free();
        lost
    }

    pub(super) fn is_full(&self) -> bool {
        self.waiting.space() == 0
    }
}
