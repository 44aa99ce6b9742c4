// SPDX-License-Identifier: Apache-2.0
//! Planning VRFs and interfaces: what was asked for, checked.

use std::collections::BTreeMap;

use ipnet::IpNet;
use quietwire_packet::VlanId;

use super::kernel_filter;
use super::{
    Attachment, InterfacePlan, InterfaceSetting, Layer3Plan, Places, VRF_MAIN, VrfSetting,
};
use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::place::{Place, Placed};
use crate::error::SwitchError;

/// VRFs that there can be, the main one among them.
const VRFS_MAX: usize = 1024;
/// Interfaces that there can be.
const INTERFACES_MAX: usize = 4096;
/// Smallest MTU: what IPv4 and IPv6 ask of a link (RFC 791, section 3.2; RFC 8200, section 5).
const MTU_IPV4_MIN: u16 = 68;
const MTU_IPV6_MIN: u16 = 1280;
const MTU_MAX: u16 = 9198;

/// Plans VRFs and interfaces.
///
/// # Errors
/// [`SwitchError::Config`] for what makes no sense.
pub(in crate::config) fn plan(
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
