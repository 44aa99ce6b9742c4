// SPDX-License-Identifier: Apache-2.0
//! The control socket: one JSON text per line, in both directions.
//!
//! A request is `{"show":"ports"}` or another [`Request`], of at most [`REQUEST_MAX`] octets. The reply is an
//! [`Answer`]: `{"ok":…}` or `{"error":"…","fault":"bad-input"}`. A connection can carry any number of requests.

// Requests from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod client;
mod confirm;
mod controller;
mod server;
mod sets;
mod socket;
mod staged;
#[cfg(test)]
mod tests;
mod timeouts;

use std::net::IpAddr;

use crate::config::connections::ConnectionSelection;
use crate::config::layer3::{NeighbourSetting, RouteSetting};
use crate::config::nat::MappingSelection;
use crate::config::rebalance::Rules;
use crate::config::rules::{
    Action, MalformedAction, ReceivedPacket, RuleSetting, SetName, SetSetting,
};
use crate::config::{Change, Staged};
use crate::observe::WatchRequest;
use crate::report::TablePosition;

use ipnet::IpNet;
use quietwire_base::Fault;
use quietwire_packet::VlanId;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

pub use client::{ask, ask_up_to};
pub use confirm::CONFIRM_MAX_S;
pub(crate) use controller::Controller;
#[cfg(test)]
pub(crate) use controller::Machine;
pub(crate) use server::Server;
pub(crate) use socket::ControlSocket;

/// Maximum length of a request, octets.
pub const REQUEST_MAX: usize = 64 * 1024;

/// Subject of `show`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Subject {
    /// A list of [`crate::report::PortReport`].
    Ports,
    /// A list of [`crate::report::FdbReport`].
    Fdb,
    /// A list of [`crate::report::ThreadReport`].
    Threads,
    /// A [`crate::report::StatsReport`].
    Stats,
    /// A list of [`crate::report::QueueReport`].
    Queues,
    /// A [`crate::report::CyclesReport`].
    Cycles,
    /// A list of [`crate::report::MoveReport`].
    Moves,
    /// A list of [`crate::report::VlanReport`].
    Vlans,
    /// A list of [`crate::report::FlappingReport`].
    Flapping,
    /// A list of [`crate::report::VrfReport`].
    Vrfs,
    /// A list of [`crate::report::InterfaceReport`].
    Interfaces,
    /// A list of [`crate::report::NeighbourReport`].
    Neighbours,
    /// A list of [`crate::report::KernelFilterReport`].
    KernelFilters,
    /// A list of [`crate::report::SteerReport`].
    Steer,
    /// A list of [`crate::report::NatReport`].
    Nat,
    /// A list of [`crate::report::LoadBalancerReport`].
    LoadBalancers,
    /// A [`crate::report::ReplicationReport`].
    Replication,
    /// A [`crate::report::RulesReport`]: the first page, as of [`Request::ShowRules`].
    Rules,
    /// The running configuration as a file, in one string.
    Config,
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Shows something.
    Show(Subject),
    /// Returns the version of the switch, a string.
    Version,
    /// Returns the names of the configured objects. The reply is a [`crate::report::ObjectsReport`].
    Objects,
    /// Returns the group of a port, as in [`crate::report::PortReport`]; null if the port does not exist.
    PortGroup {
        /// Name of the port.
        port: String,
    },
    /// Changes the configuration completely or not at all.
    Change(Box<Change>),
    /// Stages filter rules for [`Change::SetRules`], because a request has no space for many. Staged rules replace those of earlier
    /// requests from `at` on, and change nothing else.
    StageRules {
        /// Number of rules staged before, at most that of the switch. 0 starts again.
        at: usize,
        /// The next rules.
        rules: Vec<RuleSetting>,
    },
    /// Stages parts of sets for [`Change::SetRules`], like [`Request::StageRules`]. Parts with one name become one set.
    StageSets {
        /// Number of parts staged before, at most that of the switch. 0 starts again.
        at: usize,
        /// The next parts.
        sets: Vec<SetSetting>,
    },
    /// Replaces all rules by the staged ones. Without [`Request::ConfirmRules`] in time, the switch returns to the former rules. Until then
    /// it refuses other changes of rules.
    ReplaceRules {
        /// The numbers of staged rules and parts of sets.
        staged: Staged,
        /// Default action for frames that match no rule. Default: unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        default: Option<Action>,
        /// Action for malformed frames. Default: unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        malformed: Option<MalformedAction>,
        /// Time for the confirmation, 1 to [`CONFIRM_MAX_S`] seconds.
        confirm_s: u32,
    },
    /// Changes filter rules or sets. Without [`Request::ConfirmRules`] in time, the switch returns to the former rules and sets. Until then it
    /// refuses other changes of rules and sets.
    ChangeRules {
        /// A change of rules, sets or elements of sets. Other changes are refused.
        change: Box<Change>,
        /// Time for the confirmation, 1 to [`CONFIRM_MAX_S`] seconds.
        confirm_s: u32,
    },
    /// Confirms the rules and sets of [`Request::ReplaceRules`] or [`Request::ChangeRules`].
    ConfirmRules,
    /// Finds the rule that decides on a packet. The reply is a [`crate::config::rules::RuleCheck`].
    CheckRules(ReceivedPacket),
    /// Shows a page of rules. The reply is a [`crate::report::RulesReport`].
    ShowRules {
        /// Number of the first rule, from 0.
        from: usize,
        /// Maximum number of rules, up to 4,096.
        limit: usize,
    },
    /// Shows a page of the sets of filter rules and their elements. The reply is a [`crate::report::SetsReport`].
    ShowSets {
        /// Name of the set. Default: all sets.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        set: Option<SetName>,
        /// Number of the first element, from 0.
        #[serde(default)]
        from: usize,
        /// Maximum number of elements, up to 4,096.
        limit: usize,
    },
    /// Rebalances receive queues between threads by load. The reply is a list of [`crate::report::MoveReport`].
    Rebalance {
        /// Reports the moves without making them.
        #[serde(default)]
        dry_run: bool,
        /// Conditions for moving. Default: those of the configuration, or the built-in defaults.
        rules: Option<Rules>,
    },
    /// Forgets learned addresses of a bridge.
    FlushFdb {
        /// Name of the bridge.
        bridge: String,
        /// Only addresses on this port.
        port: Option<String>,
        /// Only addresses in this VLAN.
        vlan: Option<VlanId>,
    },
    /// Adds static routes, all or none. A route to the same prefix is replaced.
    AddRoutes(Vec<RouteSetting>),
    /// Removes static routes, all or none.
    DelRoutes {
        /// Name of the VRF. Default: `main`.
        vrf: Option<String>,
        /// Their prefixes.
        prefixes: Vec<IpNet>,
    },
    /// Shows a page of routes, in the order of their prefixes. The reply is a [`crate::report::RoutesReport`].
    ShowRoutes {
        /// Name of the VRF. Default: `main`.
        vrf: Option<String>,
        /// Only routes within this prefix.
        prefix: Option<IpNet>,
        /// Maximum number of prefixes, up to 16,384; one is the minimum.
        limit: usize,
        /// Only routes to prefixes after this one: `next` of the page before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<IpNet>,
    },
    /// Shows a page of connections. The reply is a [`crate::report::ConnectionsReport`], which may have fewer connections than asked for
    /// even if there are more.
    ShowConnections {
        /// Connections to show.
        #[serde(default)]
        selection: ConnectionSelection,
        /// Maximum number of connections, up to 16,384; one is the minimum.
        limit: usize,
        /// Position to start from: `next` of the page before.
        #[serde(default)]
        from: u32,
    },
    /// Shows a page of the mappings of an instance of NAT. The reply is a [`crate::report::MappingsReport`], which may have fewer mappings
    /// than asked for even if there are more.
    ShowMappings {
        /// Name of the instance.
        nat: String,
        /// Maximum number of mappings, up to 16,384; one is the minimum.
        limit: usize,
        /// Position to start from: `next` of the page before.
        #[serde(default)]
        from: u32,
    },
    /// Removes mappings of NAT, without published ports. The reply is their number.
    FlushMappings(MappingSelection),
    /// Removes connections. The reply is their number.
    FlushConnections(ConnectionSelection),
    /// Reads a page of connections as records. The reply is a [`crate::report::SavedConnectionsReport`], which may have no records even if
    /// there are more.
    SaveConnections {
        /// Position to start from: `next` of the page before.
        #[serde(default)]
        from: u32,
    },
    /// Adds connections that a switch saved. The reply is a [`crate::report::RestoredConnectionsReport`].
    RestoreConnections {
        /// Version of the records.
        version: u16,
        /// Records, as base64: at most [`crate::connection_file::RECORDS_MAX`].
        records: String,
    },
    /// Reads a page of the mappings of NAT and the connections of load balancers. The reply is a [`crate::report::SavedMappingsReport`], which
    /// may have no entries even if there are more.
    SaveMappings {
        /// Position to start from: `next` of the page before.
        #[serde(default)]
        position: TablePosition,
    },
    /// Adds mappings of NAT and connections of load balancers that a switch saved. The reply is a [`crate::report::RestoredMappingsReport`].
    RestoreMappings {
        /// Messages of a page.
        messages: String,
    },
    /// Makes a standby the active switch. The reply is a [`crate::report::ReplicationReport`].
    TakeOver,
    /// Sets a neighbour.
    AddNeighbour(NeighbourSetting),
    /// Forgets a neighbour.
    DelNeighbour {
        /// Name of the interface.
        interface: String,
        /// Its IP address.
        address: IpAddr,
    },
    /// Captures or traces frames.
    Watch(WatchRequest),
    /// Assigns a receive queue to another thread. The reply is a [`crate::report::MoveReport`].
    MoveQueue {
        /// Name of the port.
        port: String,
        /// Number of its receive queue.
        queue: u16,
        /// CPU of the thread.
        cpu: u32,
    },
    /// Moves entries of a card's redirection table to another queue of the port. The reply is a [`crate::report::MoveReport`].
    MoveEntries {
        /// Name of the port.
        port: String,
        /// Number of the receive queue that they select now.
        queue: u16,
        /// Number of the other receive queue.
        to_queue: u16,
        /// Number of entries.
        entries: u16,
    },
}

/// A reply of the switch. The request determines the type of the result ([`crate::report`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Answer<T = Value> {
    /// The request is carried out.
    Ok {
        /// The result.
        #[serde(rename = "ok")]
        result: T,
        /// A problem that remains.
        #[serde(skip_serializing_if = "Option::is_none")]
        warning: Option<String>,
    },
    /// The request is not carried out.
    Error {
        /// The problem and its cure.
        #[serde(rename = "error")]
        message: String,
        /// The party at fault, which decides the exit code of the client.
        fault: Fault,
    },
}

impl<T> Answer<T> {
    pub(crate) fn ok(result: T) -> Self {
        Self::Ok {
            result,
            warning: None,
        }
    }

    pub(crate) fn error(fault: Fault, message: impl Into<String>) -> Self {
        Self::Error {
            message: message.into(),
            fault,
        }
    }
}

/// The keys of a reply. A message without a fault is of an earlier version.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "T: Deserialize<'de>"))]
struct Keys<T> {
    #[serde(default, deserialize_with = "given")]
    ok: Option<T>,
    error: Option<String>,
    fault: Option<Fault>,
    warning: Option<String>,
}

/// Reads a value that is there: `null` is the result of requests without one.
fn given<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Answer<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let keys = Keys::deserialize(deserializer)?;
        match (keys.ok, keys.error) {
            (Some(result), None) => Ok(Self::Ok {
                result,
                warning: keys.warning,
            }),
            (None, Some(message)) => Ok(Self::error(keys.fault.unwrap_or(Fault::Failed), message)),
            _ => Err(D::Error::custom("expected either `ok` or `error`")),
        }
    }
}
