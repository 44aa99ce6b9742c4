// SPDX-License-Identifier: Apache-2.0
//! Load balancing of a forwarding thread, around the router: destinations before the routing decision, sources behind it. The control thread
//! makes all memory.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use quietwire_packet::{ETHERNET_HEADER_LENGTH, IpProtocol};
use quietwire_tables::balance::{
    BackendUse, BalanceCounters, BalanceEndpoint, BalanceOutcome, BalancedChange, Balancer,
    Balancers,
};
use quietwire_tables::drops::RouterDrop;
use quietwire_tables::nat::NatProtocol;

use super::nat::{NatCopy, ipv4, ipv4_offset};
use super::nat66::{NEXT_HEADER_AT, ipv6, ipv6_offset};
use super::replicated::Replicated;

/// Entries of each table that are checked for expiry per burst, and when the thread gets an order without effect.
const EXPIRY_STEPS: usize = 16;
const EXPIRY_STEPS_OF_ORDER: usize = 4096;

/// All load balancers of a thread.
#[derive(Debug)]
pub(crate) struct BalanceStage {
    pub(crate) balancers: Balancers,
    /// Those of IPv6.
    pub(crate) balancers_ipv6: Balancers<SocketAddrV6>,
    /// Number of their VRF.
    pub(crate) vrf: u16,
}

/// A request of the control thread: the numbers of all load balancers, those of IPv4 first. The lists have space for the results.
#[derive(Debug, Default)]
pub(crate) struct BalanceQuery {
    pub(crate) balancers: Vec<BalancerTotals>,
    /// Connections of an active switch and its standby, instead of the numbers.
    pub(crate) replicated: Option<ReplicatedBalancer<SocketAddrV4>>,
    /// Those of IPv6.
    pub(crate) replicated_ipv6: Option<ReplicatedBalancer<SocketAddrV6>>,
}

/// Connections of a load balancer, of an active switch and its standby.
#[derive(Debug)]
pub(crate) struct ReplicatedBalancer<E> {
    pub(crate) protocol: NatProtocol,
    /// The virtual endpoint.
    pub(crate) endpoint: E,
    /// Position in the table; `None` at the end.
    pub(crate) from: Option<u32>,
    /// Entries to read.
    pub(crate) budget: usize,
    pub(crate) replicated: Replicated<BalancedChange<E>>,
}

/// Numbers of a load balancer.
#[derive(Debug, Default)]
pub(crate) struct BalancerTotals {
    pub(crate) connections: u64,
    pub(crate) counters: BalanceCounters,
    /// The forwarding thread never exceeds its capacity.
    pub(crate) backends: Vec<BackendUse<SocketAddr>>,
}

impl<E: BalanceEndpoint> ReplicatedBalancer<E> {
    /// Executes a part of the request. Allocates nothing.
    fn run(&mut self, balancers: &mut Balancers<E>, now_s: u32) {
        let balancer = balancers.find_mut(self.protocol, self.endpoint);
        self.from = match (balancer, self.from) {
            (Some(balancer), Some(from)) => {
                self.replicated.run(balancer, (from, self.budget), now_s)
            }
            _ => None,
        };
    }
}

impl BalanceQuery {
    /// Ends the request at a thread that has no load balancers.
    pub(super) fn end(&mut self) {
        if let Some(part) = &mut self.replicated {
            part.from = None;
        }
        if let Some(part) = &mut self.replicated_ipv6 {
            part.from = None;
        }
    }
}

impl BalancerTotals {
    /// Notes the numbers of a load balancer. Allocates nothing.
    fn note<E: BalanceEndpoint>(&mut self, balancer: &Balancer<E>) {
        self.connections = balancer.len() as u64;
        self.counters = *balancer.counters();
        let space = self.backends.capacity();
        let backends = balancer.backends().iter().take(space);
        self.backends
            .extend(backends.map(BackendUse::of_any_version));
    }

    /// Adds the numbers of the same load balancer on another thread.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts of 64 bits do not overflow"
    )]
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
        vrf == self.vrf
            && match ipv4(frame) {
                Some(packet) => self.balancers.is_to_virtual(packet),
                None => ipv6(frame).is_some_and(|one| self.balancers_ipv6.is_to_virtual(one)),
            }
    }

    /// Returns true if an untagged frame of a VRF is from the address of a backend, or to that of one that answers directly.
    #[inline(always)]
    pub(super) fn concerns_sent(&self, frame: &[u8], vrf: u16) -> bool {
        vrf == self.vrf
            && match ipv4(frame) {
                Some(packet) => {
                    self.balancers.is_from_backend(packet) || self.balancers.is_to_direct(packet)
                }
                None => ipv6(frame).is_some_and(|packet| {
                    let balancers = &self.balancers_ipv6;
                    balancers.is_from_backend(packet) || balancers.is_to_direct(packet)
                }),
            }
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
        let is_ipv4 = ipv4(frame).is_some();
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let outcome = match is_ipv4 {
            true => self.balancers.receive(packet, length, now_s),
            false => self.balancers_ipv6.receive(packet, length, now_s),
        };
        match outcome {
            BalanceOutcome::Untouched => Ok(false),
            BalanceOutcome::Translated => Ok(true),
            BalanceOutcome::Dropped(reason) => Err(reason.router_drop()),
        }
    }

    /// Translates an untagged frame from the address of a backend, if it answers a client, and gives one to a backend that answers directly its
    /// virtual endpoint. `length` is that of the frame.
    pub(super) fn send(&mut self, frame: &mut [u8], length: usize, now_s: u32) {
        let is_ipv4 = ipv4(frame).is_some();
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        match is_ipv4 {
            true => self.balancers.send(packet, length, now_s),
            false => self.balancers_ipv6.send(packet, length, now_s),
        };
    }

    /// Translates the packet in an ICMP error of the router itself about a packet to a backend.
    pub(super) fn send_own(&self, frame: &mut [u8]) {
        let (is_ipv4, is_ipv6) = (ipv4(frame).is_some(), ipv6(frame).is_some());
        let length = frame.len().saturating_sub(ETHERNET_HEADER_LENGTH);
        let packet = frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
        if is_ipv4 {
            self.balancers.translate_own_error(packet, length);
        } else if is_ipv6 {
            self.balancers_ipv6.translate_own_error(packet, length);
        }
    }

    /// Copies a received frame, with the backend as its destination, for the tracker. Returns false for frames that are not to a virtual
    /// endpoint. `length` is that of the frame.
    pub(super) fn copy_inside(&self, frame: &[u8], length: usize, copy: &mut NatCopy) -> bool {
        let Some(at) = ipv4_offset(frame) else {
            return self.copy_inside_ipv6(frame, length, copy);
        };
        let packet = frame.get(at..).unwrap_or_default();
        if !self.balancers.is_to_virtual(packet) {
            return false;
        }
        let packet = copy.of(frame, at).and_then(|space| space.get_mut(at..));
        let length = length.saturating_sub(at);
        packet.is_some_and(|packet| self.balancers.show_inside(packet, length))
    }

    /// Copies a received frame of IPv6 as [`Self::copy_inside`] does.
    fn copy_inside_ipv6(&self, frame: &[u8], length: usize, copy: &mut NatCopy) -> bool {
        if self.balancers_ipv6.balancers().is_empty() {
            return false;
        }
        let Some(at) = ipv6_offset(frame) else {
            return false;
        };
        let packet = frame.get(at..).unwrap_or_default();
        if !self.balancers_ipv6.is_to_virtual(packet) {
            return false;
        }
        let is_icmp = packet.get(NEXT_HEADER_AT) == Some(&IpProtocol::ICMPV6.0);
        let space = copy.of_protocol(frame, is_icmp);
        let packet = space.and_then(|space| space.get_mut(at..));
        let length = length.saturating_sub(at);
        packet.is_some_and(|packet| self.balancers_ipv6.show_inside(packet, length))
    }

    /// Continues with the connections of the former stage.
    pub(super) fn inherit(&mut self, former: &mut Self) {
        self.balancers.inherit(&mut former.balancers);
        self.balancers_ipv6.inherit(&mut former.balancers_ipv6);
    }

    /// Removes some expired connections.
    #[inline(always)]
    pub(super) fn end_burst(&mut self, now_s: u32) {
        self.balancers.expire(now_s, EXPIRY_STEPS);
        self.balancers_ipv6.expire(now_s, EXPIRY_STEPS);
    }

    /// Removes more expired connections, for an order without effect.
    pub(super) fn rest(&mut self, now_s: u32) {
        self.balancers.expire(now_s, EXPIRY_STEPS_OF_ORDER);
        self.balancers_ipv6.expire(now_s, EXPIRY_STEPS_OF_ORDER);
    }

    /// Executes a request. Allocates nothing.
    pub(super) fn answer(&mut self, query: &mut BalanceQuery, now_s: u32) {
        if let Some(part) = &mut query.replicated {
            part.run(&mut self.balancers, now_s);
        }
        if let Some(part) = &mut query.replicated_ipv6 {
            part.run(&mut self.balancers_ipv6, now_s);
        }
        let mut all = query.balancers.iter_mut();
        for (balancer, totals) in self.balancers.balancers().iter().zip(&mut all) {
            totals.note(balancer);
        }
        for (balancer, totals) in self.balancers_ipv6.balancers().iter().zip(&mut all) {
            totals.note(balancer);
        }
    }
}
