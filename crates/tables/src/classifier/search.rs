// SPDX-License-Identifier: Apache-2.0
//! Searches of bursts in compiled rules.

use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use super::compile::Compiled;
use super::entry::Entry;
use super::key::Key;
use super::node::{DEPTH_MAX, Node};

const _: () = assert!(BURST_MAX <= 256);

/// Numbers of the keys of a burst.
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "lanes are below BURST_MAX, which is at most 256"
)]
const LANES: [u8; BURST_MAX] = {
    let mut lanes = [0; BURST_MAX];
    let mut lane = 0;
    while lane < BURST_MAX {
        lanes[lane] = lane as u8;
        lane += 1;
    }
    lanes
};

/// Result of a lookup if no rule matches.
pub const NO_RULE: u32 = u32::MAX;

/// Size and worst case of a classifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Number of rules.
    pub rules: usize,
    /// Number of trees.
    pub trees: usize,
    /// Longest path of nodes, in all trees together.
    pub nodes_max: usize,
    /// Upper bound of the number of rules compared in a lookup: the longest leaf of each tree.
    pub comparisons_max: usize,
    /// Number of copies of rules.
    pub copies: usize,
    /// Memory, octets.
    pub octets: usize,
}

impl Compiled {
    /// Returns size and worst case.
    pub(super) fn shape(&self) -> Shape {
        Shape {
            rules: self.rules,
            trees: self.trees.len(),
            nodes_max: self.trees.iter().map(|tree| tree.depth).sum(),
            comparisons_max: self.trees.iter().map(|tree| tree.longest).sum(),
            copies: self.entries.len(),
            octets: size_of_val(&self.entries[..])
                .saturating_add(size_of_val(&self.nodes[..]))
                .saturating_add(size_of_val(&self.rest[..])),
        }
    }

    /// Finds the first rule that matches each of at most [`BURST_MAX`] keys, and of which `is_live` returns true.
    #[inline(always)]
    pub(super) fn find(
        &self,
        keys: &[Key],
        found: &mut [u32],
        is_live: impl Fn(u32) -> bool + Copy,
    ) {
        found.fill(if is_live(self.any) { self.any } else { NO_RULE });
        let mut places = [Node::EMPTY; BURST_MAX];
        let places = places.get_mut(..keys.len()).unwrap_or_default();
        for tree in &self.trees {
            match tree.root.is_leaf() {
                true => places.fill(tree.root),
                false => self.descend(tree.root, keys, places),
            }
            self.compare(keys, places, found, is_live);
        }
    }

    /// Moves from a root, which is not a leaf, to the leaves. All keys have the same window at the root, which is read once.
    #[inline(always)]
    fn descend(&self, root: Node, keys: &[Key], places: &mut [Node]) {
        let nodes = &self.nodes[..];
        // Keys that are not at a leaf.
        let mut moving = [0u8; BURST_MAX];
        let mut left = 0usize;
        for ((lane, key), place) in LANES.iter().zip(keys).zip(places.iter_mut()) {
            *place = step(nodes, root, key);
            if let Some(moves) = moving.get_mut(left % BURST_MAX) {
                *moves = *lane;
            }
            left = left.wrapping_add(usize::from(!place.is_leaf()));
        }
        for _ in 1..DEPTH_MAX {
            if left == 0 {
                return;
            }
            let mut still = 0usize;
            for at in 0..left.min(BURST_MAX) {
                let Some(lane) = moving.get(at).copied() else {
                    break;
                };
                let number = usize::from(lane);
                if let (Some(place), Some(key)) = (places.get_mut(number), keys.get(number)) {
                    *place = step(nodes, *place, key);
                    if let Some(moves) = moving.get_mut(still % BURST_MAX) {
                        *moves = lane;
                    }
                    still = still.wrapping_add(usize::from(!place.is_leaf()));
                }
            }
            left = still;
        }
    }

    /// Compares keys with the rules of their leaves.
    #[inline(always)]
    fn compare(
        &self,
        keys: &[Key],
        places: &[Node],
        found: &mut [u32],
        is_live: impl Fn(u32) -> bool,
    ) {
        let entries = &self.entries[..];
        if self.is_large {
            for place in places {
                if let Some(entry) = entries.get(place.rules().0) {
                    prefetch(entry);
                }
            }
        }
        for ((key, place), found) in keys.iter().zip(places).zip(found) {
            let (first, count) = place.rules();
            let end = first.saturating_add(count);
            let rules: &[Entry] = entries.get(first..end).unwrap_or_default();
            for rule in rules {
                if rule.order >= *found {
                    break;
                }
                if rule.matches(key, &self.rest) && is_live(rule.order) {
                    *found = rule.order;
                    break;
                }
            }
        }
    }
}

/// Returns the child of a node. Without one (never in a compiled tree), the node is a leaf without rules.
#[inline(always)]
fn step(nodes: &[Node], place: Node, key: &Key) -> Node {
    *nodes.get(place.child(key)).unwrap_or(&Node::EMPTY)
}
