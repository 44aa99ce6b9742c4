// SPDX-License-Identifier: Apache-2.0
//! `NodePartition`: a partition request for the nodes that a selector matches, and the summary of their states.

// Each printed column has a type, often the same.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use kube::CustomResource;
use quietwire_host::partition::{
    CpuRequest, ForwardingRequest, GuestRequest, HostRequest, MachineRequest, NeighbourRequest,
    NicRequest, PartitionRequest, SiblingPolicy,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::cpus::{Cpus, MalformedCpus};
use super::selector::selects;

/// Label whose values are failure domains by default.
const ZONE: &str = "topology.kubernetes.io/zone";

fn failure_domain() -> String {
    ZONE.to_owned()
}

/// Partition of the nodes that the selector matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quietwire.io",
    version = "v1alpha1",
    kind = "NodePartition",
    status = "NodePartitionStatus",
    derive = "PartialEq",
    shortname = "qnp",
    category = "quietwire",
    doc = "Partition of CPUs, cache, memory and interrupts of nodes",
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.selected"),
    printcolumn(
        name = "Planned",
        type_ = "integer",
        json_path = ".status.counts.planned"
    ),
    printcolumn(
        name = "Applied",
        type_ = "integer",
        json_path = ".status.counts.applied"
    ),
    printcolumn(
        name = "Pending",
        type_ = "integer",
        json_path = ".status.counts.pendingReboot"
    ),
    printcolumn(
        name = "Verified",
        type_ = "integer",
        json_path = ".status.counts.verified"
    ),
    printcolumn(
        name = "Drifted",
        type_ = "integer",
        json_path = ".status.counts.drifted"
    ),
    printcolumn(
        name = "Failed",
        type_ = "integer",
        json_path = ".status.counts.failed"
    ),
    printcolumn(
        name = "Refused",
        type_ = "integer",
        json_path = ".status.counts.refused"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "size(self.nodeSelector) > 0",
        "message": "nodeSelector is empty: name at least one label, for example kubernetes.io/os: linux"
    }
]))]
pub struct NodePartitionSpec {
    /// Labels of the nodes. A node must have all of them.
    #[schemars(extend("maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// The partition request.
    #[serde(default)]
    pub request: Request,
    /// Order in which nodes change.
    #[serde(default)]
    pub rollout: Rollout,
}

/// Order in which nodes change: one failure domain after the other, in the order of their names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rollout {
    /// Label of nodes whose values are failure domains. Nodes without the label are one domain.
    #[serde(default = "failure_domain")]
    #[schemars(length(min = 1, max = 317))]
    pub failure_domain: String,
    /// Nodes that have not changed yet stay as they are.
    #[serde(default)]
    pub paused: bool,
}

impl Default for Rollout {
    fn default() -> Self {
        Self {
            failure_domain: failure_domain(),
            paused: false,
        }
    }
}

/// Partition request, as in `partition.toml`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.guests) || !has(self.neighbours) || self.guests.all(g, self.neighbours.all(n, g.name != n.name))",
        "message": "a guest and a neighbour have the same name"
    },
    {
        "rule": "(has(self.host) && has(self.host.cachePercent) ? self.host.cachePercent : 0) + (has(self.forwarding) && has(self.forwarding.cachePercent) ? self.forwarding.cachePercent : 0) <= 100",
        "message": "cachePercent of host and forwarding exceed 100"
    }
]))]
pub struct Request {
    /// Everything without another role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<Host>,
    /// Control threads of the data plane. Default: they share the host's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control: Option<Host>,
    /// Service threads of the data plane. Default: they share the host's CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Host>,
    /// Forwarding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Guests: virtual machines that kubelet does not manage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub guests: Vec<Guest>,
    /// Neighbours: other work that is kept away from forwarding and that kubelet does not manage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub neighbours: Vec<Neighbour>,
    /// Network cards that the data plane polls.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["pci"]))]
    pub nics: Vec<Nic>,
    /// Settings of the whole machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// CPUs and shares of the host, control or service role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Host {
    /// Its CPUs. For the host, this is a minimum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Its share of the last level cache, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub bandwidth_percent: Option<u8>,
}

/// Use of the other threads of forwarding cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SiblingUse {
    /// They stay idle.
    Idle,
    /// They forward as well.
    Forward,
}

/// Forwarding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Forwarding {
    /// Its CPUs. Default: one core for each network card, at least one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Use of the other threads of its cores. Default: idle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub siblings: Option<SiblingUse>,
    /// Its NUMA node. Default: the nodes of the network cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub cache_percent: Option<u8>,
    /// Its share of the memory bandwidth, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub bandwidth_percent: Option<u8>,
    /// Memory of the data plane on each of its nodes, MiB. Default: computed from the MTUs of the network cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_073_741_824))]
    pub memory_mib: Option<u64>,
}

/// One guest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Guest {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// CPUs for its virtual CPUs, one each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Its memory in huge pages, MiB.
    #[serde(default)]
    #[schemars(range(max = 1_073_741_824))]
    pub memory_mib: u64,
    /// Its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
}

/// One neighbour.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Neighbour {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_-]+$"))]
    pub name: String,
    /// Its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Cpus>,
    /// Its NUMA node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<u32>,
    /// Its share of the last level cache, percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub cache_percent: Option<u8>,
}

/// One network card.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nic {
    /// Its PCI address (`0000:3b:00.0`).
    #[schemars(
        length(max = 16),
        regex(pattern = "^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\\.[0-7]$")
    )]
    pub pci: String,
    /// Number of receive queues. Default: one for each forwarding CPU of its node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub queues: Option<u16>,
    /// Number of virtual functions. Default: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub functions: Option<u32>,
    /// MTU, octets. Default: 1500.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68))]
    pub mtu: Option<u16>,
}

/// Settings of the whole machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Machine {
    /// Size of huge pages, KiB.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 64, max = 1_073_741_824))]
    pub huge_page_kib: Option<u64>,
    /// Governor of isolated CPUs. Default: performance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 32))]
    pub governor: Option<String>,
    /// Whether the kernel command line also isolates forwarding and guest CPUs, after a reboot. Default: true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot_isolation: Option<bool>,
    /// Whether the kernel command line enables the IOMMU. Default: true if the data plane has network cards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iommu: Option<bool>,
}

/// State of a node.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    /// The plan is made. The node waits for other failure domains, or the rollout is paused.
    #[default]
    Planned,
    /// The plan is refused: it is not feasible, or collides with kubelet. Nothing is changed.
    Refused,
    /// A change failed.
    Failed,
    /// The changes are made. A check fails or is unknown.
    Applied,
    /// The changes at run time are made. Others require a reboot.
    PendingReboot,
    /// The changes are made, and no check fails.
    Verified,
    /// A check fails that passed before.
    Drifted,
}

/// A check of the verification that fails.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedCheck {
    /// Its name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Files that it reads.
    #[schemars(length(max = 1024))]
    pub file: String,
    /// Expected value.
    #[schemars(length(max = 1024))]
    pub expected: String,
    /// Observed value.
    #[schemars(length(max = 1024))]
    pub actual: String,
    /// Remedy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub remedy: Option<String>,
}

/// Number of nodes in each state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PhaseCounts {
    /// Nodes on which a check failed from the beginning.
    #[serde(default)]
    pub applied: u32,
    /// Nodes on which a check fails that passed before.
    #[serde(default)]
    pub drifted: u32,
    /// Nodes on which a change failed.
    #[serde(default)]
    pub failed: u32,
    /// Nodes with changes that require a reboot.
    #[serde(default)]
    pub pending_reboot: u32,
    /// Nodes that wait for their turn.
    #[serde(default)]
    pub planned: u32,
    /// Nodes that refuse the plan.
    #[serde(default)]
    pub refused: u32,
    /// Nodes on which no check fails.
    #[serde(default)]
    pub verified: u32,
}

/// A node that has not changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextNode {
    /// Name of the node.
    pub node: String,
    /// Its failure domain.
    #[serde(default)]
    pub domain: String,
}

/// A node that is refused, failed or drifted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedNode {
    /// Name of the node.
    pub node: String,
    /// Its state.
    pub phase: Phase,
    /// Reason of the state.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// Its first failing checks.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4))]
    pub checks: Vec<FailedCheck>,
}

/// Summary of the reports of all selected nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodePartitionStatus {
    /// Generation of the resource to which the summary belongs.
    #[serde(default)]
    pub observed_generation: i64,
    /// Number of selected nodes.
    #[serde(default)]
    pub selected: u32,
    /// Number of nodes in each state. Other nodes have not reported yet.
    #[serde(default)]
    pub counts: PhaseCounts,
    /// First node that has not changed, by failure domain and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<NextNode>,
    /// First nodes by name that are refused, failed or drifted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub failed: Vec<FailedNode>,
}

fn cpus(cpus: Option<&Cpus>, field: &str) -> Result<Option<CpuRequest>, MalformedCpus> {
    cpus.map(|cpus| cpus.to_request(field)).transpose()
}

impl Host {
    fn to_request(&self, name: &str) -> Result<HostRequest, MalformedCpus> {
        Ok(HostRequest {
            cpus: cpus(self.cpus.as_ref(), &format!("request.{name}.cpus"))?,
            cache_percent: self.cache_percent,
            bandwidth_percent: self.bandwidth_percent,
        })
    }
}

impl Forwarding {
    fn to_request(&self) -> Result<ForwardingRequest, MalformedCpus> {
        Ok(ForwardingRequest {
            cpus: cpus(self.cpus.as_ref(), "request.forwarding.cpus")?,
            siblings: match self.siblings {
                Some(SiblingUse::Forward) => SiblingPolicy::Forward,
                Some(SiblingUse::Idle) | None => SiblingPolicy::Idle,
            },
            node: self.node,
            cache_percent: self.cache_percent,
            bandwidth_percent: self.bandwidth_percent,
            memory_mib: self.memory_mib,
            ..ForwardingRequest::default()
        })
    }
}

impl Guest {
    fn to_request(&self) -> Result<GuestRequest, MalformedCpus> {
        let field = format!("request.guests[{}].cpus", self.name);
        Ok(GuestRequest {
            name: self.name.clone(),
            cpus: cpus(self.cpus.as_ref(), &field)?,
            memory_mib: self.memory_mib,
            node: self.node,
            ..GuestRequest::default()
        })
    }
}

impl Neighbour {
    fn to_request(&self) -> Result<NeighbourRequest, MalformedCpus> {
        let field = format!("request.neighbours[{}].cpus", self.name);
        Ok(NeighbourRequest {
            name: self.name.clone(),
            cpus: cpus(self.cpus.as_ref(), &field)?,
            node: self.node,
            cache_percent: self.cache_percent,
            ..NeighbourRequest::default()
        })
    }
}

impl Request {
    /// Returns the partition request for the planner.
    ///
    /// # Errors
    /// [`MalformedCpus`].
    pub fn to_request(&self) -> Result<PartitionRequest, MalformedCpus> {
        let shared = |host: &Option<Host>, name: &str| {
            host.as_ref().map(|host| host.to_request(name)).transpose()
        };
        let forwarding = self.forwarding.as_ref().map(Forwarding::to_request);
        let machine = self.machine.clone().unwrap_or_default();
        let nics = self.nics.iter().map(|nic| NicRequest {
            pci: nic.pci.clone(),
            queues: nic.queues,
            functions: nic.functions,
            mtu: nic.mtu,
        });
        Ok(PartitionRequest {
            host: shared(&self.host, "host")?.unwrap_or_default(),
            control: shared(&self.control, "control")?,
            service: shared(&self.service, "service")?,
            forwarding: forwarding.transpose()?.unwrap_or_default(),
            guests: self
                .guests
                .iter()
                .map(Guest::to_request)
                .collect::<Result<_, _>>()?,
            neighbours: self
                .neighbours
                .iter()
                .map(Neighbour::to_request)
                .collect::<Result<_, _>>()?,
            nics: nics.collect(),
            machine: MachineRequest {
                huge_page_kib: machine.huge_page_kib,
                governor: machine.governor,
                boot_isolation: machine.boot_isolation,
                iommu: machine.iommu,
            },
        })
    }
}

impl NodePartitionSpec {
    /// Returns whether a node with these labels is selected. An empty selector selects no node.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        selects(&self.node_selector, labels)
    }
}
