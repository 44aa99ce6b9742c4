// SPDX-License-Identifier: Apache-2.0
//! Kubernetes: custom resources, the agent that partitions a node beside kubelet, the device plugin and the CNI plugin that give ports of a
//! running switch to pods, the controller of networks and of summaries, and a local cluster for development.
//!
//! Must not know packets.

// Objects, messages and files of other programs: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod addresses;
pub mod admission;
pub mod agent;
pub mod beside;
#[cfg(test)]
mod chart;
pub mod cni;
mod connection;
mod controller_status;
pub mod devices;
mod follow;
mod hash;
pub mod kubelet;
pub mod local;
pub mod networks;
mod object_name;
mod problem;
pub mod resources;
#[cfg(test)]
mod simulated;
mod summary;

/// Returns a runtime of one thread, for the agent and for tests.
///
/// # Errors
/// The operating system refuses its resources.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
