// SPDX-License-Identifier: Apache-2.0
//! The control socket: one JSON text a line, each way.
//!
//! A request is `{"show":"ports"}` (or `fdb`, `threads`, `stats`) of at most [`REQUEST_MAX`] octets; the answer is
//! `{"ok":…}` or `{"error":"…"}`. A connection may ask any number of times.

mod client;
mod server;
mod socket;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use client::ask;
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
}

/// What a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// What to show.
    pub show: Subject,
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
