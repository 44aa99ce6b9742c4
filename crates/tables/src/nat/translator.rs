// SPDX-License-Identifier: Apache-2.0
//! Translation of packets in both directions, new mappings, expiry.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "counts of 64 bits, seconds since the start and numbers of mappings are far from their ends"
)]

mod ends;
mod events;
mod flush;
mod lookup;
mod standby;

use std::net::SocketAddrV4;

use quietwire_packet::{IPV4_DESTINATION_AT, IPV4_SOURCE_AT, ipv4_address_at};

use super::behaviour::{MappingBehaviour, NO_REMOTE};
use super::event::Events;
use super::filtering::{FilteringBehaviour, Permissions};
use super::joined::Joined;
use super::mapping::{Mapping, MappingInfo, Mappings, NEVER, NO_HOST};
use super::names::{HOST_ELSEWHERE, NatDrop, NatProtocol, is_client_number};
use super::packet::{End, Kind, View, read, read_first};
use super::pairs::{Pairs, translate_pair};
use super::pool::{ELSEWHERE, Pool, PoolGrowth, Port};
use super::rewrite::{Which, translate, translate_address, translate_inner};
use super::saved::MappingChange;
use super::settings::{FORWARDS_MAX, Forward, NatSettings, NatSettingsError, NatTimeouts};
use crate::arena::NoMemory;
use crate::changes::ChangeRing;
use crate::fragments::FragmentPart;
use crate::share::Share;

/// TCP control bits (RFC 9293, section 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Result of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatOutcome {
    /// Not to an external address: not changed.
    Untouched,
    /// Translated.
    Translated,
    /// From the inside to an external endpoint of another inside host: source and destination translated (RFC 4787, REQ-9a: the source is
    /// external). The packet goes to the inside.
    Hairpinned,
    /// To be dropped. The packet may be changed in part.
    Dropped(NatDrop),
}

/// Counters of NAT.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NatCounters {
    /// Packets translated from the inside.
    pub outbound: u64,
    /// Packets translated from the outside.
    pub inbound: u64,
    /// Packets between inside hosts by their external endpoints.
    pub hairpinned: u64,
    /// Dropped packets by reason.
    pub dropped: [u64; NatDrop::ALL.len()],
    /// New mappings, without static ones.
    pub created: u64,
    /// Expired mappings.
    pub expired: u64,
    /// Events for the log that were lost because no one took them in time.
    pub events_lost: u64,
}

impl NatCounters {
    /// Adds the counts of other tables.
    pub fn add(&mut self, other: &Self) {
        self.outbound += other.outbound;
        self.inbound += other.inbound;
        self.hairpinned += other.hairpinned;
        for (count, more) in self.dropped.iter_mut().zip(other.dropped) {
            *count += more;
        }
        self.created += other.created;
        self.expired += other.expired;
        self.events_lost += other.events_lost;
    }
}

/// NAT of one forwarding thread. [`Nat::new`] makes all allocations.
#[derive(Debug)]
pub struct Nat {
    pool: Pool,
    mappings: Mappings,
    /// Maximum number of mappings, without static ones.
    mappings_max: usize,
    /// Static forwards in force, in ascending order.
    forwards: Vec<Forward>,
    /// Number of those that have a mapping here.
    own_forwards: usize,
    share: Share,
    pairs: Pairs,
    behaviour: MappingBehaviour,
    /// Remote addresses that endpoint-independent mappings accept, unless they accept all.
    permissions: Option<Permissions>,
    /// Datagrams whose first fragment has been translated.
    joined: Joined,
    timeouts: NatTimeouts,
    now: u32,
    /// Next mapping that [`Nat::expire`] reads.
    hand: u32,
    events: Events,
    /// Changes for a standby, if they are wanted.
    changes: Option<Box<ChangeRing<MappingChange>>>,
    counters: NatCounters,
}

/// Offset in an IPv4 header.
const FRAGMENT_AT: usize = 6;

/// Inside endpoint of a packet to an external address.
#[derive(Clone, Copy, Debug)]
enum Target {
    /// Address of a one-to-one translation.
    Pair(u32),
    /// An ICMP error, the packet in it, and its inside source.
    Error(View, View, End),
    /// Number of the mapping and its inside endpoint.
    Mapping(View, u32, End),
}

/// A packet from the outside that was translated.
#[derive(Clone, Copy, Debug)]
struct Answered {
    /// Number of its mapping; none for ICMP errors and one-to-one translations.
    mapping: Option<u32>,
    /// TCP control bits.
    flags: u8,
}

impl Nat {
    /// Creates the tables, with static forwards and without other mappings.
    ///
    /// # Errors
    /// [`NatSettingsError`].
    pub fn new(settings: &NatSettings) -> Result<Self, NatSettingsError> {
        Self::with_share(settings, Share::WHOLE)
    }

    /// Creates the tables of one of several forwarding CPUs: hosts get blocks of its share, and it has the forwards to hosts of its share.
    /// Other ports that are forwarded are reserved. [`crate::owner::Owners`] determines the CPU of a packet.
    ///
    /// # Errors
    /// [`NatSettingsError`].
    pub fn with_share(settings: &NatSettings, share: Share) -> Result<Self, NatSettingsError> {
        settings.check()?;
        // At most 2^24 + 2^10.
        let forwards_max = u32::try_from(FORWARDS_MAX).unwrap_or(u32::MAX);
        let capacity = settings.mappings_max.saturating_add(forwards_max);
        let is_filtered = settings.filtering == FilteringBehaviour::AddressDependent
            && !settings.mapping.is_dependent();
        let permissions = is_filtered.then(|| Permissions::new(settings.mappings_max));
        let mut nat = Self {
            pool: Pool::new(&settings.pool, settings.hosts_max, share)?,
            mappings: Mappings::new(capacity)?,
            mappings_max: settings.mappings_max as usize,
            forwards: Vec::with_capacity(FORWARDS_MAX),
            own_forwards: 0,
            share,
            pairs: Pairs::new(&settings.pairs),
            behaviour: settings.mapping,
            permissions: permissions.transpose()?,
            joined: Joined::new(share),
            timeouts: settings.timeouts,
            now: 0,
            hand: 0,
            events: Events::new(),
            changes: None,
            counters: NatCounters::default(),
        };
        let mut forwards = settings.forwards.clone();
        forwards.sort_unstable();
        if nat.set_forwards(&forwards) > 0 {
            // There is space for all forwards; an index of few buckets may have none.
            return Err(NoMemory(size_of::<Mapping>()).into());
        }
        Ok(nat)
    }

    /// Adds external addresses behind those of the pool. Mappings stay. Returns false, and adds none, if the growth is of another pool.
    /// Allocates nothing.
    pub fn grow(&mut self, growth: &mut PoolGrowth) -> bool {
        self.pool.grow(growth)
    }

    /// Replaces the static forwards by these, in ascending order, of addresses of the pool. Forwards that stay keep their connections, and
    /// mappings that have an endpoint of a new forward end, except those of its inside endpoint that depend on remote ones: [`Nat::flush`]
    /// removes them. Returns the number of forwards without space. Allocates nothing.
    pub fn set_forwards(&mut self, wanted: &[Forward]) -> usize {
        let mut at = 0;
        while let Some(forward) = self.forwards.get(at).copied() {
            if wanted.binary_search(&forward).is_ok() {
                at += 1;
            } else {
                self.forwards.remove(at);
                self.end_forward(&forward);
            }
        }
        let mut without_space = 0;
        for forward in wanted {
            let Err(place) = self.forwards.binary_search(forward) else {
                continue;
            };
            if self.forwards.len() < FORWARDS_MAX && self.forward(forward).is_some() {
                // Has space for all forwards.
                self.forwards.insert(place, *forward);
            } else {
                without_space += 1;
            }
        }
        let own = self.forwards.iter().filter(|one| self.is_own(one));
        self.own_forwards = own.count();
        without_space
    }

    /// Returns true if the mapping of a forward is here.
    fn is_own(&self, forward: &Forward) -> bool {
        match forward.internal.ip().to_bits() {
            HOST_ELSEWHERE => false,
            // Only hosts of this CPU have numbers.
            number if is_client_number(number) => true,
            address => self.share.has_host(address),
        }
    }

    /// Adds the mapping of a forward. `None` if there is no space, or its external address is not of the pool.
    fn forward(&mut self, forward: &Forward) -> Option<()> {
        let Forward {
            protocol,
            external,
            internal,
        } = forward;
        let number = self.pool.external(external.ip().to_bits())?;
        let end = |socket: &SocketAddrV4| End {
            address: socket.ip().to_bits(),
            port: socket.port(),
        };
        self.pool.reserve(number, external.port());
        let former = self.pool.mapping(number, *protocol, external.port());
        if let Some(former) = former {
            self.remove(former);
        }
        if let Some(former) = self.mappings.find(end(internal), NO_REMOTE, *protocol) {
            self.remove(former);
        }
        if !self.is_own(forward) {
            self.pool
                .set_mapping(number, *protocol, external.port(), Some(ELSEWHERE));
            return Some(());
        }
        let port = Port {
            external: number,
            end: end(external),
            host: NO_HOST,
        };
        let mapping = Mapping::new((end(internal), NO_REMOTE), port, NEVER);
        let Some(added) = self.mappings.add(*protocol, mapping) else {
            self.pool.unreserve(number, external.port());
            return None;
        };
        self.pool
            .set_mapping(number, *protocol, external.port(), Some(added));
        Some(())
    }

    fn end_forward(&mut self, forward: &Forward) {
        let Some(number) = self.pool.external(forward.external.ip().to_bits()) else {
            return;
        };
        let port = forward.external.port();
        match self.pool.mapping(number, forward.protocol, port) {
            None => {}
            Some(ELSEWHERE) => self.pool.set_mapping(number, forward.protocol, port, None),
            Some(mapping) => self.remove(mapping),
        }
        self.pool.unreserve(number, port);
    }

    /// Returns the number of mappings, static ones and expired ones that [`Nat::expire`] has not yet removed included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.mappings.len()
    }

    /// Returns true if there are no mappings.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the number of hosts with port blocks.
    #[must_use]
    pub fn hosts(&self) -> usize {
        self.pool.hosts()
    }

    /// Returns the memory of all tables, octets.
    #[must_use]
    pub fn octets(&self) -> usize {
        let permissions = self.permissions.as_ref().map_or(0, Permissions::octets);
        self.pool.octets() + self.mappings.octets() + self.joined.octets() + permissions
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> NatCounters {
        NatCounters {
            events_lost: self.events.lost(),
            ..self.counters
        }
    }

    /// Returns true for an external address: of the pool, or of a one-to-one translation.
    #[inline(always)]
    #[must_use]
    pub fn is_external(&self, address: u32) -> bool {
        self.pool.external(address).is_some() || self.pairs.internal_of(address).is_some()
    }

    /// Loads what [`Nat::outbound`] of a packet reads first, for bursts.
    #[inline]
    pub fn prefetch_outbound(&self, packet: &[u8]) {
        if let Ok((view, _)) = read(packet, usize::MAX) {
            self.prefetch(&view);
        }
    }

    /// Translates an IPv4 packet from the inside to the outside, in place, from its IP header on. `length` is the number of octets in the
    /// frame; the packet may end in further buffers, except that of an ICMP error.
    pub fn outbound(&mut self, packet: &mut [u8], length: usize, now: u32) -> NatOutcome {
        self.now = self.now.max(now);
        let outcome = self.translated(packet, length, Self::try_outbound);
        self.count(outcome, true);
        outcome
    }

    /// Translates an IPv4 packet from the outside to the inside, in place; parameters as in [`Nat::outbound`].
    pub fn inbound(&mut self, packet: &mut [u8], length: usize, now: u32) -> NatOutcome {
        self.now = self.now.max(now);
        let outcome = self.translated(packet, length, Self::try_inbound);
        self.count(outcome, false);
        outcome
    }

    /// Translates an IPv4 packet from the inside to an external address, in place: source and destination. If no inside endpoint has the
    /// destination, the packet stays as it is, and its sender gets no mapping. Parameters as in [`Nat::outbound`].
    pub fn hairpin(&mut self, packet: &mut [u8], length: usize, now: u32) -> NatOutcome {
        self.now = self.now.max(now);
        let outcome = self.translated(packet, length, Self::try_hairpin);
        self.count(outcome, true);
        outcome
    }

    /// Translates a packet; a later fragment like the first one of its datagram.
    #[inline]
    fn translated(
        &mut self,
        packet: &mut [u8],
        length: usize,
        translate: fn(&mut Self, &mut [u8], usize) -> Result<NatOutcome, NatDrop>,
    ) -> NatOutcome {
        let outcome = match self.part_of(packet) {
            None => translate(self, packet, length),
            Some(part) => self.translate_part(packet, length, &part, translate),
        };
        outcome.unwrap_or_else(NatOutcome::Dropped)
    }

    /// Returns the fragment in a packet. `None` for whole datagrams, and for those of one-to-one translations, which have no state.
    #[inline]
    fn part_of(&self, packet: &[u8]) -> Option<FragmentPart> {
        let [high, low] = *packet.get(FRAGMENT_AT..)?.first_chunk()?;
        if u16::from_be_bytes([high, low]) & 0x3fff == 0 {
            return None;
        }
        let source = ipv4_address_at(packet, IPV4_SOURCE_AT)?;
        let destination = ipv4_address_at(packet, IPV4_DESTINATION_AT)?;
        let is_paired = self.pairs.external_of(source).is_some()
            || self.pairs.internal_of(destination).is_some();
        FragmentPart::of_ipv4(packet, 0).filter(|_| !is_paired)
    }

    #[cold]
    fn translate_part(
        &mut self,
        packet: &mut [u8],
        length: usize,
        part: &FragmentPart,
        translate: fn(&mut Self, &mut [u8], usize) -> Result<NatOutcome, NatDrop>,
    ) -> Result<NatOutcome, NatDrop> {
        if part.offset > 0 {
            let is_hairpinned = self.joined.translate(part, packet, self.now)?;
            return Ok(match is_hairpinned {
                true => NatOutcome::Hairpinned,
                false => NatOutcome::Translated,
            });
        }
        let ends = |packet: &[u8]| {
            let source = ipv4_address_at(packet, IPV4_SOURCE_AT)?;
            Some((source, ipv4_address_at(packet, IPV4_DESTINATION_AT)?))
        };
        let before = ends(packet).ok_or(NatDrop::Malformed)?;
        let outcome = translate(self, packet, length)?;
        let after = ends(packet).ok_or(NatDrop::Malformed)?;
        if outcome != NatOutcome::Untouched {
            let is_hairpinned = outcome == NatOutcome::Hairpinned;
            self.joined
                .note(part, packet, (before, after), is_hairpinned, self.now);
        }
        Ok(outcome)
    }

    fn try_hairpin(&mut self, packet: &mut [u8], length: usize) -> Result<NatOutcome, NatDrop> {
        match self.target(packet, length)? {
            Some(_) => self.try_outbound(packet, length),
            None => Ok(NatOutcome::Untouched),
        }
    }

    /// Translates a packet to an external address like [`Nat::inbound`], for the classification of a copy: changes no mapping, and counts
    /// nothing. The source may be an inside one, so a mapping that depends on remote endpoints accepts all.
    pub fn show_inside(&self, packet: &mut [u8], length: usize) -> NatOutcome {
        let translated = match self.target(packet, length) {
            Ok(Some(target)) => self.translate_inside(packet, length, target),
            Ok(None) => return NatOutcome::Untouched,
            Err(reason) => Err(reason),
        };
        match translated {
            Ok(_) => NatOutcome::Translated,
            Err(reason) => NatOutcome::Dropped(reason),
        }
    }

    /// Translates the packet in an ICMP error of the router itself about a packet that it has translated from the outside: the error goes
    /// to the outside, so the destination in it must be the external one. Other packets stay as they are.
    pub fn translate_own_error(&self, packet: &mut [u8], length: usize) {
        let Ok((view, Kind::Error(inner))) = read(packet, length) else {
            return;
        };
        let external = match self.pairs.external_of(inner.destination.address) {
            Some(address) => End {
                address,
                ..inner.destination
            },
            None => match self.by_internal(inner.destination, inner.source, inner.protocol) {
                Ok(mapping) => mapping.external_end(),
                Err(_) => return,
            },
        };
        translate_inner(packet, view.transport, &inner, Which::Destination, external);
    }

    /// Returns the inside address that a packet to an external address is for. `None` for packets that are not translated, and for hosts
    /// with a one-to-one translation. Parameters as in [`Nat::outbound`].
    #[must_use]
    pub fn inside_of(&self, packet: &[u8], length: usize) -> Option<u32> {
        if let Some(part) = self.part_of(packet).filter(|part| part.offset > 0) {
            return self.joined.destination_of(&part, self.now);
        }
        match self.target(packet, length).ok()?? {
            Target::Pair(_) => None,
            Target::Error(_, _, end) | Target::Mapping(_, _, end) => Some(end.address),
        }
    }

    /// Returns true if the inside host of a packet has an external endpoint already: its source, or the host that the packet in an ICMP
    /// error is for. Parameters as in [`Nat::outbound`].
    pub(crate) fn has_external(&self, packet: &[u8], length: usize) -> bool {
        let (internal, remote, protocol) = match read_first(packet, length) {
            Ok((_, Kind::Error(inner))) => (inner.destination, inner.source, inner.protocol),
            Ok((view, Kind::Plain | Kind::Reply)) => (view.source, view.destination, view.protocol),
            Err(_) => return false,
        };
        self.pairs.external_of(internal.address).is_some()
            || self.by_internal(internal, remote, protocol).is_ok()
    }

    /// Returns an identification for a packet of an external address that may be fragmented (RFC 6864, section 5.3.1).
    pub(crate) fn next_identification(&mut self) -> u16 {
        self.joined.next_identification()
    }

    /// Counts a packet that was dropped outside of NAT.
    #[expect(clippy::indexing_slicing, reason = "each reason has its count")]
    pub(crate) fn note_drop(&mut self, reason: NatDrop) {
        self.counters.dropped[reason as usize] += 1;
    }

    #[expect(clippy::indexing_slicing, reason = "each reason has its count")]
    fn count(&mut self, outcome: NatOutcome, is_outbound: bool) {
        match outcome {
            NatOutcome::Untouched => {}
            NatOutcome::Hairpinned => self.counters.hairpinned += 1,
            NatOutcome::Translated if is_outbound => self.counters.outbound += 1,
            NatOutcome::Translated => self.counters.inbound += 1,
            NatOutcome::Dropped(reason) => self.counters.dropped[reason as usize] += 1,
        }
    }

    fn try_outbound(&mut self, packet: &mut [u8], length: usize) -> Result<NatOutcome, NatDrop> {
        let source = ipv4_address_at(packet, IPV4_SOURCE_AT).ok_or(NatDrop::Malformed)?;
        if let Some(external) = self.pairs.external_of(source) {
            translate_pair(packet, length, Which::Source, external)?;
            return self.translate_if_external(packet, length);
        }
        let (view, kind) = read_first(packet, length)?;
        let end = view.end.min(packet.len());
        let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
        match kind {
            Kind::Error(inner) => {
                // RFC 5508, REQ-5: the error is about a packet to an inside endpoint.
                let (internal, remote) = (inner.destination, inner.source);
                let mapping = self.by_internal(internal, remote, inner.protocol)?;
                let external = mapping.external_end();
                translate_inner(packet, view.transport, &inner, Which::Destination, external);
                translate_address(packet, Which::Source, external.address);
            }
            Kind::Plain | Kind::Reply => {
                let may_begin = matches!(kind, Kind::Plain);
                let ends = (view.source, view.destination);
                let number = self.mapping_of(ends, view.protocol, may_begin)?;
                self.refresh(number, view.flags);
                if self.permissions.is_some() {
                    self.permit(number, view.destination.address);
                }
                let mapping = self.mappings.get(number).ok_or(NatDrop::NoMapping)?;
                translate(packet, &view, Which::Source, mapping.external_end());
            }
        }
        self.translate_if_external(packet, length)
    }

    /// Translates the destination of an outbound packet if it is external (RFC 4787, REQ-9; RFC 5382, REQ-8; RFC 5508, REQ-7).
    #[inline]
    fn translate_if_external(
        &mut self,
        packet: &mut [u8],
        length: usize,
    ) -> Result<NatOutcome, NatDrop> {
        let destination = ipv4_address_at(packet, IPV4_DESTINATION_AT).ok_or(NatDrop::Malformed)?;
        if !self.is_external(destination) {
            return Ok(NatOutcome::Translated);
        }
        self.try_inbound(packet, length)?;
        Ok(NatOutcome::Hairpinned)
    }

    fn try_inbound(&mut self, packet: &mut [u8], length: usize) -> Result<NatOutcome, NatDrop> {
        let Some(target) = self.target(packet, length)? else {
            return Ok(NatOutcome::Untouched);
        };
        if self.behaviour.is_dependent() || self.permissions.is_some() {
            self.check_remote(&target)?;
        }
        let Answered { mapping, flags } = self.translate_inside(packet, length, target)?;
        if let Some(number) = mapping {
            self.answer(number, flags);
        }
        Ok(NatOutcome::Translated)
    }

    /// Applies an answer of the other side to a mapping.
    #[inline]
    fn answer(&mut self, number: u32, flags: u8) {
        let Some(mapping) = self.mappings.get_mut(number) else {
            return;
        };
        let before = mapping.is_answered;
        note_answer(mapping, flags);
        if is_client_number(mapping.address) {
            extend(mapping, self.now, &self.timeouts);
        }
        if mapping.is_answered != before {
            self.note_present(number);
        }
    }

    /// Translates the destination of a packet to its inside endpoint.
    #[inline]
    fn translate_inside(
        &self,
        packet: &mut [u8],
        length: usize,
        target: Target,
    ) -> Result<Answered, NatDrop> {
        let mut answered = Answered {
            mapping: None,
            flags: 0,
        };
        match target {
            Target::Pair(internal) => {
                translate_pair(packet, length, Which::Destination, internal)?;
            }
            Target::Error(view, inner, internal) => {
                let end = view.end.min(packet.len());
                let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
                translate_inner(packet, view.transport, &inner, Which::Source, internal);
                translate_address(packet, Which::Destination, internal.address);
            }
            Target::Mapping(view, number, internal) => {
                let end = view.end.min(packet.len());
                let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
                translate(packet, &view, Which::Destination, internal);
                answered = Answered {
                    mapping: Some(number),
                    flags: view.flags,
                };
            }
        }
        Ok(answered)
    }

    /// Finds the inside endpoint that a packet to an external address is for. `None` for another destination.
    #[inline]
    fn target(&self, packet: &[u8], length: usize) -> Result<Option<Target>, NatDrop> {
        let Some(destination) = ipv4_address_at(packet, IPV4_DESTINATION_AT) else {
            return Ok(None);
        };
        if let Some(internal) = self.pairs.internal_of(destination) {
            return Ok(Some(Target::Pair(internal)));
        }
        let Some(external) = self.pool.external(destination) else {
            return Ok(None);
        };
        let (view, kind) = read_first(packet, length)?;
        Ok(Some(match kind {
            Kind::Error(inner) => {
                // RFC 5508, REQ-4: the error is about a packet from an external endpoint.
                let mapping = self.by_external(inner.source, inner.protocol)?;
                if inner.source.address != view.destination.address {
                    return Err(NatDrop::NoMapping);
                }
                Target::Error(view, inner, mapping.internal())
            }
            Kind::Plain | Kind::Reply => {
                let number = self
                    .pool
                    .mapping(external, view.protocol, view.destination.port);
                let number = number.ok_or(NatDrop::NoMapping)?;
                let mapping = self.mappings.get(number);
                let mapping = mapping
                    .filter(|mapping| mapping.is_live(self.now))
                    .ok_or(NatDrop::NoMapping)?;
                Target::Mapping(view, number, mapping.internal())
            }
        }))
    }

    /// Finds the mapping of an inside endpoint for packets to a remote one, or creates it.
    #[inline]
    fn mapping_of(
        &mut self,
        (internal, remote): (End, End),
        protocol: NatProtocol,
        may_begin: bool,
    ) -> Result<u32, NatDrop> {
        if let Some(number) = self.find(internal, remote, protocol) {
            let mapping = self.mappings.get(number);
            if mapping.is_some_and(|mapping| mapping.is_live(self.now)) {
                return Ok(number);
            }
            self.counters.expired += 1;
            self.remove(number);
        }
        if !may_begin {
            return Err(NatDrop::NoMapping);
        }
        self.create(internal, remote, protocol)
    }

    fn create(
        &mut self,
        internal: End,
        remote: End,
        protocol: NatProtocol,
    ) -> Result<u32, NatDrop> {
        let remote = self.behaviour.part_of(remote, protocol);
        // No host has the address 0, which stands for mappings that depend on none.
        if !self.behaviour.has_remote(remote, protocol) {
            return Err(NatDrop::Malformed);
        }
        if self.mappings.len() >= self.mappings_max + self.own_forwards {
            return Err(self.note_mappings_full());
        }
        let events = &mut self.events;
        let mut note = |event| events.note(event);
        let taken = self.pool.take(internal, protocol, self.now, &mut note);
        let port = match taken {
            Ok(port) => port,
            Err(reason) => return Err(self.note_refused(reason, internal.address, protocol)),
        };
        // The first packet sets its timeout.
        let mapping = Mapping::new((internal, remote), port, self.now + 1);
        let Some(number) = self.mappings.add(protocol, mapping) else {
            let events = &mut self.events;
            let mut note = |event| events.note(event);
            self.pool
                .release(port.host, protocol, port.end.port, self.now, &mut note);
            return Err(self.note_mappings_full());
        };
        self.pool
            .set_mapping(port.external, protocol, port.end.port, Some(number));
        self.counters.created += 1;
        self.note_present(number);
        self.note_created(number);
        Ok(number)
    }

    /// Begins the timeout of a mapping again, for an outbound packet (RFC 4787, REQ-6).
    #[inline]
    fn refresh(&mut self, number: u32, flags: u8) {
        let (now, timeouts) = (self.now, self.timeouts);
        let Some(mapping) = self.mappings.get_mut(number) else {
            return;
        };
        if mapping.is_static() {
            return;
        }
        let timeout_s = match mapping.protocol() {
            NatProtocol::Udp => timeouts.udp_s,
            NatProtocol::Icmp => timeouts.icmp_s,
            NatProtocol::Tcp => {
                if flags & SYN != 0 && flags & ACK == 0 {
                    mapping.is_answered = 0;
                }
                let is_open = mapping.is_answered != 0 && flags & (FIN | RST) == 0;
                match is_open {
                    true => timeouts.tcp_established_s,
                    false => timeouts.tcp_transitory_s,
                }
            }
        };
        let expires_at = now.saturating_add(timeout_s).saturating_add(1);
        let expires_at = expires_at.min(NEVER - 1);
        // RFC 7857, section 7.1: a reset that answers a segment from outside must not keep the mapping alive.
        mapping.expires_at = match flags & RST {
            0 => expires_at,
            _ => mapping.expires_at.min(expires_at),
        };
    }

    /// Removes a mapping, and returns its port.
    fn remove(&mut self, number: u32) {
        let Some(mapping) = self.mappings.remove(number) else {
            return;
        };
        self.note_ended(&mapping);
        self.note_deleted(&mapping);
        let protocol = mapping.protocol();
        let Mapping {
            external,
            external_port,
            host,
            ..
        } = mapping;
        self.pool
            .set_mapping(external, protocol, external_port, None);
        if host != NO_HOST {
            let events = &mut self.events;
            let mut note = |event| events.note(event);
            self.pool
                .release(host, protocol, external_port, self.now, &mut note);
        }
    }

    /// Removes expired mappings: reads the next `budget` entries of the table, in a circle. Returns the number of removed mappings.
    pub fn expire(&mut self, now: u32, budget: usize) -> usize {
        self.now = self.now.max(now);
        let capacity = self.mappings.capacity();
        let mut removed = 0;
        for _ in 0..budget.min(capacity) {
            let number = self.hand;
            self.hand = if (number as usize) + 1 < capacity {
                number + 1
            } else {
                0
            };
            let mapping = self.mappings.get(number);
            if mapping.is_some_and(|one| one.is_used() && !one.is_live(self.now)) {
                self.remove(number);
                removed += 1;
            }
        }
        self.counters.expired += removed as u64;
        removed
    }

    /// Lists mappings from position `from` on, 0 at first, out of at most `budget` entries. Returns the position to continue from; `None` at
    /// the end.
    #[must_use]
    pub fn list(&self, from: u32, budget: usize) -> (Vec<MappingInfo>, Option<u32>) {
        let mut listed = Vec::new();
        let next = self.list_into(from, (usize::MAX, budget), &mut listed);
        (listed, next)
    }

    /// Appends mappings from position `from` on to a list, until it has `count`, out of at most `budget` entries. Returns the position to
    /// continue from; `None` at the end.
    pub fn list_into(
        &self,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<MappingInfo>,
    ) -> Option<u32> {
        let capacity = self.mappings.capacity();
        let end = (from as usize).saturating_add(budget).min(capacity);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        for number in from..end {
            if list.len() >= count {
                return Some(number);
            }
            let info = self.mappings.get(number).and_then(|one| one.info(self.now));
            list.extend(info);
        }
        ((end as usize) < capacity).then_some(end)
    }

    /// Returns the maximum number of mappings, without static ones.
    #[must_use]
    pub const fn mappings_max(&self) -> usize {
        self.mappings_max
    }

    /// Returns the number of static forwards that have a mapping here.
    #[must_use]
    pub const fn forwards(&self) -> usize {
        self.own_forwards
    }
}

/// Begins the timeout of a client's mapping again, for an inbound packet (RFC 6146, section 3.5). A forged packet does not shorten it.
fn extend(mapping: &mut Mapping, now: u32, timeouts: &NatTimeouts) {
    let timeout_s = match mapping.protocol() {
        NatProtocol::Udp => timeouts.udp_s,
        NatProtocol::Icmp => timeouts.icmp_s,
        NatProtocol::Tcp if mapping.is_answered != 0 => timeouts.tcp_established_s,
        NatProtocol::Tcp => timeouts.tcp_transitory_s,
    };
    let expires_at = now.saturating_add(timeout_s).saturating_add(1);
    // A static mapping has the highest time already.
    mapping.expires_at = mapping.expires_at.max(expires_at.min(NEVER - 1));
}

/// Notes whether the other side of a TCP mapping answers. A forged reset ends no mapping: the next outbound packet begins the short
/// timeout.
fn note_answer(mapping: &mut Mapping, flags: u8) {
    if flags & RST != 0 {
        mapping.is_answered = 0;
    } else if flags & ACK != 0 {
        mapping.is_answered = 1;
    }
}
