// SPDX-License-Identifier: Apache-2.0
//! Concurrent access to the slots of a key's two buckets: each slot is one word, and every change is a compare-and-exchange. Generic over
//! the word, so that a model checker can run the same code (`fdb/tests/loom.rs`).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::word::{Identity, Word};

/// A word shared between threads.
pub(super) trait Cell {
    /// Loads the word. No other data depends on it, so no memory ordering is required.
    fn word(&self) -> Word;

    /// Replaces `from` by `to`, if the slot still holds `from`.
    fn replace(&self, from: Word, to: Word) -> bool;

    /// Orders earlier writes before later reads: if two threads each replace a word, call this and then read the other's word, at least one
    /// of them reads the new one.
    fn settle();
}

impl Cell for AtomicU64 {
    #[inline(always)]
    fn word(&self) -> Word {
        Word(self.load(Ordering::Relaxed))
    }

    #[inline(always)]
    fn replace(&self, from: Word, to: Word) -> bool {
        self.compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    #[inline(always)]
    fn settle() {
        fence(Ordering::SeqCst);
    }
}

/// Callback for each added or removed entry, called exactly once each, to maintain counts. An entry is announced before it is visible, so
/// counts are never below the actual number.
pub(super) trait EntryObserver {
    fn entry_added(&self, word: Word);
    fn entry_removed(&self, word: Word);
}

/// The two buckets of a key, and the identity of its entry in each.
pub(super) struct Places<'table, C> {
    buckets: [&'table [C]; 2],
    identities: [Identity; 2],
}

impl<'table, C: Cell> Places<'table, C> {
    /// Creates the places of a key. `identity` is that of the first bucket.
    pub(super) fn new(first: &'table [C], second: &'table [C], identity: Identity) -> Self {
        Self {
            buckets: [first, second],
            identities: [identity, identity.in_second_bucket()],
        }
    }

    /// Returns all slots, each with the identity that the key's entry would have there.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&'table C, Identity)> {
        let [first, second] = self.buckets;
        let identities = self.identities;
        let slots = |bucket: &'table [C], identity| bucket.iter().map(move |slot| (slot, identity));
        slots(first, identities[0]).chain(slots(second, identities[1]))
    }

    /// Returns the key's entries: one, or for an instant more.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'table C, Word)> {
        self.slots().filter_map(|(slot, identity)| {
            let word = slot.word();
            word.is(identity).then_some((slot, word))
        })
    }

    /// Puts an entry into an empty slot. `make` builds the word for an identity.
    pub(super) fn fill(
        &self,
        census: &impl EntryObserver,
        make: impl Fn(Identity) -> Word,
    ) -> bool {
        self.slots().any(|(slot, identity)| {
            if slot.word() != Word::EMPTY {
                return false;
            }
            let word = make(identity);
            census.entry_added(word);
            let filled = slot.replace(Word::EMPTY, word);
            if !filled {
                census.entry_removed(word);
            }
            filled
        })
    }

    /// Removes duplicates of the key's entry, which threads created by learning it concurrently. A static entry is kept if there is one,
    /// otherwise the first entry. Only a static entry may replace the first entry, so one entry always remains.
    pub(super) fn remove_twins(&self, census: &impl EntryObserver) {
        C::settle();
        let mut kept: Option<(&C, Word)> = None;
        for (slot, word) in self.entries() {
            match kept {
                Some((other, before)) if word.is_static() && !before.is_static() => {
                    vacate_key(other, before, census);
                    kept = Some((slot, word));
                }
                Some(_) => vacate_key(slot, word, census),
                None => kept = Some((slot, word)),
            }
        }
    }

    /// Returns the bucket that does not contain an entry of this key.
    fn bucket_without(&self, word: Word) -> &'table [C] {
        let [first, second] = self.buckets;
        if word.identity().is_in_second_bucket() {
            first
        } else {
            second
        }
    }
}

/// Empties a slot if it still holds `word`.
pub(super) fn vacate(slot: &impl Cell, word: Word, census: &impl EntryObserver) -> bool {
    let vacated = slot.replace(word, Word::EMPTY);
    if vacated {
        census.entry_removed(word);
    }
    vacated
}

/// Maximum number of attempts to empty a slot whose entry other threads keep refreshing.
const VACATE_ATTEMPTS: usize = 64;

/// Empties a slot even if its entry changes concurrently, unless the slot gets an entry of another key.
fn vacate_key(slot: &impl Cell, mut word: Word, census: &impl EntryObserver) {
    let identity = word.identity();
    for _ in 0..VACATE_ATTEMPTS {
        if vacate(slot, word, census) {
            return;
        }
        word = slot.word();
        if !word.is(identity) {
            return;
        }
    }
}

/// Changes an entry if it is still unchanged.
#[inline]
pub(super) fn change(slot: &impl Cell, from: Word, to: Word, census: &impl EntryObserver) -> bool {
    if from.counts_as(to) {
        return slot.replace(from, to);
    }
    census.entry_added(to);
    let changed = slot.replace(from, to);
    census.entry_removed(if changed { from } else { to });
    changed
}

/// Puts `new` into the slot of `tenant`, whose places these are, and moves the tenant to an empty slot of its other bucket. The tenant is
/// duplicated for an instant and never missing, except for readers that have just passed its new slot.
pub(super) fn move_away<C: Cell>(
    slot: &C,
    tenant: Word,
    places: &Places<'_, C>,
    new: Word,
    census: &impl EntryObserver,
) -> bool {
    let copy = tenant.in_other_bucket();
    for target in places.bucket_without(tenant) {
        if target.word() != Word::EMPTY {
            continue;
        }
        census.entry_added(copy);
        if !target.replace(Word::EMPTY, copy) {
            census.entry_removed(copy);
            continue;
        }
        // Fails if the tenant was refreshed or removed concurrently: its word stays, and the copy is removed. A copy that another thread
        // has found and refreshed is equivalent to the tenant.
        let replaced = change(slot, tenant, new, census);
        if !replaced && !vacate(target, copy, census) {
            places.remove_twins(census);
        }
        return replaced;
    }
    false
}
