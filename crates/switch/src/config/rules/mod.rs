// SPDX-License-Identifier: Apache-2.0
//! Rules about which frames ports let in, as they are asked for: in the switch's file, in a file of their own, or one by one.

mod change;
mod file;
mod plan;

use quietwire_packet::VlanId;
use quietwire_tables::filter::PacketMatch;
use serde::{Deserialize, Serialize};

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
    /// What packets they are.
    #[serde(flatten)]
    pub packet: PacketMatch,
}

/// All rules, and what becomes of frames that none of them matches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules; the first that matches decides.
    pub rules: Vec<RuleSetting>,
    /// Without a rule that matches. With [`Action::Accept`] a port that no rule is about lets everything in.
    pub default: Action,
}
