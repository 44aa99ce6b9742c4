// SPDX-License-Identifier: Apache-2.0
//! Driver side of split rings (virtio 1.2, section 2.7).

use std::sync::Arc;

use quietwire_memory::atomic::{AtomicU16, AtomicU64, Ordering};
use quietwire_memory::{Mapping, SharedSlice};

use super::layout::QueueLayout;
use super::queue::{Fault, Queue, Used, address_at, sealed, second_word_at};
use crate::narrow::low_u32;
use crate::ring::layout::{DESCRIPTOR_WORDS, SplitWord, split};

/// Used entries of a cache line.
const LINE: u16 = 8;
/// Index of `avail_event` in the slice that has nothing else.
const EVENT: usize = 0;

/// Split ring.
///
/// Descriptor `n` always points at buffer `n`. A private copy of the ring's contents allows writing only words that change:
/// if a device uses buffers in order and frames have one length, the descriptors and the entries of the available ring do
/// not change, and the processors keep sharing their cache lines.
#[derive(Debug)]
pub struct Split {
    descriptors: SharedSlice<AtomicU64>,
    avail: SharedSlice<AtomicU16>,
    /// `flags` and `idx` of the used ring.
    used_head: SharedSlice<AtomicU16>,
    used: SharedSlice<AtomicU64>,
    avail_event: SharedSlice<AtomicU16>,
    /// The second word of each descriptor.
    words: Box<[u64]>,
    /// The entries of the available ring.
    heads: Box<[u16]>,
    mask: u16,
    event_index: bool,
    /// Number of entries offered, and number made visible, since the start.
    offered: u16,
    published: u16,
    /// Number of entries up to which the device's request for notifications is known.
    checked: u16,
    /// Number of used entries read, and number known to exist, since the start.
    read: u16,
    known: u16,
}

impl sealed::Sealed for Split {}

impl Queue for Split {
    const PACKED: bool = false;

    fn new(
        mapping: &Arc<Mapping>,
        queue: &QueueLayout,
        event_index: bool,
        address: impl Fn(u16) -> u64,
    ) -> Option<Self> {
        let size = usize::from(queue.size);
        let entries = queue.device_area.checked_add(split::USED_RING_OFFSET)?;
        let entries_len = split::USED_ENTRY_LEN.checked_mul(size as u64)?;
        let event = entries.checked_add(entries_len)?;
        let words = DESCRIPTOR_WORDS.saturating_mul(size);
        let descriptors = SharedSlice::new(mapping, queue.descriptors, words)?;
        let avail = SharedSlice::<AtomicU16>::new(
            mapping,
            queue.driver_area,
            split::avail_words(queue.size),
        )?;
        for slot in 0..queue.size {
            let word: &AtomicU64 = descriptors.get(address_at(usize::from(slot)))?;
            word.store(address(slot), Ordering::Relaxed);
        }
        // This side polls. Without the event index, a flag states this (section 2.7.6). With the event index the flag must
        // be 0, and the device signals when it passes `used_event`: with this value once in 65,536 entries.
        if event_index {
            let used_event = avail.get(split::used_event(queue.size))?;
            used_event.store(u16::MAX, Ordering::Relaxed);
        } else {
            let flags = avail.get(split::FLAGS)?;
            flags.store(split::AVAIL_NO_INTERRUPT, Ordering::Relaxed);
        }
        Some(Self {
            descriptors,
            avail,
            used_head: SharedSlice::new(mapping, queue.device_area, 2)?,
            used: SharedSlice::new(mapping, entries, size)?,
            avail_event: SharedSlice::new(mapping, event, 1)?,
            words: vec![0; size].into(),
            heads: vec![0; size].into(),
            mask: queue.size.wrapping_sub(1),
            event_index,
            offered: 0,
            published: 0,
            checked: 0,
            read: 0,
            known: 0,
        })
    }

    #[inline(always)]
    fn poll(&mut self, enough: u16) -> Result<u16, Fault> {
        let known = self.known.wrapping_sub(self.read);
        if known >= enough {
            return Ok(known);
        }
        let Some(index) = self.used_head.get(split::INDEX) else {
            return Ok(known);
        };
        // Acquire: the entries and buffers that the device wrote before are read afterwards.
        let index = index.load(Ordering::Acquire);
        let outstanding = self.published.wrapping_sub(self.read);
        // An index that moved back is far ahead, or leaves fewer entries than were known, of which none was read yet.
        let Some(ahead) = split::entries_up_to(index, self.read, outstanding) else {
            let ahead = index.wrapping_sub(self.read);
            return Err(Fault::Index { ahead, outstanding });
        };
        self.known = index;
        Ok(ahead)
    }

    #[inline(always)]
    fn next_used(&self) -> Option<Used> {
        let entry = self.used.get(usize::from(self.read & self.mask))?;
        let entry = entry.load(Ordering::Relaxed);
        Some(Used {
            id: low_u32(entry),
            len: low_u32(entry >> 32),
        })
    }

    #[inline(always)]
    fn advance(&mut self, _slots: u16) {
        self.read = self.read.wrapping_add(1);
    }

    #[inline(always)]
    fn prefetch_used(&self, skip: u16) {
        let at = self.read.wrapping_add(skip) & self.mask;
        if at.is_multiple_of(LINE) {
            self.used.prefetch(usize::from(at));
        }
    }

    #[inline(always)]
    fn prefetch_row(&self, count: u16) {
        // The processor loads as many lines at the same time as it can. Entry by entry, it would wait for each.
        for skip in (0..count).step_by(usize::from(LINE)) {
            let at = self.read.wrapping_add(skip) & self.mask;
            self.used.prefetch(usize::from(at));
        }
    }

    #[inline(always)]
    fn describe(&mut self, _head: u16, slot: u16, len: u32, flags: u16, next: u16) {
        let word = SplitWord::new(len, flags, next).0;
        let at = usize::from(slot);
        let shared = self.descriptors.get(second_word_at(at));
        if let (Some(former), Some(shared)) = (self.words.get_mut(at), shared)
            && *former != word
        {
            *former = word;
            shared.store(word, Ordering::Relaxed);
        }
    }

    #[inline(always)]
    fn offer(&mut self, head: u16) {
        let at = usize::from(self.offered & self.mask);
        let shared = self.avail.get(split::AVAIL_RING.wrapping_add(at));
        if let (Some(former), Some(shared)) = (self.heads.get_mut(at), shared)
            && *former != head
        {
            *former = head;
            shared.store(head, Ordering::Relaxed);
        }
        self.offered = self.offered.wrapping_add(1);
    }

    #[inline(always)]
    fn offer_again(&mut self, slot: u16, _len: u32, _flags: u16) {
        self.offer(slot);
    }

    #[inline(always)]
    fn unpublished(&self) -> u16 {
        self.offered.wrapping_sub(self.published)
    }

    #[inline(always)]
    fn offered(&self, at: u16) -> u16 {
        let at = self.published.wrapping_add(at) & self.mask;
        self.heads.get(usize::from(at)).copied().unwrap_or(0)
    }

    #[inline(always)]
    fn make_visible(&mut self) -> bool {
        let new = self.offered;
        let Some(index) = self.avail.get(split::INDEX) else {
            return false;
        };
        if self.published == new {
            return false;
        }
        self.published = new;
        // Release: descriptors and entries are visible before the index.
        index.store(new, Ordering::Release);
        true
    }

    #[inline(always)]
    fn unchecked(&self) -> (u16, u16) {
        let unchecked = self.published.wrapping_sub(self.checked);
        (unchecked, self.mask.wrapping_add(1))
    }

    #[inline(always)]
    fn wants_notification(&self) -> bool {
        if self.event_index {
            let event = self.avail_event.get(EVENT);
            event.is_some_and(|event| {
                let event = event.load(Ordering::Relaxed);
                split::needs_event(event, self.published, self.checked)
            })
        } else {
            let flags = self.used_head.get(split::FLAGS);
            flags.is_some_and(|flags| flags.load(Ordering::Relaxed) & split::USED_NO_NOTIFY == 0)
        }
    }

    #[inline(always)]
    fn note_checked(&mut self) {
        self.checked = self.published;
    }
}
