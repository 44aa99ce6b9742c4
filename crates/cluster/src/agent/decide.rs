// SPDX-License-Identifier: Apache-2.0
//! Next step of a node for the resource that selects it. Reads the machine and changes nothing.

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use quietwire_host::partition::Plan;

use super::machine::{Machine, MachineError};
use super::marker::Marker;
use super::status::{plain, refused, verified};
use crate::kubelet::Kubelet;
use crate::resources::{NodePartition, PartitionReport, Phase};

/// The resources that select a node.
#[derive(Debug, Default)]
pub(super) struct Selected<'a> {
    /// The resource that the node follows.
    pub(super) owner: Option<&'a NodePartition>,
    /// Others, which are refused.
    pub(super) others: Vec<&'a NodePartition>,
}

/// Returns the resources that select a node with these labels. The node follows the one that is applied, or the first by name.
pub(super) fn selected<'a>(
    partitions: &'a [NodePartition],
    labels: &BTreeMap<String, String>,
    applied: Option<&Marker>,
) -> Selected<'a> {
    let mut matching: Vec<&NodePartition> = partitions
        .iter()
        // One that is about to be deleted is gone.
        .filter(|partition| partition.metadata.deletion_timestamp.is_none())
        .filter(|partition| partition.spec.selects(labels))
        .collect();
    matching.sort_by_key(|partition| partition.name_any());
    let is_applied = |partition: &&&NodePartition| {
        applied.is_some_and(|marker| Some(marker.uid.as_str()) == partition.metadata.uid.as_deref())
    };
    let owner = matching
        .iter()
        .find(is_applied)
        .or(matching.first())
        .copied();
    let uid = owner.and_then(|owner| owner.metadata.uid.clone());
    Selected {
        owner,
        others: matching
            .into_iter()
            .filter(|partition| partition.metadata.uid != uid)
            .collect(),
    }
}

/// The next step.
#[derive(Debug)]
pub(super) enum Step {
    /// Only report a state.
    Report(PartitionReport),
    /// Apply a plan, if it is the node's turn.
    Apply {
        /// Owner of the plan.
        owner: Marker,
        /// The plan.
        plan: Box<Plan>,
    },
}

/// Returns the owner that a resource makes.
pub(super) fn owner_of(partition: &NodePartition) -> Marker {
    Marker {
        name: partition.name_any(),
        uid: partition.metadata.uid.clone().unwrap_or_default(),
        generation: partition.metadata.generation.unwrap_or_default(),
        ..Marker::default()
    }
}

/// Returns the next step for a resource. `kubelet` is what kubelet leaves, or the reason why that is unknown.
///
/// # Errors
/// The state of the machine cannot be read.
pub(super) fn decide(
    machine: &mut Machine,
    partition: &NodePartition,
    kubelet: Result<&Kubelet, &str>,
) -> Result<Step, MachineError> {
    let owner = owner_of(partition);
    let applied = machine.marker()?.filter(|marker| {
        marker.is_complete && marker.uid == owner.uid && marker.generation == owner.generation
    });
    if let (Some(marker), Some(plan)) = (applied, machine.plan()?) {
        if let Ok(kubelet) = kubelet
            && let Err(refusal) = machine.check_beside(&plan, kubelet, &owner.name)
        {
            return Ok(Step::Report(PartitionReport {
                phase: Phase::Drifted,
                ..refused(&refusal)
            }));
        }
        let failing = machine.verify(&plan);
        let pending = machine.pending(&plan);
        return Ok(Step::Report(verified(
            &plan,
            &failing,
            &marker.baseline,
            pending,
        )));
    }
    let request = match partition.spec.request.to_request() {
        Ok(request) => request,
        Err(error) => return Ok(Step::Report(plain(Phase::Refused, error.to_string()))),
    };
    let kubelet = match kubelet {
        Ok(kubelet) => kubelet,
        Err(reason) => return Ok(Step::Report(plain(Phase::Refused, reason))),
    };
    Ok(match machine.plan_beside(&request, kubelet, &owner.name) {
        Ok(plan) => Step::Apply {
            owner,
            plan: Box::new(plan),
        },
        Err(refusal) => Step::Report(refused(&refusal)),
    })
}
