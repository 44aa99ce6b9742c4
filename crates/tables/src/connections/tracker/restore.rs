// SPDX-License-Identifier: Apache-2.0
//! Connections over a planned restart: one tracker saves them, the next one restores them.

use super::super::saved::{Saved, SavedConnection};
use super::super::settings::Seconds;
use super::{Tracker, endpoints, labels};

/// Reason for not restoring a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RestoreError {
    /// The record is not a valid connection.
    #[error("the record is not a valid connection")]
    Invalid,
    /// The tracker has a connection with these endpoints, which stays.
    #[error("the connection already exists")]
    Known,
    /// The table or the zone is full. No other connection is dropped.
    #[error("the table or the zone is full")]
    Full,
    /// The zone does not exist.
    #[error("no such zone")]
    NoZone,
}

impl Tracker {
    /// Saves connections from position `from` on, 0 at first, into a list that never has more than `count`, from at most `budget` entries.
    /// Returns the position to continue from; `None` at the end. Allocates nothing if the list has space.
    pub fn save_into(
        &self,
        from: u32,
        (count, budget): (usize, usize),
        list: &mut Vec<SavedConnection>,
    ) -> Option<u32> {
        let start = (from as usize).min(self.entries.len());
        let end = start.saturating_add(budget).min(self.entries.len());
        let entries = self.entries.get(start..end).unwrap_or_default();
        for (position, entry) in (from..).zip(entries) {
            if list.len() >= count {
                return Some(position);
            }
            let label = labels::label_of(self.labels.as_deref(), position, entry);
            list.extend(SavedConnection::of(entry, label, self.now));
        }
        let is_last = end >= self.entries.len();
        if is_last {
            None
        } else {
            u32::try_from(end).ok()
        }
    }

    /// Adds a saved connection, which counts as created. It expires when it would have expired before, and at the latest after the timeout
    /// of its state. It counts for the limits of its source and of half-open connections, which do not refuse it.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub fn restore(&mut self, saved: &SavedConnection, now: Seconds) -> Result<(), RestoreError> {
        let saved = saved.read().ok_or(RestoreError::Invalid)?;
        self.now = self.now.max(now);
        let zone = saved.sorted.key.zone();
        let (used, limit) = self.zones.usage(zone).ok_or(RestoreError::NoZone)?;
        if self.index_of(&saved).is_some() {
            return Err(RestoreError::Known);
        }
        if used >= limit {
            return Err(RestoreError::Full);
        }
        let left = saved.expires_in_s.min(self.timeouts.of(saved.state));
        self.insert_saved(&saved, left)
    }

    /// Adds the connection of a record, which the tracker does not have, until `left` seconds have passed.
    pub(super) fn insert_saved(&mut self, saved: &Saved, left: u32) -> Result<(), RestoreError> {
        let key = saved.sorted.key;
        let (hash, zone) = (self.secret.hash(&key), key.zone());
        let index = self.free.last().copied().ok_or(RestoreError::Full)?;
        if !self.index.insert(hash, index) {
            return Err(RestoreError::Full);
        }
        self.free.pop();
        self.counters.created = self.counters.created.wrapping_add(1);
        let expires_at = self.expiry_after(left);
        if let Some(entry) = self.entries.get_mut(index as usize) {
            entry.begin(key, saved.sorted.is_from_higher, saved.state);
            if saved.is_replied {
                entry.set_replied();
            }
            entry.expires_at = expires_at;
            entry.mark = saved.mark;
            entry.packets = saved.packets;
            entry.octets = saved.octets;
            entry.sides = saved.sides;
        }
        self.put_label(index, saved.label);
        self.wheel.add(&mut self.entries, index);
        if let Some(sources) = &mut self.sources {
            let [source, _] = endpoints(&key, saved.sorted.is_from_higher);
            sources.add((source.address, zone), saved.state);
        }
        self.zones.count(zone);
        self.zones
            .add(&mut self.entries, zone, saved.state.eviction(), index);
        self.note_change(index);
        self.note_session(index);
        Ok(())
    }
}
