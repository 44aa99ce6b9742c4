// SPDX-License-Identifier: Apache-2.0
//! Changes of a table, for a standby: a ring that the packet path fills and the control thread empties, and results of applying changes.
//!
//! The ring never grows. A full ring loses changes and counts them: the reader must then read the whole table.

use std::collections::VecDeque;

/// Changes that wait, at most.
pub(crate) const CHANGES_MAX: usize = 8192;

/// Result of a change that was applied to the table of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The entry is new.
    Added,
    /// The entry was there and has the new contents.
    Updated,
    /// The entry was removed.
    Removed,
    /// The entry to be removed was not there.
    Absent,
}

/// Reason for not applying a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// The table cannot have such an entry.
    #[error("this table cannot have the entry")]
    Invalid,
    /// The table, a zone or a host has no space.
    #[error("no space for the entry")]
    Full,
}

/// A table whose entries a standby has: the table of an active switch notes its changes, and that of the standby applies them.
pub trait Replicate {
    /// An entry that has changed or ended.
    type Change;

    /// Takes changes until the list has `count`, from at most `budget` noted ones (`limits`). The first call begins to note them. Returns
    /// true if further ones wait. Allocates nothing if the list has space.
    fn take_changes(&mut self, limits: (usize, usize), list: &mut Vec<Self::Change>) -> bool;

    /// Returns the number of changes that were lost since the last call. After a loss, the standby requires all entries.
    fn take_lost_changes(&mut self) -> u64;

    /// Notes no further changes.
    fn end_changes(&mut self);

    /// Takes entries from position `from` on for a standby, until the list has `count`, out of at most `budget` ones (`limits`). Returns the
    /// position to continue from; `None` at the end.
    fn share_into(
        &mut self,
        from: u32,
        limits: (usize, usize),
        list: &mut Vec<Self::Change>,
    ) -> Option<u32>;

    /// Applies a change of the active switch. The timeout of its entry starts again.
    ///
    /// # Errors
    /// [`ApplyError`].
    fn apply(&mut self, change: &Self::Change, now_s: u32) -> Result<Applied, ApplyError>;
}

/// A ring of changes.
#[derive(Debug)]
pub(crate) struct ChangeRing<T> {
    changes: VecDeque<T>,
    /// True while changes are noted.
    is_on: bool,
    /// Changes lost since [`ChangeRing::take_loss`].
    lost: u64,
}

impl<T: Copy> ChangeRing<T> {
    /// Creates a ring that notes nothing yet, with all of its memory. `fill` is any change.
    pub(crate) fn new(fill: T) -> Self {
        // The kernel provides the pages now, and not when packets arrive.
        let mut changes = VecDeque::from(vec![fill; CHANGES_MAX]);
        changes.clear();
        Self {
            changes,
            is_on: false,
            lost: 0,
        }
    }

    /// Begins to note changes. Earlier ones count as one that was lost, so the first reader reads the whole table. Returns false if it has
    /// begun before.
    pub(crate) fn begin(&mut self) -> bool {
        let begins = !self.is_on;
        if begins {
            self.changes.clear();
            self.is_on = true;
            self.lost = 1;
        }
        begins
    }

    /// Notes no further changes.
    pub(crate) fn end(&mut self) {
        self.changes.clear();
        self.is_on = false;
    }

    /// Returns true if at least half of the space for changes is free.
    pub(crate) fn is_half_empty(&self) -> bool {
        self.changes.len() <= CHANGES_MAX / 2
    }

    /// Notes a change, or counts it as lost. Allocates nothing.
    #[inline]
    pub(crate) fn push(&mut self, change: T) {
        if !self.is_on {
            return;
        }
        if self.changes.len() < CHANGES_MAX {
            self.changes.push_back(change);
        } else {
            self.lost = self.lost.saturating_add(1);
        }
    }

    /// Begins to note changes, and takes them as [`Replicate::take_changes`] does. `change_of` returns `None` for one that is obsolete.
    pub(crate) fn take_into<C>(
        &mut self,
        (count, budget): (usize, usize),
        list: &mut Vec<C>,
        change_of: impl Fn(T) -> Option<C>,
    ) -> bool {
        self.begin();
        for _ in 0..budget {
            if list.len() >= count {
                break;
            }
            let Some(noted) = self.pop() else {
                break;
            };
            list.extend(change_of(noted));
        }
        !self.is_empty()
    }

    /// Takes the oldest change.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.changes.pop_front()
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// Returns the number of changes that were lost since the last call.
    pub(crate) const fn take_loss(&mut self) -> u64 {
        let lost = self.lost;
        self.lost = 0;
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_loses_and_counts_changes_and_never_grows() {
        let mut ring = ChangeRing::new(0);
        let space = ring.changes.capacity();
        ring.push(1);
        assert!(ring.is_empty());
        ring.begin();
        assert_eq!((ring.take_loss(), ring.take_loss()), (1, 0));
        for change in 0..CHANGES_MAX + 3 {
            ring.push(change);
        }
        ring.begin();
        assert_eq!((ring.take_loss(), ring.changes.capacity()), (3, space));
        for change in 0..CHANGES_MAX {
            assert_eq!(ring.pop(), Some(change));
        }
        assert_eq!((ring.pop(), ring.is_empty()), (None, true));
        ring.push(7);
        ring.end();
        ring.push(8);
        assert!(ring.is_empty());
    }
}
