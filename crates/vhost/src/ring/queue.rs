// SPDX-License-Identifier: Apache-2.0
//! Common part of split and packed queues.

use crate::address_space::{Access, Translator};

use super::chain::{Chain, Fault};
use super::dirty_log::RingLog;
use super::layout::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};
use super::virtqueue::Counters;

/// Maximum number of chains read from the ring and not used yet.
pub(crate) const WINDOW: usize = 256;
/// Maximum number of chains read from the ring at once.
pub(crate) const GATHER_MAX: usize = 64;
/// Number of known available chains from which on the device does not read the index again: each read takes the driver's
/// cache line away.
pub(crate) const ENOUGH: usize = 32;

/// Private flag: the chain violates the rules.
pub(crate) const FLAG_BAD: u16 = 1 << 8;
/// The flags of a descriptor that are kept.
pub(crate) const FLAGS_KEPT: u16 = FLAG_NEXT | FLAG_WRITE | FLAG_INDIRECT;

/// The first descriptor of a chain, read once. Each field has the width at which it is used: one load of several fields that
/// were stored separately would wait for all of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    pub(crate) address: u64,
    len: u32,
    flags: u16,
    id: u16,
}

impl Entry {
    /// Returns an entry. `id` is the index of the descriptor (split), or the identifier of the buffer (packed).
    #[inline(always)]
    pub(crate) fn new(address: u64, len: u32, flags: u16, id: u16) -> Self {
        Self {
            address,
            len,
            flags,
            id,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    pub(crate) fn flags(&self) -> u16 {
        self.flags
    }

    #[inline(always)]
    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    /// Returns true for a chain of a single descriptor, for this access.
    #[inline(always)]
    pub(crate) fn is_direct(&self, access: Access) -> bool {
        let flags = match access {
            Access::Read => 0,
            Access::Write => FLAG_WRITE,
        };
        self.flags & (FLAGS_KEPT | FLAG_BAD) == flags
    }
}

/// Chains read from the ring and not used yet, in order. They are contiguous, so that a loop over them has no other limit
/// than their number.
#[derive(Debug)]
pub(crate) struct Window {
    entries: [Entry; WINDOW],
    start: usize,
    end: usize,
}

impl Window {
    pub(crate) fn new() -> Self {
        Self {
            entries: [Entry::default(); WINDOW],
            start: 0,
            end: 0,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Returns the index of the entry that is `ahead` of the first.
    #[inline(always)]
    pub(crate) fn place(&self, ahead: usize) -> usize {
        self.start.saturating_add(ahead)
    }

    /// Returns the entries.
    #[inline(always)]
    pub(crate) fn entries(&self) -> &[Entry] {
        self.entries.get(self.start..self.end).unwrap_or_default()
    }

    /// Returns the entry that is `ahead` of the first.
    #[inline(always)]
    pub(crate) fn get(&self, ahead: usize) -> Option<Entry> {
        self.entries().get(ahead).copied()
    }

    /// Makes space for `count` entries, up to the capacity of the window; returns by how many places the others moved.
    #[inline(always)]
    pub(crate) fn make_space(&mut self, count: usize) -> usize {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        } else if self.end.saturating_add(count) > WINDOW {
            return self.move_to_start();
        }
        0
    }

    #[cold]
    fn move_to_start(&mut self) -> usize {
        let moved = self.start;
        self.entries.copy_within(moved..self.end, 0);
        (self.start, self.end) = (0, self.end.saturating_sub(moved));
        moved
    }

    /// Returns the places after the last entry, to be filled before [`Self::extend`].
    #[inline(always)]
    pub(crate) fn free(&mut self) -> &mut [Entry] {
        self.entries.get_mut(self.end..).unwrap_or_default()
    }

    /// Adds filled places. The caller has made space for them.
    #[inline(always)]
    pub(crate) fn extend(&mut self, count: usize) {
        self.end = self.end.saturating_add(count).min(WINDOW);
    }

    /// Adds an entry. The caller has made space for it.
    pub(crate) fn push(&mut self, entry: Entry) {
        if let Some(place) = self.free().first_mut() {
            *place = entry;
            self.extend(1);
        }
    }

    /// Removes the first entries.
    #[inline(always)]
    pub(crate) fn remove(&mut self, count: usize) {
        self.start = self.start.saturating_add(count).min(self.end);
    }
}

/// Returns `count` slots of a ring from one on: up to its end, and those that follow at its start.
#[inline(always)]
pub(crate) fn parts<T>(ring: &[T], first: u16, count: usize) -> [&[T]; 2] {
    let first = usize::from(first);
    let (start, end) = ring.split_at_checked(first).unwrap_or_default();
    match end.get(..count) {
        Some(all) => [all, &[]],
        None => {
            let left = count.saturating_sub(end.len());
            [end, start.get(..left).unwrap_or_default()]
        }
    }
}

/// A ring as a sequence of chains.
pub trait Queue {
    /// Reads chains from the ring until `most` are in the window, the driver has no more, or [`ENOUGH`] were found; returns
    /// the number in the window. Calls `prefetch` with the address of each.
    fn gather(&mut self, most: usize, prefetch: impl FnMut(u64)) -> usize;

    /// As [`Self::gather`], but only prefetches what that reads. `None` if nothing is known without reading.
    fn announce(&mut self, most: usize) -> Option<usize>;

    /// Returns the chains in the window.
    fn entries(&self) -> &[Entry];

    /// Returns the number of chains in the window.
    #[inline(always)]
    fn gathered(&self) -> usize {
        self.entries().len()
    }

    /// Adds the pieces of the chain that is `ahead` of the window's first.
    ///
    /// # Errors
    /// [`Fault`]; some pieces may already have been added.
    fn walk(
        &self,
        ahead: usize,
        memory: &mut Translator,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault>;

    /// Uses the window's first chain, into which the device wrote `written` octets. The driver sees it when
    /// [`Self::publish`] is called.
    fn complete(&mut self, written: u32);

    /// As [`Self::complete`] with 0 octets, for the window's first `count` chains, of one descriptor each, in a ring without an
    /// inflight region.
    fn complete_read(&mut self, count: usize);

    /// As [`Self::complete`], for the window's first chains, of one descriptor each, in a ring without an inflight region, as
    /// long as `write` returns the octets written into a chain; returns the number of chains. Stops at the end of the ring: a
    /// further call continues at its start.
    fn complete_written(&mut self, write: impl FnMut(&Entry) -> Option<u32>) -> usize;

    /// Makes all used chains visible to the driver.
    fn publish(&mut self);

    /// Prefetches as many further descriptors as were last read: they arrive while other rings are processed. For rings
    /// whose driver made them available long before, and does not write there now.
    fn prefetch_waiting(&self) {}

    /// Returns true if the driver wants a notification of what was published since the last call. Waits until all writes
    /// have reached the cache: costs less some time after [`Self::publish`].
    fn wants_notification(&mut self) -> bool;

    /// Returns true if the window contains every descriptor of the ring: none is used or with the driver.
    fn has_all(&self) -> bool;

    /// Returns true if chains are tracked in an inflight region.
    fn has_inflight(&self) -> bool;

    /// Requests notifications from the driver, or suppresses them.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the position at which another device continues.
    fn base(&self) -> u32;

    /// Returns the log.
    fn log(&self) -> &RingLog;

    /// Returns the log.
    fn log_mut(&mut self) -> &mut RingLog;

    /// Returns the counters.
    fn counters(&self) -> &Counters;

    /// Returns the counters.
    fn counters_mut(&mut self) -> &mut Counters;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_the_slots_from_each_one_on() {
        for size in 0..=9_u16 {
            let ring: Vec<u16> = (0..size).collect();
            for first in 0..size {
                for count in 0..=size {
                    let slots: Vec<u16> = parts(&ring, first, count.into()).concat();
                    let expected = (0..count).map(|ahead| (first + ahead) % size);
                    assert_eq!(slots, expected.collect::<Vec<_>>());
                }
            }
        }
        // Never more than there are, whatever the arguments.
        let ring = [0, 1, 2, 3];
        for (first, count) in (0..=u16::MAX).flat_map(|first| [0, 4, 9].map(|count| (first, count)))
        {
            assert!(parts(&ring, first, count).concat().len() <= 4);
        }
    }
}
