// SPDX-License-Identifier: Apache-2.0
//! Translation of packets in both directions, and static forwards.

mod standby;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

use super::joined::{Joined, ends};
use super::packet::{DESTINATION_AT, End, Kind, View, address_at, read};
use super::rewrite::{translate, translate_error, translate_inner};
use super::settings::{Nat66Settings, is_host};
use crate::arena::NoMemory;
use crate::fragments::FragmentPart;
use crate::nat::packet::End as NumberEnd;
use crate::nat::rewrite::Which;
use crate::nat::{
    ChangesIpv6, EXTERNALS_MAX, FORWARDS_MAX, Forward, HOST_ELSEWHERE, MAPPINGS_MAX, Nat, NatDrop,
    NatEvent, NatOutcome, NatProtocol, ReplicateIpv6,
};
use crate::nat64::clients::Clients;
use crate::share::{Share, folded};

/// NAT66 of one forwarding thread, beside its NAT, which has numbers in place of addresses. [`Nat66::new`] makes all allocations.
#[derive(Debug)]
pub struct Nat66 {
    /// External addresses by number. Has space for all that a NAT can have.
    externals: Vec<u128>,
    /// External addresses in ascending order, with their numbers. Has as much space.
    by_address: Vec<(u128, u32)>,
    hosts: Clients,
    joined: Joined,
    /// Hosts of this forwarding CPU.
    share: Share,
    /// Changes for a standby, if they are wanted.
    changes: ChangesIpv6,
    /// Static forwards. Their hosts have numbers, unless these belong to another CPU.
    forwards: Vec<Forward<SocketAddrV6>>,
    /// Space for those before.
    former: Vec<Forward<SocketAddrV6>>,
    /// Space for static forwards between numbers.
    numbered: Vec<Forward>,
}

type Step = fn(&mut Nat66, &mut Nat, &mut [u8], usize) -> Result<NatOutcome, NatDrop>;

impl Nat66 {
    /// Creates the tables.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new(settings: &Nat66Settings) -> Result<Self, NoMemory> {
        Self::with_share(settings, Share::WHOLE)
    }

    /// Creates the tables of one of several forwarding CPUs, as [`Nat::with_share`] does.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn with_share(settings: &Nat66Settings, share: Share) -> Result<Self, NoMemory> {
        // Hosts of static forwards need no port block. Those of new forwards get numbers before those of former ones lose theirs.
        let of_forwards = u32::try_from(FORWARDS_MAX)
            .unwrap_or(u32::MAX)
            .saturating_mul(2);
        let hosts_max = settings.hosts_max.saturating_add(of_forwards);
        let mut made = Self {
            externals: Vec::with_capacity(EXTERNALS_MAX),
            by_address: Vec::with_capacity(EXTERNALS_MAX),
            hosts: Clients::new(hosts_max.min(MAPPINGS_MAX))?,
            joined: Joined::new(share),
            share,
            changes: ChangesIpv6::default(),
            forwards: Vec::with_capacity(FORWARDS_MAX),
            former: Vec::with_capacity(FORWARDS_MAX),
            numbered: Vec::with_capacity(FORWARDS_MAX),
        };
        made.grow(&settings.externals);
        Ok(made)
    }

    /// Adds external addresses behind those that are there, for a NAT whose pool has grown by their numbers: `externals` are all of them.
    /// Returns false, and adds none, if the first ones are others. Allocates nothing.
    pub fn grow(&mut self, externals: &[Ipv6Addr]) -> bool {
        let count = self.externals.len();
        let mut known = self.externals.iter().zip(externals);
        let is_same = known.all(|(known, one)| *known == one.to_bits());
        if !is_same || !(count..=EXTERNALS_MAX).contains(&externals.len()) {
            return false;
        }
        for (address, number) in externals.iter().zip(0..).skip(count) {
            let address = address.to_bits();
            let at = self.by_address.partition_point(|one| one.0 < address);
            self.by_address.insert(at, (address, number));
            self.externals.push(address);
        }
        true
    }

    /// Returns the memory of the tables, octets.
    #[must_use]
    pub fn octets(&self) -> usize {
        self.hosts.octets().saturating_add(self.joined.octets())
    }

    /// Returns the number of hosts with port blocks or static forwards.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.hosts.len()
    }

    /// Returns true for an external address.
    #[inline(always)]
    #[must_use]
    pub fn is_external(&self, address: u128) -> bool {
        self.number_of(address).is_some()
    }

    #[inline(always)]
    fn number_of(&self, address: u128) -> Option<u32> {
        let at = self.by_address.binary_search_by_key(&address, |one| one.0);
        self.by_address.get(at.ok()?).map(|one| one.1)
    }

    /// Returns the address of a host by its number, the inside address of its mappings.
    #[must_use]
    pub fn host(&self, number: Ipv4Addr) -> Option<Ipv6Addr> {
        let address = self.hosts.address_of(number.to_bits())?;
        Some(Ipv6Addr::from_bits(address))
    }

    /// Returns an external address by its number, the external address of mappings.
    #[must_use]
    pub fn external(&self, number: Ipv4Addr) -> Option<Ipv6Addr> {
        let address = self.externals.get(number.to_bits() as usize)?;
        Some(Ipv6Addr::from_bits(*address))
    }

    /// Notes an event of the NAT, which must be passed here before the next packet. Returns the host that it is about.
    pub fn note(&mut self, nat: &mut Nat, event: &NatEvent) -> Option<Ipv6Addr> {
        self.keep_changes(nat);
        match event {
            NatEvent::Block(event) => self.hosts.note(event),
            NatEvent::Mapping(_) | NatEvent::Limit(_) => self.host(event.host()?),
        }
    }

    /// Replaces the static forwards by these, which [`Nat66Settings::check`] accepts. Forwards that stay keep their connections. Returns
    /// the number of forwards without space. Allocates nothing. Events of the NAT must be passed to [`Self::note`] before and behind it.
    pub fn set_forwards(&mut self, nat: &mut Nat, wanted: &[Forward<SocketAddrV6>]) -> usize {
        self.keep_changes(nat);
        std::mem::swap(&mut self.forwards, &mut self.former);
        self.forwards.clear();
        self.numbered.clear();
        let mut without_space = 0usize;
        // Hosts that stay keep their numbers: former forwards end below.
        for forward in wanted {
            match self.numbered_forward(forward) {
                Some(numbered) => {
                    // Both have space for all forwards.
                    self.forwards.push(*forward);
                    self.numbered.push(numbered);
                }
                None => without_space = without_space.saturating_add(1),
            }
        }
        self.numbered.sort_unstable();
        without_space = without_space.saturating_add(nat.set_forwards(&self.numbered));
        self.keep_changes(nat);
        for forward in self.former.drain(..) {
            let host = forward.internal.ip().to_bits();
            if self.share.has_client(host) {
                self.hosts.release(host);
            }
        }
        without_space
    }

    /// Gives the host of a forward a number if it belongs to this CPU, and returns the forward between numbers. `None` without space.
    fn numbered_forward(&mut self, forward: &Forward<SocketAddrV6>) -> Option<Forward> {
        let Forward {
            protocol,
            external,
            internal,
        } = forward;
        if self.numbered.len() >= FORWARDS_MAX {
            return None;
        }
        let place = self.number_of(external.ip().to_bits())?;
        let host = internal.ip().to_bits();
        let host = match self.share.has_client(host) {
            true => self.hosts.hold(host)?,
            false => HOST_ELSEWHERE,
        };
        let socket = |number: u32, port| SocketAddrV4::new(Ipv4Addr::from_bits(number), port);
        Some(Forward {
            protocol: *protocol,
            external: socket(place, external.port()),
            internal: socket(host, internal.port()),
        })
    }

    /// Translates an IPv6 packet from the inside to the outside, in place, from its IPv6 header on. `length` is the number of octets in the
    /// frame; the packet may end in further buffers, except that of an ICMPv6 error.
    pub fn outbound(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
        now: u32,
    ) -> NatOutcome {
        let outcome = self.translated(nat, (packet, length), now, Self::try_outbound);
        nat.note_outcome(outcome, true);
        outcome
    }

    /// Translates an IPv6 packet from the outside to the inside, in place; parameters as in [`Self::outbound`].
    pub fn inbound(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
        now: u32,
    ) -> NatOutcome {
        let outcome = self.translated(nat, (packet, length), now, Self::try_inbound);
        nat.note_outcome(outcome, false);
        outcome
    }

    /// Translates an IPv6 packet from the inside to an external address, in place: source and destination. If no inside endpoint has the
    /// destination, its sender gets no mapping. Parameters as in [`Self::outbound`].
    pub fn hairpin(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
        now: u32,
    ) -> NatOutcome {
        let outcome = self.translated(nat, (packet, length), now, Self::try_hairpin);
        nat.note_outcome(outcome, true);
        outcome
    }

    /// Translates a packet to an external address like [`Self::inbound`], for the classification of a copy: changes no mapping, and counts
    /// nothing.
    pub fn show_inside(&self, nat: &Nat, packet: &mut [u8], length: usize) -> NatOutcome {
        let find = |external, protocol, _| nat.internal_end(external, protocol);
        let outcome = self.try_inside(packet, length, find);
        outcome.unwrap_or_else(NatOutcome::Dropped)
    }

    /// Returns the external endpoint of an inside one, if it has a mapping.
    #[must_use]
    pub fn external_of(
        &self,
        nat: &Nat,
        protocol: NatProtocol,
        internal: SocketAddrV6,
    ) -> Option<SocketAddrV6> {
        let number = NumberEnd {
            address: self.hosts.number_of(internal.ip().to_bits())?,
            port: internal.port(),
        };
        let external = nat.external_end(number, protocol).ok()?;
        let End { address, port } = self.external_end(external).ok()?;
        Some(SocketAddrV6::new(Ipv6Addr::from_bits(address), port, 0, 0))
    }

    /// Translates the packet in an ICMPv6 error of the router itself about a packet that it has translated from the outside: the error goes
    /// to the outside, so the destination in it must be the external one. Other packets stay as they are.
    pub fn translate_own_error(&self, nat: &Nat, packet: &mut [u8], length: usize) {
        let Ok((view, Kind::Error(inner))) = read(packet, length) else {
            return;
        };
        if let Ok(external) = self.external_of_inner(nat, &inner) {
            let end = view.end.min(packet.len());
            let packet = packet.get_mut(..end).unwrap_or_default();
            translate_inner(packet, view.transport, &inner, Which::Destination, external);
        }
    }

    /// Returns the external endpoint of the destination of a packet within an error.
    fn external_of_inner(&self, nat: &Nat, inner: &View) -> Result<End, NatDrop> {
        let End { address, port } = inner.destination;
        let number = self.hosts.number_of(address).ok_or(NatDrop::NoMapping)?;
        let internal = NumberEnd {
            address: number,
            port,
        };
        self.external_end(nat.external_end(internal, inner.protocol)?)
    }

    fn external_end(&self, end: NumberEnd) -> Result<End, NatDrop> {
        let address = self.externals.get(end.address as usize);
        Ok(End {
            address: *address.ok_or(NatDrop::NoMapping)?,
            port: end.port,
        })
    }

    fn host_end(&self, end: NumberEnd) -> Result<End, NatDrop> {
        let address = self.hosts.address_of(end.address);
        Ok(End {
            address: address.ok_or(NatDrop::NoMapping)?,
            port: end.port,
        })
    }

    /// Returns an external endpoint with the number of its address.
    fn numbered_end(&self, end: End) -> Result<NumberEnd, NatDrop> {
        Ok(NumberEnd {
            address: self.number_of(end.address).ok_or(NatDrop::NoMapping)?,
            port: end.port,
        })
    }

    /// Translates a packet; a later fragment like the first one of its datagram.
    #[inline]
    fn translated(
        &mut self,
        nat: &mut Nat,
        (packet, length): (&mut [u8], usize),
        now: u32,
        step: Step,
    ) -> NatOutcome {
        nat.advance(now);
        self.keep_changes(nat);
        let outcome = match FragmentPart::of_ipv6(packet, 0) {
            None => step(self, nat, packet, length),
            Some(part) => self.translate_part(nat, (packet, length), &part, step),
        };
        outcome.unwrap_or_else(NatOutcome::Dropped)
    }

    #[cold]
    fn translate_part(
        &mut self,
        nat: &mut Nat,
        (packet, length): (&mut [u8], usize),
        part: &FragmentPart,
        step: Step,
    ) -> Result<NatOutcome, NatDrop> {
        if part.offset > 0 {
            let is_hairpinned = self.joined.translate(part, packet, nat.now())?;
            return Ok(match is_hairpinned {
                true => NatOutcome::Hairpinned,
                false => NatOutcome::Translated,
            });
        }
        let before = ends(packet)?;
        let outcome = step(self, nat, packet, length)?;
        let after = ends(packet)?;
        if outcome != NatOutcome::Untouched {
            let (view, _) = read(packet, length)?;
            let is_hairpinned = outcome == NatOutcome::Hairpinned;
            let part = (part, view.protocol);
            let change = (before, after);
            self.joined
                .note(part, packet, change, is_hairpinned, nat.now());
        }
        Ok(outcome)
    }

    fn try_outbound(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
    ) -> Result<NatOutcome, NatDrop> {
        let (view, kind) = read(packet, length)?;
        if !is_host(Ipv6Addr::from_bits(view.source.address)) {
            return Err(NatDrop::Malformed);
        }
        let end = view.end.min(packet.len());
        let octets = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
        match kind {
            Kind::Error(inner) => {
                let external = self.external_of_inner(nat, &inner)?;
                translate_inner(octets, view.transport, &inner, Which::Destination, external);
                translate_error(octets, view.transport, Which::Source, external.address);
            }
            Kind::Plain | Kind::Reply => {
                let may_begin = matches!(kind, Kind::Plain);
                let End { address, port } = view.source;
                let number = match may_begin {
                    true => {
                        let number = self.hosts.begin(address);
                        number.ok_or_else(|| nat.note_hosts_full())?
                    }
                    false => self.hosts.number_of(address).ok_or(NatDrop::NoMapping)?,
                };
                let internal = NumberEnd {
                    address: number,
                    port,
                };
                let internal = (internal, folded(address));
                let external = nat.send_from(internal, view.protocol, view.flags, may_begin)?;
                translate(octets, &view, Which::Source, self.external_end(external)?);
            }
        }
        let destination = address_at(packet, DESTINATION_AT).ok_or(NatDrop::Malformed)?;
        if !self.is_external(destination) {
            return Ok(NatOutcome::Translated);
        }
        self.try_inbound(nat, packet, length)?;
        Ok(NatOutcome::Hairpinned)
    }

    fn try_inbound(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
    ) -> Result<NatOutcome, NatDrop> {
        let find = |external, protocol, flags| match flags {
            Some(flags) => nat.receive_at(external, protocol, flags),
            None => nat.internal_end(external, protocol),
        };
        self.try_inside(packet, length, find)
    }

    /// Translates the destination of a packet to an external address. `find` returns the inside endpoint of an external one, for a packet
    /// with these TCP control bits, or for an ICMPv6 error, which has none.
    #[inline]
    fn try_inside(
        &self,
        packet: &mut [u8],
        length: usize,
        find: impl FnOnce(NumberEnd, NatProtocol, Option<u8>) -> Result<NumberEnd, NatDrop>,
    ) -> Result<NatOutcome, NatDrop> {
        if address_at(packet, DESTINATION_AT).is_none_or(|address| !self.is_external(address)) {
            return Ok(NatOutcome::Untouched);
        }
        let (view, kind) = read(packet, length)?;
        let end = view.end.min(packet.len());
        let octets = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
        match kind {
            Kind::Error(inner) => {
                let external = self.source_in_error(&view, &inner)?;
                let internal = self.host_end(find(external, inner.protocol, None)?)?;
                translate_inner(octets, view.transport, &inner, Which::Source, internal);
                translate_error(octets, view.transport, Which::Destination, internal.address);
            }
            Kind::Plain | Kind::Reply => {
                let external = self.numbered_end(view.destination)?;
                let internal = find(external, view.protocol, Some(view.flags))?;
                translate(octets, &view, Which::Destination, self.host_end(internal)?);
            }
        }
        Ok(NatOutcome::Translated)
    }

    /// Returns the source of a packet within an error, which is to this source.
    fn source_in_error(&self, view: &View, inner: &View) -> Result<NumberEnd, NatDrop> {
        if inner.source.address != view.destination.address {
            return Err(NatDrop::NoMapping);
        }
        self.numbered_end(inner.source)
    }

    fn try_hairpin(
        &mut self,
        nat: &mut Nat,
        packet: &mut [u8],
        length: usize,
    ) -> Result<NatOutcome, NatDrop> {
        if address_at(packet, DESTINATION_AT).is_none_or(|address| !self.is_external(address)) {
            return Ok(NatOutcome::Untouched);
        }
        let (view, kind) = read(packet, length)?;
        match kind {
            Kind::Error(inner) => {
                let external = self.source_in_error(&view, &inner)?;
                let internal = nat.internal_end(external, inner.protocol)?;
                self.host_end(internal)?;
            }
            Kind::Plain | Kind::Reply => {
                let external = self.numbered_end(view.destination)?;
                nat.internal_end(external, view.protocol)?;
            }
        }
        self.try_outbound(nat, packet, length)
    }
}
