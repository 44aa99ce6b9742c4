// SPDX-License-Identifier: Apache-2.0
//! A local web view: studies in a directory of stores, a running study, a running switch and the state of a partition.
//!
//! Belongs here: HTTP/1.1 (RFC 9112) with bounded connections, requests and times, access checks, and the views. Pages of studies are those
//! of `quietwire-report`.
//!
//! Does not belong here: measurements, and changes of anything. The only exception is the start of a ready-made study by a client with the
//! token.

// Octets of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod access;
mod http;
mod index;
mod metrics;
mod openapi;
mod options;
mod partition;
mod routes;
mod server;
mod started;
mod stores;
mod switch;
#[cfg(test)]
mod tests;

pub use options::{ServeError, ServeOptions};
pub use server::Server;
