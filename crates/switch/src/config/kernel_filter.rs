// SPDX-License-Identifier: Apache-2.0
//! What the kernel is to get beside what is for the router itself: rules, as they are asked for.

use quietwire_tables::filter::PacketMatch;
use serde::{Deserialize, Serialize};

/// A rule: packets that are as it says go to the kernel's tap of the interface that they came in by. What it does not say
/// may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct KernelFilterSetting {
    /// Its name.
    pub name: String,
    /// The interface that packets come in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The VRF of that interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// What packets they are.
    #[serde(flatten)]
    pub packet: PacketMatch,
}
