// SPDX-License-Identifier: Apache-2.0
//! The receiving end of a ring.

use std::slice;
use std::sync::Arc;

use quietwire_memory::atomic::{Ordering, fence};
use quietwire_memory::{CACHE_LINE, Mapping, Span};

use super::descriptor::filled;
use super::memory::{Regions, Ring, Slot, Window};
use super::{LONGEST, Layout, MAX_PIECES, RingError};
use crate::message::{Direction, RingLocation};

/// Octets of a buffer that are prefetched; the hardware prefetcher loads the rest of longer frames.
const PREFETCH: usize = 256;
/// Slots that are returned together: the peer's processor then loads a line of descriptors or the index less often.
const BATCH: u16 = 32;
/// Maximum number of slots that a client returns in one call.
const MOST_BACK: u16 = 256;

/// Contents of the next slots.
#[derive(Debug)]
pub enum Received<'a> {
    /// A frame.
    Frame(Frame<'a>),
    /// Descriptors that form no valid frame: outside the memory, without octets, too many, too long, or without an end.
    Bad,
}

/// A frame in shared memory. The peer can still write to it: copy it before parsing it.
#[derive(Debug)]
pub struct Frame<'a> {
    /// Octets of all pieces: 1 to 65,535.
    pub length: u32,
    /// The first piece. Most frames have no other.
    pub first: Span<'a>,
    /// The other pieces.
    pub rest: Pieces<'a>,
}

/// Pieces of a frame.
#[derive(Clone, Debug)]
pub struct Pieces<'a> {
    regions: &'a Regions,
    slots: slice::Iter<'a, Slot>,
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Span<'a>;

    #[inline(always)]
    fn next(&mut self) -> Option<Span<'a>> {
        self.regions.span(self.slots.next()?)
    }

    #[inline(always)]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.slots.size_hint()
    }
}

impl ExactSizeIterator for Pieces<'_> {}

/// The receiving end of a ring: the server's of a ring from client to server, or the client's of one from server to client.
///
/// One burst is [`Self::ready`], [`Self::take_contiguous`] for frames in one slot and [`Self::next`] for each other frame,
/// [`Self::release`].
#[derive(Debug)]
pub struct Receiver {
    ring: Ring,
    /// Slots that the peer has filled.
    window: Window,
    /// Slots before this one have been returned.
    released: u16,
    /// Slots to return together.
    batch: u16,
    /// Pieces of the last chain but its first.
    pieces: Vec<Slot>,
    errors: u64,
}

impl Receiver {
    /// Returns the server's end of a ring from client to server. `regions` are the client's, by index.
    ///
    /// # Errors
    /// [`RingError`] if there is no such ring at the place.
    pub fn server(regions: &[Arc<Mapping>], place: &RingLocation) -> Result<Self, RingError> {
        let ring = Ring::server(regions, place, Direction::ClientToServer)?;
        Ok(Self::new(ring))
    }

    /// Returns the client's end of a ring from server to client, in memory that [`Layout::write`] has just written.
    ///
    /// # Errors
    /// [`RingError`] if the layout has no such ring.
    pub fn client(mapping: &Arc<Mapping>, layout: &Layout, index: u16) -> Result<Self, RingError> {
        let ring = Ring::client(mapping, layout, Direction::ServerToClient, index)?;
        Ok(Self::new(ring))
    }

    fn new(ring: Ring) -> Self {
        // A client has offered all slots; a server continues where the ring's previous server stopped.
        let start = if ring.buffers.is_some() {
            0
        } else {
            ring.own()
        };
        Self {
            window: Window::new(start),
            released: start,
            batch: BATCH.min(ring.size / 4).max(1),
            pieces: Vec::with_capacity(MAX_PIECES),
            errors: 0,
            ring,
        }
    }

    /// Returns the number of filled slots, at most `most`: at least the number of frames. Reads the peer's index only if
    /// fewer than `most` are known.
    #[inline(always)]
    pub fn ready(&mut self, most: usize) -> usize {
        if usize::from(self.window.left()) < most {
            self.refresh();
            if self.window.left() == 0 && self.released != self.window.next {
                // Nothing else to do, and the peer may be waiting for these slots.
                self.give_back();
            }
        }
        usize::from(self.window.left()).min(most)
    }

    #[inline(always)]
    fn refresh(&mut self) {
        let peer = self.ring.peer();
        if peer == self.window.end {
            return;
        }
        if !self.window.may_end_at(peer, self.released, self.ring.size) {
            self.resynchronise(peer);
            return;
        }
        self.window.end = peer;
        self.look_ahead();
    }

    /// Resynchronises after an invalid index of the peer: forgets all slots and continues at the peer's index.
    #[cold]
    #[inline(never)]
    fn resynchronise(&mut self, peer: u16) {
        self.errors = self.errors.wrapping_add(1);
        self.window = Window::new(peer);
        // A client reclaims all slots and offers them again step by step.
        self.released = peer.wrapping_sub(self.ring.lead);
        self.ring.set_own(peer);
    }

    #[inline(never)]
    fn look_ahead(&mut self) {
        let prefetch = |span: Span<'_>| {
            span.prefetch(CACHE_LINE);
            if span.len() > CACHE_LINE {
                span.prefetch(PREFETCH);
            }
        };
        let longest = LONGEST;
        self.ring
            .look_ahead(&mut self.window, longest, true, prefetch);
    }

    /// Takes the next slot; `None` if no filled slot is known.
    #[inline(always)]
    fn take(&mut self) -> Option<Slot> {
        if self.window.is_at_mark() {
            if self.window.left() == 0 {
                return None;
            }
            self.look_ahead();
        }
        let slot = self.window.peek();
        self.window.step();
        Some(slot)
    }

    /// Calls `take` with each next frame, at most `most`, up to the first that does not lie in one slot, as most frames do (see
    /// [`Self::next`]). Returns their number.
    #[inline(always)]
    pub fn take_contiguous(&mut self, most: usize, mut take: impl FnMut(Span<'_>)) -> usize {
        self.take_rows(
            most,
            #[inline(always)]
            |frame| {
                take(frame);
                true
            },
        )
    }

    /// As [`Self::take_contiguous`], but ends at a frame for which `take` returns false, too. That frame is not taken. For an end that
    /// handles frames in place: it reads further ahead.
    #[inline(always)]
    pub fn take_while(&mut self, most: usize, take: impl FnMut(Span<'_>) -> bool) -> usize {
        self.window.widen();
        self.take_rows(most, take)
    }

    #[inline(always)]
    fn take_rows(&mut self, most: usize, mut take: impl FnMut(Span<'_>) -> bool) -> usize {
        let mut taken = 0usize;
        while taken < most {
            if self.window.is_at_mark() {
                if self.window.left() == 0 {
                    break;
                }
                self.look_ahead();
            }
            let row = usize::from(self.window.row()).min(most.saturating_sub(taken));
            let of_row = self.take_row(row, &mut take);
            taken = taken.wrapping_add(of_row);
            if of_row < row {
                break;
            }
        }
        taken
    }

    /// Takes frames of slots that have been read. The loop calls nothing of the ring and uses copies of its values, so that they stay in
    /// registers.
    #[inline(always)]
    fn take_row(&mut self, row: usize, take: &mut impl FnMut(Span<'_>) -> bool) -> usize {
        let places = self.ring.regions.places();
        let mut next = self.window.next;
        let mut taken = 0usize;
        while taken < row {
            let slot = self.window.at(next);
            if slot.has_next() || slot.length() == 0 {
                break;
            }
            let Some(span) = places.span(&slot) else {
                break;
            };
            if !take(span) {
                break;
            }
            next = next.wrapping_add(1);
            taken = taken.wrapping_add(1);
        }
        self.window.next = next;
        taken
    }

    /// Takes the next frame; `None` if no filled slot is known (see [`Self::ready`]).
    #[inline(always)]
    #[allow(clippy::should_implement_trait)] // The frame borrows the receiver.
    pub fn next(&mut self) -> Option<Received<'_>> {
        let slot = self.take()?;
        if slot.has_next() {
            return Some(self.chain(slot));
        }
        Some(self.frame(slot, slot.length(), &[]))
    }

    #[inline(always)]
    fn frame<'a>(&'a self, first: Slot, length: u32, rest: &'a [Slot]) -> Received<'a> {
        let first = match self.ring.regions.span(&first) {
            Some(first) if !first.is_empty() => first,
            _ => return Received::Bad,
        };
        Received::Frame(Frame {
            length,
            first,
            rest: Pieces {
                regions: &self.ring.regions,
                slots: rest.iter(),
            },
        })
    }

    /// Takes the rest of a frame of several slots, up to the number of filled slots. Takes all slots of a bad chain.
    #[cold]
    #[inline(never)]
    fn chain(&mut self, first: Slot) -> Received<'_> {
        self.pieces.clear();
        let mut length = first.length();
        let mut is_good = length > 0;
        let mut last = first;
        while last.has_next() {
            let Some(slot) = self.take() else {
                // The chain continues beyond the filled slots.
                is_good = false;
                break;
            };
            last = slot;
            length = length.saturating_add(slot.length());
            is_good &= slot.length() > 0 && length <= LONGEST && self.pieces.len() < MAX_PIECES - 1;
            if is_good {
                self.pieces.push(slot);
            }
        }
        if !is_good {
            return Received::Bad;
        }
        self.frame(first, length, &self.pieces)
    }

    /// Returns the slots of consumed frames to the peer, in batches.
    #[inline(always)]
    pub fn release(&mut self) {
        if self.window.next.wrapping_sub(self.released) >= self.batch {
            self.give_back();
        }
    }

    #[inline(never)]
    fn give_back(&mut self) {
        let mut end = self.window.next;
        if let Some(buffers) = self.ring.buffers {
            let count = self.window.next.wrapping_sub(self.released).min(MOST_BACK);
            end = self.released.wrapping_add(count);
            let empty = filled(buffers.region, buffers.size, false);
            for offset in 0..count {
                let index = self.released.wrapping_add(offset);
                // A line that is not written remains in the peer's cache too.
                if self.ring.word(index) != empty {
                    self.ring.set_word(index, empty);
                }
            }
        }
        self.released = end;
        self.ring.set_own(end.wrapping_add(self.ring.lead));
    }

    /// Offers the buffers of all empty slots. Only for a client, once the server has connected: some servers set the indices
    /// of a ring to 0 when they connect.
    pub fn offer(&mut self) {
        self.ring
            .set_own(self.released.wrapping_add(self.ring.lead));
    }

    /// Masks interrupts: this end polls.
    pub fn mask_interrupts(&mut self) {
        self.ring.mask_interrupts(true);
    }

    /// Unmasks interrupts: the peer sends one when it has filled slots. Returns true if slots were filled in the meantime,
    /// for which no interrupt may arrive.
    #[must_use]
    pub fn unmask_interrupts(&mut self) -> bool {
        self.ring.mask_interrupts(false);
        // Either the peer sees the flag after writing its index (Sender::settle), or this end sees that index.
        fence(Ordering::SeqCst);
        self.ready(1) > 0
    }

    /// Returns the number of invalid indices received from the peer.
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
