// SPDX-License-Identifier: Apache-2.0
//! Parts common to both ends of a ring: shared words, regions, checked descriptors.

use std::sync::Arc;

use quietwire_memory::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};
use quietwire_memory::{Mapping, SharedSlice, Span};

use super::descriptor::{Buffers, filled};
use super::{COOKIE, HEADER, HEADER_WORDS, Layout, RingError};
use crate::message::{Direction, MAX_LOG2_RING_SIZE, RingLocation};

/// Indices of 16-bit words in a ring.
const FLAGS: usize = 2;
const HEAD: usize = 3;
const TAIL: usize = 32;
/// Ring flag: the receiver polls and requires no interrupts.
const MASK_INTERRUPTS: u16 = 1;
/// Descriptor flag: the frame continues in the next descriptor.
const NEXT: u64 = 1;

/// Maximum number of slots that are read, and whose buffers are prefetched, ahead of the current frame. A power of two.
const WINDOW: u16 = 32;
/// As [`WINDOW`], at an end that copies frames. With 4 queues, 32 slots ahead and descriptors that are requested for writing cost such an
/// end a tenth more cycles per frame.
const WINDOW_OF_COPIES: u16 = 16;
/// Slots of a cache line of descriptors.
const SLOTS_PER_LINE: u16 = 4;

/// The memory that a client shares.
#[derive(Debug)]
pub(super) struct Regions(Box<[SharedSlice<AtomicU8>]>);

impl Regions {
    #[inline(always)]
    pub(super) fn span(&self, slot: &Slot) -> Option<Span<'_>> {
        let region = self.0.get(usize::from(slot.region()))?;
        region.span(slot.offset().into(), slot.length() as usize)
    }

    /// Returns the regions for a loop over slots.
    #[inline(always)]
    pub(super) fn places(&self) -> Places<'_> {
        Places {
            regions: self,
            first: self.whole(0),
        }
    }

    /// Returns all octets of a region, or none if there is no such region.
    #[inline(always)]
    fn whole(&self, region: u16) -> Span<'_> {
        let region = self.0.get(usize::from(region));
        let whole = region.and_then(|region| region.span(0, region.len()));
        whole.unwrap_or(Span::EMPTY)
    }

    pub(super) fn have_faulted(&self) -> bool {
        self.0.iter().any(|region| region.mapping().has_faulted())
    }
}

/// The regions of a client, with the place of the first: most clients have no other, and a loop over slots keeps it in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'ring> {
    regions: &'ring Regions,
    first: Span<'ring>,
}

impl<'ring> Places<'ring> {
    /// As [`Regions::span`].
    #[inline(always)]
    pub(super) fn span(&self, slot: &Slot) -> Option<Span<'ring>> {
        if slot.region() == 0 {
            return self
                .first
                .sub(slot.offset() as usize, slot.length() as usize);
        }
        self.regions.span(slot)
    }
}

/// A slot of a ring, read once. Only [`Slot::checked`] and [`Slot::own`] make slots with octets.
///
/// Two words, which the compiler keeps in registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// The first word of the descriptor: flags, region, length.
    word: u64,
    /// The offset, and in the upper half the number of octets within the region: 0 if the descriptor is invalid.
    place: u64,
}

impl Slot {
    const EMPTY: Self = Self { word: 0, place: 0 };

    /// Returns a slot whose octets are within their region; without octets if they are not, or exceed `longest`.
    #[inline(always)]
    fn checked(
        regions: &Regions,
        word: u64,
        offset: u32,
        length: u32,
        longest: u32,
    ) -> (Self, Option<Span<'_>>) {
        let slot = Self {
            word,
            place: u64::from(offset) | (u64::from(length) << 32),
        };
        if length <= longest
            && let Some(span) = regions.span(&slot)
        {
            return (slot, Some(span));
        }
        (Self { word, place: 0 }, None)
    }

    /// Returns a slot at an offset that the client chose; without octets if they exceed `longest`.
    #[inline(always)]
    fn own(word: u64, offset: u32, length: u32, longest: u32) -> Self {
        let length = if length <= longest { length } else { 0 };
        Self {
            word,
            place: u64::from(offset) | (u64::from(length) << 32),
        }
    }

    #[inline(always)]
    pub(super) fn length(&self) -> u32 {
        halves(self.place).1
    }

    #[inline(always)]
    fn offset(&self) -> u32 {
        halves(self.place).0
    }

    #[inline(always)]
    fn region(&self) -> u16 {
        let [_, _, low, high, ..] = self.word.to_le_bytes();
        u16::from_le_bytes([low, high])
    }

    #[inline(always)]
    pub(super) fn has_next(&self) -> bool {
        self.word & NEXT != 0
    }

    /// Returns the first word of the descriptor for a frame, or `None` if the descriptor has this value already.
    #[inline(always)]
    pub(super) fn filled(&self, length: u32, has_next: bool) -> Option<u64> {
        let word = filled(self.region(), length, has_next);
        (word != self.word).then_some(word)
    }
}

/// The slots that one end may handle, and which of them it has read.
#[derive(Debug)]
pub(super) struct Window {
    /// Slots from `next` to `read`, by the lowest bits of their index. An end that copies frames uses the first half, so that fewer cache
    /// lines are loaded.
    slots: [Slot; WINDOW as usize],
    /// The next slot to handle.
    pub(super) next: u16,
    read: u16,
    /// The slot before which further slots must be read: `end`, or a chunk before `read`.
    mark: u16,
    /// Slots that are read at a time, half of those that are read ahead.
    chunk: u16,
    /// The bits of an index that are its place in `slots`.
    mask: u16,
    /// End of the slots that this end may handle, by the last index read from the peer.
    pub(super) end: u16,
}

impl Window {
    /// Returns a window without slots.
    pub(super) fn new(start: u16) -> Self {
        Self {
            slots: [Slot::EMPTY; WINDOW as usize],
            next: start,
            read: start,
            mark: start,
            chunk: WINDOW_OF_COPIES / 2,
            mask: WINDOW_OF_COPIES - 1,
            end: start,
        }
    }

    /// Reads as far ahead as possible, for an end that handles frames in place, in loops over slots that have been read.
    #[inline(always)]
    pub(super) fn widen(&mut self) {
        if !self.is_wide() {
            self.chunk = WINDOW / 2;
            self.mask = WINDOW - 1;
            // Slots that have been read are in other places now.
            self.rewind(self.next);
        }
    }

    /// Returns true after [`Self::widen`].
    #[inline(always)]
    fn is_wide(&self) -> bool {
        self.chunk == WINDOW / 2
    }

    /// Returns the number of slots to handle.
    #[inline(always)]
    pub(super) fn left(&self) -> u16 {
        self.end.wrapping_sub(self.next)
    }

    /// Returns true if the peer may have moved the end of the slots to `end`: not back, and at most `size` slots past `first`, the first
    /// slot that this end has not returned.
    #[inline(always)]
    pub(super) fn may_end_at(&self, end: u16, first: u16, size: u16) -> bool {
        let claimed = end.wrapping_sub(first);
        let known = self.end.wrapping_sub(first);
        known <= claimed && claimed <= size
    }

    /// Returns true if [`Ring::look_ahead`] must be called before the next slot.
    #[inline(always)]
    pub(super) fn is_at_mark(&self) -> bool {
        self.next == self.mark
    }

    /// Returns the next slot, which has been read.
    #[inline(always)]
    pub(super) fn peek(&self) -> Slot {
        self.at(self.next)
    }

    /// Returns a slot that has been read: the next one or one of [`Self::row`].
    #[inline(always)]
    pub(super) fn at(&self, index: u16) -> Slot {
        // The compiler removes the check: the index is always below WINDOW.
        let slot = self.slots.get(usize::from(index & (self.mask % WINDOW)));
        slot.copied().unwrap_or(Slot::EMPTY)
    }

    /// Notes a slot that has been read.
    #[inline(always)]
    fn put(&mut self, index: u16, slot: Slot) {
        // The compiler removes the check: the index is always below WINDOW.
        if let Some(place) = self
            .slots
            .get_mut(usize::from(index & (self.mask % WINDOW)))
        {
            *place = slot;
        }
    }

    /// Returns the number of slots from the next one on before [`Ring::look_ahead`] must be called.
    #[inline(always)]
    pub(super) fn row(&self) -> u16 {
        self.mark.wrapping_sub(self.next)
    }

    /// Returns to a slot. It and those after it are read again.
    pub(super) fn rewind(&mut self, next: u16) {
        self.next = next;
        self.read = next;
        self.mark = next;
    }

    /// Advances to the next slot.
    #[inline(always)]
    pub(super) fn step(&mut self) {
        self.next = self.next.wrapping_add(1);
    }
}

/// The descriptors of a ring, for a loop over slots.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptors<'ring> {
    /// Two words each.
    words: &'ring [AtomicU64],
    /// The number of descriptors, a power of two, minus 1.
    mask: u16,
}

impl<'ring> Descriptors<'ring> {
    /// Returns the slot of an index.
    #[inline(always)]
    pub(super) fn slot(&self, index: u16) -> u16 {
        index & self.mask
    }

    #[inline(always)]
    fn get(&self, index: u16) -> Option<[&'ring AtomicU64; 2]> {
        let at = usize::from(self.slot(index)).saturating_mul(2);
        // The second word first: if it exists, the first exists too.
        let second = self.words.get(at.saturating_add(1))?;
        Some([self.words.get(at)?, second])
    }

    /// Reads the first word of a slot.
    #[inline(always)]
    fn word(&self, index: u16) -> u64 {
        self.get(index).map_or(0, |[word, _]| load(word))
    }

    /// Writes the first word of a slot.
    #[inline(always)]
    pub(super) fn set_word(&self, index: u16, word: u64) {
        if let Some([first, _]) = self.get(index) {
            first.store(word.to_le(), Ordering::Relaxed);
        }
    }
}

/// One end of a ring.
#[derive(Debug)]
pub(super) struct Ring {
    header: SharedSlice<AtomicU16>,
    descriptors: SharedSlice<AtomicU64>,
    pub(super) regions: Regions,
    /// Descriptors: 1 to 16,384.
    pub(super) size: u16,
    /// Distance by which the client's index is ahead of the slots returned to it: the ring size at the client, 0 at the server.
    pub(super) lead: u16,
    own_index: usize,
    peer_index: usize,
    /// At the client only.
    pub(super) buffers: Option<Buffers>,
}

impl Ring {
    /// Returns the server's end of the ring at a location in a client's memory.
    pub(super) fn server(
        regions: &[Arc<Mapping>],
        place: &RingLocation,
        direction: Direction,
    ) -> Result<Self, RingError> {
        if place.direction != direction {
            return Err(RingError::Direction);
        }
        Self::new(regions.to_vec(), place, None)
    }

    /// Returns the client's end of a ring of a layout.
    pub(super) fn client(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        direction: Direction,
        index: u16,
    ) -> Result<Self, RingError> {
        let place = layout.place(direction, index).ok_or(RingError::Location)?;
        let buffers = layout.buffers(&place).ok_or(RingError::Location)?;
        Self::new(vec![Arc::clone(mapping)], &place, Some(buffers))
    }

    fn new(
        regions: Vec<Arc<Mapping>>,
        place: &RingLocation,
        buffers: Option<Buffers>,
    ) -> Result<Self, RingError> {
        let region = regions
            .get(usize::from(place.region))
            .filter(|_| place.log2_size <= MAX_LOG2_RING_SIZE)
            .ok_or(RingError::Location)?;
        let size = 1_u16 << place.log2_size;
        let start = u64::from(place.offset);
        let cookie = SharedSlice::<AtomicU32>::new(region, start, 1).ok_or(RingError::Location)?;
        let header = SharedSlice::new(region, start, HEADER_WORDS);
        let words = usize::from(size).saturating_mul(2);
        let descriptors = SharedSlice::new(region, start.saturating_add(HEADER), words);
        let (Some(header), Some(descriptors)) = (header, descriptors) else {
            return Err(RingError::Location);
        };
        let cookie = cookie
            .first()
            .map_or(0, |word| u32::from_le(word.load(Ordering::Relaxed)));
        if cookie != COOKIE {
            return Err(RingError::Cookie(cookie));
        }
        let octets = regions
            .iter()
            .map(|region| SharedSlice::new(region, 0, region.len()))
            .collect::<Option<_>>();
        let is_client = buffers.is_some();
        Ok(Self {
            header,
            descriptors,
            regions: Regions(octets.ok_or(RingError::Location)?),
            size,
            lead: if is_client { size } else { 0 },
            own_index: if is_client { HEAD } else { TAIL },
            peer_index: if is_client { TAIL } else { HEAD },
            buffers,
        })
    }

    #[inline(always)]
    fn header(&self, word: usize, order: Ordering) -> u16 {
        self.header
            .get(word)
            .map_or(0, |word| u16::from_le(word.load(order)))
    }

    #[inline(always)]
    fn set_header(&self, word: usize, value: u16, order: Ordering) {
        if let Some(word) = self.header.get(word) {
            word.store(value.to_le(), order);
        }
    }

    /// Reads the peer's index (acquire): what the peer wrote before it is visible afterwards.
    #[inline(always)]
    pub(super) fn peer(&self) -> u16 {
        self.header(self.peer_index, Ordering::Acquire)
    }

    /// Reads this end's own index. Only for the start, because the peer can write to it.
    pub(super) fn own(&self) -> u16 {
        self.header(self.own_index, Ordering::Relaxed)
    }

    /// Writes this end's index (release): a peer that reads it sees what was written before.
    #[inline(always)]
    pub(super) fn set_own(&self, index: u16) {
        self.set_header(self.own_index, index, Ordering::Release);
    }

    #[inline(always)]
    pub(super) fn wants_interrupts(&self) -> bool {
        self.header(FLAGS, Ordering::Relaxed) & MASK_INTERRUPTS == 0
    }

    pub(super) fn mask_interrupts(&self, is_masked: bool) {
        let flags = if is_masked { MASK_INTERRUPTS } else { 0 };
        self.set_header(FLAGS, flags, Ordering::Relaxed);
    }

    #[inline(always)]
    pub(super) fn descriptors(&self) -> Descriptors<'_> {
        Descriptors {
            words: &self.descriptors,
            mask: self.size.wrapping_sub(1),
        }
    }

    #[inline(always)]
    pub(super) fn slot(&self, index: u16) -> u16 {
        self.descriptors().slot(index)
    }

    #[inline(always)]
    fn descriptor(&self, index: u16) -> Option<[&AtomicU64; 2]> {
        self.descriptors().get(index)
    }

    /// Reads the first word of a slot: flags, region, length.
    #[inline(always)]
    pub(super) fn word(&self, index: u16) -> u64 {
        self.descriptors().word(index)
    }

    /// Writes the first word of a slot.
    #[inline(always)]
    pub(super) fn set_word(&self, index: u16, word: u64) {
        self.descriptors().set_word(index, word);
    }

    /// Reads the slots of a window up to two chunks ahead of the next, and calls `prefetch` for the octets of each.
    ///
    /// `longest` is the maximum length of a peer's descriptor. With `is_filled`, a client also takes the length from the
    /// descriptor; otherwise the length is that of the slot's buffer.
    #[inline(always)]
    pub(super) fn look_ahead(
        &self,
        window: &mut Window,
        longest: u32,
        is_filled: bool,
        prefetch: impl Fn(Span<'_>),
    ) {
        let chunk = window.chunk;
        let ahead = window.left().min(chunk.saturating_mul(2));
        let end = window.next.wrapping_add(ahead);
        // Prefetches the descriptors of the next chunk.
        if window.end.wrapping_sub(end) > chunk {
            let is_written = is_filled && window.is_wide();
            for line in 0..chunk / SLOTS_PER_LINE {
                let first = line.wrapping_mul(SLOTS_PER_LINE);
                self.prefetch(end.wrapping_add(first), is_written);
            }
        }
        match &self.buffers {
            Some(buffers) => self.read_own(window, end, buffers, is_filled, prefetch),
            None => self.read_peers(window, end, longest, prefetch),
        }
        window.mark = if end == window.end {
            end
        } else {
            end.wrapping_sub(chunk)
        };
    }

    /// Reads the slots of a window up to `end` at the server.
    #[inline(always)]
    fn read_peers(&self, window: &mut Window, end: u16, longest: u32, prefetch: impl Fn(Span<'_>)) {
        while window.read != end {
            let index = window.read;
            let slot = match self.descriptor(index) {
                Some([first, second]) => {
                    let word = load(first);
                    let (offset, length) = (halves(load(second)).0, halves(word).1);
                    let (slot, span) = Slot::checked(&self.regions, word, offset, length, longest);
                    if let Some(span) = span {
                        prefetch(span);
                    }
                    slot
                }
                None => Slot::EMPTY,
            };
            window.put(index, slot);
            window.read = index.wrapping_add(1);
        }
    }

    /// Reads the slots of a window up to `end` at the client, which knows the offsets of the buffers: they are within the region, so only
    /// the length is checked.
    #[inline(always)]
    fn read_own(
        &self,
        window: &mut Window,
        end: u16,
        buffers: &Buffers,
        is_filled: bool,
        prefetch: impl Fn(Span<'_>),
    ) {
        let (descriptors, region) = (self.descriptors(), self.regions.whole(buffers.region));
        let mut read = window.read;
        while read != end {
            let word = descriptors.word(read);
            let word = word & !(0xffff << 16) | (u64::from(buffers.region) << 16);
            let length = if is_filled {
                halves(word).1
            } else {
                buffers.size
            };
            let offset = buffers.offset(descriptors.slot(read));
            let slot = Slot::own(word, offset, length, buffers.size);
            let (_, rest) = region.split_at(offset as usize);
            prefetch(rest.split_at(slot.length() as usize).0);
            window.put(read, slot);
            read = read.wrapping_add(1);
        }
        window.read = read;
    }

    /// Asks the processor to load the descriptor of a slot. A client that receives will write to it, to offer its buffer again: with
    /// `is_written`, the line comes from the peer's cache once, instead of once to be read and once more to be written.
    #[inline(always)]
    fn prefetch(&self, index: u16, is_written: bool) {
        let word = usize::from(self.slot(index)).saturating_mul(2);
        if is_written && self.buffers.is_some() {
            self.descriptors.prefetch_write(word);
        } else {
            self.descriptors.prefetch(word);
        }
    }
}

/// Returns the lower and the upper 32 bits.
#[inline(always)]
const fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_le_bytes();
    (
        u32::from_le_bytes([a, b, c, d]),
        u32::from_le_bytes([e, f, g, h]),
    )
}

#[inline(always)]
fn load(word: &AtomicU64) -> u64 {
    u64::from_le(word.load(Ordering::Relaxed))
}
