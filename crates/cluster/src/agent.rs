// SPDX-License-Identifier: Apache-2.0
//! Agent of a node: applies the `NodePartition` that selects the node, verifies it, reports its state, and rolls it back when no resource
//! selects the node any more. Configures the switch as a `DataPlane` requests, and serves the device plugin. Removes attachments of the CNI
//! plugin whose containers have ended and addresses of pods that have ended, and attaches running containers again after a restart of the
//! switch.

mod api;
mod attachments;
mod decide;
mod ended_pods;
mod export;
mod machine;
mod marker;
mod rollout;
mod run;
mod state_file;
mod status;
mod switch;
#[cfg(test)]
mod tests;
mod topology;
mod urgent;

pub use export::Exports;
pub use machine::{Machine, MachineError};
pub use run::{AgentOptions, run};
#[cfg(test)]
pub(crate) use switch::saved::{CONNECTIONS, MAPPINGS};

pub use crate::connection::AgentError;
