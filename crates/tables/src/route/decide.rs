// SPDX-License-Identifier: Apache-2.0
//! Routing decisions for a burst: all headers first, then all look-ups together, then each packet's next hop.

use quietwire_base::BURST_MAX;

use super::decision::{Decision, Decisions, Places, Tally};
use super::header::{self, Destination, PacketSummary};
use super::interfaces::Urpf;
use super::next_hops::{NextHop, NextHops};
use super::plain::decide_plain;
use super::resolve::follow;
use super::router::{Router, Vrf};
use crate::drops::RouterDrop;
use crate::fib::NO_ROUTE;

/// Packets of a burst to look up together.
struct Batch<A> {
    addresses: [A; BURST_MAX],
    /// Their positions in the burst.
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

    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "places are below BURST_MAX"
    )]
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

    /// Looks up all packets and reports position and next hop of each.
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

/// Decides on a burst of untagged frames, each with the number of its ingress interface. Frames beyond [`BURST_MAX`] are ignored.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "at most as many packets as bits of places"
)]
#[inline]
pub fn decide<'a>(
    router: &Router,
    frames: impl ExactSizeIterator<Item = &'a [u8]> + Clone,
    interfaces: &[u16],
    decisions: &mut Decisions,
) -> Tally {
    let count = frames.len().min(interfaces.len()).min(BURST_MAX);
    decisions.begin(count, Decision::Drop(RouterDrop::NoInterface));
    let mut left = Places::MAX >> (Places::BITS as usize - count.max(1));
    let known = interfaces.get(..count).unwrap_or(&[]);
    decide_plain(router, &mut left, frames.clone(), known, decisions);
    // One pass per VRF; most bursts have one.
    for _ in 0..count {
        let Some(vrf) = next_vrf(router, interfaces, &mut left) else {
            break;
        };
        route(
            router,
            vrf,
            &mut left,
            frames.clone(),
            interfaces,
            decisions,
        );
    }
    if let Some(filter) = &router.kernel_filter {
        filter.apply(&router.interfaces, frames, interfaces, decisions);
    }
    decisions.tally()
}

/// Returns the VRF of the first remaining packet, and removes packets without an interface.
#[expect(clippy::arithmetic_side_effects, reason = "not zero in the loop")]
#[inline(always)]
fn next_vrf(router: &Router, interfaces: &[u16], left: &mut Places) -> Option<u16> {
    while *left != 0 {
        let number = interfaces.get(left.trailing_zeros() as usize)?;
        if let Some(interface) = router.interfaces.get(*number) {
            return Some(interface.vrf);
        }
        *left &= *left - 1;
    }
    None
}

/// Packets of a VRF to look up, and their headers.
struct Readings {
    v4: Batch<u32>,
    v6: Batch<u128>,
    briefs: [PacketSummary; BURST_MAX],
    /// Packets whose decision requires a route.
    open: Places,
    /// Some interface has a reverse path check.
    checked: bool,
}

/// Decides on the packets of a VRF, and removes them from the remaining ones.
#[inline(always)]
fn route<'a>(
    router: &Router,
    vrf: u16,
    left: &mut Places,
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    interfaces: &[u16],
    decisions: &mut Decisions,
) {
    let mut readings = read(router, vrf, left, frames.clone(), interfaces, decisions);
    let mut hops = [NO_ROUTE; BURST_MAX];
    if let Some(tables) = router.vrfs.get(usize::from(vrf)) {
        if readings.checked {
            check_sources(
                router,
                tables,
                frames.clone(),
                interfaces,
                &mut readings.open,
                decisions,
            );
        }
        let Readings { v4, v6, .. } = &mut readings;
        if v4.len > 0 {
            v4.look_up(|addresses, found| tables.ipv4.look_up_burst(addresses, found));
        }
        if v6.len > 0 {
            v6.look_up(|addresses, found| tables.ipv6.look_up_burst(addresses, found));
        }
        for (place, found) in v4.results().chain(v6.results()) {
            router.next_hops.prefetch(found);
            if let Some(hop) = hops.get_mut(place) {
                *hop = found;
            }
        }
    }
    let each = frames.zip(&hops).zip(&readings.briefs).enumerate();
    for (place, ((frame, hop), brief)) in each {
        if readings.open >> place & 1 == 1 {
            decisions.set(place, follow(router, *brief, *hop, frame));
        }
    }
}

/// Parses the headers of a VRF's packets.
#[allow(clippy::arithmetic_side_effects, reason = "places are below BURST_MAX")]
#[inline(always)]
fn read<'a>(
    router: &Router,
    vrf: u16,
    left: &mut Places,
    frames: impl Iterator<Item = &'a [u8]>,
    interfaces: &[u16],
    decisions: &mut Decisions,
) -> Readings {
    let mut readings = Readings {
        v4: Batch::new(0),
        v6: Batch::new(0),
        briefs: [PacketSummary::default(); BURST_MAX],
        open: 0,
        checked: false,
    };
    let each = frames.zip(interfaces).zip(&mut readings.briefs).enumerate();
    for (place, ((frame, number), brief)) in each {
        let Some(interface) = router.interfaces.get(*number) else {
            continue;
        };
        let bit = 1 << place;
        if interface.vrf != vrf || *left & bit == 0 {
            continue;
        }
        *left &= !bit;
        let destination = match header::read(frame, interface) {
            Ok(read) => {
                *brief = read.0;
                read.1
            }
            Err(decision) => {
                decisions.set(place, decision);
                continue;
            }
        };
        readings.open |= bit;
        readings.checked |= interface.urpf != Urpf::Off;
        match destination {
            Destination::V4(address) => readings.v4.push(place, address),
            Destination::V6(address) => readings.v6.push(place, address),
        }
    }
    readings
}

/// Removes packets whose sources fail the reverse path check from the open ones.
#[inline(never)]
fn check_sources<'a>(
    router: &Router,
    tables: &Vrf,
    frames: impl Iterator<Item = &'a [u8]>,
    interfaces: &[u16],
    open: &mut Places,
    decisions: &mut Decisions,
) {
    let mut v4 = Batch::new(0u32);
    let mut v6 = Batch::new(0u128);
    let came_by = |place: usize| router.interfaces.get(*interfaces.get(place)?);
    let is_checked = |place| came_by(place).is_some_and(|one| one.urpf != Urpf::Off);
    for (place, frame) in frames.enumerate().take(BURST_MAX) {
        if *open >> place & 1 == 0 || !is_checked(place) {
            continue;
        }
        match header::source_of(frame) {
            Some(Destination::V4(source)) => v4.push(place, source),
            // Neighbours on the link have no route.
            Some(Destination::V6(source)) if header::is_link_local(source) => {}
            Some(Destination::V6(source)) => v6.push(place, source),
            None => {}
        }
    }
    v4.look_up(|addresses, found| tables.ipv4.look_up_burst(addresses, found));
    v6.look_up(|addresses, found| tables.ipv6.look_up_burst(addresses, found));
    for (place, found) in v4.results().chain(v6.results()) {
        let (Some(interface), Some(number)) = (came_by(place), interfaces.get(place)) else {
            continue;
        };
        if !has_way_back(&router.next_hops, interface.urpf, *number, found) {
            *open &= !(1 << place);
            decisions.set(place, Decision::Drop(RouterDrop::Urpf));
        }
    }
}

fn has_way_back(next_hops: &NextHops, urpf: Urpf, interface: u16, found: u32) -> bool {
    let next_hop = next_hops.get(found);
    match (next_hop, urpf) {
        (NextHop::None | NextHop::Blackhole | NextHop::Unreachable | NextHop::Prohibit, _) => false,
        // A packet with our own source address cannot arrive from another host.
        (NextHop::Local, _) => false,
        (NextHop::Group(group), Urpf::Strict) => next_hops.leaves_by(group, interface),
        (next_hop, Urpf::Strict) => next_hop.interface() == Some(interface),
        _ => true,
    }
}
