// SPDX-License-Identifier: Apache-2.0
//! What the machine is: processors, memory, kernel. What cannot be read is `None`, never a guess.

mod topology;

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::cpuset::{Cpusets, Version};
use crate::{CpuId, CpuList};

pub use topology::{Cache, CpuPlace, HugePagePool, NumaNode};

/// What a machine is, as far as its kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Name of the processor (`model name` of `/proc/cpuinfo`).
    pub cpu_model: Option<String>,
    /// Its maker (`vendor_id`).
    pub cpu_vendor: Option<String>,
    /// CPUs that are online.
    pub cpus_online: Option<CpuList>,
    /// CPUs that are there.
    pub cpus_present: Option<CpuList>,
    /// CPUs that are there and not running.
    pub cpus_offline: Option<CpuList>,
    /// CPUs that the scheduler leaves alone (isolcpus).
    pub cpus_isolated: Option<CpuList>,
    /// Whether cores run several threads at once (`smt/active`).
    pub smt_active: Option<bool>,
    /// Number of packages (sockets).
    pub packages: Option<usize>,
    /// Number of cores, in all packages.
    pub cores: Option<usize>,
    /// Where each CPU is.
    #[serde(default)]
    pub cpus: Vec<CpuPlace>,
    /// Every cache once, nearest to the cores first.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// Size of the last level cache of CPU 0, as the kernel writes it (`32768K`).
    pub last_level_cache: Option<String>,
    /// NUMA nodes that are online.
    pub numa_nodes: Option<CpuList>,
    /// Each of them.
    #[serde(default)]
    pub nodes: Vec<NumaNode>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// 2 MiB pages in the pool, and how many of them are free.
    pub huge_pages_2mib: Option<(u64, u64)>,
    /// All pools of huge pages, by size.
    #[serde(default)]
    pub huge_pages: Vec<HugePagePool>,
    /// Release of the kernel.
    pub kernel_release: Option<String>,
    /// Its command line.
    pub kernel_command_line: Option<String>,
    /// Whether a hypervisor is below (the flag `hypervisor`).
    pub is_virtual: Option<bool>,
    /// What the machine calls itself (DMI product name).
    pub product: Option<String>,
    /// Clock that the kernel uses.
    pub clock_source: Option<String>,
    /// Where CPU sets are, with the version of control groups.
    pub cpusets: Option<String>,
    /// Share of each second for real-time threads, microseconds; -1 for all.
    pub realtime_runtime_us: Option<i64>,
}

impl Inventory {
    /// Reads the machine whose `/proc` and `/sys` are below `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| {
            let text = fs::read_to_string(root.join(path)).ok()?;
            Some(text.trim_end_matches(['\n', '\0']).to_owned())
        };
        let list = |path: &str| text(path).and_then(|text| text.parse::<CpuList>().ok());
        let number = |path: &str| text(path).and_then(|text| text.parse::<u64>().ok());
        let cpuinfo = text("proc/cpuinfo").unwrap_or_default();
        let cpu_field = |key: &str| {
            cpuinfo.lines().find_map(|line| {
                let (name, value) = line.split_once(':')?;
                (name.trim() == key).then(|| value.trim().to_owned())
            })
        };
        let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let cpus = topology::cpus(root);
        let counts = topology::counts(&cpus);
        let caches = topology::caches(root);
        Self {
            cpu_model: cpu_field("model name"),
            cpu_vendor: cpu_field("vendor_id").or_else(|| cpu_field("CPU implementer")),
            cpus_online: list("sys/devices/system/cpu/online"),
            cpus_present: list("sys/devices/system/cpu/present"),
            cpus_offline: list("sys/devices/system/cpu/offline"),
            packages: counts.map(|(packages, _)| packages),
            cores: counts.map(|(_, cores)| cores),
            cpus_isolated: list("sys/devices/system/cpu/isolated"),
            smt_active: number("sys/devices/system/cpu/smt/active").map(|active| active == 1),
            last_level_cache: last_level_cache(&caches),
            cpus,
            caches,
            numa_nodes: list("sys/devices/system/node/online"),
            nodes: topology::nodes(root),
            governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_mib: text("proc/meminfo")
                .and_then(|meminfo| topology::memory_mib(&meminfo, "MemTotal:")),
            huge_pages_2mib: number(&format!("{pages}/nr_hugepages"))
                .zip(number(&format!("{pages}/free_hugepages"))),
            huge_pages: topology::huge_pages(&root.join("sys/kernel/mm/hugepages")),
            kernel_release: text("proc/sys/kernel/osrelease"),
            kernel_command_line: text("proc/cmdline"),
            is_virtual: cpu_field("flags")
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            product: text("sys/class/dmi/id/product_name").filter(|name| !name.is_empty()),
            clock_source: text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            cpusets: Cpusets::find(root).ok().map(|sets| {
                let version = if sets.version == Version::V1 { 1 } else { 2 };
                format!("version {version}, {}", sets.mount.display())
            }),
            realtime_runtime_us: text("proc/sys/kernel/sched_rt_runtime_us")
                .and_then(|text| text.parse().ok()),
        }
    }
}

/// Size of the cache of the highest level that CPU 0 has a share in.
fn last_level_cache(caches: &[Cache]) -> Option<String> {
    let of_first = |cache: &&Cache| {
        let cpus = cache.cpus.parse::<CpuList>();
        cpus.is_ok_and(|cpus| cpus.contains(CpuId(0)))
    };
    let last = caches
        .iter()
        .filter(of_first)
        .max_by_key(|cache| cache.level)?;
    Some(format!("{}K", last.size_kib?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_none_and_what_is_there_is_read() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Inventory::read(root.path()), Inventory::default());
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(
            "proc/cpuinfo",
            "vendor_id\t: AuthenticAMD\nmodel name\t: A: B\nflags\t\t: fpu hypervisor\n",
        );
        write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
        write("sys/devices/system/cpu/online", "0-3\n");
        write("sys/devices/system/cpu/isolated", "\n");
        let seen = Inventory::read(root.path());
        assert_eq!(seen.cpu_vendor.as_deref(), Some("AuthenticAMD"));
        assert_eq!(seen.cpu_model.as_deref(), Some("A: B"));
        assert_eq!(seen.is_virtual, Some(true));
        assert_eq!(seen.memory_mib, Some(2));
        assert_eq!(seen.cpus_online.unwrap().len(), 4);
        assert!(seen.cpus_isolated.unwrap().is_empty());
        assert_eq!(seen.governor, None);
        assert_eq!((seen.packages, seen.last_level_cache), (None, None));
    }

    #[test]
    fn the_running_machine_survives_being_written_and_read() {
        let seen = Inventory::read(Path::new("/"));
        assert!(seen.cpus_online.is_some() && seen.kernel_release.is_some());
        let read: Inventory = serde_json::from_str(&serde_json::to_string(&seen).unwrap()).unwrap();
        assert_eq!(read, seen);
        let cpus: CpuList = seen.cpus.iter().map(|place| place.cpu).collect();
        assert!(seen.cpus_online.unwrap().difference(&cpus).is_empty());
    }

    #[test]
    fn what_an_earlier_release_stored_is_still_read() {
        let read: Inventory =
            serde_json::from_str(r#"{"cpu_model":"x","numa_nodes":"0"}"#).unwrap();
        assert_eq!(read.cpu_model.as_deref(), Some("x"));
        assert!(read.caches.is_empty());
    }
}
