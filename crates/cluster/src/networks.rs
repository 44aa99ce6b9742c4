// SPDX-License-Identifier: Apache-2.0
//! Controller of networks: keeps a `NetworkAttachmentDefinition` for each `Network`, so that Multus attaches pods to it through the CNI
//! plugin, and reports networks whose VRF does not exist.

mod controller;
mod definition;
mod status;
#[cfg(test)]
mod tests;

pub use controller::{ControllerOptions, run};
