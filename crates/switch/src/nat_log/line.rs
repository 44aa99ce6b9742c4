// SPDX-License-Identifier: Apache-2.0
//! Lines of the log: one JSON object for each event.

use std::net::{IpAddr, SocketAddr};

use quietwire_tables::nat::NatProtocol;
use serde::Serialize;

use super::record::{Record, RecordKind};

/// A line of the log.
#[derive(Default, Serialize)]
struct Line<'a> {
    /// Unix time, seconds.
    time: f64,
    event: &'static str,
    nat: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    vrf: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    outside: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remote_inside: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    direction: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    maximum: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

impl<'a> Line<'a> {
    fn of(record: &Record<'a>) -> Self {
        let line = Self {
            time: record.time_ms as f64 / 1000.0,
            nat: record.nat,
            ..Self::default()
        };
        match record.kind {
            RecordKind::Block {
                is_assigned,
                host,
                external,
                ports,
            } => Self {
                event: if is_assigned { "assigned" } else { "returned" },
                host: Some(host),
                address: Some(external),
                first_port: Some(ports.0),
                last_port: Some(ports.1),
                ..line
            },
            RecordKind::Binding {
                is_created,
                host,
                external,
            } => Self {
                event: if is_created { "bound" } else { "unbound" },
                host: Some(host),
                address: Some(external),
                ..line
            },
            RecordKind::Mapping {
                is_created,
                protocol,
                internal,
                external,
            } => Self {
                event: if is_created { "created" } else { "deleted" },
                vrf: Some(&record.vrf.name),
                protocol: Some(protocol.name()),
                inside: Some(internal),
                outside: Some(external),
                ..line
            },
            RecordKind::Session {
                is_created,
                is_inbound,
                protocol,
                internal,
                external,
                remote,
                remote_inside,
            } => Self {
                event: match is_created {
                    true => "session-created",
                    false => "session-deleted",
                },
                vrf: Some(&record.vrf.name),
                protocol: Some(protocol.name()),
                inside: Some(internal),
                outside: Some(external),
                remote: Some(remote),
                remote_inside: (remote_inside != remote).then_some(remote_inside),
                direction: Some(if is_inbound { "inbound" } else { "outbound" }),
                ..line
            },
            RecordKind::Limit {
                limit,
                protocol,
                host,
                external,
                maximum,
            } => Self {
                event: "limit",
                limit: Some(limit.name()),
                protocol: protocol.map(NatProtocol::name),
                host,
                address: external,
                maximum,
                ..line
            },
            RecordKind::Lost { count, .. } => Self {
                event: "lost",
                count: Some(count),
                ..line
            },
        }
    }
}

/// Appends the line of a record.
pub(super) fn push(text: &mut Vec<u8>, record: &Record<'_>) {
    // Writing to memory cannot fail.
    if serde_json::to_writer(&mut *text, &Line::of(record)).is_ok() {
        text.push(b'\n');
    }
}
