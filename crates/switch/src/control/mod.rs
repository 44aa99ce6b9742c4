// SPDX-License-Identifier: Apache-2.0
//! The control socket: one JSON text a line, each way.
//!
//! A request is `{"show":"ports"}` or another [`Request`], of at most [`REQUEST_MAX`] octets; the answer is `{"ok":…}` or `{"error":"…"}`. A connection may ask any number of times.

mod client;
mod controller;
mod server;
mod socket;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use crate::config::Change;
use crate::config::layer3::{NeighbourSetting, RouteSetting};
use crate::config::rebalance::Rules;
use crate::observe::WatchRequest;

use ipnet::IpNet;
use quietwire_packet::VlanId;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::ask;
pub(crate) use controller::Controller;
pub(crate) use server::Server;
pub(crate) use socket::ControlSocket;

/// Longest request, octets.
pub const REQUEST_MAX: usize = 64 * 1024;

/// What can be shown.
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
    /// A [`crate::report::RulesReport`].
    Rules,
    /// A text: the configuration as a file.
    Config,
}

/// What a client asks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Request {
    /// Shows something.
    Show(Subject),
    /// Changes the configuration, whole or not at all.
    Change(Change),
    /// Moves receive queues between threads by their loads. The answer is a list of [`crate::report::MoveReport`].
    Rebalance {
        /// Only say what would be moved.
        #[serde(default)]
        dry_run: bool,
        /// When to move; those of the configuration, or defaults, when not given.
        rules: Option<Rules>,
    },
    /// Forgets learned addresses of a bridge.
    FlushFdb {
        /// Name of the bridge.
        bridge: String,
        /// Those on this port only.
        port: Option<String>,
        /// Those of this VLAN only.
        vlan: Option<VlanId>,
    },
    /// Adds static routes, all or none; one to the same prefix is replaced.
    AddRoutes(Vec<RouteSetting>),
    /// Removes static routes, all or none.
    DelRoutes {
        /// Name of the VRF; `main` when not said.
        vrf: Option<String>,
        /// Their prefixes.
        prefixes: Vec<IpNet>,
    },
    /// Shows routes. The answer is a [`crate::report::RoutesReport`].
    ShowRoutes {
        /// Name of the VRF; `main` when not said.
        vrf: Option<String>,
        /// Those within this prefix only.
        prefix: Option<IpNet>,
        /// So many at most.
        limit: usize,
    },
    /// Sets a neighbour.
    AddNeighbour(NeighbourSetting),
    /// Forgets a neighbour.
    DelNeighbour {
        /// Name of the interface.
        interface: String,
        /// Its IP address.
        address: IpAddr,
    },
    /// Watches frames.
    Watch(WatchRequest),
    /// Has another thread serve a receive queue. The answer is a [`crate::report::MoveReport`].
    MoveQueue {
        /// Name of the port.
        port: String,
        /// Number of its receive queue.
        queue: u16,
        /// CPU of the thread.
        cpu: u32,
    },
}

/// What the switch answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// What was asked for.
    Ok(Value),
    /// One sentence.
    Error(String),
}
