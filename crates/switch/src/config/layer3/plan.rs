// SPDX-License-Identifier: Apache-2.0
//! Validation of VRFs and interfaces.

use std::collections::BTreeMap;

use ipnet::{IpNet, Ipv6Net};
use quietwire_packet::VlanId;

use super::kernel_filter;
use super::{
    Attachment, AttachmentPoints, InterfacePlan, InterfaceSetting, Layer3Plan, VRF_MAIN, VrfSetting,
};
use crate::config::kernel_filter::KernelFilterSetting;
use crate::config::location::{Located, Location};
use crate::error::SwitchError;

/// Maximum number of VRFs, including the main VRF.
const VRFS_MAX: usize = 1024;
/// Maximum number of interfaces.
const INTERFACES_MAX: usize = 4096;
/// Smallest MTU: the minimum that IPv4 and IPv6 require of a link (RFC 791, section 3.2; RFC 8200, section 5).
const MTU_IPV4_MIN: u16 = 68;
const MTU_IPV6_MIN: u16 = 1280;
const MTU_MAX: u16 = 9198;

/// Plans VRFs and interfaces.
///
/// # Errors
/// [`SwitchError::Config`] for what makes no sense.
pub(in crate::config) fn plan(
    vrfs: &[Located<VrfSetting>],
    interfaces: &[Located<InterfaceSetting>],
    filters: &[Located<KernelFilterSetting>],
    places: &AttachmentPoints<'_>,
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
    for Located { value, location } in interfaces {
        let interface = plan_interface(value, location, &plan, places)?;
        let key = (interface.on.clone(), interface.vlan.map(VlanId::get));
        if let Some(other) = taken.insert(key, &value.name) {
            return Err(location.wrong(format!(
                "interfaces '{other}' and '{}' are in the same VLAN of one port or bridge (use another VLAN)",
                value.name
            )));
        }
        plan.interfaces.push(interface);
    }
    if plan.interfaces.len() > INTERFACES_MAX {
        return Err(SwitchError::Config {
            location: "interface".to_owned(),
            what: format!("too many interfaces (maximum: {INTERFACES_MAX})"),
        });
    }
    plan.kernel_filters = kernel_filter::plan(filters, &plan)?;
    Ok(plan)
}

impl Layer3Plan {
    /// Checks that outside prefixes of two VRFs do not overlap if packets are tracked: the tracker classifies packets before their VRF is known.
    ///
    /// # Errors
    /// [`SwitchError::Config`].
    pub(in crate::config) fn check_tracking(&self, is_tracked: bool) -> Result<(), SwitchError> {
        if !is_tracked {
            return Ok(());
        }
        let mut known: Vec<(&InterfacePlan, Ipv6Net)> = Vec::new();
        for interface in &self.interfaces {
            let Some(translation) = &interface.prefix_translation else {
                continue;
            };
            let outside = translation.external();
            for (other, net) in &known {
                let overlaps = net.contains(&outside) || outside.contains(net);
                if overlaps && other.vrf != interface.vrf {
                    return Err(SwitchError::Config {
                        location: format!("interface '{}'", interface.name),
                        what: format!(
                            "the outside prefix {outside} overlaps that of interface '{}' of another VRF, and connection tracking cannot \
                             distinguish their packets (use another prefix, or remove the section [connections])",
                            other.name
                        ),
                    });
                }
            }
            known.push((interface, outside));
        }
        Ok(())
    }
}

/// Checks that names of taps and kernel tables are unique.
fn check_kernel(
    vrfs: &[Located<VrfSetting>],
    interfaces: &[Located<InterfaceSetting>],
) -> Result<(), SwitchError> {
    let mut tables = BTreeMap::new();
    for Located { value, location } in vrfs {
        let Some(table) = value.kernel_table else {
            continue;
        };
        if table == 0 || table == 255 {
            return Err(location.wrong(format!(
                "kernel-table {table} has no routes to import (the main table is 254)"
            )));
        }
        if let Some(other) = tables.insert(table, &value.name) {
            return Err(location.wrong(format!(
                "VRFs '{other}' and '{}' use the same kernel-table {table} (use a different table for each VRF)",
                value.name
            )));
        }
    }
    let mut taps = BTreeMap::new();
    for Located { value, location } in interfaces {
        if let Some(tap) = &value.kernel
            && let Some(other) = taps.insert(tap, &value.name)
        {
            return Err(location.wrong(format!(
                "interfaces '{other}' and '{}' use the same kernel tap '{tap}' (use unique names)",
                value.name
            )));
        }
    }
    Ok(())
}

fn plan_vrfs(settings: &[Located<VrfSetting>]) -> Result<Vec<String>, SwitchError> {
    let mut vrfs = vec![VRF_MAIN.to_owned()];
    for Located { value, location } in settings {
        if value.name.is_empty() {
            return Err(location.wrong("the VRF has no name"));
        }
        if value.name != VRF_MAIN && vrfs.contains(&value.name) {
            return Err(
                location.wrong(format!("duplicate VRF '{}' (use unique names)", value.name))
            );
        }
        if vrfs.len() == VRFS_MAX {
            return Err(location.wrong(format!("too many VRFs (maximum: {VRFS_MAX})")));
        }
        if value.name != VRF_MAIN {
            vrfs.push(value.name.clone());
        }
    }
    Ok(vrfs)
}

fn plan_interface(
    setting: &InterfaceSetting,
    location: &Location,
    plan: &Layer3Plan,
    places: &AttachmentPoints<'_>,
) -> Result<InterfacePlan, SwitchError> {
    let name = &setting.name;
    let wrong = |what: String| location.wrong(format!("interface '{name}': {what}"));
    if name.is_empty() {
        return Err(location.wrong("the interface has no name"));
    }
    if plan.interfaces.iter().any(|other| other.name == *name) {
        return Err(location.wrong(format!("duplicate interface '{name}' (use unique names)")));
    }
    let vrf_name = setting.vrf.as_deref().unwrap_or(VRF_MAIN);
    let vrf = plan
        .vrfs
        .iter()
        .position(|vrf| vrf == vrf_name)
        .ok_or_else(|| {
            wrong(format!(
                "no such VRF: '{vrf_name}' (define it with [[vrf]])"
            ))
        })?;
    let mtu = setting.mtu.unwrap_or(1500);
    let has_ipv6 = setting.addresses.iter().any(|net| net.addr().is_ipv6());
    let mtu_min = if has_ipv6 { MTU_IPV6_MIN } else { MTU_IPV4_MIN };
    if !(mtu_min..=MTU_MAX).contains(&mtu) {
        return Err(wrong(format!(
            "mtu is {mtu} (allowed: {mtu_min} to {MTU_MAX})"
        )));
    }
    if let Some(mac) = setting
        .mac
        .filter(|mac| mac.is_multicast() || mac.to_u64() == 0)
    {
        return Err(wrong(format!("{mac} is not a unicast MAC address")));
    }
    for net in &setting.addresses {
        check_address(net).map_err(wrong)?;
        let other = plan.interfaces.iter().find(|other| {
            other.vrf == vrf && other.addresses.iter().any(|one| one.addr() == net.addr())
        });
        if let Some(other) = other {
            return Err(wrong(format!(
                "address {} is also configured on interface '{}'",
                net.addr(),
                other.name
            )));
        }
    }
    if let Some(translation) = &setting.prefix_translation {
        translation.check(&setting.addresses).map_err(wrong)?;
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
        prefix_translation: setting.prefix_translation,
        kernel: setting.kernel.clone(),
    })
}

fn attachment(
    setting: &InterfaceSetting,
    places: &AttachmentPoints<'_>,
) -> Result<Attachment, String> {
    match (&setting.port, &setting.bridge) {
        (Some(port), None) => places
            .ports
            .iter()
            .position(|one| one == port)
            .map(Attachment::Port)
            .ok_or_else(|| format!("no such port: '{port}'")),
        (None, Some(bridge)) if places.bridges.contains(bridge.as_str()) => {
            Ok(Attachment::Bridge(bridge.clone()))
        }
        (None, Some(bridge)) => Err(format!("no such bridge: '{bridge}'")),
        _ => Err("set either port or bridge".to_owned()),
    }
}

/// Checks that an address is a valid host address (RFC 1122, section 3.2.1.3; RFC 4291, section 2.5).
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
        return Err(format!("{net} is not a valid interface address"));
    }
    Ok(())
}
