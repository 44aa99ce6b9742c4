// SPDX-License-Identifier: Apache-2.0
//! IPv4: DIR-24-8 (Gupta, Lin, McKeown, "Routing Lookups in Hardware at Memory Access Speeds", INFOCOM 1998), as DPDK's
//! `rte_lpm` has it, with next hops of 24 bits and a writer beside readers.
//!
//! One entry for each /24 is either the next hop of all its addresses or the number of a group of 256 entries, one for
//! each address. A look-up is one access to memory for prefixes of up to 24 bits and two for longer ones; a burst's
//! accesses overlap. The default route is held apart, so that it does not fill the table.
//!
//! Memory: 64 MiB, of which the kernel gives what is written (a VRF with few routes takes little), 1 KiB for each /24
//! that has longer prefixes, and about 20 octets a route for the writer.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use ipnet::{IpNet, Ipv4Net};
use quietwire_base::BURST_MAX;
use quietwire_memory::prefetch;

use super::{FibError, NEXT_HOP_MAX, NO_ROUTE, check};
use crate::arena::{Blocks, Epoch, zeroed};

const FIRST_BITS: u32 = 24;
const GROUP: usize = 256;
/// Set in entries of the first table that are numbers of groups.
const EXTENDED: u32 = 1 << 31;
/// Length of the prefix that an entry comes from, so that the writer knows what it may replace.
const LENGTH_SHIFT: u32 = 24;
const LENGTH_MASK: u32 = 0x3f;

const fn entry(next_hop: u32, length: u8) -> u32 {
    (length as u32) << LENGTH_SHIFT | next_hop
}

const fn length_of(entry: u32) -> u8 {
    (entry >> LENGTH_SHIFT & LENGTH_MASK) as u8
}

/// What forwarding threads look at.
#[derive(Debug)]
pub struct Ipv4Fib {
    default: AtomicU32,
    first: Box<[AtomicU32]>,
    groups: Box<[AtomicU32]>,
}

impl Ipv4Fib {
    /// Number of the next hop of one destination; [`NO_ROUTE`] without one.
    #[inline]
    #[must_use]
    pub fn look_up(&self, destination: u32) -> u32 {
        let first = self.first_entry(destination);
        self.finish(first, destination)
    }

    /// Numbers of the next hops of a burst of destinations. What is beyond [`BURST_MAX`], or has no place in
    /// `next_hops`, is not looked up.
    #[inline]
    pub fn look_up_burst(&self, destinations: &[u32], next_hops: &mut [u32]) {
        let destinations = destinations.get(..BURST_MAX).unwrap_or(destinations);
        for destination in destinations {
            if let Some(place) = self.first.get((destination >> 8) as usize) {
                prefetch(place);
            }
        }
        for (destination, found) in destinations.iter().zip(&mut *next_hops) {
            *found = self.first_entry(*destination);
            if *found & EXTENDED != 0
                && let Some(place) = self.groups.get(group_index(*found, *destination))
            {
                prefetch(place);
            }
        }
        for (destination, found) in destinations.iter().zip(next_hops) {
            *found = self.finish(*found, *destination);
        }
    }

    #[inline(always)]
    fn first_entry(&self, destination: u32) -> u32 {
        match self.first.get((destination >> 8) as usize) {
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
                Some(place) => place.load(Ordering::Relaxed),
                None => NO_ROUTE,
            }
        };
        match entry & NEXT_HOP_MAX {
            NO_ROUTE => self.default.load(Ordering::Relaxed),
            next_hop => next_hop,
        }
    }
}

#[inline(always)]
const fn group_index(entry: u32, destination: u32) -> usize {
    ((entry & !EXTENDED) as usize) << 8 | (destination & 0xff) as usize
}

/// The writer's end of a table.
#[derive(Debug)]
pub struct Ipv4Routes {
    fib: Arc<Ipv4Fib>,
    /// Next hops by prefix, for each length.
    prefixes: [HashMap<u32, u32>; 33],
    groups: Blocks,
}

impl Ipv4Routes {
    /// An empty table with room for longer prefixes than /24 in so many different /24.
    ///
    /// # Errors
    /// [`FibError::Memory`].
    pub fn new(groups_max: u32) -> Result<Self, FibError> {
        let groups_max = groups_max.min(1 << FIRST_BITS);
        let fib = Ipv4Fib {
            default: AtomicU32::new(NO_ROUTE),
            first: zeroed(1 << FIRST_BITS)?,
            groups: zeroed(groups_max as usize * GROUP)?,
        };
        Ok(Self {
            fib: Arc::new(fib),
            prefixes: std::array::from_fn(|_| HashMap::new()),
            groups: Blocks::new(groups_max),
        })
    }

    /// What forwarding threads look at.
    #[must_use]
    pub fn fib(&self) -> Arc<Ipv4Fib> {
        Arc::clone(&self.fib)
    }

    /// Number of routes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.prefixes.iter().map(HashMap::len).sum()
    }

    /// True without routes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.prefixes.iter().all(HashMap::is_empty)
    }

    /// Groups of addresses with prefixes longer than /24.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.used()
    }

    /// The next hop of exactly this prefix.
    #[must_use]
    pub fn get(&self, prefix: Ipv4Net) -> Option<u32> {
        let (network, length) = parts(prefix);
        self.prefixes
            .get(usize::from(length))?
            .get(&network)
            .copied()
    }

    /// Sets the next hop of a prefix; returns the former one. Bits of the address behind the prefix do not count.
    ///
    /// # Errors
    /// [`FibError`]; nothing has changed then.
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

    /// Removes a prefix; returns its next hop.
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

    /// Notes the epoch in which memory is taken out from now on.
    pub fn set_epoch(&mut self, epoch: Epoch) {
        self.groups.set_epoch(epoch);
    }

    /// Puts to use again what was taken out before this epoch: every forwarding thread has ended what it was at then.
    pub fn reclaim(&mut self, epoch: Epoch) {
        self.groups.reclaim(epoch);
    }

    /// The entry of the longest prefix that is shorter; that of no route when it is the default one or none.
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

    /// Puts an entry in all places of a prefix that may be replaced.
    fn fill(&self, network: u32, length: u8, may_replace: impl Fn(u32) -> bool, new: u32) {
        if length == 0 {
            self.fib
                .default
                .store(new & NEXT_HOP_MAX, Ordering::Relaxed);
            return;
        }
        let put = |place: &AtomicU32| {
            if may_replace(place.load(Ordering::Relaxed)) {
                place.store(new, Ordering::Relaxed);
            }
        };
        let first = (network >> 8) as usize;
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

    /// Sees to it that the /24 has a group. `None` without room.
    fn extend(&mut self, network: u32) -> Option<()> {
        let place = self.fib.first.get((network >> 8) as usize)?;
        let there = place.load(Ordering::Relaxed);
        if there & EXTENDED != 0 {
            return Some(());
        }
        let group = self.groups.take(1)?;
        let start = group_index(group, 0);
        for place in self.fib.groups.iter().skip(start).take(GROUP) {
            place.store(there, Ordering::Relaxed);
        }
        // Whoever sees the number of the group sees what is in it.
        place.store(EXTENDED | group, Ordering::Release);
        Some(())
    }

    /// Gives the group of a /24 back once all its addresses have the same entry, of a prefix that is not longer than that.
    fn collapse(&mut self, network: u32) {
        let Some(place) = self.fib.first.get((network >> 8) as usize) else {
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

/// The address and the length of a prefix.
fn parts(prefix: Ipv4Net) -> (u32, u8) {
    let length = prefix.prefix_len();
    (Ipv4Addr::to_bits(prefix.addr()) & mask(length), length)
}

const fn mask(length: u8) -> u32 {
    match length {
        0 => 0,
        length => u32::MAX << (32 - length),
    }
}
