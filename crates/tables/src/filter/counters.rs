// SPDX-License-Identifier: Apache-2.0
//! Counters of rules. Each forwarding thread has a counter for every rule, all side by side, and only this thread writes them, with plain
//! loads and stores. Readers add up the threads.
//!
//! A rule has the same place in the counters of all threads, and keeps it in later lists. The place becomes free when neither a list nor a
//! report has the rule any more. Then no thread has a list with it, so that no thread writes there.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use crate::classifier::Key;

/// Number of counters that are allocated together.
const CHUNK: usize = 1024;
/// Maximum number of chunks. The places are more than five times [`RULES_MAX`](super::RULES_MAX), because former lists may still be in use.
const CHUNKS_MAX: usize = 512;
/// Maximum number of places.
const PLACES_MAX: usize = CHUNK * CHUNKS_MAX;
/// No counter has this place. It has 30 bits.
const NO_PLACE: u32 = u32::MAX >> 2;

/// Counters that follow each other. No other thread writes their cache lines.
#[repr(align(128))]
struct Chunk([AtomicU64; CHUNK]);

impl Chunk {
    fn zeroed() -> Box<Self> {
        Box::new(Self(std::array::from_fn(|_| AtomicU64::new(0))))
    }
}

/// Counters of a thread, by place.
struct Counts([OnceLock<Box<Chunk>>; CHUNKS_MAX]);

impl Counts {
    /// Creates counters for this number of places.
    fn new(places: u32) -> Self {
        let counts = Self(std::array::from_fn(|_| OnceLock::new()));
        for place in (0..places).step_by(CHUNK) {
            counts.clear(place);
        }
        counts
    }

    #[inline(always)]
    fn get(&self, place: u32) -> Option<&AtomicU64> {
        let chunk = self.0.get(place as usize / CHUNK)?.get()?;
        chunk.0.get(place as usize % CHUNK)
    }

    /// Sets the counter of a place that no thread writes to 0. Creates it if it does not exist.
    fn clear(&self, place: u32) {
        let Some(chunk) = self.0.get(place as usize / CHUNK) else {
            return;
        };
        let chunk = chunk.get_or_init(Chunk::zeroed);
        if let Some(counter) = chunk.0.get(place as usize % CHUNK) {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// Places of counters, and the counters of all threads.
#[derive(Default)]
struct Registry {
    /// Number of places so far.
    places: u32,
    /// Places without a rule.
    free: Vec<u32>,
    threads: Vec<Arc<Counts>>,
}

impl Registry {
    /// Returns a place where all counters are 0; `None` if there is none left.
    fn take_place(&mut self) -> Option<u32> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if (self.places as usize) < PLACES_MAX => {
                let place = self.places;
                self.places = place.saturating_add(1);
                place
            }
            None => return None,
        };
        for counts in &self.threads {
            counts.clear(place);
        }
        Some(place)
    }
}

/// The counters of the rules of a switch. Clones are the same counters.
#[derive(Clone, Default)]
pub struct RuleCounters(Arc<Mutex<Registry>>);

impl fmt::Debug for RuleCounters {
    // There may be a million counters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuleCounters").finish_non_exhaustive()
    }
}

impl RuleCounters {
    fn lock(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the counter of a new rule: 0 frames. If all places are in use, threads share it.
    #[must_use]
    pub fn rule(&self) -> Arc<RuleFrames> {
        let place = self.lock().take_place();
        let slot = place.map(|place| Slot {
            place,
            counters: self.clone(),
        });
        Arc::new(RuleFrames {
            others: AtomicU64::new(0),
            slot,
        })
    }

    /// Returns counters for a thread. Those of an ended thread stay, and a later one continues with them.
    #[must_use]
    pub fn thread(&self) -> ThreadFrames {
        let mut registry = self.lock();
        let mut threads = registry.threads.iter_mut();
        // No thread has these.
        let unused = threads.find_map(|one| Arc::get_mut(one).is_some().then(|| Arc::clone(one)));
        let counts = unused.unwrap_or_else(|| {
            let counts = Arc::new(Counts::new(registry.places));
            registry.threads.push(Arc::clone(&counts));
            counts
        });
        ThreadFrames::new(counts)
    }
}

/// A place in the counters of all threads, for as long as it exists.
#[derive(Debug)]
struct Slot {
    place: u32,
    counters: RuleCounters,
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.counters.lock().free.push(self.place);
    }
}

/// Number of frames of a rule, at all ports. The default value has no counters of threads: threads share it.
#[derive(Debug, Default)]
pub struct RuleFrames {
    /// Frames that no thread has counted in counters of its own.
    others: AtomicU64,
    slot: Option<Slot>,
}

impl RuleFrames {
    /// Returns the number of frames.
    #[must_use]
    pub fn get(&self) -> u64 {
        let others = self.others.load(Ordering::Relaxed);
        let Some(slot) = &self.slot else {
            return others;
        };
        let registry = slot.counters.lock();
        let counts = registry.threads.iter();
        let counts = counts.filter_map(|counts| counts.get(slot.place));
        counts.fold(others, |sum, count| {
            sum.wrapping_add(count.load(Ordering::Relaxed))
        })
    }

    /// Adds frames that no forwarding thread counts, such as those that a card has dropped. Any thread may call it.
    #[inline(always)]
    pub fn add(&self, frames: u64) {
        self.others.fetch_add(frames, Ordering::Relaxed);
    }

    /// Returns its place in the counters of threads, below 2³⁰. Not every place has a counter.
    #[inline(always)]
    pub(super) fn place(&self) -> u32 {
        self.slot.as_ref().map_or(NO_PLACE, |slot| slot.place)
    }
}

/// Keys of the frames of a burst.
pub(super) type Keys = [Key; BURST_MAX];

/// Memory of a thread that judges bursts: its counters, and the keys of the frames. Its rules must have counters of the same
/// [`RuleCounters`], or those of the default.
pub struct ThreadFrames {
    counts: ThreadCounts,
    /// They stay between bursts, because every frame writes all words of its key: 4 KiB that no burst has to clear.
    keys: Box<Keys>,
}

impl fmt::Debug for ThreadFrames {
    // There may be a million counters.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadFrames").finish_non_exhaustive()
    }
}

impl ThreadFrames {
    fn new(counts: Arc<Counts>) -> Self {
        Self {
            counts: ThreadCounts(counts),
            keys: Box::new([Key::EMPTY; BURST_MAX]),
        }
    }
}

/// Returns memory for the keys of a burst, with those of an earlier one, and the counters of the thread. A thread without them has its keys in
/// `local`.
#[inline(always)]
pub(super) fn keys_of<'burst>(
    thread: Option<&'burst mut ThreadFrames>,
    local: &'burst mut Option<Keys>,
) -> (&'burst mut Keys, Option<&'burst mut ThreadCounts>) {
    match thread {
        Some(thread) => (&mut thread.keys, Some(&mut thread.counts)),
        None => (local.insert([Key::EMPTY; BURST_MAX]), None),
    }
}

/// Counters that one thread writes.
pub(super) struct ThreadCounts(Arc<Counts>);

/// Counters of a thread for the time in which nothing else of the thread writes them.
pub(super) struct OwnCounts<'thread>(&'thread Counts);

impl OwnCounts<'_> {
    /// Adds frames to the counter of a place. Returns false if there is none. Mutable, because nothing else writes the counter meanwhile.
    #[inline(always)]
    pub(super) fn add(&mut self, place: u32, frames: u64) -> bool {
        let Some(counter) = self.0.get(place) else {
            return false;
        };
        let now = counter.load(Ordering::Relaxed);
        counter.store(now.wrapping_add(frames), Ordering::Relaxed);
        true
    }
}

impl ThreadCounts {
    /// Returns the counters to write.
    #[inline(always)]
    pub(super) fn counts(&mut self) -> OwnCounts<'_> {
        OwnCounts(&self.0)
    }

    /// Loads the counter of a place into the cache.
    #[inline(always)]
    pub(super) fn prefetch(&self, place: u32) {
        if let Some(counter) = self.0.get(place) {
            prefetch(counter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_without_a_rule_are_used_again() {
        let counters = RuleCounters::default();
        let mut thread = counters.thread();
        let rules: Vec<_> = (0..2 * CHUNK).map(|_| counters.rule()).collect();
        for rule in &rules {
            assert!(thread.counts.counts().add(rule.place(), 3));
        }
        // Threads that begin later have all places too.
        let mut later = counters.thread();
        assert!(later.counts.counts().add(rules[CHUNK].place(), 4));
        rules[CHUNK].add(5);
        assert_eq!(rules[CHUNK].get(), 12);
        let kept = Arc::clone(&rules[5]);
        drop(rules);
        let others: Vec<_> = (1..2 * CHUNK).map(|_| counters.rule()).collect();
        for other in &others {
            assert_eq!(other.get(), 0);
            assert_ne!(other.place(), kept.place());
        }
        assert_eq!(kept.get(), 3);
        assert_eq!(counters.lock().places, 2 * CHUNK as u32);
    }

    #[test]
    fn a_thread_continues_with_the_counters_of_an_ended_one() {
        let counters = RuleCounters::default();
        let rule = counters.rule();
        for _ in 0..3 {
            for mut thread in [counters.thread(), counters.thread()] {
                assert!(thread.counts.counts().add(rule.place(), 2));
            }
        }
        assert_eq!(rule.get(), 12);
        assert_eq!(counters.lock().threads.len(), 2);
    }

    #[test]
    fn rules_without_a_place_have_a_counter() {
        let counters = RuleCounters::default();
        let mut thread = counters.thread();
        counters.lock().places = PLACES_MAX as u32;
        for rule in [counters.rule(), Arc::default()] {
            assert_eq!(rule.place(), NO_PLACE);
            assert!(!thread.counts.counts().add(rule.place(), 1));
            rule.add(7);
            assert_eq!(rule.get(), 7);
        }
    }
}
