// SPDX-License-Identifier: Apache-2.0
//! Counters of the packet path. Each block is written by one forwarding thread, in cache lines of its own, and read by
//! the control thread at any time: a plain load and store, no exchange. They only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_tables::drops::{PortDrop, RouterDrop};
use quietwire_tables::named;
use quietwire_tables::route::{Punt, Tally};

/// Numbers that ports can have: DPDK's own limit (RTE_MAX_ETHPORTS as Debian builds it).
pub(crate) const PORTS_MAX: usize = 32;

/// A number that one thread adds to and others read.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds; called by the one thread that owns the counter.
    #[inline(always)]
    pub(crate) fn add(&self, count: u64) {
        if count > 0 {
            let now = self.0.load(Ordering::Relaxed);
            self.0.store(now.wrapping_add(count), Ordering::Relaxed);
        }
    }

    /// Sets to a count that the owning thread keeps for itself.
    #[inline(always)]
    pub(crate) fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What one thread did with the frames of one port, in the order in which it is needed most often. What went wrong is counted
/// where [`PortDrop`] says.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct PortCounters {
    pub(crate) rx_frames: Counter,
    pub(crate) rx_octets: Counter,
    pub(crate) tx_frames: Counter,
    pub(crate) tx_octets: Counter,
    /// By [`PortDrop`]; those that drivers count stay 0.
    drops: [Counter; PortDrop::ALL.len()],
    pub(crate) flooded: Counter,
    pub(crate) learned: Counter,
    pub(crate) moved: Counter,
    pub(crate) not_learned: Counter,
    /// Moved more often than an address may.
    pub(crate) flapped: Counter,
    /// Not learned since it has a static entry on another port.
    pub(crate) static_elsewhere: Counter,
    /// Sent with TCP data uncut.
    pub(crate) uncut: Counter,
    /// Cut into segments, which are counted as frames sent.
    pub(crate) segmented: Counter,
}

impl PortCounters {
    /// Counter of the frames dropped for a reason.
    #[inline(always)]
    pub(crate) const fn dropped(&self, reason: PortDrop) -> &Counter {
        &self.drops[reason as usize]
    }
}

/// What one thread did as a router.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RouterCounters {
    pub(crate) forwarded: Counter,
    pub(crate) fragmented: Counter,
    /// Frames with TCP data that were cut into segments before they were routed.
    pub(crate) segmented: Counter,
    /// By [`Punt`].
    pub(crate) punted: [Counter; Punt::ALL.len()],
    /// By [`RouterDrop`].
    pub(crate) dropped: [Counter; RouterDrop::ALL.len()],
    /// Packets for the service thread that it had no room for.
    pub(crate) service_full: Counter,
    /// Packets that were to go on and could not: no buffer, no output, no room.
    pub(crate) not_sent: Counter,
}

impl RouterCounters {
    #[inline(always)]
    pub(crate) fn count(&self, tally: &Tally) {
        self.forwarded.add(tally.forwarded);
        self.fragmented.add(tally.fragmented);
        for (counter, count) in self.punted.iter().zip(tally.punted) {
            counter.add(count);
        }
        for (counter, count) in self.dropped.iter().zip(tally.dropped) {
            counter.add(count);
        }
    }

    pub(crate) fn dropped(&self, reason: RouterDrop, count: u64) {
        if let Some(counter) = self.dropped.get(reason as usize) {
            counter.add(count);
        }
    }
}

named! {
    /// What a forwarding thread spends its time on, in the order in which a frame meets it.
    pub(crate) enum Step {
        /// Turns that found nothing at any queue.
        Idle = "idle";
        /// Looking at queues and receiving, in turns that found something.
        Receive = "receive";
        /// Looking at the rules of ports.
        Filter = "filter";
        /// Deciding as a bridge.
        Bridge = "bridge";
        /// Deciding as a router.
        Route = "route";
        /// Doing to frames what was decided, and sorting them by output.
        Rewrite = "rewrite";
        /// Handing frames to drivers and to other threads, and freeing those that are dropped.
        Send = "send";
        /// Sending for the service thread and for other forwarding threads.
        Relay = "relay";
        /// Obeying the control thread.
        Control = "control";
    }
}

/// What one step cost.
#[derive(Debug, Default)]
pub(crate) struct StepCounters {
    /// Ticks of the time stamp counter.
    pub(crate) cycles: Counter,
    /// Bursts worked on.
    pub(crate) bursts: Counter,
    /// Frames in them.
    pub(crate) frames: Counter,
}

/// What each step cost.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Steps([StepCounters; Step::ALL.len()]);

impl Steps {
    #[inline(always)]
    pub(crate) const fn of(&self, step: Step) -> &StepCounters {
        &self.0[step as usize]
    }
}

/// What one forwarding thread did.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    /// Looks at receive queues.
    pub(crate) polls: Counter,
    /// Those that found nothing.
    pub(crate) empty_polls: Counter,
    /// Times that the CPU was yielded, or the thread slept.
    pub(crate) yields: Counter,
    /// Where the time went.
    pub(crate) steps: Steps,
    /// As a router.
    pub(crate) router: RouterCounters,
    /// By number of the port.
    pub(crate) ports: Box<[PortCounters]>,
}

impl ThreadCounters {
    pub(crate) fn new() -> Self {
        Self {
            polls: Counter::default(),
            empty_polls: Counter::default(),
            yields: Counter::default(),
            steps: Steps::default(),
            router: RouterCounters::default(),
            ports: (0..PORTS_MAX).map(|_| PortCounters::default()).collect(),
        }
    }
}

/// Sizes of bursts that are counted apart: 1, 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, 33 to 64 frames.
pub(crate) const BURST_SIZES: usize = 7;

/// What one receive queue cost, whichever thread serves it. Written by that thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    /// Looks that found frames, by how many: up to 1, 2, 4, 8, 16, 32, 64.
    bursts: [Counter; BURST_SIZES],
    /// Frames received.
    pub(crate) frames: Counter,
    /// Ticks of the time stamp counter spent on them.
    pub(crate) cycles: Counter,
}

impl QueueCounters {
    /// A look found so many frames, at least one.
    #[inline(always)]
    pub(crate) fn found(&self, frames: usize) {
        let size = (frames.max(1) - 1).checked_ilog2().map_or(0, |log| log + 1) as usize;
        if let Some(bursts) = self.bursts.get(size) {
            bursts.add(1);
        }
        self.frames.add(frames as u64);
    }

    /// Bursts by size.
    pub(crate) fn burst_sizes(&self) -> [u64; BURST_SIZES] {
        std::array::from_fn(|size| self.bursts.get(size).map_or(0, Counter::get))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bursts_are_counted_by_their_size() {
        let counters = QueueCounters::default();
        for frames in 1..=64 {
            counters.found(frames);
        }
        assert_eq!(counters.burst_sizes(), [1, 1, 2, 4, 8, 16, 32]);
        assert_eq!(counters.frames.get(), 64 * 65 / 2);
    }

    #[test]
    fn each_step_has_counters_of_its_own() {
        let steps = Steps::default();
        for step in Step::ALL {
            assert_eq!(Step::ALL.get(step as usize), Some(&step));
            steps.of(step).cycles.add(1 + step as u64);
        }
        let seen = Step::ALL.map(|step| steps.of(step).cycles.get());
        assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
