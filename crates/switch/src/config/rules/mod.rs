// SPDX-License-Identifier: Apache-2.0
//! Rules about which frames ports let in, as they are asked for: in the switch's file, in a file of their own, or one by one.

mod file;
mod plan;

use ipnet::IpNet;
use quietwire_packet::VlanId;
use serde::{Deserialize, Serialize};

use super::packets::{EtherType, Ports, Protocol, Words};

pub use file::RuleFile;
pub(super) use plan::plan;
pub use quietwire_tables::filter::Action;

/// A rule: what becomes of frames that are as it says. What it does not say may be anything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleSetting {
    /// Its name.
    pub name: String,
    /// What becomes of the frames.
    pub action: Action,
    /// The port that they come in by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// The bridge of that port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// VLAN of their outermost tag, as they come in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// What they carry, behind their tags.
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

impl RuleSetting {
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

/// All rules, and what becomes of frames that none of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleSetting>,
    /// Without a rule that matches. With [`Action::Accept`] a port that no rule is about lets everything in.
    pub default: Action,
}
