// SPDX-License-Identifier: Apache-2.0
//! Events of NAT with their time and with the addresses of hosts.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4};

use quietwire_tables::nat::{NatEvent, NatLimit, NatProtocol};

use crate::forward::{Ipv6Ends, LogEvent};

/// VRF of an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Vrf {
    pub(super) number: u16,
    pub(super) name: String,
}

/// An event as the log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'a> {
    /// Unix time, milliseconds.
    pub(super) time_ms: u64,
    /// Name of the instance of NAT.
    pub(super) nat: &'a str,
    /// VRF of its outside interface.
    pub(super) vrf: &'a Vrf,
    pub(super) kind: RecordKind,
}

/// Kind of an event, and its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordKind {
    Block {
        is_assigned: bool,
        host: IpAddr,
        external: IpAddr,
        ports: (u16, u16),
    },
    Mapping {
        is_created: bool,
        protocol: NatProtocol,
        internal: SocketAddr,
        external: SocketAddr,
    },
    Limit {
        limit: NatLimit,
        protocol: Option<NatProtocol>,
        host: Option<IpAddr>,
        external: Option<IpAddr>,
        maximum: Option<u32>,
    },
    /// Events are not in the log: since the last such record, and since the start of the switch.
    Lost { count: u64, total: u64 },
}

/// Returns an endpoint with an IPv6 address instead of one that stands for it.
fn endpoint(number: SocketAddrV4, address: Option<Ipv6Addr>) -> SocketAddr {
    let address = address.map_or(IpAddr::V4(*number.ip()), IpAddr::V6);
    SocketAddr::new(address, number.port())
}

fn kind_of(event: NatEvent, ends: Ipv6Ends) -> RecordKind {
    let host = event.host().map(IpAddr::V4);
    let host = ends.host.map(IpAddr::V6).or(host);
    let external = event.external().map(IpAddr::V4);
    let external = ends.external.map(IpAddr::V6).or(external);
    match event {
        NatEvent::Block(event) => RecordKind::Block {
            is_assigned: event.is_assigned,
            host: host.unwrap_or(IpAddr::V4(event.host)),
            external: external.unwrap_or(IpAddr::V4(event.external)),
            ports: (event.first_port, event.last_port),
        },
        NatEvent::Mapping(event) => RecordKind::Mapping {
            is_created: event.is_created,
            protocol: event.protocol,
            internal: endpoint(event.internal, ends.host),
            external: endpoint(event.external, ends.external),
        },
        NatEvent::Limit(event) => RecordKind::Limit {
            limit: event.limit,
            protocol: event.protocol,
            host,
            external,
            maximum: event.maximum,
        },
    }
}

impl<'a> Record<'a> {
    /// Creates the record of an event of an instance, of which `total` events were lost.
    pub(super) fn new(
        time_ms: u64,
        event: LogEvent,
        (nat, vrf): (&'a str, &'a Vrf),
        total: u64,
    ) -> Self {
        let kind = match event {
            LogEvent::Nat(event, ends) => kind_of(event, ends),
            LogEvent::Lost(count) => RecordKind::Lost { count, total },
        };
        Self {
            time_ms,
            nat,
            vrf,
            kind,
        }
    }

    /// Returns the number of events that the log does not have if this record is not written.
    pub(super) const fn weight(&self) -> u64 {
        match self.kind {
            RecordKind::Lost { count, .. } => count,
            RecordKind::Block { .. } | RecordKind::Mapping { .. } | RecordKind::Limit { .. } => 1,
        }
    }
}
