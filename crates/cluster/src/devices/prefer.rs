// SPDX-License-Identifier: Apache-2.0
//! Choice of devices by NUMA node (`GetPreferredAllocation`).

use std::collections::{BTreeMap, BTreeSet};

/// Chooses `size` devices: those that have to be included, then others so that the devices are on as few NUMA nodes as possible. Devices
/// without a node count as one node of their own. Returns fewer if there are not enough.
pub(super) fn prefer(
    node_of: &impl Fn(&str) -> Option<u32>,
    available: &[String],
    must: &[String],
    size: usize,
) -> Vec<String> {
    let mut chosen: Vec<String> = Vec::new();
    let mut included: BTreeSet<&str> = BTreeSet::new();
    for id in must {
        if chosen.len() < size && included.insert(id) {
            chosen.push(id.clone());
        }
    }
    let mut by_node: BTreeMap<Option<u32>, BTreeSet<&str>> = BTreeMap::new();
    for id in available {
        if !included.contains(id.as_str()) {
            by_node.entry(node_of(id)).or_default().insert(id);
        }
    }
    let used: BTreeSet<Option<u32>> = chosen.iter().map(|id| node_of(id)).collect();
    // Nodes of included devices first: they add none.
    let (mut nodes, mut others): (Vec<_>, Vec<_>) = by_node
        .into_iter()
        .partition(|(node, _)| used.contains(node));
    let of_used: usize = nodes.iter().map(|(_, ids)| ids.len()).sum();
    let left = size.saturating_sub(chosen.len()).saturating_sub(of_used);
    // The largest first, so the number of nodes is the smallest. One node that is enough is better than a larger one.
    others.sort_by_key(|(node, ids)| (usize::MAX.saturating_sub(ids.len()), *node));
    let enough = others.iter().rposition(|(_, ids)| ids.len() >= left);
    if let Some(index) = enough.filter(|_| left > 0) {
        let smallest = others.remove(index);
        others.insert(0, smallest);
    }
    nodes.append(&mut others);
    for id in nodes.into_iter().flat_map(|(_, ids)| ids) {
        if chosen.len() >= size {
            break;
        }
        chosen.push(id.to_owned());
    }
    chosen
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ids(numbers: &[usize]) -> Vec<String> {
        numbers.iter().map(|number| format!("d{number}")).collect()
    }

    /// Nodes of devices `d0`, `d1` and so on.
    fn node_of(nodes: &[Option<u32>]) -> impl Fn(&str) -> Option<u32> {
        move |id| nodes[id[1..].parse::<usize>().unwrap()]
    }

    #[test]
    fn the_smallest_node_that_is_enough_is_chosen() {
        let nodes = [Some(0), Some(0), Some(0), Some(1), Some(1), None];
        let all = ids(&[0, 1, 2, 3, 4, 5]);
        assert_eq!(prefer(&node_of(&nodes), &all, &[], 2), ids(&[3, 4]));
        assert_eq!(prefer(&node_of(&nodes), &all, &ids(&[0]), 2), ids(&[0, 1]));
        assert_eq!(prefer(&node_of(&nodes), &all, &[], 1), ids(&[5]));
        assert_eq!(prefer(&node_of(&nodes), &all, &[], 9).len(), 6);
    }

    /// Returns the smallest number of nodes of a choice, by trying all.
    fn fewest(nodes: &[Option<u32>], must: &[usize], size: usize) -> usize {
        let count = nodes.len();
        let choices = (0..1u32 << count).filter(|bits| bits.count_ones() as usize == size);
        choices
            .filter(|bits| must.iter().all(|index| bits >> index & 1 == 1))
            .map(|bits| {
                let chosen = (0..count).filter(|index| bits >> index & 1 == 1);
                chosen
                    .map(|index| nodes[index])
                    .collect::<BTreeSet<_>>()
                    .len()
            })
            .min()
            .unwrap()
    }

    proptest! {
        #[test]
        fn the_number_of_nodes_is_the_smallest(
            nodes in prop::collection::vec(prop::option::of(0..4u32), 1..9),
            size in any::<prop::sample::Index>(),
            must in any::<prop::sample::Index>(),
        ) {
            let size = size.index(nodes.len()) + 1;
            let must: Vec<usize> = (0..must.index(size + 1).min(nodes.len())).collect();
            let all = ids(&(0..nodes.len()).collect::<Vec<_>>());
            let chosen = prefer(&node_of(&nodes), &all, &ids(&must), size);
            let distinct: BTreeSet<&String> = chosen.iter().collect();
            prop_assert_eq!(distinct.len(), size);
            prop_assert!(ids(&must).iter().all(|id| chosen.contains(id)));
            let of = node_of(&nodes);
            let used: BTreeSet<Option<u32>> = chosen.iter().map(|id| of(id)).collect();
            prop_assert_eq!(used.len(), fewest(&nodes, &must, size));
        }
    }
}
