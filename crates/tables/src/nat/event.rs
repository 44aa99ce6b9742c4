// SPDX-License-Identifier: Apache-2.0
//! Events for a log: hosts and their external ports (RFC 6888, section 4; RFC 8158, section 4).

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddrV4};

use super::names::NatProtocol;
use crate::named;

/// Block events that wait, at most, and other events that wait.
const EVENTS_MAX: usize = 4096;

/// A block was given to a host, or taken from it: what a log needs to name the host of an external endpoint (RFC 6888, section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockEvent {
    /// True if the host received the block; false if it returned it.
    pub is_assigned: bool,
    /// True for the first block that the host receives, and for the last one that it returns: the external address of the host changes.
    pub is_first_or_last: bool,
    /// Inside address of the host.
    pub host: Ipv4Addr,
    /// External address.
    pub external: Ipv4Addr,
    /// First port of the block.
    pub first_port: u16,
    /// Last port of the block.
    pub last_port: u16,
}

/// A mapping began or ended. The event has no remote endpoint (RFC 6888, REQ-12): the external endpoint identifies the mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MappingEvent {
    /// True if the mapping began; false if it ended.
    pub is_created: bool,
    /// Protocol.
    pub protocol: NatProtocol,
    /// Inside endpoint.
    pub internal: SocketAddrV4,
    /// External endpoint.
    pub external: SocketAddrV4,
}

named! {
    /// Limit for which a packet got no mapping.
    pub enum NatLimit {
        /// No external address has a free port block for a new host.
        Addresses = "addresses";
        /// The external address of a host has no free port block.
        Ports = "ports";
        /// Maximum number of mappings.
        Mappings = "mappings";
        /// Maximum number of port blocks of a host.
        HostBlocks = "host-blocks";
        /// Maximum number of hosts.
        Hosts = "hosts";
    }
}

/// A packet got no mapping because of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitEvent {
    /// The limit.
    pub limit: NatLimit,
    /// Protocol of the packet; only for [`NatLimit::Ports`].
    pub protocol: Option<NatProtocol>,
    /// Inside address of the host; only for [`NatLimit::HostBlocks`].
    pub host: Option<Ipv4Addr>,
    /// External address of the host; only for [`NatLimit::Ports`].
    pub external: Option<Ipv4Addr>,
    /// Maximum number of mappings or hosts of the table, or of ports of a host for each protocol; none for exhausted addresses and ports.
    pub maximum: Option<u32>,
}

/// An event for a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NatEvent {
    /// Of a port block.
    Block(BlockEvent),
    /// Of a mapping.
    Mapping(MappingEvent),
    /// Of a limit.
    Limit(LimitEvent),
}

impl NatEvent {
    /// Returns the inside address of the host, if the event is about one.
    #[must_use]
    pub const fn host(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Block(event) => Some(event.host),
            Self::Mapping(event) => Some(*event.internal.ip()),
            Self::Limit(event) => event.host,
        }
    }

    /// Returns the external address, if the event is about one.
    #[must_use]
    pub const fn external(&self) -> Option<Ipv4Addr> {
        match self {
            Self::Block(event) => Some(event.external),
            Self::Mapping(event) => Some(*event.external.ip()),
            Self::Limit(event) => event.external,
        }
    }
}

/// Events that are noted beside those of port blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventKinds {
    /// Mappings that begin and end, without static forwards.
    pub mappings: bool,
    /// Limits, each at most once a second.
    pub limits: bool,
}

/// Events that wait, in memory that never grows. Block events have space of their own, because the numbers of IPv6 hosts depend on them.
#[derive(Debug)]
pub(super) struct Events {
    events: VecDeque<NatEvent>,
    /// Number of block events among them.
    blocks: usize,
    kinds: EventKinds,
    /// Second after the last event of each limit.
    limited: [u32; NatLimit::ALL.len()],
    lost: u64,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            events: VecDeque::with_capacity(EVENTS_MAX),
            blocks: 0,
            kinds: EventKinds::default(),
            limited: [0; NatLimit::ALL.len()],
            lost: 0,
        }
    }

    /// Sets the kinds of events, and allocates space for them.
    pub(super) fn allow(&mut self, kinds: EventKinds) {
        self.kinds = kinds;
        if kinds != EventKinds::default() {
            self.events.reserve(EVENTS_MAX.saturating_mul(2));
        }
    }

    #[inline(always)]
    pub(super) const fn has_mappings(&self) -> bool {
        self.kinds.mappings
    }

    pub(super) const fn has_limits(&self) -> bool {
        self.kinds.limits
    }

    /// Notes an event of a port block.
    pub(super) fn note(&mut self, event: BlockEvent) {
        if self.blocks < EVENTS_MAX {
            self.blocks = self.blocks.saturating_add(1);
            self.events.push_back(NatEvent::Block(event));
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Notes an event that is not of a port block.
    fn note_other(&mut self, event: NatEvent) {
        if self.events.len().saturating_sub(self.blocks) < EVENTS_MAX {
            self.events.push_back(event);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Notes an event of a mapping.
    pub(super) fn note_mapping(&mut self, event: MappingEvent) {
        self.note_other(NatEvent::Mapping(event));
    }

    /// Notes an event of a limit, unless there was one in the same second.
    pub(super) fn note_limit(&mut self, event: LimitEvent, now: u32) {
        let after = now.saturating_add(1);
        let last = self.limited.get_mut(event.limit as usize);
        if last.is_some_and(|last| std::mem::replace(last, after) != after) {
            self.note_other(NatEvent::Limit(event));
        }
    }

    #[inline(always)]
    pub(super) fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Takes the oldest event.
    pub(super) fn take(&mut self) -> Option<NatEvent> {
        let event = self.events.pop_front()?;
        if matches!(event, NatEvent::Block(_)) {
            self.blocks = self.blocks.saturating_sub(1);
        }
        Some(event)
    }

    /// Returns the number of events for which there was no space.
    pub(super) const fn lost(&self) -> u64 {
        self.lost
    }
}
