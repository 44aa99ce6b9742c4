// SPDX-License-Identifier: Apache-2.0
//! What all forwarding threads have counted at a port, summed up.

use super::Engine;
use crate::bridge_view::{SUMMED, Sums};
use crate::counters::{Counter, PortCounters, ThreadCounters};
use crate::report::{Drops, PortCounts};

impl Engine {
    /// What all threads counted at ports of this number since the switch started.
    pub(crate) fn counted(&self, port: u16) -> PortCounts {
        let sum = |counter| self.sum(port, counter);
        PortCounts {
            name: String::new(),
            rx_frames: sum(|c| &c.rx_frames),
            rx_octets: sum(|c| &c.rx_octets),
            tx_frames: sum(|c| &c.tx_frames),
            tx_octets: sum(|c| &c.tx_octets),
            uncut: sum(|c| &c.uncut),
            segmented: sum(|c| &c.segmented),
            drops: Drops {
                short: sum(|c| &c.short),
                filtered: sum(|c| &c.filtered),
                reserved_address: sum(|c| &c.reserved),
                no_output: sum(|c| &c.no_output),
                tx_full: sum(|c| &c.tx_full),
                not_segmented: sum(|c| &c.not_segmented),
                frame_type: sum(|c| &c.frame_type),
                not_member: sum(|c| &c.not_member),
                no_member: sum(|c| &c.no_member),
                split_horizon: sum(|c| &c.split_horizon),
                not_flooded: sum(|c| &c.not_flooded),
                storm_unknown_unicast: sum(|c| &c.storm_unknown_unicast),
                storm_broadcast: sum(|c| &c.storm_broadcast),
                storm_multicast: sum(|c| &c.storm_multicast),
                over_limit: sum(|c| &c.over_limit),
                denied: sum(|c| &c.denied),
                ..Drops::default()
            },
        }
    }

    /// What is summed up for bridges, of one port.
    pub(crate) fn sums_of(&self, port: u16) -> Sums {
        SUMMED.map(|counter| self.sum(port, counter))
    }

    fn sum(&self, port: u16, counter: fn(&PortCounters) -> &Counter) -> u64 {
        let of = |counters: &ThreadCounters| {
            counters
                .ports
                .get(usize::from(port))
                .map_or(0, |port| counter(port).get())
        };
        self.counters().map(of).sum()
    }
}
