// SPDX-License-Identifier: Apache-2.0
//! Reader side of an IPv6 table: nodes and look-ups.

use quietwire_base::BURST_MAX;
use quietwire_memory::atomic::{AtomicU32, AtomicU64, Ordering};
use quietwire_memory::{prefetch, prefetch_address};

use crate::fib::NO_ROUTE;

/// Bits of the root (fewer in models), and of each node.
pub(super) const ROOT_BITS: u32 = if cfg!(loom) { 2 } else { 18 };
pub(super) const STRIDE: u32 = 6;
pub(super) const SLOTS: usize = 1 << STRIDE;
/// Maximum number of nodes of a look-up: 18 + 19 · 6 exceeds 128.
const LEVELS: u32 = 19;

/// The last depth at which a node decides on bits of a destination's upper half alone.
const HALF_DEPTH: u32 = 64 - STRIDE;

/// Mask of the kind of a look-up state: a next hop, the index of a next hop, or the index of a node.
const KIND: u32 = 3 << 30;
pub(super) const NODE: u32 = 2 << 30;
pub(super) const LEAF: u32 = 1 << 30;

/// A node: masks of slots with nodes and of slots with a new next hop, and the locations of both.
#[derive(Debug, Default)]
#[cfg_attr(not(loom), derive(zerocopy::FromZeros))]
#[repr(C, align(32))]
pub(super) struct Node {
    children: AtomicU64,
    leaves: AtomicU64,
    bases: AtomicU64,
    unused: AtomicU64,
}

/// Words of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NodeWords {
    pub(super) children: u64,
    pub(super) leaves: u64,
    pub(super) first_child: u32,
    pub(super) first_leaf: u32,
}

impl Node {
    pub(super) fn store(&self, words: NodeWords) {
        self.children.store(words.children, Ordering::Relaxed);
        self.leaves.store(words.leaves, Ordering::Relaxed);
        let bases = u64::from(words.first_child) << 32 | u64::from(words.first_leaf);
        self.bases.store(bases, Ordering::Relaxed);
    }

    /// Returns the target of a slot, given by the lowest six bits. The kind of target is unpredictable, so the code does not branch on it.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "bits of slots are below 64, and the base is the lower half of the word"
    )]
    #[inline(always)]
    fn follow(&self, slot: u32) -> u32 {
        let slot = slot % SLOTS as u32;
        let children = self.children.load(Ordering::Relaxed);
        let leaves = self.leaves.load(Ordering::Relaxed);
        let bases = self.bases.load(Ordering::Relaxed);
        let is_child = children >> slot & 1 == 1;
        let (among, base, kind) = if is_child {
            (children, bases >> 32, NODE)
        } else {
            (leaves, bases, LEAF)
        };
        let upto = (2u64 << slot).wrapping_sub(1);
        let place = (base as u32).wrapping_add((among & upto).count_ones().wrapping_sub(1));
        kind | place
    }
}

/// Returns the six bits of a destination that a node at this depth decides on.
#[allow(
    clippy::cast_possible_truncation,
    clippy::arithmetic_side_effects,
    reason = "depths are below 128, and STRIDE bits are left"
)]
#[inline(always)]
pub(super) const fn slot_at(destination: u128, depth: u32) -> u32 {
    ((destination << depth) >> (128 - STRIDE)) as u32
}

/// The table of forwarding threads.
#[derive(Debug)]
pub struct Ipv6Fib {
    pub(super) default: AtomicU32,
    pub(super) root: Box<[AtomicU32]>,
    pub(super) nodes: Box<[Node]>,
    pub(super) leaves: Box<[AtomicU32]>,
}

impl Ipv6Fib {
    /// Returns the next hop number of a destination; [`NO_ROUTE`] if there is none.
    #[expect(clippy::arithmetic_side_effects, reason = "depths are at most 128")]
    #[inline]
    #[must_use]
    pub fn look_up(&self, destination: u128) -> u32 {
        let mut at = self.begin(destination);
        let mut depth = ROOT_BITS;
        for _ in 0..LEVELS {
            if at & KIND != NODE {
                break;
            }
            at = self.step(at, slot_at(destination, depth));
            depth += STRIDE;
        }
        if at & KIND != 0 {
            at = self.leaf(at);
        }
        self.finish(at)
    }

    /// Looks up the next hop numbers of a burst. Destinations beyond [`BURST_MAX`], or without a place in `next_hops`, are ignored.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "depths are at most 128, and there are at most BURST_MAX places"
    )]
    #[inline]
    pub fn look_up_burst(&self, destinations: &[u128], next_hops: &mut [u32]) {
        let destinations = destinations.get(..BURST_MAX).unwrap_or(destinations);
        for destination in destinations {
            if let Some(place) = self.root.get(root_index(*destination)) {
                prefetch(place);
            }
        }
        // Places of look-ups that are at a node, so that finished look-ups cost nothing at deeper levels.
        let mut under_way = [0u8; BURST_MAX];
        let mut count = 0;
        for (place, (destination, at)) in destinations.iter().zip(&mut *next_hops).enumerate() {
            *at = self.begin(*destination);
            self.prefetch(*at);
            keep(&mut under_way, &mut count, place as u8, *at);
        }
        for level in 0..LEVELS {
            if count == 0 {
                break;
            }
            let depth = ROOT_BITS + level * STRIDE;
            let on = (&mut under_way, count);
            count = if depth <= HALF_DEPTH {
                // Internet prefixes end in the upper half: one shift instead of a two-word shift.
                let slot = |to: u128| ((to >> 64) as u64 >> (HALF_DEPTH - depth)) as u32;
                self.step_all(destinations, next_hops, on, slot)
            } else {
                self.step_all(destinations, next_hops, on, |to| slot_at(to, depth))
            };
        }
        for at in next_hops.iter_mut().take(destinations.len()) {
            if *at & KIND != 0 {
                *at = self.leaf(*at);
            }
            *at = self.finish(*at);
        }
    }

    /// Advances the look-ups at nodes by one level. Returns the number still at nodes.
    #[inline(always)]
    fn step_all(
        &self,
        destinations: &[u128],
        all: &mut [u32],
        (under_way, count): (&mut [u8; BURST_MAX], usize),
        slot: impl Fn(u128) -> u32,
    ) -> usize {
        let mut kept = 0;
        for index in 0..count {
            let Some(place) = under_way.get(index).copied() else {
                break;
            };
            let (Some(destination), Some(at)) = (
                destinations.get(usize::from(place)),
                all.get_mut(usize::from(place)),
            ) else {
                break;
            };
            *at = self.step(*at, slot(*destination));
            self.prefetch(*at);
            keep(under_way, &mut kept, place, *at);
        }
        kept
    }

    #[inline(always)]
    fn begin(&self, destination: u128) -> u32 {
        match self.root.get(root_index(destination)) {
            Some(place) => place.load(Ordering::Acquire),
            None => NO_ROUTE,
        }
    }

    /// Prefetches the next memory of a look-up, without a branch on its kind.
    #[inline(always)]
    fn prefetch(&self, at: u32) {
        let index = (at & !KIND) as usize;
        let node = self.nodes.as_ptr().wrapping_add(index).cast();
        let leaf = self.leaves.as_ptr().wrapping_add(index).cast();
        prefetch_address(if at & KIND == NODE { node } else { leaf });
    }

    /// Returns the state below a node.
    #[inline(always)]
    fn step(&self, at: u32, slot: u32) -> u32 {
        match self.nodes.get((at & !KIND) as usize) {
            Some(node) => node.follow(slot),
            None => NO_ROUTE,
        }
    }

    #[inline(always)]
    fn leaf(&self, at: u32) -> u32 {
        match self.leaves.get((at & !KIND) as usize) {
            Some(leaf) => leaf.load(Ordering::Relaxed),
            None => NO_ROUTE,
        }
    }

    #[inline(always)]
    fn finish(&self, next_hop: u32) -> u32 {
        match next_hop {
            NO_ROUTE => self.default.load(Ordering::Acquire),
            next_hop => next_hop,
        }
    }
}

/// Records a look-up that is at a node, without a branch.
#[expect(clippy::arithmetic_side_effects, reason = "at most BURST_MAX places")]
#[inline(always)]
fn keep(places: &mut [u8; BURST_MAX], count: &mut usize, place: u8, at: u32) {
    if let Some(free) = places.get_mut(*count) {
        *free = place;
    }
    *count += usize::from(at & KIND == NODE);
}

#[allow(clippy::cast_possible_truncation, reason = "ROOT_BITS bits are left")]
#[inline(always)]
pub(super) const fn root_index(destination: u128) -> usize {
    (destination >> (128 - ROOT_BITS)) as usize
}
