// SPDX-License-Identifier: Apache-2.0
//! `DataPlane`: bridges, ports, VRFs, interfaces, routes, connection tracking, filter rules, NAT, load balancers and steering rules of the
//! switch on nodes.

// Each printed column has a type, often the same.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::connections::ConnectionTracking;
use super::selector::selects;
use super::services::{LoadBalancer, Nat, Route, SteeringRule};

/// Configuration of the switch on the nodes that the selector matches.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quietwire.io",
    version = "v1alpha1",
    kind = "DataPlane",
    status = "DataPlaneStatus",
    derive = "PartialEq",
    shortname = "qdp",
    category = "quietwire",
    doc = "Ports, bridges, router, filter rules, NAT, load balancers and steering rules of the switch on nodes",
    printcolumn(name = "Selected", type_ = "integer", json_path = ".status.selected"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.ready"),
    printcolumn(
        name = "Configured",
        type_ = "integer",
        json_path = ".status.configured"
    ),
    printcolumn(name = "Failed", type_ = "integer", json_path = ".status.failed"),
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
    },
    {
        "rule": "!has(self.ports) || self.ports.all(p, !has(p.bridge) || (has(self.bridges) && self.bridges.exists(b, b.name == p.bridge)))",
        "message": "a port names a bridge that bridges does not contain"
    },
    {
        "rule": "!has(self.interfaces) || self.interfaces.all(i, !has(i.port) || (has(self.ports) && self.ports.exists(p, p.name == i.port && !has(p.bridge))))",
        "message": "an interface names a port that ports does not contain, or that is in a bridge"
    },
    {
        "rule": "!has(self.interfaces) || self.interfaces.all(i, !has(i.bridge) || (has(self.bridges) && self.bridges.exists(b, b.name == i.bridge)))",
        "message": "an interface names a bridge that bridges does not contain"
    },
    {
        "rule": "!has(self.interfaces) || self.interfaces.all(i, !has(i.vrf) || (has(self.vrfs) && self.vrfs.exists(v, v.name == i.vrf)))",
        "message": "an interface names a VRF that vrfs does not contain"
    },
    {
        "rule": "!has(self.routes) || self.routes.all(r, !has(r.vrf) || r.vrf == 'main' || (has(self.vrfs) && self.vrfs.exists(v, v.name == r.vrf)))",
        "message": "a route names a VRF that vrfs does not contain"
    },
    {
        "rule": "!has(self.nats) || self.nats.all(n, has(self.interfaces) && self.interfaces.exists(i, i.name == n.interface))",
        "message": "a NAT names an interface that interfaces does not contain"
    },
    {
        "rule": "!has(self.steering) || self.steering.all(s, has(self.ports) && self.ports.exists(p, p.name == s.port))",
        "message": "a steering rule names a port that ports does not contain"
    },
    {
        "rule": "!has(self.connections) || (has(self.connections.enabled) && !self.connections.enabled) || !has(self.loadBalancers) || self.loadBalancers.all(b, !has(b.directReturn) || !b.directReturn)",
        "message": "connection tracking does not follow load balancers with directReturn"
    },
    {
        "rule": "!has(self.connections) || (has(self.connections.enabled) && !self.connections.enabled) || !has(self.nats) || self.nats.all(n, !has(n.nat64))",
        "message": "connection tracking does not follow nat64"
    }
]))]
pub struct DataPlaneSpec {
    /// Labels of the nodes. A node must have all of them.
    #[schemars(extend("maxProperties" = 16))]
    pub node_selector: BTreeMap<String, String>,
    /// Forwarding CPUs, a list like 2-3,8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024), regex(pattern = "^[0-9,-]+$"))]
    pub forwarding_cpus: Option<String>,
    /// Bridges.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub bridges: Vec<Bridge>,
    /// Ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub ports: Vec<Port>,
    /// Routing tables beside the main one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub vrfs: Vec<Vrf>,
    /// Interfaces of the router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub interfaces: Vec<Interface>,
    /// Connection tracking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<ConnectionTracking>,
    /// Filter rules, as in the file of `quietwire switch rules replace` (TOML).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16_384))]
    pub rules: Option<String>,
    /// Static routes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub routes: Vec<Route>,
    /// Instances of NAT.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub nats: Vec<Nat>,
    /// Load balancers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub load_balancers: Vec<LoadBalancer>,
    /// Steering rules, of which the first matching one applies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steering: Vec<SteeringRule>,
}

/// A bridge.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bridge {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.vlan) || has(self.bridge)",
        "message": "vlan requires bridge"
    }
]))]
pub struct Port {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Its URI, as in `quietwire switch add port`.
    #[schemars(length(min = 3, max = 1024), regex(pattern = "^[a-z][a-z0-9-]*:"))]
    pub uri: String,
    /// Its bridge. Default: none, so the port drops all frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub bridge: Option<String>,
    /// Its VLAN in a VLAN-aware bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
}

/// A routing table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.name != 'main'",
        "message": "the VRF main always exists"
    }
]))]
pub struct Vrf {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Routing table of the kernel whose routes it imports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub kernel_table: Option<u32>,
}

/// An interface of the router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.port) == has(self.bridge))",
        "message": "an interface requires either port or bridge"
    }
]))]
pub struct Interface {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Its port, which is in no bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub port: Option<String>,
    /// Its bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub bridge: Option<String>,
    /// Its VLAN.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// Its addresses, each with the length of the prefix of its link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 43)))]
    pub addresses: Vec<String>,
    /// Its VRF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub vrf: Option<String>,
    /// Largest IP packet, octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68))]
    pub mtu: Option<u16>,
}

/// A change that the switch refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RejectedChange {
    /// The object: `bridge lan`, `port left`, `route 10.0.0.0/8`, `connections` or `rules`.
    #[schemars(length(max = 1024))]
    pub object: String,
    /// Message of the switch.
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// A change that the switch of a node refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRejection {
    /// Name of the node.
    pub node: String,
    /// The object.
    #[schemars(length(max = 1024))]
    pub object: String,
    /// Message of the switch.
    #[schemars(length(max = 1024))]
    pub message: String,
}

/// Summary of the reports of all selected nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataPlaneStatus {
    /// Generation of the resource to which the summary belongs.
    #[serde(default)]
    pub observed_generation: i64,
    /// Number of selected nodes.
    #[serde(default)]
    pub selected: u32,
    /// Number of nodes whose switch replies.
    #[serde(default)]
    pub ready: u32,
    /// Number of these nodes by version, for at most 8 versions.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 8))]
    pub versions: BTreeMap<String, u32>,
    /// Number of nodes whose switch has all objects.
    #[serde(default)]
    pub configured: u32,
    /// Number of nodes whose switch refused a change.
    #[serde(default)]
    pub failed: u32,
    /// First refused changes, at most one of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub rejected: Vec<NodeRejection>,
}

impl DataPlaneSpec {
    /// Returns whether a node with these labels is selected. An empty selector selects no node.
    #[must_use]
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        selects(&self.node_selector, labels)
    }
}
