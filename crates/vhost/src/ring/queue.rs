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
/// Chains known to be available that are enough not to look for more: each look takes the driver's cache line away.
pub(crate) const ENOUGH: usize = 32;

/// Flag of our own: the chain is against the rules.
pub(crate) const FLAG_BAD: u16 = 1 << 8;
/// The flags of a descriptor that are kept.
pub(crate) const FLAGS_KEPT: u16 = FLAG_NEXT | FLAG_WRITE | FLAG_INDIRECT;

/// The first descriptor of a chain, read once.
#[derive(Clone, Copy, Debug, Default)]
pub struct Entry {
    pub(crate) address: u64,
    /// `len`, flags and identifier: one word, as in the ring.
    word: u64,
}

impl Entry {
    /// `id` is the index of the descriptor (split), or the identifier of the buffer (packed).
    #[inline(always)]
    pub(crate) fn new(address: u64, len: u32, flags: u16, id: u16) -> Self {
        let word = u64::from(len) | u64::from(flags) << 32 | u64::from(id) << 48;
        Self { address, word }
    }

    /// `word` is that of a split ring's descriptor, `id` its index.
    #[inline(always)]
    pub(crate) fn of_word(address: u64, word: u64, id: u16) -> Self {
        const KEPT: u64 = u32::MAX as u64 | (FLAGS_KEPT as u64) << 32;
        let word = word & KEPT | u64::from(id) << 48;
        Self { address, word }
    }

    /// Returns the entry with another length.
    #[inline(always)]
    pub(crate) fn with_len(self, len: u32) -> Self {
        let word = self.word & !u64::from(u32::MAX) | u64::from(len);
        Self { word, ..self }
    }

    #[inline(always)]
    pub(crate) fn len(self) -> u32 {
        self.word as u32
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> u16 {
        (self.word >> 32) as u16
    }

    #[inline(always)]
    pub(crate) fn is(self, kind: Kind) -> bool {
        self.word & kind.mask == kind.value
    }

    #[inline(always)]
    pub(crate) fn id(self) -> u16 {
        (self.word >> 48) as u16
    }
}

/// Chains that a ring handles in the short way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    mask: u64,
    value: u64,
}

impl Kind {
    /// No chain.
    pub(crate) const NONE: Self = Self { mask: 0, value: 1 };

    /// A single descriptor for this access.
    pub(crate) const fn direct(access: Access) -> Self {
        let flags = match access {
            Access::Read => 0,
            Access::Write => FLAG_WRITE,
        };
        Self {
            mask: ((FLAGS_KEPT | FLAG_BAD) as u64) << 32,
            value: (flags as u64) << 32,
        }
    }
}

/// Chains read from the ring and not used yet, in order.
#[derive(Debug)]
pub struct Window {
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

    /// Returns the place of the entry that is `ahead` behind the first.
    #[inline(always)]
    pub(crate) fn at(&self, ahead: usize) -> usize {
        self.start.wrapping_add(ahead as u32) as usize % WINDOW
    }

    /// Returns the entry that is `ahead` behind the first, whatever it is.
    #[inline(always)]
    pub(crate) fn ahead(&self, ahead: usize) -> Entry {
        self.entry(self.at(ahead))
    }

    /// Returns the place that is `ahead` behind the last.
    #[inline(always)]
    pub(crate) fn at_end(&self, ahead: usize) -> usize {
        self.end.wrapping_add(ahead as u32) as usize % WINDOW
    }

    /// Returns the entry at a place, whatever it is.
    #[inline(always)]
    pub(crate) fn entry(&self, place: usize) -> Entry {
        let entry = self.entries.get(place % WINDOW);
        entry.copied().unwrap_or_default()
    }

    /// Sets the entry at a place.
    #[inline(always)]
    pub(crate) fn set(&mut self, place: usize, entry: Entry) {
        if let Some(place) = self.entries.get_mut(place % WINDOW) {
            *place = entry;
        }
    }

    /// Returns the entry that is `ahead` behind the first.
    #[inline(always)]
    pub(crate) fn get(&self, ahead: usize) -> Option<Entry> {
        (ahead < self.len()).then(|| self.entry(self.at(ahead)))
    }

    /// Adds places that were filled. There is room for them.
    #[inline(always)]
    pub(crate) fn extend(&mut self, count: usize) {
        self.end = self.end.wrapping_add(count as u32);
    }

    /// Removes the first entries. There are so many.
    #[inline(always)]
    pub(crate) fn remove(&mut self, count: usize) {
        self.start = self.start.wrapping_add(count as u32);
    }
}

/// A ring as a sequence of chains.
pub trait Queue {
    /// Reads chains from the ring until `most` are in the window, the driver has no more, or [`ENOUGH`] were found; returns
    /// how many are in the window. Calls `prefetch` with the address of each.
    fn gather(&mut self, most: usize, prefetch: impl FnMut(u64)) -> usize;

    /// As [`Self::gather`], but only asks the processor to load what that reads. `None` if nothing is known without reading.
    fn announce(&mut self, most: usize) -> Option<usize>;

    /// Returns the window.
    fn window(&self) -> &Window;

    /// Returns the window.
    fn window_mut(&mut self) -> &mut Window;

    /// Returns the number of chains in the window.
    #[inline(always)]
    fn gathered(&self) -> usize {
        self.window().len()
    }

    /// Adds the pieces of the chain that is `ahead` behind the window's first.
    ///
    /// # Errors
    /// [`Fault`]; some pieces may have been added.
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

    /// As [`Self::complete`], for the window's first chains, of one descriptor each, in a ring without an inflight region.
    fn complete_direct(&mut self, count: usize, written: impl Fn(Entry) -> u32);

    /// Shows the driver all chains that were used.
    fn publish(&mut self);

    /// Returns true if the driver wants a notification of what was published since the last call. Waits until what was
    /// written has reached the cache: costs less some time after [`Self::publish`].
    fn wants_notification(&mut self) -> bool;

    /// Returns true if the window has each descriptor of the ring: none is used or with the driver.
    fn has_all(&self) -> bool;

    /// Returns true if chains are tracked in an inflight region.
    fn has_inflight(&self) -> bool;

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
