// SPDX-License-Identifier: Apache-2.0
//! What the kernel is to get beside what is for the router itself: rules, as they are asked for.

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use super::packets::{EtherType, Ports, Protocol, Words};

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
    /// What the frame carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ethertype: Option<EtherType>,
    /// What the IP packet carries.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    /// Where packets are from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpNet>,
    /// Where they are to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<IpNet>,
    /// Their source port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source_port: Option<Ports>,
    /// Their destination port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination_port: Option<Ports>,
}

impl KernelFilterSetting {
    /// What it says of packets.
    pub(crate) fn words(&self) -> Words {
        Words {
            ethertype: self.ethertype,
            protocol: self.protocol,
            source: self.source,
            destination: self.destination,
            source_port: self.source_port,
            destination_port: self.destination_port,
        }
    }
}
