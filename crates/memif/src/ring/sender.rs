// SPDX-License-Identifier: Apache-2.0
//! The sending end of a ring.

use std::sync::Arc;

use quietwire_memory::atomic::{Ordering, fence};
use quietwire_memory::{CACHE_LINE, Mapping, SlotBuffer, Span};

use super::memory::{Ring, Slot, Window};
use super::{Layout, MAX_FRAME, MAX_PIECES, RingError};
use crate::message::{Direction, RingLocation};

/// Maximum number of octets of a buffer that are prefetched.
const PREFETCH: usize = 256;

/// Result of sending a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum PutResult {
    /// The frame is in the ring; the peer sees it after [`Sender::publish`].
    Sent,
    /// The ring has too few free slots.
    Full,
    /// The frame cannot be sent: it has no octets, more than 65,535, or requires more than 64 slots, or the peer's slot is
    /// invalid.
    Bad,
}

/// The sending end of a ring: the client's of a ring from client to server, or the server's of one from server to client.
///
/// One burst is [`Self::space`], [`Self::put`] for each frame, [`Self::publish`]. [`Self::fill_each`], or [`Self::buffer`] and
/// [`Self::fill`], replace [`Self::put`] if frames are written in place.
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    /// Slots that may be filled.
    window: Window,
    /// Slots before this one are filled and published.
    published: u16,
    /// Octets of the next buffers that will be written: those of the last frame, or what [`Self::announce`] was given.
    length: usize,
    /// Interrupts were masked after the last publication, but the peer may not have observed that one.
    is_unsettled: bool,
    /// Slots of a frame that requires several.
    pieces: Vec<Slot>,
    /// At a client: a mark for each slot (see [`SlotBuffer::mark`]).
    marks: Box<[u32]>,
    /// Some marks may not be 0.
    has_marks: bool,
    errors: u64,
}

impl Sender {
    /// Returns the server's end of a ring from server to client. `regions` are the client's, by index.
    ///
    /// # Errors
    /// [`RingError`] if there is no such ring at the place.
    pub fn server(regions: &[Arc<Mapping>], place: &RingLocation) -> Result<Self, RingError> {
        let ring = Ring::server(regions, place, Direction::ServerToClient)?;
        Ok(Self::new(ring))
    }

    /// Returns the client's end of a ring from client to server, in memory that [`Layout::write`] has just written.
    ///
    /// # Errors
    /// [`RingError`] if the layout has no such ring.
    pub fn client(mapping: &Arc<Mapping>, layout: &Layout, index: u16) -> Result<Self, RingError> {
        let ring = Ring::client(mapping, layout, Direction::ClientToServer, index)?;
        Ok(Self::new(ring))
    }

    fn new(ring: Ring) -> Self {
        // A client begins with an empty ring; a server continues where the ring's previous server stopped.
        let start = if ring.buffers.is_some() {
            0
        } else {
            ring.own()
        };
        let marks = if ring.buffers.is_some() {
            usize::from(ring.size)
        } else {
            0
        };
        Self {
            marks: vec![0; marks].into_boxed_slice(),
            has_marks: false,
            window: Window::new(start),
            published: start,
            length: CACHE_LINE,
            is_unsettled: false,
            pieces: Vec::with_capacity(MAX_PIECES),
            errors: 0,
            ring,
        }
    }

    /// Returns the number of free slots, at most `most`. Reads the peer's index only if fewer than `most` are known.
    #[inline(always)]
    pub fn space(&mut self, most: usize) -> usize {
        if usize::from(self.window.left()) < most {
            self.refresh();
        }
        usize::from(self.window.left()).min(most)
    }

    #[inline(always)]
    fn refresh(&mut self) {
        let peer = self.ring.peer();
        let end = peer.wrapping_add(self.ring.lead);
        if end == self.window.end {
            return;
        }
        if !self.window.may_end_at(end, self.published, self.ring.size) {
            self.resynchronise(peer);
            return;
        }
        self.window.end = end;
        self.look_ahead();
    }

    #[inline(never)]
    fn look_ahead(&mut self) {
        let length = self.length.min(PREFETCH);
        let prefetch = |span: Span<'_>| {
            span.prefetch_write(CACHE_LINE);
            if length > CACHE_LINE {
                span.prefetch_write(length);
            }
        };
        self.ring
            .look_ahead(&mut self.window, u32::MAX, false, prefetch);
    }

    /// Resynchronises after an invalid index of the peer: forgets all slots and continues at the peer's index.
    #[cold]
    #[inline(never)]
    fn resynchronise(&mut self, peer: u16) {
        self.errors = self.errors.wrapping_add(1);
        // The next reading of the index shows a client all slots as free.
        self.window = Window::new(peer);
        self.published = peer;
        self.ring.set_own(peer);
    }

    /// Copies a frame, given in pieces, into the next free slots.
    #[inline(always)]
    pub fn put<'f>(&mut self, segments: impl Iterator<Item = &'f [u8]> + Clone) -> PutResult {
        let length = segments
            .clone()
            .fold(0_usize, |sum, segment| sum.saturating_add(segment.len()));
        if !(1..=MAX_FRAME).contains(&length) {
            return PutResult::Bad;
        }
        if self.window.is_at_mark() && !self.advance() {
            return PutResult::Full;
        }
        let slot = self.window.peek();
        if length > slot.length() as usize {
            return self.put_chain(length, segments);
        }
        let Some(space) = self.ring.regions.span(&slot) else {
            return PutResult::Bad;
        };
        copy(space, segments);
        self.finish(slot, length);
        PutResult::Sent
    }

    /// Fills the next slot, whose buffer has a frame of `length` octets.
    #[inline(always)]
    fn finish(&mut self, slot: Slot, length: usize) {
        if self.has_marks {
            self.unmark();
        }
        self.length = length;
        // A line that is not written remains in the peer's cache too.
        if let Some(word) = slot.filled(length_of(length), false) {
            self.ring.set_word(self.window.next, word);
        }
        self.window.step();
    }

    /// Forgets the mark of the next slot, whose buffer was written without regard to it.
    #[inline(never)]
    fn unmark(&mut self) {
        let index = usize::from(self.ring.slot(self.window.next));
        if let Some(mark) = self.marks.get_mut(index) {
            *mark = 0;
        }
    }

    /// Returns the buffer of the next free slot, for a frame of `length` octets. [`Self::fill`] makes it the next frame.
    ///
    /// # Errors
    /// [`PutResult::Full`] if no slot is free, [`PutResult::Bad`] if the frame does not fit into one buffer ([`Self::put`] may send it
    /// in several).
    #[inline(always)]
    pub fn buffer(&mut self, length: usize) -> Result<SlotBuffer<'_>, PutResult> {
        if self.window.is_at_mark() && !self.advance() {
            return Err(PutResult::Full);
        }
        let slot = self.window.peek();
        if length == 0 || length > slot.length() as usize {
            return Err(PutResult::Bad);
        }
        let index = usize::from(self.ring.slot(self.window.next));
        let octets = self.ring.regions.span(&slot).ok_or(PutResult::Bad)?;
        self.has_marks = true;
        Ok(SlotBuffer {
            octets,
            mark: self.marks.get_mut(index),
        })
    }

    /// Makes the first `length` octets of the buffer that [`Self::buffer`] returned the next frame.
    #[inline(always)]
    pub fn fill(&mut self, length: usize) {
        let slot = self.window.peek();
        if let Some(word) = slot.filled(length_of(length.min(MAX_FRAME)), false) {
            self.ring.set_word(self.window.next, word);
        }
        self.window.step();
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
        if !(1..=MAX_FRAME).contains(&length) {
            return 0;
        }
        self.window.widen();
        let mut filled = 0usize;
        while filled < most {
            if self.window.is_at_mark() && !self.advance() {
                break;
            }
            let row = usize::from(self.window.row()).min(most.saturating_sub(filled));
            let of_row = self.fill_row(row, length, &mut write);
            filled = filled.wrapping_add(of_row);
            if of_row < row {
                break;
            }
        }
        filled
    }

    /// Announces frames of `length` octets that are written in place. Of a buffer that keeps its frame, which a client's do, the first
    /// `changed` octets are written. As many octets of the next buffers are loaded ahead: other lines remain in the peer's cache too.
    #[inline(always)]
    pub fn announce(&mut self, length: usize, changed: usize) {
        self.length = if self.marks.is_empty() {
            length
        } else {
            changed
        };
    }

    /// Fills slots that have been read. The loop calls nothing of the ring and uses copies of its values. Frames are written to memory that
    /// could be the ring's own for all that the compiler knows, so it would load the values again for each frame.
    #[inline(always)]
    fn fill_row(
        &mut self,
        row: usize,
        length: usize,
        write: &mut impl FnMut(SlotBuffer<'_>) -> bool,
    ) -> usize {
        // Even a frame that is not sent may leave a mark.
        self.has_marks = true;
        let (places, descriptors) = (self.ring.regions.places(), self.ring.descriptors());
        let marks = &mut *self.marks;
        let mut next = self.window.next;
        let mut filled = 0usize;
        while filled < row {
            let slot = self.window.at(next);
            if length > slot.length() as usize {
                break;
            }
            let Some(octets) = places.span(&slot) else {
                break;
            };
            let index = usize::from(descriptors.slot(next));
            let mark = marks.get_mut(index);
            if !write(SlotBuffer { octets, mark }) {
                break;
            }
            // A line that is not written remains in the peer's cache too.
            if let Some(word) = slot.filled(length_of(length), false) {
                descriptors.set_word(next, word);
            }
            next = next.wrapping_add(1);
            filled = filled.wrapping_add(1);
        }
        self.window.next = next;
        filled
    }

    /// Reads the next slots; returns false if none is free.
    #[inline(never)]
    fn advance(&mut self) -> bool {
        if self.window.left() == 0 {
            self.refresh();
        } else {
            self.look_ahead();
        }
        self.window.left() > 0
    }

    /// Fills several slots.
    #[cold]
    #[inline(never)]
    fn put_chain<'f>(
        &mut self,
        length: usize,
        segments: impl Iterator<Item = &'f [u8]> + Clone,
    ) -> PutResult {
        self.pieces.clear();
        let space = self.window.peek().length().max(1) as usize;
        if usize::from(self.window.left()) < length.div_ceil(space) {
            self.refresh();
        }
        let start = self.window.next;
        let mut missing = length;
        while missing > 0 {
            let count = self.pieces.len();
            if count == MAX_PIECES || count == usize::from(self.ring.size) {
                self.window.rewind(start);
                return PutResult::Bad;
            }
            if self.window.left() == 0 {
                self.window.rewind(start);
                return PutResult::Full;
            }
            if self.window.is_at_mark() {
                self.look_ahead();
            }
            let slot = self.window.peek();
            self.window.step();
            if slot.length() == 0 {
                self.discard(start);
                return PutResult::Bad;
            }
            missing = missing.saturating_sub(slot.length() as usize);
            self.pieces.push(slot);
        }
        self.fill_pieces(segments);
        if self.has_marks {
            self.marks.fill(0);
            self.has_marks = false;
        }
        let mut missing = length;
        let mut index = start;
        for slot in &self.pieces {
            let part = missing.min(slot.length() as usize);
            missing = missing.saturating_sub(part);
            if let Some(word) = slot.filled(length_of(part), missing > 0) {
                self.ring.set_word(index, word);
            }
            index = index.wrapping_add(1);
        }
        PutResult::Sent
    }

    /// Copies a frame into `pieces`.
    fn fill_pieces<'f>(&self, segments: impl Iterator<Item = &'f [u8]>) {
        let mut pieces = self.pieces.iter();
        let mut space: Option<Span<'_>> = None;
        for mut segment in segments {
            while !segment.is_empty() {
                let Some(part) = space
                    .take()
                    .filter(|part| !part.is_empty())
                    .or_else(|| self.ring.regions.span(pieces.next()?))
                else {
                    return;
                };
                let count = part.copy_from(segment);
                segment = segment.get(count..).unwrap_or_default();
                space = Some(part.split_at(count).1);
            }
        }
    }

    /// Returns the slots from `start` on without a frame: the last of them is invalid.
    fn discard(&mut self, start: u16) {
        self.errors = self.errors.wrapping_add(1);
        let mut index = start;
        while index != self.window.next {
            self.ring.set_word(index, 0);
            index = index.wrapping_add(1);
        }
    }

    /// Makes the frames visible to the peer. Returns true if the peer wants an interrupt.
    ///
    /// A peer that unmasks interrupts at the same time can be missed: the flag is read without a barrier after the index is
    /// written, because a barrier waits until all writes have reached the cache, which costs a burst more than everything
    /// else here. [`Self::settle`] closes this gap: call it when there is nothing to send, or right after this call if
    /// another call is not certain soon.
    #[inline(always)]
    #[must_use]
    pub fn publish(&mut self) -> bool {
        if self.window.next == self.published {
            return false;
        }
        self.published = self.window.next;
        self.ring.set_own(self.window.next);
        let is_wanted = self.ring.wants_interrupts();
        self.is_unsettled = !is_wanted;
        is_wanted
    }

    /// Checks once more whether the peer wants an interrupt for the last publication. No cost if that is already known.
    ///
    /// The peer clears the flag, executes a barrier, and reads the index. This end has written the index, executes a
    /// barrier, and reads the flag. So at least one of the two sees what the other wrote: either the peer finds the frames
    /// before it sleeps, or this returns true.
    #[inline(always)]
    #[must_use]
    pub fn settle(&mut self) -> bool {
        if !self.is_unsettled {
            return false;
        }
        self.is_unsettled = false;
        fence(Ordering::SeqCst);
        self.ring.wants_interrupts()
    }

    /// Returns the number of invalid indices and slots received from the peer.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns true if a page of the memory was missing: the connection must be closed.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        self.ring.regions.have_faulted()
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn size(&self) -> u16 {
        self.ring.size
    }
}

/// Copies a frame that fits into one buffer.
#[inline(always)]
fn copy<'f>(mut space: Span<'_>, segments: impl Iterator<Item = &'f [u8]>) {
    for segment in segments {
        space.copy_from(segment);
        space = space.split_at(segment.len()).1;
    }
}

/// Converts a number of octets of a frame, which is at most [`MAX_FRAME`].
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "a frame has at most MAX_FRAME octets, which put checks"
)]
const fn length_of(octets: usize) -> u32 {
    octets as u32
}
