// SPDX-License-Identifier: Apache-2.0
//! Order of a rollout: one failure domain after the other, in the order of their names. It stops at the first failure.
//!
//! Every agent decides from the same status, without a leader. A node changes when all nodes of earlier domains have changed. A status that is
//! read late can only delay a node: a node that has changed stays changed for the same generation.

use std::collections::BTreeMap;

use crate::resources::{NodeStatus, Phase};

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
    /// The rollout is paused, or a node failed.
    Stopped {
        /// The reason.
        reason: String,
    },
}

/// Returns whether the node `me` may change to a generation. `domains` has the domain of each selected node.
pub(super) fn turn(
    me: &str,
    domains: &BTreeMap<String, String>,
    statuses: &[NodeStatus],
    generation: i64,
    is_paused: bool,
) -> Turn {
    if is_paused {
        return Turn::Stopped {
            reason: "spec.rollout.paused is true".to_owned(),
        };
    }
    let current = |node: &str| {
        let mut statuses = statuses.iter();
        statuses.find(|status| status.node == node && status.observed_generation == generation)
    };
    let others = domains.iter().filter(|(node, _)| *node != me);
    let failed = others
        .clone()
        .find_map(|(node, _)| current(node).filter(|status| has_failed(status.phase)));
    if let Some(failed) = failed {
        return Turn::Stopped {
            reason: format!("node '{}' failed: {}", failed.node, failed.message),
        };
    }
    let none = String::new();
    let own = domains.get(me).unwrap_or(&none);
    let mut earlier: Vec<(&String, &String)> = others.filter(|(_, domain)| *domain < own).collect();
    earlier.sort_by_key(|(node, domain)| (*domain, *node));
    let waiting = earlier
        .into_iter()
        .find(|(node, _)| !current(node).is_some_and(|status| has_changed(status.phase)));
    match waiting {
        Some((node, domain)) => Turn::Wait {
            node: node.clone(),
            domain: domain.clone(),
        },
        None => Turn::Now,
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn status(node: &str, generation: i64, phase: Phase) -> NodeStatus {
        NodeStatus {
            node: node.to_owned(),
            observed_generation: generation,
            phase,
            message: "no memory".to_owned(),
            ..NodeStatus::default()
        }
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
        let first = turn("a", &domains, &[], 2, false);
        assert_eq!(first, Turn::Now);
        let wait = |node: &str| Turn::Wait {
            node: node.to_owned(),
            domain: "z1".to_owned(),
        };
        assert_eq!(turn("c", &domains, &[], 2, false), wait("a"));
        let mut statuses = vec![
            status("a", 2, Phase::Verified),
            status("b", 1, Phase::Verified),
        ];
        assert_eq!(turn("c", &domains, &statuses, 2, false), wait("b"));
        statuses[1] = status("b", 2, Phase::PendingReboot);
        assert_eq!(turn("c", &domains, &statuses, 2, false), Turn::Now);
        statuses[1] = status("b", 2, Phase::Failed);
        let stopped = turn("c", &domains, &statuses, 2, false);
        let reason = "node 'b' failed: no memory".to_owned();
        assert_eq!(stopped, Turn::Stopped { reason });
        // A node may try again after its own failure.
        assert_eq!(turn("b", &domains, &statuses, 2, false), Turn::Now);
        assert!(matches!(
            turn("a", &domains, &[], 2, true),
            Turn::Stopped { .. }
        ));
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
            let mut statuses: Vec<NodeStatus> = Vec::new();
            for index in order {
                let index = index.index(names.len());
                let name = &names[index];
                if statuses.iter().any(|status| status.node == *name) {
                    continue;
                }
                if turn(name, &domains, &statuses, 1, false) == Turn::Now {
                    let has_failed = statuses.iter().any(|status| status.phase == Phase::Failed);
                    prop_assert!(!has_failed);
                    let changed: BTreeSet<&String> = statuses.iter().map(|status| &status.node).collect();
                    for (other, domain) in &domains {
                        prop_assert!(*domain >= domains[name] || changed.contains(other));
                    }
                    let phase = if fails[index] { Phase::Failed } else { Phase::Verified };
                    statuses.push(status(name, 1, phase));
                }
            }
        }
    }
}
