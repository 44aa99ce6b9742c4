// SPDX-License-Identifier: Apache-2.0
//! Device side of packed virtqueues (virtio 1.2, section 2.8).

use quietwire_memory::SharedSlice;
use quietwire_memory::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use crate::address_space::{Access, Translator};
use crate::narrow;

use super::chain::{CHAIN_MAX, Chain, Fault, read_descriptor, table_entries};
use super::config::{Features, RingConfig, RingError};
use super::dirty_log::RingLog;
use super::inflight::{PackedDescriptor, PackedInflight};
use super::layout::{
    DESCRIPTOR_WORDS, FLAG_AVAIL, FLAG_INDIRECT, FLAG_NEXT, FLAG_USED, FLAG_WRITE, PackedWord,
    RING_SIZE_MAX, packed,
};
use super::position::Position;
use super::queue::{Entry, FLAG_BAD, FLAGS_KEPT, GATHER_MAX, Queue, WINDOW, Window, parts};
use super::split::is_for;
use super::virtqueue::Counters;

/// Capacity for private copies of descriptors after the first of their chains: twice the maximum of one chain.
const TAIL: usize = 2 * CHAIN_MAX;
/// First value of the counters of these copies. They wrap around soon after the start of each queue rather than after four billion
/// descriptors, so that every test includes it.
const TAIL_START: u32 = u32::MAX - 5;
// Their lowest bits are the index of a copy, also after they have wrapped around.
const _: () = assert!(TAIL.is_power_of_two());

/// Location of a chain's descriptors.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    /// Descriptors in the ring.
    slots: u16,
    /// Index of the private copy of the second.
    tail: u16,
}

impl Extent {
    /// Returns the number of descriptors after the first.
    #[inline(always)]
    fn later(self) -> u32 {
        u32::from(self.slots).saturating_sub(1)
    }

    /// Returns the index of the private copy of a descriptor, `behind` the first by 1 or more.
    #[inline(always)]
    fn copy_at(self, behind: u16) -> usize {
        let at = usize::from(self.tail).wrapping_add(usize::from(behind));
        at.wrapping_sub(1) % TAIL
    }
}

/// A packed virtqueue.
#[derive(Debug)]
pub struct PackedQueue {
    size: u16,
    has_event_index: bool,
    has_indirect: bool,
    /// The next slot to read.
    avail: Position,
    /// The next slot to write.
    used: Position,
    /// Slots read and not published.
    held: u16,
    /// Slots used and not published.
    unpublished: u16,
    /// Slots published since the last check whether the driver wants a notification.
    unchecked: u16,
    /// The first of the unpublished slots, which is written last.
    first_used: (u16, PackedWord),
    /// The others, with an inflight region: the ring must not change until all chains are returned, because the next device
    /// would otherwise return what this one left behind.
    other_used: Vec<(u16, PackedWord)>,
    ring: SharedSlice<[AtomicU64; DESCRIPTOR_WORDS]>,
    driver_event: SharedSlice<AtomicU32>,
    device_event: SharedSlice<AtomicU32>,
    counters: Counters,
    log: RingLog,
    inflight: Option<PackedInflight>,
    window: Window,
    /// Extent of each chain in the window, at the same index.
    extents: [Extent; WINDOW],
    /// Number of chains that were last read together.
    burst: usize,
    tail: [(u64, PackedWord); TAIL],
    tail_start: u32,
    tail_end: u32,
}

impl PackedQueue {
    /// Takes over a queue.
    ///
    /// The device continues at the low 16 bits of the base, or at the position in an inflight region.
    ///
    /// # Errors
    /// [`RingError`].
    pub(crate) fn new(config: RingConfig<'_>, features: Features) -> Result<Self, RingError> {
        let size = config.size;
        if size == 0 || size > RING_SIZE_MAX {
            return Err(RingError::Size(size));
        }
        let part = config.part(
            "descriptor ring",
            config.descriptors,
            packed::ring_len(size),
            Access::Write,
        )?;
        let ring = part
            .words(0, usize::from(size))
            .ok_or(RingError::Misaligned("descriptor ring"))?;
        let driver_event = config
            .part(
                "driver event structure",
                config.driver,
                packed::EVENT_LEN,
                Access::Read,
            )?
            .words(0, 1)
            .ok_or(RingError::Misaligned("driver event structure"))?;
        let event_part = config.part(
            "device event structure",
            config.device,
            packed::EVENT_LEN,
            Access::Write,
        )?;
        let device_event = event_part
            .words(0, 1)
            .ok_or(RingError::Misaligned("device event structure"))?;
        let event_address = event_part.guest_address();
        let log = RingLog::new(
            config.log.clone(),
            features.has_log,
            part.guest_address(),
            config.ring_log_address.unwrap_or(event_address),
        );
        let start = Position::from_bits(narrow::low_u16(config.base.into()), size)
            .ok_or(RingError::Base(config.base))?;
        let inflight = config
            .inflight
            .as_ref()
            .map(|region| {
                PackedInflight::new(region, size, start, &ring).ok_or(RingError::Inflight)
            })
            .transpose()?;
        let used = inflight.as_ref().map_or(start, PackedInflight::position);
        let pending = inflight.as_ref().map_or(0, PackedInflight::pending);
        Ok(Self {
            size,
            has_event_index: features.has_event_index,
            has_indirect: features.has_indirect,
            avail: used.advanced(pending, size),
            used,
            held: 0,
            unpublished: 0,
            unchecked: 0,
            first_used: (0, PackedWord(0)),
            other_used: Vec::with_capacity(if inflight.is_some() { size.into() } else { 0 }),
            ring,
            driver_event,
            device_event,
            counters: Counters::default(),
            log,
            inflight,
            window: Window::new(),
            extents: [Extent::default(); WINDOW],
            burst: 0,
            tail: [(0, PackedWord(0)); TAIL],
            tail_start: TAIL_START,
            tail_end: TAIL_START,
        })
    }

    /// Reads a descriptor: the second word, which shows whether the descriptor is available, before the first.
    #[inline(always)]
    fn descriptor(&self, slot: u16) -> (u64, PackedWord) {
        let Some([address, word]) = self.ring.get(usize::from(slot)) else {
            return (0, PackedWord(0));
        };
        let word = u64::from_le(word.load(Ordering::Acquire));
        let address = u64::from_le(address.load(Ordering::Relaxed));
        (address, PackedWord(word))
    }

    /// Returns the number of slots that the driver may have made available and that were not read.
    #[inline(always)]
    fn space(&self) -> u16 {
        let pending = self.inflight.as_ref().map_or(0, PackedInflight::pending);
        self.size.saturating_sub(self.held).saturating_sub(pending)
    }

    /// Returns the number of private copies of descriptors that are free.
    fn tail_free(&self) -> usize {
        TAIL.saturating_sub(self.tail_end.wrapping_sub(self.tail_start) as usize)
    }

    /// Reads chains of one descriptor, up to the end of the ring; returns how many.
    #[inline(always)]
    fn gather_direct(&mut self, wanted: usize, prefetch: &mut impl FnMut(u64)) -> usize {
        let Position { slot, wrap } = self.avail;
        let to_end = self.size.saturating_sub(slot);
        let most = wanted.min(usize::from(self.space().min(to_end)));
        let start = usize::from(slot);
        let Self {
            ring,
            window,
            extents,
            ..
        } = self;
        let descriptors = ring
            .get(start..start.saturating_add(most))
            .unwrap_or_default();
        let extents = extents.get_mut(window.place(window.len())..);
        let places = window.free().iter_mut().zip(extents.unwrap_or_default());
        let expected = packed::avail_flags(wrap);
        let mut count = 0_usize;
        let burst = self.burst;
        for ([address, word], (place, extent)) in descriptors.iter().zip(places) {
            let word = PackedWord(u64::from_le(word.load(Ordering::Acquire)));
            if word.flags() & (FLAG_AVAIL | FLAG_USED | FLAG_NEXT) != expected {
                break;
            }
            let address = u64::from_le(address.load(Ordering::Relaxed));
            // Four descriptors share a cache line; the used ones are written to the same lines. As many chains as last time
            // may arrive: further prefetches would take lines away from the driver while it writes them.
            if count == 0 {
                for ahead in (4..burst).step_by(4) {
                    ring.prefetch_write(start.wrapping_add(ahead));
                }
            }
            prefetch(address);
            let flags = word.flags() & FLAGS_KEPT;
            *place = Entry::new(address, word.len(), flags, word.id());
            *extent = Extent { slots: 1, tail: 0 };
            count = count.wrapping_add(1);
        }
        if count > 0 {
            self.burst = count;
        }
        self.window.extend(count);
        let slots = narrow::slots(count);
        self.held = self.held.saturating_add(slots);
        self.avail = self.avail.advanced(slots, self.size);
        count
    }

    /// Reads a chain of any kind, for the window.
    fn gather_chain(&mut self) -> Option<(Entry, Extent)> {
        let space = self.space();
        let (address, first) = self.descriptor(self.avail.slot);
        if space == 0 || !first.is_available(self.avail.wrap) {
            return None;
        }
        let (entry, extent) = self.read_chain(address, first, space)?;
        self.avail = self.avail.advanced(extent.slots, self.size);
        Some((entry, extent))
    }

    /// Reads the descriptors after a chain's first; returns the chain, or `None` if it cannot be read now.
    fn read_chain(
        &mut self,
        address: u64,
        first: PackedWord,
        space: u16,
    ) -> Option<(Entry, Extent)> {
        let tail_free = self.tail_free();
        let mut extent = Extent {
            slots: 1,
            tail: narrow::slots(self.tail_end as usize % TAIL),
        };
        let mut kept = first.flags() & FLAGS_KEPT;
        let (mut id, mut flags) = (first.id(), first.flags());
        while flags & FLAG_NEXT != 0 {
            if extent.slots >= space {
                if space < self.size {
                    // A driver that follows the rules has no such chain until some are returned.
                    return None;
                }
                kept = FLAG_BAD;
                break;
            }
            // The end of a chain that is too long must be found all the same: the driver continues after it.
            let is_short = usize::from(extent.slots) < CHAIN_MAX;
            if is_short && usize::from(extent.slots) > tail_free {
                return None;
            }
            let slot = self.avail.advanced(extent.slots, self.size).slot;
            let (address, word) = self.descriptor(slot);
            if is_short {
                if let Some(place) = self.tail.get_mut(extent.copy_at(extent.slots)) {
                    *place = (address, word);
                }
            } else {
                kept = FLAG_BAD;
            }
            // The last has the buffer's identifier (section 2.8.6).
            (id, flags) = (word.id(), word.flags());
            extent.slots = extent.slots.saturating_add(1);
        }
        if kept & FLAG_BAD == 0 {
            self.tail_end = self.tail_end.wrapping_add(extent.later());
        }
        Some((Entry::new(address, first.len(), kept, id), extent))
    }

    /// Returns the private copy of a chain's descriptor, `behind` the first by 1 or more.
    #[inline(always)]
    fn tail(&self, extent: Extent, behind: u16) -> (u64, PackedWord) {
        let descriptor = self.tail.get(extent.copy_at(behind));
        descriptor.copied().unwrap_or((0, PackedWord(0)))
    }

    /// Adds a chain to the window.
    #[inline(always)]
    fn add(&mut self, entry: Entry, extent: Extent) {
        let at = self.window.place(self.window.len());
        if let Some(place) = self.extents.get_mut(at) {
            *place = extent;
        }
        self.window.push(entry);
        self.held = self.held.saturating_add(extent.slots);
    }

    /// Returns a chain of the window.
    #[inline(always)]
    fn chain(&self, ahead: usize) -> Option<(Entry, Extent)> {
        let entry = self.window.get(ahead)?;
        let extent = self.extents.get(self.window.place(ahead))?;
        Some((entry, *extent))
    }

    /// Adds chains that a previous device took and did not return.
    #[cold]
    fn resubmit(&mut self, wanted: usize) -> usize {
        let mut count = 0_usize;
        while count < wanted {
            let tail_free = self.tail_free();
            let Some(inflight) = &mut self.inflight else {
                break;
            };
            let Some(chain) = inflight.resubmit(tail_free) else {
                break;
            };
            let extent = Extent {
                slots: narrow::slots(chain.len()),
                tail: narrow::slots(self.tail_end as usize % TAIL),
            };
            let is_short = chain.len() <= CHAIN_MAX;
            if is_short {
                for descriptor in chain.iter().skip(1) {
                    if let Some(place) = self.tail.get_mut(self.tail_end as usize % TAIL) {
                        *place = *descriptor;
                    }
                    self.tail_end = self.tail_end.wrapping_add(1);
                }
            }
            let (Some((address, word)), Some((_, last))) = (chain.first(), chain.last()) else {
                continue;
            };
            let flags = if is_short {
                word.flags() & FLAGS_KEPT
            } else {
                FLAG_BAD
            };
            self.add(Entry::new(*address, word.len(), flags, last.id()), extent);
            count = count.saturating_add(1);
        }
        count
    }

    fn walk_table(
        memory: &mut Translator,
        table: u64,
        len: u32,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault> {
        let count = table_entries(len).ok_or(Fault::Bad)?;
        for index in 0..count {
            let (address, word) = read_descriptor(memory, table, index)?;
            let word = PackedWord(word);
            // Only the flag for the direction has a meaning here (section 2.8.7).
            if !is_for(word.flags(), access) {
                return Err(Fault::Bad);
            }
            chain.push(memory, address, word.len(), access)?;
        }
        Ok(())
    }

    /// Returns the descriptors of a chain, as they were read.
    fn descriptors(&self, entry: Entry, extent: Extent) -> impl Iterator<Item = PackedDescriptor> {
        let is_bad = entry.flags() & FLAG_BAD != 0;
        let word = PackedWord::new(entry.len(), entry.id(), entry.flags() & FLAGS_KEPT);
        (0..extent.slots).map(move |behind| match behind {
            0 => (entry.address, word),
            _ if is_bad => (0, PackedWord::new(0, entry.id(), 0)),
            _ => self.tail(extent, behind),
        })
    }

    #[cold]
    fn take_inflight(&mut self, entry: Entry, extent: Extent) {
        if let Some(mut inflight) = self.inflight.take() {
            inflight.take(self.descriptors(entry, extent));
            self.inflight = Some(inflight);
        }
    }

    /// Writes a used descriptor, but defers the first of several. The caller advances the position.
    #[inline(always)]
    fn use_slot(&mut self, id: u16, written: u32, is_delayed: bool) {
        let word = used_word(id, written, self.used.wrap);
        if self.unpublished == 0 {
            self.first_used = (self.used.slot, word);
        } else if is_delayed {
            // There is space: each has its own slot.
            self.other_used.push((self.used.slot, word));
        } else {
            write_used(&self.ring, self.used.slot, word, Ordering::Relaxed);
        }
    }

    /// Advances past the window's first `count` chains, of one descriptor each, which were used.
    #[inline(always)]
    fn pass(&mut self, count: usize) {
        self.window.remove(count);
        let slots = narrow::slots(count);
        self.unpublished = self.unpublished.saturating_add(slots);
        self.used = self.used.advanced(slots, self.size);
    }

    /// Marks what [`Queue::publish`] wrote to the ring.
    #[cold]
    fn log_used(&self, from: u16, slots: u16) {
        let to_end = self.size.saturating_sub(from).min(slots);
        let mark = |first: u16, count: u16| {
            let octets = |slots: u16| packed::ring_len(slots) as u64;
            self.log.mark_ring(octets(first), octets(count));
        };
        mark(from, to_end);
        mark(0, slots.saturating_sub(to_end));
    }

    /// Returns true if the driver wants a notification after `slots` were used (section 2.8.14).
    #[inline(always)]
    fn is_notification_due(&self, slots: u16) -> bool {
        let event = self.driver_event.first();
        let event = event.map_or(0, |word| u32::from_le(word.load(Ordering::Relaxed)));
        let (off_wrap, flags) = packed::event_fields(event);
        match flags & 3 {
            packed::EVENT_DISABLE => false,
            packed::EVENT_DESCRIPTOR if self.has_event_index => {
                self.used.has_passed(off_wrap, slots, self.size)
            }
            _ => true,
        }
    }
}

impl Queue for PackedQueue {
    #[inline(always)]
    fn gather(&mut self, most: usize, mut prefetch: impl FnMut(u64)) -> usize {
        let have = self.window.len();
        let mut wanted = most.min(WINDOW).saturating_sub(have).min(GATHER_MAX);
        if wanted == 0 {
            return have;
        }
        let moved = self.window.make_space(wanted);
        if moved > 0 {
            self.extents.copy_within(moved.., 0);
        }
        if self.inflight.is_some() {
            wanted = wanted.saturating_sub(self.resubmit(wanted));
        }
        while wanted > 0 {
            let count = self.gather_direct(wanted, &mut prefetch);
            wanted = wanted.saturating_sub(count);
            // The start of the ring follows its end.
            if wanted > 0 && !(count > 0 && self.avail.slot == 0) {
                let Some((entry, extent)) = self.gather_chain() else {
                    break;
                };
                prefetch(entry.address);
                self.add(entry, extent);
                wanted = wanted.saturating_sub(1);
            }
        }
        self.window.len()
    }

    #[inline(always)]
    fn announce(&mut self, _most: usize) -> Option<usize> {
        None
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
        let (entry, extent) = self.chain(ahead).ok_or(Fault::Bad)?;
        if entry.flags() & FLAG_BAD != 0 {
            return Err(Fault::Bad);
        }
        let (mut address, mut len, mut flags) = (entry.address, entry.len(), entry.flags());
        for behind in 1..=extent.slots {
            if flags & FLAG_INDIRECT != 0 {
                // A table is the last of its chain, if not all of it.
                if flags & FLAG_NEXT != 0 || !self.has_indirect {
                    return Err(Fault::Bad);
                }
                return Self::walk_table(memory, address, len, chain, access);
            }
            if !is_for(flags, access) {
                return Err(Fault::Bad);
            }
            chain.push(memory, address, len, access)?;
            if behind < extent.slots {
                let (following, word) = self.tail(extent, behind);
                (address, len, flags) = (following, word.len(), word.flags());
            }
        }
        Ok(())
    }

    fn complete(&mut self, written: u32) {
        let Some((entry, extent)) = self.chain(0) else {
            return;
        };
        let has_inflight = self.inflight.is_some();
        if has_inflight {
            self.take_inflight(entry, extent);
        }
        if entry.flags() & FLAG_BAD == 0 {
            self.tail_start = self.tail_start.wrapping_add(extent.later());
        }
        self.window.remove(1);
        self.use_slot(entry.id(), written, has_inflight);
        self.unpublished = self.unpublished.saturating_add(extent.slots);
        self.used = self.used.advanced(extent.slots, self.size);
    }

    #[inline(always)]
    fn complete_read(&mut self, count: usize) {
        let mut from = self.used;
        let entries = self.window.entries();
        let mut entries = entries.get(..count).unwrap_or(entries).iter();
        if self.unpublished == 0
            && let Some(entry) = entries.next()
        {
            self.first_used = (from.slot, used_word(entry.id(), 0, from.wrap));
            from = from.advanced(1, self.size);
        }
        let parts = parts(&self.ring, from.slot, entries.len());
        for (places, wrap) in parts.into_iter().zip([from.wrap, !from.wrap]) {
            for ([_, place], entry) in places.iter().zip(entries.by_ref()) {
                let word = used_word(entry.id(), 0, wrap);
                place.store(word.0.to_le(), Ordering::Relaxed);
            }
        }
        self.pass(count);
    }

    #[inline(always)]
    fn complete_written(&mut self, mut write: impl FnMut(&Entry) -> Option<u32>) -> usize {
        let Position { slot, wrap } = self.used;
        let mut entries = self.window.entries().iter();
        let mut count = 0_usize;
        // The first is written last, by `publish`.
        if self.unpublished == 0 {
            let Some((entry, written)) = entries
                .next()
                .and_then(|entry| Some((entry, write(entry)?)))
            else {
                return 0;
            };
            self.first_used = (slot, used_word(entry.id(), written, wrap));
            count = 1;
        }
        let places = self.ring.get(usize::from(slot).saturating_add(count)..);
        for ([_, place], entry) in places.unwrap_or_default().iter().zip(entries) {
            let Some(written) = write(entry) else {
                break;
            };
            let word = used_word(entry.id(), written, wrap);
            place.store(word.0.to_le(), Ordering::Relaxed);
            count = count.wrapping_add(1);
        }
        self.pass(count);
        count
    }

    #[inline]
    fn publish(&mut self) {
        let slots = self.unpublished;
        if slots == 0 {
            return;
        }
        let (first, word) = self.first_used;
        if let Some(inflight) = &mut self.inflight {
            inflight.prepare(self.used);
            while let Some((slot, word)) = self.other_used.pop() {
                write_used(&self.ring, slot, word, Ordering::Relaxed);
            }
        }
        write_used(&self.ring, first, word, Ordering::Release);
        self.unpublished = 0;
        self.held = self.held.saturating_sub(slots);
        if let Some(inflight) = &mut self.inflight {
            inflight.commit();
        }
        if self.log.is_on() {
            self.log_used(first, slots);
        }
        self.unchecked = self.unchecked.saturating_add(slots);
    }

    #[inline]
    fn prefetch_waiting(&self) {
        let start = usize::from(self.avail.slot);
        // The driver polls the first line.
        for ahead in (4..self.burst).step_by(4) {
            self.ring.prefetch_write(start.wrapping_add(ahead));
        }
    }

    #[inline]
    fn wants_notification(&mut self) -> bool {
        let slots = std::mem::take(&mut self.unchecked);
        if slots == 0 {
            return false;
        }
        // The driver reads the descriptor after it has requested notifications; the device reads the request after it has
        // written the descriptor.
        fence(Ordering::SeqCst);
        self.is_notification_due(slots)
    }

    fn has_all(&self) -> bool {
        self.held.saturating_sub(self.unpublished) >= self.size
    }

    fn request_notifications(&mut self, wanted: bool) {
        let flags = if wanted {
            packed::EVENT_ENABLE
        } else {
            packed::EVENT_DISABLE
        };
        if let Some(event) = self.device_event.first() {
            event.store(packed::event(0, flags).to_le(), Ordering::Relaxed);
        }
        self.log.mark_event(packed::EVENT_LEN as u64);
        fence(Ordering::SeqCst);
    }

    fn base(&self) -> u32 {
        // Chains are returned in order, so the next one to use is the first that is not taken.
        let bits = u32::from(self.used.bits());
        bits | bits << 16
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

/// Returns the second word of a used descriptor.
#[inline(always)]
fn used_word(id: u16, written: u32, wrap: bool) -> PackedWord {
    // The length is valid only with this flag (section 2.8.4).
    let write = if written > 0 { FLAG_WRITE } else { 0 };
    PackedWord::new(written, id, packed::used_flags(wrap) | write)
}

#[inline(always)]
fn write_used(
    ring: &[[AtomicU64; DESCRIPTOR_WORDS]],
    slot: u16,
    word: PackedWord,
    order: Ordering,
) {
    if let Some([_, place]) = ring.get(usize::from(slot)) {
        place.store(word.0.to_le(), order);
    }
}
