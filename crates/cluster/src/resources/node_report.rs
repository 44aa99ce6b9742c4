// SPDX-License-Identifier: Apache-2.0
//! `NodeReport`: the states of one node for the resources that select it. Only the agent of the node writes it. All texts and lists have
//! bounds.

// Each printed column has a type, often the same.
#![allow(clippy::duplicated_attributes)]

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::data_plane::RejectedChange;
use super::node_partition::{FailedCheck, Phase};

/// States of a node for the resources that select it.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "quietwire.io",
    version = "v1alpha1",
    kind = "NodeReport",
    derive = "PartialEq",
    shortname = "qnr",
    category = "quietwire",
    doc = "States of a node for the resources that select it",
    printcolumn(
        name = "Partition",
        type_ = "string",
        json_path = ".spec.partitions[0].partition"
    ),
    printcolumn(
        name = "State",
        type_ = "string",
        json_path = ".spec.partitions[0].phase"
    ),
    printcolumn(
        name = "Domain",
        type_ = "string",
        json_path = ".spec.partitions[0].domain"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".spec.partitions[0].message"
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeReportSpec {
    /// State for each partition. The one that the node follows is first.
    // Empty lists are written, and lists are atomic: a server-side apply that leaves nothing of `spec` removes it, which the API server refuses.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub partitions: Vec<PartitionReport>,
    /// State of the switch for each data plane.
    #[serde(default)]
    #[schemars(length(max = 16))]
    pub data_planes: Vec<DataPlaneReport>,
}

/// State of a node for one `NodePartition`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PartitionReport {
    /// Name of the partition.
    #[schemars(length(max = 253))]
    pub partition: String,
    /// UID of the partition.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Failure domain of the node.
    #[serde(default)]
    #[schemars(length(max = 63))]
    pub domain: String,
    /// State of the node.
    pub phase: Phase,
    /// Generation of the resource to which the state belongs.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of the state (RFC 3339).
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub last_transition_time: String,
    /// Reason of the state.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub message: String,
    /// CPUs of each group of the plan.
    #[serde(default)]
    #[schemars(extend("maxProperties" = 256, "additionalProperties" = { "type": "string", "maxLength": 1024 }))]
    pub groups: BTreeMap<String, String>,
    /// Kernel command line parameters that require a reboot.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(max = 1024)))]
    pub pending: Vec<String>,
    /// Settings of kubelet to change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), inner(length(max = 1024)))]
    pub kubelet_settings: Vec<String>,
    /// Checks that fail.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub failed_checks: Vec<FailedCheck>,
}

/// State of the switch of a node for one `DataPlane`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DataPlaneReport {
    /// Name of the data plane.
    #[schemars(length(max = 253))]
    pub data_plane: String,
    /// UID of the data plane.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub uid: String,
    /// Generation of the resource to which the state belongs.
    #[serde(default)]
    pub observed_generation: i64,
    /// Time of the last change of the state (RFC 3339).
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub last_transition_time: String,
    /// Version of the switch. Absent if no switch replies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 64))]
    pub switch_version: Option<String>,
    /// Changes that the switch refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub rejected: Vec<RejectedChange>,
}
