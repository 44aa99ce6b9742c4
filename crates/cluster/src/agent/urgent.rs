// SPDX-License-Identifier: Apache-2.0
//! Changes of resources that a node handles at once. Others wait for the next check: with many nodes, most changes of a resource are states
//! of other nodes.

use kube::api::ObjectMeta;

use crate::resources::{DataPlane, NodePartition, NodeStatus, Phase};

/// Part of a resource whose change is urgent for a node.
#[derive(Debug, PartialEq)]
pub(super) struct Urgent {
    uid: Option<String>,
    generation: Option<i64>,
    is_deleted: bool,
    /// States of other nodes, if the node waits for them.
    others: Vec<NodeStatus>,
}

fn urgent(metadata: &ObjectMeta, others: Vec<NodeStatus>) -> Urgent {
    Urgent {
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        is_deleted: metadata.deletion_timestamp.is_some(),
        others,
    }
}

/// Returns the urgent parts of partitions for a node. The states of other nodes are urgent while its own is *planned*.
pub(super) fn of_partitions(partitions: &[NodePartition], node: &str) -> Vec<Urgent> {
    let of_one = |partition: &NodePartition| {
        let status = partition.status.as_ref();
        let states = status.map_or(&[][..], |status| status.nodes.as_slice());
        let is_waiting = states
            .iter()
            .any(|state| state.node == node && state.phase == Phase::Planned);
        let others = states.iter().filter(|state| state.node != node);
        let others = match is_waiting {
            true => others.cloned().collect(),
            false => Vec::new(),
        };
        urgent(&partition.metadata, others)
    };
    partitions.iter().map(of_one).collect()
}

/// Returns the urgent parts of data planes.
pub(super) fn of_planes(planes: &[DataPlane]) -> Vec<Urgent> {
    let metadata = planes.iter().map(|plane| &plane.metadata);
    metadata.map(|it| urgent(it, Vec::new())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::resources::DataPlaneSpec;

    fn partition(generation: i64, states: &Value) -> [NodePartition; 1] {
        let partition = json!({
            "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
            "metadata": { "name": "edge", "uid": "u1", "generation": generation },
            "spec": { "nodeSelector": { "role": "edge" } },
            "status": { "nodes": states },
        });
        [serde_json::from_value(partition).unwrap()]
    }

    fn state(node: &str, phase: &str) -> Value {
        json!({
            "node": node, "domain": "", "phase": phase, "message": "", "observedGeneration": 1, "lastTransitionTime": "",
        })
    }

    #[test]
    fn states_of_others_are_urgent_for_nodes_that_wait_only() {
        let of = |generation: i64, own: &str, other: &str| {
            let states = json!([state("n1", own), state("n2", other)]);
            of_partitions(&partition(generation, &states), "n1")
        };
        let before = of(1, "verified", "planned");
        assert_eq!(of(1, "verified", "verified"), before);
        // Its own state is the node's own report.
        assert_eq!(of(1, "drifted", "planned"), before);
        assert_ne!(of(2, "verified", "planned"), before);
        assert_ne!(of(1, "planned", "verified"), of(1, "planned", "planned"));
        assert_ne!(of_partitions(&[], "n1"), before);
    }

    #[test]
    fn a_new_generation_of_a_data_plane_is_urgent() {
        let mut planes = [DataPlane::new("edge", DataPlaneSpec::default())];
        let before = of_planes(&planes);
        assert_eq!(of_planes(&planes), before);
        planes[0].metadata.generation = Some(2);
        assert_ne!(of_planes(&planes), before);
    }
}
