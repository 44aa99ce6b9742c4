// SPDX-License-Identifier: Apache-2.0
//! Deciding on a burst: headers first, then all look-ups together, then each packet's next hop.

use std::sync::Arc;

use quietwire_dpdk::BURST_MAX;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress};

use super::decision::{Decision, Decisions, DropReason, Punt, Tally};
use super::fragment;
use super::header::{self, Header};
use super::interfaces::{Interface, Interfaces, Urpf};
use super::kernel_filter::KernelFilter;
use super::next_hops::{NextHop, NextHops};
use crate::fib::{Ipv4Fib, Ipv6Fib, NO_ROUTE};

/// The tables of a VRF.
#[derive(Clone, Debug)]
pub struct Vrf {
    /// IPv4.
    pub ipv4: Arc<Ipv4Fib>,
    /// IPv6.
    pub ipv6: Arc<Ipv6Fib>,
}

/// What forwarding threads know of the router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Interfaces.
    pub interfaces: Interfaces,
    /// VRFs, by number.
    pub vrfs: Vec<Vrf>,
    /// Next hops of all VRFs.
    pub next_hops: Arc<NextHops>,
    /// What the kernel gets beside what is for the router itself.
    pub kernel_filter: Option<Arc<KernelFilter>>,
}

/// Packets of a burst that are looked up together.
struct Batch<A> {
    addresses: [A; BURST_MAX],
    /// Their places in the burst.
    places: [u8; BURST_MAX],
    found: [u32; BURST_MAX],
    len: usize,
}

impl<A: Copy> Batch<A> {
    #[inline(always)]
    fn new(zero: A) -> Self {
        Self {
            addresses: [zero; BURST_MAX],
            places: [0; BURST_MAX],
            found: [NO_ROUTE; BURST_MAX],
            len: 0,
        }
    }

    #[inline(always)]
    fn push(&mut self, place: usize, address: A) {
        if let (Some(slot), Some(at)) = (
            self.addresses.get_mut(self.len),
            self.places.get_mut(self.len),
        ) {
            (*slot, *at) = (address, place as u8);
            self.len += 1;
        }
    }

    /// Looks all up, and tells the place in the burst and the next hop of each.
    #[inline(always)]
    fn look_up(&mut self, look_up: impl Fn(&[A], &mut [u32])) {
        if let (Some(addresses), Some(found)) = (
            self.addresses.get(..self.len),
            self.found.get_mut(..self.len),
        ) {
            look_up(addresses, found);
        }
    }

    #[inline(always)]
    fn results(&self) -> impl Iterator<Item = (usize, u32)> + '_ {
        let places = self.places.iter().zip(&self.found).take(self.len);
        places.map(|(place, found)| (usize::from(*place), *found))
    }
}

/// A frame between the passes.
#[derive(Clone, Copy)]
struct Read {
    header: Header,
    interface: u16,
    vrf: u16,
    urpf: Urpf,
}

/// Decides on a burst of frames without tags (at most [`BURST_MAX`]; what is beyond is not looked at), each with the
/// number of the interface that it came in on.
#[inline]
pub fn decide<'a>(
    router: &Router,
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    interfaces: &[u16],
    decisions: &mut Decisions,
) -> Tally {
    let mut headers: [Option<Read>; BURST_MAX] = [None; BURST_MAX];
    decisions.clear();
    let mut vrf = None;
    let mut several = false;
    for ((frame, number), place) in frames.clone().zip(interfaces).zip(&mut headers) {
        let Some(interface) = router.interfaces.get(*number) else {
            decisions.push(Decision::Drop(DropReason::NoInterface));
            continue;
        };
        match header::read(frame, interface) {
            Ok(header) => {
                *place = Some(read(header, *number, interface));
                several |= vrf.is_some_and(|vrf| vrf != interface.vrf);
                vrf = Some(interface.vrf);
                // Until its route is found.
                decisions.push(Decision::Punt(Punt::NoRoute));
            }
            Err(decision) => decisions.push(decision),
        }
    }
    let count = decisions.as_slice().len();
    if let Some(headers) = headers.get_mut(..count)
        && let Some(vrf) = vrf
    {
        route(router, vrf, headers, frames.clone(), decisions);
        if several {
            route_others(router, headers, frames.clone(), decisions);
        }
    }
    if let Some(filter) = &router.kernel_filter {
        filter.apply(&router.interfaces, frames, interfaces, decisions);
    }
    let mut tally = Tally::default();
    for decision in decisions.as_slice() {
        tally.count(*decision);
    }
    tally
}

#[inline(always)]
fn read(header: Header, number: u16, interface: &Interface) -> Read {
    Read {
        header,
        interface: number,
        vrf: interface.vrf,
        urpf: interface.urpf,
    }
}

/// VRF by VRF, until no packet is left.
#[cold]
fn route_others<'a>(
    router: &Router,
    headers: &mut [Option<Read>],
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    decisions: &mut Decisions,
) {
    for _ in 0..BURST_MAX {
        let Some(vrf) = headers.iter().flatten().map(|read| read.vrf).next() else {
            return;
        };
        route(router, vrf, headers, frames.clone(), decisions);
    }
}

/// Decides on the packets of a VRF, and takes them out of `headers`.
#[inline(always)]
fn route<'a>(
    router: &Router,
    vrf: u16,
    headers: &mut [Option<Read>],
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    decisions: &mut Decisions,
) {
    let Some(tables) = router.vrfs.get(usize::from(vrf)) else {
        headers.fill(None);
        return;
    };
    let mut v4 = Batch::new(0u32);
    let mut v6 = Batch::new(0u128);
    let mut checked = false;
    for (place, read) in headers.iter().enumerate() {
        let Some(read) = read.filter(|read| read.vrf == vrf) else {
            continue;
        };
        checked |= read.urpf != Urpf::Off;
        match read.header {
            Header::V4 { destination, .. } => v4.push(place, destination),
            Header::V6 { destination, .. } => v6.push(place, destination),
        }
    }
    if checked {
        check_sources(router, tables, vrf, headers, decisions);
    }
    v4.look_up(|addresses, found| tables.ipv4.look_up_burst(addresses, found));
    if v6.len > 0 {
        v6.look_up(|addresses, found| tables.ipv6.look_up_burst(addresses, found));
    }
    for (_, found) in v4.results().chain(v6.results()) {
        router.next_hops.prefetch(found);
    }
    let mut hops = [NO_ROUTE; BURST_MAX];
    for (place, found) in v4.results().chain(v6.results()) {
        if let Some(hop) = hops.get_mut(place) {
            *hop = found;
        }
    }
    for (place, ((slot, hop), frame)) in headers.iter_mut().zip(hops).zip(frames).enumerate() {
        if let Some(read) = slot.take_if(|read| read.vrf == vrf) {
            decisions.set(place, follow(router, &read, hop, frame));
        }
    }
}

/// What becomes of a packet with this next hop.
#[inline(always)]
fn follow(router: &Router, read: &Read, hop: u32, frame: &[u8]) -> Decision {
    let next_hop = match router.next_hops.get(hop) {
        NextHop::Group(group) => router.next_hops.choose(group, flow_hash(frame)),
        next_hop => next_hop,
    };
    let (interface, mac) = match next_hop {
        NextHop::Adjacency { interface, mac } => (interface, mac),
        other => return Decision::from_other(other, read),
    };
    if let Some(instead) = time_is_over(read) {
        return instead;
    }
    let Some(out) = router.interfaces.get(interface) else {
        return Decision::Punt(Punt::Unreachable);
    };
    match read.header {
        Header::V4 { length, .. } if length <= out.mtu => Decision::Forward { interface, mac },
        Header::V6 { length, .. } if length <= out.mtu => Decision::Forward { interface, mac },
        Header::V4 {
            dont_fragment: false,
            ..
        } => cut(frame, interface, mac),
        _ => Decision::Punt(Punt::TooBig),
    }
}

/// A packet that goes on in pieces, if there can be such.
#[inline(never)]
fn cut(frame: &[u8], interface: u16, mac: MacAddress) -> Decision {
    let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or_default();
    if fragment::ends_beyond(packet) {
        Decision::Drop(DropReason::FragmentOffset)
    } else {
        Decision::Fragment { interface, mac }
    }
}

/// A packet that would go on and has been on its way for too long; addresses of a link, which are not forwarded
/// whatever the routes say (RFC 3927, section 7; RFC 4291, section 2.5.6).
#[inline(always)]
fn time_is_over(read: &Read) -> Option<Decision> {
    let ttl = match read.header {
        Header::V4 {
            source,
            destination,
            ..
        } if header::is_link_local_v4(source) || header::is_link_local_v4(destination) => {
            return Some(Decision::Drop(DropReason::Martian));
        }
        Header::V4 { ttl, .. } => ttl,
        Header::V6 { source, .. } if header::is_link_local(source) => {
            return Some(Decision::Drop(DropReason::Martian));
        }
        Header::V6 { ttl, .. } => ttl,
    };
    (ttl <= 1).then_some(Decision::Punt(Punt::TimeExceeded))
}

impl Decision {
    /// For a next hop that is not sent to.
    #[inline(never)]
    fn from_other(next_hop: NextHop, read: &Read) -> Self {
        match next_hop {
            NextHop::Local => Self::Punt(Punt::ForUs),
            NextHop::Blackhole => Self::Drop(DropReason::Blackhole),
            NextHop::Unreachable => Self::Punt(Punt::Unreachable),
            NextHop::Prohibit => Self::Punt(Punt::Prohibited),
            NextHop::Glean { .. } | NextHop::Incomplete { .. } => {
                time_is_over(read).unwrap_or(Self::Punt(Punt::Neighbour))
            }
            // A group of groups is not made.
            NextHop::None | NextHop::Group(_) | NextHop::Adjacency { .. } => {
                Self::Punt(Punt::NoRoute)
            }
        }
    }
}

/// Takes out of `headers` the packets of a VRF whose sources have no way back.
#[inline(never)]
fn check_sources(
    router: &Router,
    tables: &Vrf,
    vrf: u16,
    headers: &mut [Option<Read>],
    decisions: &mut Decisions,
) {
    let mut v4 = Batch::new(0u32);
    let mut v6 = Batch::new(0u128);
    for (place, read) in headers.iter().enumerate() {
        let Some(read) = read.filter(|read| read.vrf == vrf && read.urpf != Urpf::Off) else {
            continue;
        };
        match read.header {
            Header::V4 { source, .. } => v4.push(place, source),
            // Neighbours on the link have no route.
            Header::V6 { source, .. } if header::is_link_local(source) => {}
            Header::V6 { source, .. } => v6.push(place, source),
        }
    }
    v4.look_up(|addresses, found| tables.ipv4.look_up_burst(addresses, found));
    v6.look_up(|addresses, found| tables.ipv6.look_up_burst(addresses, found));
    for (place, found) in v4.results().chain(v6.results()) {
        let Some(slot) = headers.get_mut(place) else {
            continue;
        };
        if slot.is_some_and(|read| !has_way_back(&router.next_hops, &read, found)) {
            *slot = None;
            decisions.set(place, Decision::Drop(DropReason::Urpf));
        }
    }
}

fn has_way_back(next_hops: &NextHops, read: &Read, found: u32) -> bool {
    let next_hop = next_hops.get(found);
    match (next_hop, read.urpf) {
        (NextHop::None | NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit, _) => false,
        // Our own address comes from nowhere but here.
        (NextHop::Local, _) => false,
        (NextHop::Group(group), Urpf::Strict) => next_hops.leaves_by(group, read.interface),
        (next_hop, Urpf::Strict) => next_hop.interface() == Some(read.interface),
        _ => true,
    }
}

/// A number that is the same for all packets of a flow: addresses, protocol and ports (RFC 2992; fragments and other
/// protocols without ports; IPv6 by its flow label where there is one, RFC 6438).
#[inline(never)]
fn flow_hash(frame: &[u8]) -> u32 {
    let packet = frame.get(ETHERNET_HEADER_LENGTH..).unwrap_or(&[]);
    let (addresses, protocol, ports) = match packet {
        [first, ..] if first >> 4 == 4 => {
            let is_fragment = matches!(packet, [_, _, _, _, _, _, a, b, ..] if (a & 0x3f | b) != 0);
            let header_length = usize::from(first & 0xf) * 4;
            let protocol = packet.get(9).copied().unwrap_or(0);
            let ports = if is_fragment {
                0
            } else {
                ports_of(protocol, packet.get(header_length..))
            };
            (packet.get(12..20), protocol, ports)
        }
        [_, a, b, c, ..] => {
            let label = u32::from_be_bytes([0, a & 0xf, *b, *c]);
            let protocol = packet.get(6).copied().unwrap_or(0);
            let ports = match label {
                0 => ports_of(protocol, packet.get(40..)),
                label => label,
            };
            (packet.get(8..40), protocol, ports)
        }
        _ => (None, 0, 0),
    };
    let mut hash = u64::from(ports) << 8 | u64::from(protocol);
    for word in addresses.unwrap_or(&[]).as_chunks::<8>().0 {
        hash = mix(hash ^ u64::from_be_bytes(*word));
    }
    (mix(hash) >> 32) as u32
}

/// Both ports, of protocols that have them where TCP does.
fn ports_of(protocol: u8, payload: Option<&[u8]>) -> u32 {
    match (
        protocol,
        payload.and_then(|payload| payload.first_chunk::<4>()),
    ) {
        // TCP, UDP, DCCP, SCTP, UDP-Lite.
        (6 | 17 | 33 | 132 | 136, Some(ports)) => u32::from_be_bytes(*ports),
        _ => 0,
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, 2014).
const fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
