// SPDX-License-Identifier: Apache-2.0
//! The filtering database: maps an address to the port it was last observed on (IEEE 802.1Q, section 8.8).
//!
//! A hash table of fixed size. Any number of threads read and write it without a lock: forwarding threads look up and learn, the service
//! thread removes aged entries, the control thread executes operators' requests. [`Fdb::new`] makes all allocations, and every operation of
//! forwarding threads takes a bounded number of steps.
//!
//! Buckets are cache lines of eight entries. An entry is one word (`word`), read and exchanged as a whole, so that readers never see a
//! partial entry. An entry fits into a word because the hash is a permutation of the keys (`hash`): the part of the key that the bucket
//! number determines is not stored. Each key has two buckets, and uses the second only if the first is full. If both are full, one of their
//! entries is moved to its own other bucket if that has space.
//!
//! Memory: at most three quarters of the slots are used, and the number of buckets is a power of two: 10.7 to 21.3 octets per address of
//! capacity (65,536 addresses: 1 MiB, the minimum; 1,000,000: 16 MiB; 4,194,304: 64 MiB), and 24 KiB for counters. A look-up of a known
//! address reads one cache line in nearly all cases.
//!
//! Timestamps have units of a thirtieth of the ageing time (at least a second). An address in permanent use is written once per unit and
//! otherwise only read, so that its line stays in the caches of all forwarding CPUs. An address ages out between the ageing time and a
//! thirtieth more after it was last observed. The clock of 62 units wraps around: the whole table must be swept at least every 27 units.
//!
//! Two anomalies are possible for an instant and harmless: a duplicate entry (same result), and a missing entry (the frame is flooded).

mod hash;
mod moves;
mod slots;
#[cfg(test)]
mod tests;
mod word;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietwire_packet::{MacAddress, VlanId};

use crate::arena::NoMemory;
use hash::{BUCKET_BITS_MIN, Permutation};
use moves::Moves;
use slots::{Cell, EntryObserver, Places, change, move_away, vacate};
use word::{Ageing, Identity, Stamp, Word};

pub use hash::Hash;
pub use moves::{FlapLimit, Flapping};
pub use word::{Key, Now, PORTS_MAX};

const SLOTS: usize = 8;

#[derive(Debug, Default)]
#[repr(align(64))]
struct Bucket {
    slots: [AtomicU64; SLOTS],
}

/// Result of learning an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// Already known on this port.
    Known,
    /// New.
    New,
    /// Moved from another port.
    Moved,
    /// Moved from another port beyond the flap limit ([`FlapLimit`]).
    Flapped,
    /// Not learned: table full.
    Full,
    /// Not learned: the port is at its limit. An existing entry stays unchanged.
    OverLimit,
    /// Not learned: static entry on another port, which stays unchanged.
    Static,
}

/// An entry in a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// Number of the port it was last observed on, or of its static entry.
    pub port: u16,
    /// Seconds since it was last observed, in whole units; 0 for a static entry.
    pub age_s: u32,
    /// True for a static entry.
    pub is_static: bool,
}

/// Entries that [`Fdb::flush`] removes: those that match all given fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Only entries on this port.
    pub port: Option<u16>,
    /// Only entries in this VLAN.
    pub vlan: Option<VlanId>,
}

impl Selection {
    fn matches(&self, key: Key, port: u16) -> bool {
        self.port.is_none_or(|only| only == port)
            && self.vlan.is_none_or(|only| key.vlan() == Some(only))
    }
}

/// Error of setting a static entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// The table is full.
    #[error(
        "no space for {address}: the table is full with {entries_max} addresses (raise max-entries, or flush learned addresses)"
    )]
    Full {
        /// The address of the entry.
        address: MacAddress,
        /// Maximum number of addresses.
        entries_max: u32,
    },
    /// A group address.
    #[error("{0} is a group address (a static entry requires a unicast address)")]
    Group(MacAddress),
    /// Port number out of range.
    #[error("port {0}: number out of range (must be below {PORTS_MAX})")]
    Port(u16),
}

/// A filtering database.
#[derive(Debug)]
pub struct Fdb {
    buckets: Box<[Bucket]>,
    permutation: Permutation,
    ageing: Ageing,
    entries_max: u32,
    counts: Counts,
    moves: Moves,
}

/// Numbers of entries.
#[derive(Debug)]
struct Counts {
    all: AtomicU32,
    by_port: Box<[AtomicU32]>,
}

impl Counts {
    fn new() -> Self {
        Self {
            all: AtomicU32::new(0),
            by_port: (0..PORTS_MAX).map(|_| AtomicU32::new(0)).collect(),
        }
    }

    fn of_port(&self, port: u16) -> u32 {
        self.by_port
            .get(usize::from(port))
            .map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl EntryObserver for Counts {
    fn entry_added(&self, word: Word) {
        self.all.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.by_port.get(usize::from(word.port()))
            && !word.is_static()
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn entry_removed(&self, word: Word) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = self.by_port.get(usize::from(word.port()))
            && !word.is_static()
        {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Fdb {
    /// Creates an empty table for `entries_max` addresses (at least 1) with an ageing time of `ageing_s` seconds.
    #[must_use]
    pub fn new(entries_max: u32, ageing_s: u32) -> Self {
        Self::with_flap_limit(entries_max, ageing_s, FlapLimit::default())
    }

    /// Creates a table like [`Fdb::new`].
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn try_new(entries_max: u32, ageing_s: u32) -> Result<Self, NoMemory> {
        let permutation = permutation(entries_max);
        let buckets = permutation.buckets();
        let mut memory: Vec<Bucket> = Vec::new();
        memory
            .try_reserve_exact(buckets)
            .map_err(|_| NoMemory(buckets.saturating_mul(size_of::<Bucket>())))?;
        memory.resize_with(buckets, Bucket::default);
        let memory = memory.into_boxed_slice();
        Ok(Self::of(
            memory,
            permutation,
            entries_max,
            ageing_s,
            FlapLimit::default(),
        ))
    }

    /// Creates a table like [`Fdb::new`], with a flap limit.
    #[must_use]
    pub fn with_flap_limit(entries_max: u32, ageing_s: u32, flap_limit: FlapLimit) -> Self {
        let permutation = permutation(entries_max);
        let buckets = allocate(permutation.buckets());
        Self::of(buckets, permutation, entries_max, ageing_s, flap_limit)
    }

    fn of(
        buckets: Box<[Bucket]>,
        permutation: Permutation,
        entries_max: u32,
        ageing_s: u32,
        flap_limit: FlapLimit,
    ) -> Self {
        Self {
            buckets,
            permutation,
            ageing: Ageing::new(ageing_s),
            entries_max,
            counts: Counts::new(),
            moves: Moves::new(flap_limit),
        }
    }

    /// Returns the number of known addresses, including static ones.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.counts.all.load(Ordering::Relaxed)
    }

    /// Returns the number of addresses learned on a port.
    #[must_use]
    pub fn learned_on(&self, port: u16) -> u32 {
        self.counts.of_port(port)
    }

    /// Returns the maximum number of addresses.
    #[must_use]
    pub fn entries_max(&self) -> u32 {
        self.entries_max
    }

    /// Returns the number of buckets, for [`Fdb::sweep`].
    #[must_use]
    pub fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Returns the hash of a key in this table, for the other functions.
    #[inline(always)]
    #[must_use]
    pub fn hash(&self, key: Key) -> Hash {
        self.permutation.hash(key)
    }

    /// Converts seconds of the coarse clock to this table's clock, once per burst.
    #[inline]
    #[must_use]
    pub fn now(&self, now_s: u32) -> Now {
        self.ageing.now(now_s)
    }

    /// Prefetches the memory that a look-up reads first.
    #[inline(always)]
    pub fn prefetch(&self, hash: Hash) {
        if let Some(bucket) = self.buckets.get(self.permutation.first_bucket(hash)) {
            quietwire_memory::prefetch(bucket);
        }
    }

    /// Returns the port that an address was last observed on, unless the entry has aged.
    #[inline(always)]
    #[must_use]
    pub fn look_up(&self, hash: Hash, now: Now) -> Option<u16> {
        let (_, word) = self.find(hash)?;
        (!self.ageing.is_over(word.stamp(), now)).then_some(word.port())
    }

    /// Learns an address on a port (number below [`PORTS_MAX`]) with a limit of `limit` learned addresses. Writes nothing if the same was
    /// noted within the current unit of time.
    #[inline(always)]
    pub fn learn(&self, hash: Hash, port: u16, now: Now, limit: u32) -> Learned {
        match self.find(hash) {
            Some((_, word)) if word.port() == port && Ageing::is_fresh(word.stamp(), now) => {
                Learned::Known
            }
            Some((slot, word)) => self.renew(slot, word, hash, port, now, limit),
            None => self.insert(hash, port, now, limit),
        }
    }

    /// Sets a static entry, which neither ages nor moves. It replaces a learned or earlier static entry of the address. Only one thread may
    /// call it at a time; forwarding threads can run concurrently.
    ///
    /// # Errors
    /// [`StaticError`].
    pub fn set_static(&self, key: Key, port: u16) -> Result<(), StaticError> {
        let address = key.address();
        if address.is_multicast() {
            return Err(StaticError::Group(address));
        }
        if port >= PORTS_MAX {
            return Err(StaticError::Port(port));
        }
        let hash = self.hash(key);
        let places = self.places(hash);
        let make = |identity| Word::new(identity, port, Stamp::STATIC);
        // Fails only if another thread learned or removed the address concurrently.
        for _ in 0..STATIC_ATTEMPTS {
            let done = match places.entries().next() {
                Some((slot, word)) => change(slot, word, make(word.identity()), &self.counts),
                None => self.entries() < self.entries_max && self.put(hash, make),
            };
            if done {
                places.remove_twins(&self.counts);
                return Ok(());
            }
        }
        Err(StaticError::Full {
            address,
            entries_max: self.entries_max,
        })
    }

    /// Removes an address, learned or static. Returns true if it was known.
    pub fn remove(&self, key: Key) -> bool {
        let mut removed = false;
        for (slot, word) in self.places(self.hash(key)).entries() {
            removed |= vacate(slot, word, &self.counts);
        }
        removed
    }

    /// Removes matching learned entries; static entries stay. Returns their number. Entries that forwarding threads refresh concurrently
    /// may stay.
    pub fn flush(&self, selection: Selection) -> u32 {
        self.vacate_where(0, usize::MAX, |key, word| {
            !word.is_static() && selection.matches(key, word.port())
        })
    }

    /// Removes aged entries in `count` buckets from `first` (fewer at the end of the table). Returns their number.
    pub fn sweep(&self, first: usize, count: usize, now_s: u32) -> u32 {
        let now = self.now(now_s);
        self.vacate_where(first, count, |_, word| {
            self.ageing.is_over(word.stamp(), now)
        })
    }

    /// Refreshes a learned address whose frames the forwarding threads do not receive. Returns true if it is known on this port.
    pub fn refresh(&self, hash: Hash, port: u16, now: Now) -> bool {
        match self.find(hash) {
            Some((_, word)) if word.port() != port => false,
            Some((slot, word)) if !word.is_static() && !Ageing::is_fresh(word.stamp(), now) => {
                let new = Word::new(word.identity(), port, now.stamp());
                change(slot, word, new, &self.counts)
            }
            found => found.is_some(),
        }
    }

    /// Returns the entries, unordered. Entries that change concurrently may be missing or duplicated.
    pub fn snapshot(&self, now_s: u32) -> impl Iterator<Item = Entry> + '_ {
        self.snapshot_of(0, usize::MAX, now_s)
    }

    /// Returns the entries in `count` buckets from `first`, as [`Self::snapshot`] does.
    pub fn snapshot_of(
        &self,
        first: usize,
        count: usize,
        now_s: u32,
    ) -> impl Iterator<Item = Entry> + '_ {
        let now = self.now(now_s);
        self.slots(first, count).filter_map(move |(bucket, slot)| {
            let word = slot.word();
            let shown = word != Word::EMPTY && !self.ageing.is_over(word.stamp(), now);
            shown.then(|| {
                let key = self.permutation.key(bucket, word.identity());
                Entry {
                    address: key.address(),
                    vlan: key.vlan(),
                    port: word.port(),
                    age_s: self.ageing.age_s(word.stamp(), now),
                    is_static: word.is_static(),
                }
            })
        })
    }

    /// Returns the flapping addresses, of at most 1024 watched addresses.
    pub fn flapping(&self, now_s: u32) -> impl Iterator<Item = Flapping> + '_ {
        self.moves.flapping(now_s)
    }

    fn slots(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let buckets = self.buckets.iter().enumerate().skip(first).take(count);
        buckets.flat_map(|(index, bucket)| bucket.slots.iter().map(move |slot| (index, slot)))
    }

    /// Empties the slots that match `entry_removed`; an entry that changes concurrently stays.
    #[expect(clippy::arithmetic_side_effects, reason = "counts at most all slots")]
    fn vacate_where(&self, first: usize, count: usize, goes: impl Fn(Key, Word) -> bool) -> u32 {
        let mut vacated = 0;
        for (bucket, slot) in self.slots(first, count) {
            let word = slot.word();
            let key = || self.permutation.key(bucket, word.identity());
            if word != Word::EMPTY && goes(key(), word) && vacate(slot, word, &self.counts) {
                vacated += 1;
            }
        }
        vacated
    }

    #[inline(always)]
    fn bucket(&self, index: usize) -> &[AtomicU64] {
        self.buckets.get(index).map_or(&[], |bucket| &bucket.slots)
    }

    fn places(&self, hash: Hash) -> Places<'_, AtomicU64> {
        let identity = self.permutation.identity(hash);
        let first = self.permutation.first_bucket(hash);
        let second = self.permutation.other_bucket(first, identity);
        Places::new(self.bucket(first), self.bucket(second), identity)
    }

    #[inline(always)]
    fn find(&self, hash: Hash) -> Option<(&AtomicU64, Word)> {
        let identity = self.permutation.identity(hash);
        let first = self.permutation.first_bucket(hash);
        if let Some(found) = find_in(self.buckets.get(first)?, identity) {
            return Some(found);
        }
        let second = self.permutation.other_bucket(first, identity);
        find_in(self.buckets.get(second)?, identity.in_second_bucket())
    }

    #[inline(never)]
    fn renew(
        &self,
        slot: &AtomicU64,
        old: Word,
        hash: Hash,
        port: u16,
        now: Now,
        limit: u32,
    ) -> Learned {
        if old.is_static() {
            return if old.port() == port {
                Learned::Known
            } else {
                Learned::Static
            };
        }
        let moves = old.port() != port;
        if moves && port >= PORTS_MAX {
            return Learned::Full;
        }
        if moves && self.counts.of_port(port) >= limit {
            return Learned::OverLimit;
        }
        // An aged entry that is not swept yet counts as removed: its return on another port is not a move.
        let aged = self.ageing.is_over(old.stamp(), now);
        let new = Word::new(old.identity(), port, now.stamp());
        // Another thread won the race: its word is equally fresh.
        if !change(slot, old, new, &self.counts) {
            return Learned::Known;
        }
        match (aged, moves) {
            (true, _) => Learned::New,
            (false, false) => Learned::Known,
            (false, true) if self.note_move(hash, now) => Learned::Flapped,
            (false, true) => Learned::Moved,
        }
    }

    #[inline(never)]
    fn insert(&self, hash: Hash, port: u16, now: Now, limit: u32) -> Learned {
        // A full table is only read, even under a flood of new addresses. Threads that pass this check concurrently may each take the last
        // place: there is space for that.
        if self.entries() >= self.entries_max || port >= PORTS_MAX {
            return Learned::Full;
        }
        if self.counts.of_port(port) >= limit {
            return Learned::OverLimit;
        }
        if self.put(hash, |identity| Word::new(identity, port, now.stamp())) {
            self.places(hash).remove_twins(&self.counts);
            Learned::New
        } else {
            Learned::Full
        }
    }

    /// Inserts an entry, and moves another one if necessary.
    fn put(&self, hash: Hash, make: impl Fn(Identity) -> Word) -> bool {
        let places = self.places(hash);
        places.fill(&self.counts, &make)
            || places
                .slots()
                .any(|(slot, identity)| self.put_instead(slot, hash, make(identity)))
    }

    /// Puts `new`, of the key with this hash, into a slot whose entry can move to its own other bucket.
    fn put_instead(&self, slot: &AtomicU64, hash: Hash, new: Word) -> bool {
        let tenant = slot.word();
        // Static entries never move, so that they are never missing.
        if tenant == Word::EMPTY || tenant.is_static() {
            return false;
        }
        let first = self.permutation.first_bucket(hash);
        let bucket = if new.identity().is_in_second_bucket() {
            self.permutation
                .other_bucket(first, self.permutation.identity(hash))
        } else {
            first
        };
        let places = self.places(self.hash(self.permutation.key(bucket, tenant.identity())));
        move_away(slot, tenant, &places, new, &self.counts)
    }

    #[cold]
    fn note_move(&self, hash: Hash, now: Now) -> bool {
        let first = self.permutation.first_bucket(hash);
        let key = self.permutation.key(first, self.permutation.identity(hash));
        self.moves.note(key, hash, now.now_s)
    }
}

/// Maximum number of attempts to set a static entry.
const STATIC_ATTEMPTS: usize = 64;

/// Compares four slots before it branches on the result: the position of an entry among them is unpredictable.
#[inline(always)]
fn find_in(bucket: &Bucket, identity: Identity) -> Option<(&AtomicU64, Word)> {
    let (front, back) = bucket.slots.split_at(SLOTS / 2);
    find_among(front, identity).or_else(|| find_among(back, identity))
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "at most half of the slots of a bucket, and not zero in the loop"
)]
#[inline(always)]
fn find_among(slots: &[AtomicU64], identity: Identity) -> Option<(&AtomicU64, Word)> {
    let mut same = 0u32;
    for (index, slot) in slots.iter().enumerate() {
        same |= u32::from(slot.word().has_bits_of(identity)) << index;
    }
    while same != 0 {
        let slot = slots.get(same.trailing_zeros() as usize)?;
        let word = slot.word();
        if word.is(identity) {
            return Some((slot, word));
        }
        same &= same - 1;
    }
    None
}

/// Returns the permutation of a table for this number of addresses, which also determines its number of buckets.
#[allow(
    clippy::arithmetic_side_effects,
    reason = "four times a number of 32 bits"
)]
fn permutation(entries_max: u32) -> Permutation {
    let slots = (u64::from(entries_max) * 4).div_ceil(3);
    let buckets = slots.div_ceil(SLOTS as u64).next_power_of_two();
    Permutation::random(buckets.ilog2().max(BUCKET_BITS_MIN))
}

/// Allocates all buckets in one block of memory.
fn allocate(buckets: usize) -> Box<[Bucket]> {
    (0..buckets).map(|_| Bucket::default()).collect()
}
