// SPDX-License-Identifier: Apache-2.0
//! The filtering database: which port an address was last seen on (IEEE 802.1Q, section 8.8).
//!
//! A hash table of fixed size, read and written by any number of threads at once without a lock: forwarding
//! threads look up and learn, the service thread takes out what has aged, the control thread what an operator
//! says. Nothing is allocated after [`Fdb::new`], and every operation of forwarding threads takes a bounded
//! number of steps.
//!
//! Buckets are cache lines of eight entries; an entry is one word (`word`), which is read and exchanged as a whole,
//! so that nobody ever sees half of one. That much fits into a word because the hash is a permutation of the
//! keys (`hash`): what the number of the bucket says of a key is not stored again. Each key has two buckets,
//! and is put in the second only when the first is full. When both are full an entry of theirs is moved to its own
//! other bucket where there is room.
//!
//! Memory: at most three quarters of the slots are used, and the number of buckets is a power of two: 10.7 to 21.3 octets
//! for each of the addresses that there is room for (65,536 addresses: 1 MiB, the least; 1,000,000: 16 MiB;
//! 4,194,304: 64 MiB), and 24 KiB for counts. A look-up of what is known is one cache line in nearly all cases.
//!
//! When addresses were seen is noted in units of a thirtieth of the ageing time (at least a second): what is seen all the
//! time is written once a unit and otherwise only read, so that it stays in the caches of all forwarding CPUs. An address
//! is forgotten between the ageing time and a thirtieth more after it was last seen. The clock of 62 units goes round:
//! the whole table has to be swept at least every 27 units.
//!
//! What may be seen for an instant, and is harmless: an entry twice (the same answer), an entry not at all (the frame is
//! flooded).

mod hash;
mod moves;
mod slots;
#[cfg(test)]
mod tests;
mod word;

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use quietwire_packet::{MacAddress, VlanId};

use hash::{BUCKET_BITS_MIN, Permutation};
use moves::Moves;
use slots::{Cell, Census, Places, change, move_away, vacate};
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

/// What became of an address that was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Learned {
    /// It was known on this port.
    Known,
    /// It is known from now on.
    New,
    /// It was known on another port.
    Moved,
    /// It was known on another port, and has moved more often than it may ([`FlapLimit`]).
    Flapped,
    /// There was no room for it.
    Full,
    /// Its port has as many as it may have; it stays where it was, if anywhere.
    OverLimit,
    /// It has a static entry on another port, which stays as it is.
    Static,
}

/// One entry, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The address.
    pub address: MacAddress,
    /// Its VLAN; none in a bridge that knows none.
    pub vlan: Option<VlanId>,
    /// Number of the port it was last seen on, or was set to.
    pub port: u16,
    /// Seconds since it was seen, in whole units; 0 for a static entry.
    pub age_s: u32,
    /// True for an entry that was set and not learned.
    pub is_static: bool,
}

/// Which entries [`Fdb::flush`] is about: those of the port and of the VLAN that are given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// Those on this port only.
    pub port: Option<u16>,
    /// Those of this VLAN only.
    pub vlan: Option<VlanId>,
}

impl Selection {
    fn takes(&self, key: Key, port: u16) -> bool {
        self.port.is_none_or(|only| only == port)
            && self.vlan.is_none_or(|only| key.vlan() == Some(only))
    }
}

/// Why a static entry could not be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaticError {
    /// There is no room.
    #[error(
        "there is no room for {address}: the table holds {entries_max} addresses; raise max-entries, or flush what was learned"
    )]
    Full {
        /// The address that was to be set.
        address: MacAddress,
        /// Addresses that there is room for.
        entries_max: u32,
    },
    /// A group of stations is on no one port.
    #[error("{0} is the address of a group, and a static entry is about one station")]
    Group(MacAddress),
    /// There cannot be such a port.
    #[error("there is no port {0}: ports have numbers below {PORTS_MAX}")]
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

/// How many entries there are.
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

impl Census for Counts {
    fn comes(&self, word: Word) {
        self.all.fetch_add(1, Ordering::Relaxed);
        if let Some(count) = self.by_port.get(usize::from(word.port()))
            && !word.is_static()
        {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn goes(&self, word: Word) {
        self.all.fetch_sub(1, Ordering::Relaxed);
        if let Some(count) = self.by_port.get(usize::from(word.port()))
            && !word.is_static()
        {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Fdb {
    /// An empty table with room for `entries_max` addresses (at least 1), each forgotten `ageing_s` seconds after it
    /// was last seen.
    #[must_use]
    pub fn new(entries_max: u32, ageing_s: u32) -> Self {
        Self::with_flap_limit(entries_max, ageing_s, FlapLimit::default())
    }

    /// The same, with a limit for how often an address may move.
    #[must_use]
    pub fn with_flap_limit(entries_max: u32, ageing_s: u32, flap_limit: FlapLimit) -> Self {
        let slots = (u64::from(entries_max) * 4).div_ceil(3);
        let buckets = slots.div_ceil(SLOTS as u64).next_power_of_two();
        let permutation = Permutation::random(buckets.ilog2().max(BUCKET_BITS_MIN));
        Self {
            buckets: allocate(permutation.buckets()),
            permutation,
            ageing: Ageing::new(ageing_s),
            entries_max,
            counts: Counts::new(),
            moves: Moves::new(flap_limit),
        }
    }

    /// Number of addresses known, static ones included.
    #[must_use]
    pub fn entries(&self) -> u32 {
        self.counts.all.load(Ordering::Relaxed)
    }

    /// Number of addresses that were learned on a port.
    #[must_use]
    pub fn learned_on(&self, port: u16) -> u32 {
        self.counts.of_port(port)
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
        self.permutation.hash(key)
    }

    /// A moment on this table's clock, from seconds of the coarse clock: made once for a burst.
    #[inline]
    #[must_use]
    pub fn now(&self, now_s: u32) -> Now {
        self.ageing.now(now_s)
    }

    /// Asks the processor to load what a look-up will read first.
    #[inline(always)]
    pub fn prefetch(&self, hash: Hash) {
        if let Some(bucket) = self.buckets.get(self.permutation.first_bucket(hash)) {
            quietwire_memory::prefetch(bucket);
        }
    }

    /// The port that an address was last seen on, unless that is longer ago than the ageing time.
    #[inline(always)]
    #[must_use]
    pub fn look_up(&self, hash: Hash, now: Now) -> Option<u16> {
        let (_, word) = self.find(hash)?;
        (!self.ageing.is_over(word.stamp(), now)).then_some(word.port())
    }

    /// Takes note that an address was seen on a port (number below [`PORTS_MAX`]) that may have `limit` addresses learned.
    /// Writes nothing when that was known and noted within the same unit of time.
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

    /// Sets a static entry, which neither ages nor moves, in the place of what was learned of the address or of an earlier
    /// static entry. For one thread at a time; forwarding threads may go on meanwhile.
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
        // Fails only when another thread has seen the address or forgotten it in between.
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

    /// Forgets an address, whether it was learned or set. True when it was known.
    pub fn remove(&self, key: Key) -> bool {
        let mut removed = false;
        for (slot, word) in self.places(self.hash(key)).entries() {
            removed |= vacate(slot, word, &self.counts);
        }
        removed
    }

    /// Forgets what was learned of a port, of a VLAN, or all of it; static entries stay. Returns how many entries that
    /// were. What forwarding threads see again meanwhile may stay.
    pub fn flush(&self, selection: Selection) -> u32 {
        self.vacate_where(0, usize::MAX, |key, word| {
            !word.is_static() && selection.takes(key, word.port())
        })
    }

    /// Forgets what has aged in `count` buckets from `first` on (fewer at the end of the table). Returns how
    /// many entries that were.
    pub fn sweep(&self, first: usize, count: usize, now_s: u32) -> u32 {
        let now = self.now(now_s);
        self.vacate_where(first, count, |_, word| {
            self.ageing.is_over(word.stamp(), now)
        })
    }

    /// The entries, in no order. Those that change meanwhile may be missing or there twice.
    pub fn snapshot(&self, now_s: u32) -> impl Iterator<Item = Entry> + '_ {
        let now = self.now(now_s);
        self.slots(0, usize::MAX).filter_map(move |(bucket, slot)| {
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

    /// Addresses that have moved more often than they may, of those that are watched: 1024 at a time.
    pub fn flapping(&self, now_s: u32) -> impl Iterator<Item = Flapping> + '_ {
        self.moves.flapping(now_s)
    }

    fn slots(&self, first: usize, count: usize) -> impl Iterator<Item = (usize, &AtomicU64)> {
        let buckets = self.buckets.iter().enumerate().skip(first).take(count);
        buckets.flat_map(|(index, bucket)| bucket.slots.iter().map(move |slot| (index, slot)))
    }

    /// Empties the slots that `goes` says of; an entry that changes meanwhile stays.
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
        // An entry that has aged and was not swept yet is as good as gone: coming back elsewhere is no move.
        let aged = self.ageing.is_over(old.stamp(), now);
        let new = Word::new(old.identity(), port, now.stamp());
        // Lost to another thread: its word is as fresh as this one.
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
        // A full table is only read, whatever it is flooded with. Threads that get here at the same time may
        // each take the last place: there is room for that.
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

    /// Puts in an entry, moving another one away if it must.
    fn put(&self, hash: Hash, make: impl Fn(Identity) -> Word) -> bool {
        let places = self.places(hash);
        places.fill(&self.counts, &make)
            || places
                .slots()
                .any(|(slot, identity)| self.put_instead(slot, hash, make(identity)))
    }

    /// Puts `new`, of the key with this hash, into a slot whose tenant has room in its own other bucket.
    fn put_instead(&self, slot: &AtomicU64, hash: Hash, new: Word) -> bool {
        let tenant = slot.word();
        // Static entries stay where they are, so that they are never missing.
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

/// Times that setting a static entry is tried.
const STATIC_ATTEMPTS: usize = 64;

/// Looks at four slots before it looks at the result: where among them an entry is cannot be predicted.
#[inline(always)]
fn find_in(bucket: &Bucket, identity: Identity) -> Option<(&AtomicU64, Word)> {
    let (front, back) = bucket.slots.split_at(SLOTS / 2);
    find_among(front, identity).or_else(|| find_among(back, identity))
}

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

/// All buckets in one piece of memory.
fn allocate(buckets: usize) -> Box<[Bucket]> {
    (0..buckets).map(|_| Bucket::default()).collect()
}
