// SPDX-License-Identifier: Apache-2.0
//! Fast path of most packets: valid packets without special features in a burst of one interface. The test for such packets has no branch
//! per rule; [`super::header`], which knows the reasons, handles all others.

use quietwire_base::BURST_MAX;
use quietwire_packet::{ETHERNET_HEADER_LENGTH, MacAddress};

use super::decision::{DecisionWord, Decisions, Places};
use super::header::{self, IPV4_HEADER, IPV6_HEADER, PacketSummary};
use super::interfaces::{Interface, Urpf};
use super::next_hops::INTERFACE_SHIFT;
use super::resolve::follow;
use super::router::Router;
use crate::fib::NO_ROUTE;

const V4_HEADERS: usize = ETHERNET_HEADER_LENGTH + IPV4_HEADER;
const V6_HEADERS: usize = ETHERNET_HEADER_LENGTH + IPV6_HEADER;
/// The length of an IPv6 header in the type of lengths of packets.
const IPV6_HEADER_OCTETS: u16 = 40;
const _: () = assert!(IPV6_HEADER_OCTETS as usize == IPV6_HEADER);

/// Parsed packet. The destination is meaningless if the packet is not plain.
#[derive(Clone, Copy)]
struct Reading<A> {
    is_plain: bool,
    destination: A,
    /// Length of the packet, octets; [`NEVER`] if it is not plain, or its time to live is exceeded.
    length: u32,
}

/// A length that no link has space for.
const NEVER: u32 = u32::MAX;

/// Returns a length if packets of it may be forwarded, otherwise [`NEVER`].
#[inline(always)]
fn length_if(may_forward: bool, length: u16) -> u32 {
    u32::from(length) | u32::from(may_forward).wrapping_sub(1)
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
    lengths: [u32; BURST_MAX],
    hops: [u32; BURST_MAX],
    /// Whether each packet is plain.
    is_plain: [bool; BURST_MAX],
}

impl<A: Copy> Plain<A> {
    #[inline(always)]
    fn new(zero: A) -> Self {
        Self {
            destinations: [zero; BURST_MAX],
            lengths: [NEVER; BURST_MAX],
            hops: [NO_ROUTE; BURST_MAX],
            is_plain: [false; BURST_MAX],
        }
    }

    /// Parses the frames that are long enough.
    #[inline(always)]
    fn read<'a, const HEADERS: usize>(
        &mut self,
        frames: impl Iterator<Item = &'a [u8]>,
        reader: impl Fn(&[u8; HEADERS], usize) -> Reading<A>,
    ) {
        let results = self.destinations.iter_mut().zip(&mut self.lengths);
        for (frame, ((destination, length), is_plain)) in
            frames.zip(results.zip(&mut self.is_plain))
        {
            if let Some(headers) = frame.first_chunk::<HEADERS>() {
                let reading = reader(headers, frame.len());
                *destination = reading.destination;
                *length = reading.length;
                *is_plain = reading.is_plain;
            }
        }
    }

    /// Returns the positions of plain packets.
    fn places(&self) -> Places {
        let each = self.is_plain.iter().enumerate();
        each.fold(0, |places, (place, is_plain)| {
            places | Places::from(*is_plain) << place
        })
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

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "counts at most BURST_MAX packets"
    )]
    #[inline(always)]
    fn decide<'a>(
        &self,
        router: &Router,
        left: &mut Places,
        frames: impl Iterator<Item = &'a [u8]>,
        decisions: &mut Decisions,
    ) {
        // Most packets of a burst have the same egress interface.
        let mut last = Exit::NONE;
        let (mut exits, mut forwarded) = (0, 0);
        let words = decisions.words_mut();
        let count = words.len();
        for ((word, hop), length) in words.iter_mut().zip(&self.hops).zip(&self.lengths) {
            let next_hop = router.next_hops.word(*hop);
            if !last.is_of(next_hop) {
                last = Exit::new(router, next_hop);
                exits += 1;
            }
            if *length <= last.mtu {
                *word = next_hop;
                forwarded += 1;
            }
        }
        if forwarded == count {
            decisions.set_exit(last.interface().filter(|_| exits == 1));
            *left = 0;
        } else {
            let places = self.places();
            self.decide_others(router, places, frames, decisions);
            *left &= !places;
        }
    }

    /// Decides on the plain packets that do not go to a neighbour unfragmented.
    #[inline(never)]
    fn decide_others<'a>(
        &self,
        router: &Router,
        places: Places,
        frames: impl Iterator<Item = &'a [u8]>,
        decisions: &mut Decisions,
    ) {
        for (place, (frame, hop)) in frames.zip(&self.hops).enumerate().take(BURST_MAX) {
            let is_open = decisions
                .word(place)
                .is_some_and(|word| word.forwarded().is_none());
            if is_open && places >> place & 1 == 1 {
                decisions.set(place, follow(router, summary_of(frame), *hop, frame));
            }
        }
    }
}

/// Exit of the packets of a next hop, and the longest ones that leave by it unfragmented.
#[derive(Clone, Copy)]
struct Exit {
    /// Kind and interface of the next hop: the upper bits of its word.
    of: u64,
    /// The longest packet; 0 if the next hop is no resolved neighbour.
    mtu: u32,
}

impl Exit {
    /// The exit of no next hop.
    const NONE: Self = Self {
        of: u64::MAX,
        mtu: 0,
    };

    #[inline(always)]
    fn new(router: &Router, next_hop: u64) -> Self {
        let to = DecisionWord::of(next_hop).forwarded();
        let out = to.and_then(|to| router.interfaces.get(to.interface()));
        Self {
            of: next_hop >> INTERFACE_SHIFT,
            mtu: out.map_or(0, |out| out.mtu.into()),
        }
    }

    #[inline(always)]
    const fn is_of(self, next_hop: u64) -> bool {
        next_hop >> INTERFACE_SHIFT == self.of
    }

    /// Returns the interface of a resolved neighbour.
    #[inline(always)]
    fn interface(self) -> Option<u16> {
        let to = DecisionWord::of(self.of << INTERFACE_SHIFT).forwarded()?;
        Some(to.interface())
    }
}

/// Returns the fields besides the addresses of a plain packet.
fn summary_of(frame: &[u8]) -> PacketSummary {
    let [.., version, _, a, b, c, d, flags, e, ttl] = *frame.first_chunk().unwrap_or(&[0; 23]);
    if version >> 4 == 4 {
        PacketSummary {
            length: u16::from_be_bytes([a, b]),
            ttl,
            may_fragment: flags & 0x40 == 0,
            is_of_a_link: false,
        }
    } else {
        PacketSummary {
            length: u16::from_be_bytes([c, d]).wrapping_add(IPV6_HEADER_OCTETS),
            ttl: e,
            may_fragment: false,
            is_of_a_link: false,
        }
    }
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

/// EtherType of IPv4, version and header length in the lowest three octets of a number.
const V4_KIND: u32 = 0x45_0008;

/// Parses an IPv4 packet. Plain: for this station, without options, valid, between unicast addresses that can be anywhere.
///
/// Five loads have all fields.
#[expect(
    clippy::cast_possible_truncation,
    reason = "fields are the lowest bits of shifted words"
)]
#[inline(always)]
fn read_v4(headers: &[u8; V4_HEADERS], octets: usize, station: Station) -> Reading<u32> {
    let [to, first, second] = [0, 14, 22].map(|at| header::word_at(headers, at));
    let [kind, third] = [12, 30].map(|at| header::half_word_at(headers, at));
    let length = ((first >> 16) as u16).swap_bytes();
    let differs = (to ^ station.0) << 16 | u64::from((kind ^ V4_KIND) & 0xff_ffff);
    // Between the header length and the frame length.
    let space = octets.wrapping_sub(V4_HEADERS);
    let is_whole = usize::from(length).wrapping_sub(IPV4_HEADER) <= space;
    let is_plain = (differs == 0)
        & is_whole
        & header::is_sound([first, second], third)
        & !are_special_v4((second >> 32) as u8, third as u8, headers);
    Reading {
        is_plain,
        destination: third.swap_bytes(),
        length: length_if(is_plain & (second as u8 > 1), length),
    }
}

/// Class of the IPv4 networks of 8 bits whose addresses all are not or not always forwarded: unspecified, loopback, multicast, reserved.
const SPECIAL: u8 = 1;
/// Class of the network of 8 bits that contains link-local addresses.
const WITH_LINK_LOCAL: u8 = 2;
/// Classes of IPv4 networks of 8 bits.
static CLASSES: [u8; 256] = classes();

#[expect(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "evaluated by the compiler; all indices are below 256"
)]
const fn classes() -> [u8; 256] {
    let mut classes = [0; 256];
    (classes[0], classes[127], classes[169]) = (SPECIAL, SPECIAL, WITH_LINK_LOCAL);
    let mut network = 224;
    while network < 256 {
        classes[network] = SPECIAL;
        network += 1;
    }
    classes
}

/// Returns true if one of two addresses, given by their first octets and the headers, is unspecified, loopback, multicast, reserved or
/// link-local: not or not always forwarded.
#[inline(always)]
fn are_special_v4(source: u8, destination: u8, headers: &[u8; V4_HEADERS]) -> bool {
    let class = |network: u8| {
        CLASSES
            .get(usize::from(network))
            .copied()
            .unwrap_or(SPECIAL)
    };
    let classes = class(source) | class(destination);
    classes != 0 && (classes & SPECIAL != 0 || has_link_local(headers))
}

#[cold]
fn has_link_local(headers: &[u8; V4_HEADERS]) -> bool {
    let [.., a, b, c, d, e, f, g, h] = *headers;
    let [source, destination] = [[a, b, c, d], [e, f, g, h]].map(u32::from_be_bytes);
    header::is_link_local_v4(source) || header::is_link_local_v4(destination)
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
    let is_plain = station.has(headers)
        & is_v6
        & is_whole
        & is_of_a_station(source)
        & is_of_a_station((destination >> 64) as u64);
    Reading {
        is_plain,
        destination,
        length: length_if(is_plain & (of[21] > 1), length),
    }
}

/// Returns true for global addresses, 2000::/3 (RFC 4291, section 2.4), and local ones, fc00::/7 (RFC 4193), by the upper half of the
/// address.
#[inline(always)]
fn is_of_a_station(address: u64) -> bool {
    (address >> 61 == 1) | (address >> 57 == 0x7e)
}
