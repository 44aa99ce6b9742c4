// SPDX-License-Identifier: Apache-2.0
//! NAT66 of a forwarding thread, around the router: destinations before the routing decision, sources behind it, as NAT44 does.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use quietwire_packet::{ETHERNET_HEADER_LENGTH, IPV6_HEADER_LENGTH, IpProtocol, VLAN_TAG_LENGTH};
use quietwire_tables::nat::{NatDrop, NatOutcome, NatProtocol, PoolGrowth};
use quietwire_tables::nat66::Nat66Settings;

use super::nat::{
    Nat66Place, NatBinding, NatCopy, NatInstance, NatStage, NatTables, received, sent,
};

/// Offsets in an IPv6 header.
pub(super) const NEXT_HEADER_AT: usize = 6;
const SOURCE_AT: usize = 8;
const DESTINATION_AT: usize = 24;
/// Types of Neighbor Discovery messages (RFC 4861, section 4).
const NEIGHBOUR_DISCOVERY: std::ops::RangeInclusive<u8> = 133..=137;

/// Returns the IPv6 packet in an untagged frame.
#[inline(always)]
pub(super) fn ipv6(frame: &[u8]) -> Option<&[u8]> {
    let (ethernet, packet) = frame.split_first_chunk::<ETHERNET_HEADER_LENGTH>()?;
    ethernet.ends_with(&[0x86, 0xdd]).then_some(packet)
}

/// Returns the address at an offset of the IPv6 packet in an untagged frame.
#[inline(always)]
fn address_at(frame: &[u8], at: usize) -> Option<u128> {
    let octets = ipv6(frame)?.get(at..)?.first_chunk()?;
    Some(u128::from_be_bytes(*octets))
}

/// Returns the offset of the IPv6 packet in a frame, behind up to two tags.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the offset is behind the addresses, and there are at most three tags"
)]
pub(super) fn ipv6_offset(frame: &[u8]) -> Option<usize> {
    let mut at = ETHERNET_HEADER_LENGTH;
    for _ in 0..3 {
        let ethertype = frame.get(at - 2..)?.first_chunk::<2>()?;
        match *ethertype {
            [0x86, 0xdd] => return Some(at),
            [0x81, 0x00] | [0x88, 0xa8] => at += VLAN_TAG_LENGTH,
            _ => return None,
        }
    }
    None
}

/// Returns true for a message of Neighbor Discovery, which no NAT translates: it stays on its link.
fn is_neighbour_discovery(packet: &[u8]) -> bool {
    let kind = packet.get(IPV6_HEADER_LENGTH);
    packet.get(NEXT_HEADER_AT) == Some(&IpProtocol::ICMPV6.0)
        && kind.is_some_and(|kind| NEIGHBOUR_DISCOVERY.contains(kind))
}

/// Returns the packet in a frame.
fn packet_in(frame: &mut [u8]) -> &mut [u8] {
    frame.get_mut(ETHERNET_HEADER_LENGTH..).unwrap_or_default()
}

impl NatInstance {
    /// Returns true for an external address of NAT66 in a VRF.
    #[inline]
    fn has_ipv6(&self, address: u128, vrf: u16) -> bool {
        let place = self.place.nat66.as_ref();
        let is_of_vrf = place.is_some_and(|place| place.vrf == vrf);
        let tables = self.tables.as_ref().filter(|_| is_of_vrf);
        let nat66 = tables.and_then(|tables| tables.nat66.as_ref());
        nat66.is_some_and(|nat66| nat66.is_external(address))
    }

    /// Returns true if an interface is the outside of NAT66.
    #[inline]
    fn leaves_ipv6(&self, interface: u16) -> bool {
        let place = self.place.nat66.as_ref();
        place.is_some_and(|place| place.interface == interface)
    }
}

impl NatInstance {
    /// Returns true if NAT64 or NAT66 may translate a packet between these addresses.
    fn may_translate_ipv6(&self, source: u128, destination: u128) -> bool {
        let place = self.place.nat66.as_ref();
        if place.is_some_and(|place| place.concerns_source(source)) {
            return true;
        }
        self.tables.as_ref().is_some_and(|tables| {
            let nat64 = tables.nat64.as_ref();
            let nat66 = tables.nat66.as_ref();
            nat64.is_some_and(|nat64| nat64.concerns(destination))
                || nat66.is_some_and(|nat66| nat66.is_external(destination))
        })
    }
}

impl NatTables {
    /// Adds external addresses behind those of the tables. With NAT66, the growth has the numbers of those in the settings. Allocates nothing.
    pub(super) fn grow(&mut self, growth: &mut PoolGrowth, nat66: Option<&Nat66Settings>) {
        let has_grown = self.nat.grow(growth);
        if let (true, Some(tables), Some(settings)) = (has_grown, &mut self.nat66, nat66) {
            tables.grow(&settings.externals);
        }
    }
}

impl NatStage {
    /// Returns true if an instance may translate the IPv6 packet in a frame, by its addresses alone.
    pub(super) fn may_translate_ipv6(&self, frame: &[u8]) -> bool {
        let packet = ipv6_offset(frame).and_then(|at| frame.get(at..));
        let address = |at: usize| {
            let octets = packet?.get(at..)?.first_chunk()?;
            Some(u128::from_be_bytes(*octets))
        };
        let (Some(source), Some(destination)) = (address(SOURCE_AT), address(DESTINATION_AT))
        else {
            return false;
        };
        let mut instances = self.instances.iter();
        instances.any(|one| one.may_translate_ipv6(source, destination))
    }

    /// Returns true if an untagged frame of a VRF is to an external address of IPv6.
    pub(super) fn concerns_ipv6(&self, frame: &[u8], vrf: u16) -> bool {
        let destination = address_at(frame, DESTINATION_AT);
        destination.is_some_and(|to| self.instances.iter().any(|one| one.has_ipv6(to, vrf)))
    }

    /// Returns true if an interface is the outside of an instance.
    pub(super) fn is_outside_ipv6(&self, interface: u16) -> bool {
        self.instances.iter().any(|one| one.leaves_ipv6(interface))
    }

    /// Translates the destination of an IPv6 packet to an external address; parameters and errors as in [`NatStage::receive`].
    pub(super) fn receive_ipv6(
        &mut self,
        frame: &mut [u8],
        length: usize,
        (from, vrf): (u16, u16),
        now_s: u32,
    ) -> Result<(), NatDrop> {
        let Some(destination) = address_at(frame, DESTINATION_AT) else {
            return Ok(());
        };
        let mut instances = self.instances.iter_mut();
        let Some(NatInstance {
            place: NatBinding {
                nat66: Some(place), ..
            },
            tables: Some(tables),
            ..
        }) = instances.find(|one| one.has_ipv6(destination, vrf))
        else {
            return Ok(());
        };
        let packet = packet_in(frame);
        let is_own = place.is_own(destination);
        if is_own && is_neighbour_discovery(packet) {
            return Ok(());
        }
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let outcome = match &mut **tables {
            NatTables {
                nat,
                nat66: Some(nat66),
                ..
            } if from == place.interface => nat66.inbound(nat, packet, length, now_s),
            NatTables {
                nat,
                nat66: Some(nat66),
                ..
            } => nat66.hairpin(nat, packet, length, now_s),
            NatTables { nat66: None, .. } => NatOutcome::Untouched,
        };
        tables.pass_events();
        received(outcome, || is_own)
    }

    /// Translates the source of an IPv6 packet that leaves by an interface, in an untagged frame that was received on another interface, of
    /// a VRF. `length` is that of the frame.
    ///
    /// # Errors
    /// The reason to drop the frame.
    pub(super) fn send_ipv6(
        &mut self,
        frame: &mut [u8],
        length: usize,
        (interface, vrf): (u16, u16),
        now_s: u32,
    ) -> Result<(), NatDrop> {
        let Some(source) = address_at(frame, SOURCE_AT) else {
            return Ok(());
        };
        let mut instances = self.instances.iter_mut();
        let Some(NatInstance {
            place: NatBinding {
                nat66: Some(place), ..
            },
            tables,
            ..
        }) = instances.find(|one| one.leaves_ipv6(interface))
        else {
            return Ok(());
        };
        if !place.concerns_source(source) || place.is_of_router(source) {
            return Ok(());
        }
        if address_at(frame, DESTINATION_AT).is_some_and(|to| place.excludes(to)) {
            return Ok(());
        }
        if place.vrf != vrf {
            return Err(NatDrop::OtherVrf);
        }
        // Without tables, packets must not leave with inside addresses.
        let tables = tables.as_mut().ok_or(NatDrop::TableFull)?;
        let NatTables {
            nat,
            nat66: Some(nat66),
            ..
        } = &mut **tables
        else {
            return Err(NatDrop::TableFull);
        };
        let length = length.saturating_sub(ETHERNET_HEADER_LENGTH);
        let outcome = nat66.outbound(nat, packet_in(frame), length, now_s);
        tables.pass_events();
        sent(outcome)
    }

    /// Returns a copy of a received frame with its inside destination; parameters as in [`NatStage::inside_copy`].
    pub(super) fn inside_copy_ipv6<'copy>(
        &self,
        frame: &[u8],
        length: usize,
        copy: &'copy mut NatCopy,
    ) -> Option<&'copy [u8]> {
        let at = ipv6_offset(frame)?;
        let packet = frame.get(at..)?;
        let destination = packet.get(DESTINATION_AT..)?.first_chunk()?;
        let destination = u128::from_be_bytes(*destination);
        let (tables, nat66) = self.instances.iter().find_map(|one| {
            let tables = one.tables.as_ref()?;
            let nat66 = tables.nat66.as_ref()?;
            nat66.is_external(destination).then_some((tables, nat66))
        })?;
        let is_icmp = packet.get(NEXT_HEADER_AT) == Some(&IpProtocol::ICMPV6.0);
        let space = copy.of_protocol(frame, is_icmp)?;
        let packet = space.get_mut(at..)?;
        let outcome = nat66.show_inside(&tables.nat, packet, length.saturating_sub(at));
        (outcome == NatOutcome::Translated).then_some(&*space)
    }

    /// Returns the external endpoint of an inside one for packets to a remote address, unless they leave without translation.
    pub(super) fn external_of_ipv6(
        &self,
        protocol: u8,
        internal: SocketAddrV6,
        remote: IpAddr,
    ) -> Option<SocketAddr> {
        let protocol = match IpProtocol(protocol) {
            IpProtocol::ICMPV6 => NatProtocol::Icmp,
            IpProtocol::TCP => NatProtocol::Tcp,
            IpProtocol::UDP => NatProtocol::Udp,
            _ => return None,
        };
        let internal = SocketAddrV6::new(*internal.ip(), internal.port(), 0, 0);
        let is_excluded = |place: &Nat66Place| match remote {
            IpAddr::V4(_) => false,
            IpAddr::V6(remote) => place.excludes(remote.to_bits()),
        };
        let external = self.instances.iter().find_map(|one| {
            one.place.nat66.as_ref().filter(|one| !is_excluded(one))?;
            let tables = one.tables.as_ref()?;
            let nat66 = tables.nat66.as_ref()?;
            nat66.external_of(&tables.nat, protocol, internal)
        })?;
        Some(SocketAddr::V6(external))
    }

    /// Translates the packet in an ICMPv6 error of the router itself that leaves by an outside interface.
    pub(super) fn send_own_ipv6(&self, frame: &mut [u8], interface: u16) {
        let mut instances = self.instances.iter();
        let instance = instances.find(|one| one.leaves_ipv6(interface));
        let tables = instance.and_then(|one| one.tables.as_ref());
        if let Some(tables) = tables
            && let Some(nat66) = &tables.nat66
            && ipv6(frame).is_some()
        {
            let length = frame.len().saturating_sub(ETHERNET_HEADER_LENGTH);
            nat66.translate_own_error(&tables.nat, packet_in(frame), length);
        }
    }
}
