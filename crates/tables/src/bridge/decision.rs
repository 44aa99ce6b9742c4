// SPDX-License-Identifier: Apache-2.0
//! What is to become of frames, and the counts of it.

use quietwire_base::BURST_MAX;

use super::storm::Kind;
use super::vlans::{Membership, TagAction};
use crate::fdb::Learned;

/// Why a frame goes nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Shorter than an Ethernet header ([`quietwire_packet::Damage::Short`]), or ending in a tag that the port looks at
    /// ([`quietwire_packet::Damage::TruncatedVlan`]).
    Short,
    /// The destination is on the port that the frame came from (IEEE 802.1Q, section 8.6.1).
    Filtered,
    /// To one of the addresses 01:80:C2:00:00:00 to 0F, which bridges do not forward (IEEE 802.1Q, section 8.6.3).
    Reserved,
    /// Tagged on a port that admits untagged and priority-tagged frames only, or one of those on a port that admits tagged
    /// frames only (IEEE 802.1Q, section 6.9).
    FrameType,
    /// Of a VLAN that the port it came in by is not in (IEEE 802.1Q, section 8.6.2), or of the reserved VLAN 4095
    /// (section 9.6, table 9-2).
    NotMember,
    /// The port of its destination is not in its VLAN, or in the bridge, any longer (IEEE 802.1Q, section 8.6.4).
    NoMember,
    /// The destination is on a port of the same split-horizon group.
    SplitHorizon,
    /// It would have to be flooded, and frames of its kind are flooded nowhere.
    NotFlooded,
    /// The port has brought in too many frames to be flooded.
    Storm(Kind),
    /// Its source address is over the limit of the port.
    OverLimit,
    /// It came in by a port or an interface that the bridge does not have.
    NoInput,
}

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
    Drop(Reason),
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
    /// Frames dropped as [`Reason::Short`].
    pub short: u64,
    /// Frames dropped as [`Reason::Filtered`].
    pub filtered: u64,
    /// Frames dropped as [`Reason::Reserved`].
    pub reserved: u64,
    /// Frames dropped as [`Reason::FrameType`].
    pub frame_type: u64,
    /// Frames dropped as [`Reason::NotMember`].
    pub not_member: u64,
    /// Frames dropped as [`Reason::NoMember`].
    pub no_member: u64,
    /// Frames dropped as [`Reason::SplitHorizon`].
    pub split_horizon: u64,
    /// Frames dropped as [`Reason::NotFlooded`].
    pub not_flooded: u64,
    /// Frames dropped as [`Reason::Storm`]: unknown unicast, broadcast, multicast.
    pub storm: [u64; 3],
    /// Frames dropped as [`Reason::OverLimit`].
    pub over_limit: u64,
    /// Frames dropped as [`Reason::NoInput`].
    pub no_input: u64,
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
            Decision::Drop(reason) => self.count_drop(reason),
        }
    }

    #[inline(always)]
    fn count_drop(&mut self, reason: Reason) {
        let count = match reason {
            Reason::Short => &mut self.short,
            Reason::Filtered => &mut self.filtered,
            Reason::Reserved => &mut self.reserved,
            Reason::FrameType => &mut self.frame_type,
            Reason::NotMember => &mut self.not_member,
            Reason::NoMember => &mut self.no_member,
            Reason::SplitHorizon => &mut self.split_horizon,
            Reason::NotFlooded => &mut self.not_flooded,
            Reason::Storm(Kind::UnknownUnicast) => &mut self.storm[0],
            Reason::Storm(Kind::Broadcast) => &mut self.storm[1],
            Reason::Storm(Kind::Multicast) => &mut self.storm[2],
            Reason::OverLimit => &mut self.over_limit,
            Reason::NoInput => &mut self.no_input,
        };
        *count += 1;
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
