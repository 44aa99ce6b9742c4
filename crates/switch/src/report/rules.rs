// SPDX-License-Identifier: Apache-2.0
//! Reports about filter rules.

use std::collections::BTreeMap;

use quietwire_packet::VlanId;
use quietwire_tables::connections::{LabelBits, MarkBits};
use quietwire_tables::filter::{
    CtStates, Dscp, InspectFail, MssLimit, NameFail, NamePattern, RejectWith, RuleMatch,
    rule_in_snake_case,
};
use serde::{Deserialize, Serialize};

use crate::config::rules::{Action, Direction};

/// A filter rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Its name.
    pub name: String,
    /// Action for matching frames.
    pub action: Action,
    /// Direction of the frames. `None`: received ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub direction: Option<Direction>,
    /// Ingress port of frames that leave to match, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Several ports to match, if set, instead of one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<String>,
    /// Port to match, if set: the ingress port, or the one that frames leave by.
    pub port: Option<String>,
    /// Bridge of the port to match, if set.
    pub bridge: Option<String>,
    /// VLAN of the outermost tag to match, if set.
    pub vlan: Option<VlanId>,
    /// Packets to match.
    #[serde(flatten, with = "rule_in_snake_case")]
    pub packet: RuleMatch,
    /// States of connections to match, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ct_state: Option<CtStates>,
    /// Bits of the marks of connections to match, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ct_mark: Option<MarkBits>,
    /// Bits of the labels of connections to match, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ct_label: Option<LabelBits>,
    /// Server names of TLS to match, if set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tls_name: Vec<NamePattern>,
    /// Hosts of HTTP/1 to match, if set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub http_host: Vec<NamePattern>,
    /// Names of DNS queries to match, if set.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dns_name: Vec<NamePattern>,
    /// Behaviour of the rule for packets whose name cannot be decided on, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_fail: Option<NameFail>,
    /// ICMP error about all rejected packets, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reject_with: Option<RejectWith>,
    /// Logs one of this many frames, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<u32>,
    /// Text in front of lines of the log, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_prefix: Option<String>,
    /// Port that gets copies of the frames, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dup: Option<String>,
    /// New DSCP, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_dscp: Option<Dscp>,
    /// Limit of the maximum segment size, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_mss: Option<MssLimit>,
    /// Bits that are set in the marks of connections, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_ct_mark: Option<MarkBits>,
    /// Bits that are set in the labels of connections, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_ct_label: Option<LabelBits>,
    /// Port of the inspector, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect: Option<String>,
    /// Packets of a flow that the inspector gets, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect_packets: Option<u8>,
    /// Longest time until a verdict, milliseconds, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect_timeout_ms: Option<u16>,
    /// Action of the rule on packets without a verdict, if set.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inspect_fail: Option<InspectFail>,
    /// Frames that it has decided on since it was created.
    pub frames: u64,
    /// Those of them that network cards have dropped, by the names of the ports on cards that have the rule.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub offloaded: BTreeMap<String, u64>,
}
