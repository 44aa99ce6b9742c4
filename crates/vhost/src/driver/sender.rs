// SPDX-License-Identifier: Apache-2.0
//! Transmit queue: the device reads frames from our buffers.

use std::num::NonZeroUsize;
use std::sync::Arc;

use quietwire_memory::{Mapping, SlotBuffer};

use super::buffers::Buffers;
use super::layout::Layout;
use super::queue::{Fault, Queue, SetupError, prepare};
use super::slots::Slots;
use super::{BURST, PIECES_MAX, PREFETCH_AHEAD, PREFETCH_OCTETS};
use crate::features::F_EVENT_IDX;
use crate::narrow;
use crate::ring::header::{HEADER_LEN, OffloadHeader};
use crate::ring::layout::FLAG_NEXT;

/// Result of [`Sender::put`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutResult {
    /// The frame is in the ring.
    Sent,
    /// The ring has no space for the frame now.
    Full,
    /// The frame can never be sent: it is empty, is longer than the ring's buffers together or than 64 of them, or its
    /// segments do not have the given length.
    Bad,
}

/// Transmit queue on a ring of either kind.
///
/// One burst is [`Self::ready`], [`Self::put`] for each frame, [`Self::publish`]. [`Self::buffer`] and [`Self::fill`] replace
/// [`Self::put`] if frames are written in place.
#[derive(Debug)]
pub struct Sender<Q> {
    queue: Q,
    buffers: Buffers,
    slots: Slots,
    /// Whether the header in a slot's buffer is all zero, as far as this side knows.
    plain: Box<[bool]>,
    /// A mark for each slot (see [`SlotBuffer::mark`]).
    marks: Box<[u32]>,
    /// Some marks may not be 0.
    has_marks: bool,
    /// Octets of a frame, from the first on, that are written in place.
    changed: usize,
    /// Reclaim used slots if fewer slots than this are free.
    low: u16,
    fault: Option<Fault>,
}

impl<Q: Queue> Sender<Q> {
    /// Clears the ring of queue `index`, an odd number. The device must not run yet. `features` are the negotiated ones.
    ///
    /// # Errors
    /// [`SetupError`]: layout, features and kind of ring do not match.
    pub fn new(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        index: u32,
        features: u64,
    ) -> Result<Self, SetupError> {
        let queue = prepare::<Q>(mapping, layout, index, true, features)?;
        let buffers = Buffers::new(mapping, &queue).ok_or(SetupError::Memory(index))?;
        let event_index = features & F_EVENT_IDX != 0;
        let ring = Q::new(mapping, &queue, event_index, |slot| buffers.address(slot))
            .ok_or(SetupError::Memory(index))?;
        Ok(Self {
            queue: ring,
            buffers,
            slots: Slots::new(queue.size),
            plain: vec![false; usize::from(queue.size)].into(),
            marks: vec![0; usize::from(queue.size)].into(),
            has_marks: false,
            changed: usize::MAX,
            low: queue.size / 4,
            fault: None,
        })
    }

    /// Reclaims buffers that the device has read, if few are free. Returns the number of single-buffer frames that
    /// [`Self::put`] has space for, at most `most`. Call it before the first frame of a burst: buffers are not reclaimed
    /// between [`Self::put`] and [`Self::publish`].
    #[inline(always)]
    pub fn ready(&mut self, most: usize) -> usize {
        let free = usize::from(self.slots.available());
        if free < most || free < usize::from(self.low) {
            self.reclaim();
        }
        if self.fault.is_some() {
            return 0;
        }
        let ready = usize::from(self.slots.available()).min(most);
        for skip in 0..ready.min(PREFETCH_AHEAD) {
            self.prefetch(narrow::slots(skip), 1);
        }
        ready
    }

    /// Copies a frame of `length` octets to the ring. Nothing is sent before [`Self::publish`].
    ///
    /// `header` describes the offloads left to the device; its `num_buffers` is ignored. The segments together have `length`
    /// octets.
    #[inline(always)]
    pub fn put<'frame>(
        &mut self,
        header: &OffloadHeader,
        segments: impl Iterator<Item = &'frame [u8]>,
        length: usize,
    ) -> PutResult {
        if length > self.buffers.space() {
            return self.put_chain(header, segments, length);
        }
        if self.slots.available() == 0 || self.fault.is_some() {
            return PutResult::Full;
        }
        let slot = self.slots.upcoming(0);
        self.prefetch(narrow::slots(PREFETCH_AHEAD), length);
        let Some(data) = self.buffers.data(slot, length) else {
            return PutResult::Bad;
        };
        let mut at = 0_usize;
        for segment in segments {
            let Some(space) = data.sub(at, segment.len()) else {
                return PutResult::Bad;
            };
            at = at.wrapping_add(space.copy_from(segment));
        }
        if at != length || length == 0 {
            return PutResult::Bad;
        }
        if self.has_marks {
            self.unmark(slot);
        }
        self.finish(slot, header, length);
        PutResult::Sent
    }

    /// Returns the buffer of the next free slot, for a frame of `length` octets. [`Self::fill`] makes it the next frame.
    ///
    /// # Errors
    /// [`PutResult::Full`] if no slot is free, [`PutResult::Bad`] if the frame does not fit into one buffer ([`Self::put`] may send it
    /// in several).
    #[inline(always)]
    pub fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, PutResult> {
        let space = self.buffers.space();
        if length == 0 || length > space {
            return Err(PutResult::Bad);
        }
        if self.slots.available() == 0 || self.fault.is_some() {
            return Err(PutResult::Full);
        }
        self.prefetch(narrow::slots(PREFETCH_AHEAD), length.min(self.changed));
        let slot = self.slots.upcoming(0);
        let octets = self.buffers.data(slot, space).ok_or(PutResult::Bad)?;
        self.has_marks = true;
        Ok(SlotBuffer {
            octets,
            mark: self.marks.get_mut(usize::from(slot)),
        })
    }

    /// Announces that the first `changed` octets of frames are written in place. As many octets of the next buffers are loaded ahead: other
    /// lines remain in the device's cache too.
    #[inline(always)]
    pub fn announce(&mut self, changed: usize) {
        self.changed = changed;
    }

    /// Makes the first `length` octets of the buffer that [`Self::buffer`] returned the next frame, without offloads.
    #[inline(always)]
    pub fn fill(&mut self, length: usize) {
        self.finish(self.slots.upcoming(0), &OffloadHeader::default(), length);
    }

    /// Fills up to `most` free slots with frames of `length` octets each, which `write` writes into their buffers. Ends early if no
    /// slot is free, a frame does not fit into one buffer, or `write` returns false: [`Self::buffer`] returns the buffer of that slot,
    /// or the reason. Returns the number of frames.
    #[inline(always)]
    pub fn fill_each(
        &mut self,
        most: usize,
        length: usize,
        mut write: impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize {
        let space = self.buffers.space();
        if length == 0 || length > space || self.fault.is_some() {
            return 0;
        }
        let free = usize::from(self.slots.available()).min(most);
        // Even a frame that is not sent may leave a mark.
        self.has_marks = true;
        let ahead = length.min(self.changed).min(PREFETCH_OCTETS);
        // Copies: the frames are written to memory that could be the ring's own for all that the compiler knows.
        let (row, buffers) = (self.slots.row(), self.buffers.view());
        let marks = &mut *self.marks;
        let mut filled = 0_usize;
        while filled < free {
            if let Some(next) =
                buffers.data(row.upcoming(filled.wrapping_add(PREFETCH_AHEAD)), ahead)
            {
                next.prefetch_write(ahead);
            }
            let slot = row.upcoming(filled);
            let Some(octets) = buffers.data(slot, space) else {
                break;
            };
            let mark = marks.get_mut(usize::from(slot));
            if !write(SlotBuffer { octets, mark }) {
                break;
            }
            filled = filled.wrapping_add(1);
        }
        for _ in 0..filled {
            self.finish(self.slots.upcoming(0), &OffloadHeader::default(), length);
        }
        filled
    }

    /// Offers the next slot, whose buffer has a frame of `length` octets.
    #[inline(always)]
    fn finish(&mut self, slot: u16, header: &OffloadHeader, length: usize) {
        self.write_header(slot, header);
        self.slots.take_one();
        let len = narrow::octets(length.wrapping_add(HEADER_LEN));
        self.queue.describe(slot, slot, len, 0, 0);
        self.queue.offer(slot);
    }

    /// Forgets the mark of a slot, whose buffer was written without regard to it.
    #[inline(never)]
    fn unmark(&mut self, slot: u16) {
        if let Some(mark) = self.marks.get_mut(usize::from(slot)) {
            *mark = 0;
        }
    }

    /// Makes the frames since the last call visible to the device. Returns true if the device is known to want a notification.
    ///
    /// A device that requests one at the same time can be missed: [`Self::settle`] closes this gap. Call it when there is nothing to
    /// send, or right after this call if another call is not certain soon.
    #[inline(always)]
    pub fn publish(&mut self) -> bool {
        self.queue.publish()
    }

    /// Checks once more whether the device wants a notification of the frames that were published. No cost if that is already known.
    #[inline(always)]
    pub fn settle(&mut self) -> bool {
        self.queue.settle()
    }

    /// Returns the fault of the device, if any. From then on the queue sends nothing.
    #[inline(always)]
    #[must_use]
    pub fn fault(&self) -> Option<Fault> {
        self.fault
    }

    /// Returns the number of faults so far, 0 or 1.
    #[inline(always)]
    #[must_use]
    pub fn errors(&self) -> u64 {
        u64::from(self.fault.is_some())
    }

    /// Returns true if an access found a page of the memory missing (see [`Mapping::has_faulted`]).
    #[inline(always)]
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        self.buffers.mapping().has_faulted()
    }

    /// Returns true if each buffer is free or in one chain. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        self.slots.is_consistent()
    }

    /// Writes the header of a frame to its slot, unless the slot already has it.
    #[inline(always)]
    fn write_header(&mut self, slot: u16, header: &OffloadHeader) {
        let header = OffloadHeader {
            // The driver sets it to zero (section 5.1.6.2.1).
            num_buffers: 0,
            ..*header
        };
        let is_plain = header == OffloadHeader::default();
        let Some(plain) = self.plain.get_mut(usize::from(slot)) else {
            return;
        };
        // Most frames have the same header as the previous one in the slot. The header has its own cache line, which remains
        // in the device's cache as long as neither side writes to it.
        if is_plain && *plain {
            return;
        }
        *plain = is_plain;
        if let Some(span) = self.buffers.header(slot) {
            span.copy_from(&header.encode());
        }
    }

    /// Copies a frame to several buffers.
    #[cold]
    fn put_chain<'frame>(
        &mut self,
        header: &OffloadHeader,
        segments: impl Iterator<Item = &'frame [u8]>,
        length: usize,
    ) -> PutResult {
        let Some(buffer_len) = NonZeroUsize::new(self.buffers.capacity()) else {
            return PutResult::Bad;
        };
        let capacity = buffer_len.get();
        let end = length.saturating_add(HEADER_LEN);
        let count = end.div_ceil(capacity);
        if count > PIECES_MAX.min(self.plain.len()) {
            return PutResult::Bad;
        }
        if count > usize::from(self.slots.available()) || self.fault.is_some() {
            return PutResult::Full;
        }
        let count = narrow::slots(count);
        let mut total = HEADER_LEN;
        for mut segment in segments {
            while !segment.is_empty() {
                let (number, at) = (total / buffer_len, total % buffer_len);
                let slot = self.slots.upcoming(narrow::slots(number));
                let space = self
                    .buffers
                    .span(slot, capacity)
                    .and_then(|span| span.sub(at, capacity.saturating_sub(at)));
                let Some(space) = space.filter(|_| total < end) else {
                    return PutResult::Bad;
                };
                let copied = space.copy_from(segment);
                total = total.saturating_add(copied);
                segment = segment.get(copied..).unwrap_or(&[]);
            }
        }
        if total != end {
            return PutResult::Bad;
        }
        let head = self.slots.upcoming(0);
        self.write_header(head, header);
        for number in 0..count {
            let slot = self.slots.upcoming(number);
            let after = number.saturating_add(1);
            let (len, flags, next) = if after == count {
                let before = capacity.saturating_mul(usize::from(number));
                (total.saturating_sub(before), 0, 0)
            } else {
                (capacity, FLAG_NEXT, self.slots.upcoming(after))
            };
            self.unmark(slot);
            if number > 0
                && let Some(plain) = self.plain.get_mut(usize::from(slot))
            {
                // The octets that hold the header in other slots hold data here.
                *plain = false;
            }
            self.queue
                .describe(head, slot, narrow::octets(len), flags, next);
        }
        self.slots.take(count);
        self.queue.offer(head);
        PutResult::Sent
    }

    /// Reclaims buffers that the device has read: at most one burst and a half, so that no call takes long.
    #[inline(always)]
    fn reclaim(&mut self) {
        // A buffer that was not published yet cannot have been used.
        if self.fault.is_some() || self.queue.unpublished() > 0 {
            return;
        }
        let known = match self.queue.poll(1) {
            Ok(known) => known,
            Err(fault) => {
                self.fault = Some(fault);
                return;
            }
        };
        let count = known.min(RECLAIM);
        self.queue.prefetch_row(count);
        for _ in 0..count {
            self.queue.prefetch_used(narrow::slots(PREFETCH_AHEAD));
            let Some(used) = self.queue.next_used() else {
                break;
            };
            let Some(slots) = self.slots.give_back(used.id) else {
                self.fault = Some(Fault::Id(used.id));
                break;
            };
            self.queue.advance(slots);
        }
    }

    /// Prefetches the memory that a frame of `length` octets will be written to, `skip` frames ahead.
    #[inline(always)]
    fn prefetch(&self, skip: u16, length: usize) {
        let slot = self.slots.upcoming(skip);
        let length = length.min(PREFETCH_OCTETS);
        if let Some(span) = self.buffers.data(slot, length) {
            span.prefetch_write(length);
        }
    }
}

/// Maximum number of chains that a call reclaims.
const RECLAIM: u16 = narrow::slots(BURST + BURST / 2);
