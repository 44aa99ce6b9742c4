// SPDX-License-Identifier: Apache-2.0
//! Agent of a node: applies the `NodePartition` that selects the node, verifies it, reports its state, and rolls it back when no resource
//! selects the node any more. Brings the switch to what a `DataPlane` requests, and serves the device plugin.

mod api;
mod decide;
mod export;
mod machine;
mod marker;
mod rollout;
mod run;
mod status;
mod switch;
#[cfg(test)]
mod tests;

pub use export::Exports;
pub use machine::{Machine, MachineError};
pub use run::{AgentOptions, run};

pub use crate::connection::AgentError;
