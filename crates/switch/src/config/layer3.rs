// SPDX-License-Identifier: Apache-2.0
//! Layer 3 configuration: VRFs, interfaces on ports, VLANs and bridges, static routes and neighbours.

mod change;
mod kernel_filter;
mod plan;
mod prefix_translation;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::kernel_filter::KernelFilterSetting;

pub use super::location::Located;
pub(super) use plan::plan;
pub use prefix_translation::PrefixTranslationSetting;

/// Name of the default VRF. It always exists.
pub const VRF_MAIN: &str = "main";

/// A VRF.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct VrfSetting {
    /// Its name. `main` always exists; name it only to change its settings.
    pub name: String,
    /// Kernel routing table to import routes from. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel_table: Option<u32>,
}

/// Unicast reverse path forwarding check of source addresses (RFC 3704).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Urpf {
    /// No check.
    #[default]
    Off,
    /// Loose mode: some route to the source must exist (RFC 3704, section 2.4).
    Loose,
    /// Strict mode: a route to the source through the ingress interface must exist (RFC 3704, section 2.2).
    Strict,
}

/// An interface of the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct InterfaceSetting {
    /// Its name.
    pub name: String,
    /// The port that it is on. Excludes `bridge`.
    pub port: Option<String>,
    /// The bridge that it is on. Excludes `port`.
    pub bridge: Option<String>,
    /// Its VLAN. Default: untagged frames.
    pub vlan: Option<VlanId>,
    /// Its addresses, each with the length of the prefix of its link.
    #[serde(default)]
    pub addresses: Vec<IpNet>,
    /// Its VRF. Default: `main`.
    pub vrf: Option<String>,
    /// MAC address. Default: derived from the location of the interface.
    pub mac: Option<MacAddress>,
    /// Largest IP packet, octets. Default: 1500.
    pub mtu: Option<u16>,
    /// The check of source addresses.
    pub urpf: Option<Urpf>,
    /// Name of a kernel tap that carries the interface's addresses and receives the packets to the router itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// Prefix translation of IPv6 packets that leave by the interface, and of those to the outside prefix (RFC 6296).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix_translation: Option<PrefixTranslationSetting>,
}

/// A next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct ViaSetting {
    /// Address of the next router. `None` if the destinations are on the link.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Outgoing interface. Default: the interface whose link contains the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Its share of the flows, 1 to 255. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weight: Option<u8>,
    /// Treats the next hop as on-link even if no address of the interface covers it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub onlink: bool,
}

/// Type of a route.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RouteKind {
    /// Forward.
    #[default]
    Unicast,
    /// Drop silently.
    Blackhole,
    /// Drop and send ICMP host unreachable (RFC 1812, section 5.2.7.1).
    Unreachable,
    /// Drop and send ICMP communication administratively prohibited (RFC 1812, section 5.2.7.1, code 13).
    Prohibit,
}

/// A static route.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RouteSetting {
    /// Destination prefix.
    pub prefix: IpNet,
    /// The VRF. Default: `main`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Type of the route. Default: unicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<RouteKind>,
    /// Next hops. Several next hops share the flows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<ViaSetting>,
}

/// A static neighbour, which is never resolved by ARP or neighbour discovery.
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

/// Location of an interface.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Attachment {
    /// A port, by its index in the plan.
    Port(usize),
    /// A bridge, by its name.
    Bridge(String),
}

/// A planned interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfacePlan {
    /// Its name.
    pub name: String,
    /// Its location.
    pub on: Attachment,
    /// Its VLAN.
    pub vlan: Option<VlanId>,
    /// Its addresses.
    pub addresses: Vec<IpNet>,
    /// Its VRF: an index into [`Layer3Plan::vrfs`].
    pub vrf: usize,
    /// Its MAC address, if configured.
    pub mac: Option<MacAddress>,
    /// Largest IP packet, octets.
    pub mtu: u16,
    /// The check of source addresses.
    pub urpf: Urpf,
    /// Prefix translation.
    pub prefix_translation: Option<PrefixTranslationSetting>,
    /// Name of the kernel tap.
    pub kernel: Option<String>,
}

/// The layer 3 configuration that the control thread rebuilds at each change. Routes and neighbours, of which there can be millions, are
/// not part of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layer3Plan {
    /// Names of VRFs; the first is the main one.
    pub vrfs: Vec<String>,
    /// Kernel routing table of each VRF.
    pub kernel_tables: Vec<Option<u32>>,
    /// Interfaces.
    pub interfaces: Vec<InterfacePlan>,
    /// Kernel filters.
    pub kernel_filters: Vec<KernelFilterSetting>,
}

/// Ports and bridges that interfaces can be on.
pub(super) struct AttachmentPoints<'plan> {
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

/// Serialises routes and neighbours as configuration.
///
/// # Errors
/// The TOML library's error. No case is known.
pub(crate) fn to_toml(
    route: &[RouteSetting],
    neighbour: &[NeighbourSetting],
) -> Result<String, toml::ser::Error> {
    toml::to_string(&File { route, neighbour })
}
