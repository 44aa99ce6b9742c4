// SPDX-License-Identifier: Apache-2.0
//! Connections of load balancers of an active switch and its standby.

use std::net::{SocketAddr, SocketAddrV4, SocketAddrV6};

use quietwire_tables::balance::{BalanceEndpoint, BalancedChange};
use quietwire_tables::nat::NatProtocol;

use super::{MESSAGES_A_TURN, Part};
use crate::engine::Engine;
use crate::engine::connections::ENTRIES_AN_ORDER;
use crate::engine::orders::unexpected_reply;
use crate::error::SwitchError;
use crate::forward::{
    ApplyCounts, BalanceQuery, Outgoing, Replicated, ReplicatedBalancer, Reply, Take, WorkerCommand,
};
use crate::replication::{CHANGES_MAX, Message};

/// Endpoint of an IP version, with its part of requests and its messages.
pub(super) trait ReplicatedEndpoint: BalanceEndpoint {
    /// Returns a request to a thread.
    fn query(part: ReplicatedBalancer<Self>) -> BalanceQuery;

    /// Returns the part of a request.
    fn part_of(query: BalanceQuery) -> Option<ReplicatedBalancer<Self>>;

    /// Returns a message with changes of a load balancer.
    fn message(self, protocol: NatProtocol, changes: Vec<BalancedChange<Self>>) -> Message;
}

impl ReplicatedEndpoint for SocketAddrV4 {
    fn query(part: ReplicatedBalancer<Self>) -> BalanceQuery {
        BalanceQuery {
            replicated: Some(part),
            ..BalanceQuery::default()
        }
    }

    fn part_of(query: BalanceQuery) -> Option<ReplicatedBalancer<Self>> {
        query.replicated
    }

    fn message(self, protocol: NatProtocol, changes: Vec<BalancedChange>) -> Message {
        Message::Balanced {
            protocol,
            endpoint: self,
            changes,
        }
    }
}

impl ReplicatedEndpoint for SocketAddrV6 {
    fn query(part: ReplicatedBalancer<Self>) -> BalanceQuery {
        BalanceQuery {
            replicated_ipv6: Some(part),
            ..BalanceQuery::default()
        }
    }

    fn part_of(query: BalanceQuery) -> Option<ReplicatedBalancer<Self>> {
        query.replicated_ipv6
    }

    fn message(self, protocol: NatProtocol, changes: Vec<BalancedChange<Self>>) -> Message {
        Message::BalancedIpv6 {
            protocol,
            endpoint: self,
            changes,
        }
    }
}

impl Engine {
    /// Reads a part of the connections to a virtual endpoint.
    pub(super) fn take_balanced<E: ReplicatedEndpoint>(
        &mut self,
        cpu: u32,
        virtual_endpoint: (NatProtocol, E),
        take: Take,
        from: u32,
    ) -> Result<Part, SwitchError> {
        let outgoing = Replicated::Outgoing(Outgoing::new(take, CHANGES_MAX));
        let part = self.query_replicated_balancer(cpu, virtual_endpoint, (outgoing, from))?;
        let (protocol, endpoint) = virtual_endpoint;
        let next = part.from;
        Ok(match part.replicated {
            Replicated::Outgoing(out) => Part {
                message: (!out.list.is_empty()).then(|| endpoint.message(protocol, out.list)),
                next,
                lost: out.lost,
            },
            Replicated::Incoming(..) => Part::default(),
        })
    }

    /// Sends parts of a request to a thread, as [`Self::query_replicated_nat`] does.
    fn query_replicated_balancer<E: ReplicatedEndpoint>(
        &mut self,
        cpu: u32,
        (protocol, endpoint): (NatProtocol, E),
        (replicated, from): (Replicated<BalancedChange<E>>, u32),
    ) -> Result<ReplicatedBalancer<E>, SwitchError> {
        let mut part = ReplicatedBalancer {
            protocol,
            endpoint,
            from: Some(from),
            budget: ENTRIES_AN_ORDER,
            replicated,
        };
        for _ in 0..MESSAGES_A_TURN {
            let query = Box::new(E::query(part));
            let reply = self.send_command(cpu, WorkerCommand::BalanceQuery(query))?;
            let answered = match reply {
                Reply::BalanceQuery(query) => E::part_of(*query),
                _ => None,
            };
            part = answered.ok_or_else(|| unexpected_reply("load-balancer"))?;
            if part.from.is_none() || part.replicated.is_full() {
                break;
            }
        }
        Ok(part)
    }

    /// Applies changes of the connections to a virtual endpoint on the CPUs of their clients.
    pub(super) fn apply_balanced<E: ReplicatedEndpoint>(
        &mut self,
        virtual_endpoint: (NatProtocol, E),
        changes: Vec<BalancedChange<E>>,
    ) -> Result<ApplyCounts, SwitchError> {
        let mut sum = ApplyCounts::default();
        let (protocol, endpoint) = virtual_endpoint;
        let wanted: (NatProtocol, SocketAddr) = (protocol, endpoint.into());
        let mut settings = self.plan.load_balancers.iter().map(|one| one.table());
        if !settings.any(|one| (one.protocol, one.endpoint) == wanted) {
            sum.invalid = changes.len() as u64;
            return Ok(sum);
        }
        let lists = self.by_owner_cpu(changes, |owners, change| {
            let (BalancedChange::Present(saved) | BalancedChange::Ended(saved)) = change;
            let client: SocketAddr = saved.client.into();
            owners.of_client(client.ip())
        });
        for (cpu, list) in lists {
            let incoming = Replicated::Incoming(list, ApplyCounts::default());
            let part = self.query_replicated_balancer(cpu, virtual_endpoint, (incoming, 0))?;
            if let Replicated::Incoming(_, counts) = &part.replicated {
                sum.add(counts);
            }
        }
        Ok(sum)
    }
}
