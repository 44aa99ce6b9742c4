// SPDX-License-Identifier: Apache-2.0
//! Next hops by number: the results of forwarding tables. Each is one word, which the control thread exchanges as a whole: resolving,
//! losing or replacing a neighbour is one store, regardless of the number of routes.
//!
//! A group distributes flows over several next hops (equal-cost multipath; RFC 2992). Its hashing is resilient: a leaving member gives only
//! its own buckets to the others, and a joining member takes only its share, so that other flows stay on their member.

mod shares;
#[cfg(test)]
mod tests;
mod writer;

use quietwire_memory::atomic::{AtomicU32, AtomicU64, Ordering};
use quietwire_packet::MacAddress;

use super::decision::{Adjacency, DecisionWord, FORWARD};
pub use writer::NextHopWriter;

/// Maximum number of members of a group.
pub const MEMBERS_MAX: usize = 64;

const KIND_SHIFT: u32 = 60;
/// Kind of a resolved neighbour.
const ADJACENCY: u64 = FORWARD;
pub(super) const INTERFACE_SHIFT: u32 = 48;
const INTERFACE_MASK: u64 = 0xfff;
const MAC_MASK: u64 = (1 << INTERFACE_SHIFT) - 1;
const SIZE_SHIFT: u32 = 32;
const COUNT_SHIFT: u32 = 37;

/// A next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop {
    /// No route.
    None,
    /// Drop silently.
    Blackhole,
    /// Drop and send ICMP host unreachable.
    Unreachable,
    /// Drop and send ICMP communication administratively prohibited.
    Prohibit,
    /// Deliver to the router itself.
    Local,
    /// The destination is on this interface's link, and not resolved yet.
    Glean {
        /// Number of the interface.
        interface: u16,
    },
    /// The next router is on this interface's link, and not resolved yet.
    Incomplete {
        /// Number of the interface.
        interface: u16,
    },
    /// Forward to a neighbour.
    Adjacency {
        /// Number of the interface.
        interface: u16,
        /// MAC address of the neighbour.
        mac: MacAddress,
    },
    /// Select a member by the packet's flow hash.
    Group(Buckets),
}

/// Buckets and members of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets {
    first: u32,
    size_log2: u8,
    members: u8,
}

impl NextHop {
    fn word(self) -> u64 {
        let on = |kind: u64, interface: u16| {
            kind << KIND_SHIFT | (interface as u64 & INTERFACE_MASK) << INTERFACE_SHIFT
        };
        match self {
            Self::None => 0,
            Self::Blackhole => 1 << KIND_SHIFT,
            Self::Unreachable => 2 << KIND_SHIFT,
            Self::Prohibit => 3 << KIND_SHIFT,
            Self::Local => 4 << KIND_SHIFT,
            Self::Glean { interface } => on(5, interface),
            Self::Incomplete { interface } => on(6, interface),
            Self::Adjacency { interface, mac } => on(ADJACENCY, interface) | mac.to_u64(),
            Self::Group(group) => {
                8 << KIND_SHIFT
                    | (group.members as u64) << COUNT_SHIFT
                    | (group.size_log2 as u64) << SIZE_SHIFT
                    | group.first as u64
            }
        }
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "each field of the word has the bits of its type"
    )]
    #[inline(always)]
    const fn of_word(word: u64) -> Self {
        let interface = (word >> INTERFACE_SHIFT & INTERFACE_MASK) as u16;
        match word >> KIND_SHIFT {
            1 => Self::Blackhole,
            2 => Self::Unreachable,
            3 => Self::Prohibit,
            4 => Self::Local,
            5 => Self::Glean { interface },
            6 => Self::Incomplete { interface },
            ADJACENCY => Self::Adjacency {
                interface,
                mac: MacAddress::from_u64(word & MAC_MASK),
            },
            8 => Self::Group(Buckets {
                first: word as u32,
                size_log2: (word >> SIZE_SHIFT & 0x1f) as u8,
                members: (word >> COUNT_SHIFT & 0x7f) as u8,
            }),
            _ => Self::None,
        }
    }

    /// Returns the egress interface.
    #[inline(always)]
    #[must_use]
    pub const fn interface(self) -> Option<u16> {
        match self {
            Self::Glean { interface }
            | Self::Incomplete { interface }
            | Self::Adjacency { interface, .. } => Some(interface),
            _ => None,
        }
    }
}

/// Next hop table of forwarding threads.
#[derive(Debug)]
pub struct NextHops {
    words: Box<[AtomicU64]>,
    buckets: Box<[AtomicU32]>,
}

impl NextHops {
    /// Returns the next hop with this number.
    #[inline(always)]
    #[must_use]
    pub fn get(&self, number: u32) -> NextHop {
        NextHop::of_word(self.word(number))
    }

    /// Returns the adjacency of a resolved neighbour, the most common next hop.
    #[inline(always)]
    pub(super) fn adjacency(&self, number: u32) -> Option<Adjacency> {
        DecisionWord::of(self.word(number)).forwarded()
    }

    /// Returns the word of the next hop with this number: kind, interface and neighbour; 0, the word of no route, for a number beyond the table.
    #[inline(always)]
    pub(super) fn word(&self, number: u32) -> u64 {
        match self.words.get(number as usize) {
            Some(word) => word.load(Ordering::Acquire),
            None => 0,
        }
    }

    /// Prefetches the next hop with this number.
    #[inline(always)]
    pub fn prefetch(&self, number: u32) {
        if let Some(word) = self.words.get(number as usize) {
            quietwire_memory::prefetch(word);
        }
    }

    /// Returns the next hop of a flow in a group.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a group is in the table, with a power of two of buckets that is at most that of BUCKETS_MAX"
    )]
    #[inline]
    #[must_use]
    pub fn choose(&self, group: Buckets, flow: u32) -> NextHop {
        let bucket = flow & ((1 << group.size_log2) - 1);
        match self.buckets.get((group.first + bucket) as usize) {
            Some(number) => self.get(number.load(Ordering::Acquire)),
            None => NextHop::None,
        }
    }

    /// Returns true if a member of the group uses this egress interface.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "a group is in the table, with a power of two of buckets that is at most that of BUCKETS_MAX"
    )]
    #[must_use]
    pub fn leaves_by(&self, group: Buckets, interface: u16) -> bool {
        let first = group.first as usize + (1 << group.size_log2);
        let members = self
            .buckets
            .iter()
            .skip(first)
            .take(usize::from(group.members));
        members
            .map(|number| self.get(number.load(Ordering::Acquire)))
            .any(|next_hop| next_hop.interface() == Some(interface))
    }
}

/// Error of creating a next hop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NextHopError {
    /// The table is full.
    #[error("the next hop table is full (raise next-hops-max)")]
    Full,
    /// Number of members not between 1 and [`MEMBERS_MAX`].
    #[error("a route has {0} next hops (allowed: 1 to {MEMBERS_MAX})")]
    Members(usize),
}

/// A member of a group: a next hop number, and its weight.
pub type Member = (u32, u8);
