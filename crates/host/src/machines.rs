// SPDX-License-Identifier: Apache-2.0
//! Fake machines: trees of `/proc` and `/sys` files, generated from a short description.
//!
//! Tests and benchmarks use them in place of hardware. A [`Machine`] describes the number of packages, NUMA nodes, cores and
//! threads, and the numbering of CPUs. [`Machine::write`] creates the files that a kernel would show, in the kernel's formats.
//! The descriptions in [`all`] model kinds of machines, not specific ones.

mod node_cpus;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

use crate::inventory::{Inventory, Vendor};
use crate::tree::{Entry, Tree};
use crate::{CpuId, CpuList};

pub use node_cpus::NodeCpus;

/// Numbering of CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Numbering {
    /// All first threads, package by package, then all second threads (most servers).
    ThreadsLast,
    /// The threads of each core in sequence (laptops, POWER-like firmware, many virtual machines).
    ThreadsTogether,
}

/// SST-BF: some cores of each package have a higher base frequency than the others.
#[derive(Clone, Debug)]
pub struct Priority {
    /// High-priority cores, by their number in the package.
    pub cores: Vec<u32>,
    /// Their base frequency, kHz.
    pub high_khz: u64,
    /// Base frequency of the other cores, kHz.
    pub low_khz: u64,
}

/// Features of resctrl.
#[derive(Clone, Debug)]
pub struct Resctrl {
    /// Ways of the last level cache.
    pub ways: u32,
    /// Number of classes.
    pub classes: u32,
    /// Minimum number of ways of a class.
    pub ways_min: u32,
    /// Ways that devices write into.
    pub shared_with_devices: u64,
    /// Whether code and data have separate masks.
    pub code_and_data: bool,
    /// Value for no bandwidth limit, and the step. `None` without bandwidth limits.
    pub bandwidth: Option<(u32, u32)>,
}

/// A network card.
#[derive(Clone, Debug)]
pub struct Controller {
    /// Its address.
    pub address: &'static str,
    /// Its node; -1 if the firmware does not report it.
    pub node: i32,
    /// Its driver.
    pub driver: &'static str,
    /// Its interface.
    pub interface: Option<&'static str>,
    /// Maximum number of virtual functions; 0 without SR-IOV.
    pub functions_max: u32,
    /// Number of virtual functions.
    pub functions: u32,
}

/// A description of a machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Name of the kind of machine.
    pub name: &'static str,
    /// Vendor of the processor.
    pub vendor: Vendor,
    /// Number of packages.
    pub packages: u32,
    /// Number of NUMA nodes in each package (sub-NUMA clusters, NPS).
    pub nodes_per_package: u32,
    /// Number of cores in each package.
    pub cores: u32,
    /// Number of threads of a core.
    pub threads: u32,
    /// Additional efficiency cores, with one thread each.
    pub efficiency_cores: u32,
    /// Number of last level caches in each package.
    pub caches: u32,
    /// Size of each, KiB.
    pub cache_kib: u32,
    /// Numbering of CPUs.
    pub numbering: Numbering,
    /// Offline CPUs.
    pub offline: CpuList,
    /// CPUs that the kernel command line isolates.
    pub isolated: CpuList,
    /// Format of the CPUs of nodes.
    pub node_cpus: NodeCpus,
    /// Memory of each node, MiB.
    pub node_memory_mib: u64,
    /// Sizes of huge pages, KiB.
    pub huge_pages_kib: Vec<u64>,
    /// Whether the machine is virtual: no frequencies, CPU flag `hypervisor`.
    pub is_virtual: bool,
    /// SST-BF.
    pub priority: Option<Priority>,
    /// resctrl.
    pub resctrl: Option<Resctrl>,
    /// Network cards.
    pub controllers: Vec<Controller>,
    /// Version of control groups.
    pub cgroup: u8,
}

impl Default for Machine {
    fn default() -> Self {
        Self {
            name: "plain",
            vendor: Vendor::Intel,
            packages: 1,
            nodes_per_package: 1,
            cores: 4,
            threads: 1,
            efficiency_cores: 0,
            caches: 1,
            cache_kib: 16 << 10,
            numbering: Numbering::ThreadsLast,
            offline: CpuList::new(),
            isolated: CpuList::new(),
            node_cpus: NodeCpus::List,
            node_memory_mib: 32 << 10,
            huge_pages_kib: vec![2048, 1 << 20],
            is_virtual: false,
            priority: None,
            resctrl: None,
            controllers: Vec::new(),
            cgroup: 2,
        }
    }
}

/// One thread of the machine.
struct Thread {
    cpu: u32,
    package: u32,
    node: u32,
    /// Number of its core in the package.
    core: u32,
    cache: u32,
    siblings: CpuList,
    is_efficient: bool,
}

impl Machine {
    /// Returns the number of CPUs, including those offline.
    #[must_use]
    pub fn cpus(&self) -> u32 {
        self.packages * (self.cores * self.threads + self.efficiency_cores)
    }

    fn cpu(&self, package: u32, core: u32, thread: u32) -> u32 {
        let strong = self.packages * self.cores;
        match self.numbering {
            _ if core >= self.cores => {
                strong * self.threads + package * self.efficiency_cores + core - self.cores
            }
            Numbering::ThreadsLast => thread * strong + package * self.cores + core,
            Numbering::ThreadsTogether => (package * self.cores + core) * self.threads + thread,
        }
    }

    fn threads(&self) -> Vec<Thread> {
        let cores = self.cores + self.efficiency_cores;
        let mut threads = Vec::new();
        for package in 0..self.packages {
            for core in 0..cores {
                let count = if core < self.cores { self.threads } else { 1 };
                let siblings: CpuList = (0..count)
                    .map(|thread| CpuId(self.cpu(package, core, thread)))
                    .filter(|cpu| !self.offline.contains(*cpu))
                    .collect();
                for thread in 0..count {
                    threads.push(Thread {
                        cpu: self.cpu(package, core, thread),
                        package,
                        node: package * self.nodes_per_package
                            + core * self.nodes_per_package / cores,
                        core,
                        cache: package * self.caches + core * self.caches / cores,
                        siblings: siblings.clone(),
                        is_efficient: core >= self.cores,
                    });
                }
            }
        }
        threads.sort_by_key(|thread| thread.cpu);
        threads
    }

    /// Creates the files below `root`.
    ///
    /// # Errors
    /// Error of the operating system.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        for (path, entry) in self.files() {
            let path = root.join(path);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            match entry {
                Entry::File(text) => fs::write(path, text)?,
                Entry::Link(target) => symlink(target, path)?,
                Entry::Directory => fs::create_dir_all(path)?,
            }
        }
        Ok(())
    }

    /// Returns the inventory without creating files. It lacks only data that requires a mount (CPU sets).
    #[must_use]
    pub fn inventory(&self) -> Inventory {
        Inventory::read_tree(&Tree::of_memory(self.files()))
    }

    fn files(&self) -> BTreeMap<String, Entry> {
        let files = Files::default();
        let threads = self.threads();
        self.write_lists(&files, &threads);
        for thread in &threads {
            if self.offline.contains(CpuId(thread.cpu)) {
                files.write(&format!("{CPU}/cpu{}/online", thread.cpu), "0");
            } else {
                self.write_cpu(&files, thread, &threads);
            }
        }
        self.write_nodes(&files, &threads);
        for controller in &self.controllers {
            write_controller(&files, controller, &self.local(controller.node, &threads));
        }
        if let Some(resctrl) = &self.resctrl {
            self.write_resctrl(&files, resctrl);
        }
        self.write_proc(&files, &threads);
        files.made.into_inner()
    }

    fn online(&self) -> CpuList {
        (0..self.cpus())
            .map(CpuId)
            .collect::<CpuList>()
            .difference(&self.offline)
    }

    fn local(&self, node: i32, threads: &[Thread]) -> CpuList {
        let near = threads
            .iter()
            .filter(|thread| node < 0 || i64::from(thread.node) == i64::from(node));
        near.map(|thread| CpuId(thread.cpu))
            .collect::<CpuList>()
            .difference(&self.offline)
    }

    fn write_lists(&self, files: &Files, threads: &[Thread]) {
        let all: CpuList = (0..self.cpus()).map(CpuId).collect();
        for (name, list) in [
            ("online", &self.online()),
            ("present", &all),
            ("possible", &all),
            ("offline", &self.offline),
            ("isolated", &self.isolated),
            ("nohz_full", &self.isolated),
        ] {
            files.write(&format!("{CPU}/{name}"), &list.to_string());
        }
        files.write(
            &format!("{CPU}/smt/active"),
            if self.threads > 1 { "1" } else { "0" },
        );
        if self.efficiency_cores > 0 {
            let of = |is_efficient: bool| -> CpuList {
                threads
                    .iter()
                    .filter(|thread| thread.is_efficient == is_efficient)
                    .map(|thread| CpuId(thread.cpu))
                    .collect()
            };
            files.write("sys/devices/cpu_core/cpus", &of(false).to_string());
            files.write("sys/devices/cpu_atom/cpus", &of(true).to_string());
        }
    }

    fn write_cpu(&self, files: &Files, thread: &Thread, threads: &[Thread]) {
        let at = |file: &str| format!("{CPU}/cpu{}/{file}", thread.cpu);
        let write = |file: &str, text: &str| files.write(&at(file), text);
        write("topology/physical_package_id", &thread.package.to_string());
        write("topology/die_id", "0");
        write("topology/core_id", &thread.core.to_string());
        write(
            "topology/thread_siblings_list",
            &thread.siblings.to_string(),
        );
        let shared: CpuList = threads
            .iter()
            .filter(|other| other.cache == thread.cache)
            .map(|other| CpuId(other.cpu))
            .collect::<CpuList>()
            .difference(&self.offline);
        let own = thread.siblings.to_string();
        let private = thread.package * (self.cores + self.efficiency_cores) + thread.core;
        let last_ways = self.resctrl.as_ref().map_or(16, |resctrl| resctrl.ways);
        for (index, level, kind, kib, ways, cpus, id) in [
            (0, 1, "Data", 32, 8, &own, private),
            (1, 1, "Instruction", 32, 8, &own, private),
            (2, 2, "Unified", 1024, 16, &own, private),
            (
                3,
                3,
                "Unified",
                self.cache_kib,
                last_ways,
                &shared.to_string(),
                thread.cache,
            ),
        ] {
            let cache = |file: &str, text: &str| write(&format!("cache/index{index}/{file}"), text);
            cache("level", &level.to_string());
            cache("type", kind);
            cache("size", &format!("{kib}K"));
            cache("ways_of_associativity", &ways.to_string());
            cache("shared_cpu_list", cpus);
            cache("id", &id.to_string());
        }
        if self.vendor == Vendor::Arm {
            write("cpu_capacity", "1024");
        }
        if !self.is_virtual {
            self.write_frequency(thread, &write);
        }
    }

    fn write_frequency(&self, thread: &Thread, write: &impl Fn(&str, &str)) {
        let (driver, governors) = match self.vendor {
            Vendor::Intel => ("intel_pstate", "performance powersave"),
            Vendor::Amd => ("amd-pstate-epp", "performance powersave"),
            _ => (
                "cppc_cpufreq",
                "conservative ondemand userspace powersave performance schedutil",
            ),
        };
        write("cpufreq/scaling_driver", driver);
        write("cpufreq/scaling_available_governors", governors);
        write("cpufreq/scaling_governor", "powersave");
        let highest = if thread.is_efficient {
            2_900_000
        } else {
            3_900_000
        };
        for (file, khz) in [
            ("cpuinfo_min_freq", 800_000),
            ("cpuinfo_max_freq", highest),
            ("scaling_min_freq", 800_000),
            ("scaling_max_freq", highest),
        ] {
            write(&format!("cpufreq/{file}"), &khz.to_string());
        }
        if self.vendor == Vendor::Intel {
            let base = match &self.priority {
                Some(priority) if priority.cores.contains(&thread.core) => priority.high_khz,
                Some(priority) => priority.low_khz,
                None if thread.is_efficient => 1_800_000,
                None => 2_400_000,
            };
            write("cpufreq/base_frequency", &base.to_string());
        }
        for (state, (name, latency)) in [("POLL", 0), ("C1", 2), ("C6", 133)]
            .into_iter()
            .enumerate()
        {
            write(&format!("cpuidle/state{state}/name"), name);
            write(
                &format!("cpuidle/state{state}/latency"),
                &latency.to_string(),
            );
            write(&format!("cpuidle/state{state}/disable"), "0");
        }
    }

    fn nodes(&self) -> u32 {
        self.packages * self.nodes_per_package
    }

    fn write_nodes(&self, files: &Files, threads: &[Thread]) {
        let all: CpuList = (0..self.nodes()).map(CpuId).collect();
        files.write("sys/devices/system/node/online", &all.to_string());
        for node in 0..self.nodes() {
            let at = |file: &str| format!("sys/devices/system/node/node{node}/{file}");
            let number = i32::try_from(node).unwrap_or(-1);
            let cpus = self.local(number, threads);
            if let Some((file, text)) = self.node_cpus.file(&cpus) {
                files.write(&at(file), &text);
            }
            let kib = self.node_memory_mib * 1024;
            files.write(
                &at("meminfo"),
                &format!(
                    "Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:        {} kB",
                    kib / 2
                ),
            );
            let distances: Vec<String> = (0..self.nodes())
                .map(|other| {
                    let is_near = other / self.nodes_per_package == node / self.nodes_per_package;
                    if other == node {
                        "10"
                    } else if is_near {
                        "11"
                    } else {
                        "21"
                    }
                    .to_owned()
                })
                .collect();
            files.write(&at("distance"), &distances.join(" "));
            for size in &self.huge_pages_kib {
                for file in ["nr_hugepages", "free_hugepages"] {
                    files.write(&at(&format!("hugepages/hugepages-{size}kB/{file}")), "0");
                }
            }
        }
        for size in &self.huge_pages_kib {
            for file in ["nr_hugepages", "free_hugepages"] {
                files.write(
                    &format!("sys/kernel/mm/hugepages/hugepages-{size}kB/{file}"),
                    "0",
                );
            }
        }
    }

    fn write_resctrl(&self, files: &Files, resctrl: &Resctrl) {
        let write = |file: &str, text: &str| files.write(&format!("sys/fs/resctrl/{file}"), text);
        let mask = (1u64 << resctrl.ways) - 1;
        let names: &[&str] = if resctrl.code_and_data {
            &["L3CODE", "L3DATA"]
        } else {
            &["L3"]
        };
        let domains = 0..self.packages * self.caches;
        let line = |name: &str, value: &str| {
            let parts: Vec<String> = domains
                .clone()
                .map(|domain| format!("{domain}={value}"))
                .collect();
            format!("{name}:{}\n", parts.join(";"))
        };
        let mut schemata = String::new();
        for name in names {
            write(
                &format!("info/{name}/num_closids"),
                &resctrl.classes.to_string(),
            );
            write(&format!("info/{name}/cbm_mask"), &format!("{mask:x}"));
            write(
                &format!("info/{name}/min_cbm_bits"),
                &resctrl.ways_min.to_string(),
            );
            write(
                &format!("info/{name}/shareable_bits"),
                &format!("{:x}", resctrl.shared_with_devices),
            );
            schemata += &line(name, &format!("{mask:x}"));
        }
        if let Some((unlimited, step)) = resctrl.bandwidth {
            write("info/MB/num_closids", &resctrl.classes.to_string());
            write("info/MB/min_bandwidth", &step.to_string());
            write("info/MB/bandwidth_gran", &step.to_string());
            schemata += &line("MB", &unlimited.to_string());
        }
        write("info/L3_MON/num_rmids", "256");
        write(
            "info/L3_MON/mon_features",
            "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes",
        );
        write("cpus_list", &self.online().to_string());
        write("tasks", "");
        write("schemata", schemata.trim_end())
    }

    fn write_proc(&self, files: &Files, threads: &[Thread]) {
        let mut flags = "fpu tsc constant_tsc nonstop_tsc pdpe1gb".to_owned();
        if self.is_virtual {
            flags += " hypervisor";
        }
        if let Some(resctrl) = &self.resctrl {
            flags += " rdt_a cat_l3 cqm_occup_llc cqm_mbm_total cqm_mbm_local";
            if resctrl.code_and_data {
                flags += " cdp_l3";
            }
            if resctrl.bandwidth.is_some() {
                flags += " mba";
            }
        }
        let cpus = threads
            .iter()
            .filter(|thread| !self.offline.contains(CpuId(thread.cpu)));
        let cpuinfo: String = cpus
            .map(|thread| self.cpuinfo(thread.cpu, &flags))
            .collect();
        files.write("proc/cpuinfo", &cpuinfo);
        let kib = self.node_memory_mib * 1024 * u64::from(self.nodes());
        files.write(
            "proc/meminfo",
            &format!("MemTotal:       {kib} kB\nMemFree:        {} kB", kib / 2),
        );
        let isolation = if self.isolated.is_empty() {
            String::new()
        } else {
            format!(" isolcpus={0} nohz_full={0} rcu_nocbs={0}", self.isolated)
        };
        files.write(
            "proc/cmdline",
            &format!("BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro quiet{isolation}"),
        );
        files.write("proc/sys/kernel/osrelease", "6.1.0-31-amd64");
        files.write("proc/sys/kernel/sched_rt_runtime_us", "950000");
        let mounts = if self.cgroup == 1 {
            "cgroup /sys/fs/cgroup/cpuset cgroup rw,cpuset 0 0"
        } else {
            for file in ["controllers", "subtree_control"] {
                let file = format!("sys/fs/cgroup/cgroup.{file}");
                files.write(&file, "cpuset cpu io memory pids");
            }
            "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0"
        };
        files.write("proc/self/mounts", mounts);
        files.write(
            "sys/devices/system/clocksource/clocksource0/current_clocksource",
            "tsc",
        );
        files.write(
            "sys/class/dmi/id/product_name",
            if self.is_virtual {
                "Standard PC (Q35 + ICH9, 2009)"
            } else {
                "Server"
            },
        );
        files.write(
            "sys/class/dmi/id/sys_vendor",
            if self.is_virtual { "QEMU" } else { "Maker" },
        );
        let online = self.online();
        let counts = " 0".repeat(online.len());
        let heading = online.iter().map(|cpu| format!(" CPU{cpu}"));
        let mut interrupts = heading.collect::<String>() + "\n";
        for (number, name) in [(8, "rtc0"), (9, "acpi"), (24, "nic-0"), (25, "nic-1")] {
            interrupts += &format!("{number:>4}:{counts}  IR-PCI-MSI 524288-edge      {name}\n");
            files.write(
                &format!("proc/irq/{number}/smp_affinity_list"),
                &online.to_string(),
            );
            files.write(&format!("proc/irq/{number}/effective_affinity_list"), "0");
        }
        files.write(
            "proc/irq/default_smp_affinity",
            online.to_mask().trim_start_matches("0x"),
        );
        files.write("proc/interrupts", interrupts.trim_end())
    }

    fn cpuinfo(&self, cpu: u32, flags: &str) -> String {
        match self.vendor {
            Vendor::Intel => {
                let nominal = match &self.priority {
                    Some(_) => " @ 2.30GHz",
                    None => "",
                };
                format!(
                    "processor\t: {cpu}\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) of a test{nominal}\nflags\t\t: {flags}\n\n"
                )
            }
            Vendor::Amd => format!(
                "processor\t: {cpu}\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC of a test\nflags\t\t: {flags}\n\n"
            ),
            _ => format!(
                "processor\t: {cpu}\nBogoMIPS\t: 50.00\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd0c\n\n"
            ),
        }
    }
}

const CPU: &str = "sys/devices/system/cpu";

#[derive(Default)]
struct Files {
    made: RefCell<BTreeMap<String, Entry>>,
}

impl Files {
    fn write(&self, path: &str, text: &str) {
        let entry = Entry::File(format!("{text}\n"));
        self.made.borrow_mut().insert(path.to_owned(), entry);
    }

    fn link(&self, path: &str, target: &str) {
        let entry = Entry::Link(target.to_owned());
        self.made.borrow_mut().insert(path.to_owned(), entry);
    }
}

fn write_controller(files: &Files, controller: &Controller, local: &CpuList) {
    let at = |file: &str| format!("sys/bus/pci/devices/{}/{file}", controller.address);
    files.write(&at("class"), "0x020000");
    files.write(&at("vendor"), "0x8086");
    files.write(&at("device"), "0x1592");
    files.write(&at("numa_node"), &controller.node.to_string());
    files.write(&at("local_cpulist"), &local.to_string());
    files.link(
        &at("driver"),
        &format!("../../../bus/pci/drivers/{}", controller.driver),
    );
    files.link(&at("iommu_group"), "../../../kernel/iommu_groups/42");
    if let Some(interface) = controller.interface {
        files.write(&at(&format!("net/{interface}/mtu")), "1500");
    }
    files.write(&at("msi_irqs/24"), "msix");
    if controller.functions_max > 0 {
        files.write(&at("sriov_totalvfs"), &controller.functions_max.to_string());
        files.write(&at("sriov_numvfs"), &controller.functions.to_string());
        let base = controller.address.trim_end_matches(".0");
        for function in 0..controller.functions {
            files.link(
                &at(&format!("virtfn{function}")),
                &format!("../{base}.{}", function.saturating_add(1)),
            );
        }
    }
}

fn controller(address: &'static str, node: i32) -> Controller {
    Controller {
        address,
        node,
        driver: "ice",
        interface: None,
        functions_max: 64,
        functions: 0,
    }
}

/// Returns a machine of two packages with hyper-threading and sub-NUMA clusters, RDT with bandwidth limits, network cards on two nodes.
#[must_use]
pub fn two_packages_with_clusters() -> Machine {
    Machine {
        name: "two-packages-with-clusters",
        packages: 2,
        nodes_per_package: 2,
        cores: 16,
        threads: 2,
        cache_kib: 33 << 10,
        node_memory_mib: 48 << 10,
        resctrl: Some(Resctrl {
            ways: 11,
            classes: 16,
            ways_min: 1,
            shared_with_devices: 0x600,
            code_and_data: false,
            bandwidth: Some((100, 10)),
        }),
        controllers: vec![
            Controller {
                interface: Some("ens1f0"),
                functions: 2,
                ..controller("0000:17:00.0", 0)
            },
            Controller {
                driver: "vfio-pci",
                ..controller("0000:65:00.0", 1)
            },
            Controller {
                functions_max: 0,
                driver: "igb",
                interface: Some("eno1"),
                ..controller("0000:02:00.0", 0)
            },
        ],
        ..Machine::default()
    }
}

/// Returns an AMD machine of two packages with four nodes and eight last level caches each, absolute bandwidth limits.
#[must_use]
pub fn many_caches() -> Machine {
    Machine {
        name: "many-caches",
        vendor: Vendor::Amd,
        packages: 2,
        nodes_per_package: 4,
        cores: 64,
        threads: 2,
        caches: 8,
        cache_kib: 32 << 10,
        node_memory_mib: 32 << 10,
        resctrl: Some(Resctrl {
            ways: 16,
            classes: 16,
            ways_min: 1,
            shared_with_devices: 0,
            code_and_data: false,
            bandwidth: Some((2048, 1)),
        }),
        controllers: vec![controller("0000:21:00.0", 1), controller("0000:e1:00.0", 5)],
        ..Machine::default()
    }
}

/// Returns an Arm machine: many cores with one thread each.
#[must_use]
pub fn arm() -> Machine {
    Machine {
        name: "arm",
        vendor: Vendor::Arm,
        cores: 80,
        cache_kib: 32 << 10,
        node_memory_mib: 128 << 10,
        huge_pages_kib: vec![64, 2048, 32 << 10, 1 << 20],
        controllers: vec![controller("0003:01:00.0", 0)],
        ..Machine::default()
    }
}

/// Returns a machine with a hybrid processor: two kinds of cores.
#[must_use]
pub fn hybrid() -> Machine {
    Machine {
        name: "hybrid",
        cores: 6,
        threads: 2,
        efficiency_cores: 8,
        numbering: Numbering::ThreadsTogether,
        cache_kib: 24 << 10,
        controllers: vec![Controller {
            driver: "igc",
            interface: Some("enp3s0"),
            functions_max: 0,
            ..controller("0000:03:00.0", -1)
        }],
        ..Machine::default()
    }
}

/// Returns a machine with offline CPUs: one whole core and one thread of another.
#[must_use]
pub fn offline() -> Machine {
    Machine {
        name: "offline",
        cores: 8,
        threads: 2,
        offline: [CpuId(3), CpuId(11), CpuId(14)].into_iter().collect(),
        controllers: vec![controller("0000:01:00.0", 0)],
        ..Machine::default()
    }
}

/// Returns a virtual machine with two CPUs, control groups of version 1.
#[must_use]
pub fn virtual_machine() -> Machine {
    Machine {
        name: "virtual-machine",
        cores: 2,
        node_memory_mib: 4 << 10,
        huge_pages_kib: vec![2048],
        is_virtual: true,
        cgroup: 1,
        ..Machine::default()
    }
}

/// Returns a machine with SST-BF: six of twenty cores have high priority.
#[must_use]
pub fn priority_cores() -> Machine {
    Machine {
        name: "priority-cores",
        packages: 2,
        cores: 20,
        threads: 2,
        cache_kib: 27 << 10,
        node_memory_mib: 96 << 10,
        priority: Some(Priority {
            cores: vec![1, 4, 7, 10, 13, 16],
            high_khz: 2_700_000,
            low_khz: 2_100_000,
        }),
        resctrl: Some(Resctrl {
            ways: 11,
            classes: 8,
            ways_min: 2,
            shared_with_devices: 0x600,
            code_and_data: true,
            bandwidth: Some((100, 10)),
        }),
        controllers: vec![Controller {
            driver: "vfio-pci",
            ..controller("0000:3b:00.0", 0)
        }],
        ..Machine::default()
    }
}

/// Returns one machine of each kind.
#[must_use]
pub fn all() -> Vec<Machine> {
    vec![
        two_packages_with_clusters(),
        many_caches(),
        arm(),
        hybrid(),
        offline(),
        virtual_machine(),
        priority_cores(),
    ]
}

/// Returns the largest machine: 512 CPUs in two packages.
#[must_use]
pub fn largest() -> Machine {
    Machine {
        name: "largest",
        cores: 128,
        caches: 16,
        ..many_caches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_and_memory_tell_the_same() {
        for machine in [virtual_machine(), hybrid(), offline()] {
            let root = tempfile::tempdir().unwrap();
            machine.write(root.path()).unwrap();
            let read = Inventory::read(root.path());
            assert_eq!(read.cgroup_version, Some(machine.cgroup));
            let without_mounts = Inventory {
                cgroup_version: None,
                cpusets: None,
                ..read
            };
            assert_eq!(without_mounts, machine.inventory(), "{}", machine.name);
        }
    }

    #[test]
    fn each_kind_is_read_as_it_was_described() {
        for machine in all() {
            let read = machine.inventory();
            assert_eq!(read.vendor(), machine.vendor, "{}", machine.name);
            assert_eq!(read.packages, Some(machine.packages as usize));
            let cores = (machine.cores + machine.efficiency_cores) * machine.packages;
            let gone = u32::from(machine.name == "offline");
            assert_eq!(
                read.cores,
                Some((cores - gone) as usize),
                "{}",
                machine.name
            );
            assert_eq!(
                read.nodes.len() as u32,
                machine.packages * machine.nodes_per_package
            );
            assert_eq!(read.nics.len(), machine.controllers.len());
            assert_eq!(read.is_virtual.unwrap_or(false), machine.is_virtual);
            assert_eq!(read.rdt.is_mounted, machine.resctrl.is_some());
            let last = read.caches.iter().filter(|cache| cache.level == 3).count() as u32;
            assert_eq!(last, machine.packages * machine.caches);
            let fast = machine.priority.as_ref().map_or(0, |priority| {
                priority.cores.len() as u32 * machine.threads * machine.packages
            });
            assert_eq!(read.high_priority().len() as u32, fast, "{}", machine.name);
        }
        let read = two_packages_with_clusters().inventory();
        assert_eq!(
            read.nics[1].function_addresses,
            ["0000:17:00.1", "0000:17:00.2"]
        );
        assert_eq!(read.nics[1].interfaces, ["ens1f0"]);
        assert_eq!(read.rdt.bandwidth.map(|limits| limits.step), Some(10));
        assert_eq!(read.nodes[0].distances, [10, 11, 21, 21]);
    }
}
