// SPDX-License-Identifier: Apache-2.0
//! `Address`: an address of a network that the interface of a pod has.

// Each printed column has a type, often the same.
#![allow(clippy::duplicated_attributes)]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An address that a pod has.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quietwire.io",
    version = "v1alpha1",
    kind = "Address",
    plural = "addresses",
    namespaced,
    derive = "PartialEq",
    shortname = "qaddr",
    category = "quietwire",
    doc = "Address of a network that a pod has",
    printcolumn(name = "Network", type_ = "string", json_path = ".spec.network"),
    printcolumn(name = "Address", type_ = "string", json_path = ".spec.address"),
    printcolumn(name = "Pod", type_ = "string", json_path = ".spec.pod"),
    printcolumn(name = "Node", type_ = "string", json_path = ".spec.node")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "self.network == oldSelf.network && self.address == oldSelf.address",
        "message": "network and address cannot be changed"
    }
]))]
pub struct AddressSpec {
    /// Name of the network.
    #[schemars(length(min = 1, max = 253))]
    pub network: String,
    /// The address.
    #[schemars(length(min = 1, max = 39))]
    pub address: String,
    /// Name of the pod.
    #[schemars(length(min = 1, max = 253))]
    pub pod: String,
    /// Name of its interface.
    #[schemars(length(min = 1, max = 15))]
    pub interface: String,
    /// ID of its sandbox container.
    #[schemars(length(min = 1, max = 256))]
    pub container: String,
    /// Name of its node.
    #[schemars(length(min = 1, max = 253))]
    pub node: String,
}
