// SPDX-License-Identifier: Apache-2.0
//! Configuration of kernel filters: rules for packets that the kernel gets in addition to packets for the router itself.

use quietwire_tables::filter::PacketMatch;
use serde::{Deserialize, Serialize};

/// A kernel filter: matching packets go to the kernel tap of the interface that they arrived on. Fields that are not set match everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KernelFilterSetting {
    /// Its name.
    pub name: String,
    /// Ingress interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// VRF of the ingress interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// Packets to match.
    #[serde(flatten)]
    pub packet: PacketMatch,
}
