// SPDX-License-Identifier: Apache-2.0
//! Connection tracking: tables of forwarding threads, their list, and removal of connections by request.

use std::net::SocketAddr;

use quietwire_tables::connections::{
    ConnectionFilter, ConnectionInfo, CtState, InvalidReason, Refusal, State, Tracker,
};
use quietwire_tables::filter::Protocol;
use quietwire_tables::share::Share;

use super::Engine;
use super::orders::unexpected_reply;
use super::pages::{from_position, paged};
use crate::config::Plan;
use crate::config::connections::ConnectionSelection;
use crate::error::SwitchError;
use crate::forward::{
    ConnectionQuery, ConnectionStage, ConnectionTotals, Reply, Transfer, WorkerCommand,
};
use crate::report::{ConnectionCounters, ConnectionReport, ConnectionsReport};

/// Connections of a page, at most.
const PAGE_MAX: usize = 16_384;
/// Entries that the forwarding thread reads for one order, in a few tens of microseconds.
pub(super) const ENTRIES_AN_ORDER: usize = 4096;
/// Orders of one request. A client continues where the request ended.
const ORDERS_MAX: usize = 256;

/// Creates the connection table of a thread with this share, if the plan has tables.
pub(super) fn connection_stage(
    plan: &Plan,
    share: Option<Share>,
) -> Result<Option<Box<ConnectionStage>>, SwitchError> {
    let Some(setting) = &plan.connections else {
        return Ok(None);
    };
    let share = share.unwrap_or(Share::WHOLE);
    let mut settings = setting.tracker();
    settings.entries_max = share.part(settings.entries_max);
    for limit in &mut settings.zone_limits {
        *limit = share.part(*limit);
    }
    let mut tracker = Tracker::new(&settings).map_err(|error| wrong(&error.to_string()))?;
    if let Some(limits) = setting.source_limits() {
        let limited = tracker.limit_sources(limits);
        limited.map_err(|error| wrong(&error.to_string()))?;
    }
    if let Some(limit) = setting.max_half_open {
        tracker.limit_half_open(share.part(limit));
    }
    if setting.labels {
        let allowed = tracker.allow_labels();
        allowed.map_err(|error| wrong(&error.to_string()))?;
    }
    if plan.nat_log_events.has_sessions() {
        let allowed = tracker.allow_sessions();
        allowed.map_err(|error| wrong(&error.to_string()))?;
    }
    tracker.allow_helpers(&setting.helpers);
    if setting.replication.is_some() {
        tracker.allow_changes();
    }
    let stage = ConnectionStage::new(tracker, setting.new_share());
    Ok(Some(Box::new(stage)))
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
        mark: selection.mark,
        label: selection.label,
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
        let filter = self.filter_of(selection)?;
        let each = self.connection_totals()?;
        let tables = paged(each.iter().map(|(cpu, one)| (*cpu, one.max_entries)));
        let limit = limit.clamp(1, PAGE_MAX);
        let (mut connections, mut next) = (Vec::new(), None);
        let mut left = from_position(&tables, from).peekable();
        while let Some((table, start)) = left.next() {
            let space = limit.saturating_sub(connections.len());
            let query = ConnectionQuery {
                filter,
                is_flush: false,
                from: Some(start),
                budget: ENTRIES_AN_ORDER,
                list: Vec::with_capacity(space),
                external: Vec::with_capacity(space),
                removed: 0,
                transfer: Transfer::None,
                totals: ConnectionTotals::default(),
            };
            let query = self.query_connections(table.cpu, Box::new(query))?;
            let listed = query.list.iter().zip(&query.external);
            connections.extend(listed.map(|(info, external)| ConnectionReport {
                zone: self.zone_name(info.zone),
                ..report_of(info, external)
            }));
            if let Some(position) = query.from {
                next = table.base.checked_add(position);
                break;
            }
            if connections.len() >= limit {
                next = left.peek().map(|(table, _)| table.base);
                break;
            }
        }
        Ok(ConnectionsReport {
            connections,
            next,
            ..summary_of(&each)
        })
    }

    /// Returns the numbers of connections and the counters, without a list. `None` without connection tracking.
    ///
    /// # Errors
    /// [`SwitchError::Thread`] if the thread does not reply.
    pub(crate) fn connections_summary(&mut self) -> Result<Option<ConnectionsReport>, SwitchError> {
        if self.plan.connections.is_none() {
            return Ok(None);
        }
        let each = self.connection_totals()?;
        Ok(Some(summary_of(&each)))
    }

    /// Returns the filter of a selection.
    fn filter_of(&self, selection: &ConnectionSelection) -> Result<ConnectionFilter, SwitchError> {
        let mut filter = filter_of(selection)?;
        if let Some(name) = &selection.zone {
            let setting = self.plan.connections.as_ref();
            let zone = setting.and_then(|setting| setting.zone_number(name));
            let absent = || {
                wrong(&format!(
                    "no such zone: '{name}' (see [[connections.zone]])"
                ))
            };
            filter.zone = Some(zone.ok_or_else(absent)?);
        }
        Ok(filter)
    }

    fn zone_name(&self, zone: u16) -> Option<String> {
        let setting = self.plan.connections.as_ref()?;
        setting.zone_name(zone).map(str::to_owned)
    }

    /// Returns the numbers of each thread.
    pub(super) fn connection_totals(
        &mut self,
    ) -> Result<Vec<(u32, ConnectionTotals)>, SwitchError> {
        let mut all = Vec::new();
        for cpu in self.cpus() {
            let query = Box::new(ConnectionQuery {
                filter: ConnectionFilter::default(),
                is_flush: false,
                from: None,
                budget: 0,
                list: Vec::new(),
                external: Vec::new(),
                removed: 0,
                transfer: Transfer::None,
                totals: ConnectionTotals::default(),
            });
            let query = self.query_connections(cpu, query)?;
            all.push((cpu, query.totals));
        }
        if all.is_empty() {
            return Err(wrong("no forwarding thread runs (add a forwarding CPU)"));
        }
        Ok(all)
    }

    /// Removes connections. Returns their number.
    ///
    /// # Errors
    /// Those of [`Self::connections`].
    pub(crate) fn flush_connections(
        &mut self,
        selection: &ConnectionSelection,
    ) -> Result<u64, SwitchError> {
        let filter = self.filter_of(selection)?;
        let mut removed = 0;
        // Without connection tracking, this is an error.
        for (cpu, _) in self.connection_totals()? {
            let mut query = Box::new(ConnectionQuery {
                filter,
                is_flush: true,
                from: Some(0),
                budget: ENTRIES_AN_ORDER,
                list: Vec::new(),
                external: Vec::new(),
                removed: 0,
                transfer: Transfer::None,
                totals: ConnectionTotals::default(),
            });
            // At most as many rounds as the largest table requires.
            while query.from.is_some() {
                query = self.query_connections(cpu, query)?;
            }
            removed = query.removed.saturating_add(removed);
        }
        Ok(removed)
    }

    /// Sends parts of a request to a forwarding thread, until it is answered, its list is full, or the maximum of orders is reached.
    pub(super) fn query_connections(
        &mut self,
        cpu: u32,
        mut query: Box<ConnectionQuery>,
    ) -> Result<Box<ConnectionQuery>, SwitchError> {
        if self.plan.connections.is_none() {
            return Err(wrong(
                "connection tracking is not configured (add a section [connections])",
            ));
        }
        for _ in 0..ORDERS_MAX {
            query = match self.send_command(cpu, WorkerCommand::Connections(query))? {
                Reply::Connections(query) => query,
                _ => return Err(unexpected_reply("connections")),
            };
            if query.from.is_none() || query.is_full() {
                break;
            }
        }
        Ok(query)
    }
}

fn wrong(what: &str) -> SwitchError {
    SwitchError::Config {
        location: "connections".to_owned(),
        what: what.to_owned(),
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
        mark: (info.mark != 0).then(|| format!("{:#x}", info.mark)),
        label: (info.label != 0).then(|| format!("{:#x}", info.label)),
        zone: None,
    }
}

/// Returns the report of the tables of all threads, without a list.
fn summary_of(each: &[(u32, ConnectionTotals)]) -> ConnectionsReport {
    let mut totals = ConnectionTotals::default();
    for (_, one) in each {
        totals.add(one);
    }
    ConnectionsReport {
        connections: Vec::new(),
        next: None,
        total: totals.connections,
        half_open: totals.half_open,
        max_entries: totals.max_entries,
        octets: totals.octets,
        counters: counters_of(&totals),
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
        dropped_half_open: counters.dropped_half_open,
        flushed: counters.flushed,
    }
}
