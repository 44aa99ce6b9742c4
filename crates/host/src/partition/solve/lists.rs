// SPDX-License-Identifier: Apache-2.0
//! Requests for named objects: network cards, nodes and individual CPUs.

use crate::inventory::Nic;
use crate::{CpuId, CpuList};

use super::super::request::CpuRequest;
use super::cores::in_words;
use super::{Attempt, Member, RequestSection, Role, listed};

impl<'a> Attempt<'a> {
    /// Returns the network card with a requested address, which may lack the PCI domain.
    pub(super) fn nic(&self, address: &str) -> Option<&'a Nic> {
        let nics = self.machine.nics.iter();
        let matches = |nic: &&Nic| {
            nic.pci_address.eq_ignore_ascii_case(address)
                || nic
                    .pci_address
                    .strip_prefix("0000:")
                    .is_some_and(|short| short.eq_ignore_ascii_case(address))
        };
        nics.into_iter().find(matches)
    }

    /// Returns the requested network cards that exist, each once.
    pub(super) fn requested_nics(&self) -> Vec<&'a Nic> {
        let mut found: Vec<&Nic> = Vec::new();
        for entry in &self.request.nics {
            let nic = self.nic(&entry.pci);
            let is_new = |nic: &&Nic| {
                found
                    .iter()
                    .all(|known| known.pci_address != nic.pci_address)
            };
            found.extend(nic.filter(is_new));
        }
        found
    }

    /// Records conflicts for network cards that do not exist and for virtual functions that they do not support.
    pub(super) fn known_nics(&mut self) {
        let mut observed: Vec<&str> = Vec::new();
        let mut kept = Vec::new();
        for entry in &self.request.nics {
            let Some(nic) = self.nic(&entry.pci) else {
                let all: Vec<&str> = self
                    .machine
                    .nics
                    .iter()
                    .map(|nic| nic.pci_address.as_str())
                    .collect();
                let there = if all.is_empty() {
                    "none".to_owned()
                } else {
                    all.join(", ")
                };
                self.conflict(
                    &entry.pci,
                    format!("no such network card (available: {there})"),
                    "left out",
                );
                continue;
            };
            if observed.contains(&nic.pci_address.as_str()) {
                self.conflict(&entry.pci, "requested twice", "the first request only");
                continue;
            }
            observed.push(&nic.pci_address);
            let mut entry = entry.clone();
            let most = nic.functions_max.unwrap_or(0);
            if let Some(functions) = entry.functions.filter(|functions| *functions > most) {
                let (text, suggestion) = if most == 0 {
                    (
                        format!(
                            "{functions} virtual functions are requested, but the card does not support SR-IOV"
                        ),
                        None,
                    )
                } else {
                    (
                        format!(
                            "{functions} virtual functions are requested, but the card supports at most {most}"
                        ),
                        Some(most),
                    )
                };
                let reported = suggestion.map_or("none".to_owned(), |most| most.to_string());
                self.conflict(&entry.pci, text, reported);
                entry.functions = suggestion;
            }
            if entry.queues == Some(0) {
                self.conflict(
                    &entry.pci,
                    "0 receive queues are requested, so the port would receive nothing",
                    "one queue for each CPU that polls it",
                );
                entry.queues = None;
            }
            kept.push(entry);
        }
        self.nearest.nics = kept;
    }

    /// Assigns the CPUs that the request names.
    pub(super) fn take_lists(&mut self) {
        for index in 0..self.members.len() {
            let Some(member) = self.members.get(index).cloned() else {
                continue;
            };
            self.check_node(&member);
            if let Some(CpuRequest::These(requested)) = &member.cpus {
                self.take_list(index, &member, requested);
            }
        }
    }

    fn check_node(&mut self, member: &Member) {
        let Some(node) = member
            .node
            .filter(|node| !self.cores.nodes.contains(&Some(*node)))
        else {
            return;
        };
        let nodes = &self.cores.nodes;
        let text = if nodes.iter().all(Option::is_none) {
            format!("node {node} is requested, but the nodes of this machine's CPUs are unknown")
        } else {
            format!(
                "node {node} has no CPUs (nodes with CPUs: {})",
                in_words(nodes)
            )
        };
        self.conflict(&member.name, text, "the node that fits best");
        match member.section {
            RequestSection::Forwarding => self.nearest.forwarding.node = None,
            RequestSection::Guest(at) => self
                .nearest
                .guests
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|guest| guest.node = None),
            RequestSection::Neighbour(at) => self
                .nearest
                .neighbours
                .iter_mut()
                .skip(at)
                .take(1)
                .for_each(|neighbour| neighbour.node = None),
            _ => {}
        }
    }

    fn take_list(&mut self, index: usize, member: &Member, requested: &CpuList) {
        let name = &member.name;
        if requested.is_empty() {
            self.conflict(
                name,
                "the requested list of CPUs is empty",
                "the default number of CPUs",
            );
            self.suggest_request(index, None);
            return;
        }
        let mut bad = requested.difference(&self.online);
        if !bad.is_empty() {
            let offline = self
                .machine
                .cpus_present
                .as_ref()
                .map(|present| bad.intersection(present));
            let text = match offline.filter(|offline| *offline == bad) {
                Some(offline) => format!(
                    "CPU {offline} is offline (bring it online with `echo 1 > /sys/devices/system/cpu/cpuN/online`)"
                ),
                None => format!("CPU {bad} does not exist (online: {})", self.online),
            };
            self.conflict(name, text, "the other CPUs only");
        }
        for cpu in requested.intersection(&self.online).iter() {
            if let Some(owner) = self.cores.owner(cpu) {
                let owner = self.name(owner);
                self.conflict(
                    name,
                    format!("CPU {cpu} is also requested for {owner}, but a CPU has only one role"),
                    format!("{owner} gets it"),
                );
                bad.insert(cpu);
            } else if let Some(sibling) = self.forwarding_sibling(index, cpu) {
                self.conflict(
                    name,
                    format!("CPU {cpu} is a thread of the same core as forwarding CPU {sibling}; any work on it would slow forwarding"),
                    "it stays idle",
                );
                bad.insert(cpu);
            }
        }
        let good = requested.difference(&bad);
        for cpu in good.iter() {
            self.cores.give(cpu, index);
        }
        if matches!(member.role, Role::Forwarding | Role::Guest) {
            let touched: Vec<usize> = good
                .iter()
                .filter_map(|cpu| self.cores.core_of(cpu))
                .collect();
            touched.into_iter().for_each(|core| self.cores.close(core));
        }
        if bad.is_empty() {
            self.reason(name, format!("CPUs {good}: as requested"));
        } else {
            self.suggest_request(
                index,
                (!good.is_empty()).then(|| CpuRequest::These(good.clone())),
            );
        }
        if member.role == Role::Forwarding {
            self.check_list_near_controllers(index, &good);
        }
    }

    /// Returns a forwarding CPU on the same core, unless the group is forwarding itself.
    fn forwarding_sibling(&self, index: usize, cpu: CpuId) -> Option<CpuId> {
        let forwarding = self.index(RequestSection::Forwarding);
        if index == forwarding {
            return None;
        }
        self.cores
            .siblings(cpu)
            .find(|sibling| self.cores.owner(*sibling) == Some(forwarding))
    }

    /// Checks that every network card has a forwarding CPU on its node.
    fn check_list_near_controllers(&mut self, index: usize, cpus: &CpuList) {
        let nodes = self.cores.nodes_of(cpus);
        for nic in self.requested_nics() {
            let Some(node) = nic.node.filter(|node| !nodes.contains(&Some(*node))) else {
                continue;
            };
            let on_node: Vec<CpuId> = self
                .online
                .iter()
                .filter(|cpu| self.cores.node_of(*cpu) == Some(node))
                .collect();
            if on_node.is_empty() {
                continue;
            }
            let text = format!(
                "none of the forwarding CPUs {cpus} is on node {node}, the node of network card {} (CPUs of node {node}: {})",
                nic.pci_address,
                listed(&on_node),
            );
            self.conflict(
                "forwarding",
                text,
                "the same number of CPUs, on the nodes of the network cards",
            );
            let count = u32::try_from(cpus.len()).unwrap_or(u32::MAX).max(1);
            self.suggest_request(index, Some(CpuRequest::Count(count)));
            return;
        }
    }
}
