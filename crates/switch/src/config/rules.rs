// SPDX-License-Identifier: Apache-2.0
//! Configuration of filter rules: in the configuration file, in a file of their own, or one by one at run time.

mod change;
mod check;
mod continuing;
mod diff;
#[cfg(test)]
mod documented;
mod file;
mod import;
mod plan;
mod sets;
mod statement;

use std::collections::HashMap;
use std::sync::Arc;

use quietwire_packet::VlanId;
use quietwire_tables::filter::RuleMatch;
use serde::{Deserialize, Serialize};

use super::shared_list::SharedList;

pub(crate) use check::absent_port;
pub use check::{NearRule, ReceivedPacket, RuleCheck};
pub use diff::RuleDiff;
pub use file::RuleFile;
pub use import::{Hook, IMPORT_MAX, Imported, Missing};
pub(super) use plan::{check_inspectors, inspectors, plan};
pub use quietwire_tables::connections::{CtState, LabelBits, MarkBits};
pub use quietwire_tables::filter::{
    Action, CtStates, Element, INSPECT_PACKETS_MAX, INSPECT_TIMEOUT_MAX_MS, InspectFail,
    Malformation, MalformedAction, MssLimit, NameFail, NameMatch, NamePattern, RULES_MAX,
    RejectWith, SetName, SetType,
};
pub use sets::SetSetting;
pub use statement::{MSS_MIN, StatementSetting};

/// Direction of frames, relative to the switch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// Received frames.
    #[default]
    In,
    /// Frames that leave.
    Out,
}

impl Direction {
    /// Returns its name in files and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::In => "in",
            Self::Out => "out",
        }
    }
}

/// Returns the name of a set of ports, which a rule has as `@name` instead of the name of a port.
pub(crate) fn port_set(name: &str) -> Option<&str> {
    name.strip_prefix('@')
}

impl RuleSetting {
    /// Returns true for a rule of frames that leave.
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.direction == Some(Direction::Out)
    }

    /// Returns the names of all ports in the rule, without those of sets.
    pub(crate) fn port_names(&self) -> impl Iterator<Item = &String> {
        let StatementSetting { dup, inspect, .. } = &self.statements;
        let one = [&self.port, &self.from, dup, inspect];
        let names = one.into_iter().flatten().chain(&self.ports);
        names.filter(|name| port_set(name).is_none())
    }

    /// Returns the names of the sets of ports in the rule.
    pub(crate) fn port_sets(&self) -> impl Iterator<Item = &str> {
        let names = [&self.port, &self.from].into_iter().flatten();
        names.filter_map(|name| port_set(name))
    }

    /// Returns the number of rules that the rule is compiled to: one for each of its ports. `counts` has the numbers of ports of sets.
    pub(crate) fn times_compiled(&self, counts: &HashMap<&str, usize>) -> usize {
        let of_set = |name: &Option<String>| match name.as_deref().and_then(port_set) {
            Some(set) => counts.get(set).copied().unwrap_or(1),
            None => 1,
        };
        let of_sets = of_set(&self.port).saturating_mul(of_set(&self.from));
        self.ports.len().max(1).saturating_mul(of_sets)
    }

    /// Returns true unless the rule is for other ports. A rule of a set of ports may be for any port.
    #[must_use]
    pub fn is_for_port(&self, port: &str) -> bool {
        let is_same = |name: &str| name == port || port_set(name).is_some();
        let is_one = self.port.as_deref().is_none_or(is_same);
        is_one && (self.ports.is_empty() || self.ports.iter().any(|name| name == port))
    }
}

/// A filter rule: a match and an action. Fields that are not set match everything.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct RuleSetting {
    /// Its name.
    pub name: String,
    /// Action for matching frames.
    pub action: Action,
    /// Frames to match: received ones, or those that leave. Default: received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Port that receives the frame, or that it leaves by, or a set of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<String>,
    /// Several such ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Bridge of this port.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bridge: Option<String>,
    /// Ingress port of frames that leave, or a set of ports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// VLAN of the outermost tag on arrival.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vlan: Option<VlanId>,
    /// States of connections to match. Requires `[connections]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ct_state: Option<CtStates>,
    /// Bits of the marks of connections to match. Requires `[connections]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ct_mark: Option<MarkBits>,
    /// Bits of the labels of connections to match. Requires `labels` of `[connections]`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ct_label: Option<LabelBits>,
    /// Packets to match.
    #[serde(flatten)]
    pub packet: RuleMatch,
    /// Names in the first packets of connections to match.
    #[serde(flatten)]
    pub names: NameMatch,
    /// Statements beside the action.
    #[serde(flatten)]
    pub statements: StatementSetting,
}

/// All filter rules, their sets, the default action and the one for malformed frames.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The rules. The first match decides.
    pub rules: SharedList<Arc<RuleSetting>>,
    /// The sets that rules refer to.
    pub sets: Vec<Arc<SetSetting>>,
    /// Default action for frames that match no rule. With [`Action::Accept`], a port without rules accepts every frame.
    pub default: Action,
    /// Action for malformed frames at ports with rules, or with [`Action::Drop`] as default.
    pub malformed: MalformedAction,
}

impl Rules {
    /// Returns true if a rule names one of these ports or bridges.
    pub(super) fn name_one_of(&self, ports: &[&str], bridges: &[&str]) -> bool {
        if ports.is_empty() && bridges.is_empty() {
            return false;
        }
        self.rules.iter().any(|rule| {
            let bridge = rule.bridge.as_deref();
            bridge.is_some_and(|name| bridges.contains(&name))
                || rule.port_names().any(|name| ports.contains(&name.as_str()))
        })
    }
}
