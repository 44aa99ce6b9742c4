// SPDX-License-Identifier: Apache-2.0
//! A device of a resource, as kubelet sees it.

use crate::kubelet::messages::{Device as Message, NumaNode, TopologyInfo};

/// States of a device in kubelet's interface.
const HEALTHY: &str = "Healthy";
const UNHEALTHY: &str = "Unhealthy";

/// One device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Device {
    /// Its ID, unique in its resource.
    pub(super) id: String,
    /// Its NUMA node. `None` if it has none, or the node is unknown.
    pub(super) node: Option<u32>,
    /// Whether it can be allocated.
    pub(super) is_healthy: bool,
}

impl Device {
    pub(super) fn to_message(&self) -> Message {
        let node = self.node.map(|node| TopologyInfo {
            nodes: vec![NumaNode {
                id: i64::from(node),
            }],
        });
        let health = if self.is_healthy { HEALTHY } else { UNHEALTHY };
        Message {
            id: self.id.clone(),
            health: health.to_owned(),
            topology: node,
        }
    }
}
