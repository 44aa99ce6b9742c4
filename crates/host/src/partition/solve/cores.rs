// SPDX-License-Identifier: Apache-2.0
//! Cores with their threads, and the owner of each CPU, as used for placement.

use std::collections::BTreeMap;

use crate::inventory::{CoreKind, Inventory};
use crate::{CpuId, CpuList};

/// One core and its online threads.
#[derive(Clone, Debug)]
pub(super) struct Core {
    /// Its threads.
    pub(super) cpus: Vec<CpuId>,
    /// Its NUMA node. `None` if it is unknown.
    pub(super) node: Option<u32>,
    /// Index of its last level cache.
    pub(super) cache: usize,
    /// Whether it is a high-priority core of SST-BF.
    pub(super) is_high: bool,
    /// Capacity of the core: efficiency cores and small cores have a lower one.
    pub(super) strength: u32,
}

/// All cores, and the owner of each CPU.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    /// Cores in order of their lowest CPUs.
    pub(super) all: Vec<Core>,
    /// Nodes in order. An unknown node comes first.
    pub(super) nodes: Vec<Option<u32>>,
    distances: BTreeMap<(u32, u32), u32>,
    core_of: BTreeMap<CpuId, usize>,
    owner: BTreeMap<CpuId, usize>,
    /// Whether a core is reserved for the one group that has threads of it.
    closed: Vec<bool>,
}

/// Capacity of a CPU for which the kernel reports none.
const FULL_STRENGTH: u32 = 1024;
/// Capacity of an efficiency core if the kernel reports none.
const EFFICIENCY_STRENGTH: u32 = 512;

impl Cores {
    /// Returns the cores of the online CPUs.
    pub(super) fn new(machine: &Inventory, online: &CpuList) -> Self {
        let high = machine.high_priority();
        let caches = cache_indices(machine);
        let mut all: Vec<Core> = Vec::new();
        let mut core_of = BTreeMap::new();
        for cpu in online.iter() {
            if core_of.contains_key(&cpu) {
                continue;
            }
            let place = machine.cpu(cpu);
            let siblings = place.and_then(|place| place.siblings.as_ref());
            let mut cpus: Vec<CpuId> = siblings
                .into_iter()
                .flat_map(CpuList::iter)
                .filter(|sibling| online.contains(*sibling) && !core_of.contains_key(sibling))
                .collect();
            if !cpus.contains(&cpu) {
                cpus = vec![cpu];
            }
            core_of.extend(cpus.iter().map(|cpu| (*cpu, all.len())));
            let kind = place.and_then(|place| place.kind);
            all.push(Core {
                node: place.and_then(|place| place.node),
                cache: caches.get(&cpu).copied().unwrap_or(0),
                is_high: cpus.iter().any(|cpu| high.contains(*cpu)),
                strength: place.and_then(|place| place.capacity).unwrap_or(
                    if kind == Some(CoreKind::Efficiency) {
                        EFFICIENCY_STRENGTH
                    } else {
                        FULL_STRENGTH
                    },
                ),
                cpus,
            });
        }
        let mut nodes: Vec<Option<u32>> = all.iter().map(|core| core.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        Self {
            closed: vec![false; all.len()],
            all,
            nodes,
            distances: distances(machine),
            core_of,
            owner: BTreeMap::new(),
        }
    }

    /// Returns the index of a CPU's core.
    pub(super) fn core_of(&self, cpu: CpuId) -> Option<usize> {
        self.core_of.get(&cpu).copied()
    }

    /// Returns the other threads of a CPU's core.
    pub(super) fn siblings(&self, cpu: CpuId) -> impl Iterator<Item = CpuId> + '_ {
        let core = self.core_of(cpu).and_then(|core| self.all.get(core));
        let cpus = core.into_iter().flat_map(|core| core.cpus.iter().copied());
        cpus.filter(move |sibling| *sibling != cpu)
    }

    /// Returns the node of a CPU, if known.
    pub(super) fn node_of(&self, cpu: CpuId) -> Option<u32> {
        self.all.get(self.core_of(cpu)?)?.node
    }

    /// Returns the group that owns a CPU.
    pub(super) fn owner(&self, cpu: CpuId) -> Option<usize> {
        self.owner.get(&cpu).copied()
    }

    /// Assigns a CPU to a group.
    pub(super) fn give(&mut self, cpu: CpuId, group: usize) {
        self.owner.insert(cpu, group);
    }

    /// Reserves the free threads of a core.
    pub(super) fn close(&mut self, core: usize) {
        if let Some(closed) = self.closed.get_mut(core) {
            *closed = true;
        }
    }

    /// Returns the unassigned threads of a core that is not reserved.
    pub(super) fn free(&self, core: usize) -> impl Iterator<Item = CpuId> + '_ {
        let is_closed = self.closed.get(core).copied().unwrap_or(true);
        let cpus = self.all.get(core).filter(|_| !is_closed);
        let cpus = cpus.into_iter().flat_map(|core| core.cpus.iter().copied());
        cpus.filter(|cpu| !self.owner.contains_key(cpu))
    }

    /// Returns whether no thread of a core is assigned.
    pub(super) fn is_untouched(&self, core: usize) -> bool {
        self.all
            .get(core)
            .is_some_and(|it| self.free(core).count() == it.cpus.len())
    }

    /// Returns all unassigned CPUs, including those on reserved cores.
    pub(super) fn without_owner(&self) -> Vec<CpuId> {
        let all = self.core_of.keys().copied();
        all.filter(|cpu| !self.owner.contains_key(cpu)).collect()
    }

    /// Returns whether a CPU is on a reserved core.
    pub(super) fn is_closed(&self, cpu: CpuId) -> bool {
        self.core_of(cpu)
            .and_then(|core| self.closed.get(core).copied())
            .unwrap_or(false)
    }

    /// Returns the CPUs of a group.
    pub(super) fn of(&self, group: usize) -> CpuList {
        let owned = self.owner.iter().filter(|(_, owner)| **owner == group);
        owned.map(|(cpu, _)| *cpu).collect()
    }

    /// Groups CPUs by core, in the order of each core's lowest CPU.
    pub(super) fn by_core(&self, cpus: &CpuList) -> Vec<CpuList> {
        let of_core = |core: &Core| -> CpuList {
            let threads = core.cpus.iter().copied();
            threads.filter(|cpu| cpus.contains(*cpu)).collect()
        };
        let cores = self.all.iter().map(of_core);
        cores.filter(|threads| !threads.is_empty()).collect()
    }

    /// Returns the CPUs with an unknown node.
    pub(super) fn without_node(&self) -> CpuList {
        let cores = self.all.iter().filter(|core| core.node.is_none());
        cores.flat_map(|core| core.cpus.iter().copied()).collect()
    }

    /// Returns the nodes of CPUs, in order.
    pub(super) fn nodes_of(&self, cpus: &CpuList) -> Vec<Option<u32>> {
        let mut nodes: Vec<Option<u32>> = cpus.iter().map(|cpu| self.node_of(cpu)).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns all nodes, those nearest to `from` first.
    pub(super) fn nearest(&self, from: &[Option<u32>]) -> Vec<Option<u32>> {
        /// A distance greater than any that the kernel reports.
        const FAR: u32 = 256;
        let distance = |node: Option<u32>| {
            let one = |from: &Option<u32>| {
                let known = from.zip(node);
                let known = known.and_then(|pair| self.distances.get(&pair).copied());
                known.unwrap_or(if *from == node { 0 } else { FAR })
            };
            from.iter().map(one).min().unwrap_or(0)
        };
        let mut nodes = self.nodes.clone();
        nodes.sort_by_key(|node| (distance(*node), *node));
        nodes
    }
}

/// Formats nodes for a message: `0, 1`, or `unknown` for an unknown node.
pub(super) fn in_words(nodes: &[Option<u32>]) -> String {
    let word = |node: &Option<u32>| node.map_or("unknown".to_owned(), |node| node.to_string());
    nodes.iter().map(word).collect::<Vec<_>>().join(", ")
}

fn distances(machine: &Inventory) -> BTreeMap<(u32, u32), u32> {
    let numbers: Vec<u32> = machine.nodes.iter().map(|node| node.node).collect();
    let rows = machine.nodes.iter().flat_map(|node| {
        let row = numbers.iter().zip(&node.distances);
        row.map(|(to, distance)| ((node.node, *to), *distance))
    });
    rows.collect()
}

/// Returns the index of each CPU's last level cache. If no caches are reported, all CPUs have the same index.
fn cache_indices(machine: &Inventory) -> BTreeMap<CpuId, usize> {
    let last = machine.caches.iter().map(|cache| cache.level).max();
    let caches = machine
        .caches
        .iter()
        .filter(|cache| Some(cache.level) == last);
    let mut indices = BTreeMap::new();
    for (index, cache) in caches.enumerate() {
        indices.extend(cache.cpus.iter().map(|cpu| (cpu, index)));
    }
    indices
}
