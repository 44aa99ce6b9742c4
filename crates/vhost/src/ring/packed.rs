// SPDX-License-Identifier: Apache-2.0
//! Packed virtqueues, as the device sees them (virtio 1.2, section 2.8).

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use quietwire_memory::SharedSlice;

use crate::address_space::{Access, Translator};

use super::chain::{CHAIN_MAX, Chain, Fault, read_descriptor, table_entries};
use super::dirty_log::RingLog;
use super::inflight::{PackedDescriptor, PackedInflight};
use super::layout::{
    DESCRIPTOR_LEN, FLAG_INDIRECT, FLAG_NEXT, FLAG_WRITE, PackedWord, RING_SIZE_MAX, packed, split,
};
use super::queue::{Entry, FLAG_BAD, FLAGS_KEPT, GATHER_MAX, Queue, WINDOW, Window};
use super::split::is_for;
use super::{Counters, Features, RingConfig, RingError};

/// Private copies of descriptors behind the first of their chains. Twice what one chain needs at most.
const TAIL: usize = 2 * CHAIN_MAX;

/// A place in the ring, and the wrap counter there (section 2.8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) slot: u16,
    pub(crate) wrap: bool,
}

impl Position {
    /// Returns the position of 15 bits and a wrap counter; `None` if the ring has no such slot.
    pub(crate) fn from_bits(bits: u16, size: u16) -> Option<Self> {
        let slot = bits & !packed::WRAP;
        (slot < size).then_some(Self {
            slot,
            wrap: bits & packed::WRAP != 0,
        })
    }

    pub(crate) fn bits(self) -> u16 {
        self.slot | if self.wrap { packed::WRAP } else { 0 }
    }

    /// Returns the position some slots ahead, no more than the ring has.
    #[inline(always)]
    pub(crate) fn advanced(self, slots: u16, size: u16) -> Self {
        let slot = u32::from(self.slot) + u32::from(slots);
        if slot < u32::from(size) {
            return Self {
                slot: slot as u16,
                wrap: self.wrap,
            };
        }
        Self {
            slot: (slot - u32::from(size)) as u16,
            wrap: !self.wrap,
        }
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
    /// The first of them: written last.
    first_used: (u16, PackedWord),
    /// The others, with an inflight region: the ring has to stay as it is until all chains are returned, since the next
    /// device would otherwise return what this one left behind.
    other_used: Vec<(u16, PackedWord)>,
    ring: SharedSlice<AtomicU64>,
    driver_event: SharedSlice<AtomicU32>,
    device_event: SharedSlice<AtomicU32>,
    counters: Counters,
    log: RingLog,
    inflight: Option<PackedInflight>,
    window: Window,
    tail: [(u64, PackedWord); TAIL],
    tail_start: u32,
    tail_end: u32,
}

impl PackedQueue {
    /// Takes over a queue.
    ///
    /// The device goes on where the low 16 bits of the base say, or where an inflight region says.
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
            .words(0, 2 * usize::from(size))
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
        let start =
            Position::from_bits(config.base as u16, size).ok_or(RingError::Base(config.base))?;
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
            first_used: (0, PackedWord(0)),
            other_used: Vec::with_capacity(if inflight.is_some() { size.into() } else { 0 }),
            ring,
            driver_event,
            device_event,
            counters: Counters::default(),
            log,
            inflight,
            window: Window::new(),
            tail: [(0, PackedWord(0)); TAIL],
            tail_start: 0,
            tail_end: 0,
        })
    }

    #[inline(always)]
    fn word(&self, slot: u16, order: Ordering) -> PackedWord {
        let word = self.ring.get(2 * usize::from(slot) + 1);
        PackedWord(word.map_or(0, |word| u64::from_le(word.load(order))))
    }

    #[inline(always)]
    fn address(&self, slot: u16) -> u64 {
        let word = self.ring.get(2 * usize::from(slot));
        word.map_or(0, |word| u64::from_le(word.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn write_used(&self, slot: u16, word: PackedWord, order: Ordering) {
        if let Some(place) = self.ring.get(2 * usize::from(slot) + 1) {
            place.store(word.0.to_le(), order);
        }
    }

    /// Slots that the driver may have made available and that were not read.
    #[inline(always)]
    fn room(&self) -> u16 {
        let pending = self.inflight.as_ref().map_or(0, PackedInflight::pending);
        self.size.saturating_sub(self.held).saturating_sub(pending)
    }

    /// Reads the descriptors behind a chain's first; returns the chain's entry, or `None` if it cannot be read now.
    #[inline]
    fn read_chain(&mut self, first: PackedWord, room: u16) -> Option<Entry> {
        let mut entry = Entry {
            address: self.address(self.avail.slot),
            len: first.len(),
            flags: first.flags() & FLAGS_KEPT,
            id: first.id(),
            next: (self.tail_end as usize % TAIL) as u16,
            slots: 1,
        };
        let tail_room = TAIL - self.tail_end.wrapping_sub(self.tail_start) as usize;
        let mut flags = first.flags();
        while flags & FLAG_NEXT != 0 {
            if entry.slots >= room {
                if room < self.size {
                    // A driver that keeps the rules has no such chain until we have returned some.
                    return None;
                }
                entry.flags = FLAG_BAD;
                return Some(entry);
            }
            // The end of a chain that is too long has to be found all the same: the driver goes on behind it.
            let is_short = usize::from(entry.slots) < CHAIN_MAX;
            if is_short && usize::from(entry.slots) > tail_room {
                return None;
            }
            let slot = self.avail.advanced(entry.slots, self.size).slot;
            // Ordered behind the first, which the driver wrote last.
            let (address, word) = (self.address(slot), self.word(slot, Ordering::Relaxed));
            if is_short {
                let at = self.tail_end.wrapping_add(u32::from(entry.slots) - 1);
                if let Some(place) = self.tail.get_mut(at as usize % TAIL) {
                    *place = (address, word);
                }
            } else {
                entry.flags = FLAG_BAD;
            }
            // The last has the buffer's identifier (section 2.8.6).
            entry.id = word.id();
            entry.slots += 1;
            flags = word.flags();
        }
        if entry.flags & FLAG_BAD == 0 {
            self.tail_end = self.tail_end.wrapping_add(u32::from(entry.slots) - 1);
        }
        Some(entry)
    }

    /// Returns the private copy of a chain's descriptor, `behind` the first by 1 or more.
    #[inline(always)]
    fn tail(&self, entry: &Entry, behind: u16) -> (u64, PackedWord) {
        let at = (usize::from(entry.next) + usize::from(behind) - 1) % TAIL;
        self.tail.get(at).copied().unwrap_or((0, PackedWord(0)))
    }

    /// Adds chains that a device before took and did not return.
    #[cold]
    fn resubmit(&mut self, wanted: usize) -> usize {
        let mut count = 0;
        while count < wanted {
            let tail_room = TAIL - self.tail_end.wrapping_sub(self.tail_start) as usize;
            let Some(inflight) = &mut self.inflight else {
                break;
            };
            let Some(chain) = inflight.resubmit(tail_room) else {
                break;
            };
            let mut entry = Entry {
                next: (self.tail_end as usize % TAIL) as u16,
                slots: chain.len() as u16,
                ..Entry::default()
            };
            let is_short = chain.len() <= CHAIN_MAX;
            for (index, descriptor) in chain.iter().enumerate() {
                let (address, word) = *descriptor;
                entry.id = word.id();
                if index == 0 {
                    entry.address = address;
                    entry.len = word.len();
                    entry.flags = word.flags() & FLAGS_KEPT;
                } else if is_short {
                    if let Some(place) = self.tail.get_mut(self.tail_end as usize % TAIL) {
                        *place = *descriptor;
                    }
                    self.tail_end = self.tail_end.wrapping_add(1);
                }
            }
            if !is_short {
                entry.flags = FLAG_BAD;
            }
            self.held += entry.slots;
            if let Some(place) = self.window.place(0) {
                *place = entry;
            }
            self.window.extend(1);
            count += 1;
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
            // The only flag that counts here is the one for the direction (section 2.8.7).
            if !is_for(word.flags(), access) {
                return Err(Fault::Bad);
            }
            chain.push(memory, address, word.len(), access)?;
        }
        Ok(())
    }

    /// Returns the descriptors of a chain, as they were read.
    fn descriptors(&self, entry: &Entry) -> impl Iterator<Item = PackedDescriptor> {
        let is_bad = entry.flags & FLAG_BAD != 0;
        let first = (
            entry.address,
            PackedWord::new(entry.len, entry.id, entry.flags),
        );
        (0..entry.slots).map(move |behind| match behind {
            0 => first,
            _ if is_bad => (0, PackedWord::new(0, entry.id, 0)),
            _ => self.tail(entry, behind),
        })
    }

    #[cold]
    fn take_inflight(&mut self, entry: &Entry) {
        if let Some(mut inflight) = self.inflight.take() {
            inflight.take(self.descriptors(entry));
            self.inflight = Some(inflight);
        }
    }

    /// Marks what [`Queue::publish`] wrote to the ring.
    #[cold]
    fn log_used(&self, from: u16, slots: u16) {
        let to_end = self.size.saturating_sub(from).min(slots);
        let mark = |first: u16, count: u16| {
            let octets = |slots: u16| (DESCRIPTOR_LEN * usize::from(slots)) as u64;
            self.log.mark_ring(octets(first), octets(count));
        };
        mark(from, to_end);
        mark(0, slots - to_end);
    }

    /// Returns true if the driver wants a notification after `slots` were used (section 2.8.14).
    #[inline(always)]
    fn is_notification_due(&self, slots: u16) -> bool {
        let event = self.driver_event.first();
        let event = event.map_or(0, |word| u32::from_le(word.load(Ordering::Relaxed)));
        let (off_wrap, flags) = (event as u16, (event >> 16) as u16 & 3);
        match flags {
            packed::EVENT_DISABLE => false,
            packed::EVENT_DESCRIPTOR if self.has_event_index => {
                let mut due = off_wrap & !packed::WRAP;
                if (off_wrap & packed::WRAP != 0) != self.used.wrap {
                    due = due.wrapping_sub(self.size);
                }
                let new = self.used.slot;
                split::needs_event(due, new, new.wrapping_sub(slots))
            }
            _ => true,
        }
    }
}

impl Queue for PackedQueue {
    #[inline]
    fn gather(&mut self, most: usize) -> usize {
        let have = self.window.len();
        let mut wanted = most.min(WINDOW).saturating_sub(have).min(GATHER_MAX);
        if wanted == 0 {
            return have;
        }
        if self.inflight.is_some() {
            wanted -= self.resubmit(wanted);
        }
        let mut room = self.room();
        let mut count = 0;
        while count < wanted && room > 0 {
            let first = self.word(self.avail.slot, Ordering::Acquire);
            if !first.is_available(self.avail.wrap) {
                break;
            }
            // Four descriptors share a cache line; the used ones are written to the same lines.
            if self.avail.slot.is_multiple_of(4) || count == 0 {
                let ahead = 2 * (usize::from(self.avail.slot) + 8);
                self.ring.prefetch_write(ahead);
            }
            let entry = if first.flags() & FLAG_NEXT == 0 {
                Entry {
                    address: self.address(self.avail.slot),
                    len: first.len(),
                    flags: first.flags() & FLAGS_KEPT,
                    id: first.id(),
                    next: 0,
                    slots: 1,
                }
            } else {
                match self.read_chain(first, room) {
                    Some(entry) => entry,
                    None => break,
                }
            };
            if let Some(place) = self.window.place(0) {
                *place = entry;
            }
            self.window.extend(1);
            self.avail = self.avail.advanced(entry.slots, self.size);
            self.held += entry.slots;
            room = room.saturating_sub(entry.slots);
            count += 1;
        }
        self.window.len()
    }

    #[inline(always)]
    fn gathered(&self) -> usize {
        self.window.len()
    }

    #[inline(always)]
    fn entry(&self, ahead: usize) -> Option<Entry> {
        self.window.get(ahead)
    }

    #[inline]
    fn walk(
        &self,
        entry: Entry,
        memory: &mut Translator,
        chain: &mut Chain,
        access: Access,
    ) -> Result<(), Fault> {
        if entry.flags & FLAG_BAD != 0 {
            return Err(Fault::Bad);
        }
        let (mut address, mut len, mut flags) = (entry.address, entry.len, entry.flags);
        for behind in 1..=entry.slots {
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
            if behind < entry.slots {
                let (following, word) = self.tail(&entry, behind);
                (address, len, flags) = (following, word.len(), word.flags());
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn complete(&mut self, written: u32) {
        let Some(entry) = self.window.get(0) else {
            return;
        };
        let has_inflight = self.inflight.is_some();
        if has_inflight {
            self.take_inflight(&entry);
        }
        if entry.slots > 1 && entry.flags & FLAG_BAD == 0 {
            self.tail_start = self.tail_start.wrapping_add(u32::from(entry.slots) - 1);
        }
        self.window.pop();
        // The length counts with this flag only (section 2.8.4).
        let write = if written > 0 { FLAG_WRITE } else { 0 };
        let flags = packed::used_flags(self.used.wrap) | write;
        let word = PackedWord::new(written, entry.id, flags);
        if self.unpublished == 0 {
            self.first_used = (self.used.slot, word);
        } else if has_inflight {
            // There is room: each has a slot of its own.
            self.other_used.push((self.used.slot, word));
        } else {
            self.write_used(self.used.slot, word, Ordering::Relaxed);
        }
        self.unpublished += entry.slots;
        self.used = self.used.advanced(entry.slots, self.size);
    }

    #[inline]
    fn publish(&mut self) -> bool {
        let slots = self.unpublished;
        if slots == 0 {
            return false;
        }
        let (first, word) = self.first_used;
        if let Some(inflight) = &mut self.inflight {
            inflight.prepare(self.used);
            while let Some((slot, word)) = self.other_used.pop() {
                self.write_used(slot, word, Ordering::Relaxed);
            }
        }
        self.write_used(first, word, Ordering::Release);
        self.unpublished = 0;
        self.held = self.held.saturating_sub(slots);
        if let Some(inflight) = &mut self.inflight {
            inflight.commit();
        }
        if self.log.is_on() {
            self.log_used(first, slots);
        }
        // The driver looks at the descriptor after it has asked for notifications, we at its wish after we have written it.
        fence(Ordering::SeqCst);
        self.is_notification_due(slots)
    }

    fn has_all(&self) -> bool {
        self.held >= self.size
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
        // Chains are returned in order, so that the next one to use is the first that is not taken.
        let bits = u32::from(self.used.bits());
        bits | bits << 16
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
