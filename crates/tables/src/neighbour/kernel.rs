// SPDX-License-Identifier: Apache-2.0
//! Neighbour information of the kernel, from the other side of a tap.
//!
//! A neighbour reachable for the kernel counts as if it had answered the router. From then on the router probes it itself, because
//! notifications of the kernel can be late. A permanent neighbour of the kernel holds until the kernel removes it. Static entries of an
//! operator take precedence over both.

use std::net::IpAddr;
use std::time::Duration;

use quietwire_packet::MacAddress;

use super::table::{Key, Neighbours};
use super::{Action, InterfaceInfo, Origin, State};

impl<P> Neighbours<P> {
    /// Adds a neighbour that the kernel has confirmed. A neighbour that cannot be on the link of the interface is ignored.
    pub fn kernel_has(
        &mut self,
        now: Duration,
        interface_info: &InterfaceInfo,
        address: IpAddr,
        (mac, is_permanent): (MacAddress, bool),
        out: &mut Vec<Action<P>>,
    ) {
        let is_station = !mac.is_multicast() && mac.to_u64() != 0 && mac != interface_info.mac;
        let key = (interface_info.number, address);
        let may_be_there = interface_info.is_on_link(address) || self.known(key).is_some();
        if !is_station || !interface_info.may_be_neighbour(address) || !may_be_there {
            return;
        }
        let state = if is_permanent {
            State::Permanent
        } else {
            State::Reachable
        };
        self.learn_from(now, key, mac, (state, Origin::Kernel), out);
    }

    /// Handles a neighbour that the kernel no longer confirms. A permanent one is removed; the router probes others.
    pub fn kernel_lost(
        &mut self,
        now: Duration,
        interface: u16,
        address: IpAddr,
        out: &mut Vec<Action<P>>,
    ) {
        let key = (interface, address);
        let Some(entry) = self.entries.get(&key) else {
            return;
        };
        match (entry.origin, entry.state) {
            (Origin::Kernel, State::Permanent) => {
                self.remove(interface, address, out);
            }
            (Origin::Kernel, State::Reachable) => self.start_probe(now, key),
            _ => {}
        }
    }

    /// Discards the kernel's information about an interface: its tap is gone.
    pub fn forget_kernel(&mut self, now: Duration, interface: u16, out: &mut Vec<Action<P>>) {
        let reported = self
            .entries
            .iter()
            .filter(|((on, _), entry)| *on == interface && entry.origin == Origin::Kernel);
        let reported: Vec<Key> = reported.map(|(key, _)| *key).collect();
        for (interface, address) in reported {
            self.kernel_lost(now, interface, address, out);
        }
    }
}
