// SPDX-License-Identifier: Apache-2.0
//! Allocations on NUMA nodes, from `numastat` (Documentation/admin-guide/numastat.rst).

use std::collections::BTreeMap;

use quietwire_base::proc::read;
use quietwire_host::proc::counter;
use serde::{Deserialize, Serialize};

use crate::files::numbered;
use crate::monitor::{Monitor, Target, Unavailable};
use crate::ticks::difference;

const DIRECTORY: &str = "sys/devices/system/node";
const KEYS: [&str; 3] = ["numa_hit", "numa_miss", "other_node"];

/// Pages allocated on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeAllocations {
    /// Number of the node.
    pub node: u32,
    /// Pages allocated on this node as intended.
    pub hits: u64,
    /// Pages allocated on this node although another one was preferred.
    pub misses: u64,
    /// Pages allocated on this node by a process that ran on another one.
    pub of_other_nodes: u64,
}

pub(crate) struct Numa;

impl Monitor for Numa {
    const NAME: &'static str = "numa";
    type Counters = BTreeMap<u32, [u64; KEYS.len()]>;
    type Activity = Vec<NodeAllocations>;

    fn read(target: &Target<'_>) -> Result<Self::Counters, Unavailable> {
        let directory = target.root.join(DIRECTORY);
        let of_node = |node: u32| {
            let text = read(&directory.join(format!("node{node}/numastat"))).ok()?;
            Some((node, KEYS.map(|key| counter(&text, key).unwrap_or(0))))
        };
        let nodes = numbered(&directory, "node").into_iter();
        let found: Self::Counters = nodes.filter_map(of_node).collect();
        if found.is_empty() {
            return Err(Unavailable::missing(
                "/sys/devices/system/node/node*/numastat",
            ));
        }
        Ok(found)
    }

    fn between(
        then: &Self::Counters,
        now: &Self::Counters,
        anomalies: &mut Vec<String>,
    ) -> Self::Activity {
        let mut found = Vec::new();
        for (node, now) in now {
            let Some(then) = then.get(node) else {
                continue;
            };
            // As many pairs as keys.
            let mut pairs = then.iter().zip(now);
            let [hits, misses, of_other_nodes] = KEYS.map(|key| {
                let (then, now) = pairs.next().unwrap_or((&0, &0));
                difference(&format!("{key} of node {node}"), *then, *now, anomalies)
            });
            found.push(NodeAllocations {
                node: *node,
                hits,
                misses,
                of_other_nodes,
            });
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{Machine, between};

    #[test]
    fn allocations_are_counted_by_node() {
        let at = |misses: &str| {
            let text = format!("numa_hit 10\nnuma_miss {misses}\nother_node 1\n");
            Machine::default().with("sys/devices/system/node/node1/numastat", &text)
        };
        let activity = between::<Numa>(&at("2"), &at("9"));
        let wanted = NodeAllocations {
            node: 1,
            hits: 0,
            misses: 7,
            of_other_nodes: 0,
        };
        assert_eq!(activity, [wanted]);
        assert!(
            Machine::default()
                .unavailable::<Numa>()
                .contains("numastat")
        );
    }
}
