// SPDX-License-Identifier: Apache-2.0
//! Packet matching: header patterns of kernel filters and of port rules, and the rules of a port: a packet filter, stateless but for
//! the state of connections that the caller tracks.

mod action;
mod continued;
mod counters;
mod ct_states;
mod ct_values;
mod described;
mod effects;
mod element;
mod further;
mod guard;
mod inspect;
mod kept;
mod malformed;
mod names;
mod output;
mod packet;
mod pattern;
mod plain;
mod port_name;
#[cfg(test)]
mod reference;
mod reject;
mod rewrite;
mod rule_match;
mod rules;
mod sets;
mod statements;
mod steering;
mod tally;
#[cfg(test)]
mod tests;
mod verdict;

pub use action::{Action, MalformedAction};
pub use continued::{CONTINUE_MAX, Continued, PASSES_MAX};
pub use counters::{RuleCounters, RuleFrames, ThreadFrames};
pub use ct_states::CtStates;
pub use described::{DescribedPacket, Difference};
pub use effects::{RuleEffect, RuleEffects};
pub use element::{Element, SetField, SetType};
pub use guard::{GUARD_MAX, SourceGuard};
pub use inspect::{
    Answer, Board, FLOW_PACKETS_MAX, HeldPacket, INSPECT_ETHERTYPE, INSPECT_FLOWS, INSPECT_HEADER,
    INSPECT_PACKETS_MAX, INSPECT_TIMEOUT_MAX_MS, Inspect, InspectFail, InspectFlows, Judgement,
    NoInspectFlows, Query, Ruling, Ticket,
};
pub use kept::CHANGED_MIN;
pub use malformed::Malformation;
pub use names::{
    NAME_DATA_MAX, NAME_FLOWS, NAMES_A_RULE_MAX, NameFail, NameFlows, NameKind, NameMatch,
    NamePattern, NoNameFlows,
};
pub use packet::{EtherType, PacketMatch, Ports, Protocol, in_snake_case, parse_prefix};
pub(crate) use pattern::after_tags;
pub use pattern::{Headers, Pattern, describe_frame};
pub use port_name::PortName;
pub use reject::{RejectWith, Rejection};
pub use rewrite::{clamp_mss, clamp_mss_to_mtu, set_dscp};
pub use rule_match::{
    Dscp, FieldValue, FlagList, FurtherMatch, OrSet, OutMatch, RuleMatch, SetName, TcpFlags,
    rule_in_snake_case,
};
pub use rules::{PortRule, PortRules, RuleTable};
pub use sets::{SET_ELEMENTS_MAX, SET_USES_MAX};
pub use statements::{MssLimit, RuleLog, Statements};
pub use steering::{STEERING_MAX, Steering, SteeringRule};
pub use verdict::{Dropped, Fallback, Judged, Verdict, Verdicts};

/// Maximum number of filter rules of ports.
pub const RULES_MAX: usize = 100_000;
