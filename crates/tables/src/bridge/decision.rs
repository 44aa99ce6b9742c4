// SPDX-License-Identifier: Apache-2.0
//! Per-frame bridge decisions and their counters.

use quietwire_base::BURST_MAX;

use super::vlans::{Membership, TagAction};
use crate::drops::{PortDrop, PortDrops};
use crate::fdb::Learned;

/// A frame to flood to several ports. [`super::BridgeTables::copies`] returns the ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    pub(super) set: u32,
    pub(super) membership: Membership,
}

/// Bridge decision for a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Forward to the port with this number, unchanged.
    Forward(u16),
    /// Forward to the port with this number, after this tag action.
    ForwardTag(u16, TagAction),
    /// Flood to all other ports of the bridge, unchanged.
    Flood,
    /// Flood to the ports that [`super::BridgeTables::copies`] returns.
    FloodSet(Flood),
    /// Deliver to the bridge's own interface with this number, after this tag action.
    Local(u16, TagAction),
    /// Drop.
    Drop(PortDrop),
}

/// Decisions for a burst of frames, in their order.
#[derive(Debug)]
pub struct Decisions {
    list: [Decision; BURST_MAX],
    len: usize,
    same: bool,
}

impl Default for Decisions {
    fn default() -> Self {
        Self {
            list: [Decision::Flood; BURST_MAX],
            len: 0,
            same: true,
        }
    }
}

impl Decisions {
    /// Returns the decisions.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[Decision] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    /// Returns the decision if it is the same for all frames.
    #[inline(always)]
    #[must_use]
    pub fn common(&self) -> Option<Decision> {
        if self.same {
            self.as_slice().first().copied()
        } else {
            None
        }
    }

    pub(super) fn clear(&mut self) {
        self.len = 0;
        self.same = true;
    }

    #[inline(always)]
    pub(super) fn push(&mut self, decision: Decision) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = decision;
            self.len = self.len.wrapping_add(1);
            self.same &= decision == self.list[0];
        }
    }

    /// Repeats the last decision; equivalent to [`Decisions::push`].
    #[inline(always)]
    pub(super) fn push_again(&mut self, last: Decision) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = last;
            self.len = self.len.wrapping_add(1);
        }
    }
}

/// Counters of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames flooded.
    pub flooded: u64,
    /// Frames to the bridge's own interface, excluding floods.
    pub local: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// Dropped frames by reason.
    pub drops: PortDrops,
    /// New source addresses.
    pub learned: u64,
    /// Source addresses that moved from another port.
    pub moved: u64,
    /// Moves beyond the flap limit.
    pub flapped: u64,
    /// Source addresses not learned: table full, port at its limit, or a static entry on another port.
    pub not_learned: u64,
    /// Source addresses not learned because of a static entry on another port.
    pub static_elsewhere: u64,
}

impl Tally {
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most BURST_MAX frames are counted"
    )]
    #[allow(
        clippy::indexing_slicing,
        reason = "the index is a reason, of which each has its count"
    )]
    #[inline(always)]
    pub(super) fn count(&mut self, decision: Decision) {
        match decision {
            Decision::Forward(_) | Decision::ForwardTag(..) => {}
            Decision::Flood | Decision::FloodSet(_) => self.flooded += 1,
            Decision::Local(..) => self.local += 1,
            Decision::Drop(reason) => {
                self.dropped += 1;
                self.drops[reason] += 1;
            }
        }
    }

    #[expect(
        clippy::arithmetic_side_effects,
        reason = "at most BURST_MAX frames are counted"
    )]
    #[inline(always)]
    pub(super) fn count_learned(&mut self, learned: Learned) {
        match learned {
            Learned::Known => {}
            Learned::New => self.learned += 1,
            Learned::Moved => self.moved += 1,
            Learned::Flapped => {
                self.moved += 1;
                self.flapped += 1;
            }
            Learned::Full | Learned::OverLimit => self.not_learned += 1,
            Learned::Static => {
                self.not_learned += 1;
                self.static_elsewhere += 1;
            }
        }
    }
}
