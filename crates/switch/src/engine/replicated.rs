// SPDX-License-Identifier: Apache-2.0
//! Connections, mappings and balanced connections of an active switch and its standby, in the tables of all forwarding threads.

mod balanced;
mod mappings;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::SocketAddr;

use quietwire_tables::balance::BalanceSettings;
use quietwire_tables::connections::ConnectionChange;
use quietwire_tables::nat::{SavedMapping, SavedMappingIpv6};

use super::Engine;
use super::saved_connections::query_of;
use crate::config::nat::NatSetting;
use crate::error::SwitchError;
use crate::forward::{ApplyCounts, Outgoing, Replicated, Take, Transfer};
use crate::replication::{
    CHANGES_MAX, Digests, Limits, Message, NO_LIMIT, Position, Tables, digest, limit, messages_of,
    text_of,
};
use crate::report::{RestoredMappingsReport, SavedMappingsReport, TablePosition};

/// Messages of one table in a turn, so that other tasks of the control thread do not wait.
const MESSAGES_A_TURN: usize = 64;

/// Kind of the entries of a table.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Connections,
    /// Number of an instance of NAT.
    Nat(usize),
    /// Protocol and endpoint of a load balancer.
    Balancer(BalanceSettings<SocketAddr>),
}

/// A table of a thread.
#[derive(Clone, Copy, Debug)]
struct Table {
    cpu: u32,
    kind: Kind,
}

/// Entries that a thread has read.
#[derive(Debug, Default)]
struct Part {
    message: Option<Message>,
    next: Option<u32>,
    lost: u64,
}

/// Returns a number for a list of tables, which is another one for another list. `names` are those of the instances of NAT.
fn number_of_list<'names>(tables: &[Table], names: impl Iterator<Item = &'names str>) -> u64 {
    let mut hasher = DefaultHasher::new();
    for table in tables {
        let kind = match table.kind {
            Kind::Connections => (0, None),
            Kind::Nat(nat) => (nat.saturating_add(1), None),
            Kind::Balancer(one) => (0, Some((one.protocol as u8, one.endpoint))),
        };
        (table.cpu, kind).hash(&mut hasher);
    }
    for name in names {
        name.hash(&mut hasher);
    }
    hasher.finish()
}

/// Returns a position in the tables of this list: the first one if it is of another list.
fn position_in(list: u64, from: Position) -> Position {
    match from.list == list {
        true => from,
        false => Position {
            list,
            ..Position::default()
        },
    }
}

impl Engine {
    /// Returns all tables.
    fn replicated_tables(&self) -> Vec<Table> {
        let nats = (0..self.plan.nats.len()).map(Kind::Nat);
        let balancers = self.plan.load_balancers.iter();
        let balancers = balancers.map(|one| Kind::Balancer(one.table()));
        let connections = self.plan.connections.as_ref().map(|_| Kind::Connections);
        let kinds: Vec<Kind> = nats.chain(balancers).chain(connections).collect();
        let mut tables = Vec::new();
        for cpu in self.cpus() {
            tables.extend(kinds.iter().map(|kind| Table { cpu, kind: *kind }));
        }
        tables
    }

    /// Reads a part of a table.
    fn take_part(&mut self, table: Table, take: Take, from: u32) -> Result<Part, SwitchError> {
        match table.kind {
            Kind::Connections => self.take_connections(table.cpu, take, from),
            Kind::Nat(nat) => {
                let setting = self.plan.nats.get(nat);
                match setting.is_some_and(NatSetting::has_ipv6_hosts) {
                    true => self.take_mappings::<SavedMappingIpv6>(table.cpu, nat, take, from),
                    false => self.take_mappings::<SavedMapping>(table.cpu, nat, take, from),
                }
            }
            Kind::Balancer(one) => match one.endpoint {
                SocketAddr::V4(endpoint) => {
                    self.take_balanced(table.cpu, (one.protocol, endpoint), take, from)
                }
                SocketAddr::V6(endpoint) => {
                    self.take_balanced(table.cpu, (one.protocol, endpoint), take, from)
                }
            },
        }
    }

    fn take_connections(&mut self, cpu: u32, take: Take, from: u32) -> Result<Part, SwitchError> {
        let outgoing = Replicated::Outgoing(Outgoing::new(take, CHANGES_MAX));
        let query = self.query_connections(cpu, query_of(Transfer::Replicated(outgoing), from))?;
        let next = query.from;
        Ok(match query.transfer {
            Transfer::Replicated(Replicated::Outgoing(out)) => Part {
                message: (!out.list.is_empty()).then_some(Message::Connections(out.list)),
                next,
                lost: out.lost,
            },
            _ => Part::default(),
        })
    }

    fn apply_connections(
        &mut self,
        changes: Vec<ConnectionChange>,
    ) -> Result<ApplyCounts, SwitchError> {
        if self.plan.connections.is_none() {
            return Ok(ApplyCounts {
                invalid: changes.len() as u64,
                ..ApplyCounts::default()
            });
        }
        let lists = self.by_owner_cpu(changes, |owners, change| {
            let (ConnectionChange::Present(saved) | ConnectionChange::Ended(saved)) = change;
            owners.of_saved(saved).unwrap_or(0)
        });
        let mut sum = ApplyCounts::default();
        for (cpu, list) in lists {
            let incoming = Replicated::Incoming(list, ApplyCounts::default());
            let query = query_of(Transfer::Replicated(incoming), 0);
            let query = self.query_connections(cpu, query)?;
            if let Transfer::Replicated(Replicated::Incoming(_, counts)) = &query.transfer {
                sum.add(counts);
            }
        }
        Ok(sum)
    }
}

impl Engine {
    /// Returns the tables that mappings are saved from: those of NAT and of load balancers.
    fn saved_tables(&self) -> Vec<Table> {
        let is_saved = |table: &Table| !matches!(table.kind, Kind::Connections);
        let tables = self.replicated_tables().into_iter();
        tables.filter(is_saved).collect()
    }

    /// Reads a page of mappings and balanced connections from a position on.
    ///
    /// # Errors
    /// A thread does not reply.
    pub(crate) fn save_mappings(
        &mut self,
        position: TablePosition,
    ) -> Result<SavedMappingsReport, SwitchError> {
        let tables = self.saved_tables();
        let Some(table) = tables.get(position.table) else {
            return Ok(SavedMappingsReport {
                messages: text_of(&[]),
                next: None,
            });
        };
        let part = self.take_part(*table, Take::All, position.from)?;
        let following = TablePosition {
            table: position.table.saturating_add(1),
            from: 0,
        };
        let next = match part.next {
            Some(from) => Some(TablePosition { from, ..position }),
            None => (following.table < tables.len()).then_some(following),
        };
        let messages: Vec<Message> = part.message.into_iter().collect();
        Ok(SavedMappingsReport {
            messages: text_of(&messages),
            next,
        })
    }

    /// Adds saved mappings and balanced connections.
    ///
    /// # Errors
    /// [`SwitchError::Config`] for other messages, or those of another version; a thread does not reply.
    pub(crate) fn restore_mappings(
        &mut self,
        messages: &str,
    ) -> Result<RestoredMappingsReport, SwitchError> {
        let wrong = |what: String| SwitchError::Config {
            location: "mappings".to_owned(),
            what,
        };
        let messages = messages_of(messages).map_err(|error| wrong(error.to_string()))?;
        let mut sum = ApplyCounts::default();
        for message in messages {
            if !message.is_of_mappings() {
                return Err(wrong("a message is not one of saved mappings".to_owned()));
            }
            sum.add(&Tables::apply(self, message)?);
        }
        Ok(RestoredMappingsReport {
            restored: sum.added,
            known: sum.updated,
            full: sum.full,
            invalid: sum.invalid,
        })
    }
}

impl Tables for Engine {
    fn digests(&self) -> Digests {
        let mut values = Vec::new();
        let cpus = self.forwarders.len().to_string();
        for nat in &self.plan.nats {
            let Some(outside) = self.outside_of(nat) else {
                continue;
            };
            let (addresses, pool) = (nat.external_addresses(outside), nat.tables(outside).pool);
            let ports = format!("{}-{}", pool.first_port, pool.last_port);
            let nat64 = nat.nat64.as_ref().map(|one| one.prefix.trunc());
            for (setting, value) in [
                ("addresses", format!("{addresses:?}")),
                ("ports", ports),
                ("block-size", pool.block_size.to_string()),
                ("block-allocation", format!("{:?}", pool.deterministic)),
                (
                    "mapping and filtering",
                    format!("{}, {}", nat.mapping, nat.filtering),
                ),
                ("prefix of NAT64", format!("{nat64:?}")),
                ("number of forwarding CPUs", cpus.clone()),
            ] {
                let name = format!("{setting} of NAT '{}'", nat.name);
                values.push(digest(&name, &value));
            }
        }
        let connections = self.plan.connections.iter();
        let zones = connections.flat_map(|one| &one.zones);
        let mut connections = self.plan.connections.iter();
        let has_labels = connections.any(|one| one.labels);
        values.push(digest("labels of connections", &has_labels.to_string()));
        // Connections have the numbers of their zones, so the order of zones counts, and that of their ports does not.
        let zones: Vec<(&String, BTreeSet<&String>)> = zones
            .map(|zone| (&zone.name, zone.ports.iter().collect()))
            .collect();
        values.push(digest("zones", &format!("{zones:?}")));
        values
    }

    fn limits(&self) -> Limits {
        let mut limits = Vec::new();
        if let Some(setting) = &self.plan.connections {
            let per_source = setting.max_per_source.unwrap_or(NO_LIMIT);
            limits.push(limit("max-entries of connections", setting.max_entries));
            limits.push(limit("max-per-source of connections", per_source));
            // A zone without a limit has that of all connections.
            limits.extend(setting.zones.iter().map(|zone| {
                let name = format!("max-entries of zone '{}'", zone.name);
                limit(&name, zone.max_entries.unwrap_or(NO_LIMIT))
            }));
        }
        for nat in &self.plan.nats {
            let Some(outside) = self.outside_of(nat) else {
                continue;
            };
            let tables = nat.tables(outside);
            for (setting, value) in [
                ("max-mappings", tables.mappings_max),
                ("max-hosts", tables.hosts_max),
            ] {
                limits.push(limit(&format!("{setting} of NAT '{}'", nat.name), value));
            }
        }
        limits.extend(self.plan.load_balancers.iter().map(|one| {
            let name = format!("max-connections of load balancer '{}'", one.name);
            limit(&name, one.table().connections_max)
        }));
        limits
    }

    fn changes(&mut self, messages: &mut Vec<Message>) -> Result<u64, SwitchError> {
        let mut lost = 0;
        for table in self.replicated_tables() {
            for _ in 0..MESSAGES_A_TURN {
                let part = self.take_part(table, Take::Changes, 0)?;
                lost = part.lost.saturating_add(lost);
                messages.extend(part.message);
                if part.next.is_none() {
                    break;
                }
            }
        }
        Ok(lost)
    }

    fn page(
        &mut self,
        from: Position,
        messages: &mut Vec<Message>,
    ) -> Result<Option<Position>, SwitchError> {
        let tables = self.replicated_tables();
        let names = self.plan.nats.iter().map(|nat| nat.name.as_str());
        // A removed NAT or CPU changes the numbers of other tables, and none may be left out.
        let from = position_in(number_of_list(&tables, names), from);
        let Some(table) = tables.get(from.table) else {
            return Ok(None);
        };
        let part = self.take_part(*table, Take::All, from.from)?;
        messages.extend(part.message);
        let following = Position {
            table: from.table.saturating_add(1),
            from: 0,
            ..from
        };
        Ok(match part.next {
            Some(next) => Some(Position { from: next, ..from }),
            None => (following.table < tables.len()).then_some(following),
        })
    }

    fn end(&mut self) -> Result<(), SwitchError> {
        for table in self.replicated_tables() {
            self.take_part(table, Take::End, 0)?;
        }
        Ok(())
    }

    fn apply(&mut self, message: Message) -> Result<ApplyCounts, SwitchError> {
        match message {
            Message::Connections(changes) => self.apply_connections(changes),
            Message::Mappings { nat, changes } => self.apply_mappings(&nat, changes),
            Message::MappingsIpv6 { nat, changes } => self.apply_mappings(&nat, changes),
            Message::Balanced {
                protocol,
                endpoint,
                changes,
            } => self.apply_balanced((protocol, endpoint), changes),
            Message::BalancedIpv6 {
                protocol,
                endpoint,
                changes,
            } => self.apply_balanced((protocol, endpoint), changes),
            Message::Hello
            | Message::Configuration(_)
            | Message::Limits(_)
            | Message::Heartbeat
            | Message::Complete
            | Message::Acknowledgement(_) => Ok(ApplyCounts::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(cpus: &[u32], names: &[&str]) -> u64 {
        let tables: Vec<Table> = cpus
            .iter()
            .flat_map(|&cpu| {
                let nats = (0..names.len()).map(Kind::Nat);
                let kinds = nats.chain([Kind::Connections]);
                kinds.map(move |kind| Table { cpu, kind })
            })
            .collect();
        number_of_list(&tables, names.iter().copied())
    }

    #[test]
    fn a_pass_begins_again_when_the_tables_are_others() {
        let before = list(&[1, 2], &["first", "second"]);
        let at = Position {
            table: 3,
            from: 17,
            list: before,
        };
        assert_eq!(position_in(list(&[1, 2], &["first", "second"]), at), at);
        for other in [
            list(&[1, 2], &["second"]),
            list(&[2], &["first", "second"]),
            // As many tables as before.
            list(&[1, 3], &["first", "second"]),
            list(&[1, 2], &["first", "third"]),
        ] {
            let begin = position_in(other, at);
            assert_eq!((begin.table, begin.from, begin.list), (0, 0, other));
        }
        assert_eq!(position_in(before, Position::default()).table, 0);
    }
}
