// SPDX-License-Identifier: Apache-2.0
//! What split and packed queues have in common for frames.

use crate::address_space::{Access, Translator};

use super::Counters;
use super::chain::{Chain, Fault};
use super::dirty_log::RingLog;
use super::layout::{FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE};

/// Chains read from the ring and not used yet, at most.
pub(crate) const WINDOW: usize = 256;
/// Chains read from the ring at once.
pub(crate) const GATHER_MAX: usize = 64;

/// Flag of our own: the chain is against the rules.
pub(crate) const FLAG_BAD: u16 = 1 << 8;
/// The flags of a descriptor that are kept.
pub(crate) const FLAGS_KEPT: u16 = FLAG_NEXT | FLAG_WRITE | FLAG_INDIRECT;

/// The first descriptor of a chain, read once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    pub(crate) address: u64,
    pub(crate) len: u32,
    pub(crate) flags: u16,
    /// Index of the descriptor (split), or identifier of the buffer (packed).
    pub(crate) id: u16,
    /// Index of the next descriptor (split), or of the chain's others in the queue's private copy (packed).
    pub(crate) next: u16,
    /// Descriptors of the ring (packed).
    pub(crate) slots: u16,
}

/// Chains read from the ring and not used yet, in order.
#[derive(Debug)]
pub(crate) struct Window {
    entries: [Entry; WINDOW],
    start: u32,
    end: u32,
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
        self.end.wrapping_sub(self.start) as usize
    }

    /// Returns the entry that is `ahead` behind the first.
    #[inline(always)]
    pub(crate) fn get(&self, ahead: usize) -> Option<Entry> {
        if ahead >= self.len() {
            return None;
        }
        self.entries
            .get(self.start.wrapping_add(ahead as u32) as usize % WINDOW)
            .copied()
    }

    /// Returns the place that is `ahead` behind the last.
    #[inline(always)]
    pub(crate) fn place(&mut self, ahead: usize) -> Option<&mut Entry> {
        self.entries
            .get_mut(self.end.wrapping_add(ahead as u32) as usize % WINDOW)
    }

    /// Adds places that were filled. There is room for them.
    #[inline(always)]
    pub(crate) fn extend(&mut self, count: usize) {
        self.end = self.end.wrapping_add(count as u32);
    }

    /// Removes the first entry.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let entry = self.get(0)?;
        self.start = self.start.wrapping_add(1);
        Some(entry)
    }
}

/// A ring as a sequence of chains.
pub trait Queue {
    /// Reads chains from the ring until `most` are in the window, or the driver has no more; returns how many are.
    fn gather(&mut self, most: usize) -> usize;

    /// Returns the number of chains in the window.
    fn gathered(&self) -> usize;

    /// Returns the chain that is `ahead` behind the window's first.
    fn entry(&self, ahead: usize) -> Option<Entry>;

    /// Adds the pieces of a chain.
    ///
    /// # Errors
    /// [`Fault`]; some pieces may have been added.
    fn walk(
        &self,
        entry: Entry,
        memory: &mut Translator,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault>;

    /// Uses the window's first chain, into which the device wrote `written` octets. The driver sees it when
    /// [`Self::publish`] is called.
    fn complete(&mut self, written: u32);

    /// Shows the driver all chains that were used; returns true if it wants a notification.
    fn publish(&mut self) -> bool;

    /// Returns true if the device has each descriptor of the ring.
    fn has_all(&self) -> bool;

    /// Asks the driver for notifications, or for none.
    fn request_notifications(&mut self, wanted: bool);

    /// Returns the position at which another device goes on.
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
