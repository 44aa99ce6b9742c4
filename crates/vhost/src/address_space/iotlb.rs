// SPDX-License-Identifier: Apache-2.0
//! The device's copy of the guest's I/O page tables (vhost-user, "IOMMU support").
//!
//! One thread writes when messages of the front end arrive; the threads of rings read without a lock. A sequence number, odd
//! during a change of the table, shows a reader whether the values that it read belong together.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// Entries of an IOTLB. If it is full, the oldest are removed.
pub const IOTLB_ENTRIES_MAX: usize = 2048;
/// Attempts to read a table that changes concurrently, before the reader reports a miss.
const LOOKS: usize = 8;

/// Accesses to a range that are permitted for the device (vhost-user, "An IOTLB message").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permission {
    /// The device may read.
    pub read: bool,
    /// The device may write.
    pub write: bool,
}

impl Permission {
    /// Returns the permission of a message's field: bit 0 for reads, bit 1 for writes.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Self {
        Self {
            read: bits & 1 != 0,
            write: bits & 2 != 0,
        }
    }

    const fn bits(self) -> u64 {
        self.read as u64 | (self.write as u64) << 1
    }
}

/// Writer's view of a range of I/O virtual addresses.
#[derive(Clone, Copy, Debug)]
struct Range {
    first: u64,
    last: u64,
    user: u64,
    permission: u64,
}

/// A word that the writer and the readers share. A trait so that a model checker can run the same protocol.
trait Word: Default {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fence(order: Ordering);
}

impl Word for AtomicU64 {
    #[inline(always)]
    fn load(&self, order: Ordering) -> u64 {
        Self::load(self, order)
    }

    #[inline(always)]
    fn store(&self, value: u64, order: Ordering) {
        Self::store(self, value, order);
    }

    #[inline(always)]
    fn fence(order: Ordering) {
        fence(order);
    }
}

/// Readers' view of a range.
#[derive(Debug, Default)]
struct Entry<W> {
    first: W,
    last: W,
    user: W,
    permission: W,
}

/// Readers' view of the ranges.
#[derive(Debug)]
struct Table<W> {
    sequence: W,
    count: W,
    /// Sorted by address; no two overlap.
    entries: Box<[Entry<W>]>,
}

/// Result of a reader's search, valid until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit {
    /// Odd for no result.
    sequence: u64,
    first: u64,
    last: u64,
    user: u64,
    permission: u64,
}

impl Hit {
    pub(crate) const NONE: Self = Self {
        sequence: 1,
        first: 1,
        last: 0,
        user: 0,
        permission: 0,
    };

    /// Returns the user address of an address of the range, and the octets from there on.
    #[inline(always)]
    pub(crate) fn translate(&self, iova: u64) -> Option<(u64, u64)> {
        if iova < self.first || iova > self.last {
            return None;
        }
        let user = self.user.wrapping_add(iova.wrapping_sub(self.first));
        let rest = self.last.saturating_sub(iova);
        Some((user, rest.saturating_add(1)))
    }

    /// Returns true if the device may make this access.
    #[inline(always)]
    pub(crate) fn allows(&self, write: bool) -> bool {
        self.permission & (if write { 2 } else { 1 }) != 0
    }
}

/// Translations of I/O virtual addresses to user addresses.
///
/// A ring's thread uses a translation until the end of its visit. The reply to an invalidation must wait for that.
#[derive(Debug)]
pub struct Iotlb {
    table: Table<AtomicU64>,
    writer: Mutex<Writer>,
}

#[derive(Debug, Default)]
struct Writer {
    /// Ranges of the readers' entries, each with the number of its update.
    ranges: Vec<(Range, u64)>,
    updates: u64,
}

impl Default for Iotlb {
    fn default() -> Self {
        Self::new()
    }
}

impl Iotlb {
    /// Returns an empty table.
    #[must_use]
    pub fn new() -> Self {
        Self {
            table: Table::new(IOTLB_ENTRIES_MAX),
            writer: Mutex::default(),
        }
    }

    /// Adds a range of `len` octets and replaces all ranges that it overlaps. Returns false, without a change, if the range
    /// is empty or overflows. User addresses are checked at each translation.
    pub fn update(&self, iova: u64, len: u64, user: u64, permission: Permission) -> bool {
        let Some(last) = last_of(iova, len) else {
            return false;
        };
        self.write(|writer| {
            writer.remove(iova, last);
            if writer.ranges.len() >= IOTLB_ENTRIES_MAX {
                writer.remove_oldest();
            }
            writer.updates = writer.updates.wrapping_add(1);
            let range = Range {
                first: iova,
                last,
                user,
                permission: permission.bits(),
            };
            let at = writer
                .ranges
                .partition_point(|(other, _)| other.first < iova);
            let number = writer.updates;
            writer.ranges.insert(at, (range, number));
        });
        true
    }

    /// Removes each entry that overlaps a range of `len` octets. Returns false if the range is empty or overflows.
    pub fn invalidate(&self, iova: u64, len: u64) -> bool {
        let Some(last) = last_of(iova, len) else {
            return false;
        };
        self.write(|writer| writer.remove(iova, last));
        true
    }

    /// Returns true if an entry permits the device to access an address.
    #[must_use]
    pub fn allows(&self, iova: u64, write: bool) -> bool {
        self.find(iova).is_some_and(|hit| hit.allows(write))
    }

    /// Removes all entries.
    pub fn clear(&self) {
        self.write(|writer| writer.ranges.clear());
    }

    /// Returns the number of entries.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns true if the table is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn write(&self, change: impl FnOnce(&mut Writer)) {
        let mut writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut writer);
        self.table
            .write(writer.ranges.iter().map(|(range, _)| range));
    }

    /// Returns true if the table has not changed since it returned this hit.
    #[inline(always)]
    pub(crate) fn is_current(&self, hit: &Hit) -> bool {
        self.table.is_current(hit)
    }

    /// Returns the entry of an address; `None` if there is none, or if the table keeps changing.
    pub(crate) fn find(&self, iova: u64) -> Option<Hit> {
        self.table.find(iova, LOOKS)
    }
}

impl<W: Word> Table<W> {
    fn new(entries: usize) -> Self {
        Self {
            sequence: W::default(),
            count: W::default(),
            entries: (0..entries).map(|_| Entry::default()).collect(),
        }
    }

    fn len(&self) -> usize {
        usize::try_from(self.count.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Replaces all ranges. One thread at a time.
    fn write<'r>(&self, ranges: impl ExactSizeIterator<Item = &'r Range>) {
        let count = ranges.len() as u64;
        let sequence = self.sequence.load(Ordering::Relaxed);
        let odd = sequence.wrapping_add(1);
        self.sequence.store(odd, Ordering::Relaxed);
        W::fence(Ordering::Release);
        for (entry, range) in self.entries.iter().zip(ranges) {
            entry.first.store(range.first, Ordering::Relaxed);
            entry.last.store(range.last, Ordering::Relaxed);
            entry.user.store(range.user, Ordering::Relaxed);
            entry.permission.store(range.permission, Ordering::Relaxed);
        }
        self.count.store(count, Ordering::Relaxed);
        self.sequence.store(odd.wrapping_add(1), Ordering::Release);
    }

    #[inline(always)]
    fn is_current(&self, hit: &Hit) -> bool {
        self.sequence.load(Ordering::Acquire) == hit.sequence
    }

    /// Returns the range of an address; `None` if there is none, or if the table changed during each of `looks` searches.
    fn find(&self, iova: u64, looks: usize) -> Option<Hit> {
        for _ in 0..looks {
            let sequence = self.sequence.load(Ordering::Acquire);
            let hit = self.search(iova, sequence);
            W::fence(Ordering::Acquire);
            if sequence.is_multiple_of(2) && self.sequence.load(Ordering::Relaxed) == sequence {
                return hit;
            }
            std::hint::spin_loop();
        }
        None
    }

    fn search(&self, iova: u64, sequence: u64) -> Option<Hit> {
        let count = self.len().min(self.entries.len());
        let entries = self.entries.get(..count)?;
        // The search has a bounded number of steps even if entries move.
        let above = entries.partition_point(|entry| entry.first.load(Ordering::Relaxed) <= iova);
        let entry = entries.get(above.checked_sub(1)?)?;
        let hit = Hit {
            sequence,
            first: entry.first.load(Ordering::Relaxed),
            last: entry.last.load(Ordering::Relaxed),
            user: entry.user.load(Ordering::Relaxed),
            permission: entry.permission.load(Ordering::Relaxed),
        };
        (hit.first <= iova && iova <= hit.last).then_some(hit)
    }
}

impl Writer {
    /// Removes each range that overlaps `first` to `last`.
    fn remove(&mut self, first: u64, last: u64) {
        self.ranges
            .retain(|(range, _)| range.last < first || range.first > last);
    }

    fn remove_oldest(&mut self) {
        let oldest = self
            .ranges
            .iter()
            .enumerate()
            .min_by_key(|(_, (_, number))| *number)
            .map(|(at, _)| at);
        if let Some(at) = oldest {
            self.ranges.remove(at);
        }
    }
}

/// Returns the last address of a range; `None` if the range is empty or overflows.
fn last_of(first: u64, len: u64) -> Option<u64> {
    first.checked_add(len.checked_sub(1)?)
}

#[cfg(test)]
#[path = "iotlb_tests.rs"]
mod tests;
