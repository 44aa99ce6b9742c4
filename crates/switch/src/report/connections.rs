// SPDX-License-Identifier: Apache-2.0
//! Reports about connections, mappings of NAT and load balancers.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use quietwire_tables::filter::Protocol;
use serde::{Deserialize, Serialize};

/// A page of the connections of a switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionsReport {
    /// The connections.
    pub connections: Vec<ConnectionReport>,
    /// Position to continue from; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
    /// Number of connections in the table, including expired ones that are not yet removed.
    pub total: u64,
    /// Number of half-open connections among them.
    pub half_open: u64,
    /// Maximum number of connections.
    pub max_entries: u64,
    /// Memory of the table, octets.
    pub octets: u64,
    /// Counters since the forwarding thread started.
    pub counters: ConnectionCounters,
}

/// A page of the connections of a switch, as records for another switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedConnectionsReport {
    /// Version of the records ([`quietwire_tables::connections::SAVED_VERSION`]).
    pub version: u16,
    /// Records of [`quietwire_tables::connections::SAVED_OCTETS`] octets each, as base64 (RFC 4648, section 4).
    pub records: String,
    /// Position to continue from; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// Result of restoring connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredConnectionsReport {
    /// Restored connections.
    pub restored: u64,
    /// Connections that the switch has already.
    pub known: u64,
    /// Connections for which there is no space.
    pub full: u64,
    /// Records that are not connections of this switch.
    pub invalid: u64,
}

/// Position in the tables of NAT and of load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TablePosition {
    /// Number of the table.
    pub table: usize,
    /// Position in the table.
    pub from: u32,
}

/// A page of mappings of NAT and of connections of load balancers, for another switch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedMappingsReport {
    /// Messages to a standby, with their versions, as base64 (RFC 4648, section 4).
    pub messages: String,
    /// Position to continue from; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<TablePosition>,
}

/// Result of restoring mappings of NAT and connections of load balancers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoredMappingsReport {
    /// Restored entries.
    pub restored: u64,
    /// Entries that the switch has already. Their timeout begins again.
    pub known: u64,
    /// Entries for which there is no space.
    pub full: u64,
    /// Entries that this switch cannot have, such as those of an external address that its NAT does not have.
    pub invalid: u64,
}

/// Replication of connections and mappings of NAT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationReport {
    /// Role: `active` or `standby`.
    pub role: String,
    /// Settings of a standby that differ from those of the active switch, by name, at most eight and the number of others. While there are
    /// some, the standby gets no entries.
    #[serde(default)]
    pub differing_settings: Vec<String>,
    /// Limits of tables of a standby that are lower than those of the active switch, with both values, at most eight and the number of
    /// others. The standby has no space for connections beyond them.
    #[serde(default)]
    pub lower_limits: Vec<String>,
    /// Standbys of an active switch; the active switch of a standby, if it is connected.
    pub peers: Vec<ReplicationPeerReport>,
    /// Entries, and ends of entries, that the active switch has sent.
    pub sent: u64,
    /// Changes that were too many for the rings of the forwarding threads, and tables that were added. All entries are sent again then.
    pub lost: u64,
    /// Number of times that the active switch has sent all entries.
    pub passes: u64,
    /// Entries that the standby has added.
    pub added: u64,
    /// Entries that the standby has updated.
    pub updated: u64,
    /// Entries that the standby has removed.
    pub removed: u64,
    /// Entries for which the standby has no space.
    pub full: u64,
    /// Entries that the standby cannot have, such as those of an address that its NAT does not have.
    pub invalid: u64,
}

/// The other switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicationPeerReport {
    /// Its address and TCP port.
    pub address: String,
    /// True if the standby has all entries.
    pub is_complete: bool,
    /// Octets that wait to be sent to a standby.
    pub queued_octets: u64,
    /// Messages that a standby has not applied yet.
    pub unacknowledged: u64,
}

/// A connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionReport {
    /// IP protocol.
    pub protocol: Protocol,
    /// Source address of the first packet.
    pub source: IpAddr,
    /// Source port of the first packet; the identifier of an ICMP echo.
    pub source_port: u16,
    /// Destination address of the first packet.
    pub destination: IpAddr,
    /// Destination port of the first packet.
    pub destination_port: u16,
    /// State ([`quietwire_tables::connections::State`]).
    pub state: String,
    /// True if both sides have sent packets.
    pub is_replied: bool,
    /// Seconds until it expires, unless further packets arrive.
    pub expires_in_s: u32,
    /// Packets of the original direction and of the other.
    pub packets: [u64; 2],
    /// Octets of IP packets of the original direction and of the other.
    pub octets: [u64; 2],
    /// External endpoint that NAT has for the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_source: Option<SocketAddr>,
    /// External endpoint that NAT has for the destination.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_destination: Option<SocketAddr>,
    /// Mark, hexadecimal; none if it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mark: Option<String>,
    /// Label, hexadecimal; none if it is 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Name of its zone; none for ports of no zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
}

/// An instance of NAT.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NatReport {
    /// Its name.
    pub name: String,
    /// The outside interface.
    pub interface: String,
    /// External addresses, without those of one-to-one translations.
    pub addresses: Vec<IpAddr>,
    /// Mapping behaviour, as in the configuration.
    #[serde(default)]
    pub mapping: String,
    /// Filtering behaviour of endpoint-independent mappings, as in the configuration.
    #[serde(default)]
    pub filtering: String,
    /// Number of mappings, without published ports, including expired ones that are not yet removed.
    pub mappings: u64,
    /// Maximum number of mappings.
    pub max_mappings: u64,
    /// Number of published ports.
    pub published: u64,
    /// Number of one-to-one translations.
    pub one_to_one: u64,
    /// Number of hosts with mappings.
    pub hosts: u64,
    /// Memory of the tables, octets.
    pub octets: u64,
    /// Packets translated from the inside.
    pub outbound: u64,
    /// Packets translated from the outside.
    pub inbound: u64,
    /// Packets between inside hosts by their external endpoints.
    pub hairpinned: u64,
    /// Packets that were not translated, by reason ([`quietwire_tables::nat::NatDrop`]). Those to an address of the router itself are for the
    /// router, and the others are dropped, as are those of the reason `filtered`.
    pub refused: BTreeMap<String, u64>,
    /// New mappings.
    pub created: u64,
    /// Expired mappings.
    pub expired: u64,
    /// Events that are not in the log.
    pub events_lost: u64,
}

/// A load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadBalancerReport {
    /// Its name.
    pub name: String,
    /// Protocol: `tcp` or `udp`.
    pub protocol: String,
    /// The virtual endpoint.
    pub endpoint: SocketAddr,
    /// Number of connections, including expired ones that are not yet removed.
    pub connections: u64,
    /// Maximum number of connections.
    pub max_connections: u64,
    /// New connections.
    pub created: u64,
    /// Connections that went to another backend, because theirs is down or removed.
    pub moved: u64,
    /// Connections that were not complete or were closed, and gave their space to others.
    pub replaced: u64,
    /// Packets dropped, by reason ([`quietwire_tables::balance::BalanceDrop`]).
    pub dropped: BTreeMap<String, u64>,
    /// Backends.
    pub backends: Vec<BackendReport>,
}

/// A backend of a load balancer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendReport {
    /// Its endpoint.
    pub endpoint: SocketAddr,
    /// Its share of new connections, relative to the others.
    pub weight: u32,
    /// State: `up`, `draining` or `down`.
    pub state: String,
    /// Its connections.
    pub connections: u64,
    /// Packets to it.
    pub packets_in: u64,
    /// Packets from it.
    pub packets_out: u64,
}

/// A page of the mappings of an instance of NAT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingsReport {
    /// The mappings.
    pub mappings: Vec<MappingReport>,
    /// Position to continue from; none at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u32>,
}

/// A mapping of NAT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MappingReport {
    /// Name of the instance.
    pub nat: String,
    /// Protocol: `tcp`, `udp` or `icmp`.
    pub protocol: String,
    /// Inside endpoint. The port of an ICMP echo is its identifier.
    pub inside: SocketAddr,
    /// External endpoint.
    pub outside: SocketAddr,
    /// Remote address that the mapping depends on; none with endpoint-independent mapping, and for a published port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<IpAddr>,
    /// Remote port that the mapping depends on; none if it depends on no port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remote_port: Option<u16>,
    /// Seconds until it expires without packets from the inside; none for a published port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u32>,
}

/// Counters of connection tracking.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionCounters {
    /// Packets by class ([`quietwire_tables::connections::CtState`]).
    pub packets: BTreeMap<String, u64>,
    /// Invalid packets by reason ([`quietwire_tables::connections::InvalidReason`]).
    pub invalid: BTreeMap<String, u64>,
    /// Refused connections by reason ([`quietwire_tables::connections::Refusal`]).
    pub refused: BTreeMap<String, u64>,
    /// New connections.
    pub created: u64,
    /// Expired connections.
    pub expired: u64,
    /// Connections dropped early because the table or a zone was full, in favour of new ones.
    pub dropped_early: u64,
    /// Half-open connections dropped at their limit, in favour of new ones.
    pub dropped_half_open: u64,
    /// Connections removed by request.
    pub flushed: u64,
}
