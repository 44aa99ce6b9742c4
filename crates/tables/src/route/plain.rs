// SPDX-License-Identifier: Apache-2.0
//! Fast path of most packets: valid packets without special features in a burst of one interface. The test for such packets has no branch
//! per rule; [`super::header`], which knows the reasons, handles all others.

use quietwire_base::BURST_MAX;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress};

use super::decision::{Decisions, Places};
use super::header::{self, IPV4_HEADER, IPV6_HEADER, PacketSummary};
use super::interfaces::{Interface, Urpf};
use super::resolve::follow;
use super::router::Router;
use crate::fib::NO_ROUTE;

const V4_HEADERS: usize = ETHERNET_HEADER_LENGTH + IPV4_HEADER;
const V6_HEADERS: usize = ETHERNET_HEADER_LENGTH + IPV6_HEADER;
/// The length of an IPv6 header in the type of lengths of packets.
const IPV6_HEADER_OCTETS: u16 = 40;
const _: () = assert!(IPV6_HEADER_OCTETS as usize == IPV6_HEADER);

/// Parsed packet. The other fields are meaningless if the packet is not plain.
#[derive(Clone, Copy)]
struct Reading<A> {
    is_plain: bool,
    destination: A,
    packed: Packed,
}

/// Fields that decide on a plain packet besides its destination: length, TTL, and whether fragmentation is allowed.
#[derive(Clone, Copy)]
struct Packed(u32);

impl Packed {
    #[inline(always)]
    fn new(length: u16, ttl: u8, may_fragment: bool) -> Self {
        Self(u32::from(length) | u32::from(ttl) << 16 | u32::from(may_fragment) << 24)
    }

    #[inline(always)]
    fn length(self) -> u16 {
        (self.0 & 0xffff) as u16
    }

    #[inline(always)]
    fn ttl(self) -> u8 {
        ((self.0 >> 16) & 0xff) as u8
    }

    fn brief(self) -> PacketSummary {
        PacketSummary {
            length: self.length(),
            ttl: self.ttl(),
            may_fragment: self.0 >> 24 != 0,
            is_of_a_link: false,
        }
    }
}

/// A MAC address as read from the first octets of a frame: the first octet in the lowest bits.
#[derive(Clone, Copy)]
struct Station(u64);

impl Station {
    const BITS: u64 = (1 << 48) - 1;

    fn of(mac: MacAddress) -> Self {
        Self(mac.to_u64().swap_bytes() >> 16)
    }

    #[inline(always)]
    fn has(self, frame: &[u8]) -> bool {
        let first = frame.first_chunk().copied().unwrap_or_default();
        u64::from_le_bytes(first) & Self::BITS == self.0
    }
}

/// Parsed and looked-up packets of a burst.
struct Plain<A> {
    destinations: [A; BURST_MAX],
    packed: [Packed; BURST_MAX],
    hops: [u32; BURST_MAX],
    /// Positions of plain packets.
    places: Places,
}

impl<A: Copy> Plain<A> {
    #[inline(always)]
    fn new(zero: A) -> Self {
        Self {
            destinations: [zero; BURST_MAX],
            packed: [Packed(0); BURST_MAX],
            hops: [NO_ROUTE; BURST_MAX],
            places: 0,
        }
    }

    /// Parses the frames that are long enough.
    #[inline(always)]
    fn read<'a, const HEADERS: usize>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
        reader: impl Fn(&[u8; HEADERS], usize) -> Reading<A>,
    ) {
        let slots = self.destinations.iter_mut().zip(&mut self.packed);
        for (place, (frame, (destination, packed))) in frames.zip(slots).enumerate() {
            if let Some(headers) = frame.first_chunk::<HEADERS>() {
                let reading = reader(headers, frame.len());
                (*destination, *packed) = (reading.destination, reading.packed);
                self.places |= u64::from(reading.is_plain) << place;
            }
        }
    }

    /// Looks up the first `count` packets, including those that are not plain, which is harmless.
    #[inline(always)]
    fn look_up(&mut self, count: usize, look_up: impl Fn(&[A], &mut [u32])) {
        if let (Some(destinations), Some(hops)) =
            (self.destinations.get(..count), self.hops.get_mut(..count))
        {
            look_up(destinations, hops);
        }
    }

    #[inline(always)]
    fn decide<'a>(
        &self,
        router: &Router,
        left: &mut Places,
        frames: impl Iterator<Item = &'a [u8]>,
        decisions: &mut Decisions,
    ) {
        for hop in &self.hops {
            router.next_hops.prefetch(*hop);
        }
        // Most packets of a burst have the same egress interface.
        let mut last = (u16::MAX, 0);
        let each = frames.zip(&self.hops).zip(&self.packed).enumerate();
        for (place, ((frame, hop), packed)) in each {
            if self.places >> place & 1 == 0 {
                continue;
            }
            if let Some(to) = router.next_hops.adjacency(*hop) {
                if to.interface() != last.0 {
                    let out = router.interfaces.get(to.interface());
                    last = (to.interface(), out.map_or(0, |out| out.mtu));
                }
                if (packed.ttl() > 1) & (packed.length() <= last.1) {
                    decisions.forward(place, to);
                    continue;
                }
            }
            decide_alone(router, (*packed, *hop, frame), place, decisions);
        }
        *left &= !self.places;
    }
}

#[inline(never)]
fn decide_alone(
    router: &Router,
    (packed, hop, frame): (Packed, u32, &[u8]),
    place: usize,
    decisions: &mut Decisions,
) {
    decisions.set(place, follow(router, packed.brief(), hop, frame));
}

/// Returns the ingress interface if it is the same for all frames.
#[inline(always)]
fn common_interface(router: &Router, interfaces: &[u16]) -> Option<Interface> {
    let first = *interfaces.first()?;
    let differing = interfaces.iter().fold(0, |bits, it| bits | (it ^ first));
    router
        .interfaces
        .get(first)
        .filter(|_| differing == 0)
        .copied()
}

/// Decides on the plain packets of a burst, IPv4 or IPv6 like its first packet, and removes them from the remaining ones.
#[inline(always)]
pub(super) fn decide_plain<'a>(
    router: &Router,
    left: &mut Places,
    frames: impl Iterator<Item = &'a [u8]> + Clone,
    interfaces: &[u16],
    decisions: &mut Decisions,
) {
    let Some(interface) = common_interface(router, interfaces).filter(|one| one.urpf == Urpf::Off)
    else {
        return;
    };
    let Some(tables) = router.vrfs.get(usize::from(interface.vrf)) else {
        return;
    };
    let station = Station::of(interface.mac);
    let count = interfaces.len();
    match version(frames.clone()) {
        4 if interface.ipv4 => {
            let mut burst = Plain::new(0u32);
            burst.read(frames.clone(), |headers, octets| {
                read_v4(headers, octets, station)
            });
            burst.look_up(count, |to, hops| tables.ipv4.look_up_burst(to, hops));
            burst.decide(router, left, frames, decisions);
        }
        6 if interface.ipv6 => {
            let mut burst = Plain::new(0u128);
            burst.read(frames.clone(), |headers, octets| {
                read_v6(headers, octets, station)
            });
            burst.look_up(count, |to, hops| tables.ipv6.look_up_burst(to, hops));
            burst.decide(router, left, frames, decisions);
        }
        _ => {}
    }
}

/// Returns the IP version of the first packet.
#[inline(always)]
fn version<'a>(mut frames: impl Iterator<Item = &'a [u8]>) -> u8 {
    let first = frames
        .next()
        .and_then(|frame| frame.get(ETHERNET_HEADER_LENGTH));
    first.map_or(0, |octet| octet >> 4)
}

/// Parses an IPv4 packet. Plain: for this station, without options, valid, between unicast addresses that can be anywhere.
#[inline(always)]
fn read_v4(headers: &[u8; V4_HEADERS], octets: usize, station: Station) -> Reading<u32> {
    let of = headers;
    let length = u16::from_be_bytes([of[16], of[17]]);
    let source = u32::from_be_bytes([of[26], of[27], of[28], of[29]]);
    let destination = u32::from_be_bytes([of[30], of[31], of[32], of[33]]);
    let has_no_options = [of[12], of[13], of[14]] == [0x08, 0x00, 0x45];
    // Between the header length and the frame length.
    let space = octets.wrapping_sub(V4_HEADERS);
    let is_whole = usize::from(length).wrapping_sub(IPV4_HEADER) <= space;
    let is_sound = headers.last_chunk().map_or(1, header::sum_of) == 0;
    Reading {
        is_plain: station.has(headers)
            & has_no_options
            & is_whole
            & is_sound
            & !is_special_v4(source)
            & !is_special_v4(destination),
        destination,
        packed: Packed::new(length, of[22], of[20] & 0x40 == 0),
    }
}

/// Returns true for unspecified, loopback, multicast and link-local addresses, which are not or not always forwarded.
#[inline(always)]
fn is_special_v4(address: u32) -> bool {
    let network = address >> 24;
    (network.wrapping_sub(1) >= 223) | (network == 127) | header::is_link_local_v4(address)
}

/// Parses an IPv6 packet with the same conditions.
#[inline(always)]
fn read_v6(headers: &[u8; V6_HEADERS], octets: usize, station: Station) -> Reading<u128> {
    let of = headers;
    let payload = u16::from_be_bytes([of[18], of[19]]);
    let length = payload.wrapping_add(IPV6_HEADER_OCTETS);
    let source = u64::from_be_bytes([
        of[22], of[23], of[24], of[25], of[26], of[27], of[28], of[29],
    ]);
    let destination = u128::from_be_bytes(*headers.last_chunk().unwrap_or(&[0; 16]));
    let is_v6 = [of[12], of[13], of[14] & 0xf0] == [0x86, 0xdd, 0x60];
    let space = octets.wrapping_sub(V6_HEADERS);
    let is_whole = (usize::from(payload) <= space) & (length >= payload);
    Reading {
        is_plain: station.has(headers)
            & is_v6
            & is_whole
            & is_of_a_station(source)
            & is_of_a_station((destination >> 64) as u64),
        destination,
        packed: Packed::new(length, of[21], false),
    }
}

/// Returns true for global addresses, 2000::/3 (RFC 4291, section 2.4), and local ones, fc00::/7 (RFC 4193), by the upper half of the
/// address.
#[inline(always)]
fn is_of_a_station(address: u64) -> bool {
    (address >> 61 == 1) | (address >> 57 == 0x7e)
}
