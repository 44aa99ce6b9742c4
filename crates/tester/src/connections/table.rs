// SPDX-License-Identifier: Apache-2.0
//! Conversations of one end by their addresses and ports, with a timer each. All memory is allocated before the first.

mod index;
mod timers;

use std::net::Ipv6Addr;

use index::Index;
use timers::Timers;

use quietwire_base::random::mix;

/// Transport protocol of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

/// The 5-tuple of a conversation as one end sees it. The own address is one of a range, so its number is enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    /// Address of the peer; IPv4 addresses are mapped (RFC 4291, section 2.5.5.2).
    pub(crate) remote: Ipv6Addr,
    pub(crate) remote_port: u16,
    pub(crate) local_port: u16,
    /// Number of the own address.
    pub(crate) local: u16,
    pub(crate) protocol: Protocol,
}

impl Key {
    fn hash(&self, seed: u64) -> u64 {
        let remote = self.remote.to_bits().to_le_bytes();
        let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p] = remote;
        let low = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let high = u64::from_le_bytes([i, j, k, l, m, n, o, p]);
        let ports = u64::from(self.remote_port) << 48
            | u64::from(self.local_port) << 32
            | u64::from(self.local) << 16
            | u64::from(self.protocol == Protocol::Udp);
        mix(mix(mix(seed ^ low) ^ high) ^ ports)
    }
}

#[derive(Debug)]
struct Entry<T> {
    key: Key,
    value: T,
}

/// Bounded table of conversations.
#[derive(Debug)]
pub(crate) struct Table<T> {
    seed: u64,
    index: Index,
    entries: Vec<Option<Entry<T>>>,
    free: Vec<u32>,
    capacity: usize,
    timers: Timers,
}

impl<T> Table<T> {
    /// Creates a table of at most `capacity` conversations. `seed` makes the places of keys unpredictable.
    pub(crate) fn new(capacity: u32, seed: u64) -> Self {
        let entries = capacity as usize;
        Self {
            seed,
            index: Index::new(capacity),
            entries: Vec::with_capacity(entries),
            free: Vec::with_capacity(entries),
            capacity: entries,
            timers: Timers::new(capacity),
        }
    }

    /// Returns the memory of a conversation, octets.
    #[cfg(test)]
    pub(crate) fn octets_per_entry() -> usize {
        size_of::<Option<Entry<T>>>()
            + size_of::<u32>()
            + Index::OCTETS_PER_ENTRY
            + Timers::OCTETS_PER_ENTRY
    }

    /// Returns the number of conversations.
    pub(crate) fn len(&self) -> usize {
        self.entries.len().saturating_sub(self.free.len())
    }

    /// Returns the number of the conversation with this key.
    #[inline]
    pub(crate) fn find(&self, key: &Key) -> Option<u32> {
        let is_it = |number: u32| self.key(number).is_some_and(|found| found == key);
        self.index.find(key.hash(self.seed), is_it)
    }

    /// Returns the key of a conversation.
    pub(crate) fn key(&self, number: u32) -> Option<&Key> {
        Some(&self.entries.get(number as usize)?.as_ref()?.key)
    }

    /// Returns a conversation, to change it.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        Some(&mut self.entries.get_mut(number as usize)?.as_mut()?.value)
    }

    /// Adds a conversation whose key is not in the table. Returns its number; `None` if the table is full.
    pub(crate) fn insert(&mut self, key: Key, value: T) -> Option<u32> {
        let entry = Some(Entry { key, value });
        let number = match self.free.pop() {
            Some(number) => {
                *self.entries.get_mut(number as usize)? = entry;
                number
            }
            None if self.entries.len() < self.capacity => {
                let number = u32::try_from(self.entries.len()).ok()?;
                self.entries.push(entry);
                number
            }
            None => return None,
        };
        self.index.insert(key.hash(self.seed), number);
        Some(number)
    }

    /// Removes a conversation, and clears its timer.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.timers.clear(number);
        let hash = self.key(number)?.hash(self.seed);
        let (entries, seed) = (&self.entries, self.seed);
        let hash_of = |other: u32| {
            let entry = entries.get(other as usize).and_then(Option::as_ref);
            entry.map_or(0, |entry| entry.key.hash(seed))
        };
        self.index.remove(hash, number, hash_of);
        let entry = self.entries.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(entry.value)
    }

    /// Sets the timer of a conversation (see [`Timers::set`]).
    #[inline]
    pub(crate) fn set_timer(&mut self, number: u32, deadline: u64) {
        self.timers.set(number, deadline);
    }

    /// Returns the number of a conversation whose timer fires (see [`Timers::fire`]).
    pub(crate) fn fire(&mut self, now: u64) -> Option<u32> {
        self.timers.fire(now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u32) -> Key {
        Key {
            remote: Ipv4Addr::from(0x0a00_0000 + number / 7).to_ipv6_mapped(),
            remote_port: (number % 7) as u16,
            local_port: 80,
            local: (number % 3) as u16,
            protocol: if number.is_multiple_of(2) {
                Protocol::Tcp
            } else {
                Protocol::Udp
            },
        }
    }

    proptest! {
        #[test]
        fn the_table_is_a_map(steps in prop::collection::vec((any::<bool>(), 0u32..60), 1..200)) {
            const CAPACITY: usize = 20;
            let (mut table, mut plain) = (Table::new(CAPACITY as u32, 1), Vec::<u32>::new());
            for (adds, number) in steps {
                let found = table.find(&key(number));
                prop_assert_eq!(found.is_some(), plain.contains(&number));
                match found {
                    Some(entry) if !adds => {
                        prop_assert_eq!(table.remove(entry), Some(number));
                        prop_assert_eq!(table.remove(entry), None);
                        plain.retain(|other| *other != number);
                    }
                    Some(entry) => prop_assert_eq!(table.get_mut(entry).copied(), Some(number)),
                    None if adds => {
                        let entry = table.insert(key(number), number);
                        prop_assert_eq!(entry.is_some(), plain.len() < CAPACITY);
                        plain.extend(entry.map(|_| number));
                    }
                    None => {}
                }
                prop_assert_eq!(table.len(), plain.len());
            }
        }
    }

    #[test]
    fn a_removed_conversation_has_no_timer() {
        let mut table = Table::new(4, 1);
        let first = table.insert(key(1), 1).unwrap();
        let second = table.insert(key(2), 2).unwrap();
        table.set_timer(first, 10_000_000);
        table.set_timer(second, 20_000_000);
        table.remove(first);
        assert_eq!(table.fire(5_000_000), None);
        assert_eq!(table.fire(50_000_000), Some(second));
        assert_eq!(table.fire(50_000_000), None);
    }
}
