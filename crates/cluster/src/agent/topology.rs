// SPDX-License-Identifier: Apache-2.0
//! Contents of a `NodeResourceTopology`: CPUs, memory, huge pages and devices of each NUMA node, as kubelet may give them to containers.

use std::collections::{BTreeMap, BTreeSet};

use quietwire_host::inventory::{Inventory, NumaNode};
use serde_json::{Value, json};

use crate::devices::{DeviceCounts, Resource};
use crate::kubelet::{Kubelet, STATIC_MEMORY};

/// Resource of memory that is in no huge page.
const MEMORY: &str = "memory";

/// Devices of a resource, by NUMA node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ZoneDevices {
    /// Name of the resource.
    pub(super) resource: String,
    /// Numbers of devices.
    pub(super) nodes: BTreeMap<u32, DeviceCounts>,
}

/// Counts the devices of resources. `used` are the devices of all containers: names of resources and IDs.
pub(super) fn count(resources: &[Resource], used: &BTreeSet<(String, String)>) -> Vec<ZoneDevices> {
    let all = resources.iter();
    all.map(|resource| ZoneDevices {
        resource: resource.name(),
        nodes: resource.count(used),
    })
    .collect()
}

/// Returns the name of a policy of the topology manager that schedulers read.
fn policy(kubelet: &Kubelet) -> &'static str {
    let configuration = &kubelet.configuration;
    let is_of_pods = configuration.topology_manager_scope == "pod";
    match (configuration.topology_manager_policy.as_str(), is_of_pods) {
        ("single-numa-node", false) => "SingleNUMANodeContainerLevel",
        ("single-numa-node", true) => "SingleNUMANodePodLevel",
        ("restricted", false) => "RestrictedContainerLevel",
        ("restricted", true) => "RestrictedPodLevel",
        ("best-effort", false) => "BestEffortContainerLevel",
        ("best-effort", true) => "BestEffortPodLevel",
        _ => "None",
    }
}

/// Returns a resource of a zone.
fn resource(name: &str, capacity: &str, allocatable: &str, available: &str) -> Value {
    json!({ "name": name, "capacity": capacity, "allocatable": allocatable, "available": available })
}

/// Returns the CPUs of a NUMA node. `None` if the kernel does not show them.
fn cpus(node: &NumaNode, kubelet: &Kubelet) -> Option<Value> {
    let capacity = node.cpus.as_ref()?;
    let allocatable = capacity.difference(&kubelet.configuration.reserved);
    let claims = kubelet.claims.iter();
    let available = claims.fold(allocatable.clone(), |left, claim| {
        left.difference(&claim.cpus)
    });
    let [capacity, allocatable, available] =
        [capacity, &allocatable, &available].map(|cpus| cpus.len().to_string());
    Some(resource("cpu", &capacity, &allocatable, &available))
}

/// Returns the name of a resource of huge pages, as kubelet has it: `hugepages-2Mi`.
fn of_pages(page_kib: u64) -> String {
    match page_kib {
        kib if kib.is_multiple_of(1_048_576) => format!("hugepages-{}Gi", kib / 1_048_576),
        kib if kib.is_multiple_of(1024) => format!("hugepages-{}Mi", kib / 1024),
        kib => format!("hugepages-{kib}Ki"),
    }
}

/// Returns memory and huge pages of a NUMA node, as kubelet's memory manager has them. Without its policy `Static`, kubelet assigns no memory
/// of NUMA nodes: the memory is then that of the kernel, and available huge pages are the free ones.
fn memory(node: &NumaNode, kubelet: &Kubelet) -> Vec<Value> {
    let state = kubelet.memory_state.as_ref();
    if let Some(state) = state.filter(|state| state.policy == STATIC_MEMORY) {
        let of_node = state
            .memory
            .iter()
            .filter(|((number, _), _)| *number == node.node);
        return of_node
            .map(|((_, name), memory)| {
                let [capacity, allocatable, available] =
                    [memory.total, memory.allocatable, memory.free]
                        .map(|octets| octets.to_string());
                resource(name, &capacity, &allocatable, &available)
            })
            .collect();
    }
    let in_pages_kib = node.huge_pages.iter().fold(0_u64, |sum, pool| {
        sum.saturating_add(pool.total.saturating_mul(pool.page_kib))
    });
    let mut all = Vec::new();
    if let Some(mib) = node.memory_mib {
        let total_kib = mib.saturating_mul(1024);
        let [total, free] =
            [total_kib, total_kib.saturating_sub(in_pages_kib)].map(|kib| format!("{kib}Ki"));
        all.push(resource(MEMORY, &total, &free, &free));
    }
    for pool in &node.huge_pages {
        let [total, free] = [pool.total, pool.free]
            .map(|pages| format!("{}Ki", pages.saturating_mul(pool.page_kib)));
        all.push(resource(&of_pages(pool.page_kib), &total, &total, &free));
    }
    all
}

/// Returns the devices of a NUMA node.
fn of_node(node: &NumaNode, devices: &[ZoneDevices]) -> Vec<Value> {
    let counted = devices.iter().filter_map(|devices| {
        let counts = devices.nodes.get(&node.node)?;
        let [capacity, allocatable, available] =
            [counts.capacity, counts.allocatable, counts.available].map(|count| count.to_string());
        Some(resource(
            &devices.resource,
            &capacity,
            &allocatable,
            &available,
        ))
    });
    counted.collect()
}

/// Returns policies, attributes and zones of a `NodeResourceTopology`. `None` if the kernel does not show the CPUs of NUMA nodes.
pub(super) fn topology(
    inventory: &Inventory,
    kubelet: &Kubelet,
    devices: &[ZoneDevices],
) -> Option<Value> {
    let configuration = &kubelet.configuration;
    let nodes = &inventory.nodes;
    let mut zones = Vec::new();
    for node in nodes {
        let mut resources = vec![cpus(node, kubelet)?];
        resources.extend(memory(node, kubelet));
        resources.extend(of_node(node, devices));
        // A distance belongs to the node in the same place of the list.
        let costs: Vec<Value> = nodes
            .iter()
            .zip(&node.distances)
            .map(|(to, distance)| json!({ "name": format!("node-{}", to.node), "value": distance }))
            .collect();
        zones.push(json!({
            "name": format!("node-{}", node.node),
            "type": "Node",
            "costs": costs,
            "resources": resources,
        }));
    }
    if zones.is_empty() {
        return None;
    }
    Some(json!({
        "topologyPolicies": [policy(kubelet)],
        "attributes": [
            { "name": "topologyManagerPolicy", "value": configuration.topology_manager_policy },
            { "name": "topologyManagerScope", "value": configuration.topology_manager_scope },
        ],
        "zones": zones,
    }))
}

#[cfg(test)]
mod tests {
    use quietwire_host::inventory::HugePagePool;

    use super::super::export::tests::{inventory, kubelet};
    use super::*;
    use crate::kubelet::{MemoryManagerState, NodeMemory};

    /// Returns capacity, allocatable and available quantity of a resource of a zone. `None` if the zone lacks it.
    fn quantities(topology: &Value, zone: usize, name: &str) -> Option<[String; 3]> {
        let mut resources = topology["zones"][zone]["resources"]
            .as_array()
            .unwrap()
            .iter();
        let resource = resources.find(|it| it["name"] == name)?;
        let quantity = |key: &str| resource[key].as_str().unwrap().to_owned();
        Some(["capacity", "allocatable", "available"].map(quantity))
    }

    fn three(texts: [&str; 3]) -> Option<[String; 3]> {
        Some(texts.map(str::to_owned))
    }

    #[test]
    fn cpus_of_numa_nodes_are_those_that_kubelet_may_give() {
        let topology = topology(&inventory(), &kubelet("2-3,6"), &[]).unwrap();
        let policies = json!(["SingleNUMANodeContainerLevel"]);
        assert_eq!(topology["topologyPolicies"], policies);
        // CPUs 0 to 3, of which 0 is reserved and 2 and 3 are claimed.
        assert_eq!(quantities(&topology, 0, "cpu"), three(["4", "3", "1"]));
        // CPUs 4 to 7.
        assert_eq!(quantities(&topology, 1, "cpu"), three(["4", "2", "1"]));
        assert_eq!(topology["zones"][1]["name"], "node-1");
        assert_eq!(
            topology["zones"][0]["costs"][0],
            json!({ "name": "node-0", "value": 10 })
        );
        let unknown = super::topology(&Inventory::default(), &kubelet("2"), &[]);
        assert_eq!(unknown, None);
    }

    #[test]
    fn memory_of_numa_nodes_is_that_of_the_memory_manager_or_of_the_kernel() {
        let mut machine = inventory();
        machine.nodes[1].memory_mib = Some(4096);
        machine.nodes[1].huge_pages = vec![
            HugePagePool {
                page_kib: 2048,
                total: 512,
                free: 100,
            },
            HugePagePool {
                page_kib: 1_048_576,
                total: 1,
                free: 1,
            },
        ];
        let mut kubelet = kubelet("2");
        let of_kernel = topology(&machine, &kubelet, &[]).unwrap();
        let memory = three(["4194304Ki", "2097152Ki", "2097152Ki"]);
        assert_eq!(quantities(&of_kernel, 1, "memory"), memory);
        let pages = three(["1048576Ki", "1048576Ki", "204800Ki"]);
        assert_eq!(quantities(&of_kernel, 1, "hugepages-2Mi"), pages);
        let pages = three(["1048576Ki", "1048576Ki", "1048576Ki"]);
        assert_eq!(quantities(&of_kernel, 1, "hugepages-1Gi"), pages);

        let recorded = NodeMemory {
            total: 4000,
            allocatable: 3000,
            free: 2000,
        };
        kubelet.memory_state = Some(MemoryManagerState {
            policy: STATIC_MEMORY.to_owned(),
            memory: [((1, MEMORY.to_owned()), recorded)].into(),
            ..MemoryManagerState::default()
        });
        let of_kubelet = topology(&machine, &kubelet, &[]).unwrap();
        let memory = three(["4000", "3000", "2000"]);
        assert_eq!(quantities(&of_kubelet, 1, "memory"), memory);
        assert_eq!(quantities(&of_kubelet, 0, "memory"), None);
        assert_eq!(quantities(&of_kubelet, 1, "hugepages-2Mi"), None);
    }

    #[test]
    fn devices_of_numa_nodes_are_those_that_no_container_has() {
        let counts = DeviceCounts {
            capacity: 4,
            allocatable: 3,
            available: 2,
        };
        let devices = [ZoneDevices {
            resource: "quietwire.io/memif".to_owned(),
            nodes: [(1, counts)].into(),
        }];
        let topology = topology(&inventory(), &kubelet("2"), &devices).unwrap();
        let memif = "quietwire.io/memif";
        assert_eq!(quantities(&topology, 1, memif), three(["4", "3", "2"]));
        assert_eq!(quantities(&topology, 0, memif), None);
    }

    #[test]
    fn sizes_of_huge_pages_are_those_of_kubelet() {
        let names = [64, 2048, 1_048_576].map(of_pages);
        assert_eq!(names, ["hugepages-64Ki", "hugepages-2Mi", "hugepages-1Gi"]);
    }
}
