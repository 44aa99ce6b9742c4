// SPDX-License-Identifier: Apache-2.0
//! The end of a ring that fills it with frames.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use quietwire_memory::{CACHE_LINE, Mapping, Span};

use super::memory::{Ring, Slot, Window};
use super::{Layout, MAX_FRAME, MAX_PIECES, RingError};
use crate::message::{Direction, RingPlace};

/// Octets of a buffer that are loaded ahead, at most.
const PREFETCH: usize = 256;

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// The frame is in the ring; the peer sees it after [`Sender::publish`].
    Sent,
    /// The ring has too few free slots.
    Full,
    /// The frame cannot be sent: no octets, more than 65,535, more than 64 slots, or the peer's slot is no memory.
    Bad,
}

/// The end of a ring that fills it with frames: the client's of a ring from client to server, or the server's of one from
/// server to client.
///
/// One burst is [`Self::room`], [`Self::put`] for each frame, [`Self::publish`].
#[derive(Debug)]
pub struct Sender {
    ring: Ring,
    /// Slots that may be filled.
    window: Window,
    /// Slots before this one are filled, as the peer was told last.
    published: u16,
    /// Octets of the last frame: the next ones are taken to be as long.
    length: usize,
    /// Interrupts were masked after the last publication, but the peer may not have seen that one.
    is_unsettled: bool,
    /// Slots of a frame that needs several.
    pieces: Vec<Slot>,
    errors: u64,
}

impl Sender {
    /// Returns the server's end of a ring from server to client. `regions` are the client's, by index.
    ///
    /// # Errors
    /// [`RingError`] if there is no such ring at the place.
    pub fn server(regions: &[Arc<Mapping>], place: &RingPlace) -> Result<Self, RingError> {
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
        // A client begins with an empty ring; a server goes on where the ring's last server stopped.
        let start = if ring.buffers.is_some() {
            0
        } else {
            ring.own()
        };
        Self {
            window: Window::new(start),
            published: start,
            length: CACHE_LINE,
            is_unsettled: false,
            pieces: Vec::with_capacity(MAX_PIECES),
            errors: 0,
            ring,
        }
    }

    /// Returns how many slots are free, at most `most`. Reads the peer's index only if it knows of fewer than `most`.
    #[inline(always)]
    pub fn room(&mut self, most: usize) -> usize {
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
        let claimed = end.wrapping_sub(self.published);
        let known = self.window.end.wrapping_sub(self.published);
        if claimed > self.ring.size || claimed < known {
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

    /// The peer's index makes no sense: forgets all slots, and goes on where the peer says that it is.
    #[cold]
    #[inline(never)]
    fn resynchronise(&mut self, peer: u16) {
        self.errors += 1;
        // A client finds all slots free when it looks again.
        self.window = Window::new(peer);
        self.published = peer;
        self.ring.set_own(peer);
    }

    /// Copies a frame, given in pieces, into the next free slots.
    #[inline(always)]
    pub fn put<'f>(&mut self, segments: impl Iterator<Item = &'f [u8]> + Clone) -> Put {
        let length = segments
            .clone()
            .fold(0_usize, |sum, segment| sum.saturating_add(segment.len()));
        if !(1..=MAX_FRAME).contains(&length) {
            return Put::Bad;
        }
        if self.window.is_at_mark() && !self.advance() {
            return Put::Full;
        }
        let slot = self.window.peek();
        if length > slot.length() as usize {
            return self.put_chain(length, segments);
        }
        let Some(room) = self.ring.regions.span(&slot) else {
            return Put::Bad;
        };
        copy(room, segments);
        self.length = length;
        // A line that is not written stays in the peer's cache too.
        if let Some(word) = slot.filled(length as u32, false) {
            self.ring.set_word(self.window.next, word);
        }
        self.window.step();
        Put::Sent
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
    ) -> Put {
        self.pieces.clear();
        let room = self.window.peek().length().max(1) as usize;
        if usize::from(self.window.left()) < length.div_ceil(room) {
            self.refresh();
        }
        let start = self.window.next;
        let mut missing = length;
        while missing > 0 {
            let count = self.pieces.len();
            if count == MAX_PIECES || count == usize::from(self.ring.size) {
                self.window.rewind(start);
                return Put::Bad;
            }
            if self.window.left() == 0 {
                self.window.rewind(start);
                return Put::Full;
            }
            if self.window.is_at_mark() {
                self.look_ahead();
            }
            let slot = self.window.peek();
            self.window.step();
            if slot.length() == 0 {
                self.discard(start);
                return Put::Bad;
            }
            missing = missing.saturating_sub(slot.length() as usize);
            self.pieces.push(slot);
        }
        self.fill(segments);
        let mut missing = length;
        let mut index = start;
        for slot in &self.pieces {
            let part = missing.min(slot.length() as usize);
            missing -= part;
            if let Some(word) = slot.filled(part as u32, missing > 0) {
                self.ring.set_word(index, word);
            }
            index = index.wrapping_add(1);
        }
        Put::Sent
    }

    /// Copies a frame into `pieces`.
    fn fill<'f>(&self, segments: impl Iterator<Item = &'f [u8]>) {
        let mut pieces = self.pieces.iter();
        let mut room: Option<Span<'_>> = None;
        for mut segment in segments {
            while !segment.is_empty() {
                let Some(part) = room
                    .take()
                    .filter(|part| !part.is_empty())
                    .or_else(|| self.ring.regions.span(pieces.next()?))
                else {
                    return;
                };
                let count = part.copy_from(segment);
                segment = segment.get(count..).unwrap_or_default();
                room = Some(part.split_at(count).1);
            }
        }
    }

    /// Gives slots from `start` on back without a frame: the last of them makes no sense.
    fn discard(&mut self, start: u16) {
        self.errors += 1;
        let mut index = start;
        while index != self.window.next {
            self.ring.set_word(index, 0);
            index = index.wrapping_add(1);
        }
    }

    /// Makes the frames visible to the peer. Returns true if the peer wants an interrupt.
    ///
    /// A peer that unmasks interrupts just now can be missed: the flag is read without a barrier after the index is
    /// written, because a barrier waits until all that was written has reached the cache, which costs a burst more than
    /// all else here. [`Self::settle`] makes up for it: call it when there is nothing to send, or right after this if it
    /// is not certain that there is another call soon.
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

    /// Looks again whether the peer wants an interrupt for what was published last, once. Costs nothing if that is known.
    ///
    /// The peer clears the flag, passes a barrier, and reads the index. This end has written the index, passes a barrier,
    /// and reads the flag. So one of the two sees what the other wrote: either the peer finds the frames before it sleeps,
    /// or this returns true.
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

    /// Returns how often the peer's index or a slot of the peer made no sense.
    #[must_use]
    pub fn errors(&self) -> u64 {
        self.errors
    }

    /// Returns true if a page of the memory was missing: the connection has to end.
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
fn copy<'f>(mut room: Span<'_>, segments: impl Iterator<Item = &'f [u8]>) {
    for segment in segments {
        room.copy_from(segment);
        room = room.split_at(segment.len()).1;
    }
}
