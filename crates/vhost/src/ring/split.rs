// SPDX-License-Identifier: Apache-2.0
//! Device side of split virtqueues (virtio 1.2, section 2.7).

use quietwire_memory::SharedSlice;
use quietwire_memory::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

use crate::address_space::{Access, Translator};
use crate::narrow;

use super::chain::{CHAIN_MAX, Chain, Fault, read_descriptor, table_entries};
use super::config::{Features, RingConfig, RingError};
use super::dirty_log::RingLog;
use super::inflight::SplitInflight;
use super::layout::{
    DESCRIPTOR_WORDS, FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, RING_SIZE_MAX, SplitWord, split,
};
use super::queue::{ENOUGH, Entry, FLAG_BAD, FLAGS_KEPT, GATHER_MAX, Queue, WINDOW, Window, parts};
use super::virtqueue::Counters;

/// A split virtqueue.
#[derive(Debug)]
pub struct SplitQueue {
    size: u16,
    mask: u16,
    has_event_index: bool,
    has_indirect: bool,
    /// The driver's index, as last read.
    observed: u16,
    /// The next entry of the available ring to read.
    next: u16,
    /// Number of entries from `next` on whose descriptors were prefetched.
    ahead: u16,
    /// The next entry of the used ring to write.
    used_next: u16,
    /// The device's index, as the driver sees it.
    used_published: u16,
    /// The index up to which the driver's request for notifications was checked.
    used_checked: u16,
    /// Chains read and not published.
    held: u16,
    descriptors: SharedSlice<[AtomicU64; DESCRIPTOR_WORDS]>,
    /// `flags`, `idx`, `ring` and `used_event`.
    avail: SharedSlice<AtomicU16>,
    /// `ring`.
    avail_ring: SharedSlice<AtomicU16>,
    /// `flags`, `idx`, `ring` and `avail_event`.
    used: SharedSlice<AtomicU16>,
    /// `ring`: `id` and `len` of each entry.
    used_ring: SharedSlice<[AtomicU32; 2]>,
    counters: Counters,
    log: RingLog,
    inflight: Option<SplitInflight>,
    window: Window,
}

impl SplitQueue {
    /// Takes over a queue.
    ///
    /// The device continues at the index of the used ring: a chain that a previous device took and did not return is taken
    /// again, whatever base the front end sets.
    ///
    /// # Errors
    /// [`RingError`].
    pub(crate) fn new(config: RingConfig<'_>, features: Features) -> Result<Self, RingError> {
        let size = config.size;
        if !size.is_power_of_two() || size > RING_SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let entries = usize::from(size);
        let descriptors = config
            .part(
                "descriptor table",
                config.descriptors,
                split::descriptors_len(size),
                Access::Read,
            )?
            .words(0, entries)
            .ok_or(RingError::Misaligned("descriptor table"))?;
        let part = config.part(
            "available ring",
            config.driver,
            split::avail_len(size),
            Access::Read,
        )?;
        let misaligned = || RingError::Misaligned("available ring");
        let avail = part
            .words(0, split::avail_words(size))
            .ok_or_else(misaligned)?;
        let avail_ring = part
            .words(split::AVAIL_RING_OFFSET, entries)
            .ok_or_else(misaligned)?;
        let part = config.part(
            "used ring",
            config.device,
            split::used_len(size),
            Access::Write,
        )?;
        let misaligned = || RingError::Misaligned("used ring");
        let used: SharedSlice<AtomicU16> = part
            .words(0, split::used_words(size))
            .ok_or_else(misaligned)?;
        let used_ring = part
            .words(split::USED_RING_OFFSET, entries)
            .ok_or_else(misaligned)?;
        let log_address = config.ring_log_address.unwrap_or(part.guest_address());
        let log = RingLog::new(
            config.log.clone(),
            features.has_log,
            log_address,
            log_address,
        );
        let start = load(&used, split::INDEX, Ordering::Acquire);
        let inflight = config
            .inflight
            .as_ref()
            .map(|region| SplitInflight::new(region, size, start).ok_or(RingError::Inflight))
            .transpose()?;
        let pending = inflight.as_ref().map_or(0, SplitInflight::pending);
        let next = start.wrapping_add(pending);
        Ok(Self {
            size,
            mask: size.wrapping_sub(1),
            has_event_index: features.has_event_index,
            has_indirect: features.has_indirect,
            observed: next,
            next,
            ahead: 0,
            used_next: start,
            used_published: start,
            used_checked: start,
            held: 0,
            descriptors,
            avail,
            avail_ring,
            used,
            used_ring,
            counters: Counters::default(),
            log,
            inflight,
            window: Window::new(),
        })
    }

    /// Reads the driver's index; returns the number of entries that it has made available and that were not read.
    #[inline]
    fn read_avail_index(&mut self) -> u16 {
        // Loaded at the same time as the index.
        self.avail_ring.prefetch(usize::from(self.next & self.mask));
        let index = load(&self.avail, split::INDEX, Ordering::Acquire);
        let pending = self.inflight.as_ref().map_or(0, SplitInflight::pending);
        let space = self.size.saturating_sub(self.held).saturating_sub(pending);
        let Some(available) = split::entries_up_to(index, self.next, space) else {
            self.resynchronise(index);
            return 0;
        };
        self.observed = index;
        available
    }

    /// Continues at an invalid index of the driver, and skips all entries before it.
    #[cold]
    fn resynchronise(&mut self, index: u16) {
        self.counters.resyncs = self.counters.resyncs.wrapping_add(1);
        self.observed = index;
        self.next = index;
        self.ahead = 0;
    }

    /// Returns the number of entries that can be read, at most `wanted`. See [`ENOUGH`].
    #[inline(always)]
    fn available(&mut self, wanted: usize) -> usize {
        let mut available = self.observed.wrapping_sub(self.next);
        if usize::from(available) < wanted.min(ENOUGH) {
            available = self.read_avail_index();
        }
        usize::from(available).min(wanted)
    }

    /// Prefetches the descriptors that the `count` entries from `next` on refer to.
    #[inline(always)]
    fn prefetch_descriptors(&mut self, count: usize) {
        let Some(more) = count.checked_sub(usize::from(self.ahead)) else {
            return;
        };
        let slot = self.next.wrapping_add(self.ahead) & self.mask;
        for heads in parts(&self.avail_ring, slot, more) {
            for head in heads {
                self.descriptors.prefetch(index_of(head).into());
            }
        }
        self.ahead = narrow::slots(count);
    }

    /// Prefetches the memory that [`Queue::publish`] and [`Queue::complete`] write to for `count` chains, once those of the
    /// window have been used.
    #[inline(always)]
    fn prefetch_used(&self, have: usize, count: usize) {
        self.used.prefetch_write(split::INDEX);
        // Eight entries share a cache line.
        for ahead in (0..count).step_by(8) {
            let ahead = narrow::slots(have.saturating_add(ahead));
            let slot = self.used_next.wrapping_add(ahead) & self.mask;
            self.used_ring.prefetch_write(slot.into());
        }
    }

    /// Prefetches the descriptors of the next burst, as far as the driver's index is known: they arrive while this burst is
    /// processed.
    #[inline(always)]
    fn prefetch_next(&mut self, wanted: u16) {
        let known = self.observed.wrapping_sub(self.next);
        if known == 0 {
            // The driver writes there.
            return;
        }
        let wanted = known.min(wanted).min(narrow::slots(GATHER_MAX));
        self.prefetch_descriptors(usize::from(wanted));
        let slot = self.next.wrapping_add(wanted) & self.mask;
        self.avail_ring.prefetch(usize::from(slot));
    }

    /// Advances past the window's first `count` chains, which were used.
    #[inline(always)]
    fn pass(&mut self, count: usize) {
        self.window.remove(count);
        self.used_next = self.used_next.wrapping_add(narrow::slots(count));
    }

    #[inline(always)]
    fn descriptor(&self, index: u16) -> Option<(u64, SplitWord)> {
        descriptor(&self.descriptors, index)
    }

    /// Adds chains that a previous device took and did not return.
    #[cold]
    fn resubmit(&mut self, wanted: usize) -> usize {
        let mut count = 0usize;
        while count < wanted {
            let Some(head) = self.inflight.as_mut().and_then(SplitInflight::resubmit) else {
                break;
            };
            self.window.push(read(&self.descriptors, head));
            count = count.wrapping_add(1);
        }
        self.held = self.held.saturating_add(narrow::slots(count));
        count
    }

    fn walk_table(
        &self,
        table: u64,
        len: u32,
        memory: &mut Translator,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault> {
        let count = table_entries(len).ok_or(Fault::Bad)?;
        let mut index = 0;
        for _ in 0..count {
            let (address, word) = read_descriptor(memory, table, index)?;
            let word = SplitWord(word);
            if word.flags() & FLAG_INDIRECT != 0 || !is_for(word.flags(), access) {
                return Err(Fault::Bad);
            }
            chain.push(memory, address, word.len(), access)?;
            if word.flags() & FLAG_NEXT == 0 {
                return Ok(());
            }
            index = usize::from(word.next());
            if index >= count {
                return Err(Fault::Bad);
            }
        }
        Err(Fault::Bad)
    }

    /// Marks what [`Queue::publish`] wrote to the used ring.
    #[cold]
    fn log_used(&self, from: u16, count: u16) {
        self.log.mark_ring(0, split::USED_RING_OFFSET);
        let first = u64::from(from & self.mask);
        let count = u64::from(count);
        let to_end = u64::from(self.size).saturating_sub(first).min(count);
        let octets = |entries: u64| split::USED_ENTRY_LEN.saturating_mul(entries);
        let mark = |first: u64, count: u64| {
            let offset = octets(first).saturating_add(split::USED_RING_OFFSET);
            self.log.mark_ring(offset, octets(count));
        };
        mark(first, to_end);
        mark(0, count.saturating_sub(to_end));
    }
}

impl Queue for SplitQueue {
    #[inline(always)]
    fn gather(&mut self, most: usize, mut prefetch: impl FnMut(u64)) -> usize {
        let have = self.window.len();
        let mut wanted = most.min(WINDOW).saturating_sub(have).min(GATHER_MAX);
        if wanted == 0 {
            return have;
        }
        self.window.make_space(wanted);
        if self.inflight.is_some() {
            wanted = wanted.saturating_sub(self.resubmit(wanted));
        }
        let count = self.available(wanted);
        self.prefetch_descriptors(count);
        let Self {
            avail_ring,
            descriptors,
            window,
            ..
        } = self;
        let descriptors = &**descriptors;
        let mut places = window.free().iter_mut();
        for heads in parts(avail_ring, self.next & self.mask, count) {
            for (head, place) in heads.iter().zip(places.by_ref()) {
                *place = read(descriptors, index_of(head));
                prefetch(place.address);
            }
        }
        let slots = narrow::slots(count);
        self.next = self.next.wrapping_add(slots);
        self.ahead = self.ahead.saturating_sub(slots);
        self.held = self.held.saturating_add(slots);
        self.window.extend(count);
        self.window.len()
    }

    #[inline]
    fn announce(&mut self, most: usize) -> Option<usize> {
        if self.inflight.is_some() {
            return None;
        }
        let have = self.window.len();
        let wanted = most.min(WINDOW).saturating_sub(have).min(GATHER_MAX);
        let count = self.available(wanted);
        self.prefetch_descriptors(count);
        self.prefetch_used(have, count);
        Some(have.saturating_add(count))
    }

    #[inline(always)]
    fn entries(&self) -> &[Entry] {
        self.window.entries()
    }

    #[inline]
    fn walk(
        &self,
        ahead: usize,
        memory: &mut Translator,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault> {
        let entry = self.window.get(ahead).ok_or(Fault::Bad)?;
        if entry.flags() & FLAG_BAD != 0 {
            return Err(Fault::Bad);
        }
        let (mut address, mut len, mut flags) = (entry.address, entry.len(), entry.flags());
        let mut next = None;
        for _ in 0..CHAIN_MAX {
            if flags & FLAG_INDIRECT != 0 {
                if flags & FLAG_NEXT != 0 || !self.has_indirect {
                    return Err(Fault::Bad);
                }
                return self.walk_table(address, len, memory, chain, access);
            }
            if !is_for(flags, access) {
                return Err(Fault::Bad);
            }
            chain.push(memory, address, len, access)?;
            if flags & FLAG_NEXT == 0 {
                return Ok(());
            }
            // All fields of the first descriptor but this one were read before.
            let index = match next {
                Some(index) => index,
                None => self.descriptor(entry.id()).ok_or(Fault::Bad)?.1.next(),
            };
            let (following, word) = self.descriptor(index).ok_or(Fault::Bad)?;
            (address, len, flags) = (following, word.len(), word.flags());
            next = Some(word.next());
        }
        Err(Fault::Bad)
    }

    fn complete(&mut self, written: u32) {
        let Some(entry) = self.window.get(0) else {
            return;
        };
        if let Some(inflight) = &mut self.inflight {
            inflight.take(entry.id());
        }
        let slot = usize::from(self.used_next & self.mask);
        if let Some(place) = self.used_ring.get(slot) {
            write_used(place, entry.id(), written);
        }
        self.pass(1);
    }

    #[inline(always)]
    fn complete_read(&mut self, count: usize) {
        let mut entries = self.window.entries().iter();
        for places in parts(&self.used_ring, self.used_next & self.mask, count) {
            for (place, entry) in places.iter().zip(entries.by_ref()) {
                write_used(place, entry.id(), 0);
            }
        }
        self.pass(count);
    }

    #[inline(always)]
    fn complete_written(&mut self, mut write: impl FnMut(&Entry) -> Option<u32>) -> usize {
        let start = usize::from(self.used_next & self.mask);
        let places = self.used_ring.get(start..).unwrap_or_default();
        let mut count = 0usize;
        for (place, entry) in places.iter().zip(self.window.entries()) {
            let Some(written) = write(entry) else {
                break;
            };
            write_used(place, entry.id(), written);
            count = count.wrapping_add(1);
        }
        self.pass(count);
        count
    }

    #[inline]
    fn publish(&mut self) {
        let (old, new) = (self.used_published, self.used_next);
        let count = new.wrapping_sub(old);
        if count == 0 {
            return;
        }
        store(&self.used, split::INDEX, new, Ordering::Release);
        self.used_published = new;
        self.held = self.held.saturating_sub(count);
        if let Some(inflight) = &mut self.inflight {
            inflight.commit(new);
        }
        if self.log.is_on() {
            self.log_used(old, count);
        }
        self.prefetch_next(count);
    }

    #[inline]
    fn wants_notification(&mut self) -> bool {
        let (old, new) = (self.used_checked, self.used_published);
        if old == new {
            return false;
        }
        self.used_checked = new;
        // The driver reads the index after it has requested notifications; the device reads the request after it has moved
        // the index (section 2.7.7.2).
        fence(Ordering::SeqCst);
        if self.has_event_index {
            let event = load(&self.avail, split::used_event(self.size), Ordering::Relaxed);
            return split::needs_event(event, new, old);
        }
        load(&self.avail, split::FLAGS, Ordering::Relaxed) & split::AVAIL_NO_INTERRUPT == 0
    }

    fn has_all(&self) -> bool {
        let unpublished = self.used_next.wrapping_sub(self.used_published);
        self.held.saturating_sub(unpublished) >= self.size
    }

    fn request_notifications(&mut self, wanted: bool) {
        if self.has_event_index {
            // Flags are ignored (section 2.7.10). An index that was just passed is passed again after 65,535 more.
            let next = self.next;
            let event = if wanted { next } else { next.wrapping_sub(1) };
            let at = split::avail_event(self.size);
            store(&self.used, at, event, Ordering::Relaxed);
            self.log.mark_ring((at as u64).saturating_mul(2), 2);
        } else {
            let flags = if wanted { 0 } else { split::USED_NO_NOTIFY };
            store(&self.used, split::FLAGS, flags, Ordering::Relaxed);
            self.log.mark_ring(0, 2);
        }
        fence(Ordering::SeqCst);
    }

    fn base(&self) -> u32 {
        let unused = narrow::slots(self.window.len());
        let pending = self.inflight.as_ref().map_or(0, SplitInflight::pending);
        u32::from(self.next.wrapping_sub(unused).wrapping_sub(pending))
    }

    fn has_inflight(&self) -> bool {
        self.inflight.is_some()
    }

    #[inline(always)]
    fn log(&self) -> &RingLog {
        &self.log
    }

    fn log_mut(&mut self) -> &mut RingLog {
        &mut self.log
    }

    #[inline(always)]
    fn counters(&self) -> &Counters {
        &self.counters
    }

    #[inline(always)]
    fn counters_mut(&mut self) -> &mut Counters {
        &mut self.counters
    }
}

/// Returns true if the driver offers a descriptor for this access.
#[inline(always)]
pub(super) fn is_for(flags: u16, access: Access) -> bool {
    (flags & FLAG_WRITE != 0) == (access == Access::Write)
}

/// Returns the index of the descriptor that an entry of the available ring refers to.
#[inline(always)]
fn index_of(head: &AtomicU16) -> u16 {
    u16::from_le(head.load(Ordering::Relaxed))
}

/// Returns a descriptor; `None` if its index is beyond the table.
#[inline(always)]
fn descriptor(table: &[[AtomicU64; DESCRIPTOR_WORDS]], index: u16) -> Option<(u64, SplitWord)> {
    let [address, word] = table.get(usize::from(index))?;
    let address = u64::from_le(address.load(Ordering::Relaxed));
    let word = u64::from_le(word.load(Ordering::Relaxed));
    Some((address, SplitWord(word)))
}

/// Returns the chain that begins with a descriptor.
#[inline(always)]
fn read(table: &[[AtomicU64; DESCRIPTOR_WORDS]], head: u16) -> Entry {
    match descriptor(table, head) {
        Some((address, word)) => Entry::new(address, word.len(), word.flags() & FLAGS_KEPT, head),
        None => Entry::new(0, 0, FLAG_BAD, head),
    }
}

/// Writes an entry of the used ring.
#[inline(always)]
fn write_used([id, len]: &[AtomicU32; 2], head: u16, written: u32) {
    id.store(u32::from(head).to_le(), Ordering::Relaxed);
    len.store(written.to_le(), Ordering::Relaxed);
}

#[inline(always)]
fn load(words: &[AtomicU16], at: usize, order: Ordering) -> u16 {
    words
        .get(at)
        .map_or(0, |word| u16::from_le(word.load(order)))
}

#[inline(always)]
fn store(words: &[AtomicU16], at: usize, value: u16, order: Ordering) {
    if let Some(word) = words.get(at) {
        word.store(value.to_le(), order);
    }
}
