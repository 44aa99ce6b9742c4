// SPDX-License-Identifier: Apache-2.0
//! Topology of CPUs, caches, memory and huge pages, from `/sys/devices/system` and `/sys/kernel/mm`
//! (Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-devices-node, admin-guide/mm/hugetlbpage.rst).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::frequency::{self, Frequency, IdleState};
use crate::proc::{cache_kib, memory_mib};
use crate::tree::Tree;
use crate::{CpuId, CpuList};

/// Directory of CPUs in sysfs.
const CPUS: &str = "sys/devices/system/cpu";
/// Directory of NUMA nodes in sysfs.
const NODES: &str = "sys/devices/system/node";

/// Place of one CPU in the topology.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlace {
    /// Its number.
    pub cpu: CpuId,
    /// Package (socket). An offline CPU has no package, core or siblings.
    pub package: Option<i32>,
    /// Core number within the package.
    pub core: Option<i32>,
    /// Threads of the same core, including this CPU.
    pub siblings: Option<CpuList>,
    /// Die within the package.
    #[serde(default)]
    pub die: Option<i32>,
    /// NUMA node.
    #[serde(default)]
    pub node: Option<u32>,
    /// Kind of core, if the processor has several kinds.
    #[serde(default)]
    pub kind: Option<CoreKind>,
    /// Capacity relative to 1024 for the strongest CPU, if the kernel reports it (Arm big.LITTLE).
    #[serde(default)]
    pub capacity: Option<u32>,
    /// Frequencies.
    #[serde(default)]
    pub frequency: Option<Frequency>,
    /// Idle states.
    #[serde(default)]
    pub idle_states: Vec<IdleState>,
}

/// Kinds of cores of a hybrid processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoreKind {
    /// Performance core.
    Performance,
    /// Efficiency core.
    Efficiency,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// Level. 1 is the cache nearest to the core.
    pub level: u8,
    /// Type: `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Size, KiB. `None` if the kernel does not report it.
    pub size_kib: Option<u64>,
    /// CPUs that share it.
    pub cpus: CpuList,
    /// Number of the cache within its level, as in resctrl.
    #[serde(default)]
    pub id: Option<u32>,
    /// Ways of associativity.
    #[serde(default)]
    pub ways: Option<u32>,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its CPUs.
    pub cpus: Option<CpuList>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// Pools of huge pages.
    pub huge_pages: Vec<HugePagePool>,
    /// Distances of all nodes, in their order. 10 is the node itself.
    #[serde(default)]
    pub distances: Vec<u32>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HugePagePool {
    /// Size of a page, KiB.
    pub page_kib: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Free pages in the pool.
    pub free: u64,
}

/// Returns all CPUs with a directory, and the CPUs of the list `present` that have none.
pub(super) fn cpus(tree: &Tree) -> Vec<CpuPlace> {
    let mut nodes = BTreeMap::new();
    for node in tree.numbered(NODES, "node") {
        let cpus = cpus_of_node(tree, node);
        nodes.extend(cpus.iter().flat_map(CpuList::iter).map(|cpu| (cpu, node)));
    }
    // Intel's hybrid processors have one event source for each kind of core.
    let efficient: CpuList = tree.value("sys/devices/cpu_atom/cpus").unwrap_or_default();
    let performing: CpuList = tree.value("sys/devices/cpu_core/cpus").unwrap_or_default();
    let place = |number: u32| {
        let at = |file: &str| format!("{CPUS}/cpu{number}/topology/{file}");
        // The kernel reports -1 for an unknown ID.
        let id = |file: &str| tree.value::<i32>(&at(file)).filter(|id| *id >= 0);
        let cpu = CpuId(number);
        CpuPlace {
            cpu,
            package: id("physical_package_id"),
            die: id("die_id"),
            core: id("core_id"),
            siblings: tree.value(&at("thread_siblings_list")),
            node: nodes.get(&cpu).copied(),
            kind: if efficient.contains(cpu) {
                Some(CoreKind::Efficiency)
            } else if performing.contains(cpu) {
                Some(CoreKind::Performance)
            } else {
                None
            },
            capacity: tree.value(&format!("{CPUS}/cpu{number}/cpu_capacity")),
            frequency: frequency::frequency(tree, number),
            idle_states: frequency::idle_states(tree, number),
        }
    };
    tree.numbered(CPUS, "cpu").into_iter().map(place).collect()
}

/// Returns the CPUs of a node from the list, or from the mask (`cpumap`) if the list is missing or unreadable: older and
/// reduced kernels have only the mask.
fn cpus_of_node(tree: &Tree, node: u32) -> Option<CpuList> {
    let list = tree.value(&format!("{NODES}/node{node}/cpulist"));
    list.or_else(|| {
        let mask = tree.text(&format!("{NODES}/node{node}/cpumap"))?;
        format!("0x{mask}").parse().ok()
    })
}

/// Returns the number of packages and the number of cores in all packages. `None` if the place of an online CPU is unknown.
pub(super) fn counts(cpus: &[CpuPlace]) -> Option<(usize, usize)> {
    let mut packages = BTreeSet::new();
    let mut cores = BTreeSet::new();
    for cpu in cpus {
        match (cpu.package, cpu.core) {
            (Some(package), Some(core)) => {
                packages.insert(package);
                cores.insert((package, core));
            }
            (None, None) if cpu.siblings.is_none() => {}
            _ => return None,
        }
    }
    (!cores.is_empty()).then_some((packages.len(), cores.len()))
}

/// Returns all caches, each once, the nearest first.
pub(super) fn caches(tree: &Tree) -> Vec<Cache> {
    let mut caches = Vec::new();
    for cpu in tree.numbered(CPUS, "cpu") {
        let of_cpu = format!("{CPUS}/cpu{cpu}/cache");
        for index in tree.numbered(&of_cpu, "index") {
            caches.extend(cache(tree, &format!("{of_cpu}/index{index}")));
        }
    }
    caches.sort_by_cached_key(|cache: &Cache| {
        let kind = (cache.level, cache.kind.clone(), cache.size_kib);
        (kind, cache.cpus.to_string(), cache.id, cache.ways)
    });
    caches.dedup();
    caches
}

fn cache(tree: &Tree, directory: &str) -> Option<Cache> {
    let at = |file: &str| format!("{directory}/{file}");
    Some(Cache {
        level: tree.value(&at("level"))?,
        kind: tree.text(&at("type"))?,
        size_kib: tree.text(&at("size")).and_then(|size| cache_kib(&size)),
        cpus: tree.value(&at("shared_cpu_list"))?,
        id: tree.value(&at("id")),
        // The kernel reports 0 for an unknown number.
        ways: tree
            .value(&at("ways_of_associativity"))
            .filter(|ways| *ways > 0),
    })
}

/// Returns all NUMA nodes.
pub(super) fn nodes(tree: &Tree) -> Vec<NumaNode> {
    let node = |number: u32| {
        let at = |file: &str| format!("{NODES}/node{number}/{file}");
        NumaNode {
            node: number,
            cpus: cpus_of_node(tree, number),
            memory_mib: tree
                .text(&at("meminfo"))
                .and_then(|meminfo| memory_mib(&meminfo, &format!("Node {number} MemTotal"))),
            huge_pages: huge_pages(tree, &at("hugepages")),
            distances: tree
                .text(&at("distance"))
                .iter()
                .flat_map(|distances| distances.split_whitespace())
                .filter_map(|distance| distance.parse().ok())
                .collect(),
        }
    };
    let numbers = tree.numbered(NODES, "node");
    numbers.into_iter().map(node).collect()
}

/// Returns the pools of huge pages below a directory of the kernel, the smallest page size first.
pub(super) fn huge_pages(tree: &Tree, directory: &str) -> Vec<HugePagePool> {
    let page_kib = |name: &str| {
        let size = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
        size.parse::<u64>().ok()
    };
    let names = tree.names(directory, |name| page_kib(name).is_some());
    let pool = |name: &String| {
        Some(HugePagePool {
            page_kib: page_kib(name)?,
            total: tree.value(&format!("{directory}/{name}/nr_hugepages"))?,
            free: tree.value(&format!("{directory}/{name}/free_hugepages"))?,
        })
    };
    let mut pools: Vec<HugePagePool> = names.iter().filter_map(pool).collect();
    pools.sort_unstable();
    pools
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Returns a machine with two packages of one core with two threads each. CPU 3 is offline.
    fn machine() -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for (cpu, package, siblings) in [(0, 0, "0,2"), (1, 1, "1"), (2, 0, "0,2")] {
            let at = format!("sys/devices/system/cpu/cpu{cpu}");
            write(root, &format!("{at}/topology/core_id"), "0\n");
            let package = format!("{package}\n");
            write(
                root,
                &format!("{at}/topology/physical_package_id"),
                &package,
            );
            write(
                root,
                &format!("{at}/topology/thread_siblings_list"),
                siblings,
            );
            for (index, level, kind, size) in [
                (0, 1, "Data", "32K"),
                (1, 1, "Instruction", "32K"),
                (2, 3, "Unified", "16384K"),
            ] {
                let at = format!("{at}/cache/index{index}");
                write(root, &format!("{at}/level"), &format!("{level}\n"));
                write(root, &format!("{at}/type"), kind);
                write(root, &format!("{at}/size"), size);
                write(root, &format!("{at}/shared_cpu_list"), siblings);
            }
        }
        write(root, "sys/devices/system/cpu/cpu3/online", "0\n");
        write(root, "sys/devices/system/cpu/cpufreq/x", "");
        write(root, "sys/devices/system/node/node1/cpulist", "1,3\n");
        let meminfo = "Node 1 MemTotal:  4096 kB\nNode 1 MemFree: 1 kB\n";
        write(root, "sys/devices/system/node/node1/meminfo", meminfo);
        let pages = "sys/devices/system/node/node1/hugepages";
        for (size, total, free) in [(1_048_576, 1, 0), (2048, 10, 7)] {
            let at = format!("{pages}/hugepages-{size}kB");
            write(root, &format!("{at}/nr_hugepages"), &format!("{total}\n"));
            write(root, &format!("{at}/free_hugepages"), &format!("{free}\n"));
        }
        directory
    }

    #[test]
    fn a_recorded_machine_is_read() {
        let directory = machine();
        let root = &Tree::new(directory.path());
        let observed = cpus(root);
        assert_eq!(observed.len(), 4);
        assert_eq!(observed[2].siblings, Some("0,2".parse().unwrap()));
        let offline = CpuPlace {
            cpu: CpuId(3),
            package: None,
            core: None,
            siblings: None,
            die: None,
            node: Some(1),
            kind: None,
            capacity: None,
            frequency: None,
            idle_states: Vec::new(),
        };
        assert_eq!(observed[3], offline);
        assert_eq!(counts(&observed), Some((2, 2)));
        let caches = caches(root);
        assert_eq!(caches.len(), 6, "{caches:?}");
        assert_eq!(caches[5].size_kib, Some(16_384));
        let nodes = nodes(root);
        assert_eq!((nodes[0].node, nodes[0].memory_mib), (1, Some(4)));
        let pages: Vec<(u64, u64, u64)> = nodes[0]
            .huge_pages
            .iter()
            .map(|pool| (pool.page_kib, pool.total, pool.free))
            .collect();
        assert_eq!(pages, [(2048, 10, 7), (1_048_576, 1, 0)]);
    }

    #[test]
    fn a_node_s_mask_is_read_if_its_list_is_missing() {
        let directory = machine();
        let root = directory.path();
        let node = "sys/devices/system/node/node1";
        fs::remove_file(root.join(node).join("cpulist")).unwrap();
        let tree = Tree::new(root);
        assert_eq!(nodes(&tree)[0].cpus, None);
        assert!(cpus(&tree).iter().all(|place| place.node.is_none()));
        write(root, &format!("{node}/cpumap"), "00000000,0000000a\n");
        assert_eq!(nodes(&tree)[0].cpus, Some("1,3".parse().unwrap()));
        let of_cpus: Vec<Option<u32>> = cpus(&tree).iter().map(|place| place.node).collect();
        assert_eq!(of_cpus, [None, Some(1), None, Some(1)]);
    }

    #[test]
    fn unknown_packages_and_caches_are_not_counted() {
        let directory = machine();
        let file = "sys/devices/system/cpu/cpu1/topology/physical_package_id";
        write(directory.path(), file, "-1\n");
        assert_eq!(counts(&cpus(&Tree::new(directory.path()))), None);
        let directory = tempfile::tempdir().unwrap();
        let nothing = Tree::new(directory.path());
        assert_eq!(counts(&cpus(&nothing)), None);
        assert!(caches(&nothing).is_empty() && nodes(&nothing).is_empty());
    }
}
