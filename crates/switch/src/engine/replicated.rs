// SPDX-License-Identifier: Apache-2.0
//! Connections and mappings of an active switch and its standby, in the tables of all forwarding threads.

use std::collections::BTreeMap;

use quietwire_tables::connections::ConnectionChange;
use quietwire_tables::nat::MappingChange;

use super::Engine;
use super::connections::ENTRIES_AN_ORDER;
use super::saved_connections::query_of;
use crate::error::SwitchError;
use crate::forward::{ApplyCounts, NatQuery, Outgoing, Replicated, Take, Transfer};
use crate::replication::{CHANGES_MAX, Message, Position, Tables};

/// Messages of one table in a turn, so that other tasks of the control thread do not wait.
const MESSAGES_A_TURN: usize = 64;

/// A table of a thread: that of connections, or that of an instance of NAT.
#[derive(Clone, Copy, Debug)]
struct Table {
    cpu: u32,
    nat: Option<usize>,
}

/// What a thread has read.
#[derive(Debug, Default)]
struct Part {
    message: Option<Message>,
    next: Option<u32>,
    lost: u64,
}

impl Engine {
    /// Returns all tables.
    fn replicated_tables(&self) -> Vec<Table> {
        let nats = self.plan.nats.len();
        let of_cpu = |cpu| {
            let of_nats = (0..nats).map(move |nat| Table {
                cpu,
                nat: Some(nat),
            });
            of_nats.chain([Table { cpu, nat: None }])
        };
        self.cpus().into_iter().flat_map(of_cpu).collect()
    }

    /// Reads a part of a table.
    fn take_part(&mut self, table: Table, take: Take, from: u32) -> Result<Part, SwitchError> {
        match table.nat {
            None => self.take_connections(table.cpu, take, from),
            Some(nat) => self.take_mappings(table.cpu, nat, take, from),
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

    fn take_mappings(
        &mut self,
        cpu: u32,
        nat: usize,
        take: Take,
        from: u32,
    ) -> Result<Part, SwitchError> {
        let outgoing = Replicated::Outgoing(Outgoing::new(take, CHANGES_MAX));
        let query = self.query_replicated_nat(cpu, nat, (outgoing, from))?;
        let name = self.plan.nats.get(nat).map(|nat| nat.name.clone());
        let next = query.from;
        Ok(match (query.replicated, name) {
            (Some(Replicated::Outgoing(out)), Some(nat)) => Part {
                message: (!out.list.is_empty()).then_some(Message::Mappings {
                    nat,
                    changes: out.list,
                }),
                next,
                lost: out.lost,
            },
            _ => Part::default(),
        })
    }

    /// Sends parts of a request to a thread, until it is answered, its list is full, or the maximum of orders is reached.
    fn query_replicated_nat(
        &mut self,
        cpu: u32,
        instance: usize,
        (replicated, from): (Replicated<MappingChange>, u32),
    ) -> Result<Box<NatQuery>, SwitchError> {
        let mut query = Box::new(NatQuery {
            instance,
            from: Some(from),
            budget: ENTRIES_AN_ORDER,
            list: Vec::new(),
            replicated: Some(replicated),
            totals: None,
        });
        // The first order, and as many as a full message or a large part of the table takes.
        for _ in 0..MESSAGES_A_TURN {
            query = self.query_nat(cpu, query)?;
            let is_full = query.replicated.as_ref().is_some_and(Replicated::is_full);
            if query.from.is_none() || is_full {
                break;
            }
        }
        Ok(query)
    }

    fn apply_connections(
        &mut self,
        changes: Vec<ConnectionChange>,
    ) -> Result<ApplyCounts, SwitchError> {
        let cpus = self.owner_cpus();
        let first = self.cpus().first().copied();
        let owners = self.owners();
        let mut lists: BTreeMap<u32, Vec<ConnectionChange>> = BTreeMap::new();
        for change in changes {
            let (ConnectionChange::Present(saved) | ConnectionChange::Ended(saved)) = &change;
            let owner = owners.of_saved(saved).unwrap_or(0);
            let cpu = cpus.get(usize::from(owner)).copied().or(first);
            if let Some(cpu) = cpu {
                lists.entry(cpu).or_default().push(change);
            }
        }
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

    fn apply_mappings(
        &mut self,
        name: &str,
        changes: Vec<MappingChange>,
    ) -> Result<ApplyCounts, SwitchError> {
        let mut sum = ApplyCounts::default();
        let Some(nat) = self.plan.nats.iter().position(|one| one.name == name) else {
            sum.invalid = changes.len() as u64;
            return Ok(sum);
        };
        let cpus = self.owner_cpus();
        let first = self.cpus().first().copied();
        let owners = self.owners();
        let mut lists: BTreeMap<u32, Vec<MappingChange>> = BTreeMap::new();
        for change in changes {
            let (MappingChange::Present(saved) | MappingChange::Ended(saved)) = &change;
            let owner = usize::from(owners.of_mapping(saved));
            if let Some(cpu) = cpus.get(owner).copied().or(first) {
                lists.entry(cpu).or_default().push(change);
            }
        }
        for (cpu, list) in lists {
            let incoming = Replicated::Incoming(list, ApplyCounts::default());
            let query = self.query_replicated_nat(cpu, nat, (incoming, 0))?;
            if let Some(Replicated::Incoming(_, counts)) = &query.replicated {
                sum.add(counts);
            }
        }
        Ok(sum)
    }
}

impl Tables for Engine {
    fn changes(&mut self, messages: &mut Vec<Message>) -> Result<u64, SwitchError> {
        let mut lost = 0;
        for table in self.replicated_tables() {
            for _ in 0..MESSAGES_A_TURN {
                let part = self.take_part(table, Take::Changes, 0)?;
                lost += part.lost;
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
        let Some(table) = tables.get(from.table) else {
            return Ok(None);
        };
        let part = self.take_part(*table, Take::All, from.from)?;
        messages.extend(part.message);
        let following = Position {
            table: from.table + 1,
            from: 0,
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
            Message::Hello
            | Message::Heartbeat
            | Message::Complete
            | Message::Acknowledgement(_) => Ok(ApplyCounts::default()),
        }
    }
}
