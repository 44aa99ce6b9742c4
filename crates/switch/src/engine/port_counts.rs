// SPDX-License-Identifier: Apache-2.0
//! Port counters, summed over all forwarding threads.

use super::Engine;
use crate::bridge_view::{SUMMED, Sums};
use crate::counters::{Counter, PortCounters, ThreadCounters};
use crate::report::{PortCounts, PortDrops, RuleEffects};

impl Engine {
    /// Returns the counts of all threads at ports with this number since the switch started.
    pub(crate) fn counted(&self, port: u16) -> PortCounts {
        let sum = |counter: fn(&PortCounters) -> &Counter| self.sum(port, counter);
        PortCounts {
            name: String::new(),
            rx_frames: sum(|c| &c.rx_frames),
            rx_octets: sum(|c| &c.rx_octets),
            tx_frames: sum(|c| &c.tx_frames),
            tx_octets: sum(|c| &c.tx_octets),
            tx_tso_frames: sum(|c| &c.tx_tso_frames),
            segmented: sum(|c| &c.segmented),
            merged: sum(|c| &c.merged),
            kernel_forwarded: 0,
            drops: PortDrops::of(|reason| self.sum(port, |one| one.dropped(reason))),
            effects: RuleEffects::of(|effect| self.sum(port, |one| one.effect(effect))),
        }
    }

    /// Returns the counters of one port that bridges sum.
    pub(crate) fn sums_of(&self, port: u16) -> Sums {
        SUMMED.map(|counter| self.sum(port, counter))
    }

    fn sum(&self, port: u16, counter: impl Fn(&PortCounters) -> &Counter) -> u64 {
        let of = |counters: &ThreadCounters| {
            counters
                .ports
                .get(usize::from(port))
                .map_or(0, |port| counter(port).get())
        };
        self.counters().map(of).sum()
    }
}
