// SPDX-License-Identifier: Apache-2.0
//! Counters of the packet path. Each block is written by one forwarding thread, in cache lines of its own, and read by
//! the control thread at any time: a plain load and store, no exchange. They only grow.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::route::{DropReason, Punt, Tally};

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

/// What one thread did with the frames of one port. What went wrong is counted where the frame came in, except
/// `tx_full` and `no_output`, which are counted where it would have gone out or came in last.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct PortCounters {
    pub(crate) rx_frames: Counter,
    pub(crate) rx_octets: Counter,
    pub(crate) tx_frames: Counter,
    pub(crate) tx_octets: Counter,
    /// The transmit queue had no room.
    pub(crate) tx_full: Counter,
    /// Shorter than an Ethernet header.
    pub(crate) short: Counter,
    /// The destination is where the frame came from.
    pub(crate) filtered: Counter,
    /// To an address that bridges do not forward.
    pub(crate) reserved: Counter,
    /// To a port that this thread has no queue of.
    pub(crate) no_output: Counter,
    pub(crate) flooded: Counter,
    pub(crate) learned: Counter,
    pub(crate) moved: Counter,
    pub(crate) not_learned: Counter,
    /// Moved more often than an address may.
    pub(crate) flapped: Counter,
    /// Not learned since it has a static entry on another port.
    pub(crate) static_elsewhere: Counter,
    /// Tagged where that is not admitted, or the other way round.
    pub(crate) frame_type: Counter,
    /// Of a VLAN that the port is not in.
    pub(crate) not_member: Counter,
    /// To a port that is not in the VLAN.
    pub(crate) no_member: Counter,
    /// To a port of the same split-horizon group.
    pub(crate) split_horizon: Counter,
    /// Of a kind that is flooded nowhere.
    pub(crate) not_flooded: Counter,
    /// Over the port's limits.
    pub(crate) storm_unknown_unicast: Counter,
    pub(crate) storm_broadcast: Counter,
    pub(crate) storm_multicast: Counter,
    /// Of a source over the port's learning limit.
    pub(crate) over_limit: Counter,
}

/// What one thread did as a router.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RouterCounters {
    pub(crate) forwarded: Counter,
    pub(crate) fragmented: Counter,
    /// By [`Punt`].
    pub(crate) punted: [Counter; Punt::ALL.len()],
    /// By [`DropReason`].
    pub(crate) dropped: [Counter; DropReason::ALL.len()],
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

    pub(crate) fn dropped(&self, reason: DropReason, count: u64) {
        if let Some(counter) = self.dropped.get(reason as usize) {
            counter.add(count);
        }
    }

    pub(crate) fn absorb(&self, ended: &Self) {
        for (counter, ended) in self.each().zip(ended.each()) {
            counter.add(ended.get());
        }
    }

    fn each(&self) -> impl Iterator<Item = &Counter> {
        [
            &self.forwarded,
            &self.fragmented,
            &self.service_full,
            &self.not_sent,
        ]
        .into_iter()
        .chain(&self.punted)
        .chain(&self.dropped)
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
    /// Times that the CPU was yielded.
    pub(crate) yields: Counter,
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
            router: RouterCounters::default(),
            ports: (0..PORTS_MAX).map(|_| PortCounters::default()).collect(),
        }
    }
}

impl PortCounters {
    /// All counters, in the order of their definition.
    fn each(&self) -> [&Counter; 24] {
        [
            &self.rx_frames,
            &self.rx_octets,
            &self.tx_frames,
            &self.tx_octets,
            &self.tx_full,
            &self.short,
            &self.filtered,
            &self.reserved,
            &self.no_output,
            &self.flooded,
            &self.learned,
            &self.moved,
            &self.not_learned,
            &self.flapped,
            &self.static_elsewhere,
            &self.frame_type,
            &self.not_member,
            &self.no_member,
            &self.split_horizon,
            &self.not_flooded,
            &self.storm_unknown_unicast,
            &self.storm_broadcast,
            &self.storm_multicast,
            &self.over_limit,
        ]
    }
}

impl ThreadCounters {
    /// Adds what a thread counted that has ended. Called by the one thread that owns this.
    pub(crate) fn absorb(&self, ended: &Self) {
        self.router.absorb(&ended.router);
        for (port, ended) in self.ports.iter().zip(&ended.ports) {
            for (sum, counter) in port.each().into_iter().zip(ended.each()) {
                sum.add(counter.get());
            }
        }
    }
}

/// What one receive queue cost, whichever thread serves it. Written by that thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    /// Looks that found frames.
    pub(crate) bursts: Counter,
    /// Frames received.
    pub(crate) frames: Counter,
    /// Ticks of the time stamp counter spent on them.
    pub(crate) cycles: Counter,
}
