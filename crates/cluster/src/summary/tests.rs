// SPDX-License-Identifier: Apache-2.0
use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::compute::{Nodes, of_data_plane, of_partition};
use super::controller::Summaries;
use crate::resources::{
    DataPlane, DataPlaneReport, FailedCheck, NodePartition, NodeReport, NodeReportSpec,
    PartitionReport, Phase, RejectedChange,
};
use crate::runtime;
use crate::simulated::Simulated;

fn partition(generation: i64) -> NodePartition {
    let partition = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
        "metadata": { "name": "edge", "uid": "u1", "generation": generation },
        "spec": { "nodeSelector": { "role": "edge" }, "rollout": { "failureDomain": "zone" } },
    });
    serde_json::from_value(partition).unwrap()
}

fn plane(generation: i64) -> DataPlane {
    let plane = json!({
        "apiVersion": "quietwire.io/v1alpha1", "kind": "DataPlane",
        "metadata": { "name": "edge", "uid": "u2", "generation": generation },
        "spec": { "nodeSelector": { "role": "edge" } },
    });
    serde_json::from_value(plane).unwrap()
}

fn labels(role: &str, zone: &str) -> BTreeMap<String, String> {
    let pairs = [("role", role), ("zone", zone)];
    let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
    pairs.into()
}

/// Returns nodes with a role and a zone.
fn nodes(all: &[(&str, &str, &str)]) -> Nodes {
    let all = all.iter();
    all.map(|(name, role, zone)| ((*name).to_owned(), labels(role, zone)))
        .collect()
}

fn state(uid: &str, generation: i64, phase: Phase) -> PartitionReport {
    PartitionReport {
        partition: "edge".to_owned(),
        uid: uid.to_owned(),
        observed_generation: generation,
        phase,
        message: "no memory".to_owned(),
        ..PartitionReport::default()
    }
}

fn report(node: &str, state: PartitionReport) -> NodeReport {
    let spec = NodeReportSpec {
        partitions: vec![state],
        ..NodeReportSpec::default()
    };
    NodeReport::new(node, spec)
}

#[test]
fn a_summary_counts_states_of_selected_nodes_for_the_current_generation() {
    let all = nodes(&[
        ("a", "edge", "z2"),
        ("b", "edge", "z1"),
        ("c", "edge", "z1"),
        ("d", "edge", "z1"),
        ("e", "core", "z0"),
    ]);
    let check = FailedCheck {
        name: "who-ran".to_owned(),
        ..FailedCheck::default()
    };
    let drifted = PartitionReport {
        failed_checks: vec![check.clone(); 9],
        ..state("u1", 3, Phase::Drifted)
    };
    let reports = [
        report("a", drifted),
        report("b", state("u1", 3, Phase::Verified)),
        // An earlier generation, and a partition that was deleted.
        report("c", state("u1", 2, Phase::Failed)),
        report("d", state("u0", 3, Phase::Failed)),
        report("e", state("u1", 3, Phase::Failed)),
        report("gone", state("u1", 3, Phase::Failed)),
    ];
    let status = of_partition(&partition(3), &all, &reports);
    assert_eq!((status.observed_generation, status.selected), (3, 4));
    let counts = &status.counts;
    assert_eq!((counts.drifted, counts.verified), (1, 1));
    assert_eq!((counts.failed, counts.planned), (0, 0));
    let next = status.next.unwrap();
    assert_eq!((next.node.as_str(), next.domain.as_str()), ("c", "z1"));
    assert_eq!(status.failed.len(), 1);
    let failed = &status.failed[0];
    assert_eq!((failed.node.as_str(), failed.phase), ("a", Phase::Drifted));
    assert_eq!(failed.message, "no memory");
    assert_eq!(failed.checks, vec![check; 4]);

    let done = [("b", "edge", "z1")];
    let status = of_partition(&partition(3), &nodes(&done), &reports);
    assert_eq!(status.next, None);
}

#[test]
fn a_summary_of_a_data_plane_names_the_refused_changes() {
    let all = nodes(&[("a", "edge", ""), ("b", "edge", ""), ("c", "edge", "")]);
    let of = |node: &str, generation: i64, refused: &[&str]| {
        let rejected = refused.iter().map(|object| RejectedChange {
            object: (*object).to_owned(),
            message: "no such device".to_owned(),
        });
        let state = DataPlaneReport {
            switch_version: Some(format!("0.{}.0", refused.len())),
            data_plane: "edge".to_owned(),
            uid: "u2".to_owned(),
            observed_generation: generation,
            rejected: rejected.collect(),
            ..DataPlaneReport::default()
        };
        let spec = NodeReportSpec {
            data_planes: vec![state],
            ..NodeReportSpec::default()
        };
        NodeReport::new(node, spec)
    };
    let reports = [
        of("a", 1, &[]),
        of("b", 1, &["port left", "port right"]),
        of("c", 0, &["port left"]),
    ];
    let status = of_data_plane(&plane(1), &all, &reports);
    assert_eq!((status.selected, status.configured), (3, 1));
    assert_eq!((status.failed, status.rejected.len()), (1, 1));
    let first = &status.rejected[0];
    assert_eq!(
        (first.node.as_str(), first.object.as_str()),
        ("b", "port left")
    );
    // Only those for the current generation.
    let versions = BTreeMap::from([("0.0.0".to_owned(), 1), ("0.2.0".to_owned(), 1)]);
    assert_eq!((status.ready, status.versions), (2, versions));
}

#[test]
fn nodes_without_a_switch_are_not_ready_and_versions_are_bounded() {
    let (mut all, mut reports) = (Nodes::new(), Vec::new());
    for number in 0..12 {
        let name = format!("n{number:02}");
        let state = DataPlaneReport {
            data_plane: "edge".to_owned(),
            uid: "u2".to_owned(),
            observed_generation: 1,
            switch_version: (number > 0).then(|| format!("0.{}.0", number / 2)),
            ..DataPlaneReport::default()
        };
        let spec = NodeReportSpec {
            data_planes: vec![state],
            ..NodeReportSpec::default()
        };
        all.insert(name.clone(), labels("edge", ""));
        reports.push(NodeReport::new(&name, spec));
    }
    let mut status = of_data_plane(&plane(1), &all, &reports);
    assert_eq!((status.selected, status.ready), (12, 11));
    assert_eq!(status.versions.len(), 6);
    for (number, report) in reports.iter_mut().enumerate() {
        report.spec.data_planes[0].switch_version = Some(number.to_string());
    }
    status = of_data_plane(&plane(1), &all, &reports);
    assert_eq!((status.ready, status.versions.len()), (12, 8));
}

/// Thousand nodes in four domains change as their turns come, and the last ones fail: the summary has the same size as that of few nodes.
#[test]
fn the_size_of_a_summary_does_not_depend_on_the_number_of_nodes() {
    let text = "x".repeat(1024);
    let all: Nodes = (0..1000)
        .map(|number| {
            let zone = format!("z{}", number % 4);
            (format!("node-{number:04}"), labels("edge", &zone))
        })
        .collect();
    let mut reports: Vec<NodeReport> = Vec::new();
    for domain in 0..4 {
        let status = of_partition(&partition(1), &all, &reports);
        let next = status.next.unwrap();
        assert_eq!(next.domain, format!("z{domain}"));
        assert_eq!(status.counts.verified, domain * 250);
        let phase = match domain {
            3 => Phase::Failed,
            _ => Phase::Verified,
        };
        let of_domain = all.iter().filter(|(_, it)| it["zone"] == next.domain);
        reports.extend(of_domain.map(|(node, _)| {
            let state = PartitionReport {
                message: text.clone(),
                ..state("u1", 1, phase)
            };
            report(node, state)
        }));
    }
    let status = of_partition(&partition(1), &all, &reports);
    assert_eq!((status.counts.verified, status.counts.failed), (750, 250));
    assert_eq!((status.selected, status.failed.len()), (1000, 8));
    assert!(serde_json::to_string(&status).unwrap().len() < 16 << 10);
}

/// Returns an API server with a partition, a data plane and two nodes.
fn server() -> Simulated {
    let server = Simulated::default();
    for name in ["a", "b"] {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": { "name": name, "labels": labels("edge", "z1") },
        });
        server.put("nodes", &node);
    }
    server.put(
        "nodepartitions",
        &serde_json::to_value(partition(1)).unwrap(),
    );
    server.put("dataplanes", &serde_json::to_value(plane(1)).unwrap());
    server
}

/// Returns the resources as the API server has them.
fn stored(server: &Simulated) -> ([NodePartition; 1], [DataPlane; 1]) {
    let first = |plural: &str| server.all(plural).remove(0);
    (
        [serde_json::from_value(first("nodepartitions")).unwrap()],
        [serde_json::from_value(first("dataplanes")).unwrap()],
    )
}

#[test]
fn a_summary_is_written_once_for_many_reports() {
    let server = server();
    let mut summaries = Summaries::new(server.client());
    let patch = |plural: &str| ("patch".to_owned(), format!("{plural}/status"));
    runtime().unwrap().block_on(async {
        let (partitions, planes) = stored(&server);
        summaries.pass(&partitions, &planes, &[]).await.unwrap();
        let list = ("list".to_owned(), "nodes".to_owned());
        let both = [patch("nodepartitions"), patch("dataplanes")];
        assert_eq!(server.requests(), [vec![list], both.to_vec()].concat());
        let (partitions, planes) = stored(&server);
        let status = partitions[0].status.as_ref().unwrap();
        assert_eq!((status.observed_generation, status.selected), (1, 2));

        // Nothing has changed.
        summaries.pass(&partitions, &planes, &[]).await.unwrap();
        assert!(server.requests().is_empty());

        let reports = ["a", "b"].map(|node| report(node, state("u1", 1, Phase::Planned)));
        summaries
            .pass(&partitions, &planes, &reports)
            .await
            .unwrap();
        assert_eq!(server.requests(), [patch("nodepartitions")]);
        let (partitions, planes) = stored(&server);
        let status = partitions[0].status.as_ref().unwrap();
        assert_eq!(status.counts.planned, 2);

        // Deleted meanwhile.
        server.take("nodepartitions", "", "edge");
        let reports = ["a", "b"].map(|node| report(node, state("u1", 1, Phase::Verified)));
        summaries
            .pass(&partitions, &planes, &reports)
            .await
            .unwrap();
        assert!(server.all("nodepartitions").is_empty());

        // Without resources there are no requests.
        server.requests();
        let mut others = Summaries::new(server.client());
        others.pass(&[], &[], &reports).await.unwrap();
        assert!(server.requests().is_empty());
    });
}

#[test]
fn without_an_api_server_the_summaries_stay() {
    let server = server();
    let mut summaries = Summaries::new(server.client());
    runtime().unwrap().block_on(async {
        let (partitions, planes) = stored(&server);
        server.set_away(true);
        assert!(summaries.pass(&partitions, &planes, &[]).await.is_err());
        server.set_away(false);
        summaries.pass(&partitions, &planes, &[]).await.unwrap();
        let status: Value = server.all("nodepartitions").remove(0)["status"].clone();
        assert_eq!(status["selected"], 2);
    });
}
