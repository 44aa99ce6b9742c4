// SPDX-License-Identifier: Apache-2.0
//! Changes of resources that a node handles at once. Others wait for the next check: with many nodes, most changes of a resource are
//! summaries of other nodes.

use kube::api::ObjectMeta;

use crate::resources::{DataPlane, NextNode, NodePartition, NodeReportSpec, Phase};

/// Part of a resource whose change is urgent for a node.
#[derive(Debug, PartialEq)]
pub(super) struct Urgent {
    uid: Option<String>,
    generation: Option<i64>,
    is_deleted: bool,
    /// Facts that decide about the turn of the node, if it waits for its turn.
    gate: Option<Gate>,
}

/// Part of a summary that decides about the turn of a node.
#[derive(Debug, Default, PartialEq)]
struct Gate {
    generation: i64,
    next: Option<NextNode>,
    failed: Vec<String>,
}

fn urgent(metadata: &ObjectMeta, gate: Option<Gate>) -> Urgent {
    Urgent {
        uid: metadata.uid.clone(),
        generation: metadata.generation,
        is_deleted: metadata.deletion_timestamp.is_some(),
        gate,
    }
}

fn gate(partition: &NodePartition) -> Gate {
    let status = partition.status.as_ref();
    status.map_or_else(Gate::default, |status| Gate {
        generation: status.observed_generation,
        next: status.next.clone(),
        failed: status.failed.iter().map(|it| it.node.clone()).collect(),
    })
}

/// Returns the urgent parts of partitions for a node with a report. The summary of a partition is urgent while the node is *planned* for
/// it.
pub(super) fn of_partitions(partitions: &[NodePartition], report: &NodeReportSpec) -> Vec<Urgent> {
    let of_one = |partition: &NodePartition| {
        let uid = partition.metadata.uid.as_deref();
        let mut states = report.partitions.iter();
        let is_waiting =
            states.any(|it| Some(it.uid.as_str()) == uid && it.phase == Phase::Planned);
        urgent(&partition.metadata, is_waiting.then(|| gate(partition)))
    };
    partitions.iter().map(of_one).collect()
}

/// Returns the urgent parts of data planes.
pub(super) fn of_planes(planes: &[DataPlane]) -> Vec<Urgent> {
    let metadata = planes.iter().map(|plane| &plane.metadata);
    metadata.map(|it| urgent(it, None)).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resources::{DataPlaneSpec, PartitionReport};

    /// A partition whose summary counts nodes that are verified, and names the next node.
    fn partition(generation: i64, verified: u32, next: &str) -> [NodePartition; 1] {
        let partition = json!({
            "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
            "metadata": { "name": "edge", "uid": "u1", "generation": generation },
            "spec": { "nodeSelector": { "role": "edge" } },
            "status": {
                "observedGeneration": 1, "selected": 9, "counts": { "verified": verified },
                "next": { "node": next, "domain": "" },
            },
        });
        [serde_json::from_value(partition).unwrap()]
    }

    fn report(phase: Phase) -> NodeReportSpec {
        let state = PartitionReport {
            partition: "edge".to_owned(),
            uid: "u1".to_owned(),
            phase,
            ..PartitionReport::default()
        };
        NodeReportSpec {
            partitions: vec![state],
            ..NodeReportSpec::default()
        }
    }

    #[test]
    fn states_of_others_are_urgent_for_nodes_that_wait_only() {
        let of = |generation: i64, own: Phase, verified: u32, next: &str| {
            of_partitions(&partition(generation, verified, next), &report(own))
        };
        let before = of(1, Phase::Verified, 1, "n2");
        assert_eq!(of(1, Phase::Verified, 2, "n3"), before);
        // Its own state is the node's own report.
        assert_eq!(of(1, Phase::Drifted, 1, "n2"), before);
        assert_ne!(of(2, Phase::Verified, 1, "n2"), before);
        let waiting = of(1, Phase::Planned, 1, "n2");
        assert_ne!(of(1, Phase::Planned, 2, "n3"), waiting);
        // Counts alone are no reason for a turn.
        assert_eq!(of(1, Phase::Planned, 2, "n2"), waiting);
        assert_ne!(of_partitions(&[], &report(Phase::Verified)), before);
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
