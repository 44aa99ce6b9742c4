// SPDX-License-Identifier: Apache-2.0
//! Where CPUs, caches, memory and huge pages are, of `/sys/devices/system` and `/sys/kernel/mm`
//! (Documentation/ABI/stable/sysfs-devices-system-cpu and sysfs-devices-node, admin-guide/mm/hugetlbpage.rst).

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{CpuId, CpuList};

/// Where one CPU is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlace {
    /// Its number.
    pub cpu: CpuId,
    /// Its package (socket). A CPU that is offline has none of these.
    pub package: Option<i32>,
    /// Its core, counted within the package.
    pub core: Option<i32>,
    /// CPUs that are threads of the same core, itself one of them.
    pub siblings: Option<CpuList>,
}

/// One cache.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Cache {
    /// 1 for the cache nearest to the core.
    pub level: u8,
    /// `Data`, `Instruction` or `Unified`.
    pub kind: String,
    /// Its size, KiB; none where the kernel does not tell.
    pub size_kib: Option<u64>,
    /// CPUs that share it, as a list.
    pub cpus: String,
}

/// One NUMA node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumaNode {
    /// Its number.
    pub node: u32,
    /// Its CPUs.
    pub cpus: Option<CpuList>,
    /// Its memory, MiB.
    pub memory_mib: Option<u64>,
    /// Its pools of huge pages.
    pub huge_pages: Vec<HugePagePool>,
}

/// Huge pages of one size.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct HugePagePool {
    /// Size of a page, KiB.
    pub page_kib: u64,
    /// Pages in the pool.
    pub total: u64,
    /// Pages of them that nobody uses.
    pub free: u64,
}

fn text(path: &Path) -> Option<String> {
    Some(fs::read_to_string(path).ok()?.trim().to_owned())
}

/// Entries `PREFIXnumber` of a directory, by number.
fn numbered(directory: &Path, prefix: &str) -> Vec<u32> {
    let mut numbers: Vec<u32> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix(prefix)?.parse().ok()
        })
        .collect();
    numbers.sort_unstable();
    numbers
}

/// Every CPU that the machine lists.
pub(super) fn cpus(root: &Path) -> Vec<CpuPlace> {
    let directory = root.join("sys/devices/system/cpu");
    let place = |number: u32| {
        let topology = directory.join(format!("cpu{number}/topology"));
        // -1 is the kernel's word for not known.
        let id = |file: &str| {
            let id: i32 = text(&topology.join(file))?.parse().ok()?;
            (id >= 0).then_some(id)
        };
        CpuPlace {
            cpu: CpuId(number),
            package: id("physical_package_id"),
            core: id("core_id"),
            siblings: text(&topology.join("thread_siblings_list"))
                .and_then(|list| list.parse().ok()),
        }
    };
    numbered(&directory, "cpu").into_iter().map(place).collect()
}

/// Packages, and cores in all of them; none when a CPU's place is not known, other than of those offline.
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

/// Every cache once, nearest first.
pub(super) fn caches(root: &Path) -> Vec<Cache> {
    let directory = root.join("sys/devices/system/cpu");
    let mut caches = BTreeSet::new();
    for cpu in numbered(&directory, "cpu") {
        let of_cpu = directory.join(format!("cpu{cpu}/cache"));
        for index in numbered(&of_cpu, "index") {
            caches.extend(cache(&of_cpu.join(format!("index{index}"))));
        }
    }
    caches.into_iter().collect()
}

fn cache(directory: &Path) -> Option<Cache> {
    Some(Cache {
        level: text(&directory.join("level"))?.parse().ok()?,
        kind: text(&directory.join("type"))?,
        size_kib: text(&directory.join("size"))
            .and_then(|size| size.strip_suffix('K')?.parse().ok()),
        cpus: text(&directory.join("shared_cpu_list"))?,
    })
}

/// Every NUMA node.
pub(super) fn nodes(root: &Path) -> Vec<NumaNode> {
    let directory = root.join("sys/devices/system/node");
    let node = |number: u32| {
        let node = directory.join(format!("node{number}"));
        NumaNode {
            node: number,
            cpus: text(&node.join("cpulist")).and_then(|list| list.parse().ok()),
            memory_mib: text(&node.join("meminfo"))
                .and_then(|meminfo| memory_mib(&meminfo, &format!("Node {number} MemTotal:"))),
            huge_pages: huge_pages(&node.join("hugepages")),
        }
    };
    numbered(&directory, "node").into_iter().map(node).collect()
}

/// Pools of huge pages below a directory of the kernel's, the smallest pages first.
pub(super) fn huge_pages(directory: &Path) -> Vec<HugePagePool> {
    let mut pools: Vec<HugePagePool> = fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path.file_name()?.to_str()?;
            let page_kib = name.strip_prefix("hugepages-")?.strip_suffix("kB")?;
            Some(HugePagePool {
                page_kib: page_kib.parse().ok()?,
                total: text(&path.join("nr_hugepages"))?.parse().ok()?,
                free: text(&path.join("free_hugepages"))?.parse().ok()?,
            })
        })
        .collect();
    pools.sort_unstable();
    pools
}

/// A line of a `meminfo`, which is in kB of 1024 octets.
pub(super) fn memory_mib(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, path: &str, text: &str) {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Two packages of one core with two threads each; CPU 3 is offline.
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
        let root = directory.path();
        let seen = cpus(root);
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[2].siblings, Some("0,2".parse().unwrap()));
        let offline = CpuPlace {
            cpu: CpuId(3),
            package: None,
            core: None,
            siblings: None,
        };
        assert_eq!(seen[3], offline);
        assert_eq!(counts(&seen), Some((2, 2)));
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
    fn what_the_kernel_does_not_know_is_not_counted() {
        let directory = machine();
        let file = "sys/devices/system/cpu/cpu1/topology/physical_package_id";
        write(directory.path(), file, "-1\n");
        assert_eq!(counts(&cpus(directory.path())), None);
        let nothing = tempfile::tempdir().unwrap();
        assert_eq!(counts(&cpus(nothing.path())), None);
        assert!(caches(nothing.path()).is_empty() && nodes(nothing.path()).is_empty());
    }
}
