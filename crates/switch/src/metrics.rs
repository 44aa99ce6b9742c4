// SPDX-License-Identifier: Apache-2.0
//! Prometheus metrics in the text format (version 0.0.4), over HTTP at a configured address.

mod server;
mod text;

pub use server::MetricsServer;
pub(crate) use text::{EngineReports, exposition};
