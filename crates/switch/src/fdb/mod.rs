// SPDX-License-Identifier: Apache-2.0
//! The filtering database: which port an address was last seen on (IEEE 802.1Q, section 8.8).
//!
//! A hash table of fixed size, read and written by any number of threads at once without a lock: forwarding
//! threads look up and learn, the service thread takes out what has aged. Nothing is allocated after
//! [`Fdb::new`], and every operation takes a bounded number of steps.
//!
//! Buckets are cache lines of four entries; an entry has two words. Each key has two buckets, and is put in the
//! second only when the first is full. When both are full an entry of theirs is moved to its own other bucket
//! where there is room. At most half of the slots are used, and then a look-up is one cache line in most cases:
//! 32 to 64 octets of memory for each of `max_entries` (65536 entries: 2 MiB).
//!
//! How an entry is published: a writer claims an empty slot by exchanging its key word for a reserved one, writes
//! the value word and then the key word. A reader reads key, value, and key again, and compares the tag that the
//! value carries with the key's: a value of another key is not taken for this one's even when the slot changes hands
//! between two reads. Values are changed by exchanges that fail when the slot has changed hands. What may be
//! seen for an instant, and is harmless: an entry twice (the same answer), an entry not at all (the frame is flooded).

mod hash;
#[cfg(test)]
mod tests;
mod word;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietwire_packet::MacAddress;

use hash::Seed;
use word::{EMPTY, RESERVED, Value, age_s};

pub use hash::Hash;
pub use word::Key;

const SLOTS: usize = 4;
/// Fewest buckets: small tables have room for bad luck.
const BUCKETS_MIN: usize = 16;

#[derive(Debug, Default)]
struct Slot {
    key: AtomicU64,
    value: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    slots: [Slot; SLOTS],
}

/// What became of an address that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It was known on this port.
    Known,
    /// It is known from now on.
    New,
    /// It was known on another port.
    Moved,
    /// There was no room for it.
    Full,
}

/// One entry, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: MacAddress,
    /// Number of the port it was last seen on.
    pub port: u16,
    /// Whole seconds since then.
    pub age_s: u32,
}

/// A filtering database.
#[derive(Debug)]
pub struct Fdb {
    buckets: Box<[Bucket]>,
    seed: Seed,
    ageing_s: u32,
    entries_max: u32,
    entries: AtomicU32,
}

impl Slot {
    /// The port and stamp of `key`, when this slot has them.
    #[inline(always)]
    fn read(&self, key: Key, hash: Hash) -> Option<Value> {
        if self.key.load(Ordering::Acquire) != key.word() {
            return None;
        }
        // Acquire: whoever sees a later tenant's value also sees that the key has gone.
        let value = Value::of_word(self.value.load(Ordering::Acquire));
        let unchanged = self.key.load(Ordering::Relaxed) == key.word();
        (unchanged && value.tag == hash.tag()).then_some(value)
    }

    /// Makes the slot this thread's own, if nobody uses it.
    fn claim(&self) -> bool {
        self.key.load(Ordering::Relaxed) == EMPTY
            && self
                .key
                .compare_exchange(EMPTY, RESERVED, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    /// Fills a claimed slot.
    fn publish(&self, key: Key, value: Value) {
        self.value.store(value.word(), Ordering::Release);
        // In one order with the same of other threads: of two that learn one address, one sees the other's.
        self.key.store(key.word(), Ordering::SeqCst);
    }

    /// Changes a value unless somebody else has meanwhile.
    #[inline(always)]
    fn update(&self, from: Value, to: Value) -> bool {
        self.value
            .compare_exchange(from.word(), to.word(), Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Empties the slot if it still is `key`'s.
    fn vacate(&self, key: Key) -> bool {
        self.key
            .compare_exchange(key.word(), EMPTY, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    fn tenant(&self) -> Option<Key> {
        Key::of_word(self.key.load(Ordering::Acquire))
    }
}

impl Fdb {
    /// An empty table with room for `entries_max` addresses (at least 1), each forgotten `ageing_s` seconds after it
    /// was last seen.
    #[must_use]
    pub fn new(entries_max: u32, ageing_s: u32) -> Self {
        let buckets = (entries_max as usize * 2)
            .div_ceil(SLOTS)
            .next_power_of_two()
            .max(BUCKETS_MIN);
        Self {
            buckets: (0..buckets).map(|_| Bucket::default()).collect(),
            seed: Seed::random(),
            ageing_s,
            entries_max,
            entries: AtomicU32::new(0),
        }
    }

    /// Number of addresses known.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Number of addresses that there is room for.
    #[must_use]
    pub fn entries_max(&self) -> u32 {
        self.entries_max
    }

    /// Number of buckets: what [`Fdb::sweep`] walks over.
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// The hash of a key in this table, to be given to the other functions.
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, key: Key) -> Hash {
        self.seed.hash(key)
    }

    /// Asks the processor to load what a look-up will read first.
    #[inline(always)]
    pub fn prefetch(&self, hash: Hash) {
        if let Some(bucket) = self.buckets.get(hash.primary(self.mask())) {
            quietwire_dpdk::prefetch(bucket);
        }
    }

    /// The port that an address was last seen on, unless that is longer ago than the ageing time.
    #[inline(always)]
    #[must_use]
    pub fn look_up(&self, key: Key, hash: Hash, now_s: u32) -> Option<u16> {
        let (_, value) = self.find(key, hash)?;
        (age_s(value.stamp_s, now_s) <= self.ageing_s).then_some(value.port)
    }

    /// Takes note that an address was seen on a port. Writes nothing when that was known and noted within the
    /// same second: entries stay in the caches of all forwarding CPUs.
    #[inline(always)]
    pub fn learn(&self, key: Key, hash: Hash, port: u16, now_s: u32) -> Learned {
        match self.find(key, hash) {
            Some((_, value)) if value.port == port && value.stamp_s == now_s => Learned::Known,
            Some((slot, value)) => self.renew(slot, value, port, now_s),
            None => self.insert(
                key,
                hash,
                Value {
                    port,
                    tag: hash.tag(),
                    stamp_s: now_s,
                },
            ),
        }
    }

    /// Forgets an address. True when it was known.
    pub fn remove(&self, key: Key) -> bool {
        let mut removed = false;
        for slot in self.places(self.hash(key)).into_iter().flatten() {
            removed |= self.vacate(slot, key);
        }
        removed
    }

    /// Forgets what has aged in `count` buckets from `first` on (fewer at the end of the table). Returns how
    /// many entries that were.
    pub fn sweep(&self, first: usize, count: usize, now_s: u32) -> u32 {
        let mut removed = 0;
        for slot in self
            .buckets
            .iter()
            .skip(first)
            .take(count)
            .flat_map(|b| &b.slots)
        {
            let Some(key) = slot.tenant() else { continue };
            let value = Value::of_word(slot.value.load(Ordering::Acquire));
            // When a forwarding thread renews it in between, the address is learned again with its next frame.
            if age_s(value.stamp_s, now_s) > self.ageing_s && self.vacate(slot, key) {
                removed += 1;
            }
        }
        removed
    }

    /// The entries, in no order. Those that change meanwhile may be missing or there twice.
    pub fn snapshot(&self, now_s: u32) -> impl Iterator<Item = Entry> + '_ {
        self.buckets
            .iter()
            .flat_map(|b| &b.slots)
            .filter_map(move |slot| {
                let key = slot.tenant()?;
                let value = slot.read(key, self.hash(key))?;
                let age_s = age_s(value.stamp_s, now_s);
                (age_s <= self.ageing_s).then(|| Entry {
                    address: key.address(),
                    port: value.port,
                    age_s,
                })
            })
    }

    #[inline(always)]
    fn mask(&self) -> usize {
        self.buckets.len() - 1
    }

    /// The slots that a key may be in.
    #[inline(always)]
    fn places(&self, hash: Hash) -> [&[Slot]; 2] {
        [hash.primary(self.mask()), hash.secondary(self.mask())].map(|index| {
            self.buckets
                .get(index)
                .map_or(&[][..], |bucket| &bucket.slots)
        })
    }

    #[inline(always)]
    fn find(&self, key: Key, hash: Hash) -> Option<(&Slot, Value)> {
        for slots in self.places(hash) {
            for slot in slots {
                if let Some(value) = slot.read(key, hash) {
                    return Some((slot, value));
                }
            }
        }
        None
    }

    #[inline(never)]
    fn renew(&self, slot: &Slot, old: Value, port: u16, now_s: u32) -> Learned {
        let moved = old.port != port;
        // An entry that has aged and was not swept yet is as good as gone: coming back elsewhere is no move.
        let aged = age_s(old.stamp_s, now_s) > self.ageing_s;
        let new = Value {
            port,
            stamp_s: now_s,
            ..old
        };
        // Lost to another thread: its word is as fresh as this one.
        let changed = slot.update(old, new);
        match (changed, aged, moved) {
            (true, true, _) => Learned::New,
            (true, false, true) => Learned::Moved,
            _ => Learned::Known,
        }
    }

    #[inline(never)]
    fn insert(&self, key: Key, hash: Hash, value: Value) -> Learned {
        // Looked at first so that a full table is only read, whatever it is flooded with.
        if self.entries() >= self.entries_max {
            return Learned::Full;
        }
        if self.entries.fetch_add(1, Ordering::Relaxed) >= self.entries_max {
            self.entries.fetch_sub(1, Ordering::Relaxed);
            return Learned::Full;
        }
        let placed = self.claim_free(hash).or_else(|| self.claim_by_moving(hash));
        match placed {
            Some(slot) => {
                slot.publish(key, value);
                self.remove_twins(key, hash);
                Learned::New
            }
            None => {
                self.entries.fetch_sub(1, Ordering::Relaxed);
                Learned::Full
            }
        }
    }

    fn claim_free(&self, hash: Hash) -> Option<&Slot> {
        self.places(hash)
            .into_iter()
            .flatten()
            .find(|slot| slot.claim())
    }

    /// Claims a slot of a full bucket whose tenant has room in its own other bucket.
    fn claim_by_moving(&self, hash: Hash) -> Option<&Slot> {
        self.places(hash).into_iter().flatten().find(|slot| {
            slot.tenant()
                .is_some_and(|tenant| self.move_away(slot, tenant))
        })
    }

    /// Moves `tenant` out of `slot` to a free slot of its own buckets; true when `slot` is claimed then. Its
    /// entry is there twice for an instant and never missing, except for readers that have just passed its new place.
    fn move_away(&self, slot: &Slot, tenant: Key) -> bool {
        let hash = self.hash(tenant);
        let Some(target) = self.claim_free(hash) else {
            return false;
        };
        let value = Value::of_word(slot.value.load(Ordering::Acquire));
        target.publish(
            tenant,
            Value {
                tag: hash.tag(),
                ..value
            },
        );
        let claimed = slot
            .key
            .compare_exchange(tenant.word(), RESERVED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok();
        if claimed {
            // Whoever still holds the old place renews in vain from here on, and what came before is taken along.
            let last = Value::of_word(slot.value.swap(EMPTY, Ordering::AcqRel));
            if last != value {
                target.update(value, last);
            }
        } else if !target.vacate(tenant) {
            // The tenant was removed from both places, and counted twice.
            self.entries.fetch_add(1, Ordering::Relaxed);
        }
        claimed
    }

    /// Leaves only the first of several entries of one key, which threads made that learned it at the same time.
    fn remove_twins(&self, key: Key, hash: Hash) {
        let same = |slot: &&Slot| slot.key.load(Ordering::SeqCst) == key.word();
        for slot in self.places(hash).into_iter().flatten().filter(same).skip(1) {
            self.vacate(slot, key);
        }
    }

    /// Empties a slot and counts that.
    fn vacate(&self, slot: &Slot, key: Key) -> bool {
        let vacated = slot.vacate(key);
        if vacated {
            self.entries.fetch_sub(1, Ordering::Relaxed);
        }
        vacated
    }
}
