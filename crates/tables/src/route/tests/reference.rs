// SPDX-License-Identifier: Apache-2.0
//! Reference router: one packet after the other, its header parsed by another library, its routes searched in a list.

use std::net::IpAddr;

use etherparse::{Ethernet2HeaderSlice, Ipv4HeaderSlice, Ipv6HeaderSlice};

use super::{Adjacency, Decision, NextHop, Punt, Urpf, World};
use crate::drops::RouterDrop;

/// Returns the possible decisions for a frame: more than one if a group has several next hops.
pub(super) fn disposition(world: &World, frame: &[u8], number: u16) -> Vec<Decision> {
    match header(world, frame, number) {
        Err(decision) => vec![decision],
        Ok(packet) => packet.route(world, number),
    }
}

struct Packet {
    source: IpAddr,
    destination: IpAddr,
    length: usize,
    ttl: u8,
    may_fragment: bool,
    /// End of the payload within the original packet, octets.
    end: usize,
}

fn drop_for(reason: RouterDrop) -> Result<Packet, Decision> {
    Err(Decision::Drop(reason))
}

fn header(world: &World, frame: &[u8], number: u16) -> Result<Packet, Decision> {
    let Some(interface) = world.router.interfaces.get(number) else {
        return drop_for(RouterDrop::NoInterface);
    };
    let Ok(ethernet) = Ethernet2HeaderSlice::from_slice(frame) else {
        return drop_for(RouterDrop::HeaderError);
    };
    let to = ethernet.destination();
    if to[..] != interface.mac.to_u64().to_be_bytes()[2..] && to[0] & 1 == 0 {
        return drop_for(RouterDrop::NotForUs);
    }
    let packet = match (ethernet.ether_type().0, interface.ipv4, interface.ipv6) {
        (0x0800, true, _) => v4(&frame[14..])?,
        (0x86dd, _, true) => v6(&frame[14..])?,
        (0x0806, true, _) => return Err(Decision::Punt(Punt::Arp)),
        _ => return drop_for(RouterDrop::UnknownProtocol),
    };
    if to[0] & 1 == 1 {
        return drop_for(RouterDrop::BroadcastFrame);
    }
    if let IpAddr::V6(address) = packet.destination
        && address.is_unicast_link_local()
    {
        return Err(Decision::Punt(Punt::ForUs));
    }
    Ok(packet)
}

fn v4(packet: &[u8]) -> Result<Packet, Decision> {
    let Ok(slice) = Ipv4HeaderSlice::from_slice(packet) else {
        return drop_for(RouterDrop::HeaderError);
    };
    let header = slice.to_header();
    let length = usize::from(header.total_len);
    if length < header.header_len() || length > packet.len() {
        return drop_for(RouterDrop::HeaderError);
    }
    if !is_summed_up(&packet[..header.header_len()]) {
        return drop_for(RouterDrop::ChecksumError);
    }
    let mut options = header.options.as_slice();
    while let [kind, rest @ ..] = options {
        match kind {
            0 => break,
            1 => options = rest,
            131 | 137 => return drop_for(RouterDrop::SourceRoute),
            _ => match rest.first() {
                Some(length) if *length >= 2 && usize::from(*length) <= options.len() => {
                    options = &options[usize::from(*length)..];
                }
                _ => break,
            },
        }
    }
    let (source, destination) = (slice.source_addr(), slice.destination_addr());
    let first = source.octets()[0];
    if first == 0 || source.is_loopback() || first >= 224 {
        return drop_for(RouterDrop::Martian);
    }
    if destination.is_broadcast() {
        return Err(Decision::Punt(Punt::ForUs));
    }
    if destination.is_multicast() {
        return if destination.octets()[..3] == [224, 0, 0] {
            Err(Decision::Punt(Punt::ForUs))
        } else {
            drop_for(RouterDrop::Multicast)
        };
    }
    if destination.octets()[0] == 0 || destination.is_loopback() || destination.octets()[0] >= 240 {
        return drop_for(RouterDrop::Martian);
    }
    Ok(Packet {
        source: source.into(),
        destination: destination.into(),
        length,
        ttl: header.time_to_live,
        may_fragment: !header.dont_fragment,
        end: usize::from(header.fragment_offset.value()) * 8 + length,
    })
}

/// Verifies the checksum (RFC 1071, section 1). Etherparse omits the reserved bit when it sums a parsed header.
fn is_summed_up(header: &[u8]) -> bool {
    let words = header
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

fn v6(packet: &[u8]) -> Result<Packet, Decision> {
    let Ok(slice) = Ipv6HeaderSlice::from_slice(packet) else {
        return drop_for(RouterDrop::HeaderError);
    };
    let length = usize::from(slice.payload_length()) + 40;
    if length > packet.len() || length > usize::from(u16::MAX) {
        return drop_for(RouterDrop::HeaderError);
    }
    let (source, destination) = (slice.source_addr(), slice.destination_addr());
    if destination.is_multicast() {
        return match destination.octets()[1] & 0xf {
            _ if source.is_multicast() => drop_for(RouterDrop::Martian),
            2 => Err(Decision::Punt(Punt::ForUs)),
            _ => drop_for(RouterDrop::Multicast),
        };
    }
    for address in [source, destination] {
        if address.is_unspecified() || address.is_loopback() || address.to_ipv4_mapped().is_some() {
            return drop_for(RouterDrop::Martian);
        }
    }
    if source.is_multicast() {
        return drop_for(RouterDrop::Martian);
    }
    Ok(Packet {
        source: source.into(),
        destination: destination.into(),
        length,
        ttl: slice.hop_limit(),
        may_fragment: false,
        end: 0,
    })
}

impl Packet {
    fn route(&self, world: &World, number: u16) -> Vec<Decision> {
        let Some(interface) = world.router.interfaces.get(number) else {
            return Vec::new();
        };
        let is_link_local =
            matches!(self.source, IpAddr::V6(source) if source.is_unicast_link_local());
        if interface.urpf != Urpf::Off && !is_link_local {
            let ways = each(world, world.next_hop(interface.vrf, self.source));
            let leads = |way: &NextHop| match (way.interface(), interface.urpf) {
                (Some(out), Urpf::Strict) => out == number,
                (out, _) => out.is_some(),
            };
            if !ways.iter().any(leads) {
                return vec![Decision::Drop(RouterDrop::Urpf)];
            }
        }
        let ways = each(world, world.next_hop(interface.vrf, self.destination));
        ways.into_iter()
            .map(|way| self.follow(world, way))
            .collect()
    }

    /// Returns true for link-local addresses, which are not forwarded.
    fn is_of_a_link(&self) -> bool {
        match (self.source, self.destination) {
            (IpAddr::V4(from), IpAddr::V4(to)) => from.is_link_local() || to.is_link_local(),
            (IpAddr::V6(from), _) => from.is_unicast_link_local(),
            _ => false,
        }
    }

    fn follow(&self, world: &World, way: NextHop) -> Decision {
        let on = match way {
            NextHop::None | NextHop::Group(_) => return Decision::Punt(Punt::NoRoute),
            NextHop::Local => return Decision::Punt(Punt::ForUs),
            NextHop::Blackhole => return Decision::Drop(RouterDrop::Blackhole),
            NextHop::Unreachable => return Decision::Punt(Punt::Unreachable),
            NextHop::Prohibit => return Decision::Punt(Punt::Prohibited),
            on => on,
        };
        if self.is_of_a_link() {
            return Decision::Drop(RouterDrop::Martian);
        }
        if self.ttl < 2 {
            return Decision::Punt(Punt::TimeExceeded);
        }
        let NextHop::Adjacency { interface, mac } = on else {
            return Decision::Punt(Punt::Neighbour);
        };
        let mtu = world.router.interfaces.get(interface).unwrap().mtu;
        match (self.length <= usize::from(mtu), self.may_fragment) {
            (true, _) => Decision::Forward(Adjacency::new(interface, mac)),
            (false, true) if self.end > 65_535 => Decision::Drop(RouterDrop::FragmentOffset),
            (false, true) => Decision::Fragment(Adjacency::new(interface, mac)),
            (false, false) => Decision::Punt(Punt::TooBig),
        }
    }
}

/// Returns all members of a next hop.
fn each(world: &World, next_hop: NextHop) -> Vec<NextHop> {
    match next_hop {
        NextHop::Group(group) => (0..256)
            .map(|flow| world.router.next_hops.choose(group, flow))
            .collect(),
        one => vec![one],
    }
}
