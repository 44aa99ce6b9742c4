// SPDX-License-Identifier: Apache-2.0
//! The userspace data plane: ports, cross-connects, learning bridges, the loop of the forwarding threads, the service thread and the
//! control socket. Does not parse the command line, and measures itself by its counters only.
//!
//! [`config::Settings`] become a [`config::Plan`], a plan becomes a running [`Switch`], and [`control::ask`] sends requests to a running
//! switch.

// Files, requests and packets from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod accept;
mod bridge_view;
pub mod config;
pub mod connection_file;
pub mod control;
mod counters;
mod denied_calls;
mod engine;
mod error;
mod filter_log;
mod forward;
#[cfg(test)]
mod fuzz;
mod kernel;
mod layer3;
pub mod mapping_file;
mod metrics;
mod nat_log;
pub mod observe;
mod replication;
pub mod report;
mod rights;
mod service;
mod service_manager;
mod show;
mod switch;
#[cfg(test)]
mod testing;
mod threads;

pub use config::rebalance::Rules;
pub use counters::PORTS_MAX;
pub use error::SwitchError;
pub use metrics::MetricsServer;
pub use switch::Switch;
