// SPDX-License-Identifier: Apache-2.0
//! Run-time changes of bridges, bridging settings of ports, and static entries.

use std::sync::Arc;

use quietwire_packet::{MacAddress, VlanId};
use serde::{Deserialize, Serialize};

use super::{BridgingSetting, StaticSetting};
use crate::config::edit::{absent, from_request, wrong};
use crate::config::location::Location;
use crate::config::settings::{BridgeSetting, Settings};
use crate::error::SwitchError;

/// A new bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AddBridge {
    /// Its name.
    pub name: String,
    /// Names of its ports.
    #[serde(default)]
    pub ports: Vec<String>,
    /// Maximum number of addresses.
    pub max_entries: Option<u32>,
    /// Ageing time, seconds.
    pub ageing_s: Option<u32>,
    /// Whether the kernel forwards between its `veth` ports.
    pub kernel_forwarding: Option<bool>,
}

/// Changes of a bridge.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBridge {
    /// Its name.
    pub name: String,
    /// Names of ports to add.
    #[serde(default)]
    pub add_ports: Vec<String>,
    /// Names of ports to remove.
    #[serde(default)]
    pub del_ports: Vec<String>,
    /// New maximum number of addresses. A changed value flushes all learned addresses.
    pub max_entries: Option<u32>,
    /// New ageing time, seconds. A changed value flushes all learned addresses.
    pub ageing_s: Option<u32>,
    /// Whether the kernel forwards between its `veth` ports.
    pub kernel_forwarding: Option<bool>,
}

impl Settings {
    pub(in crate::config) fn bridge(
        &mut self,
        name: &str,
    ) -> Result<&mut BridgeSetting, SwitchError> {
        self.bridges
            .get_or_insert_default()
            .iter_mut()
            .find(|bridge| bridge.name == name)
            .ok_or_else(|| absent("bridge", name))
    }

    pub(in crate::config) fn add_bridge(&mut self, bridge: AddBridge) {
        self.bridges.get_or_insert_default().push(BridgeSetting {
            name: bridge.name,
            ports: bridge.ports,
            max_entries: bridge.max_entries,
            ageing_s: bridge.ageing_s,
            kernel_forwarding: bridge.kernel_forwarding,
            flooding: None,
            location: Location::Request,
        });
    }

    pub(in crate::config) fn del_bridge(&mut self, name: &str) -> Result<(), SwitchError> {
        self.bridge(name)?;
        self.bridges
            .get_or_insert_default()
            .retain(|bridge| bridge.name != name);
        self.statics
            .get_or_insert_default()
            .retain(|one| one.value.bridge != name);
        self.forget_rules(|rule| rule.bridge.as_deref() == Some(name));
        Ok(())
    }

    pub(in crate::config) fn set_bridge(&mut self, change: SetBridge) -> Result<(), SwitchError> {
        let name = &change.name;
        let bridge = self.bridge(name)?;
        for port in &change.del_ports {
            let before = bridge.ports.len();
            bridge.ports.retain(|one| one != port);
            if bridge.ports.len() == before {
                return Err(wrong(
                    &format!("bridge '{name}'"),
                    format!("port '{port}' is not a member"),
                ));
            }
        }
        bridge.ports.extend(change.add_ports);
        bridge.max_entries = change.max_entries.or(bridge.max_entries);
        bridge.ageing_s = change.ageing_s.or(bridge.ageing_s);
        bridge.kernel_forwarding = change.kernel_forwarding.or(bridge.kernel_forwarding);
        bridge.location = Location::Request;
        Ok(())
    }

    pub(in crate::config) fn set_port(
        &mut self,
        name: &str,
        reset: bool,
        bridging: BridgingSetting,
    ) -> Result<(), SwitchError> {
        let port = self.port(name)?;
        let before = std::mem::take(&mut port.bridging);
        port.bridging = if reset {
            bridging
        } else {
            bridging.over(before)
        };
        port.location = Location::Request;
        Ok(())
    }

    pub(in crate::config) fn add_vlan(
        &mut self,
        port: &str,
        vlans: &str,
        untagged: bool,
        native: bool,
    ) -> Result<(), SwitchError> {
        let setting = self.port(port)?;
        setting
            .bridging
            .add_vlans(vlans, untagged, native)
            .map_err(|what| wrong("vlan", format!("port '{port}': {what}")))?;
        setting.location = Location::Request;
        Ok(())
    }

    pub(in crate::config) fn del_vlan(
        &mut self,
        port: &str,
        vlans: &str,
    ) -> Result<(), SwitchError> {
        let setting = self.port(port)?;
        setting
            .bridging
            .del_vlans(vlans)
            .map_err(|what| wrong("vlan", format!("port '{port}': {what}")))?;
        setting.location = Location::Request;
        Ok(())
    }

    pub(in crate::config) fn add_static(&mut self, entry: StaticSetting) {
        let statics = self.statics.get_or_insert_default();
        statics.retain(|one| !is_of(&one.value, &entry.bridge, entry.mac, entry.vlan));
        statics.push(from_request(Arc::new(entry)));
    }

    pub(in crate::config) fn del_static(
        &mut self,
        bridge: &str,
        mac: MacAddress,
        vlan: Option<VlanId>,
    ) -> Result<(), SwitchError> {
        let statics = self.statics.get_or_insert_default();
        let before = statics.len();
        statics.retain(|one| !is_of(&one.value, bridge, mac, vlan));
        if statics.len() == before {
            return Err(wrong(
                "fdb",
                format!("bridge '{bridge}' has no static entry {mac} in this VLAN"),
            ));
        }
        Ok(())
    }

    /// Removes a port from its bridge, and removes its static entries.
    pub(in crate::config) fn forget_port_in_bridges(&mut self, name: &str) {
        for bridge in self.bridges.get_or_insert_default() {
            bridge.ports.retain(|port| port != name);
        }
        self.statics
            .get_or_insert_default()
            .retain(|one| one.value.port != name);
    }
}

fn is_of(entry: &StaticSetting, bridge: &str, mac: MacAddress, vlan: Option<VlanId>) -> bool {
    (entry.mac, entry.vlan, entry.bridge.as_str()) == (mac, vlan, bridge)
}
