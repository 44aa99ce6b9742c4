// SPDX-License-Identifier: Apache-2.0
//! Partition request (`partition.toml`). All keys are optional; the planner chooses the missing values.

use quietwire_base::Idle;
use quietwire_base::locate::{key_of, line_of};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::CpuList;

/// Requested CPUs: a number or a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CpuRequest {
    /// A number of CPUs (threads), which the planner chooses.
    Count(u32),
    /// A list of CPUs.
    These(CpuList),
}

/// Use of the other threads of forwarding cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SiblingPolicy {
    /// They stay idle, so the forwarding thread has the whole core.
    #[default]
    Idle,
    /// They forward as well.
    Forward,
}

/// Data plane of the partition, which determines the TripleO role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DataPlaneRequest {
    /// Open vSwitch with DPDK.
    #[default]
    Ovs,
    /// Contrail's vRouter with DPDK.
    Vrouter,
}

/// Partition request (TOML).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct PartitionRequest {
    /// Everything without another role.
    pub host: HostRequest,
    /// The data plane's control threads. Default: they share the host's CPUs.
    pub control: Option<HostRequest>,
    /// The data plane's service threads. Default: they share the host's CPUs.
    pub service: Option<HostRequest>,
    /// Forwarding.
    pub forwarding: ForwardingRequest,
    /// Guests.
    #[serde(rename = "guest")]
    pub guests: Vec<GuestRequest>,
    /// Neighbours: other work that is kept away from forwarding.
    #[serde(rename = "neighbour")]
    pub neighbours: Vec<NeighbourRequest>,
    /// Network cards that the data plane polls.
    #[serde(rename = "nic")]
    pub nics: Vec<NicRequest>,
    /// Settings of the whole machine.
    pub machine: MachineRequest,
}

/// CPUs and shares of the host, control or service role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct HostRequest {
    /// Its CPUs. For the host, this is a minimum: it also gets all CPUs without another role.
    pub cpus: Option<CpuRequest>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// Forwarding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct ForwardingRequest {
    /// Its CPUs. Default: one core for each network card, at least one.
    pub cpus: Option<CpuRequest>,
    /// Use of the other threads of its cores.
    pub siblings: SiblingPolicy,
    /// Its NUMA node. Default: the nodes of the network cards.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
    /// Memory of the data plane on each of its nodes, MiB. Default: computed from the MTUs of the network cards.
    #[serde(deserialize_with = "optional_size")]
    pub memory_mib: Option<u64>,
    /// Slots of a receive ring. Default: 1024.
    pub rx_ring_size: Option<u16>,
    /// Slots of a transmit ring. Default: 1024.
    pub tx_ring_size: Option<u16>,
    /// Behaviour of an idle forwarding CPU.
    pub idle: Idle,
    /// The data plane. Default: `ovs`.
    pub data_plane: DataPlaneRequest,
}

/// One guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct GuestRequest {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// CPUs for its virtual CPUs, one each.
    pub cpus: Option<CpuRequest>,
    /// Its memory in huge pages, MiB.
    #[serde(deserialize_with = "size")]
    pub memory_mib: u64,
    /// Its NUMA node. Default: the node of the network cards if it has enough CPUs.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// One neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NeighbourRequest {
    /// Its name: letters, digits, `-` and `_`.
    pub name: String,
    /// Its CPUs.
    pub cpus: Option<CpuRequest>,
    /// Its NUMA node. Default: any node, preferably without forwarding CPUs.
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    pub bandwidth_percent: Option<u8>,
}

/// One network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct NicRequest {
    /// Its PCI address (`0000:3b:00.0`).
    pub pci: String,
    /// Number of receive queues. Default: one for each forwarding CPU of its node.
    pub queues: Option<u16>,
    /// Number of virtual functions. Default: unchanged.
    pub functions: Option<u32>,
    /// MTU, octets. Default: 1500.
    pub mtu: Option<u16>,
}

/// Settings of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct MachineRequest {
    /// Size of huge pages, KiB. Default: 1 GiB if supported and the memory is large, otherwise 2 MiB.
    #[serde(deserialize_with = "optional_size")]
    pub huge_page_kib: Option<u64>,
    /// Governor of isolated CPUs. Default: `performance`.
    pub governor: Option<String>,
    /// Whether the kernel command line also isolates forwarding and guest CPUs. Default: yes.
    pub boot_isolation: Option<bool>,
    /// Whether the kernel command line enables the IOMMU for user-space devices. Default: yes if the data plane has network
    /// cards.
    pub iommu: Option<bool>,
}

/// Errors in a partition request.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum PartitionRequestError {
    /// The text is not valid TOML, or has unknown keys or values.
    #[error("{0}")]
    Syntax(String),
}

impl PartitionRequest {
    /// Parses `partition.toml`.
    ///
    /// # Errors
    /// [`PartitionRequestError`]: line, key and problem.
    pub fn parse(text: &str) -> Result<Self, PartitionRequestError> {
        toml::from_str(text).map_err(|error| PartitionRequestError::Syntax(located(text, &error)))
    }

    /// Serialises the request as `partition.toml`, without keys that have no value.
    ///
    /// # Errors
    /// [`PartitionRequestError`] if a number is too large for TOML.
    pub fn to_toml(&self) -> Result<String, PartitionRequestError> {
        let table = toml::Table::try_from(self);
        let mut table = table.map_err(|error| PartitionRequestError::Syntax(error.to_string()))?;
        // Omit empty sections and lists, except those of control and service: an empty section requests separate CPUs.
        table.retain(|key, value| match value {
            toml::Value::Table(table) => !table.is_empty() || key == "control" || key == "service",
            toml::Value::Array(list) => !list.is_empty(),
            _ => true,
        });
        toml::to_string(&table).map_err(|error| PartitionRequestError::Syntax(error.to_string()))
    }
}

/// Largest size of memory in a request, MiB or KiB. Sums of several stay within 64 bits, and within the integers of TOML.
const SIZE_MAX: u64 = 1 << 40;

fn size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    match u64::deserialize(deserializer)? {
        size if size <= SIZE_MAX => Ok(size),
        size => Err(de::Error::custom(format_args!(
            "{size} is too large (at most {SIZE_MAX})"
        ))),
    }
}

fn optional_size<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

/// Formats an error of the TOML parser with line and key.
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
    fn requests_survive_being_written_and_read() {
        let text = "[service]\n[forwarding]\ncpus = \"3-5\"\nsiblings = \"forward\"\n[[guest]]\nname = \"a\"\ncpus = 2\n";
        let request = PartitionRequest::parse(text).unwrap();
        assert_eq!(
            request.forwarding.cpus,
            Some(CpuRequest::These("3-5".parse().unwrap()))
        );
        let written = request.to_toml().unwrap();
        assert_eq!(PartitionRequest::parse(&written), Ok(request));
        assert!(
            !written.contains("neighbour") && !written.contains("[host]"),
            "{written}"
        );
        let error = PartitionRequest::parse("[forwarding]\ncpu = 3\n")
            .unwrap_err()
            .to_string();
        assert!(error.contains("cpu") && error.contains("line 2"), "{error}");
        assert!(
            error.starts_with("line 2, key 'forwarding.cpu': "),
            "{error}"
        );
    }

    #[test]
    fn sizes_that_exceed_the_limit_are_refused() {
        for (section, key) in [
            ("[[guest]]", "memory-mib"),
            ("[forwarding]", "memory-mib"),
            ("[machine]", "huge-page-kib"),
        ] {
            let request =
                |size: u64| PartitionRequest::parse(&format!("{section}\n{key} = {size}\n"));
            let largest = request(SIZE_MAX).unwrap();
            let written = largest.to_toml().unwrap();
            assert_eq!(PartitionRequest::parse(&written), Ok(largest));
            for size in [SIZE_MAX + 1, u64::MAX] {
                let error = request(size).unwrap_err().to_string();
                assert!(error.starts_with("line 2, key '"), "{error}");
                assert!(error.contains(&format!("{size} is too large")), "{error}");
            }
        }
    }
}
