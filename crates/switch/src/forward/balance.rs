// SPDX-License-Identifier: Apache-2.0
//! Load balancing of a forwarding thread, around the router: destinations before the routing decision, sources behind it. The control thread
//! makes all memory.

use std::net::SocketAddrV4;

use quietwire_packet::ETHERNET_HEADER_LENGTH;
use quietwire_tables::balance::{
    BackendUse, BalanceCounters, BalanceOutcome, BalancedChange, Balancers,
};
use quietwire_tables::drops::RouterDrop;
use quietwire_tables::nat::NatProtocol;

use super::nat::{NatCopy, ipv4, ipv4_offset};
use super::replicated::Replicated;

/// Entries of each table that are checked for expiry per burst, and when the thread gets an order without effect.
const EXPIRY_STEPS: usize = 16;
const EXPIRY_STEPS_OF_ORDER: usize = 4096;

/// All load balancers of a thread.
#[derive(Debug)]
pub(crate) struct BalanceStage {
    pub(crate) balancers: Balancers,
    /// Number of their VRF.
    pub(crate) vrf: u16,
}

/// A request of the control thread: the numbers of all load balancers. The lists have space for the results.
#[derive(Debug, Default)]
pub(crate) struct BalanceQuery {
    pub(crate) balancers: Vec<BalancerTotals>,
    /// Connections of an active switch and its standby, instead of the numbers.
    pub(crate) replicated: Option<ReplicatedBalancer>,
}

/// Connections of a load balancer, of an active switch and its standby.
#[derive(Debug)]
pub(crate) struct ReplicatedBalancer {
    pub(crate) protocol: NatProtocol,
    /// The virtual endpoint.
    pub(crate) endpoint: SocketAddrV4,
    /// Position in the table; `None` at the end.
    pub(crate) from: Option<u32>,
    /// Entries to read.
    pub(crate) budget: usize,
    pub(crate) replicated: Replicated<BalancedChange>,
}

/// Numbers of a load balancer.
#[derive(Debug, Default)]
pub(crate) struct BalancerTotals {
    pub(crate) connections: u64,
    pub(crate) counters: BalanceCounters,
    /// The forwarding thread never exceeds its capacity.
    pub(crate) backends: Vec<BackendUse>,
}

impl BalancerTotals {
    /// Adds the numbers of the same load balancer on another thread.
    pub(crate) fn add(&mut self, other: &Self) {
        self.connections += other.connections;
        self.counters.add(&other.counters);
        for other in &other.backends {
            let mut backends = self.backends.iter_mut();
            match backends.find(|one| one.backend.endpoint == other.backend.endpoint) {
                Some(one) => {
                    one.connections += other.connections;
                    one.packets_in += other.packets_in;
                    one.packets_out += other.packets_out;
                }
                None => self.backends.push(*other),
            }
        }
    }
}

impl BalanceStage {
    /// Returns true if an untagged frame of a VRF is to a virtual address.
    #[inline(always)]
    pub(super) fn concerns(&self, frame: &[u8], vrf: u16) -> bool {
        vrf == self.vrf && ipv4(frame).is_some_and(|packet| self.balancers.is_to_virtual(packet))
    }

    /// Returns true if an untagged frame of a VRF is from the address of a backend, or to that of one that answers directly.
    #[inline(always)]
    pub(super) fn concerns_sent(&self, frame: &[u8], vrf: u16) -> bool {
        vrf == self.vrf
            && ipv4(frame).is_some_and(|packet| {
                self.balancers.is_from_backend(packet) || self.balancers.is_to_direct(packet)
            })
    }

    /// Translates an untagged frame to a virtual address. `length` is that of the frame. Returns true if it is translated.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(super) fn receive(
        &mut self,
        frame: &mut [u8],
        length: usize,
        now_s: u32,
    ) -> Result<bool, RouterDrop> {
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        match self.balancers.receive(packet, length, now_s) {
            BalanceOutcome::Untouched => Ok(false),
            BalanceOutcome::Translated => Ok(true),
            BalanceOutcome::Dropped(reason) => Err(reason.router_drop()),
        }
    }

    /// Translates an untagged frame from the address of a backend, if it answers a client, and gives one to a backend that answers directly its
    /// virtual endpoint. `length` is that of the frame.
    pub(super) fn send(&mut self, frame: &mut [u8], length: usize, now_s: u32) {
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        self.balancers.send(packet, length, now_s);
    }

    /// Translates the packet in an ICMP error of the router itself about a packet to a backend.
    pub(super) fn send_own(&self, frame: &mut [u8]) {
        if ipv4(frame).is_some() {
            let length = frame.len().saturating_sub(ETHERNET_HEADER_LENGTH);
            let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
            self.balancers.translate_own_error(packet, length);
        }
    }

    /// Copies a received frame, with the backend as its destination, for the tracker. Returns false for frames that are not to a virtual
    /// endpoint. `length` is that of the frame.
    pub(super) fn copy_inside(&self, frame: &[u8], length: usize, copy: &mut NatCopy) -> bool {
        let Some(at) = ipv4_offset(frame) else {
            return false;
        };
        let packet = frame.get(at..).unwrap_or_default();
        if !self.balancers.is_to_virtual(packet) {
            return false;
        }
        let packet = copy.of(frame, at).and_then(|space| space.get_mut(at..));
        let length = length.saturating_sub(at);
        packet.is_some_and(|packet| self.balancers.show_inside(packet, length))
    }

    /// Removes some expired connections.
    #[inline(always)]
    pub(super) fn end_burst(&mut self, now_s: u32) {
        self.balancers.expire(now_s, EXPIRY_STEPS);
    }

    /// Removes more expired connections, for an order without effect.
    pub(super) fn rest(&mut self, now_s: u32) {
        self.balancers.expire(now_s, EXPIRY_STEPS_OF_ORDER);
    }

    /// Executes a request. Allocates nothing.
    pub(super) fn answer(&mut self, query: &mut BalanceQuery, now_s: u32) {
        if let Some(part) = &mut query.replicated {
            let balancer = self.balancers.find_mut(part.protocol, part.endpoint);
            part.from = match (balancer, part.from) {
                (Some(balancer), Some(from)) => {
                    part.replicated.run(balancer, (from, part.budget), now_s)
                }
                _ => None,
            };
        }
        for (totals, balancer) in query.balancers.iter_mut().zip(self.balancers.balancers()) {
            totals.connections = balancer.len() as u64;
            totals.counters = *balancer.counters();
            let space = totals.backends.capacity();
            totals
                .backends
                .extend(balancer.backends().iter().take(space));
        }
    }
}
