// SPDX-License-Identifier: Apache-2.0
//! Layer 3 as it is asked for: virtual routing and forwarding tables (VRFs), interfaces on ports, VLANs and bridges,
//! static routes and neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::Place;
use super::kernel_filter::{self, KernelFilterSetting};
use crate::error::SwitchError;

/// The VRF of interfaces that name none. It is always there.
pub const VRF_MAIN: &str = "main";
/// VRFs that there can be, the main one among them.
const VRFS_MAX: usize = 1024;
/// Interfaces that there can be.
const INTERFACES_MAX: usize = 4096;
/// Smallest MTU: what IPv4 and IPv6 ask of a link (RFC 791, section 3.2; RFC 8200, section 5).
const MTU_IPV4_MIN: u16 = 68;
const MTU_IPV6_MIN: u16 = 1280;
const MTU_MAX: u16 = 9198;

/// What is asked for, and where that was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// What is asked for.
    pub value: T,
    /// Where.
    pub place: Place,
}

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

/// Plans VRFs and interfaces.
///
/// # Errors
/// [`SwitchError::Config`] for what makes no sense.
pub(super) fn plan(
    vrfs: &[Placed<VrfSetting>],
    interfaces: &[Placed<InterfaceSetting>],
    filters: &[Placed<KernelFilterSetting>],
    places: &Places<'_>,
) -> Result<Layer3Plan, SwitchError> {
    let names = plan_vrfs(vrfs)?;
    let table_of = |name: &String| {
        let setting = vrfs.iter().find(|vrf| vrf.value.name == *name);
        setting.and_then(|vrf| vrf.value.kernel_table)
    };
    let mut plan = Layer3Plan {
        kernel_tables: names.iter().map(table_of).collect(),
        vrfs: names,
        ..Layer3Plan::default()
    };
    check_kernel(vrfs, interfaces)?;
    let mut taken: BTreeMap<(Attachment, Option<u16>), &str> = BTreeMap::new();
    for Placed { value, place } in interfaces {
        let interface = plan_interface(value, place, &plan, places)?;
        let key = (interface.on.clone(), interface.vlan.map(VlanId::get));
        if let Some(other) = taken.insert(key, &value.name) {
            return Err(place.wrong(format!(
                "the interfaces '{other}' and '{}' have the same frames; give each its own VLAN",
                value.name
            )));
        }
        plan.interfaces.push(interface);
    }
    if plan.interfaces.len() > INTERFACES_MAX {
        return Err(SwitchError::Config {
            place: "interface".to_owned(),
            what: format!("there are more than {INTERFACES_MAX}"),
        });
    }
    plan.kernel_filters = kernel_filter::plan(filters, &plan)?;
    Ok(plan)
}

/// Names of taps, and tables, each once.
fn check_kernel(
    vrfs: &[Placed<VrfSetting>],
    interfaces: &[Placed<InterfaceSetting>],
) -> Result<(), SwitchError> {
    let mut tables = BTreeMap::new();
    for Placed { value, place } in vrfs {
        let Some(table) = value.kernel_table else {
            continue;
        };
        if table == 0 || table == 255 {
            return Err(place.wrong(format!(
                "kernel-table is {table}, which holds no routes to follow; the main one is 254"
            )));
        }
        if let Some(other) = tables.insert(table, &value.name) {
            return Err(place.wrong(format!(
                "the VRFs '{other}' and '{}' follow the same table {table} of the kernel",
                value.name
            )));
        }
    }
    let mut taps = BTreeMap::new();
    for Placed { value, place } in interfaces {
        if let Some(tap) = &value.kernel
            && let Some(other) = taps.insert(tap, &value.name)
        {
            return Err(place.wrong(format!(
                "the interfaces '{other}' and '{}' have the same tap '{tap}'",
                value.name
            )));
        }
    }
    Ok(())
}

fn plan_vrfs(settings: &[Placed<VrfSetting>]) -> Result<Vec<String>, SwitchError> {
    let mut vrfs = vec![VRF_MAIN.to_owned()];
    for Placed { value, place } in settings {
        if value.name.is_empty() {
            return Err(place.wrong("the VRF has no name"));
        }
        if value.name != VRF_MAIN && vrfs.contains(&value.name) {
            return Err(place.wrong(format!("there are two VRFs '{}'", value.name)));
        }
        if vrfs.len() == VRFS_MAX {
            return Err(place.wrong(format!("there are more than {VRFS_MAX} VRFs")));
        }
        if value.name != VRF_MAIN {
            vrfs.push(value.name.clone());
        }
    }
    Ok(vrfs)
}

fn plan_interface(
    setting: &InterfaceSetting,
    place: &Place,
    plan: &Layer3Plan,
    places: &Places<'_>,
) -> Result<InterfacePlan, SwitchError> {
    let name = &setting.name;
    let wrong = |what: String| place.wrong(format!("interface '{name}': {what}"));
    if name.is_empty() {
        return Err(place.wrong("the interface has no name"));
    }
    if plan.interfaces.iter().any(|other| other.name == *name) {
        return Err(place.wrong(format!("there are two interfaces '{name}'")));
    }
    let vrf_name = setting.vrf.as_deref().unwrap_or(VRF_MAIN);
    let vrf = plan
        .vrfs
        .iter()
        .position(|vrf| vrf == vrf_name)
        .ok_or_else(|| {
            wrong(format!(
                "there is no VRF '{vrf_name}'; define it with [[vrf]]"
            ))
        })?;
    let mtu = setting.mtu.unwrap_or(1500);
    let has_ipv6 = setting.addresses.iter().any(|net| net.addr().is_ipv6());
    let mtu_min = if has_ipv6 { MTU_IPV6_MIN } else { MTU_IPV4_MIN };
    if !(mtu_min..=MTU_MAX).contains(&mtu) {
        return Err(wrong(format!(
            "mtu is {mtu}, and has to be {mtu_min} to {MTU_MAX}"
        )));
    }
    if let Some(mac) = setting
        .mac
        .filter(|mac| mac.is_multicast() || mac.to_u64() == 0)
    {
        return Err(wrong(format!("{mac} is not the address of one interface")));
    }
    for net in &setting.addresses {
        check_address(net).map_err(wrong)?;
        let other = plan.interfaces.iter().find(|other| {
            other.vrf == vrf && other.addresses.iter().any(|one| one.addr() == net.addr())
        });
        if let Some(other) = other {
            return Err(wrong(format!(
                "the address {} is that of interface '{}' too",
                net.addr(),
                other.name
            )));
        }
    }
    Ok(InterfacePlan {
        name: name.clone(),
        on: attachment(setting, places).map_err(wrong)?,
        vlan: setting.vlan,
        addresses: setting.addresses.clone(),
        vrf,
        mac: setting.mac,
        mtu,
        urpf: setting.urpf.unwrap_or_default(),
        kernel: setting.kernel.clone(),
    })
}

fn attachment(setting: &InterfaceSetting, places: &Places<'_>) -> Result<Attachment, String> {
    match (&setting.port, &setting.bridge) {
        (Some(port), None) => places
            .ports
            .iter()
            .position(|one| one == port)
            .map(Attachment::Port)
            .ok_or_else(|| format!("there is no port '{port}'")),
        (None, Some(bridge)) if places.bridges.contains(bridge.as_str()) => {
            Ok(Attachment::Bridge(bridge.clone()))
        }
        (None, Some(bridge)) => Err(format!("there is no bridge '{bridge}'")),
        _ => Err("say either the port or the bridge that it is on".to_owned()),
    }
}

/// An address that a host can have (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5).
fn check_address(net: &IpNet) -> Result<(), String> {
    let address = net.addr();
    let usable = match net {
        IpNet::V4(net) => {
            let is_host = net.prefix_len() >= 31
                || (net.addr() != net.network() && net.addr() != net.broadcast());
            is_host && net.addr().octets()[0] != 0 && !net.addr().is_broadcast()
        }
        IpNet::V6(_) => true,
    };
    if !usable || address.is_unspecified() || address.is_loopback() || address.is_multicast() {
        return Err(format!(
            "{net} is not an address that an interface can have"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(text: &str) -> Placed<InterfaceSetting> {
        Placed {
            value: toml::from_str(text).unwrap(),
            place: Place::Request,
        }
    }

    fn planned(interfaces: &[&str]) -> Result<Layer3Plan, String> {
        let vrf = Placed {
            value: VrfSetting {
                name: "blue".to_owned(),
                kernel_table: None,
            },
            place: Place::Request,
        };
        let interfaces: Vec<_> = interfaces.iter().map(|text| interface(text)).collect();
        let places = Places {
            ports: &["a", "b"],
            bridges: &BTreeSet::from(["lan"]),
        };
        plan(&[vrf], &interfaces, &[], &places).map_err(|error| error.to_string())
    }

    #[test]
    fn interfaces_are_on_ports_vlans_and_bridges() {
        let plan = planned(&[
            "name='a0'\nport='a'\naddresses=['192.0.2.1/24','2001:db8::1/64']",
            "name='a10'\nport='a'\nvlan=10\nvrf='blue'\naddresses=['192.0.2.1/31']\nmtu=9000\nurpf='strict'",
            "name='lan0'\nbridge='lan'\nmac='02:00:00:00:00:07'",
        ])
        .unwrap();
        assert_eq!(plan.vrfs, ["main", "blue"]);
        let [a0, a10, lan0] = plan.interfaces.as_slice() else {
            panic!();
        };
        assert_eq!((&a0.on, a0.vrf, a0.mtu), (&Attachment::Port(0), 0, 1500));
        assert_eq!(
            (a10.vlan.map(VlanId::get), a10.vrf, a10.urpf),
            (Some(10), 1, Urpf::Strict)
        );
        assert_eq!(lan0.on, Attachment::Bridge("lan".to_owned()));
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (interfaces, part) in [
            (&["name='x'"][..], "say either the port or the bridge"),
            (
                &["name='x'\nport='a'\nbridge='lan'"],
                "say either the port or the bridge",
            ),
            (&["name='x'\nport='c'"], "there is no port 'c'"),
            (
                &[
                    "name='x'\nport='a'\nkernel='t'",
                    "name='y'\nport='b'\nkernel='t'",
                ],
                "have the same tap 't'",
            ),
            (&["name='x'\nbridge='wan'"], "there is no bridge 'wan'"),
            (&["name='x'\nport='a'\nvrf='red'"], "there is no VRF 'red'"),
            (&["name='x'\nport='a'\nmtu=67"], "has to be 68 to 9198"),
            (
                &["name='x'\nport='a'\nmtu=1000\naddresses=['2001:db8::1/64']"],
                "1280",
            ),
            (
                &["name='x'\nport='a'\nmac='03:00:00:00:00:01'"],
                "not the address of one",
            ),
            (
                &["name='x'\nport='a'\naddresses=['192.0.2.0/24']"],
                "192.0.2.0/24 is not an",
            ),
            (
                &["name='x'\nport='a'\naddresses=['192.0.2.255/24']"],
                "is not an",
            ),
            (
                &["name='x'\nport='a'\naddresses=['127.0.0.1/8']"],
                "is not an",
            ),
            (
                &["name='x'\nport='a'\naddresses=['ff02::1/64']"],
                "is not an",
            ),
            (
                &["name='x'\nport='a'", "name='x'\nport='b'"],
                "two interfaces 'x'",
            ),
            (
                &["name='x'\nport='a'", "name='y'\nport='a'"],
                "have the same frames",
            ),
            (
                &[
                    "name='x'\nport='a'\naddresses=['192.0.2.1/24']",
                    "name='y'\nport='b'\naddresses=['192.0.2.1/25']",
                ],
                "is that of interface 'x' too",
            ),
        ] {
            let error = planned(interfaces).unwrap_err();
            assert!(error.contains(part), "{interfaces:?}: {error}");
            assert!(error.starts_with("the request: "), "{error}");
        }
    }

    #[test]
    fn vrfs_follow_tables_of_the_kernel() {
        let vrf = |name: &str, kernel_table| Placed {
            value: VrfSetting {
                name: name.to_owned(),
                kernel_table,
            },
            place: Place::Request,
        };
        let places = Places {
            ports: &[],
            bridges: &BTreeSet::new(),
        };
        let planned = |vrfs: &[Placed<VrfSetting>]| plan(vrfs, &[], &[], &places);
        let both = planned(&[vrf("blue", Some(100)), vrf("main", Some(254))]).unwrap();
        assert_eq!(both.vrfs, ["main", "blue"]);
        assert_eq!(both.kernel_tables, [Some(254), Some(100)]);
        for (vrfs, part) in [
            ([vrf("blue", Some(0)), vrf("red", None)], "holds no routes"),
            (
                [vrf("blue", Some(7)), vrf("red", Some(7))],
                "the same table 7",
            ),
        ] {
            let error = planned(&vrfs).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
    }
}
