// SPDX-License-Identifier: Apache-2.0
//! Choice of CPUs for groups that request a number of CPUs.
//!
//! Forwarding and guests get whole cores, whose threads no other group uses. The host gets all remaining CPUs, and at least
//! the boot core.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::{CpuId, CpuList};

use super::super::request::{CpuRequest, SiblingPolicy};
use super::cores::in_words;
use super::{Attempt, Member, RequestSection, Role, listed};

impl Attempt<'_> {
    /// Chooses CPUs for every group that does not name its CPUs. The host gets all others.
    pub(super) fn place(&mut self) {
        self.reserve_host();
        let forwarding = self.index(RequestSection::Forwarding);
        if self.cores.of(forwarding).is_empty() {
            self.place_forwarding(forwarding);
        }
        if self.cores.of(forwarding).is_empty() {
            return;
        }
        for index in 0..self.members.len() {
            let Some(member) = self.members.get(index).cloned() else {
                continue;
            };
            if matches!(member.cpus, Some(CpuRequest::These(_))) {
                continue;
            }
            match member.role {
                Role::Control | Role::Service => self.place_helper(index, &member),
                Role::Guest => self.place_guest(index, &member),
                Role::Neighbour => self.place_neighbour(index, &member),
                _ => {}
            }
        }
        self.give_rest();
    }

    /// Reserves the host's CPUs before all others: without them, nothing else runs.
    fn reserve_host(&mut self) {
        let index = self.index(RequestSection::Host);
        let entry = self.member(index).and_then(|member| member.cpus.clone());
        let cores = self.host_cores();
        let count = match entry {
            Some(CpuRequest::These(_)) if !self.cores.of(index).is_empty() => return,
            Some(CpuRequest::Count(count)) => count.max(1) as usize,
            // All threads of the first core.
            _ => cores
                .first()
                .map_or(1, |core| self.cores.free(*core).count()),
        };
        let free = cores.iter().flat_map(|core| self.cores.free(*core));
        let cpus: Vec<CpuId> = free.take(count).collect();
        for cpu in &cpus {
            self.cores.give(*cpu, index);
        }
        if cpus.is_empty() {
            self.free_cores_for_host();
        } else if let Some(CpuRequest::Count(requested)) = entry {
            if requested == 0 {
                self.conflict(
                    "host",
                    "0 CPUs are requested, but the kernel needs one",
                    "1",
                );
                self.suggest_request(index, Some(CpuRequest::Count(1)));
            } else if cpus.len() < count {
                self.report_shortage(
                    index,
                    count,
                    cpus.len(),
                    "are not requested by another group",
                );
            }
        }
    }

    /// Returns cores with free threads: the first core of each node first, high-priority cores last.
    fn host_cores(&self) -> Vec<usize> {
        let mut turns: BTreeMap<Option<u32>, usize> = BTreeMap::new();
        let mut cores: Vec<(bool, usize, Option<u32>, usize)> = Vec::new();
        for (index, core) in self.cores.all.iter().enumerate() {
            if self.cores.free(index).next().is_some() {
                let turn = turns.entry(core.node).or_default();
                cores.push((core.is_high, *turn, core.node, index));
                *turn = turn.saturating_add(1);
            }
        }
        cores.sort_unstable();
        cores.into_iter().map(|(.., index)| index).collect()
    }

    /// Removes the first core from lists that name every CPU.
    fn free_cores_for_host(&mut self) {
        let first: CpuList = self
            .cores
            .all
            .first()
            .into_iter()
            .flat_map(|core| core.cpus.iter().copied())
            .collect();
        for index in 0..self.members.len() {
            let cpus = self.cores.of(index);
            let lost = cpus.intersection(&first);
            if lost.is_empty() {
                continue;
            }
            let name = self.name(index);
            self.conflict(
                &name,
                format!(
                    "the request for CPUs {cpus} leaves no CPU for the host, but the kernel needs one"
                ),
                format!("CPU {lost} goes to the host"),
            );
            let rest = cpus.difference(&lost);
            self.suggest_request(index, (!rest.is_empty()).then_some(CpuRequest::These(rest)));
        }
    }

    fn place_forwarding(&mut self, index: usize) {
        let forwarding = &self.request.forwarding;
        let nic_nodes = self.nodes_of_nics();
        let mut distinct = nic_nodes.clone();
        distinct.sort_unstable();
        distinct.dedup();
        let requested = match &forwarding.cpus {
            Some(CpuRequest::Count(count)) => Some(*count as usize),
            _ => None,
        };
        if requested == Some(0) {
            self.conflict(
                "forwarding",
                "0 CPUs are requested, so nothing would forward",
                "1",
            );
            self.suggest_request(index, Some(CpuRequest::Count(1)));
        }
        if forwarding.node.is_none() && self.crosses_nodes(index, requested, &distinct) {
            return;
        }
        let free_cores: BTreeMap<Option<u32>, usize> = self
            .cores
            .nodes
            .iter()
            .map(|node| (*node, self.forwarding_capacity(*node)))
            .collect();
        let free_cores_on = |node: &Option<u32>| free_cores.get(node).copied().unwrap_or(0);
        if let Some(full) = distinct
            .iter()
            .find(|node| free_cores_on(node) == 0 && distinct.len() > 1)
        {
            self.leave_out_controllers_of(*full);
            return;
        }
        let is_tied = !distinct.is_empty();
        let nodes = if is_tied {
            distinct.clone()
        } else {
            self.free_nodes(&free_cores)
        };
        let capacity: usize = nodes.iter().map(free_cores_on).sum();
        let nics = self.requested_nics().len();
        let count = requested.unwrap_or_else(|| nics.clamp(1, capacity.max(1)));
        if capacity == 0 {
            self.too_few_cores_for_forwarding(&nodes);
            return;
        }
        if count > capacity {
            self.report_forwarding_shortage(index, (count, capacity), &nodes, is_tied);
        }
        let weights = if is_tied { nic_nodes } else { Vec::new() };
        let shares = split(count.clamp(1, capacity), &nodes, &weights, &free_cores);
        for (node, share) in shares {
            self.take_forwarding(index, node, share);
        }
        self.explain_forwarding(index, is_tied, requested.is_none());
    }

    /// Returns the requested node, or else the node of each network card. Nodes without online CPUs are left out.
    fn nodes_of_nics(&self) -> Vec<Option<u32>> {
        let known = |node: &Option<u32>| node.is_some() && self.cores.nodes.contains(node);
        match Some(self.request.forwarding.node).filter(known) {
            Some(node) => vec![node],
            None => {
                let nics = self.requested_nics();
                nics.iter().map(|nic| nic.node).filter(known).collect()
            }
        }
    }

    /// Records that more CPUs are requested than the nodes have. `is_tied` is true if the request or the network cards name the nodes.
    fn report_forwarding_shortage(
        &mut self,
        index: usize,
        (count, capacity): (usize, usize),
        nodes: &[Option<u32>],
        is_tied: bool,
    ) {
        let forwarding = &self.request.forwarding;
        let nics = self.requested_nics();
        let what = if forwarding.siblings == SiblingPolicy::Idle {
            "cores"
        } else {
            "threads of whole cores"
        };
        let section = if !is_tied {
            String::new()
        } else if forwarding.node.is_some() {
            ", the requested node".to_owned()
        } else {
            format!(
                ", where {} {}",
                join(nics.iter().map(|nic| nic.pci_address.clone())),
                if nics.len() == 1 { "is" } else { "are" }
            )
        };
        self.conflict(
            "forwarding",
            format!(
                "{count} CPUs are requested, but only {capacity} {what} are free on node {}{section}",
                in_words(nodes)
            ),
            format!("{capacity} CPUs"),
        );
        self.suggest_request(
            index,
            Some(CpuRequest::Count(
                u32::try_from(capacity).unwrap_or(u32::MAX),
            )),
        );
    }

    /// Checks whether there are fewer CPUs than nodes with network cards: packets of some cards would cross to another node.
    fn crosses_nodes(
        &mut self,
        index: usize,
        requested: Option<usize>,
        nodes: &[Option<u32>],
    ) -> bool {
        let Some(count) = requested.filter(|count| *count > 0 && *count < nodes.len()) else {
            return false;
        };
        let places = in_words(nodes);
        self.conflict(
            "forwarding",
            format!("the network cards are on nodes {places}, so with {count} CPUs packets of some cards would cross to another node"),
            format!("{} CPUs", nodes.len()),
        );
        self.suggest_request(
            index,
            Some(CpuRequest::Count(
                u32::try_from(nodes.len()).unwrap_or(u32::MAX),
            )),
        );
        true
    }

    /// Returns the number of CPUs on a node that can forward.
    fn forwarding_capacity(&self, node: Option<u32>) -> usize {
        let cores = self.cores.all.iter().enumerate();
        let untouched =
            cores.filter(|(at, core)| core.node == node && self.cores.is_untouched(*at));
        match self.request.forwarding.siblings {
            SiblingPolicy::Idle => untouched.count(),
            SiblingPolicy::Forward => untouched.map(|(_, core)| core.cpus.len()).sum(),
        }
    }

    /// Returns the nodes with free cores: the one with the most first, then those nearest to it.
    fn free_nodes(&self, free_cores: &BTreeMap<Option<u32>, usize>) -> Vec<Option<u32>> {
        let best = free_cores
            .iter()
            .max_by_key(|(node, free_cores)| (**free_cores, Reverse(**node)));
        let from: Vec<Option<u32>> = best.iter().map(|(node, _)| **node).collect();
        let mut nodes = self.cores.nearest(&from);
        nodes.retain(|node| {
            free_cores
                .get(node)
                .is_some_and(|free_cores| *free_cores > 0)
        });
        nodes
    }

    fn leave_out_controllers_of(&mut self, node: Option<u32>) {
        let gone: Vec<String> = self
            .requested_nics()
            .iter()
            .filter(|nic| nic.node == node)
            .map(|nic| nic.pci_address.clone())
            .collect();
        self.conflict(
            "forwarding",
            format!(
                "no core is free on node {}, where {} is",
                in_words(&[node]),
                gone.join(", ")
            ),
            "without the network cards of that node",
        );
        let is_gone = |pci: &str| self.nic(pci).is_some_and(|nic| nic.node == node);
        let kept: Vec<_> = self
            .nearest
            .nics
            .iter()
            .filter(|entry| !is_gone(&entry.pci))
            .cloned()
            .collect();
        self.nearest.nics = kept;
    }

    /// Handles a partition in which other groups have every core: the last group with CPUs gives one core back.
    fn too_few_cores_for_forwarding(&mut self, nodes: &[Option<u32>]) {
        let places = in_words(nodes);
        let place = if places.is_empty() {
            String::new()
        } else {
            format!(" on node {places}")
        };
        for index in (0..self.members.len()).rev() {
            let Some(member) = self.members.get(index).cloned() else {
                continue;
            };
            let cpus = self.cores.of(index);
            let last = cpus
                .iter()
                .rev()
                .find(|cpu| nodes.is_empty() || nodes.contains(&self.cores.node_of(*cpu)));
            let Some(core) = last.and_then(|cpu| self.cores.core_of(cpu)) else {
                continue;
            };
            let of_core: CpuList = self
                .cores
                .all
                .get(core)
                .into_iter()
                .flat_map(|core| core.cpus.iter().copied())
                .collect();
            let rest = cpus.difference(&of_core);
            if member.role == Role::Host && rest.is_empty() {
                continue;
            }
            let lost = cpus.intersection(&of_core);
            self.conflict(
                "forwarding",
                format!(
                    "no whole core is free{place}: {} has the CPUs {cpus}",
                    member.name
                ),
                format!("{} without CPU {lost}", member.name),
            );
            let entry = match member.cpus {
                Some(CpuRequest::Count(_)) => Some(CpuRequest::Count(
                    u32::try_from(rest.len()).unwrap_or(u32::MAX),
                )),
                _ => (!rest.is_empty()).then_some(CpuRequest::These(rest)),
            };
            self.suggest_request(index, entry);
            return;
        }
        if self.request.forwarding.node.is_some() || !self.requested_nics().is_empty() {
            self.conflict(
                "forwarding",
                format!("no whole core is free{place} beside the host's"),
                "another node, without the network cards",
            );
            self.nearest.forwarding.node = None;
            self.nearest.nics.clear();
            return;
        }
        let text =
            "no whole core is free beside the host's, but a forwarding core may not be shared";
        self.conflict("forwarding", text, "none");
    }

    /// Returns the unassigned cores of a node, the best for forwarding first.
    fn best_cores(&self, node: Option<u32>) -> Vec<usize> {
        let first = self.cores.all.iter().position(|core| core.node == node);
        let mut free: Vec<usize> = (0..self.cores.all.len())
            .filter(|at| self.cores.is_untouched(*at))
            .filter(|at| {
                self.cores
                    .all
                    .get(*at)
                    .is_some_and(|core| core.node == node)
            })
            .collect();
        let mut free_cores: BTreeMap<usize, usize> = BTreeMap::new();
        for core in free.iter().filter_map(|at| self.cores.all.get(*at)) {
            let count = free_cores.entry(core.cache).or_default();
            *count = count.saturating_add(1);
        }
        free.sort_by_key(|at| {
            let core = self.cores.all.get(*at);
            let cache = core.map_or(0, |core| core.cache);
            (
                !core.is_some_and(|core| core.is_high),
                Reverse(core.map_or(0, |core| core.strength)),
                Some(*at) == first,
                Reverse(free_cores.get(&cache).copied().unwrap_or(0)),
                cache,
                *at,
            )
        });
        free
    }

    fn take_forwarding(&mut self, index: usize, node: Option<u32>, share: usize) {
        let mut left = share;
        for core in self.best_cores(node) {
            if left == 0 {
                break;
            }
            let threads = match self.request.forwarding.siblings {
                SiblingPolicy::Idle => 1,
                SiblingPolicy::Forward => left,
            };
            let cpus: Vec<CpuId> = self.cores.free(core).take(threads).collect();
            left = left.saturating_sub(cpus.len());
            for cpu in cpus {
                self.cores.give(cpu, index);
            }
            self.cores.close(core);
        }
    }

    fn explain_forwarding(&mut self, index: usize, is_tied: bool, is_default: bool) {
        let cpus = self.cores.of(index);
        let nodes = self.cores.nodes_of(&cpus);
        let nics = join(
            self.requested_nics()
                .iter()
                .map(|nic| nic.pci_address.clone()),
        );
        let reason = if self.request.forwarding.node.is_some() {
            "as requested".to_owned()
        } else if is_tied {
            format!("the node of the network cards {nics}, so packets stay on their node")
        } else {
            "the node with the most free cores, because no network card requires another".to_owned()
        };
        let count = if is_default {
            " (default: one for each network card)"
        } else {
            ""
        };
        let text = if nodes.iter().all(Option::is_none) {
            format!("CPUs {cpus}{count}: the nodes are unknown and not considered")
        } else {
            format!("CPUs {cpus}{count} of node {}, {reason}", in_words(&nodes))
        };
        self.reason("forwarding", text);
        let high: CpuList = cpus.intersection(&self.machine.high_priority());
        if !high.is_empty() {
            let rest = cpus.difference(&high);
            let rest = if rest.is_empty() {
                String::new()
            } else {
                format!("; there are no more such cores for CPUs {rest}")
            };
            self.reason("forwarding", format!("CPUs {high} are high-priority cores (SST-BF), which run faster than the others{rest}"));
        }
    }

    /// Places control or service threads. They may share cores with the host, but not with isolated CPUs.
    fn place_helper(&mut self, index: usize, member: &Member) {
        let count = requested_count(member);
        let near = self.cores.nearest(&self.forwarding_nodes());
        let mut cores: Vec<(bool, usize, bool, usize)> = Vec::new();
        for (at, core) in self.cores.all.iter().enumerate() {
            let rank = near
                .iter()
                .position(|node| *node == core.node)
                .unwrap_or(usize::MAX);
            cores.push((core.is_high, rank, self.cores.is_untouched(at), at));
        }
        cores.sort_unstable();
        let free = cores.iter().flat_map(|(.., at)| self.cores.free(*at));
        let cpus: Vec<CpuId> = free.take(count).collect();
        self.settle(
            index,
            count,
            &cpus,
            "are free outside the forwarding cores",
            "near the forwarding CPUs, on cores that only the host may share",
        );
    }

    fn place_guest(&mut self, index: usize, member: &Member) {
        let count = requested_count(member);
        let near = self.cores.nearest(&self.forwarding_nodes());
        let free_cores = |node: &Option<u32>| -> usize {
            let cores = self.cores.all.iter().enumerate();
            let untouched =
                cores.filter(|(at, core)| core.node == *node && self.cores.is_untouched(*at));
            untouched.map(|(_, core)| core.cpus.len()).sum()
        };
        let requested = member
            .node
            .filter(|node| self.cores.nodes.contains(&Some(*node)));
        let whole = near.iter().copied().find(|node| free_cores(node) >= count);
        let (nodes, reason) = match (requested, whole) {
            (Some(node), _) => (vec![Some(node)], format!("on node {node}, as requested")),
            (None, Some(None)) => (
                vec![None],
                "the nodes are unknown and not considered".to_owned(),
            ),
            (None, Some(Some(node))) => (
                vec![Some(node)],
                format!(
                    "on node {node}, the node nearest to the forwarding CPUs with enough free cores"
                ),
            ),
            (None, None) => (
                near,
                "on several nodes, because no node has enough free cores".to_owned(),
            ),
        };
        let quiet = self.caches_of_forwarding();
        let mut left = count;
        let mut cpus = Vec::new();
        for node in nodes {
            for core in self.guest_cores(node, &quiet) {
                if left == 0 {
                    break;
                }
                let taken: Vec<CpuId> = self.cores.free(core).take(left).collect();
                left = left.saturating_sub(taken.len());
                cpus.extend(taken);
                self.cores.close(core);
            }
        }
        self.settle(
            index,
            count,
            &cpus,
            "are free on whole cores there",
            &reason,
        );
    }

    /// Returns the free cores of a node. Those that share a cache with forwarding, and high-priority cores, come last.
    fn guest_cores(&self, node: Option<u32>, quiet: &[usize]) -> Vec<usize> {
        let mut cores = self.best_cores(node);
        // The sort is stable, so the order within each kind stays.
        cores.sort_by_key(|at| {
            self.cores
                .all
                .get(*at)
                .map(|core| (core.is_high, quiet.contains(&core.cache)))
        });
        cores
    }

    fn place_neighbour(&mut self, index: usize, member: &Member) {
        let count = requested_count(member);
        let forwarding = self.forwarding_nodes();
        let requested = member
            .node
            .filter(|node| self.cores.nodes.contains(&Some(*node)));
        let quiet = self.caches_of_forwarding();
        let mut cores: Vec<(bool, bool, bool, bool, usize)> = Vec::new();
        for (at, core) in self.cores.all.iter().enumerate() {
            if requested.is_none_or(|node| Some(node) == core.node) {
                cores.push((
                    quiet.contains(&core.cache),
                    forwarding.contains(&core.node),
                    core.is_high,
                    !self.cores.is_untouched(at),
                    at,
                ));
            }
        }
        cores.sort_unstable();
        let free = cores.iter().flat_map(|(.., at)| self.cores.free(*at));
        let cpus: Vec<CpuId> = free.take(count).collect();
        self.settle(
            index,
            count,
            &cpus,
            "are free there",
            "as far from the forwarding CPUs as free CPUs allow: another cache, another node",
        );
    }

    /// Assigns the chosen CPUs and explains the choice, or records a conflict if there are too few.
    fn settle(&mut self, index: usize, count: usize, cpus: &[CpuId], lack: &str, reason: &str) {
        for cpu in cpus {
            self.cores.give(*cpu, index);
        }
        if cpus.len() < count || count == 0 {
            self.report_shortage(index, count, cpus.len(), lack);
        } else {
            let name = self.name(index);
            self.reason(&name, format!("CPUs {}: {reason}", listed(cpus)));
        }
    }

    fn report_shortage(&mut self, index: usize, requested: usize, found: usize, lack: &str) {
        let name = self.name(index);
        let (text, suggestion) = if requested == 0 {
            ("0 CPUs are requested".to_owned(), "left out".to_owned())
        } else if found == 0 {
            (
                format!("{requested} CPUs are requested, but none {lack}"),
                "left out".to_owned(),
            )
        } else {
            (
                format!("{requested} CPUs are requested, but only {found} {lack}"),
                format!("{found} CPUs"),
            )
        };
        self.conflict(&name, text, suggestion);
        if found > 0 {
            self.suggest_request(
                index,
                Some(CpuRequest::Count(u32::try_from(found).unwrap_or(u32::MAX))),
            );
        } else {
            self.leave_out(index);
        }
    }

    fn leave_out(&mut self, index: usize) {
        let Some(member) = self.members.get(index).cloned() else {
            return;
        };
        match member.section {
            RequestSection::Control => self.nearest.control = None,
            RequestSection::Service => self.nearest.service = None,
            // Guests are removed by name, because indices shift when an earlier guest is removed.
            RequestSection::Guest(_) => self
                .nearest
                .guests
                .retain(|guest| guest.name != member.name),
            RequestSection::Neighbour(_) => self
                .nearest
                .neighbours
                .retain(|neighbour| neighbour.name != member.name),
            _ => {}
        }
    }

    /// Assigns the remaining CPUs: the other threads of isolated cores stay idle, all others go to the host.
    fn give_rest(&mut self) {
        let (host, idle) = (
            self.index(RequestSection::Host),
            self.index(RequestSection::Idle),
        );
        for cpu in self.cores.without_owner() {
            let group = if self.cores.is_closed(cpu) {
                idle
            } else {
                host
            };
            self.cores.give(cpu, group);
        }
        let (hosts, idles) = (self.cores.of(host), self.cores.of(idle));
        self.reason(
            "host",
            format!("CPUs {hosts}: the boot core and all CPUs without another role"),
        );
        if !idles.is_empty() {
            self.reason("idle", format!("CPUs {idles}: the other threads of forwarding and guest cores, where any work would slow these cores"));
        }
    }

    fn forwarding_nodes(&self) -> Vec<Option<u32>> {
        self.cores
            .nodes_of(&self.cores.of(self.index(RequestSection::Forwarding)))
    }

    /// Returns the caches of the forwarding CPUs.
    fn caches_of_forwarding(&self) -> Vec<usize> {
        let cpus = self.cores.of(self.index(RequestSection::Forwarding));
        let cores = cpus.iter().filter_map(|cpu| self.cores.core_of(cpu));
        let caches = cores.filter_map(|core| Some(self.cores.all.get(core)?.cache));
        caches.collect()
    }
}

/// Returns the number of CPUs that a group requests. Default: 1.
fn requested_count(member: &Member) -> usize {
    match member.cpus {
        Some(CpuRequest::Count(count)) => count as usize,
        _ => 1,
    }
}

/// Splits a number of CPUs among nodes: first one for each node, then round-robin over `weights` (the node of each network
/// card) as long as there are free CPUs. Without weights, one node is filled after the other.
fn split(
    count: usize,
    nodes: &[Option<u32>],
    weights: &[Option<u32>],
    free_cores: &BTreeMap<Option<u32>, usize>,
) -> Vec<(Option<u32>, usize)> {
    let mut shares: Vec<(Option<u32>, usize)> = nodes.iter().map(|node| (*node, 0)).collect();
    let turn: Vec<Option<u32>> = if weights.is_empty() {
        Vec::new()
    } else {
        nodes.to_vec()
    };
    let mut order = turn.into_iter().chain(weights.iter().copied().cycle());
    let mut left = count;
    let add = |shares: &mut Vec<(Option<u32>, usize)>, node: Option<u32>| {
        let most = free_cores.get(&node).copied().unwrap_or(0);
        let share = shares
            .iter_mut()
            .find(|(known, share)| *known == node && *share < most);
        share
            .map(|(_, share)| *share = share.saturating_add(1))
            .is_some()
    };
    // Every full round assigns at least one CPU while any is free; `count` never exceeds the free CPUs.
    let turns = nodes
        .len()
        .saturating_add(weights.len().saturating_mul(count.saturating_add(1)));
    for _ in 0..turns {
        let Some(node) = order.next().filter(|_| left > 0) else {
            break;
        };
        left = left.saturating_sub(usize::from(add(&mut shares, node)));
    }
    for node in nodes {
        while left > 0 && add(&mut shares, *node) {
            left = left.saturating_sub(1);
        }
    }
    shares
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}
