// SPDX-License-Identifier: Apache-2.0
//! Device plugin of kubelet (interface `v1beta1`): memif and vhost-user sockets of the node's switch, and virtual functions (SR-IOV), for
//! pods.
//!
//! Each resource has a gRPC server on a socket in kubelet's directory of device plugins. A device of a socket resource is a port of the
//! switch, which is opened when kubelet allocates the device, and closed when no container has it any more.

// Messages of another program: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod allocation;
mod config;
mod device;
mod functions;
#[cfg(test)]
mod fuzz;
mod plugin;
mod prefer;
mod registration;
mod resource;
mod sockets;
#[cfg(test)]
mod tests;

pub use config::{DevicesConfig, Kind, ResourceConfig};
pub use registration::serve;
pub(crate) use resource::DeviceCounts;
pub use resource::{Resource, resources};

/// Domain of the names of resources.
pub const DOMAIN: &str = "quietwire.io";
