// SPDX-License-Identifier: Apache-2.0
//! The plan: what everybody gets, and why.

use quietwire_base::Idle;
use serde::{Deserialize, Serialize};

use super::wishes::DataPlaneWish;
use crate::inventory::Vendor;
use crate::{CpuId, CpuList};

/// What a CPU is for. A CPU has one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything that has no other role: the kernel's own work, interrupts, daemons.
    Host,
    /// The data plane's answers to questions, and the threads that DPDK makes for itself.
    Control,
    /// The data plane's netlink, taps, vhost control, timers.
    Service,
    /// Polls packets and does nothing else.
    Forwarding,
    /// Runs virtual CPUs of a guest.
    Guest,
    /// Runs what is only to be kept away from the others: a neighbour.
    Neighbour,
    /// Nothing: the other thread of a forwarding core, left idle.
    Idle,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 7] = [
        Self::Host,
        Self::Control,
        Self::Service,
        Self::Forwarding,
        Self::Guest,
        Self::Neighbour,
        Self::Idle,
    ];

    /// Its name, as in `partition.toml`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Control => "control",
            Self::Service => "service",
            Self::Forwarding => "forwarding",
            Self::Guest => "guest",
            Self::Neighbour => "neighbour",
            Self::Idle => "idle",
        }
    }

    /// Whether its CPUs are kept free of everything else: of the scheduler's balancing, of interrupts, of the tick.
    #[must_use]
    pub fn is_isolated(self) -> bool {
        matches!(self, Self::Forwarding | Self::Guest | Self::Idle)
    }
}

/// CPUs of one role, or of one guest or neighbour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its role.
    pub role: Role,
    /// The guest's or neighbour's name; the role's for all others. No two groups have the same.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuList,
    /// Its CPUs core by core: threads of one core stand together, cores in the order of their lowest. Empty in plans of
    /// earlier releases.
    #[serde(default)]
    pub cores: Vec<CpuList>,
    /// NUMA nodes that its CPUs are on, as far as they are known; empty if they are unknown.
    pub nodes: Vec<u32>,
    /// Huge-page memory that is set aside for it, MiB.
    pub memory_mib: u64,
    /// Its class of service, by the class's name; none where the machine shares nothing out.
    pub class: Option<String>,
}

/// Ways of one cache that a class may fill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMask {
    /// Level: 2 or 3.
    pub level: u8,
    /// The cache's number in `schemata`.
    pub domain: u32,
    /// The ways. Without holes.
    pub mask: u64,
}

/// Memory bandwidth that a class may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// The domain's number in `schemata`.
    pub domain: u32,
    /// The limit: percent on Intel, units of 1/8 GB/s on AMD, as `schemata` has it.
    pub limit: u32,
}

/// A class of service: a group of resctrl.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Name of its directory below resctrl's mount. The default class, which has everything that is in no other, is the
    /// mount itself and has the name `default`.
    pub name: String,
    /// Whether it is the default class.
    pub is_default: bool,
    /// Its CPUs; for the default class, those that are in no other.
    pub cpus: CpuList,
    /// Its ways, for every cache that can be allocated. With code and data apart, both get the same.
    pub masks: Vec<CacheMask>,
    /// Its bandwidth, for every domain that can be limited.
    pub bandwidth: Vec<Bandwidth>,
}

/// Huge pages of one size on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// The node; none for the pool of the whole machine, if the nodes are unknown.
    pub node: Option<u32>,
    /// Size of a page, KiB.
    pub page_kib: u64,
    /// How many there are to be.
    pub pages: u64,
    /// Of their memory, what the data plane takes (DPDK's `--socket-mem`), MiB.
    pub data_plane_mib: u64,
}

impl HugePages {
    /// The kernel's directory of the pool, below the root (admin-guide/mm/hugetlbpage.rst).
    #[must_use]
    pub fn directory(&self) -> String {
        let pool = format!("hugepages/hugepages-{}kB", self.page_kib);
        match self.node {
            Some(node) => format!("sys/devices/system/node/node{node}/{pool}"),
            None => format!("sys/kernel/mm/{pool}"),
        }
    }
}

/// Which forwarding CPU polls a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCpu {
    /// The queue.
    pub queue: u16,
    /// Its CPU.
    pub cpu: CpuId,
}

/// What becomes of one network controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicPlan {
    /// Its address.
    pub pci_address: String,
    /// The kernel's name of it, where it has one.
    pub interface: Option<String>,
    /// Its node.
    pub node: Option<u32>,
    /// Who polls its receive queues.
    pub queues: Vec<QueueCpu>,
    /// Virtual functions that it is to have; none where that is left as it is.
    pub functions: Option<u32>,
    /// Largest frame's MTU, octets.
    pub mtu: u16,
}

/// How CPUs are to run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequencySetting {
    /// The CPUs.
    pub cpus: CpuList,
    /// Governor; none where there is no such setting.
    pub governor: Option<String>,
    /// Lower limit, kHz; none: left as it is.
    pub min_khz: Option<u64>,
    /// Upper limit, kHz; none: left as it is.
    pub max_khz: Option<u64>,
    /// Whether they are SST-BF's cores of high priority.
    pub is_high_priority: bool,
}

/// A parameter of the kernel's command line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootParameter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<String>,
    /// What it is for.
    pub why: String,
}

impl std::fmt::Display for BootParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Why something was decided so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// What: a group's name, a controller's address, `huge-pages`, `cache`, `frequency`, `boot`.
    pub subject: String,
    /// The decision and what it comes from.
    pub text: String,
}

/// Who gets what. The same inventory and wishes always make the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Who has which CPUs: every CPU that is online is in one group.
    pub groups: Vec<Group>,
    /// Classes of service; the default class first. Empty where nothing is shared out.
    pub classes: Vec<Class>,
    /// Huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Network controllers.
    pub nics: Vec<NicPlan>,
    /// How CPUs are to run.
    pub frequencies: Vec<FrequencySetting>,
    /// The kernel's command line, as far as the plan needs it. Takes a reboot.
    pub boot: Vec<BootParameter>,
    /// CPUs that interrupts, unbound work queues and receive steering go to: those of the host and of control and service.
    pub housekeeping: CpuList,
    /// Slots of a receive ring.
    pub rx_ring_size: u16,
    /// Slots of a transmit ring.
    pub tx_ring_size: u16,
    /// What a forwarding CPU does when there is nothing to forward.
    pub idle: Idle,
    /// The data plane that it is made for.
    #[serde(default)]
    pub data_plane: DataPlaneWish,
    /// Who made the processor: guests are told of their threads in ways that differ. None in plans of earlier releases.
    #[serde(default)]
    pub vendor: Option<Vendor>,
    /// Why.
    pub reasons: Vec<Reason>,
}

impl Plan {
    /// All CPUs of a role.
    #[must_use]
    pub fn cpus(&self, role: Role) -> CpuList {
        let of_role = self.groups.iter().filter(|group| group.role == role);
        of_role.flat_map(|group| group.cpus.iter()).collect()
    }

    /// CPUs that are kept free of everything else.
    #[must_use]
    pub fn isolated(&self) -> CpuList {
        let isolated = self.groups.iter().filter(|group| group.role.is_isolated());
        isolated.flat_map(|group| group.cpus.iter()).collect()
    }

    /// A group by its name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// The group that has a CPU.
    #[must_use]
    pub fn group_of(&self, cpu: CpuId) -> Option<&Group> {
        self.groups.iter().find(|group| group.cpus.contains(cpu))
    }

    /// The kernel's command line, as far as the plan needs it.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words: Vec<String> = self.boot.iter().map(ToString::to_string).collect();
        words.join(" ")
    }
}
