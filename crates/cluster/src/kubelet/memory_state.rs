// SPDX-License-Identifier: Apache-2.0
//! State file of kubelet's memory manager (`memory_manager_state`, JSON).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::file::{self, KubeletFileError};

/// Policy of the memory manager that gives memory of NUMA nodes to containers.
pub const STATIC_MEMORY: &str = "Static";
/// Resources of huge pages, followed by the size of a page.
const HUGE_PAGES: &str = "hugepages-";
/// Units of sizes, and their KiB.
const UNITS: [(&str, u64); 3] = [("Ki", 1), ("Mi", 1024), ("Gi", 1024 * 1024)];

/// Memory that kubelet has recorded. kubelet does not start if the machine has another amount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemoryManagerState {
    /// Policy with which kubelet wrote the file.
    pub policy: String,
    /// KiB of each pool of huge pages, by NUMA node and size of a page in KiB.
    pub huge_pages: BTreeMap<(u32, u64), u64>,
    /// Memory and huge pages, by NUMA node and resource (`memory`, `hugepages-2Mi`).
    pub memory: BTreeMap<(u32, String), NodeMemory>,
}

/// Memory of one kind of a NUMA node, octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct NodeMemory {
    /// All of it.
    #[serde(default)]
    pub total: u64,
    /// Memory that is not reserved for the system.
    #[serde(default)]
    pub allocatable: u64,
    /// Allocatable memory that no container has.
    #[serde(default)]
    pub free: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    policy_name: String,
    #[serde(default)]
    machine_state: Option<BTreeMap<String, Node>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    #[serde(default)]
    memory_map: Option<BTreeMap<String, NodeMemory>>,
}

/// Returns the size of a page of a resource, KiB. `None` for resources that are no huge pages.
fn page_kib(resource: &str) -> Option<u64> {
    let size = resource.strip_prefix(HUGE_PAGES)?;
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, kib)| Some((size.strip_suffix(*suffix)?, *kib)))?;
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

impl MemoryManagerState {
    /// Reads the state file. `None` if it does not exist.
    ///
    /// # Errors
    /// [`KubeletFileError`].
    pub fn read(path: &Path) -> Result<Option<Self>, KubeletFileError> {
        file::parsed(path, Self::parse)
    }

    /// Parses the text of a state file.
    ///
    /// # Errors
    /// The problem.
    pub fn parse(text: &str) -> Result<Self, String> {
        let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
        let (mut huge_pages, mut of_nodes) = (BTreeMap::new(), BTreeMap::new());
        for (number, node) in file.machine_state.unwrap_or_default() {
            let number: u32 = number
                .parse()
                .map_err(|_| format!("machineState: '{number}' is no NUMA node"))?;
            for (resource, memory) in node.memory_map.unwrap_or_default() {
                if let Some(page_kib) = page_kib(&resource) {
                    huge_pages.insert((number, page_kib), memory.total / 1024);
                }
                of_nodes.insert((number, resource), memory);
            }
        }
        Ok(Self {
            policy: file.policy_name,
            huge_pages,
            memory: of_nodes,
        })
    }
}
