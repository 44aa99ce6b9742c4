// SPDX-License-Identifier: Apache-2.0
//! Nodes of decision trees.

use super::key::{Key, WORDS};
use super::region::Window;

/// Maximum number of trees.
pub const TREES_MAX: usize = 6;
/// Maximum number of nodes between a root and a leaf.
pub const DEPTH_MAX: usize = 16;

/// A node in one word: where the children or the rules of a leaf begin, and the window that selects a child or the number of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Node(u64);

const IS_LEAF: u64 = 1 << 63;
const WORD: u32 = 32;
const SHIFT: u32 = 36;
const BITS: u32 = 41;

impl Node {
    /// A leaf without rules.
    pub(super) const EMPTY: Self = Self(IS_LEAF);

    /// Creates a leaf of `count` rules (at most 2^24).
    pub(super) const fn leaf(first: u32, count: u32) -> Self {
        Self(IS_LEAF | ((count as u64) << WORD) | first as u64)
    }

    /// Creates a node whose first child is `first`.
    pub(super) const fn inner(first: u32, window: Window) -> Self {
        Self(
            ((window.word as u64) << WORD)
                | ((window.shift as u64) << SHIFT)
                | ((window.bits as u64) << BITS)
                | first as u64,
        )
    }

    #[inline(always)]
    pub(super) const fn is_leaf(self) -> bool {
        self.0 & IS_LEAF != 0
    }

    /// Returns the index of the child for a key.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects,
        reason = "fields of the node of at most 32 bits, and the child is one of the node's"
    )]
    #[inline(always)]
    pub(super) const fn child(self, key: &Key) -> usize {
        let word = key.words[(self.0 >> WORD) as usize % WORDS];
        let bits = (self.0 >> BITS) as u32 % 16;
        let value = (word >> ((self.0 >> SHIFT) as u32 % 32)) & ((1 << bits) - 1);
        (self.0 as u32 + value) as usize
    }

    /// Returns the rules of a leaf: the index of the first, and their number.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "fields of the node of at most 32 bits"
    )]
    #[inline(always)]
    pub(super) const fn rules(self) -> (usize, usize) {
        (
            self.0 as u32 as usize,
            (self.0 >> WORD) as usize & 0xff_ffff,
        )
    }
}
