// SPDX-License-Identifier: Apache-2.0
//! A Kubernetes cluster of one node for development: etcd, API server, controller manager, scheduler, containerd and kubelet, each a
//! supervised process, in network, mount, process and IPC namespaces of their own. The API server has no address that the host can reach.
//! Beside the node, any number of nodes may be simulated.

mod certificates;
mod cgroups;
mod configuration;
mod enter;
mod error;
mod inside;
mod machine;
mod nodes;
mod programs;
mod registry;
mod running;
mod state;

pub use enter::shell;
pub use error::LocalError;
pub use inside::run as run_inside;
pub use nodes::{NODES_MAX, run as run_nodes};
pub use programs::{VERSION, default_directory};
pub use registry::{StatusReport, is_ready, status, take_down};
pub use running::{LocalCluster, LocalOptions};
pub use state::LocalState;

/// State directory of the local cluster.
pub const STATE_DIRECTORY: &str = "/run/quietwire/cluster";
/// Name of the node.
pub const NODE: &str = "local";
/// Address of the node, in the range of RFC 2544 (RFC 6890, section 2.2.2). Only the node and its pods can reach it.
pub(crate) const ADDRESS: &str = "198.18.0.1";
