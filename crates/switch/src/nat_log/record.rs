// SPDX-License-Identifier: Apache-2.0
//! Events of NAT with their time and with the addresses of hosts.

use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV4};

use quietwire_tables::connections::{Endpoint, SessionEvent};
use quietwire_tables::nat::{BlockEvent, NatEvent, NatLimit, NatProtocol};

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
    /// External address of a host.
    Binding {
        is_created: bool,
        host: IpAddr,
        external: IpAddr,
    },
    Mapping {
        is_created: bool,
        protocol: NatProtocol,
        internal: SocketAddr,
        external: SocketAddr,
    },
    /// A connection.
    Session {
        is_created: bool,
        /// True if the remote host sent the first packet.
        is_inbound: bool,
        protocol: NatProtocol,
        internal: SocketAddr,
        external: SocketAddr,
        /// Endpoint that the inside host addresses.
        remote: SocketAddr,
        /// The same behind the translation of another inside host.
        remote_inside: SocketAddr,
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

/// Returns the record of an external address of a host.
fn binding_of(event: BlockEvent, ends: Ipv6Ends) -> RecordKind {
    RecordKind::Binding {
        is_created: event.is_assigned,
        host: ends.host.map_or(IpAddr::V4(event.host), IpAddr::V6),
        external: ends.external.map_or(IpAddr::V4(event.external), IpAddr::V6),
    }
}

/// Returns the record of a connection. The remote endpoint of an echo has the port 0.
fn session_of(event: SessionEvent) -> RecordKind {
    let SessionEvent {
        is_created,
        protocol,
        source,
        destination,
        external: [of_source, of_destination],
    } = event;
    // NAT translates no other protocol: this is ICMPv6.
    let protocol = NatProtocol::of_number(protocol).unwrap_or(NatProtocol::Icmp);
    let socket = |end: Endpoint| SocketAddr::new(end.address, end.port);
    let remote_of = |end: Endpoint| match protocol {
        NatProtocol::Icmp => SocketAddr::new(end.address, 0),
        NatProtocol::Tcp | NatProtocol::Udp => socket(end),
    };
    let is_inbound = of_source.is_none();
    let (internal, external, remote, remote_inside) = match of_source {
        Some(external) => {
            let remote = of_destination.unwrap_or(destination);
            (source, external, remote, destination)
        }
        None => {
            let external = of_destination.unwrap_or(destination);
            (destination, external, source, source)
        }
    };
    RecordKind::Session {
        is_created,
        is_inbound,
        protocol,
        internal: socket(internal),
        external: socket(external),
        remote: remote_of(remote),
        remote_inside: remote_of(remote_inside),
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
            LogEvent::Binding(event, ends) => binding_of(event, ends),
            LogEvent::Session(event) => session_of(event),
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
            RecordKind::Block { .. }
            | RecordKind::Binding { .. }
            | RecordKind::Mapping { .. }
            | RecordKind::Session { .. }
            | RecordKind::Limit { .. } => 1,
        }
    }
}
