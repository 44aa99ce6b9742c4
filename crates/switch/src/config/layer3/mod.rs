// SPDX-License-Identifier: Apache-2.0
//! Layer 3 as it is asked for: virtual routing and forwarding tables (VRFs), interfaces on ports, VLANs and bridges,
//! static routes and neighbours.

mod change;
mod kernel_filter;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::kernel_filter::KernelFilterSetting;

pub use super::place::Placed;
pub(super) use plan::plan;

/// The VRF of interfaces that name none. It is always there.
pub const VRF_MAIN: &str = "main";

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VrfSetting {
    /// Its name; `main` is there always, and named only to say more about it.
    pub name: String,
    /// The kernel's routing table whose routes it follows; none when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_table: Option<u32>,
}

/// Whether a source address has to have a way back (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Urpf {
    /// It need not.
    #[default]
    Off,
    /// Some way (RFC 3704, section 2.4).
    Loose,
    /// One through the interface that the packet came in on (RFC 3704, section 2.2).
    Strict,
}

/// An interface of the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct InterfaceSetting {
    /// Its name.
    pub name: String,
    /// The port that it is on. Either this or a bridge.
    pub port: Option<String>,
    /// The bridge that it is on.
    pub bridge: Option<String>,
    /// The VLAN whose frames are its own; untagged ones when not said.
    pub vlan: Option<VlanId>,
    /// Its addresses, each with the length of the prefix of its link.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Its VRF; `main` when not said.
    pub vrf: Option<String>,
    /// Its MAC address; made of its place when not said.
    pub mac: Option<MacAddress>,
    /// Largest IP packet, octets; 1500 when not said.
    pub mtu: Option<u16>,
    /// The check of source addresses.
    pub urpf: Option<Urpf>,
    /// Name of a tap that the kernel is given, with the interface's addresses: packets to the router itself go there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
}

/// One way of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ViaSetting {
    /// The router at the other end; none where the destination itself is on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// The interface; the one whose link has the address when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its share of the flows, 1 to 255; 1 when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// The router is on the interface's link although no address of the interface says so.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
}

/// What becomes of packets to a prefix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// They go on.
    #[default]
    Unicast,
    /// They are dropped in silence.
    Blackhole,
    /// They are dropped, and their sender is told that there is no way (RFC 1812, section 5.2.7.1).
    Unreachable,
    /// They are dropped, and their sender is told that it may not (RFC 1812, section 5.2.7.1, code 13).
    Prohibit,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RouteSetting {
    /// The destinations.
    pub prefix: IpNet,
    /// The VRF; `main` when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// What becomes of packets; they go on when not said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<RouteKind>,
    /// Where they go on. More than one share the flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<ViaSetting>,
}

/// A neighbour that is not asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct NeighbourSetting {
    /// The interface.
    pub interface: String,
    /// Its IP address.
    pub address: IpAddr,
    /// Its MAC address.
    pub mac: MacAddress,
}

/// Where an interface is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// A port, by its place in the plan.
    Port(usize),
    /// A bridge, by its name.
    Bridge(String),
}

/// An interface to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Its name.
    pub name: String,
    /// Where it is.
    pub on: Attachment,
    /// The VLAN whose frames are its own.
    pub vlan: Option<VlanId>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Its VRF: a place in [`Layer3Plan::vrfs`].
    pub vrf: usize,
    /// Its MAC address, where that was said.
    pub mac: Option<MacAddress>,
    /// Largest IP packet, octets.
    pub mtu: u16,
    /// The check of source addresses.
    pub urpf: Urpf,
    /// Name of the kernel's tap.
    pub kernel: Option<String>,
}

/// Everything at layer 3 that the control thread makes anew at each change. Routes and neighbours, of which there can be
/// millions, are not among it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer3Plan {
    /// Names of VRFs; the first is the main one.
    pub vrfs: Vec<String>,
    /// The kernel's table that each of them follows.
    pub kernel_tables: Vec<Option<u32>>,
    /// Interfaces.
    pub interfaces: Vec<InterfacePlan>,
    /// What the kernel gets beside what is for the router itself.
    pub kernel_filters: Vec<KernelFilterSetting>,
}

/// What interfaces can be on.
pub(super) struct Places<'plan> {
    /// Names of ports, in the order of the plan.
    pub(super) ports: &'plan [&'plan str],
    /// Names of bridges.
    pub(super) bridges: &'plan BTreeSet<&'plan str>,
}

#[derive(Serialize)]
struct File<'all> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    route: &'all [RouteSetting],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    neighbour: &'all [NeighbourSetting],
}

/// Routes and neighbours, as a file asks for them.
///
/// # Errors
/// What the TOML library said; none is known to happen.
pub(crate) fn to_toml(
    route: &[RouteSetting],
    neighbour: &[NeighbourSetting],
) -> Result<String, toml::ser::Error> {
    toml::to_string(&File { route, neighbour })
}
