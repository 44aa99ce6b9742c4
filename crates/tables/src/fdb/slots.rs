// SPDX-License-Identifier: Apache-2.0
//! How threads share the slots of a key's two buckets: each slot is one word, and every change is an exchange
//! that fails when the word is not what it was thought to be. Generic over the word, so that a model checker can
//! run the same code ([`super::loom_tests`]).

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::word::{Identity, Word};

/// A word that threads share.
pub(super) trait Cell {
    /// What it holds. Nothing else is read on the strength of it, so nothing has to be ordered by it.
    fn word(&self) -> Word;

    /// Replaces `from` by `to`, unless it holds something else.
    fn replace(&self, from: Word, to: Word) -> bool;

    /// Of two threads that each replace a word, come here and then read the other's, one sees what the other wrote.
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

/// Who is told of each entry that comes or goes, exactly once each, so that it can count them. An entry is announced
/// before it is there: counts never fall below what is there.
pub(super) trait Census {
    fn comes(&self, word: Word);
    fn goes(&self, word: Word);
}

/// The two buckets of a key, and what identifies its entry in each.
pub(super) struct Places<'table, C> {
    buckets: [&'table [C]; 2],
    identities: [Identity; 2],
}

impl<'table, C: Cell> Places<'table, C> {
    /// `identity` is that of the first bucket.
    pub(super) fn new(first: &'table [C], second: &'table [C], identity: Identity) -> Self {
        Self {
            buckets: [first, second],
            identities: [identity, identity.in_second_bucket()],
        }
    }

    /// All slots, each with the identity that the key's entry would have there.
    pub(super) fn slots(&self) -> impl Iterator<Item = (&'table C, Identity)> {
        let [first, second] = self.buckets;
        let identities = self.identities;
        let slots = |bucket: &'table [C], identity| bucket.iter().map(move |slot| (slot, identity));
        slots(first, identities[0]).chain(slots(second, identities[1]))
    }

    /// The key's entries: one, or for an instant more.
    pub(super) fn entries(&self) -> impl Iterator<Item = (&'table C, Word)> {
        self.slots().filter_map(|(slot, identity)| {
            let word = slot.word();
            word.is(identity).then_some((slot, word))
        })
    }

    /// Puts an entry into an empty slot. `make` makes the word for an identity.
    pub(super) fn fill(&self, census: &impl Census, make: impl Fn(Identity) -> Word) -> bool {
        self.slots().any(|(slot, identity)| {
            if slot.word() != Word::EMPTY {
                return false;
            }
            let word = make(identity);
            census.comes(word);
            let filled = slot.replace(Word::EMPTY, word);
            if !filled {
                census.goes(word);
            }
            filled
        })
    }

    /// Leaves one of several entries of the key, which threads made that learned it at the same time: a static one if
    /// there is one, or else the first. The first is nobody's to remove but for a static one, and so one is left.
    pub(super) fn remove_twins(&self, census: &impl Census) {
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

    /// The bucket that an entry of this key is not in.
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
pub(super) fn vacate(slot: &impl Cell, word: Word, census: &impl Census) -> bool {
    let vacated = slot.replace(word, Word::EMPTY);
    if vacated {
        census.goes(word);
    }
    vacated
}

/// Times that a thread tries to empty a slot whose entry others keep renewing.
const VACATE_ATTEMPTS: usize = 64;

/// Empties a slot even when its entry changes meanwhile, unless it changes to that of another key.
fn vacate_key(slot: &impl Cell, mut word: Word, census: &impl Census) {
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

/// Changes an entry if it still is what it was.
#[inline]
pub(super) fn change(slot: &impl Cell, from: Word, to: Word, census: &impl Census) -> bool {
    if from.counts_as(to) {
        return slot.replace(from, to);
    }
    census.comes(to);
    let changed = slot.replace(from, to);
    census.goes(if changed { from } else { to });
    changed
}

/// Puts `new` in the place of `tenant`, whose places these are, and which moves to a slot of its other bucket if one is
/// empty there. It is there twice for an instant and never missing, except for readers that have just passed its new
/// place.
pub(super) fn move_away<C: Cell>(
    slot: &C,
    tenant: Word,
    places: &Places<'_, C>,
    new: Word,
    census: &impl Census,
) -> bool {
    let copy = tenant.in_other_bucket();
    for target in places.bucket_without(tenant) {
        if target.word() != Word::EMPTY {
            continue;
        }
        census.comes(copy);
        if !target.replace(Word::EMPTY, copy) {
            census.goes(copy);
            continue;
        }
        // Fails when the tenant was seen again or removed meanwhile: then its word stands, and the copy goes. A copy
        // that somebody has found and renewed is as good as the tenant.
        let replaced = change(slot, tenant, new, census);
        if !replaced && !vacate(target, copy, census) {
            places.remove_twins(census);
        }
        return replaced;
    }
    false
}
