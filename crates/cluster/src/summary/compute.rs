// SPDX-License-Identifier: Apache-2.0
//! Computes summaries. Only reports for the current generation count, and only those of selected nodes.

use std::collections::BTreeMap;

use crate::resources::{
    DataPlane, DataPlaneStatus, FailedNode, NextNode, NodePartition, NodePartitionStatus,
    NodeRejection, NodeReport, NodeReportSpec, PartitionReport, Phase, PhaseCounts,
};

/// Most failed nodes of a summary. These are the bounds of the schema.
const FAILED_MAX: usize = 8;
/// Most versions of a summary.
const VERSIONS_MAX: usize = 8;
/// Most failing checks of a failed node.
const CHECKS_MAX: usize = 4;

/// Names of nodes and their labels.
pub(crate) type Nodes = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the states that `find` returns, by name of the node.
fn by_node<'reports, T>(
    reports: &'reports [NodeReport],
    find: impl Fn(&'reports NodeReportSpec) -> Option<&'reports T>,
) -> BTreeMap<&'reports str, &'reports T> {
    let states = reports.iter().filter_map(|report| {
        let state = find(&report.spec)?;
        Some((report.metadata.name.as_deref()?, state))
    });
    states.collect()
}

/// Returns the summary of a partition.
pub(crate) fn of_partition(
    partition: &NodePartition,
    nodes: &Nodes,
    reports: &[NodeReport],
) -> NodePartitionStatus {
    let uid = partition.metadata.uid.as_deref().unwrap_or_default();
    let generation = partition.metadata.generation.unwrap_or_default();
    let states = by_node(reports, |spec| {
        let mut states = spec.partitions.iter();
        states.find(|it| it.uid == uid && it.observed_generation == generation)
    });
    let mut status = NodePartitionStatus {
        observed_generation: generation,
        ..NodePartitionStatus::default()
    };
    // By domain and name.
    let mut next: Option<(&str, &str)> = None;
    for (node, labels) in nodes.iter().filter(|(_, it)| partition.spec.selects(it)) {
        status.selected = status.selected.saturating_add(1);
        let state = states.get(node.as_str());
        if let Some(state) = state {
            count(&mut status.counts, state.phase);
        }
        if let Some(state) = state.filter(|state| has_failed(state.phase))
            && status.failed.len() < FAILED_MAX
        {
            status.failed.push(failed(node, state));
        }
        if !state.is_some_and(|state| has_changed(state.phase)) {
            let domain = labels.get(&partition.spec.rollout.failure_domain);
            let place = (domain.map_or("", String::as_str), node.as_str());
            next = Some(next.map_or(place, |first| first.min(place)));
        }
    }
    status.next = next.map(|(domain, node)| NextNode {
        node: node.to_owned(),
        domain: domain.to_owned(),
    });
    status
}

fn count(counts: &mut PhaseCounts, phase: Phase) {
    let place = match phase {
        Phase::Planned => &mut counts.planned,
        Phase::Refused => &mut counts.refused,
        Phase::Failed => &mut counts.failed,
        Phase::Applied => &mut counts.applied,
        Phase::PendingReboot => &mut counts.pending_reboot,
        Phase::Verified => &mut counts.verified,
        Phase::Drifted => &mut counts.drifted,
    };
    *place = place.saturating_add(1);
}

fn failed(node: &str, state: &PartitionReport) -> FailedNode {
    let checks = state.failed_checks.iter().take(CHECKS_MAX);
    FailedNode {
        node: node.to_owned(),
        phase: state.phase,
        message: state.message.clone(),
        checks: checks.cloned().collect(),
    }
}

fn has_failed(phase: Phase) -> bool {
    matches!(phase, Phase::Refused | Phase::Failed | Phase::Drifted)
}

fn has_changed(phase: Phase) -> bool {
    matches!(
        phase,
        Phase::Applied | Phase::PendingReboot | Phase::Verified
    )
}

/// Counts a node whose switch has a version.
fn count_version(status: &mut DataPlaneStatus, version: &str) {
    status.ready = status.ready.saturating_add(1);
    if let Some(nodes) = status.versions.get_mut(version) {
        *nodes = nodes.saturating_add(1);
    } else if status.versions.len() < VERSIONS_MAX {
        status.versions.insert(version.to_owned(), 1);
    }
}

/// Returns the summary of a data plane.
pub(crate) fn of_data_plane(
    plane: &DataPlane,
    nodes: &Nodes,
    reports: &[NodeReport],
) -> DataPlaneStatus {
    let uid = plane.metadata.uid.as_deref().unwrap_or_default();
    let generation = plane.metadata.generation.unwrap_or_default();
    let states = by_node(reports, |spec| {
        let mut states = spec.data_planes.iter();
        states.find(|it| it.uid == uid && it.observed_generation == generation)
    });
    let mut status = DataPlaneStatus {
        observed_generation: generation,
        ..DataPlaneStatus::default()
    };
    for (node, _) in nodes.iter().filter(|(_, it)| plane.spec.selects(it)) {
        status.selected = status.selected.saturating_add(1);
        let Some(state) = states.get(node.as_str()) else {
            continue;
        };
        if let Some(version) = &state.switch_version {
            count_version(&mut status, version);
        }
        let Some(first) = state.rejected.first() else {
            status.configured = status.configured.saturating_add(1);
            continue;
        };
        status.failed = status.failed.saturating_add(1);
        if status.rejected.len() < FAILED_MAX {
            status.rejected.push(NodeRejection {
                node: node.clone(),
                object: first.object.clone(),
                message: first.message.clone(),
            });
        }
    }
    status
}
