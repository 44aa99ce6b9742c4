// SPDX-License-Identifier: Apache-2.0
//! Mappings of NAT of an active switch and its standby.

use quietwire_tables::nat::{MappingChange, SavedMapping, SavedMappingIpv6};
use quietwire_tables::owner::Owners;

use super::{MESSAGES_A_TURN, Part};
use crate::config::nat::NatSetting;
use crate::engine::Engine;
use crate::engine::connections::ENTRIES_AN_ORDER;
use crate::error::SwitchError;
use crate::forward::{ApplyCounts, NatQuery, Outgoing, Replicated, Take};
use crate::replication::{CHANGES_MAX, Message};

/// Mapping of inside hosts of IPv4 alone, or of IPv6 too, with its part of requests and its messages.
pub(super) trait ReplicatedMapping: Copy {
    /// Returns true if an instance has such mappings.
    fn is_of(setting: &NatSetting) -> bool;

    /// Sets the part of a request.
    fn set_part(query: &mut NatQuery, part: Replicated<MappingChange<Self>>);

    /// Returns the part of a request.
    fn part_of(query: &NatQuery) -> Option<&Replicated<MappingChange<Self>>>;

    /// Takes the part of a request.
    fn take_part(query: &mut NatQuery) -> Option<Replicated<MappingChange<Self>>>;

    /// Returns a message with changes of an instance.
    fn message(nat: String, changes: Vec<MappingChange<Self>>) -> Message;

    /// Returns the number of the owner.
    fn owner(&self, owners: &Owners) -> u16;
}

impl ReplicatedMapping for SavedMapping {
    fn is_of(setting: &NatSetting) -> bool {
        !setting.has_ipv6_hosts()
    }

    fn set_part(query: &mut NatQuery, part: Replicated<MappingChange>) {
        query.replicated = Some(part);
    }

    fn part_of(query: &NatQuery) -> Option<&Replicated<MappingChange>> {
        query.replicated.as_ref()
    }

    fn take_part(query: &mut NatQuery) -> Option<Replicated<MappingChange>> {
        query.replicated.take()
    }

    fn message(nat: String, changes: Vec<MappingChange>) -> Message {
        Message::Mappings { nat, changes }
    }

    fn owner(&self, owners: &Owners) -> u16 {
        owners.of_mapping(self)
    }
}

impl ReplicatedMapping for SavedMappingIpv6 {
    fn is_of(setting: &NatSetting) -> bool {
        setting.has_ipv6_hosts()
    }

    fn set_part(query: &mut NatQuery, part: Replicated<MappingChange<Self>>) {
        query.replicated_ipv6 = Some(part);
    }

    fn part_of(query: &NatQuery) -> Option<&Replicated<MappingChange<Self>>> {
        query.replicated_ipv6.as_ref()
    }

    fn take_part(query: &mut NatQuery) -> Option<Replicated<MappingChange<Self>>> {
        query.replicated_ipv6.take()
    }

    fn message(nat: String, changes: Vec<MappingChange<Self>>) -> Message {
        Message::MappingsIpv6 { nat, changes }
    }

    fn owner(&self, owners: &Owners) -> u16 {
        owners.of_mapping_ipv6(self)
    }
}

impl Engine {
    /// Reads a part of the mappings of an instance.
    pub(super) fn take_mappings<S: ReplicatedMapping>(
        &mut self,
        cpu: u32,
        nat: usize,
        take: Take,
        from: u32,
    ) -> Result<Part, SwitchError> {
        let outgoing = Replicated::Outgoing(Outgoing::new(take, CHANGES_MAX));
        let mut query = self.query_replicated_nat::<S>(cpu, nat, (outgoing, from))?;
        let name = self.plan.nats.get(nat).map(|nat| nat.name.clone());
        let next = query.from;
        Ok(match (S::take_part(&mut query), name) {
            (Some(Replicated::Outgoing(out)), Some(nat)) => Part {
                message: (!out.list.is_empty()).then(|| S::message(nat, out.list)),
                next,
                lost: out.lost,
            },
            _ => Part::default(),
        })
    }

    /// Sends parts of a request to a thread, until it is answered, its list is full, or the maximum of orders is reached.
    fn query_replicated_nat<S: ReplicatedMapping>(
        &mut self,
        cpu: u32,
        instance: usize,
        (replicated, from): (Replicated<MappingChange<S>>, u32),
    ) -> Result<Box<NatQuery>, SwitchError> {
        let mut query = Box::new(NatQuery {
            from: Some(from),
            budget: ENTRIES_AN_ORDER,
            ..NatQuery::of(instance)
        });
        S::set_part(&mut query, replicated);
        // The first order, and as many as a full message or a large part of the table takes.
        for _ in 0..MESSAGES_A_TURN {
            query = self.query_nat(cpu, query)?;
            let is_full = S::part_of(&query).is_some_and(Replicated::is_full);
            if query.from.is_none() || is_full {
                break;
            }
        }
        Ok(query)
    }

    /// Applies changes of the mappings of an instance on the CPUs of their external ports.
    pub(super) fn apply_mappings<S: ReplicatedMapping>(
        &mut self,
        name: &str,
        changes: Vec<MappingChange<S>>,
    ) -> Result<ApplyCounts, SwitchError> {
        let mut sum = ApplyCounts::default();
        let mut nats = self.plan.nats.iter();
        let Some(nat) = nats.position(|one| one.name == name && S::is_of(one)) else {
            sum.invalid = changes.len() as u64;
            return Ok(sum);
        };
        let lists = self.by_owner_cpu(changes, |owners, change| change.saved().owner(owners));
        for (cpu, list) in lists {
            let incoming = Replicated::Incoming(list, ApplyCounts::default());
            let query = self.query_replicated_nat::<S>(cpu, nat, (incoming, 0))?;
            if let Some(Replicated::Incoming(_, counts)) = S::part_of(&query) {
                sum.add(counts);
            }
        }
        Ok(sum)
    }
}
