// SPDX-License-Identifier: Apache-2.0
//! `Network`: a secondary network of pods, attached to a bridge of the switch, with its addresses.

// Each printed column has a type, often the same.
#![allow(clippy::duplicated_attributes)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A secondary network of pods.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quietwire.io",
    version = "v1alpha1",
    kind = "Network",
    namespaced,
    status = "NetworkStatus",
    derive = "PartialEq",
    shortname = "qnet",
    category = "quietwire",
    doc = "Secondary network of pods on a bridge of the switch, with its addresses",
    printcolumn(name = "Bridge", type_ = "string", json_path = ".spec.bridge"),
    printcolumn(name = "VLAN", type_ = "integer", json_path = ".spec.vlan"),
    printcolumn(name = "VRF", type_ = "string", json_path = ".spec.vrf"),
    printcolumn(name = "Problem", type_ = "string", json_path = ".status.problem")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!has(self.reservations) || self.reservations.all(r, has(self.ranges) && self.ranges.exists(a, cidr(a.subnet).containsIP(r.address)))",
        "message": "a reservation is in no subnet of ranges"
    },
    { "rule": "!has(self.routes) || has(self.ranges)", "message": "routes require ranges" },
    {
        "rule": "!has(self.port) || self.port in ['veth', 'tap'] || has(self.resource)",
        "message": "a port of the kind memif, vhost-user or host-device requires resource"
    },
    {
        "rule": "!has(self.port) || self.port in ['veth', 'tap'] || !has(self.mtu)",
        "message": "only ports of the kinds veth and tap have an mtu"
    },
    {
        "rule": "!(has(self.port) && self.port == 'host-device') == has(self.bridge)",
        "message": "bridge is required, but ports of the kind host-device have none"
    },
    { "rule": "!has(self.vlan) || has(self.bridge)", "message": "vlan requires bridge" },
    { "rule": "!has(self.vrf) || has(self.bridge)", "message": "vrf requires bridge" }
]))]
pub struct NetworkSpec {
    /// Bridge of the switch. Required, except for ports of the kind host-device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub bridge: Option<String>,
    /// VLAN in a VLAN-aware bridge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// VRF of an interface on the bridge, which a DataPlane has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub vrf: Option<String>,
    /// MTU of interfaces, octets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 68))]
    pub mtu: Option<u16>,
    /// Kind of the port of a pod. Default: a veth pair.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<NetworkPort>,
    /// Ranges of addresses. Default: none, so pods get the addresses that they request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub ranges: Vec<Range>,
    /// Addresses that are kept for a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["address"]))]
    pub reservations: Vec<Reservation>,
    /// Routes of pods through the network, in addition to those to its subnets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub routes: Vec<NetworkRoute>,
    /// Resource of the device plugin that each pod of the network requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(min = 1, max = 40),
        regex(pattern = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?$")
    )]
    pub resource: Option<String>,
}

/// State of a network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// Generation of the resource to which the state belongs.
    #[serde(default)]
    pub observed_generation: i64,
    /// Problem of the pods of the network. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub problem: Option<String>,
}

/// Kind of the port of a pod. Default: a veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkPort {
    /// A pair of kernel interfaces, whose far end is in the pod.
    Veth,
    /// A tap of the kernel in the pod, whose frames the switch reads and writes.
    Tap,
    /// The memif socket of the device that the pod has of the network's resource.
    Memif,
    /// The vhost-user socket of the device that the pod has of the network's resource.
    VhostUser,
    /// No port of the switch: the interface of the virtual function that the pod has of the network's resource.
    HostDevice,
}

/// A range of addresses in a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "isCIDR(self.subnet)", "message": "subnet is not a prefix like 10.66.0.0/24 or fd00:66::/64" },
    { "rule": "!isCIDR(self.subnet) || cidr(self.subnet) == cidr(self.subnet).masked()", "message": "subnet has bits beyond its prefix length" },
    { "rule": "!isCIDR(self.subnet) || !has(self.first) || (isIP(self.first) && cidr(self.subnet).containsIP(self.first))", "message": "first is not in subnet" },
    { "rule": "!isCIDR(self.subnet) || !has(self.last) || (isIP(self.last) && cidr(self.subnet).containsIP(self.last))", "message": "last is not in subnet" },
    { "rule": "!isCIDR(self.subnet) || !has(self.gateway) || (isIP(self.gateway) && cidr(self.subnet).containsIP(self.gateway))", "message": "gateway is not in subnet" }
]))]
pub struct Range {
    /// The subnet (`10.66.0.0/24`).
    #[schemars(length(max = 43))]
    pub subnet: String,
    /// First address. Default: the first of the subnet after the network address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub first: Option<String>,
    /// Last address. Default: the last of the subnet before the broadcast address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub last: Option<String>,
    /// Gateway of the subnet. No pod gets this address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub gateway: Option<String>,
}

/// A route of pods through the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "isCIDR(self.destination)", "message": "destination is not a prefix like 10.0.0.0/8 or fd00::/8" },
    { "rule": "!has(self.gateway) || isIP(self.gateway)", "message": "gateway is no IP address" }
]))]
pub struct NetworkRoute {
    /// Destination prefix (`10.0.0.0/8`).
    #[schemars(length(max = 43))]
    pub destination: String,
    /// Next hop. Default: the gateway of a range of the same family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub gateway: Option<String>,
}

/// An address that is kept for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    { "rule": "isIP(self.address)", "message": "address is no IP address" }
]))]
pub struct Reservation {
    /// The address.
    #[schemars(length(max = 39))]
    pub address: String,
    /// Name of the pod, in the namespace of the network.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// MAC address of the interface. Default: chosen by the plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"))]
    pub mac: Option<String>,
}
