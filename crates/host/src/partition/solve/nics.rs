// SPDX-License-Identifier: Apache-2.0
//! Assignment of receive queues to forwarding CPUs. Every queue has the same weight, because its load is unknown.

use std::collections::BTreeMap;

use crate::CpuId;

use super::super::plan::{NicPlan, Plan, QueueCpu, Role};
use super::Attempt;

/// MTU of Ethernet, octets.
pub(super) const MTU: u16 = 1500;

impl Attempt<'_> {
    /// Assigns queues to every network card, polled by CPUs of its own node.
    pub(super) fn assign_queues(&mut self, plan: &mut Plan) {
        let forwarding = plan.cpus(Role::Forwarding);
        let mut load: BTreeMap<CpuId, u32> = forwarding.iter().map(|cpu| (cpu, 0)).collect();
        let request = self.request.nics.clone();
        let nodes: Vec<Option<u32>> = request
            .iter()
            .map(|entry| self.nic(&entry.pci).and_then(|nic| nic.node))
            .collect();
        for entry in &request {
            let Some(nic) = self.nic(&entry.pci) else {
                continue;
            };
            if plan
                .nics
                .iter()
                .any(|known| known.pci_address == nic.pci_address)
            {
                continue;
            }
            let near: Vec<CpuId> = forwarding
                .iter()
                .filter(|cpu| {
                    let node = self.cores.node_of(*cpu);
                    nic.node.is_none() || node.is_none() || node == nic.node
                })
                .collect();
            let (cpus, place) = if near.is_empty() {
                (
                    forwarding.iter().collect::<Vec<CpuId>>(),
                    "on another node, because its own node has no forwarding CPU".to_owned(),
                )
            } else {
                let is_known = near.iter().all(|cpu| self.cores.node_of(*cpu).is_some());
                let place = match nic.node {
                    None => "on any node, because the node of the card is unknown".to_owned(),
                    Some(node) if is_known => format!("on its node {node}"),
                    Some(node) => {
                        format!(
                            "on any node: the card is on node {node}, but the nodes of CPUs are unknown"
                        )
                    }
                };
                (near, place)
            };
            let beside = nodes
                .iter()
                .filter(|node| **node == nic.node)
                .count()
                .max(1);
            let chosen = u16::try_from(cpus.len().checked_div(beside).unwrap_or(1).max(1))
                .unwrap_or(u16::MAX);
            let mut queues = Vec::new();
            for queue in 0..entry.queues.filter(|queues| *queues > 0).unwrap_or(chosen) {
                let least = cpus
                    .iter()
                    .copied()
                    .min_by_key(|cpu| (load.get(cpu).copied(), *cpu));
                let Some(cpu) = least else { break };
                let polled = load.entry(cpu).or_default();
                *polled = polled.saturating_add(1);
                queues.push(QueueCpu { queue, cpu });
            }
            let pollers: crate::CpuList = queues.iter().map(|queue| queue.cpu).collect();
            self.reason(
                &nic.pci_address,
                format!(
                    "{} receive queues, polled by CPUs {pollers} {place}",
                    queues.len()
                ),
            );
            plan.nics.push(NicPlan {
                pci_address: nic.pci_address.clone(),
                interface: nic.interfaces.first().cloned(),
                node: nic.node,
                queues,
                functions: entry.functions,
                mtu: entry.mtu.unwrap_or(MTU),
            });
        }
    }
}
