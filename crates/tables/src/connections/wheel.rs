// SPDX-License-Identifier: Apache-2.0
//! Timer wheel of one second per slot. A packet only writes the new time into its entry: the wheel reads it when the entry's slot is due,
//! and puts the entry into a later slot. Entries beyond the last slot are in the last.

use super::entry::{ByTime, Entry, List};
use super::settings::Seconds;

/// Number of slots: entries that never expire are read once in this many seconds.
const SLOTS: u32 = 512;

/// Next step of a wheel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// This entry's slot is due.
    Entry(u32),
    /// A slot has no entries left, and the wheel moved on.
    Moved,
    /// No slot is due.
    Nothing,
}

/// A timer wheel.
#[derive(Debug)]
pub(super) struct Wheel {
    slots: Box<[List]>,
    /// Second of the slot that is due.
    cursor: Seconds,
}

impl Wheel {
    pub(super) fn new() -> Self {
        Self {
            slots: vec![List::EMPTY; SLOTS as usize].into_boxed_slice(),
            cursor: 0,
        }
    }

    #[expect(clippy::indexing_slicing, reason = "there are SLOTS slots")]
    fn slot(&mut self, second: Seconds) -> &mut List {
        &mut self.slots[(second % SLOTS) as usize]
    }

    /// Adds an entry, by its time of expiry.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "seconds since the start of the tracker are far below 2^32"
    )]
    pub(super) fn add(&mut self, entries: &mut [Entry], index: u32) {
        let cursor = self.cursor;
        let Some(entry) = entries.get_mut(index as usize) else {
            return;
        };
        let second = entry.expires_at.clamp(cursor + 1, cursor + SLOTS - 1);
        entry.scheduled_at = second;
        self.slot(second).push::<ByTime>(entries, index);
    }

    /// Removes an entry.
    pub(super) fn remove(&mut self, entries: &mut [Entry], index: u32) {
        if let Some(entry) = entries.get(index as usize) {
            let second = entry.scheduled_at;
            self.slot(second).remove::<ByTime>(entries, index);
        }
    }

    /// Sets the time of expiry of an entry.
    #[inline(always)]
    pub(super) fn set(&mut self, entries: &mut [Entry], index: u32, expires_at: Seconds) {
        let Some(entry) = entries.get_mut(index as usize) else {
            return;
        };
        entry.expires_at = expires_at;
        if expires_at < entry.scheduled_at {
            self.remove(entries, index);
            self.add(entries, index);
        }
    }

    /// Returns the next step. The caller removes the entry, or adds it again.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "seconds since the start of the tracker are far below 2^32"
    )]
    pub(super) fn due(&mut self, now: Seconds) -> Due {
        let cursor = self.cursor;
        if let Some(index) = self.slot(cursor).first() {
            return Due::Entry(index);
        }
        if cursor >= now {
            return Due::Nothing;
        }
        self.cursor += 1;
        Due::Moved
    }
}
