// SPDX-License-Identifier: Apache-2.0
//! What is to become of frames, and the counts of it.

use quietwire_base::BURST_MAX;

use super::vlans::{Membership, TagAction};
use crate::drops::{PortDrop, PortDrops};
use crate::fdb::Learned;

/// A frame that is to go out of several ports: which ones, [`super::BridgeTables::copies`] says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flood {
    pub(super) set: u32,
    pub(super) membership: Membership,
}

/// What is to become of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Out of the port with this number, as it is.
    Forward(u16),
    /// Out of the port with this number, after this was done to its tag.
    ForwardTag(u16, TagAction),
    /// Out of all other ports of the bridge, as it is.
    Flood,
    /// Out of several ports, which [`super::BridgeTables::copies`] says.
    FloodSet(Flood),
    /// To the bridge's own interface with this number, after this was done to its tag.
    Local(u16, TagAction),
    /// Nowhere.
    Drop(PortDrop),
}

/// Decisions on a burst of frames, in their order.
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
    /// The decisions.
    #[inline(always)]
    #[must_use]
    pub fn as_slice(&self) -> &[Decision] {
        self.list.get(..self.len).unwrap_or(&[])
    }

    /// The decision on all frames, when it is the same.
    #[inline(always)]
    #[must_use]
    pub fn sole(&self) -> Option<Decision> {
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
            self.len += 1;
            self.same &= decision == self.list[0];
        }
    }

    /// The same as [`Decisions::push`] with the decision that was pushed last.
    #[inline(always)]
    pub(super) fn push_again(&mut self, last: Decision) {
        if let Some(place) = self.list.get_mut(self.len) {
            *place = last;
            self.len += 1;
        }
    }
}

/// What happened to the frames of a burst.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames flooded.
    pub flooded: u64,
    /// Frames to the bridge's own interface, floods not counted.
    pub local: u64,
    /// Frames dropped.
    pub dropped: u64,
    /// The same by reason.
    pub drops: PortDrops,
    /// Source addresses that were new.
    pub learned: u64,
    /// Source addresses that had been on another port.
    pub moved: u64,
    /// Those of them that have moved more often than they may.
    pub flapped: u64,
    /// Source addresses that were not learned: the table was full, the port was at its limit, or the address has a static
    /// entry on another port.
    pub not_learned: u64,
    /// Those of them that have a static entry on another port.
    pub static_elsewhere: u64,
}

impl Tally {
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
