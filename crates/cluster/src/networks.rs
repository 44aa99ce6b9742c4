// SPDX-License-Identifier: Apache-2.0
//! Controller of networks: keeps a `NetworkAttachmentDefinition` for each `Network`, so that Multus attaches pods to it through the CNI
//! plugin.

mod controller;
mod definition;
#[cfg(test)]
mod tests;

pub use controller::{ControllerOptions, run};
