// SPDX-License-Identifier: Apache-2.0
//! Settings of the switch from the parts of a `DataPlane`.

use ipnet::IpNet;
use quietwire_packet::VlanId;
use quietwire_switch::config::connections::ConnectionsSetting;
use quietwire_switch::config::layer3::InterfaceSetting;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::resources::{ConnectionTracking, Interface};

/// Returns the settings of an interface.
///
/// # Errors
/// A value is malformed.
pub(super) fn interface(interface: &Interface) -> Result<InterfaceSetting, String> {
    let vlan = interface.vlan.map(VlanId::try_from).transpose();
    let parse = |text: &String| {
        text.parse::<IpNet>()
            .map_err(|_| format!("addresses: '{text}' is not an address with a prefix length"))
    };
    let addresses: Result<Vec<IpNet>, String> = interface.addresses.iter().map(parse).collect();
    Ok(InterfaceSetting {
        name: interface.name.clone(),
        port: interface.port.clone(),
        bridge: interface.bridge.clone(),
        vlan: vlan.map_err(|error| error.to_string())?,
        addresses: addresses?,
        vrf: interface.vrf.clone(),
        mac: None,
        mtu: interface.mtu,
        urpf: None,
        kernel: None,
        prefix_translation: None,
    })
}

/// Returns the settings of connection tracking.
///
/// # Errors
/// A value is malformed.
pub(super) fn connections(tracking: &ConnectionTracking) -> Result<ConnectionsSetting, String> {
    // The file has no key for this: a section is enabled.
    of(&ConnectionTracking {
        enabled: None,
        ..tracking.clone()
    })
}

/// Returns true if a section of the running configuration has these settings.
pub(super) fn is_same(section: &Value, setting: &ConnectionsSetting) -> bool {
    serde_json::to_value(setting).is_ok_and(|setting| setting == *section)
}

/// Returns the setting that a part of a resource describes. The keys of the part are those of the setting, in camel case.
///
/// # Errors
/// A value is malformed.
pub(super) fn of<T: DeserializeOwned>(part: &impl Serialize) -> Result<T, String> {
    let value = serde_json::to_value(part).map_err(|error| error.to_string())?;
    serde_json::from_value(as_in_file(value)).map_err(|error| error.to_string())
}

/// Renames all keys to those of the configuration file of the switch.
fn as_in_file(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.into_iter();
            fields
                .map(|(key, value)| (key_in_file(&key), as_in_file(value)))
                .collect()
        }
        Value::Array(items) => items.into_iter().map(as_in_file).collect(),
        other => other,
    }
}

fn key_in_file(key: &str) -> String {
    // The tables `[[load-balancer.backend]]` and `[[connections.zone]]`.
    match key {
        "backends" => return "backend".to_owned(),
        "zones" => return "zone".to_owned(),
        _ => {}
    }
    let mut name = String::with_capacity(key.len());
    for letter in key.chars() {
        if letter.is_ascii_uppercase() {
            name.push('-');
        }
        name.push(letter.to_ascii_lowercase());
    }
    name
}
