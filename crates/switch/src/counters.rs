// SPDX-License-Identifier: Apache-2.0
//! Packet path counters. One forwarding thread writes each block, which has its own cache lines. The control thread reads it at any time
//! with a plain load. Counters never decrease.

pub(crate) use quietwire_base::Counter;
use quietwire_tables::drops::{PortDrop, RouterDrop};
use quietwire_tables::filter::RuleEffect;
use quietwire_tables::named;
use quietwire_tables::port_mask::PortMask;
use quietwire_tables::route::{Punt, Tally};

/// Maximum number of ports of a switch. Those that have a driver of DPDK are at most [`quietwire_dpdk::DEVICES_MAX`].
pub const PORTS_MAX: usize = PortMask::PORTS;

/// Counters of dropped frames, by reason.
#[derive(Debug)]
struct DropCounters([Counter; PortDrop::ALL.len()]);

impl Default for DropCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

/// Counters of one thread for one port, most frequently used first. [`PortDrop`] defines at which port a drop is counted.
#[derive(Debug, Default)]
#[repr(C, align(128))]
pub(crate) struct PortCounters {
    pub(crate) rx_frames: Counter,
    pub(crate) rx_octets: Counter,
    pub(crate) tx_frames: Counter,
    pub(crate) tx_octets: Counter,
    /// Drops by [`PortDrop`]. Reasons that drivers count stay 0.
    drops: DropCounters,
    pub(crate) flooded: Counter,
    pub(crate) learned: Counter,
    pub(crate) moved: Counter,
    pub(crate) not_learned: Counter,
    /// Moves of addresses beyond the flap limit.
    pub(crate) flapped: Counter,
    /// Addresses not learned because of a static entry on another port.
    pub(crate) static_elsewhere: Counter,
    /// Frames sent with unsegmented TCP data.
    pub(crate) tx_tso_frames: Counter,
    /// Frames cut into segments. The segments are counted as frames sent.
    pub(crate) segmented: Counter,
    /// TCP segments and UDP datagrams that left merged with others. The merged frames are counted as frames sent.
    pub(crate) merged: Counter,
    /// Frames by effect of the filter rules.
    effects: [Counter; RuleEffect::ALL.len()],
}

impl PortCounters {
    /// Returns the counter of frames dropped for a reason.
    #[expect(clippy::indexing_slicing, reason = "each reason has its counter")]
    #[inline(always)]
    pub(crate) const fn dropped(&self, reason: PortDrop) -> &Counter {
        &self.drops.0[reason as usize]
    }

    /// Counts received frames that are dropped for a reason before the stage that counts received frames.
    pub(crate) fn drop_received(&self, reason: PortDrop, frames: u64, octets: u64) {
        self.dropped(reason).add(frames);
        self.rx_frames.add(frames);
        self.rx_octets.add(octets);
    }

    /// Returns the counter of an effect of the filter rules.
    #[expect(clippy::indexing_slicing, reason = "each effect has its counter")]
    pub(crate) const fn effect(&self, effect: RuleEffect) -> &Counter {
        &self.effects[effect as usize]
    }
}

/// Router counters of one thread.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct RouterCounters {
    pub(crate) forwarded: Counter,
    pub(crate) fragmented: Counter,
    /// Frames with TCP data that were cut into segments before routing.
    pub(crate) segmented: Counter,
    /// Punted packets by [`Punt`].
    pub(crate) punted: [Counter; Punt::ALL.len()],
    /// Dropped packets by [`RouterDrop`].
    pub(crate) dropped: [Counter; RouterDrop::ALL.len()],
    /// Packets lost because the ring to the service thread was full, or half full with those of the same interface.
    pub(crate) service_full: Counter,
    /// Packets lost on transmit: no buffer, no output, or a full queue.
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
    /// Steps of a forwarding thread, in the order in which a frame passes them.
    pub(crate) enum Step {
        /// Turns in which all queues were empty.
        Idle = "idle";
        /// Polling and receiving, in turns that received frames.
        Receive = "receive";
        /// Applying filter rules.
        Filter = "filter";
        /// Bridge decisions.
        Bridge = "bridge";
        /// Router decisions.
        Route = "route";
        /// Rewriting frames and sorting them by output.
        Rewrite = "rewrite";
        /// Handing frames to drivers and to other threads, and freeing dropped frames.
        Send = "send";
        /// Sending for the service thread and for other forwarding threads.
        Relay = "relay";
        /// Executing orders of the control thread.
        Control = "control";
    }
}

/// Cost of one step.
#[derive(Debug, Default)]
pub(crate) struct StepCounters {
    /// Ticks of the time stamp counter.
    pub(crate) cycles: Counter,
    /// Bursts processed.
    pub(crate) bursts: Counter,
    /// Frames in them.
    pub(crate) frames: Counter,
}

/// Cost of each step.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Steps([StepCounters; Step::ALL.len()]);

impl Steps {
    #[expect(clippy::indexing_slicing, reason = "each step has its counters")]
    #[inline(always)]
    pub(crate) const fn of(&self, step: Step) -> &StepCounters {
        &self.0[step as usize]
    }
}

/// Counters of one forwarding thread.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct ThreadCounters {
    /// Turns of the thread's loop. They increase as long as the thread runs, also without queues.
    pub(crate) turns: Counter,
    /// Polls of receive queues.
    pub(crate) polls: Counter,
    /// Polls that returned no frame.
    pub(crate) empty_polls: Counter,
    /// Number of times the thread yielded the CPU or slept.
    pub(crate) yields: Counter,
    /// Time by step.
    pub(crate) steps: Steps,
    /// Router counters.
    pub(crate) router: RouterCounters,
    /// Port counters, by number of the port.
    pub(crate) ports: Box<[PortCounters]>,
}

impl ThreadCounters {
    pub(crate) fn new() -> Self {
        Self {
            turns: Counter::default(),
            polls: Counter::default(),
            empty_polls: Counter::default(),
            yields: Counter::default(),
            steps: Steps::default(),
            router: RouterCounters::default(),
            ports: (0..PORTS_MAX).map(|_| PortCounters::default()).collect(),
        }
    }
}

/// Number of burst size classes: 1, 2, 3 to 4, 5 to 8, 9 to 16, 17 to 32, 33 to 64 frames.
pub(crate) const BURST_SIZES: usize = 7;

/// Counters of one receive queue, written by the thread that serves it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct QueueCounters {
    /// Non-empty polls by burst size: up to 1, 2, 4, 8, 16, 32, 64 frames.
    bursts: [Counter; BURST_SIZES],
    /// Frames received.
    pub(crate) frames: Counter,
    /// Ticks of the time stamp counter spent on its frames.
    pub(crate) cycles: Counter,
}

impl QueueCounters {
    /// Counts a poll that returned this number of frames, at least one.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at least 1, and a logarithm below 64"
    )]
    #[inline(always)]
    pub(crate) fn found(&self, frames: usize) {
        let size = (frames.max(1) - 1).checked_ilog2().map_or(0, |log| log + 1) as usize;
        if let Some(bursts) = self.bursts.get(size) {
            bursts.add(1);
        }
        self.frames.add(frames as u64);
    }

    /// Returns the number of bursts by size class.
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
        let observed = Step::ALL.map(|step| steps.of(step).cycles.get());
        assert_eq!(observed, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    }
}
