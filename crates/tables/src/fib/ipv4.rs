// SPDX-License-Identifier: Apache-2.0
//! IPv4: DIR-24-8 (Gupta, Lin, McKeown, "Routing Lookups in Hardware at Memory Access Speeds", INFOCOM 1998), like DPDK's `rte_lpm`, with
//! next hops of 24 bits and a writer concurrent to readers.
//!
//! An entry for each /24 contains either the next hop of all its addresses or the number of a group of 256 entries, one per address. A
//! look-up is one memory access for prefixes of up to 24 bits and two for longer ones; accesses of a burst overlap. The default route is
//! stored separately, so that it does not fill the table.
//!
//! Memory: 64 MiB, of which the kernel provides only written pages (a VRF with few routes uses little), 1 KiB for each /24 with longer
//! prefixes, and about 20 octets per route for the writer.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net};
use quietwire_base::BURST_MAX;
use quietwire_memory::atomic::{AtomicU32, Ordering};
use quietwire_memory::prefetch;

use super::{FibError, NEXT_HOP_MAX, NO_ROUTE, check};
use crate::arena::{Blocks, Epoch, zeroed};

/// Bits of a destination that select an entry of the first table. Models have a table of two entries, and groups of two.
const FIRST_BITS: u32 = if cfg!(loom) { 31 } else { 24 };
/// Entries of the first table.
const FIRST: usize = if cfg!(loom) { 2 } else { 1 << FIRST_BITS };
/// The other bits of a destination, which select an entry of a group.
const GROUP_BITS: u32 = u32::BITS - FIRST_BITS;
const GROUP: usize = 1 << GROUP_BITS;
/// Flag of entries in the first table that contain the number of a group.
const EXTENDED: u32 = 1 << 31;
/// Shift of the prefix length of an entry, which determines the entries that the writer may replace.
const LENGTH_SHIFT: u32 = 24;
const LENGTH_MASK: u32 = 0x3f;

const fn entry(next_hop: u32, length: u8) -> u32 {
    (length as u32) << LENGTH_SHIFT | next_hop
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "masked to the bits of a length"
)]
const fn length_of(entry: u32) -> u8 {
    (entry >> LENGTH_SHIFT & LENGTH_MASK) as u8
}

/// The table of forwarding threads.
#[derive(Debug)]
pub struct Ipv4Fib {
    default: AtomicU32,
    first: Box<[AtomicU32]>,
    groups: Box<[AtomicU32]>,
}

impl Ipv4Fib {
    /// Returns the next hop number of a destination; [`NO_ROUTE`] if there is none.
    #[inline]
    #[must_use]
    pub fn look_up(&self, destination: u32) -> u32 {
        let first = self.first_entry(destination);
        self.finish(first, destination)
    }

    /// Looks up the next hop numbers of a burst. Destinations beyond [`BURST_MAX`], or without a place in `next_hops`, are ignored.
    #[inline]
    pub fn look_up_burst(&self, destinations: &[u32], next_hops: &mut [u32]) {
        let destinations = destinations.get(..BURST_MAX).unwrap_or(destinations);
        for destination in destinations {
            if let Some(place) = self.first.get((destination >> GROUP_BITS) as usize) {
                prefetch(place);
            }
        }
        let mut is_open = false;
        for (destination, found) in destinations.iter().zip(&mut *next_hops) {
            *found = self.first_entry(*destination);
            is_open |= *found & NEXT_HOP_MAX == NO_ROUTE;
            if *found & EXTENDED != 0 {
                is_open = true;
                if let Some(place) = self.groups.get(group_index(*found, *destination)) {
                    prefetch(place);
                }
            }
        }
        if is_open {
            for (destination, found) in destinations.iter().zip(next_hops) {
                *found = self.finish(*found, *destination);
            }
        } else {
            for (_, found) in destinations.iter().zip(next_hops) {
                *found &= NEXT_HOP_MAX;
            }
        }
    }

    #[inline(always)]
    fn first_entry(&self, destination: u32) -> u32 {
        match self.first.get((destination >> GROUP_BITS) as usize) {
            Some(place) => place.load(Ordering::Acquire),
            None => NO_ROUTE,
        }
    }

    #[inline(always)]
    fn finish(&self, first: u32, destination: u32) -> u32 {
        let entry = if first & EXTENDED == 0 {
            first
        } else {
            match self.groups.get(group_index(first, destination)) {
                Some(place) => place.load(Ordering::Acquire),
                None => NO_ROUTE,
            }
        };
        match entry & NEXT_HOP_MAX {
            NO_ROUTE => self.default.load(Ordering::Acquire),
            next_hop => next_hop,
        }
    }
}

#[inline(always)]
const fn group_index(entry: u32, destination: u32) -> usize {
    (((entry & !EXTENDED) as usize) << GROUP_BITS) | (destination as usize % GROUP)
}

/// Writer of a table.
#[derive(Debug)]
pub struct Ipv4Routes {
    fib: Arc<Ipv4Fib>,
    /// Next hops by prefix, for each prefix length.
    prefixes: [HashMap<u32, u32>; 33],
    groups: Blocks,
}

impl Ipv4Routes {
    /// Creates an empty table with space for longer prefixes in this number of different /24.
    ///
    /// # Errors
    /// [`FibError::Memory`].
    #[allow(
        clippy::cast_possible_truncation,
        clippy::arithmetic_side_effects,
        reason = "at most as many groups as first entries"
    )]
    pub fn new(groups_max: u32) -> Result<Self, FibError> {
        let groups_max = groups_max.min(FIRST as u32);
        let fib = Ipv4Fib {
            default: AtomicU32::new(NO_ROUTE),
            first: zeroed(FIRST)?,
            groups: zeroed(groups_max as usize * GROUP)?,
        };
        Ok(Self {
            fib: Arc::new(fib),
            prefixes: std::array::from_fn(|_| HashMap::new()),
            groups: Blocks::new(groups_max),
        })
    }

    /// Returns the table of forwarding threads.
    #[must_use]
    pub fn fib(&self) -> Arc<Ipv4Fib> {
        Arc::clone(&self.fib)
    }

    /// Returns the number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prefixes.iter().map(HashMap::len).sum()
    }

    /// Returns true if there are no routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.iter().all(HashMap::is_empty)
    }

    /// Returns the number of groups of addresses with prefixes longer than /24.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.used()
    }

    /// Returns the next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Ipv4Net) -> Option<u32> {
        let (network, length) = parts(prefix);
        self.prefixes
            .get(usize::from(length))?
            .get(&network)
            .copied()
    }

    /// Sets the next hop of a prefix and returns the previous one. Host bits of the prefix are ignored.
    ///
    /// # Errors
    /// [`FibError`]; nothing changes in that case.
    pub fn insert(&mut self, prefix: Ipv4Net, next_hop: u32) -> Result<Option<u32>, FibError> {
        check(next_hop)?;
        let (network, length) = parts(prefix);
        if u32::from(length) > FIRST_BITS {
            self.extend(network)
                .ok_or(FibError::Full(IpNet::V4(prefix)))?;
        }
        self.fill(
            network,
            length,
            |there| length_of(there) <= length,
            entry(next_hop, length),
        );
        let former = self
            .prefixes
            .get_mut(usize::from(length))
            .and_then(|prefixes| prefixes.insert(network, next_hop));
        Ok(former)
    }

    /// Removes a prefix and returns its next hop.
    pub fn remove(&mut self, prefix: Ipv4Net) -> Option<u32> {
        let (network, length) = parts(prefix);
        let former = self
            .prefixes
            .get_mut(usize::from(length))?
            .remove(&network)?;
        let instead = self.covering(network, length);
        self.fill(network, length, |there| length_of(there) == length, instead);
        if u32::from(length) > FIRST_BITS {
            self.collapse(network);
        }
        Some(former)
    }

    /// Sets the epoch of memory that is freed from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.groups.set_epoch(epoch);
    }

    /// Reuses memory freed before this epoch, because every forwarding thread has finished its burst of that time.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.groups.reclaim(epoch);
    }

    /// Returns the entry of the longest shorter prefix; the entry without a route if that is the default route or none.
    #[expect(
        clippy::indexing_slicing,
        reason = "lengths of prefixes are at most 32"
    )]
    fn covering(&self, network: u32, length: u8) -> u32 {
        for shorter in (1..length).rev() {
            let prefixes = &self.prefixes[usize::from(shorter)];
            if prefixes.is_empty() {
                continue;
            }
            if let Some(next_hop) = prefixes.get(&(network & mask(shorter))) {
                return entry(*next_hop, shorter);
            }
        }
        NO_ROUTE
    }

    /// Writes an entry to all replaceable places of a prefix. A reader that sees the number of a next hop also sees the next hop, which the
    /// writer has stored before.
    #[allow(
        clippy::arithmetic_side_effects,
        reason = "lengths of prefixes are at most 32"
    )]
    fn fill(&self, network: u32, length: u8, may_replace: impl Fn(u32) -> bool, new: u32) {
        if length == 0 {
            self.fib
                .default
                .store(new & NEXT_HOP_MAX, Ordering::Release);
            return;
        }
        let put = |place: &AtomicU32| {
            if may_replace(place.load(Ordering::Relaxed)) {
                place.store(new, Ordering::Release);
            }
        };
        let first = (network >> GROUP_BITS) as usize;
        if u32::from(length) > FIRST_BITS {
            let start = group_index(self.fib.first_entry(network), network);
            let count = 1 << (32 - length);
            self.fib.groups.iter().skip(start).take(count).for_each(put);
            return;
        }
        let count = 1 << (FIRST_BITS - u32::from(length));
        for place in self.fib.first.iter().skip(first).take(count) {
            let there = place.load(Ordering::Relaxed);
            if there & EXTENDED == 0 {
                put(place);
            } else {
                let start = group_index(there, 0);
                self.fib.groups.iter().skip(start).take(GROUP).for_each(put);
            }
        }
    }

    /// Ensures that the /24 has a group. Returns `None` if there is no space.
    fn extend(&mut self, network: u32) -> Option<()> {
        let place = self.fib.first.get((network >> GROUP_BITS) as usize)?;
        let there = place.load(Ordering::Relaxed);
        if there & EXTENDED != 0 {
            return Some(());
        }
        let group = self.groups.take(1)?;
        let start = group_index(group, 0);
        for place in self.fib.groups.iter().skip(start).take(GROUP) {
            place.store(there, Ordering::Relaxed);
        }
        // A reader that sees the group number also sees the contents of the group.
        place.store(EXTENDED | group, Ordering::Release);
        Some(())
    }

    /// Frees the group of a /24 once all its addresses have the same entry, of a prefix of at most 24 bits.
    fn collapse(&mut self, network: u32) {
        let Some(place) = self.fib.first.get((network >> GROUP_BITS) as usize) else {
            return;
        };
        let there = place.load(Ordering::Relaxed);
        if there & EXTENDED == 0 {
            return;
        }
        let mut entries = self
            .fib
            .groups
            .iter()
            .skip(group_index(there, 0))
            .take(GROUP)
            .map(|place| place.load(Ordering::Relaxed));
        let Some(one) = entries.next() else { return };
        if u32::from(length_of(one)) <= FIRST_BITS && entries.all(|other| other == one) {
            place.store(one, Ordering::Release);
            self.groups.retire(there & !EXTENDED, 1);
        }
    }
}

/// Returns address and length of a prefix.
fn parts(prefix: Ipv4Net) -> (u32, u8) {
    let length = prefix.prefix_len();
    (Ipv4Addr::to_bits(prefix.addr()) & mask(length), length)
}

#[expect(
    clippy::arithmetic_side_effects,
    reason = "lengths of prefixes are at most 32"
)]
const fn mask(length: u8) -> u32 {
    match length {
        0 => 0,
        length => u32::MAX << (32 - length),
    }
}
