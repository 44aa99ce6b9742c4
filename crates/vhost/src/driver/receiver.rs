// SPDX-License-Identifier: Apache-2.0
//! Receive queue: the device writes frames to our buffers.

use std::sync::Arc;

use quietwire_memory::atomic::AtomicU8;
use quietwire_memory::{Mapping, SharedSlice, Span};

use super::buffers::{BufferView, Buffers};
use super::layout::Layout;
use super::queue::{Fault, Queue, SetupError, prepare};
use super::{BURST, PREFETCH_AHEAD};
use crate::features::{
    F_EVENT_IDX, NET_F_GUEST_CSUM, NET_F_GUEST_ECN, NET_F_GUEST_TSO4, NET_F_GUEST_TSO6,
    NET_F_GUEST_UFO, NET_F_GUEST_USO4, NET_F_GUEST_USO6, NET_F_MRG_RXBUF,
};
use crate::narrow;
use crate::ring::header::{HEADER_LEN, RawHeader};
use crate::ring::layout::FLAG_WRITE;

/// Largest number of buffers of a frame.
pub const PIECES_MAX: usize = BURST;
/// Consumed buffers that justify a write to the ring.
const BATCH: u16 = 32;
/// Features with which a field of the header means something to the driver (section 5.1.6.4).
const WITH_HEADER: u64 = NET_F_MRG_RXBUF
    | NET_F_GUEST_CSUM
    | NET_F_GUEST_TSO4
    | NET_F_GUEST_TSO6
    | NET_F_GUEST_ECN
    | NET_F_GUEST_UFO
    | NET_F_GUEST_USO4
    | NET_F_GUEST_USO6;
/// Ring size from which on consumed buffers are returned in batches: the device then always has enough for the longest
/// frame.
const BATCH_FROM: u16 = BATCH + narrow::slots(PIECES_MAX);

/// Frame, or a buffer that holds none.
#[derive(Debug)]
pub enum Received<'queue> {
    /// A frame.
    Frame(Frame<'queue>),
    /// The returned buffers form no valid frame: the length is out of range, or there are too many buffers.
    Bad,
}

/// Frame in buffers that the device wrote. The buffers return to the device some time after the frame is dropped.
///
/// The device can still write to them: two copies of an octet may differ.
#[derive(Debug)]
pub struct Frame<'queue> {
    /// Header, as the device wrote it; [`RawHeader::PLAIN`] if no negotiated feature uses it.
    pub header: RawHeader,
    /// Octets in the first buffer: at least one.
    pub first: Span<'queue>,
    /// Octets in further buffers.
    pub rest: Rest<'queue>,
    /// Octets in all buffers.
    pub length: u32,
}

/// Further octets of a frame, one span for each buffer.
#[derive(Clone, Debug)]
pub struct Rest<'queue> {
    buffers: &'queue SharedSlice<AtomicU8>,
    pieces: &'queue [Piece],
}

impl<'queue> Iterator for Rest<'queue> {
    type Item = Span<'queue>;

    #[inline(always)]
    fn next(&mut self) -> Option<Span<'queue>> {
        let (piece, rest) = self.pieces.split_first()?;
        self.pieces = rest;
        self.buffers.span(piece.offset, piece.len)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.pieces.len(), Some(self.pieces.len()))
    }
}

impl ExactSizeIterator for Rest<'_> {}

/// Octets of a buffer that were checked.
#[derive(Clone, Copy, Debug, Default)]
struct Piece {
    offset: u64,
    len: usize,
}

/// Used buffer whose slot is checked and whose length is not.
#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    slot: u16,
    len: u32,
}

impl Entry {
    /// Returns the header in the buffer, or [`RawHeader::PLAIN`] if no feature uses it.
    #[inline(always)]
    fn header(self, buffers: BufferView<'_>, has_header: bool) -> Option<RawHeader> {
        if !has_header {
            return Some(RawHeader::PLAIN);
        }
        Some(RawHeader::new(&buffers.header(self.slot)?.read_array()?))
    }

    /// Returns the octets of the frame with this header if it lies in this buffer, which has space for `capacity` octets.
    #[inline(always)]
    fn contiguous_length(
        self,
        header: RawHeader,
        mergeable: bool,
        capacity: usize,
    ) -> Option<usize> {
        let len = self.len as usize;
        let is_contiguous =
            (!mergeable || header.num_buffers() == 1) && len > HEADER_LEN && len <= capacity;
        is_contiguous.then(|| len.wrapping_sub(HEADER_LEN))
    }
}

/// Receive queue on a ring of either kind.
#[derive(Debug)]
pub struct Receiver<Q> {
    queue: Q,
    buffers: Buffers,
    /// Whether the device has a slot's buffer.
    lent: Box<[bool]>,
    /// Used buffers that were read from the ring. Those from `at` up to `count` were not processed yet.
    entries: [Entry; BURST],
    at: usize,
    count: usize,
    /// Number of buffers of the next frame, if some of them were missing at the last check.
    wanted: usize,
    pieces: [Piece; PIECES_MAX],
    mergeable: bool,
    /// False if no negotiated feature uses the header. Then it is not read: its cache line, which is not that of the frame, stays with the
    /// device.
    has_header: bool,
    batch: u16,
    fault: Option<Fault>,
}

impl<Q: Queue> Receiver<Q> {
    /// Clears the ring of queue `index`, an even number, and offers all buffers to the device, which must not run yet.
    /// `features` are the negotiated ones.
    ///
    /// # Errors
    /// [`SetupError`]: layout, features and kind of ring do not match.
    pub fn new(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        index: u32,
        features: u64,
    ) -> Result<Self, SetupError> {
        let queue = prepare::<Q>(mapping, layout, index, false, features)?;
        let buffers = Buffers::new(mapping, &queue).ok_or(SetupError::Memory(index))?;
        let event_index = features & F_EVENT_IDX != 0;
        let ring = Q::new(mapping, &queue, event_index, |slot| buffers.address(slot))
            .ok_or(SetupError::Memory(index))?;
        let mut receiver = Self {
            queue: ring,
            buffers,
            lent: vec![false; usize::from(queue.size)].into(),
            entries: [Entry::default(); BURST],
            at: 0,
            count: 0,
            wanted: 1,
            pieces: [Piece::default(); PIECES_MAX],
            mergeable: features & NET_F_MRG_RXBUF != 0,
            has_header: features & WITH_HEADER != 0,
            batch: if queue.size < BATCH_FROM { 1 } else { BATCH },
            fault: None,
        };
        let capacity = narrow::octets(receiver.buffers.capacity());
        for slot in 0..queue.size {
            receiver.queue.describe(slot, slot, capacity, FLAG_WRITE, 0);
            receiver.queue.offer(slot);
        }
        receiver.release();
        Ok(receiver)
    }

    /// Returns the number of buffers that [`Self::next`] can take now: at most `most`, and at most 64. A frame has at least
    /// one.
    #[inline(always)]
    pub fn ready(&mut self, most: usize) -> usize {
        let mut left = self.left();
        if left < self.wanted {
            self.load();
            left = self.left();
            if left < self.wanted {
                return 0;
            }
        }
        left.min(most)
    }

    /// Returns the number of used buffers that were not processed yet.
    #[inline(always)]
    fn left(&self) -> usize {
        self.count.saturating_sub(self.at)
    }

    /// Returns the next buffer and the header in it, or [`RawHeader::PLAIN`] if no feature uses it, and asks the processor to load a later
    /// one.
    #[inline(always)]
    fn peek(&self) -> Option<(Entry, RawHeader)> {
        if self.at == self.count {
            return None;
        }
        let entry = *self.entries.get(self.at)?;
        self.prefetch(self.at.wrapping_add(PREFETCH_AHEAD));
        let header = entry.header(self.buffers.view(), self.has_header)?;
        Some((entry, header))
    }

    /// Returns the octets and the header of the next frame, if it lies in one of the buffers that [`Self::ready`] counted,
    /// as most frames do. Otherwise takes nothing: see [`Self::next`].
    #[inline(always)]
    pub fn next_contiguous(&mut self) -> Option<(Span<'_>, RawHeader)> {
        let (entry, length, header) = self.peek_contiguous()?;
        self.pass(entry.slot);
        Some((self.buffers.data(entry.slot, length)?, header))
    }

    /// Calls `take` with the octets and the header of each next frame, at most `most`, up to the first that [`Self::next_contiguous`]
    /// does not return, or for which `take` returns false. That frame is not taken. Returns their number.
    #[inline(always)]
    pub fn take_while(
        &mut self,
        most: usize,
        mut take: impl FnMut(Span<'_>, RawHeader) -> bool,
    ) -> usize {
        let (mergeable, has_header) = (self.mergeable, self.has_header);
        // Copies: the reader writes to memory that could be the ring's own for all that the compiler knows.
        let buffers = self.buffers.view();
        let entries = self.entries.get(self.at..self.count).unwrap_or_default();
        let ahead = entries.get(PREFETCH_AHEAD..).unwrap_or_default();
        let mut ahead = ahead.iter();
        let mut taken = 0_usize;
        for entry in entries.iter().take(most) {
            if let Some(next) = ahead.next() {
                buffers.prefetch(next.slot, next.len as usize, has_header);
            }
            let Some(header) = entry.header(buffers, has_header) else {
                break;
            };
            let length = entry.contiguous_length(header, mergeable, buffers.capacity());
            let Some(frame) = length.and_then(|length| buffers.data(entry.slot, length)) else {
                break;
            };
            if !take(frame, header) {
                break;
            }
            taken = taken.wrapping_add(1);
        }
        let capacity = narrow::octets(self.buffers.capacity());
        for entry in entries.iter().take(taken) {
            self.queue.offer_again(entry.slot, capacity, FLAG_WRITE);
        }
        self.at = self.at.wrapping_add(taken);
        taken
    }

    /// Returns the next buffer with the octets of its frame and the header in it, if the frame lies in this buffer.
    #[inline(always)]
    fn peek_contiguous(&self) -> Option<(Entry, usize, RawHeader)> {
        let (entry, header) = self.peek()?;
        let capacity = self.buffers.capacity();
        let length = entry.contiguous_length(header, self.mergeable, capacity)?;
        Some((entry, length, header))
    }

    /// Returns the next of the buffers that [`Self::ready`] counted, with the others of the same frame. `None` at the end,
    /// and if the device has not returned all buffers of a frame yet.
    #[inline(always)]
    #[allow(clippy::should_implement_trait)] // The frame borrows the queue.
    pub fn next(&mut self) -> Option<Received<'_>> {
        let (entry, header) = self.peek()?;
        let len = entry.len as usize;
        if self.mergeable && header.num_buffers() != 1 {
            return self.merge(header);
        }
        self.pass(entry.slot);
        if len <= HEADER_LEN || len > self.buffers.capacity() {
            return Some(Received::Bad);
        }
        let length = len.wrapping_sub(HEADER_LEN);
        Some(Received::Frame(Frame {
            header,
            first: self.buffers.data(entry.slot, length)?,
            rest: Rest {
                buffers: self.buffers.octets(),
                pieces: &[],
            },
            length: narrow::octets(length),
        }))
    }

    /// Offers the consumed buffers to the device again once a batch is complete. Returns true if the device is known to want a
    /// notification. One that requests it at the same time can be missed: call [`Self::settle`] when [`Self::ready`] finds nothing.
    #[inline(always)]
    pub fn release(&mut self) -> bool {
        let count = self.queue.unpublished();
        if count < self.batch {
            return false;
        }
        for at in 0..count {
            let slot = self.queue.offered(at);
            if let Some(lent) = self.lent.get_mut(usize::from(slot)) {
                *lent = true;
            }
        }
        self.queue.publish()
    }

    /// Checks once more whether the device wants a notification of the buffers that were offered. No cost if that is already known.
    #[inline(always)]
    pub fn settle(&mut self) -> bool {
        self.queue.settle()
    }

    /// Returns the fault of the device, if any. From then on the queue receives nothing.
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

    /// Returns true if each buffer is in exactly one place: with the device, among those to be processed, or among those to
    /// be offered next. For tests.
    #[doc(hidden)]
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let mut places: Vec<usize> = self.lent.iter().map(|lent| usize::from(*lent)).collect();
        let entries = self.entries.get(self.at..self.count).unwrap_or_default();
        let offered = (0..self.queue.unpublished()).map(|at| self.queue.offered(at));
        for slot in entries.iter().map(|entry| entry.slot).chain(offered) {
            if let Some(place) = places.get_mut(usize::from(slot)) {
                *place = place.saturating_add(1);
            }
        }
        places.iter().all(|place| *place == 1)
    }

    /// Steps over the next entry, whose buffer is in `slot`, and offers the buffer again.
    #[inline(always)]
    fn pass(&mut self, slot: u16) {
        self.at = self.at.wrapping_add(1);
        self.offer(slot);
    }

    /// Appends a slot's buffer to those that are offered next.
    #[inline(always)]
    fn offer(&mut self, slot: u16) {
        let capacity = narrow::octets(self.buffers.capacity());
        self.queue.offer_again(slot, capacity, FLAG_WRITE);
    }

    /// Reads used buffers from the ring, as many as fit after the remaining ones.
    #[inline(always)]
    fn load(&mut self) {
        if self.fault.is_some() {
            return;
        }
        let left = self.left();
        self.entries.copy_within(self.at..self.count, 0);
        (self.at, self.count) = (0, left);
        let known = match self.queue.poll(narrow::slots(BURST)) {
            Ok(known) => known,
            Err(fault) => {
                self.fault = Some(fault);
                return;
            }
        };
        let end = BURST.min(left.saturating_add(usize::from(known)));
        self.queue
            .prefetch_row(narrow::slots(end.saturating_sub(left)));
        while self.count < end {
            let Some(used) = self.queue.next_used() else {
                break;
            };
            let lent = usize::try_from(used.id)
                .ok()
                .and_then(|id| self.lent.get_mut(id));
            let Some(lent) = lent.filter(|lent| **lent) else {
                self.fault = Some(Fault::Id(used.id));
                break;
            };
            *lent = false;
            self.queue.advance(1);
            if let Some(entry) = self.entries.get_mut(self.count) {
                *entry = Entry {
                    slot: narrow::low_u16(used.id.into()),
                    len: used.len,
                };
            }
            self.count = self.count.wrapping_add(1);
        }
        for at in left..PREFETCH_AHEAD {
            self.prefetch(at);
        }
    }

    /// Prefetches the buffer of an entry.
    #[inline(always)]
    fn prefetch(&self, at: usize) {
        if at >= self.count {
            return;
        }
        if let Some(entry) = self.entries.get(at) {
            let len = entry.len as usize;
            self.buffers
                .view()
                .prefetch(entry.slot, len, self.has_header);
        }
    }

    /// Returns a frame whose header states another number of buffers than one.
    #[cold]
    fn merge(&mut self, header: RawHeader) -> Option<Received<'_>> {
        let wanted = usize::from(header.num_buffers());
        if self.left() < wanted && wanted <= PIECES_MAX {
            self.load();
        }
        let left = self.left();
        let possible = left.saturating_add(self.outstanding());
        if left < wanted && wanted <= PIECES_MAX && wanted <= possible {
            // The device marks all buffers of a frame as used at once (section 5.1.6.4). If a device does not, the frame is
            // not lost: nothing is consumed.
            self.wanted = wanted;
            return None;
        }
        self.wanted = 1;
        if wanted == 0 || wanted > left {
            // There is no such frame: only this buffer is consumed.
            self.consume();
            return Some(Received::Bad);
        }
        let mut is_bad = false;
        let mut length = 0_usize;
        for number in 0..wanted {
            let entry = self.consume()?;
            let (len, before) = (entry.len as usize, if number == 0 { HEADER_LEN } else { 0 });
            is_bad |= len <= before || len > self.buffers.capacity();
            let offset = self.buffers.offset(entry.slot);
            let piece = Piece {
                offset: offset.saturating_add(before as u64),
                len: len.saturating_sub(before),
            };
            length = length.saturating_add(piece.len);
            *self.pieces.get_mut(number)? = piece;
        }
        if is_bad {
            return Some(Received::Bad);
        }
        let mut all = Rest {
            buffers: self.buffers.octets(),
            pieces: self.pieces.get(..wanted)?,
        };
        let first = all.next()?;
        Some(Received::Frame(Frame {
            header,
            first,
            rest: all,
            length: narrow::octets(length),
        }))
    }

    /// Consumes the next entry.
    fn consume(&mut self) -> Option<Entry> {
        let entry = *self.entries.get(self.at)?;
        self.pass(entry.slot);
        Some(entry)
    }

    /// Returns the number of buffers that the device has.
    fn outstanding(&self) -> usize {
        let unpublished = usize::from(self.queue.unpublished());
        let available = self.lent.len().saturating_sub(self.left());
        available.saturating_sub(unpublished)
    }
}
