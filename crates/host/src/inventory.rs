// SPDX-License-Identifier: Apache-2.0
//! Hardware inventory: processors, memory, network cards, kernel. A value that cannot be read is `None`, never a guess.

mod frequency;
mod irq;
mod nic;
mod rdt;
mod topology;

use std::path::Path;

use quietwire_base::proc::cpuinfo_field;
use serde::{Deserialize, Serialize};

use crate::cpuset::{Cpusets, Version};
use crate::proc;
use crate::tree::Tree;
use crate::{CpuId, CpuList};

pub use frequency::{Frequency, IdleState};
pub use irq::Irq;
pub use nic::{GroupDevice, Nic, NicLink};
pub use rdt::{BandwidthAllocation, CacheAllocation, Monitoring, RESCTRL, Rdt};
pub use topology::{Cache, CoreKind, CpuPlace, HugePagePool, NumaNode};

/// Inventory of a machine, as reported by its kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Name of the processor (`model name` of `/proc/cpuinfo`).
    pub cpu_model: Option<String>,
    /// Vendor of the processor (`vendor_id`).
    pub cpu_vendor: Option<String>,
    /// Online CPUs.
    pub cpus_online: Option<CpuList>,
    /// Present CPUs.
    pub cpus_present: Option<CpuList>,
    /// Present CPUs that are offline.
    pub cpus_offline: Option<CpuList>,
    /// CPUs that the scheduler does not balance (isolcpus).
    pub cpus_isolated: Option<CpuList>,
    /// Whether SMT is active (`smt/active`).
    pub smt_active: Option<bool>,
    /// Number of packages (sockets).
    pub packages: Option<usize>,
    /// Number of cores, in all packages.
    pub cores: Option<usize>,
    /// Place of each CPU in the topology.
    #[serde(default)]
    pub cpus: Vec<CpuPlace>,
    /// All caches, each once, those nearest to the cores first.
    #[serde(default)]
    pub caches: Vec<Cache>,
    /// Size of the last level cache of CPU 0, as the kernel writes it (`32768K`).
    pub last_level_cache: Option<String>,
    /// Online NUMA nodes.
    pub numa_nodes: Option<CpuList>,
    /// Details of each NUMA node.
    #[serde(default)]
    pub nodes: Vec<NumaNode>,
    /// Frequency governor of CPU 0.
    pub governor: Option<String>,
    /// Memory, MiB.
    pub memory_mib: Option<u64>,
    /// Number of 2 MiB pages in the pool, and number of free ones.
    pub huge_pages_2mib: Option<(u64, u64)>,
    /// All pools of huge pages, by size.
    #[serde(default)]
    pub huge_pages: Vec<HugePagePool>,
    /// Kernel release.
    pub kernel_release: Option<String>,
    /// Kernel command line.
    pub kernel_command_line: Option<String>,
    /// Whether the machine is virtual (CPU flag `hypervisor`).
    pub is_virtual: Option<bool>,
    /// Product name (DMI).
    pub product: Option<String>,
    /// Active clock source.
    pub clock_source: Option<String>,
    /// Mount point of the CPU sets, with the version of control groups.
    pub cpusets: Option<String>,
    /// Version of control groups that has the cpuset controller: 1 or 2.
    #[serde(default)]
    pub cgroup_version: Option<u8>,
    /// CPUs without a tick (`nohz_full`).
    #[serde(default)]
    pub cpus_nohz_full: Option<CpuList>,
    /// PCI network cards.
    #[serde(default)]
    pub nics: Vec<Nic>,
    /// Allocation and monitoring of caches and memory bandwidth.
    #[serde(default)]
    pub rdt: Rdt,
    /// Interrupts.
    #[serde(default)]
    pub irqs: Vec<Irq>,
    /// Vendor of the hypervisor or the machine (DMI `sys_vendor`: `QEMU`, `Dell Inc.`).
    #[serde(default)]
    pub system_vendor: Option<String>,
    /// Run time of real-time threads per second, microseconds; -1 for no limit.
    pub realtime_runtime_us: Option<i64>,
}

impl Inventory {
    /// Reads the inventory of the machine whose `/proc` and `/sys` are below `root`.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        Self::read_tree(&Tree::new(root))
    }

    /// Reads the inventory like [`Self::read`], from a tree that may record what is read.
    pub(crate) fn read_tree(tree: &Tree) -> Self {
        let list = |path: &str| tree.value::<CpuList>(path);
        let cpuinfo = tree.text("proc/cpuinfo").unwrap_or_default();
        let cpu_field = |key: &str| cpuinfo_field(&cpuinfo, key).map(str::to_owned);
        let flags = cpu_field("flags");
        let pages = "sys/kernel/mm/hugepages/hugepages-2048kB";
        let cpus = topology::cpus(tree);
        let counts = topology::counts(&cpus);
        let caches = topology::caches(tree);
        keep_mounts(tree);
        let cpusets = Cpusets::find(tree.root()).ok();
        Self {
            cpu_model: cpu_field("model name"),
            cpu_vendor: cpu_field("vendor_id").or_else(|| cpu_field("CPU implementer")),
            cpus_online: list("sys/devices/system/cpu/online"),
            cpus_present: list("sys/devices/system/cpu/present"),
            cpus_offline: list("sys/devices/system/cpu/offline"),
            packages: counts.map(|(packages, _)| packages),
            cores: counts.map(|(_, cores)| cores),
            cpus_isolated: list("sys/devices/system/cpu/isolated"),
            cpus_nohz_full: list("sys/devices/system/cpu/nohz_full"),
            smt_active: tree
                .value::<u64>("sys/devices/system/cpu/smt/active")
                .map(|active| active == 1),
            last_level_cache: last_level_cache(&caches),
            cpus,
            caches,
            numa_nodes: list("sys/devices/system/node/online"),
            nodes: topology::nodes(tree),
            governor: tree.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_mib: tree
                .text("proc/meminfo")
                .and_then(|meminfo| proc::memory_mib(&meminfo, "MemTotal")),
            huge_pages_2mib: tree
                .value(&format!("{pages}/nr_hugepages"))
                .zip(tree.value(&format!("{pages}/free_hugepages"))),
            huge_pages: topology::huge_pages(tree, "sys/kernel/mm/hugepages"),
            kernel_release: tree.text("proc/sys/kernel/osrelease"),
            kernel_command_line: tree.text("proc/cmdline"),
            is_virtual: flags
                .as_deref()
                .map(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            product: tree
                .text("sys/class/dmi/id/product_name")
                .filter(|name| !name.is_empty()),
            system_vendor: tree
                .text("sys/class/dmi/id/sys_vendor")
                .filter(|name| !name.is_empty()),
            clock_source: tree
                .text("sys/devices/system/clocksource/clocksource0/current_clocksource"),
            cgroup_version: cpusets.as_ref().map(|sets| version_number(sets.version)),
            cpusets: cpusets.map(|sets| {
                let version = version_number(sets.version);
                format!("version {version}, {}", sets.mount.display())
            }),
            nics: nic::nics(tree),
            rdt: rdt::rdt(tree, flags.as_deref().unwrap_or_default()),
            irqs: irq::irqs(tree),
            realtime_runtime_us: tree.value("proc/sys/kernel/sched_rt_runtime_us"),
        }
    }

    /// Returns the vendor of the processor.
    #[must_use]
    pub fn vendor(&self) -> Vendor {
        match self.cpu_vendor.as_deref() {
            Some("GenuineIntel") => Vendor::Intel,
            Some("AuthenticAMD" | "HygonGenuine") => Vendor::Amd,
            // The implementer of Arm processors is a number: 0x41 is Arm itself, others are licensees.
            Some(implementer) if implementer.starts_with("0x") => Vendor::Arm,
            _ => Vendor::Other,
        }
    }

    /// Returns the processor's nominal frequency, kHz, from its name: the text after `@`, such as `2.30GHz`. Intel processors
    /// have it, independent of the base frequencies of SST-BF. `None` if the name has no frequency.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number out of range becomes the nearest, and 0 is refused"
    )]
    pub fn nominal_khz(&self) -> Option<u64> {
        let (_, stated) = self.cpu_model.as_deref()?.rsplit_once('@')?;
        let (number, khz) = [("GHz", 1e6), ("MHz", 1e3)]
            .into_iter()
            .find_map(|(unit, khz)| Some((stated.trim().strip_suffix(unit)?, khz)))?;
        let value: f64 = number.trim().parse().ok()?;
        // The cast saturates, and NaN becomes 0.
        Some((value * khz).round() as u64).filter(|khz| *khz > 0)
    }

    /// Returns the place of a CPU.
    #[must_use]
    pub fn cpu(&self, cpu: CpuId) -> Option<&CpuPlace> {
        // CPUs are sorted by number, mostly without gaps.
        let guess = self
            .cpus
            .get(cpu.0 as usize)
            .filter(|place| place.cpu == cpu);
        guess.or_else(|| self.cpus.iter().find(|place| place.cpu == cpu))
    }

    /// Returns the high-priority CPUs of SST-BF: their base frequency (or, without one, the guaranteed performance of CPPC)
    /// exceeds the lowest of their kind of core. Empty if all CPUs of each kind are equal.
    #[must_use]
    pub fn high_priority(&self) -> CpuList {
        let value = |place: &CpuPlace| {
            let frequency = place.frequency.as_ref()?;
            frequency.base_khz.or(frequency.guaranteed_performance)
        };
        // Efficiency cores have a lower frequency, which does not make the other cores high-priority cores.
        let lowest = |kind: Option<CoreKind>| {
            let alike = self.cpus.iter().filter(|place| place.kind == kind);
            alike.filter_map(value).min()
        };
        let kinds = [
            None,
            Some(CoreKind::Performance),
            Some(CoreKind::Efficiency),
        ];
        let floors = kinds.map(|kind| (kind, lowest(kind)));
        let is_high = |place: &&CpuPlace| {
            let floor = floors.iter().find(|(kind, _)| *kind == place.kind);
            let floor = floor.and_then(|(_, floor)| *floor);
            value(place)
                .zip(floor)
                .is_some_and(|(value, floor)| value > floor)
        };
        self.cpus
            .iter()
            .filter(is_high)
            .map(|place| place.cpu)
            .collect()
    }
}

/// Processor vendors that require different treatment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Vendor {
    /// Intel.
    Intel,
    /// AMD, or Hygon.
    Amd,
    /// Any vendor of Arm processors.
    Arm,
    /// Another or unknown vendor.
    Other,
}

/// Reads the files that [`Cpusets`] reads on its own, so that a recording contains them.
fn keep_mounts(tree: &Tree) {
    let mounts = tree.text("proc/self/mounts").unwrap_or_default();
    for mount in proc::mounts(&mounts).filter(|mount| mount.kind == "cgroup2") {
        let mount = mount.point.trim_start_matches('/');
        let _ = tree.text(&format!("{mount}/cgroup.controllers"));
    }
}

fn version_number(version: Version) -> u8 {
    if version == Version::V1 { 1 } else { 2 }
}

/// Returns the size of CPU 0's last level cache.
fn last_level_cache(caches: &[Cache]) -> Option<String> {
    let of_first = |cache: &&Cache| cache.cpus.contains(CpuId(0));
    let last = caches
        .iter()
        .filter(of_first)
        .max_by_key(|cache| cache.level)?;
    Some(format!("{}K", last.size_kib?))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn absent_files_give_none_and_present_ones_are_read() {
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
        let observed = Inventory::read(root.path());
        assert_eq!(observed.cpu_vendor.as_deref(), Some("AuthenticAMD"));
        assert_eq!(observed.cpu_model.as_deref(), Some("A: B"));
        assert_eq!(observed.is_virtual, Some(true));
        assert_eq!(observed.memory_mib, Some(2));
        assert_eq!(observed.cpus_online.unwrap().len(), 4);
        assert!(observed.cpus_isolated.unwrap().is_empty());
        assert_eq!(observed.governor, None);
        assert_eq!((observed.packages, observed.last_level_cache), (None, None));
    }

    #[test]
    fn the_running_machine_survives_being_written_and_read() {
        let observed = Inventory::read(Path::new("/"));
        assert!(observed.cpus_online.is_some() && observed.kernel_release.is_some());
        let read: Inventory =
            serde_json::from_str(&serde_json::to_string(&observed).unwrap()).unwrap();
        assert_eq!(read, observed);
        let cpus: CpuList = observed.cpus.iter().map(|place| place.cpu).collect();
        assert!(observed.cpus_online.unwrap().difference(&cpus).is_empty());
    }

    #[test]
    fn inventories_of_earlier_releases_are_read() {
        let read: Inventory =
            serde_json::from_str(r#"{"cpu_model":"x","numa_nodes":"0"}"#).unwrap();
        assert_eq!(read.cpu_model.as_deref(), Some("x"));
        assert!(read.caches.is_empty());
    }
}
