// SPDX-License-Identifier: Apache-2.0
//! Order of a rollout: one failure domain after the other, in the order of their names. It stops at the first failure.
//!
//! The controller summarises the reports of all nodes in the status of the resource. Every agent decides from this summary. A node changes
//! when all nodes of earlier domains have changed. A summary that is read late can only delay a node: a node that has changed stays changed
//! for the same generation.

use crate::resources::NodePartition;

/// Whether a node may change now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It may change.
    Now,
    /// Nodes of earlier domains have not changed yet.
    Wait {
        /// The first of them.
        node: String,
        /// Its domain.
        domain: String,
    },
    /// The rollout is paused, a node failed, or the generation has no summary yet.
    Stopped {
        /// The reason.
        reason: String,
    },
}

/// Returns whether the node `me` of a failure domain may change to the current generation of a partition.
pub(super) fn turn(me: &str, domain: &str, partition: &NodePartition) -> Turn {
    if partition.spec.rollout.paused {
        return Turn::Stopped {
            reason: "spec.rollout.paused is true".to_owned(),
        };
    }
    let generation = partition.metadata.generation.unwrap_or_default();
    let status = partition.status.as_ref();
    let Some(status) = status.filter(|status| status.observed_generation == generation) else {
        return Turn::Stopped {
            reason: format!("waits for the controller to summarise generation {generation}"),
        };
    };
    // A node may try again after its own failure.
    if let Some(failed) = status.failed.iter().find(|failed| failed.node != me) {
        return Turn::Stopped {
            reason: format!("node '{}' failed: {}", failed.node, failed.message),
        };
    }
    match &status.next {
        Some(next) if next.node != me && next.domain.as_str() < domain => Turn::Wait {
            node: next.node.clone(),
            domain: next.domain.clone(),
        },
        _ => Turn::Now,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::resources::{NodeReport, NodeReportSpec, PartitionReport, Phase};
    use crate::summary::of_partition;

    /// Name of a node, generation and state.
    type State = (String, i64, Phase);

    /// Returns a partition at a generation, with the summary of nodes in domains.
    fn partition(
        domains: &BTreeMap<String, String>,
        states: &[State],
        generation: i64,
        is_paused: bool,
    ) -> NodePartition {
        let partition = json!({
            "apiVersion": "quietwire.io/v1alpha1", "kind": "NodePartition",
            "metadata": { "name": "edge", "uid": "u1", "generation": generation },
            "spec": {
                "nodeSelector": { "role": "edge" }, "rollout": { "failureDomain": "zone", "paused": is_paused },
            },
        });
        let mut partition: NodePartition = serde_json::from_value(partition).unwrap();
        let labels = |domain: &str| -> BTreeMap<String, String> {
            let pairs = [("role", "edge"), ("zone", domain)];
            let pairs = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
            pairs.into()
        };
        let nodes: BTreeMap<String, BTreeMap<String, String>> = domains
            .iter()
            .map(|(node, domain)| (node.clone(), labels(domain)))
            .collect();
        let reports: Vec<NodeReport> = states.iter().map(report).collect();
        partition.status = Some(of_partition(&partition, &nodes, &reports));
        partition
    }

    fn report((node, generation, phase): &State) -> NodeReport {
        let state = PartitionReport {
            partition: "edge".to_owned(),
            uid: "u1".to_owned(),
            observed_generation: *generation,
            phase: *phase,
            message: "no memory".to_owned(),
            ..PartitionReport::default()
        };
        let spec = NodeReportSpec {
            partitions: vec![state],
            ..NodeReportSpec::default()
        };
        NodeReport::new(node, spec)
    }

    fn domains(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        let owned = pairs
            .iter()
            .map(|(node, domain)| ((*node).to_owned(), (*domain).to_owned()));
        owned.collect()
    }

    #[test]
    fn a_node_waits_for_earlier_domains_and_stops_at_failures() {
        let domains = domains(&[("a", "z1"), ("b", "z1"), ("c", "z2")]);
        let of = |me: &str, states: &[State], is_paused: bool| {
            turn(me, &domains[me], &partition(&domains, states, 2, is_paused))
        };
        let none: [State; 0] = [];
        assert_eq!(of("a", &none, false), Turn::Now);
        // Nodes of the same domain do not wait for each other.
        assert_eq!(of("b", &none, false), Turn::Now);
        let wait = |node: &str| Turn::Wait {
            node: node.to_owned(),
            domain: "z1".to_owned(),
        };
        assert_eq!(of("c", &none, false), wait("a"));
        let mut states = vec![
            ("a".to_owned(), 2, Phase::Verified),
            ("b".to_owned(), 1, Phase::Verified),
        ];
        assert_eq!(of("c", &states, false), wait("b"));
        states[1] = ("b".to_owned(), 2, Phase::PendingReboot);
        assert_eq!(of("c", &states, false), Turn::Now);
        states[1] = ("b".to_owned(), 2, Phase::Failed);
        let stopped = of("c", &states, false);
        let reason = "node 'b' failed: no memory".to_owned();
        assert_eq!(stopped, Turn::Stopped { reason });
        // A node may try again after its own failure, but not after those of others.
        assert_eq!(of("b", &states, false), Turn::Now);
        states[0] = ("a".to_owned(), 2, Phase::Drifted);
        assert!(matches!(of("b", &states, false), Turn::Stopped { .. }));
        assert!(matches!(of("a", &none, true), Turn::Stopped { .. }));
    }

    #[test]
    fn a_node_waits_for_the_summary_of_the_generation() {
        let domains = domains(&[("a", "z1")]);
        let mut partition = partition(&domains, &[], 2, false);
        assert_eq!(turn("a", "z1", &partition), Turn::Now);
        partition.metadata.generation = Some(3);
        let reason = "waits for the controller to summarise generation 3".to_owned();
        let stopped = Turn::Stopped { reason };
        assert_eq!(turn("a", "z1", &partition), stopped);
        partition.status = None;
        assert_eq!(turn("a", "z1", &partition), stopped);
    }

    proptest! {
        /// Nodes act in any order, and some fail. At no moment have nodes of two domains begun unless the earlier one is complete, and none
        /// begins after a failure.
        #[test]
        fn one_domain_at_a_time(
            of in prop::collection::vec(0..4usize, 1..10),
            order in prop::collection::vec(any::<prop::sample::Index>(), 1..80),
            fails in prop::collection::vec(prop::bool::weighted(0.1), 10),
        ) {
            let names: Vec<String> = (0..of.len()).map(|index| format!("n{index}")).collect();
            let pairs = names.iter().zip(&of).map(|(name, domain)| (name.clone(), format!("z{domain}")));
            let domains: BTreeMap<String, String> = pairs.collect();
            let mut states: Vec<State> = Vec::new();
            for index in order {
                let index = index.index(names.len());
                let name = &names[index];
                if states.iter().any(|(node, ..)| node == name) {
                    continue;
                }
                let summarised = partition(&domains, &states, 1, false);
                if turn(name, &domains[name], &summarised) == Turn::Now {
                    let has_failed = states.iter().any(|(.., phase)| *phase == Phase::Failed);
                    prop_assert!(!has_failed);
                    let changed: BTreeSet<&String> = states.iter().map(|(node, ..)| node).collect();
                    for (other, domain) in &domains {
                        prop_assert!(*domain >= domains[name] || changed.contains(other));
                    }
                    let phase = if fails[index] { Phase::Failed } else { Phase::Verified };
                    states.push((name.clone(), 1, phase));
                }
            }
        }
    }
}
