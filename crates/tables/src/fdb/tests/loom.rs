// SPDX-License-Identifier: Apache-2.0
//! Model check of the slots of a key in every order that the memory model allows. Two buckets of one or two slots each cover all cases.
//! Each model is also run with a defect, which it must find.

use ::loom::model;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicU64, Ordering, fence};
use ::loom::thread;

use super::{Cell, Identity, Stamp, Word};
use crate::fdb::slots::{EntryObserver, Places, change, move_away, vacate};
use crate::fdb::word::Ageing;

/// A slot. Without `SETTLES` the barrier has no effect; without `EXCHANGES` a word is compared and then written.
struct Slot<const SETTLES: bool, const EXCHANGES: bool>(AtomicU64);

impl<const SETTLES: bool, const EXCHANGES: bool> Cell for Slot<SETTLES, EXCHANGES> {
    fn word(&self) -> Word {
        Word(self.0.load(Ordering::Relaxed))
    }

    fn replace(&self, from: Word, to: Word) -> bool {
        if !EXCHANGES {
            let is_same = self.word() == from;
            if is_same {
                self.0.store(to.0, Ordering::Relaxed);
            }
            return is_same;
        }
        self.0
            .compare_exchange(from.0, to.0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    fn settle() {
        if SETTLES {
            fence(Ordering::SeqCst);
        }
    }
}

/// Number of entries. Not part of the model: it is read only after all threads have ended.
#[derive(Default)]
struct Population(std::sync::atomic::AtomicI32);

impl EntryObserver for Population {
    fn entry_added(&self, _: Word) {
        self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }

    fn entry_removed(&self, _: Word) {
        self.0.fetch_sub(1, std::sync::atomic::Ordering::Relaxed);
    }
}

struct Table<C> {
    first: Vec<C>,
    second: Vec<C>,
    population: Population,
}

fn table<const SETTLES: bool, const EXCHANGES: bool>(
    slots: usize,
) -> Arc<Table<Slot<SETTLES, EXCHANGES>>> {
    let bucket = || (0..slots).map(|_| Slot(AtomicU64::new(0))).collect();
    Arc::new(Table {
        first: bucket(),
        second: bucket(),
        population: Population::default(),
    })
}

fn stamp(second: u32) -> Stamp {
    Ageing::new(10).now(second).stamp()
}

impl<C: Cell> Table<C> {
    /// Returns the places of the key with this number. The buckets of all keys are the same.
    fn places(&self, key: u64) -> Places<'_, C> {
        Places::new(&self.first, &self.second, Identity::first(key))
    }

    /// Learns like [`crate::fdb::Fdb::learn`].
    fn learn(&self, key: u64, port: u16, second: u32) {
        let places = self.places(key);
        let make = |identity| Word::new(identity, port, stamp(second));
        match places.entries().next() {
            Some((_, word)) if word.is_static() => {}
            Some((slot, word)) => {
                change(slot, word, make(word.identity()), &self.population);
            }
            None => {
                if places.fill(&self.population, make) {
                    places.remove_twins(&self.population);
                }
            }
        }
    }

    /// Sets a static entry like [`crate::fdb::Fdb::set_static`], with one attempt.
    fn set_static(&self, key: u64, port: u16) -> bool {
        let places = self.places(key);
        let make = |identity| Word::new(identity, port, Stamp::STATIC);
        let set = match places.entries().next() {
            Some((slot, word)) => change(slot, word, make(word.identity()), &self.population),
            None => places.fill(&self.population, make),
        };
        if set {
            places.remove_twins(&self.population);
        }
        set
    }

    fn remove(&self, key: u64) {
        for (slot, word) in self.places(key).entries() {
            vacate(slot, word, &self.population);
        }
    }

    fn entries(&self, key: u64) -> Vec<Word> {
        self.places(key).entries().map(|(_, word)| word).collect()
    }

    fn check_count(&self) {
        let slots = self.first.iter().chain(&self.second);
        let there = slots.filter(|slot| slot.word() != Word::EMPTY).count();
        let counted = self.population.0.load(std::sync::atomic::Ordering::Relaxed);
        assert_eq!(usize::try_from(counted), Ok(there), "counted");
    }
}

fn learn_twice<const SETTLES: bool, const EXCHANGES: bool>() {
    model(|| {
        let table = table::<SETTLES, EXCHANGES>(1);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.learn(7, 1, 5));
        table.learn(7, 2, 5);
        thread.join().unwrap();
        assert_eq!(table.entries(7).len(), 1, "entries");
        table.check_count();
    });
}

#[test]
fn an_address_learned_by_two_threads_has_one_entry() {
    learn_twice::<true, true>();
}

/// The first slot of key 7 has another entry, which one of the threads removes: the threads use different slots, and neither fails.
fn learn_twice_beside_removal<const SETTLES: bool, const EXCHANGES: bool>() {
    model(|| {
        let table = table::<SETTLES, EXCHANGES>(1);
        table.learn(1, 1, 5);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.remove(1);
            other.learn(7, 1, 5);
        });
        table.learn(7, 2, 5);
        thread.join().unwrap();
        assert_eq!(table.entries(7).len(), 1, "entries");
        table.check_count();
    });
}

#[test]
fn an_address_learned_in_two_slots_has_one_entry() {
    learn_twice_beside_removal::<true, true>();
}

#[test]
#[should_panic(expected = "entries")]
fn the_model_finds_twins_without_a_barrier() {
    learn_twice_beside_removal::<false, true>();
}

fn set_static_and_learn<const SETTLES: bool, const EXCHANGES: bool>() {
    model(|| {
        let table = table::<SETTLES, EXCHANGES>(1);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || {
            other.learn(7, 1, 5);
            other.learn(7, 1, 6);
        });
        let set = table.set_static(7, 2);
        thread.join().unwrap();
        let entries = table.entries(7);
        assert_eq!(entries.len(), 1, "entries");
        // If its slot is taken in between, it tries again.
        assert_eq!(entries[0].is_static(), set, "static");
        assert!(set || table.set_static(7, 2));
        assert!(table.entries(7).iter().all(|word| word.is_static()));
        table.check_count();
    });
}

#[test]
fn a_static_entry_stays_whoever_learns_the_address_meanwhile() {
    set_static_and_learn::<true, true>();
}

#[test]
#[should_panic(expected = "counted")]
fn the_model_finds_a_static_entry_that_is_overwritten() {
    set_static_and_learn::<true, false>();
}

/// Key 1 is moved to its second bucket by a key that claims its slot, while it is refreshed.
fn move_and_refresh<const SETTLES: bool, const EXCHANGES: bool>() {
    model(|| {
        let table = table::<SETTLES, EXCHANGES>(1);
        table.learn(1, 1, 5);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.learn(1, 3, 6));
        let slot = &table.first[0];
        let tenant = slot.word();
        let new = Word::new(Identity::first(2), 2, stamp(5));
        let replaced = move_away(slot, tenant, &table.places(1), new, &table.population);
        thread.join().unwrap();
        assert_eq!(table.entries(1).len(), 1, "entries");
        assert_eq!(table.entries(2).len(), usize::from(replaced), "entries");
        table.check_count();
    });
}

#[test]
fn an_entry_that_is_moved_away_is_not_lost_when_it_is_observed_meanwhile() {
    move_and_refresh::<true, true>();
}

#[test]
#[should_panic(expected = "entries")]
fn the_model_finds_an_entry_that_is_lost_when_it_is_moved() {
    move_and_refresh::<true, false>();
}

fn move_and_remove<const SETTLES: bool, const EXCHANGES: bool>() {
    model(|| {
        let table = table::<SETTLES, EXCHANGES>(1);
        table.learn(1, 1, 5);
        let other = Arc::clone(&table);
        let thread = thread::spawn(move || other.remove(1));
        let slot = &table.first[0];
        let tenant = slot.word();
        if tenant != Word::EMPTY {
            let new = Word::new(Identity::first(2), 2, stamp(5));
            move_away(slot, tenant, &table.places(1), new, &table.population);
        }
        thread.join().unwrap();
        assert!(table.entries(1).len() <= 1);
        table.check_count();
    });
}

#[test]
fn an_entry_that_is_moved_away_and_removed_is_counted_right() {
    move_and_remove::<true, true>();
}

#[test]
#[should_panic(expected = "counted")]
fn the_model_finds_a_wrong_count() {
    move_and_remove::<true, false>();
}
