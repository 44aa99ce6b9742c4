// SPDX-License-Identifier: Apache-2.0
//! Connections of an active switch and of its standby: changes that the one notes and the other applies.
//!
//! Only connections with packets of both sides, and a complete handshake of TCP, are for the standby: a flood of first packets leads to no
//! changes. A change has the whole state at the time when it is taken, so later ones of a connection replace earlier ones.

use super::super::names::{Direction, Eviction};
use super::super::noted::Noted;
use super::super::saved::{ConnectionChange, Saved, SavedConnection};
use super::super::settings::Seconds;
use super::super::tcp::Side;
use super::{RestoreError, Tracker, labels};
use crate::changes::{Applied, ApplyError, ChangeRing, Replicate};

impl Tracker {
    /// Allocates the ring of changes, without which the tracker notes none.
    pub fn allow_changes(&mut self) {
        let fill = Noted::Changed {
            index: 0,
            generation: 0,
        };
        self.changes = Some(Box::new(ChangeRing::new(fill)));
    }

    /// Notes that the state of a connection has changed.
    #[inline]
    pub(super) fn note_change(&mut self, index: u32) {
        let Some(changes) = &mut self.changes else {
            return;
        };
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return;
        };
        let state = entry.state();
        if state.is_some_and(|state| state.eviction() != Eviction::Embryonic) {
            entry.set_shared();
            let generation = entry.generation;
            changes.push(Noted::Changed { index, generation });
        }
    }

    /// Notes that a connection is about to end, if the standby may have it.
    #[inline]
    pub(super) fn note_end(&mut self, index: u32) {
        let (Some(changes), Some(entry)) = (&mut self.changes, self.entries.get(index as usize))
        else {
            return;
        };
        if entry.is_shared()
            && let Some(saved) = SavedConnection::of_ended(entry)
        {
            changes.push(Noted::Ended(saved));
        }
    }
}

impl Replicate for Tracker {
    type Change = ConnectionChange;

    fn take_changes(&mut self, limits: (usize, usize), list: &mut Vec<ConnectionChange>) -> bool {
        let (entries, now) = (&self.entries, self.now);
        let labels = self.labels.as_deref();
        let change_of = |noted| match noted {
            Noted::Ended(saved) => Some(ConnectionChange::Ended(saved)),
            Noted::Changed { index, generation } => {
                let entry = entries.get(index as usize);
                let entry = entry.filter(|one| one.generation == generation);
                let label = |one| labels::label_of(labels, index, one);
                let saved = entry.and_then(|one| SavedConnection::of(one, label(one), now));
                saved.map(ConnectionChange::Present)
            }
        };
        let changes = self.changes.as_mut();
        changes.is_some_and(|changes| changes.take_into(limits, list, change_of))
    }

    fn take_lost_changes(&mut self) -> u64 {
        let changes = self.changes.as_mut();
        changes.map_or(0, |changes| changes.take_loss())
    }

    fn end_changes(&mut self) {
        if let Some(changes) = &mut self.changes {
            changes.end();
        }
    }

    fn share_into(
        &mut self,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<ConnectionChange>,
    ) -> Option<u32> {
        let start = (from as usize).min(self.entries.len());
        let end = start.saturating_add(budget).min(self.entries.len());
        let entries = self.entries.get_mut(start..end).unwrap_or_default();
        for (position, entry) in (from..).zip(entries) {
            if list.len() >= count {
                return Some(position);
            }
            let state = entry.state();
            if state.is_none_or(|state| state.eviction() == Eviction::Embryonic) {
                continue;
            }
            let label = labels::label_of(self.labels.as_deref(), position, entry);
            if let Some(saved) = SavedConnection::of(entry, label, self.now) {
                entry.set_shared();
                list.push(ConnectionChange::Present(saved));
            }
        }
        if end < self.entries.len() {
            u32::try_from(end).ok()
        } else {
            None
        }
    }

    /// The connection takes the place of one with the same endpoints, and of embryonic and closed ones if there is no space. A segment of
    /// TCP need not fit the numbers, which are those of an earlier moment, until segments of both sides have confirmed them.
    fn apply(&mut self, change: &ConnectionChange, now: Seconds) -> Result<Applied, ApplyError> {
        self.now = self.now.max(now);
        match change {
            ConnectionChange::Present(saved) => {
                let mut saved = saved.read().ok_or(ApplyError::Invalid)?;
                saved.sides.iter_mut().for_each(Side::note_unseen_segments);
                self.apply_present(&saved)
            }
            ConnectionChange::Ended(saved) => {
                let saved = saved.read().ok_or(ApplyError::Invalid)?;
                Ok(match self.index_of(&saved) {
                    Some(index) => {
                        self.remove(index);
                        Applied::Removed
                    }
                    None => Applied::Absent,
                })
            }
        }
    }
}

impl Tracker {
    fn apply_present(&mut self, saved: &Saved) -> Result<Applied, ApplyError> {
        let mut result = Applied::Added;
        if let Some(index) = self.index_of(saved) {
            if self.update_saved(index, saved) {
                return Ok(Applied::Updated);
            }
            self.remove(index);
            result = Applied::Updated;
        }
        let zone = saved.sorted.key.zone();
        self.make_space(zone)
            .map_err(|_| match self.zones.usage(zone) {
                Some(_) => ApplyError::Full,
                None => ApplyError::Invalid,
            })?;
        let inserted = self.insert_saved(saved, self.timeouts.of(saved.state));
        match inserted {
            Ok(()) => Ok(result),
            Err(RestoreError::Full) => Err(ApplyError::Full),
            Err(RestoreError::Invalid | RestoreError::NoZone | RestoreError::Known) => {
                Err(ApplyError::Invalid)
            }
        }
    }

    /// Gives a connection the contents of a record. Returns false if it is another connection between the same endpoints.
    fn update_saved(&mut self, index: u32, saved: &Saved) -> bool {
        let is_from_higher = saved.sorted.is_from_higher;
        let Some(entry) = self.entries.get_mut(index as usize) else {
            return false;
        };
        let Some(former) = entry.state() else {
            return false;
        };
        let is_same = entry.direction(is_from_higher) == Direction::Original;
        if !is_same || entry.is_replied() && !saved.is_replied {
            return false;
        }
        if saved.is_replied {
            entry.set_replied();
        }
        entry.mark = saved.mark;
        entry.packets = saved.packets;
        entry.octets = saved.octets;
        entry.sides = saved.sides;
        self.put_label(index, saved.label);
        self.enter(index, former, saved.state);
        true
    }

    /// Returns the entry with the endpoints of a record.
    pub(super) fn index_of(&self, saved: &Saved) -> Option<u32> {
        let key = saved.sorted.key;
        let entries = &self.entries;
        let is_entry = |index: u32| {
            entries
                .get(index as usize)
                .is_some_and(|entry| entry.key == key)
        };
        self.index.find(self.secret.hash(&key), is_entry)
    }
}
