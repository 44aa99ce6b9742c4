// SPDX-License-Identifier: Apache-2.0
//! A node of a Kubernetes cluster: custom resources, the agent that partitions the node beside kubelet, the device plugin and the CNI plugin
//! that give ports of a running switch to pods.
//!
//! Must not know packets.

pub mod agent;
pub mod beside;
pub mod cni;
pub mod devices;
pub mod kubelet;
pub mod resources;

/// Returns a runtime of one thread, for the agent and for tests.
///
/// # Errors
/// The operating system refuses its resources.
pub fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
}
