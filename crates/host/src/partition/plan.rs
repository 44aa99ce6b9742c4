// SPDX-License-Identifier: Apache-2.0
//! The plan: the resources of each group, with reasons.

use quietwire_base::Idle;
use serde::{Deserialize, Serialize};

use super::request::DataPlaneRequest;
use crate::inventory::Vendor;
use crate::{CpuId, CpuList};

/// Role of a CPU. A CPU has exactly one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Everything without another role: kernel work, interrupts, daemons.
    Host,
    /// The data plane's control requests, and DPDK's own threads.
    Control,
    /// The data plane's netlink, taps, vhost control and timers.
    Service,
    /// Only polls packets.
    Forwarding,
    /// Runs the virtual CPUs of a guest.
    Guest,
    /// Runs a neighbour: work that is kept away from the other roles.
    Neighbour,
    /// Unused: the idle sibling of a forwarding CPU.
    Idle,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] = [
        Self::Host,
        Self::Control,
        Self::Service,
        Self::Forwarding,
        Self::Guest,
        Self::Neighbour,
        Self::Idle,
    ];

    /// Returns the role's name, as in `partition.toml`.
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

    /// Returns whether CPUs of this role are isolated: without load balancing, interrupts and the tick.
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
    /// Unique name: the name of the guest or neighbour, or of the role for all other groups.
    pub name: String,
    /// Its CPUs.
    pub cpus: CpuList,
    /// Its CPUs grouped by core, in the order of each core's lowest CPU. Empty in plans of earlier releases.
    #[serde(default)]
    pub cores: Vec<CpuList>,
    /// NUMA nodes of its CPUs. Empty if they are unknown.
    pub nodes: Vec<u32>,
    /// Reserved huge-page memory, MiB.
    pub memory_mib: u64,
    /// Name of its class of service. `None` if the machine does not support allocation.
    pub class: Option<String>,
}

/// Ways of one cache that a class may fill.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheMask {
    /// Level: 2 or 3.
    pub level: u8,
    /// Domain number of the cache in `schemata`.
    pub domain: u32,
    /// Contiguous mask of ways.
    pub mask: u64,
}

/// Memory bandwidth that a class may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidth {
    /// Domain number in `schemata`.
    pub domain: u32,
    /// Limit as in `schemata`: percent on Intel, units of 1/8 GB/s on AMD.
    pub limit: u32,
}

/// A class of service: a resctrl group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Class {
    /// Name of its directory below resctrl's mount point. The default class, which contains everything that is in no other
    /// class, is the mount point itself and has the name `default`.
    pub name: String,
    /// Whether it is the default class.
    pub is_default: bool,
    /// Its CPUs. For the default class, all CPUs that are in no other class.
    pub cpus: CpuList,
    /// Its ways in every cache with allocation. With CDP, code and data get the same ways.
    pub masks: Vec<CacheMask>,
    /// Its limit in every domain with bandwidth limits.
    pub bandwidth: Vec<Bandwidth>,
}

/// Huge pages of one size on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugePages {
    /// The node, at most [`NODE_MAX`]. `None` for the pool of the whole machine if the nodes are unknown.
    #[serde(default, deserialize_with = "node")]
    pub node: Option<u32>,
    /// Size of a page, KiB.
    pub page_kib: u64,
    /// Number of pages.
    pub pages: u64,
    /// Part of their memory for the data plane (DPDK's `--socket-mem`), MiB.
    pub data_plane_mib: u64,
}

impl HugePages {
    /// Returns the kernel's directory of the pool, relative to the root (admin-guide/mm/hugetlbpage.rst).
    #[must_use]
    pub fn directory(&self) -> String {
        let pool = format!("hugepages/hugepages-{}kB", self.page_kib);
        match self.node {
            Some(node) => format!("sys/devices/system/node/node{node}/{pool}"),
            None => format!("sys/kernel/mm/{pool}"),
        }
    }
}

/// A receive queue and the forwarding CPU that polls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueCpu {
    /// The queue.
    pub queue: u16,
    /// Its CPU.
    pub cpu: CpuId,
}

/// Settings of one network card.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NicPlan {
    /// PCI address.
    pub pci_address: String,
    /// Name of its kernel interface, if any.
    pub interface: Option<String>,
    /// Its node.
    pub node: Option<u32>,
    /// Its receive queues and the CPUs that poll them.
    pub queues: Vec<QueueCpu>,
    /// Number of virtual functions. `None`: unchanged.
    pub functions: Option<u32>,
    /// MTU, octets.
    pub mtu: u16,
}

/// Frequency settings of a set of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FrequencySetting {
    /// The CPUs.
    pub cpus: CpuList,
    /// Governor. `None` if the machine does not support it.
    pub governor: Option<String>,
    /// Lower limit, kHz. `None`: unchanged.
    pub min_khz: Option<u64>,
    /// Upper limit, kHz. `None`: unchanged.
    pub max_khz: Option<u64>,
    /// Whether the CPUs are high-priority cores of SST-BF.
    pub is_high_priority: bool,
}

/// A kernel command line parameter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BootParameter {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: Option<String>,
    /// Purpose of the parameter.
    #[serde(alias = "why")]
    pub reason: String,
}

impl std::fmt::Display for BootParameter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Reason for a decision of the planner.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The object: a group's name, a network card's address, `huge-pages`, `cache`, `frequency`, `boot`.
    pub subject: String,
    /// The decision and its cause.
    pub text: String,
}

/// A partition plan. The same inventory and request always give the same plan.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// Groups of CPUs. Every online CPU is in exactly one group.
    pub groups: Vec<Group>,
    /// Classes of service, the default class first. Empty if the machine does not support allocation.
    pub classes: Vec<Class>,
    /// Huge pages.
    pub huge_pages: Vec<HugePages>,
    /// Network cards.
    pub nics: Vec<NicPlan>,
    /// Frequency settings of CPUs.
    pub frequencies: Vec<FrequencySetting>,
    /// Kernel command line parameters of the plan. Changes require a reboot.
    pub boot: Vec<BootParameter>,
    /// Housekeeping CPUs, for interrupts, unbound work queues and receive steering: those of host, control and service.
    pub housekeeping: CpuList,
    /// Slots of a receive ring.
    pub rx_ring_size: u16,
    /// Slots of a transmit ring.
    pub tx_ring_size: u16,
    /// Behaviour of an idle forwarding CPU.
    pub idle: Idle,
    /// The data plane of the partition.
    #[serde(default)]
    pub data_plane: DataPlaneRequest,
    /// Vendor of the processor, which determines how guests learn about threads. `None` in plans of earlier releases.
    #[serde(default)]
    pub vendor: Option<Vendor>,
    /// Reasons for the planner's decisions.
    pub reasons: Vec<Reason>,
}

impl Plan {
    /// Returns all CPUs of a role.
    #[must_use]
    pub fn cpus(&self, role: Role) -> CpuList {
        let of_role = self.groups.iter().filter(|group| group.role == role);
        of_role.flat_map(|group| group.cpus.iter()).collect()
    }

    /// Returns the isolated CPUs.
    #[must_use]
    pub fn isolated(&self) -> CpuList {
        let isolated = self.groups.iter().filter(|group| group.role.is_isolated());
        isolated.flat_map(|group| group.cpus.iter()).collect()
    }

    /// Returns the group with a name.
    #[must_use]
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// Returns the group of a CPU.
    #[must_use]
    pub fn group_of(&self, cpu: CpuId) -> Option<&Group> {
        self.groups.iter().find(|group| group.cpus.contains(cpu))
    }

    /// Returns the plan's kernel command line parameters as one line.
    #[must_use]
    pub fn command_line(&self) -> String {
        let words: Vec<String> = self.boot.iter().map(ToString::to_string).collect();
        words.join(" ")
    }
}

/// Highest number of a NUMA node: x86's kernels have at most 1,024 nodes (`MAX_NUMNODES`, include/linux/numa.h). Lists by node have a place
/// for each lower number.
pub const NODE_MAX: u32 = 1023;

/// Reads the node of a pool.
fn node<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let node = Option::<u32>::deserialize(deserializer)?;
    match node.filter(|node| *node > NODE_MAX) {
        None => Ok(node),
        Some(node) => Err(serde::de::Error::custom(format!(
            "node {node}: the highest node is {NODE_MAX}"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_that_no_kernel_has_are_refused() {
        let pool = |node: &str| {
            let text = format!(r#"{{"node":{node},"page_kib":2048,"pages":1,"data_plane_mib":2}}"#);
            serde_json::from_str::<HugePages>(&text)
        };
        assert_eq!(pool("1023").unwrap().node, Some(1023));
        assert_eq!(pool("null").unwrap().node, None);
        for node in ["1024", "4294967295"] {
            let error = pool(node).unwrap_err().to_string();
            assert!(error.contains("highest node is 1023"), "{error}");
        }
    }
}
