// SPDX-License-Identifier: Apache-2.0
//! What both ends of a ring have in common: the shared words, the regions, checked descriptors.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use quietwire_memory::{Mapping, SharedSlice, Span};

use super::{COOKIE, HEADER, Layout, MAX_FRAME, RingError};
use crate::message::{Direction, MAX_LOG2_RING_SIZE, RingPlace};

/// Places of words of 16 bits in a ring.
const FLAGS: usize = 2;
const HEAD: usize = 3;
const TAIL: usize = 32;
/// Flag of a ring: its receiver polls, and needs no interrupts.
const MASK_INTERRUPTS: u16 = 1;
/// Flag of a descriptor: the frame goes on in the next one.
const NEXT: u64 = 1;

/// The memory that a client shares.
#[derive(Debug)]
pub(super) struct Regions(Box<[Arc<Mapping>]>);

impl Regions {
    #[inline(always)]
    pub(super) fn span(&self, descriptor: &Descriptor) -> Option<Span<'_>> {
        let region = self.0.get(usize::from(descriptor.region))?;
        region.span(
            u64::from(descriptor.offset),
            descriptor.length.get() as usize,
        )
    }

    pub(super) fn have_faulted(&self) -> bool {
        self.0.iter().any(|region| region.has_faulted())
    }
}

/// Octets that are within a region. Only made by [`Descriptor::new`], which checks that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Descriptor {
    length: NonZeroU32,
    offset: u32,
    region: u16,
}

impl Descriptor {
    #[inline(always)]
    fn new(regions: &Regions, region: u16, offset: u32, length: u32) -> Option<Self> {
        let descriptor = Self {
            length: NonZeroU32::new(length)?,
            offset,
            region,
        };
        regions.span(&descriptor)?;
        Some(descriptor)
    }

    #[inline(always)]
    pub(super) fn length(&self) -> u32 {
        self.length.get()
    }

    /// The first word of a descriptor in a ring with these octets and another length.
    #[inline(always)]
    pub(super) fn word(region: u16, length: u32, has_next: bool) -> u64 {
        (u64::from(has_next) * NEXT) | (u64::from(region) << 16) | (u64::from(length) << 32)
    }

    #[inline(always)]
    pub(super) fn region(&self) -> u16 {
        self.region
    }
}

/// A filled slot of a ring, read once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    /// `None` if it made no sense.
    pub(super) descriptor: Option<Descriptor>,
    pub(super) has_next: bool,
}

impl Slot {
    pub(super) const EMPTY: Self = Self {
        descriptor: None,
        has_next: false,
    };
}

/// The buffers of a client's ring: one a slot, always the same.
#[derive(Clone, Copy, Debug)]
pub(super) struct Buffers {
    pub(super) region: u16,
    pub(super) start: u32,
    pub(super) stride: u32,
    pub(super) size: u32,
}

impl Buffers {
    /// Where the buffer of a slot begins.
    #[inline(always)]
    pub(super) fn offset(&self, slot: u16) -> u32 {
        self.start
            .wrapping_add(u32::from(slot).wrapping_mul(self.stride))
    }
}

/// A ring as one end has it.
#[derive(Debug)]
pub(super) struct Ring {
    header: SharedSlice<AtomicU16>,
    descriptors: SharedSlice<AtomicU64>,
    pub(super) regions: Regions,
    /// Descriptors: 1 to 16,384.
    pub(super) size: u16,
    /// How far the client's index is ahead of the slots that it has had back: the size at the client, 0 at the server.
    pub(super) lead: u16,
    own_index: usize,
    peer_index: usize,
    /// At the client only.
    pub(super) buffers: Option<Buffers>,
}

impl Ring {
    /// The ring at a place in a client's memory, as its server has it.
    pub(super) fn server(
        regions: &[Arc<Mapping>],
        place: &RingPlace,
        direction: Direction,
    ) -> Result<Self, RingError> {
        if place.direction != direction {
            return Err(RingError::Direction);
        }
        Self::new(regions.to_vec(), place, None)
    }

    /// A ring of a layout, as its client has it.
    pub(super) fn client(
        mapping: &Arc<Mapping>,
        layout: &Layout,
        direction: Direction,
        index: u16,
    ) -> Result<Self, RingError> {
        let place = layout.place(direction, index).ok_or(RingError::Place)?;
        let buffers = layout.buffers(&place).ok_or(RingError::Place)?;
        Self::new(vec![Arc::clone(mapping)], &place, Some(buffers))
    }

    fn new(
        regions: Vec<Arc<Mapping>>,
        place: &RingPlace,
        buffers: Option<Buffers>,
    ) -> Result<Self, RingError> {
        let region = regions
            .get(usize::from(place.region))
            .filter(|_| place.log2_size <= MAX_LOG2_RING_SIZE)
            .ok_or(RingError::Place)?;
        let size = 1_u16 << place.log2_size;
        let start = u64::from(place.offset);
        let cookie = SharedSlice::<AtomicU32>::new(region, start, 1).ok_or(RingError::Place)?;
        let header = SharedSlice::new(region, start, HEADER as usize / 2);
        let descriptors = SharedSlice::new(region, start + HEADER, usize::from(size) * 2);
        let (Some(header), Some(descriptors)) = (header, descriptors) else {
            return Err(RingError::Place);
        };
        let cookie = cookie
            .first()
            .map_or(0, |word| u32::from_le(word.load(Ordering::Relaxed)));
        if cookie != COOKIE {
            return Err(RingError::Cookie(cookie));
        }
        let is_client = buffers.is_some();
        Ok(Self {
            header,
            descriptors,
            regions: Regions(regions.into()),
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

    /// Reads the peer's index. What the peer wrote before it is visible afterwards.
    #[inline(always)]
    pub(super) fn peer(&self) -> u16 {
        self.header(self.peer_index, Ordering::Acquire)
    }

    /// Reads this end's own index: at the start only, because the peer can write to it.
    pub(super) fn own(&self) -> u16 {
        self.header(self.own_index, Ordering::Relaxed)
    }

    /// Writes this end's index. What was written before it is visible to a peer that reads it.
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
    pub(super) fn slot(&self, index: u16) -> u16 {
        index & (self.size - 1)
    }

    #[inline(always)]
    fn descriptor(&self, index: u16) -> Option<&[AtomicU64; 2]> {
        let at = usize::from(self.slot(index)) * 2;
        self.descriptors.get(at..)?.first_chunk()
    }

    /// Reads the first word of a slot: flags, region, length.
    #[inline(always)]
    pub(super) fn word(&self, index: u16) -> u64 {
        self.descriptor(index)
            .map_or(0, |[word, _]| u64::from_le(word.load(Ordering::Relaxed)))
    }

    /// Writes the first word of a slot.
    #[inline(always)]
    pub(super) fn set_word(&self, index: u16, word: u64) {
        if let Some([first, _]) = self.descriptor(index) {
            first.store(word.to_le(), Ordering::Relaxed);
        }
    }

    /// Reads a slot, once, and checks it.
    #[inline(always)]
    pub(super) fn read(&self, index: u16) -> (Slot, u64) {
        let Some([first, second]) = self.descriptor(index) else {
            return (Slot::EMPTY, 0);
        };
        let word = u64::from_le(first.load(Ordering::Relaxed));
        let length = (word >> 32) as u32;
        let (region, offset, longest) = match &self.buffers {
            // A client knows where its buffers are.
            Some(buffers) => {
                let offset = buffers.offset(self.slot(index));
                (buffers.region, offset, buffers.size)
            }
            None => {
                let second = u64::from_le(second.load(Ordering::Relaxed));
                ((word >> 16) as u16, second as u32, u32::MAX)
            }
        };
        let descriptor = if length <= longest {
            Descriptor::new(&self.regions, region, offset, length)
        } else {
            None
        };
        let slot = Slot {
            descriptor,
            has_next: word & NEXT != 0,
        };
        (slot, word)
    }

    /// Returns the buffer of a slot at the client; `None` at the server.
    #[inline(always)]
    pub(super) fn own_buffer(&self, index: u16) -> Option<Descriptor> {
        let buffers = self.buffers.as_ref()?;
        let offset = buffers.offset(self.slot(index));
        Descriptor::new(&self.regions, buffers.region, offset, buffers.size)
    }

    /// Asks the processor for the descriptor of a slot.
    #[inline(always)]
    pub(super) fn prefetch(&self, index: u16) {
        self.descriptors.prefetch(usize::from(self.slot(index)) * 2);
    }

    /// Returns true if a frame may be as long as this.
    #[inline(always)]
    pub(super) fn is_frame_length(length: usize) -> bool {
        (1..=MAX_FRAME).contains(&length)
    }
}
