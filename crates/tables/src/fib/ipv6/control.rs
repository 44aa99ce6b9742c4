// SPDX-License-Identifier: Apache-2.0
//! Writer state of an IPv6 table: notes of each node, and the rebuilding and publishing of changed nodes.

#![expect(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "numbers of states are places of their list, slots are below SLOTS, and lengths at most 128"
)]

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use quietwire_memory::atomic::Ordering;

use super::poptrie::{Ipv6Fib, NODE, NodeWords, ROOT_BITS, SLOTS, STRIDE, root_index, slot_at};
use crate::arena::{Blocks, Epoch};
use crate::fib::NO_ROUTE;

/// No space. Nothing visible to readers has changed.
#[derive(Debug)]
pub(super) struct TableFull;

/// A run of nodes or of next hops.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    first: u32,
    count: u32,
}

/// Published part of a node.
#[derive(Clone, Copy, Debug, Default)]
struct PublishedNode {
    words: NodeWords,
    /// Blocks of its next hops and of its children, owned by the node.
    leaves: Block,
    children: Block,
    /// Next hop of destinations without a route in this node.
    inherited: u32,
}

/// Writer's note of a node.
#[derive(Debug, Default)]
struct NodeState {
    /// Routes that end in this node, keyed by the bits that the node decides on with a leading 1, like the numbering of a binary heap.
    routes: Vec<(u8, u32)>,
    /// Child nodes by slot.
    children: Vec<(u8, u32)>,
    shown: PublishedNode,
    /// The node or a descendant has unpublished changes.
    dirty: bool,
}

impl NodeState {
    /// Returns true if the node is empty. Valid after [`Control::rebuild_node`].
    fn is_gone(&self) -> bool {
        self.routes.is_empty() && self.shown.words.children == 0
    }

    /// Returns the next hop of each slot.
    fn slots(&self, inherited: u32) -> [u32; SLOTS] {
        let mut heap = [NO_ROUTE; 2 * SLOTS];
        heap[1] = inherited;
        for (place, next_hop) in &self.routes {
            heap[usize::from(*place)] = *next_hop;
        }
        for place in 2..2 * SLOTS {
            if heap[place] == NO_ROUTE {
                heap[place] = heap[place / 2];
            }
        }
        let mut slots = [NO_ROUTE; SLOTS];
        slots.copy_from_slice(&heap[SLOTS..]);
        slots
    }
}

/// Writer's notes of all nodes.
#[derive(Debug)]
pub(super) struct Control {
    fib: Arc<Ipv6Fib>,
    nodes: Blocks,
    leaves: Blocks,
    node_states: Vec<NodeState>,
    unused: Vec<u32>,
    /// Notes of the nodes below root entries, and the published locations of these nodes.
    roots: HashMap<u32, (u32, Option<u32>)>,
    /// Routes of at most the root's length, by length.
    short: [HashMap<u32, u32>; ROOT_BITS as usize + 1],
    dirty: BTreeSet<u32>,
    /// Previously published state of nodes that are rebuilt and not published yet.
    undo: Vec<(u32, PublishedNode)>,
    len: usize,
}

/// Returns the key of a route in a node at this depth.
fn place_in(network: u128, length: u8, depth: u32) -> u8 {
    let bits = u32::from(length) - depth;
    (1 << bits | slot_at(network, depth) >> (STRIDE - bits)) as u8
}

impl Control {
    pub(super) fn new(fib: Arc<Ipv6Fib>, nodes: u32, leaves: u32) -> Self {
        Self {
            fib,
            nodes: Blocks::new(nodes),
            leaves: Blocks::new(leaves),
            node_states: Vec::new(),
            unused: Vec::new(),
            roots: HashMap::new(),
            short: std::array::from_fn(|_| HashMap::new()),
            dirty: BTreeSet::new(),
            undo: Vec::new(),
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn nodes(&self) -> usize {
        self.nodes.used()
    }

    pub(super) fn set_epoch(&mut self, epoch: Epoch) {
        self.nodes.set_epoch(epoch);
        self.leaves.set_epoch(epoch);
    }

    pub(super) fn reclaim(&mut self, epoch: Epoch) {
        self.nodes.reclaim(epoch);
        self.leaves.reclaim(epoch);
    }

    pub(super) fn get(&self, network: u128, length: u8) -> Option<u32> {
        if u32::from(length) <= ROOT_BITS {
            return self.short[usize::from(length)]
                .get(&root_index(network).try_into().ok()?)
                .copied();
        }
        let (mut node_state, _) = self.roots.get(&(root_index(network) as u32)).copied()?;
        let mut depth = ROOT_BITS;
        while u32::from(length) > depth + STRIDE {
            let slot = slot_at(network, depth) as u8;
            let children = &self.node_states.get(node_state as usize)?.children;
            node_state = children.iter().find(|(one, _)| *one == slot)?.1;
            depth += STRIDE;
        }
        let place = place_in(network, length, depth);
        let routes = &self.node_states.get(node_state as usize)?.routes;
        routes
            .iter()
            .find(|(one, _)| *one == place)
            .map(|(_, next_hop)| *next_hop)
    }

    /// Notes a route or its removal and returns the previous next hop. Readers see it after [`Self::publish`].
    pub(super) fn set(&mut self, network: u128, length: u8, next_hop: Option<u32>) -> Option<u32> {
        let root = root_index(network) as u32;
        let former = if u32::from(length) <= ROOT_BITS {
            if length > 0 {
                let roots = 1 << (ROOT_BITS - u32::from(length));
                self.dirty.extend(root..root + roots);
            }
            let routes = &mut self.short[usize::from(length)];
            match next_hop {
                Some(next_hop) => routes.insert(root, next_hop),
                None => routes.remove(&root),
            }
        } else {
            self.dirty.insert(root);
            let node_state = self.node_state_for(network, length);
            let place = place_in(network, length, depth_of(length));
            set_in(
                &mut self.node_states[node_state as usize].routes,
                place,
                next_hop,
            )
        };
        self.len = self.len + usize::from(next_hop.is_some()) - usize::from(former.is_some());
        former
    }

    /// Returns the node that a route ends in. Creates it and its ancestors if necessary, and marks them for rebuilding.
    fn node_state_for(&mut self, network: u128, length: u8) -> u32 {
        let root = root_index(network) as u32;
        let mut node_state = match self.roots.get(&root) {
            Some((node_state, _)) => *node_state,
            None => {
                let node_state = self.new_node_state();
                self.roots.insert(root, (node_state, None));
                node_state
            }
        };
        let mut depth = ROOT_BITS;
        self.node_states[node_state as usize].dirty = true;
        while depth < depth_of(length) {
            let slot = slot_at(network, depth) as u8;
            let child = self.node_states[node_state as usize]
                .children
                .iter()
                .find(|(one, _)| *one == slot);
            let child = match child {
                Some((_, child)) => *child,
                None => {
                    let child = self.new_node_state();
                    set_in(
                        &mut self.node_states[node_state as usize].children,
                        slot,
                        Some(child),
                    );
                    child
                }
            };
            node_state = child;
            self.node_states[node_state as usize].dirty = true;
            depth += STRIDE;
        }
        node_state
    }

    fn new_node_state(&mut self) -> u32 {
        let node_state = NodeState {
            dirty: true,
            ..NodeState::default()
        };
        if let Some(index) = self.unused.pop() {
            self.node_states[index as usize] = node_state;
            index
        } else {
            self.node_states.push(node_state);
            (self.node_states.len() - 1) as u32
        }
    }

    /// Publishes the noted changes. If there is no space, nothing is published and the notes stay.
    pub(super) fn publish(&mut self) -> Result<(), TableFull> {
        let roots: Vec<u32> = self.dirty.iter().copied().collect();
        let mut shown = Vec::with_capacity(roots.len());
        for root in roots {
            match self.make_root(root) {
                Ok(entry) => shown.push((root, entry)),
                Err(TableFull) => {
                    self.take_back(&shown);
                    return Err(TableFull);
                }
            }
        }
        let default = self.short[0].get(&0).copied().unwrap_or(NO_ROUTE);
        // A reader that sees the number of the next hop also sees the next hop.
        self.fib.default.store(default, Ordering::Release);
        for (root, entry) in shown {
            self.show(root, entry);
        }
        // Nodes follow their descendants here.
        for (node_state, former) in std::mem::take(&mut self.undo) {
            let now = self.node_states[node_state as usize].shown;
            retire(&mut self.leaves, former.leaves, now.leaves);
            retire(&mut self.nodes, former.children, now.children);
            self.prune(node_state);
        }
        self.drop_roots();
        Ok(())
    }

    /// Rebuilds the nodes below a root entry. Returns the new root entry.
    fn make_root(&mut self, root: u32) -> Result<Option<u32>, TableFull> {
        let inherited = self.short_hop(root);
        let Some((node_state, place)) = self.roots.get(&root).copied() else {
            return Ok(None);
        };
        let before = self.node_states[node_state as usize].shown.words;
        self.rebuild_node(node_state, inherited)?;
        let words = self.node_states[node_state as usize].shown.words;
        if self.node_states[node_state as usize].is_gone() || (place.is_some() && words == before) {
            return Ok(place);
        }
        let node = self.nodes.take(1).ok_or(TableFull)?;
        self.fib.nodes[node as usize].store(words);
        Ok(Some(node))
    }

    /// Returns the next hop of a root entry without nodes: the longest short prefix except the default route.
    fn short_hop(&self, root: u32) -> u32 {
        for length in (1..=ROOT_BITS).rev() {
            let routes = &self.short[length as usize];
            if routes.is_empty() {
                continue;
            }
            let shift = ROOT_BITS - length;
            if let Some(next_hop) = routes.get(&(root >> shift << shift)) {
                return *next_hop;
            }
        }
        NO_ROUTE
    }

    /// Rebuilds a node and its changed descendants, not yet visible to readers.
    fn rebuild_node(&mut self, index: u32, inherited: u32) -> Result<(), TableFull> {
        let node_state = &self.node_states[index as usize];
        if !node_state.dirty && node_state.shown.inherited == inherited {
            return Ok(());
        }
        let slots = node_state.slots(inherited);
        let children = node_state.children.clone();
        let former = node_state.shown;
        let mut shown = former;
        let mut changed = former.children.count as usize != children.len();
        let mut words = Vec::with_capacity(children.len());
        let mut present = 0;
        for (slot, child) in children {
            let before = self.node_states[child as usize].shown.words;
            let was_new = self.node_states[child as usize].dirty;
            self.rebuild_node(child, slots[usize::from(slot)])?;
            if self.node_states[child as usize].is_gone() {
                changed = true;
                continue;
            }
            let now = self.node_states[child as usize].shown.words;
            changed |= was_new || now != before;
            present |= 1u64 << slot;
            words.push(now);
        }
        changed |= former.words.children != present;
        // The published state is recorded from here on, and is restored if there is no space.
        self.undo.push((index, former));
        if changed {
            shown.children = self.store_children(&words)?;
        }
        self.node_states[index as usize].shown.children = shown.children;
        let (bits, hops) = leaves_of(&slots, present);
        shown.leaves = self.store_leaves(&hops)?;
        shown.words = NodeWords {
            children: present,
            leaves: bits,
            first_child: shown.children.first,
            first_leaf: shown.leaves.first,
        };
        shown.inherited = inherited;
        let node_state = &mut self.node_states[index as usize];
        node_state.shown = shown;
        node_state.dirty = false;
        Ok(())
    }

    fn store_children(&mut self, words: &[NodeWords]) -> Result<Block, TableFull> {
        let count = words.len() as u32;
        if count == 0 {
            return Ok(Block::default());
        }
        let first = self.nodes.take(count).ok_or(TableFull)?;
        let places = self.fib.nodes.iter().skip(first as usize);
        places
            .zip(words)
            .for_each(|(place, words)| place.store(*words));
        Ok(Block { first, count })
    }

    fn store_leaves(&mut self, hops: &[u32]) -> Result<Block, TableFull> {
        let count = hops.len() as u32;
        if count == 0 {
            return Ok(Block::default());
        }
        let first = self.leaves.take(count).ok_or(TableFull)?;
        let places = self.fib.leaves.iter().skip(first as usize);
        places
            .zip(hops)
            .for_each(|(place, hop)| place.store(*hop, Ordering::Relaxed));
        Ok(Block { first, count })
    }

    /// Exchanges a root entry.
    fn show(&mut self, root: u32, node: Option<u32>) {
        let is_gone = match self.roots.get(&root) {
            Some((node_state, _)) => self.node_states[*node_state as usize].is_gone(),
            None => true,
        };
        let entry = match node {
            Some(node) if !is_gone => NODE | node,
            _ => self.short_hop(root),
        };
        // A reader that sees the entry also sees the nodes below it.
        self.fib.root[root as usize].store(entry, Ordering::Release);
        if let Some((_, place)) = self.roots.get_mut(&root) {
            let former = std::mem::replace(place, node.filter(|_| !is_gone));
            if let Some(former) = former
                && *place != Some(former)
            {
                self.nodes.retire(former, 1);
            }
        }
    }

    /// Rolls back after a lack of space: frees unpublished nodes and keeps them marked for rebuilding.
    fn take_back(&mut self, made: &[(u32, Option<u32>)]) {
        for (root, node) in made {
            if let (Some(node), Some((_, place))) = (node, self.roots.get(root))
                && *place != Some(*node)
            {
                self.nodes.give_back(*node, 1);
            }
        }
        for (index, former) in std::mem::take(&mut self.undo).into_iter().rev() {
            let node_state = &mut self.node_states[index as usize];
            let now = std::mem::replace(&mut node_state.shown, former);
            node_state.dirty = true;
            give_back(&mut self.leaves, now.leaves, former.leaves);
            give_back(&mut self.nodes, now.children, former.children);
        }
    }

    /// Removes empty descendants of a node.
    fn prune(&mut self, index: u32) {
        let mut children = std::mem::take(&mut self.node_states[index as usize].children);
        children.retain(|(_, child)| {
            let is_gone = self.node_states[*child as usize].is_gone();
            if is_gone {
                self.forget(*child);
            }
            !is_gone
        });
        self.node_states[index as usize].children = children;
    }

    /// Removes empty nodes below changed root entries.
    fn drop_roots(&mut self) {
        for root in std::mem::take(&mut self.dirty) {
            if let Some((node_state, _)) = self.roots.get(&root).copied()
                && self.node_states[node_state as usize].is_gone()
            {
                self.roots.remove(&root);
                self.forget(node_state);
            }
        }
    }

    fn forget(&mut self, index: u32) {
        let node_state = std::mem::take(&mut self.node_states[index as usize]);
        retire(&mut self.leaves, node_state.shown.leaves, Block::default());
        retire(&mut self.nodes, node_state.shown.children, Block::default());
        self.unused.push(index);
    }
}

/// Returns the depth of the node that a route of this length ends in.
fn depth_of(length: u8) -> u32 {
    ROOT_BITS + (u32::from(length) - ROOT_BITS - 1) / STRIDE * STRIDE
}

fn set_in(list: &mut Vec<(u8, u32)>, key: u8, value: Option<u32>) -> Option<u32> {
    match (list.binary_search_by_key(&key, |(key, _)| *key), value) {
        (Ok(index), Some(value)) => Some(std::mem::replace(&mut list[index].1, value)),
        (Ok(index), None) => Some(list.remove(index).1),
        (Err(index), Some(value)) => {
            list.insert(index, (key, value));
            None
        }
        (Err(_), None) => None,
    }
}

/// Returns a bit mask of the slots without a node whose next hop differs from the previous one, and these next hops.
fn leaves_of(slots: &[u32; SLOTS], children: u64) -> (u64, Vec<u32>) {
    let (mut bits, mut hops) = (0, Vec::new());
    for (slot, hop) in slots.iter().enumerate() {
        if children >> slot & 1 == 0 && hops.last() != Some(hop) {
            bits |= 1 << slot;
            hops.push(*hop);
        }
    }
    (bits, hops)
}

fn retire(blocks: &mut Blocks, former: Block, now: Block) {
    if former.count > 0 && (former.first != now.first || now.count == 0) {
        blocks.retire(former.first, former.count);
    }
}

fn give_back(blocks: &mut Blocks, made: Block, former: Block) {
    if made.count > 0 && (made.first != former.first || former.count == 0) {
        blocks.give_back(made.first, made.count);
    }
}
