// SPDX-License-Identifier: Apache-2.0
//! Settings of a virtual function (SR-IOV) in a URI.

use quietwire_packet::MacAddress;

/// Settings that the driver of the physical function makes for one of its virtual functions. `None` leaves a setting as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FunctionSettings {
    /// MAC address.
    pub mac: Option<MacAddress>,
    /// VLAN of all frames (port VLAN); 0 is none.
    pub vlan: Option<u16>,
    /// True if the function may change its MAC address and receive all frames.
    pub trust: Option<bool>,
    /// True if the card drops frames with another source address than the function's.
    pub spoof_check: Option<bool>,
    /// Maximum transmit rate, Mbit/s; 0 is no limit.
    pub max_tx_rate: Option<u32>,
}

impl FunctionSettings {
    /// Returns true if no setting is given.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Returns the settings as options of a URI.
    pub(super) fn options(&self) -> Vec<String> {
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        [
            ("mac", self.mac.map(|mac| mac.to_string())),
            ("vlan", self.vlan.map(|vlan| vlan.to_string())),
            ("trust", self.trust.map(switch)),
            ("spoof-check", self.spoof_check.map(switch)),
            ("max-tx-rate", self.max_tx_rate.map(|rate| rate.to_string())),
        ]
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", value?)))
        .collect()
    }
}
