// SPDX-License-Identifier: Apache-2.0
//! NAT64 in front of the router: frames of clients become IPv4 frames, and their answers IPv6 frames. The router then decides about what
//! they have become.
//!
//! A translated frame continues as one that an interface of its new version has received: the outside interface, or one with an IPv6
//! address. An error of the router about it goes to an external address or to an address of the prefix, and so is translated back.

use quietwire_dpdk::Mbuf;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress};
use quietwire_tables::nat::{NatDrop, NatOutcome, is_client_number};
use quietwire_tables::nat64::{HEADROOM, Translated, pieces};

use super::mark::{AGAIN, interface_of};
use super::nat::{FamilyPass, NatInstance, NatStage, NatTables, ipv4};
use super::path::Path;
use super::route::{Domain, RouteContext, Routing, vrf_for};
use super::translate::exclusive;

/// Offsets in an IPv4 header and in an IPv6 header.
const SOURCE_V4_AT: usize = 12;
const DESTINATION_V6_AT: usize = 24;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Version of IP that a frame is translated to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TargetVersion {
    Ipv4,
    Ipv6,
}

impl Routing {
    /// Returns true if there is NAT64.
    #[inline(always)]
    pub(super) fn has_nat64(&self) -> bool {
        self.nat.as_ref().is_some_and(|nat| nat.families.is_some())
    }

    /// Takes the state that a pass of NAT64 requires; `None` without NAT64 and within a pass.
    #[inline(always)]
    pub(super) fn take_nat64(&mut self) -> Option<Box<FamilyPass>> {
        self.nat.as_mut()?.families.take()
    }
}

/// Returns the IPv6 packet in an untagged frame.
#[inline(always)]
fn ipv6(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
    ethernet.ends_with(&ETHERTYPE_IPV6).then_some(packet)
}

fn array_at<const N: usize>(packet: &[u8], at: usize) -> Option<[u8; N]> {
    packet.get(at..)?.first_chunk().copied()
}

impl NatStage {
    /// Returns the number of the instance that translates a frame of a VRF, and the version of IP that the frame gets. `length` is that of
    /// the frame.
    #[inline]
    fn target_of(&self, frame: &[u8], length: usize, vrf: u16) -> Option<(usize, TargetVersion)> {
        let of_vrf = self.instances.iter().enumerate();
        let mut of_vrf = of_vrf.filter(|(_, one)| one.place.vrf == vrf);
        if let Some(packet) = ipv6(frame) {
            let destination = u128::from_be_bytes(array_at(packet, DESTINATION_V6_AT)?);
            let concerned = |one: &NatInstance| {
                let nat64 = one.tables.as_ref()?.nat64.as_ref()?;
                nat64.concerns(destination).then_some(())
            };
            let found = of_vrf.find(|(_, one)| concerned(one).is_some());
            return found.map(|(number, _)| (number, TargetVersion::Ipv4));
        }
        let packet = ipv4(frame)?;
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let concerned = |one: &NatInstance| {
            let tables = one.tables.as_ref().filter(|one| one.nat64.is_some())?;
            let inside = tables.nat.inside_of(packet, length)?;
            is_client_number(inside).then_some(())
        };
        let found = of_vrf.find(|(_, one)| concerned(one).is_some());
        found.map(|(number, _)| (number, TargetVersion::Ipv6))
    }
}

impl NatTables {
    /// Translates a packet of a client behind an Ethernet header.
    fn send_client(&mut self, frame: &mut [u8], now_s: u32) -> Result<Translated, NatDrop> {
        let length = frame.len().saturating_sub(ETHERNET_HEADER_LENGTH);
        let nat64 = self.nat64.as_mut().ok_or(NatDrop::NoMapping)?;
        let place = (ETHERNET_HEADER_LENGTH, length);
        let translated = nat64.send(&mut self.nat, frame, place, now_s);
        self.pass_events();
        translated
    }

    /// Translates a packet to a client behind some space and an Ethernet header.
    fn receive_client(
        &mut self,
        frame: &mut [u8],
        is_inbound: bool,
        now_s: u32,
    ) -> Result<Translated, NatDrop> {
        let at = HEADROOM + ETHERNET_HEADER_LENGTH;
        let packet = frame.get_mut(at..).ok_or(NatDrop::Malformed)?;
        let source = array_at(packet, SOURCE_V4_AT).map(u32::from_be_bytes);
        // Only the switch itself gives a packet such a source.
        if source.is_none_or(is_client_number) {
            return Err(NatDrop::Malformed);
        }
        let length = packet.len();
        let nat64 = self.nat64.as_ref();
        let keeps_source =
            is_inbound || nat64.is_some_and(|one| one.keeps_source(&self.nat, packet, length));
        let outcome = match keeps_source {
            true => self.nat.inbound(packet, length, now_s),
            false => self.nat.hairpin(packet, length, now_s),
        };
        self.pass_events();
        if let NatOutcome::Dropped(reason) = outcome {
            return Err(reason);
        }
        let nat64 = self.nat64.as_ref().ok_or(NatDrop::NoMapping)?;
        nat64.receive(&mut self.nat, frame, (at, length))
    }
}

/// Gives a translated packet its Ethernet header, and the frame its new length.
fn finish(frame: &mut Mbuf<'_>, made: &Translated, to: MacAddress, source: [u8; 6]) -> Option<()> {
    let front = made.start.checked_sub(ETHERNET_HEADER_LENGTH)?;
    let length = u16::try_from(made.end.checked_sub(front)?).ok()?;
    let octets = frame.octets_mut()?;
    let header: &mut [u8; ETHERNET_HEADER_LENGTH] = octets.get_mut(front..)?.first_chunk_mut()?;
    let ethertype = match made.is_ipv6 {
        true => ETHERTYPE_IPV6,
        false => ETHERTYPE_IPV4,
    };
    let parts = to.0.into_iter().chain(source).chain(ethertype);
    for (place, octet) in header.iter_mut().zip(parts) {
        *place = octet;
    }
    let is_done = frame.shrink_front(u16::try_from(front).ok()?) && frame.truncate(length);
    is_done.then_some(())
}

impl Path<'_> {
    /// Adds a frame to the next routing pass, and runs the pass if it is full.
    pub(super) fn route_next(
        &mut self,
        frame: Mbuf<'_>,
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) {
        if context.routing.local.space() == 0 {
            self.route_marked(domain, context);
        }
        // The pass has just emptied the burst.
        drop(context.routing.local.push(frame));
    }

    /// Routes the waiting frames, each marked with its interface, after those of NAT64 have been translated.
    #[inline(never)]
    pub(super) fn route_families(
        &mut self,
        mut pass: Box<FamilyPass>,
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) {
        std::mem::swap(&mut context.routing.local, &mut pass.whole);
        for frame in pass.whole.drain() {
            let from = interface_of(frame.mark());
            let length = frame.length() as usize;
            let vrf = vrf_for(domain, from, frame.octets());
            let nat = context.routing.nat.as_deref();
            let target = vrf.and_then(|vrf| nat?.target_of(frame.octets(), length, vrf));
            match target {
                None => self.route_next(frame, domain, context),
                Some(target) => self.route_translated(frame, target, domain, context),
            }
        }
        self.route_marked(domain, context);
        if let Some(nat) = &mut context.routing.nat {
            nat.families = Some(pass);
        }
    }

    /// Translates a frame to the other version of IP, and adds it to the next routing pass.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "HEADROOM is below 2^16, and a packet ends behind its start"
    )]
    fn route_translated(
        &mut self,
        frame: Mbuf<'_>,
        (number, towards): (usize, TargetVersion),
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) {
        let from = interface_of(frame.mark());
        let (pool, now_s) = (context.pool, context.now_s);
        let Some(mut frame) = exclusive(frame, pool, self.telemetry) else {
            return context.counters.not_sent.add(1);
        };
        let Some(source) = array_at(frame.octets(), 6) else {
            return context.counters.not_sent.add(1);
        };
        let has_space = towards == TargetVersion::Ipv4 || frame.grow_front(HEADROOM as u16);
        if !has_space {
            // The buffer of another port may have no space in front. That of a copy has.
            let Some(mut copy) = frame.copy(pool) else {
                return context.counters.not_sent.add(1);
            };
            if !copy.grow_front(HEADROOM as u16) {
                return context.counters.not_sent.add(1);
            }
            self.telemetry.copied(frame.buffer(), copy.buffer());
            frame = copy;
        }
        let nat = context.routing.nat.as_deref_mut();
        let Some(NatInstance {
            place,
            tables: Some(tables),
            ..
        }) = nat.and_then(|nat| nat.instances.get_mut(number))
        else {
            return context.counters.not_sent.add(1);
        };
        let octets = frame.octets_mut().unwrap_or_default();
        let translated = match towards {
            TargetVersion::Ipv4 => tables.send_client(octets, now_s),
            TargetVersion::Ipv6 => tables.receive_client(octets, from == place.interface, now_s),
        };
        let made = match translated {
            Ok(made) => made,
            Err(reason) => return context.counters.dropped(reason.router_drop(), 1),
        };
        let nat64 = place.nat64;
        let (to, mtu) = match (made.is_ipv6, nat64) {
            (true, Some(nat64)) => (nat64.inside, nat64.mtu),
            _ => (place.interface, u16::MAX),
        };
        let mac = domain.router.interfaces.get(to).map(|one| one.mac);
        let Some(()) = mac.and_then(|mac| finish(&mut frame, &made, mac, source)) else {
            return context.counters.not_sent.add(1);
        };
        frame.set_mark(AGAIN | u32::from(to));
        match made.may_fragment {
            Some(identification) if made.end - made.start > usize::from(mtu) => {
                self.route_pieces(&frame, (identification, mtu), domain, context);
            }
            _ => self.route_next(frame, domain, context),
        }
    }

    /// Adds the fragments of an IPv6 frame to the next routing passes.
    #[inline(never)]
    fn route_pieces(
        &mut self,
        frame: &Mbuf<'_>,
        (identification, mtu): (u32, u16),
        domain: &Domain,
        context: &mut RouteContext<'_>,
    ) {
        let Some((ethernet, packet)) = frame.octets().split_first_chunk() else {
            return context.counters.not_sent.add(1);
        };
        for piece in pieces(packet, identification, mtu) {
            let length = u16::try_from(piece.frame_length()).ok();
            let made = length.and_then(|length| frame.sibling(context.pool, length));
            let made = made.and_then(|mut made| {
                let is_written = piece.write(ethernet, made.octets_mut()?);
                is_written.then_some(made)
            });
            let Some(mut made) = made else {
                return context.counters.not_sent.add(1);
            };
            self.telemetry.copied(frame.buffer(), made.buffer());
            made.set_mark(frame.mark());
            self.route_next(made, domain, context);
        }
    }
}
