// SPDX-License-Identifier: Apache-2.0
//! Translation of packets in both directions, new mappings, expiry.

use std::collections::VecDeque;
use std::net::SocketAddrV4;

use super::mapping::{Mapping, MappingInfo, Mappings, NEVER, NO_HOST};
use super::names::{NatDrop, NatProtocol};
use super::packet::{End, Kind, read};
use super::pool::{BlockEvent, Pool, Port};
use super::rewrite::{Which, translate, translate_address, translate_inner};
use super::settings::{Forward, NatSettings, NatSettingsError, NatTimeouts};
use crate::arena::NoMemory;

/// TCP control bits (RFC 9293, section 3.1).
const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const ACK: u8 = 0x10;

/// Events that wait for [`Nat::take_events`], at most.
const EVENTS_MAX: usize = 4096;

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
    /// New mappings.
    pub created: u64,
    /// Expired mappings.
    pub expired: u64,
    /// Block events that were lost because no one took them in time.
    pub events_lost: u64,
}

/// NAT of one forwarding thread. [`Nat::new`] makes all allocations.
#[derive(Debug)]
pub struct Nat {
    pool: Pool,
    mappings: Mappings,
    timeouts: NatTimeouts,
    now: u32,
    /// Next mapping that [`Nat::expire`] reads.
    hand: u32,
    events: Events,
    counters: NatCounters,
}

/// Block events, in memory that never grows.
#[derive(Debug)]
struct Events {
    events: VecDeque<BlockEvent>,
    lost: u64,
}

impl Events {
    fn note(&mut self, event: BlockEvent) {
        if self.events.len() < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.lost += 1;
        }
    }
}

impl Nat {
    /// Creates the tables, with static forwards and without other mappings.
    ///
    /// # Errors
    /// [`NatSettingsError`].
    pub fn new(settings: &NatSettings) -> Result<Self, NatSettingsError> {
        settings.check()?;
        let mut nat = Self {
            pool: Pool::new(&settings.pool, settings.hosts_max)?,
            mappings: Mappings::new(settings.mappings_max)?,
            timeouts: settings.timeouts,
            now: 0,
            hand: 0,
            events: Events {
                events: VecDeque::with_capacity(EVENTS_MAX),
                lost: 0,
            },
            counters: NatCounters::default(),
        };
        for forward in &settings.forwards {
            nat.forward(forward)?;
        }
        Ok(nat)
    }

    fn forward(&mut self, forward: &Forward) -> Result<(), NatSettingsError> {
        let Forward {
            protocol,
            external,
            internal,
        } = forward;
        let number = self
            .pool
            .external(external.ip().to_bits())
            .ok_or(NatSettingsError::ForwardAddress(*external))?;
        let end = |socket: &SocketAddrV4| End {
            address: socket.ip().to_bits(),
            port: socket.port(),
        };
        let port = Port {
            external: number,
            end: end(external),
            host: NO_HOST,
        };
        let mapping = Mapping::new(end(internal), port, NEVER);
        let added = self.mappings.add(*protocol, mapping);
        // There is room for all forwards; an index of few buckets may have none.
        let added = added.ok_or(NoMemory(size_of::<Mapping>()))?;
        self.pool.reserve(number, external.port());
        self.pool
            .set_mapping(number, *protocol, external.port(), Some(added));
        Ok(())
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
        self.pool.octets() + self.mappings.octets()
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> NatCounters {
        NatCounters {
            events_lost: self.events.lost,
            ..self.counters
        }
    }

    /// Takes the block events that have happened since the last call.
    pub fn take_events(&mut self) -> impl Iterator<Item = BlockEvent> + '_ {
        self.events.events.drain(..)
    }

    /// Loads what [`Nat::outbound`] of a packet reads first, for bursts.
    #[inline]
    pub fn prefetch_outbound(&self, packet: &[u8]) {
        if let Ok((view, _)) = read(packet, usize::MAX) {
            self.mappings
                .prefetch(self.mappings.hash(view.source, view.protocol));
        }
    }

    /// Translates an IPv4 packet from the inside to the outside, in place, from its IP header on. `length` is the number of octets in the
    /// frame; the packet may end in further buffers, except that of an ICMP error.
    pub fn outbound(&mut self, packet: &mut [u8], length: usize, now: u32) -> NatOutcome {
        self.now = self.now.max(now);
        let outcome = match self.try_outbound(packet, length) {
            Ok(outcome) => outcome,
            Err(reason) => NatOutcome::Dropped(reason),
        };
        self.count(outcome, true);
        outcome
    }

    /// Translates an IPv4 packet from the outside to the inside, in place; parameters as in [`Nat::outbound`].
    pub fn inbound(&mut self, packet: &mut [u8], length: usize, now: u32) -> NatOutcome {
        self.now = self.now.max(now);
        let outcome = match self.try_inbound(packet, length) {
            Ok(outcome) => outcome,
            Err(reason) => NatOutcome::Dropped(reason),
        };
        self.count(outcome, false);
        outcome
    }

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
        let (view, kind) = read(packet, length)?;
        let end = view.end.min(packet.len());
        let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
        match kind {
            Kind::Error(inner) => {
                // RFC 5508, REQ-5: the error is about a packet to an inside endpoint.
                let mapping = self.by_internal(inner.destination, inner.protocol)?;
                let external = mapping.external_end();
                translate_inner(packet, view.transport, &inner, Which::Destination, external);
                translate_address(packet, Which::Source, external.address);
            }
            Kind::Plain | Kind::Reply => {
                let may_begin = matches!(kind, Kind::Plain);
                let number = self.mapping_of(view.source, view.protocol, may_begin)?;
                self.refresh(number, view.flags);
                let mapping = self.mappings.get(number).ok_or(NatDrop::NoMapping)?;
                translate(packet, &view, Which::Source, mapping.external_end());
            }
        }
        if self.pool.external(view.destination.address).is_none() {
            return Ok(NatOutcome::Translated);
        }
        // RFC 4787, REQ-9; RFC 5382, REQ-8; RFC 5508, REQ-7.
        self.try_inbound(packet, length)?;
        Ok(NatOutcome::Hairpinned)
    }

    fn try_inbound(&mut self, packet: &mut [u8], length: usize) -> Result<NatOutcome, NatDrop> {
        let destination = packet.get(16..20).and_then(|octets| octets.first_chunk());
        let destination = destination.map(|octets| u32::from_be_bytes(*octets));
        let external = destination.and_then(|address| self.pool.external(address));
        let Some(external) = external else {
            return Ok(NatOutcome::Untouched);
        };
        let (view, kind) = read(packet, length)?;
        let end = view.end.min(packet.len());
        let packet = packet.get_mut(..end).ok_or(NatDrop::Malformed)?;
        match kind {
            Kind::Error(inner) => {
                // RFC 5508, REQ-4: the error is about a packet from an external endpoint.
                let mapping = self.by_external(inner.source, inner.protocol)?;
                if inner.source.address != view.destination.address {
                    return Err(NatDrop::NoMapping);
                }
                let internal = mapping.internal();
                translate_inner(packet, view.transport, &inner, Which::Source, internal);
                translate_address(packet, Which::Destination, internal.address);
            }
            Kind::Plain | Kind::Reply => {
                let number = self
                    .pool
                    .mapping(external, view.protocol, view.destination.port);
                let number = number.ok_or(NatDrop::NoMapping)?;
                let now = self.now;
                let mapping = self.mappings.get_mut(number);
                let mapping = mapping
                    .filter(|mapping| mapping.is_live(now))
                    .ok_or(NatDrop::NoMapping)?;
                note_answer(mapping, view.flags);
                let internal = mapping.internal();
                translate(packet, &view, Which::Destination, internal);
            }
        }
        Ok(NatOutcome::Translated)
    }

    /// Returns the mapping of an inside endpoint.
    fn by_internal(&self, end: End, protocol: NatProtocol) -> Result<Mapping, NatDrop> {
        let number = self.mappings.find(end, protocol);
        let mapping = number.and_then(|number| self.mappings.get(number));
        let live = mapping.filter(|mapping| mapping.is_live(self.now));
        live.copied().ok_or(NatDrop::NoMapping)
    }

    /// Returns the mapping of an external endpoint.
    fn by_external(&self, end: End, protocol: NatProtocol) -> Result<Mapping, NatDrop> {
        let external = self.pool.external(end.address).ok_or(NatDrop::NoMapping)?;
        let number = self.pool.mapping(external, protocol, end.port);
        let mapping = number.and_then(|number| self.mappings.get(number));
        let live = mapping.filter(|mapping| mapping.is_live(self.now));
        live.copied().ok_or(NatDrop::NoMapping)
    }

    /// Finds the mapping of an inside endpoint, or creates it.
    #[inline]
    fn mapping_of(
        &mut self,
        internal: End,
        protocol: NatProtocol,
        may_begin: bool,
    ) -> Result<u32, NatDrop> {
        if let Some(number) = self.mappings.find(internal, protocol) {
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
        self.create(internal, protocol)
    }

    fn create(&mut self, internal: End, protocol: NatProtocol) -> Result<u32, NatDrop> {
        if self.mappings.is_full() {
            return Err(NatDrop::TableFull);
        }
        let events = &mut self.events;
        let mut note = |event| events.note(event);
        let port = self.pool.take(internal, protocol, &mut note)?;
        // The first packet sets its time-out.
        let mapping = Mapping::new(internal, port, self.now + 1);
        let Some(number) = self.mappings.add(protocol, mapping) else {
            self.pool
                .release(port.host, protocol, port.end.port, &mut note);
            return Err(NatDrop::TableFull);
        };
        self.pool
            .set_mapping(port.external, protocol, port.end.port, Some(number));
        self.counters.created += 1;
        Ok(number)
    }

    /// Begins the time-out of a mapping again, for an outbound packet (RFC 4787, REQ-6).
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
        mapping.expires_at = now
            .saturating_add(timeout_s)
            .saturating_add(1)
            .min(NEVER - 1);
    }

    /// Removes a mapping, and returns its port.
    fn remove(&mut self, number: u32) {
        let Some(mapping) = self.mappings.remove(number) else {
            return;
        };
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
            self.pool.release(host, protocol, external_port, &mut note);
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
        let capacity = self.mappings.capacity();
        let end = (from as usize).saturating_add(budget).min(capacity);
        let end = u32::try_from(end).unwrap_or(u32::MAX);
        let listed = (from..end).filter_map(|number| self.mappings.get(number)?.info(self.now));
        let next = ((end as usize) < capacity).then_some(end);
        (listed.collect(), next)
    }
}

/// Notes whether the other side of a TCP mapping answers. A forged reset ends no mapping: the next outbound packet begins the short
/// time-out.
fn note_answer(mapping: &mut Mapping, flags: u8) {
    if flags & RST != 0 {
        mapping.is_answered = 0;
    } else if flags & ACK != 0 {
        mapping.is_answered = 1;
    }
}
