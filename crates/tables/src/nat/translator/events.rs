// SPDX-License-Identifier: Apache-2.0
//! Events of mappings and limits for a log.

use std::net::{Ipv4Addr, SocketAddrV4};

use super::super::event::{EventKinds, LimitEvent, MappingEvent, NatEvent, NatLimit};
use super::super::mapping::Mapping;
use super::super::names::{NatDrop, NatProtocol};
use super::super::packet::End;
use super::Nat;

fn event_of(is_created: bool, mapping: &Mapping) -> MappingEvent {
    let socket = |end: End| SocketAddrV4::new(Ipv4Addr::from_bits(end.address), end.port);
    MappingEvent {
        is_created,
        protocol: mapping.protocol(),
        internal: socket(mapping.internal()),
        external: socket(mapping.external_end()),
    }
}

impl Nat {
    /// Sets the events that are noted beside those of port blocks, and allocates space for them. Default: none.
    pub fn allow_events(&mut self, kinds: EventKinds) {
        self.events.allow(kinds);
    }

    /// Returns true if there are events to take.
    #[inline(always)]
    #[must_use]
    pub fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// Takes the oldest event.
    pub fn take_event(&mut self) -> Option<NatEvent> {
        self.events.take()
    }

    /// Takes the events that have happened since the last call.
    pub fn take_events(&mut self) -> impl Iterator<Item = NatEvent> + '_ {
        std::iter::from_fn(move || self.events.take())
    }

    /// Returns the number of events for which there was no space.
    #[must_use]
    pub const fn events_lost(&self) -> u64 {
        self.events.lost()
    }

    /// Notes for the log that a mapping has begun.
    #[inline]
    pub(super) fn note_created(&mut self, number: u32) {
        if self.events.has_mappings()
            && let Some(mapping) = self.mappings.get(number)
        {
            self.events.note_mapping(event_of(true, mapping));
        }
    }

    /// Notes for the log that a mapping has ended, before its port is free again.
    #[inline]
    pub(super) fn note_deleted(&mut self, mapping: &Mapping) {
        if self.events.has_mappings() && !mapping.is_static() {
            self.events.note_mapping(event_of(false, mapping));
        }
    }

    /// Notes for the log that a host got no port, for this reason. Returns the reason.
    #[cold]
    pub(super) fn note_refused(
        &mut self,
        reason: NatDrop,
        host: u32,
        protocol: NatProtocol,
    ) -> NatDrop {
        if !self.events.has_limits() {
            return reason;
        }
        let mut event = LimitEvent {
            limit: NatLimit::Addresses,
            protocol: None,
            host: None,
            external: None,
            maximum: None,
        };
        let external = self.pool.external_of(host);
        match reason {
            // Computed blocks: the host is not in the configuration.
            NatDrop::NoPorts if self.pool.is_computed() => return reason,
            NatDrop::NoPorts if external.is_none() => {}
            NatDrop::NoPorts => {
                event.limit = NatLimit::Ports;
                event.protocol = Some(protocol);
                event.external = external;
            }
            NatDrop::HostLimit => {
                event.limit = NatLimit::HostBlocks;
                event.host = Some(Ipv4Addr::from_bits(host));
                event.maximum = Some(self.pool.ports_of_host_max(host));
            }
            NatDrop::TableFull => {
                self.note_hosts_full();
                return reason;
            }
            _ => return reason,
        }
        self.events.note_limit(event, self.now);
        reason
    }

    /// Notes for the log that the table of mappings is full. Returns the reason to drop the packet.
    #[cold]
    pub(super) fn note_mappings_full(&mut self) -> NatDrop {
        let maximum = u32::try_from(self.mappings_max).unwrap_or(u32::MAX);
        self.note_full(NatLimit::Mappings, maximum)
    }

    /// Notes for the log that the table of hosts is full. Returns the reason to drop the packet.
    #[cold]
    pub(crate) fn note_hosts_full(&mut self) -> NatDrop {
        let maximum = self.pool.hosts_max();
        self.note_full(NatLimit::Hosts, maximum)
    }

    fn note_full(&mut self, limit: NatLimit, maximum: u32) -> NatDrop {
        if self.events.has_limits() {
            let event = LimitEvent {
                limit,
                protocol: None,
                host: None,
                external: None,
                maximum: Some(maximum),
            };
            self.events.note_limit(event, self.now);
        }
        NatDrop::TableFull
    }
}
