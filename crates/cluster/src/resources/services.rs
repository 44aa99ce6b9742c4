// SPDX-License-Identifier: Apache-2.0
//! Routes, NAT, load balancers and steering rules of a `DataPlane`. Their keys are those of the configuration file of the switch, in camel
//! case, and the tables of a list have the plural.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Type of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Forward.
    #[default]
    Unicast,
    /// Drop silently.
    Blackhole,
    /// Drop, and send ICMP host unreachable.
    Unreachable,
    /// Drop, and send ICMP communication administratively prohibited.
    Prohibit,
}

/// A static route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "isCIDR(self.prefix)",
        "message": "prefix is not a prefix like 10.0.0.0/8 or fd00::/8"
    },
    {
        "rule": "!(has(self.via) && size(self.via) > 0) == (has(self.kind) && self.kind != 'unicast')",
        "message": "a unicast route requires via, and routes of other kinds have none"
    }
]))]
pub struct Route {
    /// Destination prefix.
    #[schemars(length(max = 43))]
    pub prefix: String,
    /// Its VRF. Default: main.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub vrf: Option<String>,
    /// Type of the route. Default: unicast.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<RouteKind>,
    /// Next hops, which share the flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub via: Vec<NextHop>,
}

/// A next hop.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.address) || has(self.interface)",
        "message": "a next hop requires address, interface or both"
    }
]))]
pub struct NextHop {
    /// Address of the next router. Default: destinations are on the link.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub address: Option<String>,
    /// Outgoing interface. Default: the interface whose link contains the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub interface: Option<String>,
    /// Its share of the flows. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub weight: Option<u8>,
    /// Whether the address is on the link although no address of the interface covers it. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub onlink: Option<bool>,
}

/// Transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TransportProtocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

/// Mapping behaviour of NAT (RFC 4787, section 4.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NatMapping {
    /// The inside endpoint determines the external one.
    #[default]
    EndpointIndependent,
    /// The remote address does, too.
    AddressDependent,
    /// The remote address and port do, too.
    AddressAndPortDependent,
}

/// Filtering behaviour of NAT (RFC 4787, section 5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NatFiltering {
    /// All remote hosts reach a mapping.
    #[default]
    EndpointIndependent,
    /// Remote hosts to whose addresses the inside endpoint has sent packets reach a mapping.
    AddressDependent,
}

/// NAT at an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nat {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// The outside interface.
    #[schemars(length(max = 63))]
    pub interface: String,
    /// External addresses of one IP version. Default: the first IPv4 address of the interface.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), inner(length(max = 39)))]
    pub addresses: Vec<String>,
    /// Prefixes of inside hosts. Default: all packets from other interfaces.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 43)))]
    pub sources: Vec<String>,
    /// External ports, a range. Default: 1024-65535.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 11), regex(pattern = "^[0-9]+-[0-9]+$"))]
    pub ports: Option<String>,
    /// Ports of a block. Default: 512.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub block_size: Option<u16>,
    /// Maximum number of blocks of a host. Default: 8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 8))]
    pub blocks_per_host: Option<u8>,
    /// Maximum number of mappings, without published ports. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_mappings: Option<u32>,
    /// Maximum number of hosts with mappings. Default: 4096.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_hosts: Option<u32>,
    /// Mapping behaviour. Default: endpoint-independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mapping: Option<NatMapping>,
    /// Filtering behaviour. Default: endpoint-independent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filtering: Option<NatFiltering>,
    /// Timeouts of mappings without packets from the inside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<NatTimeouts>,
    /// Translation between IPv6 clients and IPv4 servers. Default: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nat64: Option<Nat64>,
    /// Published ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub publish: Vec<PublishedPort>,
    /// Inside hosts with an external address of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256))]
    pub one_to_one: Vec<AddressPair>,
}

/// Timeouts of mappings, seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NatTimeouts {
    /// UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub udp: Option<u32>,
    /// TCP with packets in both directions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tcp_established: Option<u32>,
    /// TCP that opens or closes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub tcp_transitory: Option<u32>,
    /// ICMP echoes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub icmp: Option<u32>,
}

/// Translation between IPv6 clients and IPv4 servers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Nat64 {
    /// Prefix of IPv4 hosts (RFC 6052).
    #[schemars(length(max = 43))]
    pub prefix: String,
    /// Prefixes of clients. Default: all hosts that reach the router.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 43)))]
    pub clients: Vec<String>,
    /// Whether clients reach private IPv4 addresses. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_servers: Option<bool>,
    /// Longest IPv6 packet made of an IPv4 packet that may be fragmented, octets. Default: 1280.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1280))]
    pub mtu: Option<u16>,
}

/// An inside endpoint that an external port reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PublishedPort {
    /// Protocol.
    pub protocol: TransportProtocol,
    /// External port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Inside endpoint, like 10.0.0.5:80.
    #[schemars(length(max = 47))]
    pub to: String,
    /// External address. Default: the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 39))]
    pub address: Option<String>,
}

/// An inside host with an external address of its own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AddressPair {
    /// Inside address.
    #[schemars(length(max = 15))]
    pub inside: String,
    /// External address.
    #[schemars(length(max = 15))]
    pub outside: String,
}

/// A load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancer {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Protocol. Default: tcp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<TransportProtocol>,
    /// Virtual address.
    #[schemars(length(max = 39))]
    pub address: String,
    /// Virtual port.
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Maximum number of connections. Default: 65536.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub max_connections: Option<u32>,
    /// Whether backends answer clients directly. Default: false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direct_return: Option<bool>,
    /// Backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 256), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["to"]))]
    pub backends: Vec<Backend>,
}

/// State of a backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum BackendState {
    /// It gets new connections.
    #[default]
    Up,
    /// It keeps its connections, and gets no new ones.
    Draining,
    /// It gets nothing.
    Down,
}

/// A backend of a load balancer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// Its endpoint, like 10.0.0.5:80.
    #[schemars(length(max = 47))]
    pub to: String,
    /// Its share of new connections. Default: 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub weight: Option<u32>,
    /// Its state. Default: up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<BackendState>,
}

/// Destination of steered frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum SteeringTarget {
    /// The port of the switch.
    #[default]
    Switch,
    /// The network stack of the kernel.
    Kernel,
    /// A virtual function of the card.
    VirtualFunction,
}

/// A steering rule. Keys that are absent match every frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.virtualFunction) == (self.to == 'virtual-function')",
        "message": "virtualFunction requires the target virtual-function, which requires it"
    }
]))]
pub struct SteeringRule {
    /// Its name.
    #[schemars(length(max = 63), regex(pattern = "^[A-Za-z0-9_.-]+$"))]
    pub name: String,
    /// Port whose frames are steered.
    #[schemars(length(max = 63))]
    pub port: String,
    /// Destination of matching frames.
    pub to: SteeringTarget,
    /// Port on a tap of the kernel, for a port that does not steer by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub kernel_port: Option<String>,
    /// Receive queue to which the card delivers the frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u16>,
    /// Number of the virtual function to which the card delivers the frames.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 254))]
    pub virtual_function: Option<u16>,
    /// Source MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"))]
    pub source_mac: Option<String>,
    /// Destination MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 17), regex(pattern = "^([0-9a-f]{2}:){5}[0-9a-f]{2}$"))]
    pub destination_mac: Option<String>,
    /// VLAN of the outermost tag.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4094))]
    pub vlan: Option<u16>,
    /// EtherType, a name like lldp or a number like 0x88cc.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub ethertype: Option<String>,
    /// IP protocol, a name like tcp or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 16))]
    pub protocol: Option<String>,
    /// Source prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 43))]
    pub source: Option<String>,
    /// Destination prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 43))]
    pub destination: Option<String>,
    /// Source port or range of ports, like 5000-5010.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 11), regex(pattern = "^[0-9]+(-[0-9]+)?$"))]
    pub source_port: Option<String>,
    /// Destination port or range of ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 11), regex(pattern = "^[0-9]+(-[0-9]+)?$"))]
    pub destination_port: Option<String>,
}
