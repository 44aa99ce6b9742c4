// SPDX-License-Identifier: Apache-2.0
//! Counters for Prometheus, in its text format (version 0.0.4), over HTTP at an address that was asked for.

mod server;
mod text;

pub use server::MetricsServer;
pub(crate) use text::exposition;
