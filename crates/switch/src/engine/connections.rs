// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: the table of the forwarding thread, its list, and removal of connections by request.

use std::net::SocketAddr;

use quietwire_tables::connections::{
    ConnectionFilter, ConnectionInfo, CtState, InvalidReason, Refusal, State, Tracker,
};
use quietwire_tables::filter::Protocol;

use super::Engine;
use crate::config::Plan;
use crate::config::connections::ConnectionSelection;
use crate::error::SwitchError;
use crate::forward::{ConnectionQuery, ConnectionStage, ConnectionTotals, Reply, WorkerCommand};
use crate::report::{ConnectionCounters, ConnectionReport, ConnectionsReport};

/// Connections of a page, at most.
const PAGE_MAX: usize = 16_384;
/// Entries that the forwarding thread reads for one order, in a few tens of microseconds.
const ENTRIES_AN_ORDER: usize = 4096;
/// Orders of one request. A client continues where the request ended.
const ORDERS_MAX: usize = 256;

/// Creates the connection table of a thread, if the plan has one.
pub(super) fn connection_stage(plan: &Plan) -> Result<Option<Box<ConnectionStage>>, SwitchError> {
    let Some(setting) = &plan.connections else {
        return Ok(None);
    };
    let tracker = Tracker::new(&setting.tracker()).map_err(|error| SwitchError::Config {
        location: "connections".to_owned(),
        what: error.to_string(),
    })?;
    Ok(Some(Box::new(ConnectionStage::new(tracker))))
}

/// Returns the filter of a selection.
fn filter_of(selection: &ConnectionSelection) -> Result<ConnectionFilter, SwitchError> {
    let state = |name: &String| {
        let mut states = State::ALL.into_iter();
        let state = states.find(|state| state.name() == name);
        state.ok_or_else(|| SwitchError::Config {
            location: "connections".to_owned(),
            what: format!(
                "unknown state '{name}' (available: {})",
                State::ALL.map(State::name).join(", ")
            ),
        })
    };
    Ok(ConnectionFilter {
        protocol: selection.protocol.map(|protocol| protocol.0),
        state: selection.state.as_ref().map(state).transpose()?,
        address: selection.address,
        port: selection.port,
        ..ConnectionFilter::default()
    })
}

impl Engine {
    /// Returns a page of connections: up to `limit`, from position `from` on.
    ///
    /// # Errors
    /// [`SwitchError::Config`] without connection tracking, and for an unknown state. [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn connections(
        &mut self,
        selection: &ConnectionSelection,
        limit: usize,
        from: u32,
    ) -> Result<ConnectionsReport, SwitchError> {
        let query = Box::new(ConnectionQuery {
            filter: filter_of(selection)?,
            is_flush: false,
            from: Some(from),
            budget: ENTRIES_AN_ORDER,
            list: Vec::with_capacity(limit.clamp(1, PAGE_MAX)),
            external: Vec::with_capacity(limit.clamp(1, PAGE_MAX)),
            removed: 0,
            totals: ConnectionTotals::default(),
        });
        let query = self.query_connections(query)?;
        let totals = &query.totals;
        let listed = query.list.iter().zip(&query.external);
        Ok(ConnectionsReport {
            connections: listed
                .map(|(info, external)| report_of(info, external))
                .collect(),
            next: query.from,
            total: totals.connections,
            max_entries: totals.max_entries,
            octets: totals.octets,
            counters: counters_of(totals),
        })
    }

    /// Removes connections. Returns their number.
    ///
    /// # Errors
    /// Those of [`Self::connections`].
    pub(crate) fn flush_connections(
        &mut self,
        selection: &ConnectionSelection,
    ) -> Result<u64, SwitchError> {
        let mut query = Box::new(ConnectionQuery {
            filter: filter_of(selection)?,
            is_flush: true,
            from: Some(0),
            budget: ENTRIES_AN_ORDER,
            list: Vec::new(),
            external: Vec::new(),
            removed: 0,
            totals: ConnectionTotals::default(),
        });
        // At most as many rounds as the largest table requires.
        while query.from.is_some() {
            query = self.query_connections(query)?;
        }
        Ok(query.removed)
    }

    /// Sends parts of a request to the forwarding thread, until it is answered, its list is full, or the maximum of orders is reached.
    fn query_connections(
        &mut self,
        mut query: Box<ConnectionQuery>,
    ) -> Result<Box<ConnectionQuery>, SwitchError> {
        let without = |what: &str| SwitchError::Config {
            location: "connections".to_owned(),
            what: what.to_owned(),
        };
        if self.plan.connections.is_none() {
            return Err(without(
                "connection tracking is not configured (add a section [connections])",
            ));
        }
        let cpu = self.cpus().first().copied();
        let cpu = cpu.ok_or_else(|| without("no forwarding thread runs (add a forwarding CPU)"))?;
        for _ in 0..ORDERS_MAX {
            query = match self.send_command(cpu, WorkerCommand::Connections(query))? {
                Reply::Connections(query) => query,
                _ => return Err(without("the thread gave another reply (this is a bug)")),
            };
            let is_full = !query.is_flush && query.list.len() >= query.list.capacity();
            if query.from.is_none() || is_full {
                break;
            }
        }
        Ok(query)
    }
}

fn report_of(info: &ConnectionInfo, external: &[Option<SocketAddr>; 2]) -> ConnectionReport {
    let [external_source, external_destination] = *external;
    ConnectionReport {
        protocol: Protocol(info.protocol),
        source: info.source.address,
        source_port: info.source.port,
        destination: info.destination.address,
        destination_port: info.destination.port,
        state: info.state.name().to_owned(),
        is_replied: info.is_replied,
        expires_in_s: info.expires_in_s,
        packets: info.packets.map(u64::from),
        octets: info.octets,
        external_source,
        external_destination,
    }
}

fn counters_of(totals: &ConnectionTotals) -> ConnectionCounters {
    let counters = &totals.counters;
    let named = |names: &[&str], counts: &[u64]| {
        let pairs = names.iter().zip(counts);
        pairs
            .map(|(name, count)| ((*name).to_owned(), *count))
            .collect()
    };
    ConnectionCounters {
        packets: named(&CtState::ALL.map(CtState::name), &counters.packets),
        invalid: named(
            &InvalidReason::ALL.map(InvalidReason::name),
            &counters.invalid,
        ),
        refused: named(&Refusal::ALL.map(Refusal::name), &counters.refused),
        created: counters.created,
        expired: counters.expired,
        dropped_early: counters.dropped_early,
        flushed: counters.flushed,
    }
}
