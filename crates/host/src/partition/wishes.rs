// SPDX-License-Identifier: Apache-2.0
//! What is wished: `partition.toml`. Everything may be left out; what is left out is chosen.

use quietwire_base::Idle;
use quietwire_base::locate::{key_of, line_of};
use serde::{Deserialize, Serialize};

use crate::CpuList;

/// Which CPUs are wished: so many, or these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CpuWish {
    /// So many CPUs (threads), wherever they are best.
    Count(u32),
    /// These.
    These(CpuList),
}

/// What becomes of the other thread of a forwarding core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiblingPolicy {
    /// It stays idle: the forwarding thread has the core to itself.
    #[default]
    Idle,
    /// It forwards, too.
    Forward,
}

/// Which data plane the partition is for, where one of TripleO's roles has to be chosen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPlaneWish {
    /// Open vSwitch with DPDK.
    #[default]
    Ovs,
    /// Contrail's vRouter with DPDK.
    Vrouter,
}

/// The wishes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Wishes {
    /// Everything that has no other role.
    pub host: HostWish,
    /// The data plane's control threads. Without it they share the host's CPUs.
    pub control: Option<HostWish>,
    /// The data plane's service threads. Without it they share the host's CPUs.
    pub service: Option<HostWish>,
    /// What forwards.
    pub forwarding: ForwardingWish,
    /// Guests.
    #[serde(rename = "guest")]
    pub guests: Vec<GuestWish>,
    /// What is to be kept away.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<GroupWish>,
    /// Network controllers that the data plane polls.
    #[serde(rename = "nic")]
    pub nics: Vec<NicWish>,
    /// What concerns the machine as a whole.
    pub machine: MachineWish,
}

/// CPUs and shares of the host's role, and of control and service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HostWish {
    /// Its CPUs. For the host: at least these; it has everything that nobody else has.
    pub cpus: Option<CpuWish>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// What forwards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ForwardingWish {
    /// Its CPUs; without, one core a controller, or one.
    pub cpus: Option<CpuWish>,
    /// What becomes of the other threads of its cores.
    pub siblings: SiblingPolicy,
    /// Its NUMA node; without, those of the controllers.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
    /// Memory of the data plane on each of its nodes, MiB; without, reckoned from the MTUs of the controllers.
    pub memory_mib: Option<u64>,
    /// Slots of a receive ring; without, 1024.
    pub rx_ring_size: Option<u16>,
    /// Slots of a transmit ring; without, 1024.
    pub tx_ring_size: Option<u16>,
    /// What a forwarding CPU does when there is nothing to forward.
    pub idle: Idle,
    /// The data plane; without, `ovs`.
    pub data_plane: DataPlaneWish,
}

/// One guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct GuestWish {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// CPUs for its virtual CPUs, one each.
    pub cpus: Option<CpuWish>,
    /// Its memory in huge pages, MiB.
    pub memory_mib: u64,
    /// Its NUMA node; without, that of the controllers if it fits there.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// One neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct GroupWish {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// Its CPUs.
    pub cpus: Option<CpuWish>,
    /// Its NUMA node; without, any, those without forwarding CPUs first.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// One network controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NicWish {
    /// Its PCI address (`0000:3b:00.0`).
    pub pci: String,
    /// Receive queues; without, one for each forwarding CPU of its node.
    pub queues: Option<u16>,
    /// Virtual functions; without, left as they are.
    pub functions: Option<u32>,
    /// MTU, octets; without, 1500.
    pub mtu: Option<u16>,
}

/// What concerns the machine as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct MachineWish {
    /// Size of huge pages, KiB; without, 1 GiB where there are such and the memory is large, else 2 MiB.
    pub huge_page_kib: Option<u64>,
    /// Governor of isolated CPUs; without, `performance`.
    pub governor: Option<String>,
    /// Whether forwarding and guest CPUs are isolated on the kernel's command line, too; without, yes.
    pub boot_isolation: Option<bool>,
    /// Whether devices are given to user space through an IOMMU; without, yes where the machine has controllers.
    pub iommu: Option<bool>,
}

/// Why a text is no list of wishes.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WishesError {
    /// It is no TOML, or has keys or values that are not known.
    #[error("{0}")]
    Syntax(String),
}

impl Wishes {
    /// Reads `partition.toml`.
    ///
    /// # Errors
    /// [`WishesError`]: line, key, and what is known.
    pub fn parse(text: &str) -> Result<Self, WishesError> {
        toml::from_str(text).map_err(|error| WishesError::Syntax(located(text, &error)))
    }

    /// As `partition.toml`, without what is not wished.
    ///
    /// # Errors
    /// [`WishesError`], should a number be too large for TOML.
    pub fn to_toml(&self) -> Result<String, WishesError> {
        let table = toml::Table::try_from(self);
        let mut table = table.map_err(|error| WishesError::Syntax(error.to_string()))?;
        // A section or list that says nothing is left out; those of control and service say that they are apart.
        table.retain(|key, value| match value {
            toml::Value::Table(table) => !table.is_empty() || key == "control" || key == "service",
            toml::Value::Array(list) => !list.is_empty(),
            _ => true,
        });
        toml::to_string(&table).map_err(|error| WishesError::Syntax(error.to_string()))
    }
}

/// What the TOML reader says, with line and key.
fn located(text: &str, error: &toml::de::Error) -> String {
    let Some(span) = error.span() else {
        return error.message().to_owned();
    };
    let line = line_of(text, span.start);
    match key_of(text, &span) {
        key if key.is_empty() => format!("line {line}: {}", error.message()),
        key => format!("line {line}, key '{key}': {}", error.message()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_survive_being_written_and_read() {
        let text = "[service]\n[forwarding]\ncpus = \"3-5\"\nsiblings = \"forward\"\n[[guest]]\nname = \"a\"\ncpus = 2\n";
        let wishes = Wishes::parse(text).unwrap();
        assert_eq!(
            wishes.forwarding.cpus,
            Some(CpuWish::These("3-5".parse().unwrap()))
        );
        let written = wishes.to_toml().unwrap();
        assert_eq!(Wishes::parse(&written), Ok(wishes));
        assert!(
            !written.contains("neighbour") && !written.contains("[host]"),
            "{written}"
        );
        let error = Wishes::parse("[forwarding]\ncpu = 3\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("cpu") && error.contains("line 2"), "{error}");
        assert!(
            error.starts_with("line 2, key 'forwarding.cpu': "),
            "{error}"
        );
    }
}
