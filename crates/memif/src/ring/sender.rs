// SPDX-License-Identifier: Apache-2.0
//! The end of a ring that fills it with frames.

use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use quietwire_memory::{Mapping, Span};

use super::memory::{Descriptor, Ring};
use super::{Layout, MAX_PIECES, RingError};
use crate::message::{Direction, RingPlace};

/// Slots ahead of the frame that is written whose buffers the processor loads.
const AHEAD: u16 = 8;
/// How far ahead the processor loads descriptors.
const DESCRIPTORS_AHEAD: u16 = 16;
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
    /// The next slot to fill.
    next: u16,
    /// Slots before this one are filled, as the peer was told last.
    published: u16,
    /// Slots before this one may be filled, as the peer said last.
    limit: u16,
    /// Interrupts were masked after the last publication, but the peer may not have seen that one.
    is_unsettled: bool,
    /// Slots of a frame that needs several.
    pieces: Vec<Descriptor>,
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
            next: start,
            published: start,
            limit: start,
            is_unsettled: false,
            pieces: Vec::with_capacity(MAX_PIECES),
            errors: 0,
            ring,
        }
    }

    /// Returns how many slots are free, at most `most`. Reads the peer's index only if it knows of fewer than `most`.
    #[inline(always)]
    pub fn room(&mut self, most: usize) -> usize {
        if usize::from(self.limit.wrapping_sub(self.next)) < most {
            self.refresh();
        }
        usize::from(self.limit.wrapping_sub(self.next)).min(most)
    }

    #[inline(always)]
    fn refresh(&mut self) {
        let peer = self.ring.peer();
        let limit = peer.wrapping_add(self.ring.lead);
        if limit == self.limit {
            return;
        }
        let claimed = limit.wrapping_sub(self.published);
        let known = self.limit.wrapping_sub(self.published);
        if claimed > self.ring.size || claimed < known {
            self.resynchronise(peer);
            return;
        }
        self.limit = limit;
    }

    /// The peer's index makes no sense: forgets all slots, and goes on where the peer says that it is.
    #[cold]
    #[inline(never)]
    fn resynchronise(&mut self, peer: u16) {
        self.errors += 1;
        self.next = peer;
        self.published = peer;
        // A client finds all slots free when it looks again.
        self.limit = peer;
        self.ring.set_own(peer);
    }

    /// Copies a frame, given in pieces, into the next free slots.
    #[inline(always)]
    pub fn put<'f>(&mut self, segments: impl Iterator<Item = &'f [u8]> + Clone) -> Put {
        let length = segments
            .clone()
            .fold(0_usize, |sum, segment| sum.saturating_add(segment.len()));
        if !Ring::is_frame_length(length) {
            return Put::Bad;
        }
        if self.next == self.limit {
            self.refresh();
            if self.next == self.limit {
                return Put::Full;
            }
        }
        self.prefetch(length);
        let Some((buffer, word)) = self.buffer(self.next) else {
            self.discard(1);
            return Put::Bad;
        };
        let Some(room) = self.ring.regions.span(&buffer) else {
            return Put::Bad;
        };
        if length > room.len() {
            return self.put_chain(length, segments);
        }
        copy(room, segments);
        let filled = Descriptor::word(buffer.region(), length as u32, false);
        // A line that is not written stays in the peer's cache too.
        if word != filled {
            self.ring.set_word(self.next, filled);
        }
        self.next = self.next.wrapping_add(1);
        Put::Sent
    }

    /// Returns the buffer of a free slot, and the slot's first word. `None` if the peer's slot makes no sense.
    #[inline(always)]
    fn buffer(&self, index: u16) -> Option<(Descriptor, u64)> {
        if let Some(buffer) = self.ring.own_buffer(index) {
            return Some((buffer, self.ring.word(index)));
        }
        let (slot, word) = self.ring.read(index);
        Some((slot.descriptor?, word))
    }

    #[inline(always)]
    fn prefetch(&self, length: usize) {
        let free = self.limit.wrapping_sub(self.next);
        if free > DESCRIPTORS_AHEAD {
            self.ring
                .prefetch(self.next.wrapping_add(DESCRIPTORS_AHEAD));
        }
        if free > AHEAD
            && let Some((buffer, _)) = self.buffer(self.next.wrapping_add(AHEAD))
            && let Some(span) = self.ring.regions.span(&buffer)
        {
            // The next frames are taken to be as long as this one.
            span.prefetch_write(length.min(PREFETCH));
        }
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
        let mut missing = length;
        let mut count = 0_u16;
        while missing > 0 {
            if usize::from(count) == MAX_PIECES || count == self.ring.size {
                return Put::Bad;
            }
            let index = self.next.wrapping_add(count);
            if index == self.limit {
                let next = self.next;
                self.refresh();
                // A resynchronised ring begins elsewhere.
                if index == self.limit || next != self.next {
                    return Put::Full;
                }
            }
            count += 1;
            let Some((buffer, _)) = self.buffer(index) else {
                self.discard(count);
                return Put::Bad;
            };
            missing = missing.saturating_sub(buffer.length() as usize);
            self.pieces.push(buffer);
        }
        self.fill(segments);
        let mut missing = length;
        for buffer in &self.pieces {
            let part = missing.min(buffer.length() as usize);
            missing -= part;
            let filled = Descriptor::word(buffer.region(), part as u32, missing > 0);
            if self.ring.word(self.next) != filled {
                self.ring.set_word(self.next, filled);
            }
            self.next = self.next.wrapping_add(1);
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

    /// Gives slots back without a frame: among them is one that makes no sense.
    #[cold]
    #[inline(never)]
    fn discard(&mut self, count: u16) {
        self.errors += 1;
        for _ in 0..count {
            self.ring.set_word(self.next, 0);
            self.next = self.next.wrapping_add(1);
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
        if self.next == self.published {
            return false;
        }
        self.published = self.next;
        self.ring.set_own(self.next);
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
