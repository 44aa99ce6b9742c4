// SPDX-License-Identifier: Apache-2.0
//! Where a client puts its rings and buffers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};

use quietwire_memory::{CACHE_LINE, Mapping, SharedSlice};

use super::memory::{Buffers, filled};
use super::{COOKIE, HEADER, MAX_FRAME, RingError, ring_octets};
use crate::message::{Direction, MAX_LOG2_RING_SIZE, RingPlace};

/// Rings share no pair of cache lines: processors load them in pairs.
const RING_ALIGNMENT: u64 = 128;

/// The layout of a client's memory: one region with all rings, and one buffer for each of their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    c2s_rings: u16,
    s2c_rings: u16,
    log2_ring_size: u8,
    buffer_size: u32,
    /// From one buffer to the next.
    stride: u32,
    region_size: u32,
}

impl Layout {
    /// Returns the layout for this many rings of 2^`log2_ring_size` slots, with buffers of `buffer_size` octets (1 to
    /// 65,535). `None` if a size is out of range or the region would exceed 4 GiB, which offsets do not reach beyond.
    #[must_use]
    pub fn new(
        c2s_rings: u16,
        s2c_rings: u16,
        log2_ring_size: u8,
        buffer_size: u32,
    ) -> Option<Self> {
        if log2_ring_size > MAX_LOG2_RING_SIZE
            || !(1..=MAX_FRAME as u32).contains(&buffer_size)
            || (c2s_rings == 0 && s2c_rings == 0)
        {
            return None;
        }
        // An odd number of cache lines: with a power of two, the first lines of all buffers would compete for a few sets of
        // each cache.
        let stride = buffer_size.div_ceil(CACHE_LINE as u32) | 1;
        let stride = stride * CACHE_LINE as u32;
        let rings = u64::from(c2s_rings) + u64::from(s2c_rings);
        let ring = ring_octets(log2_ring_size).next_multiple_of(RING_ALIGNMENT);
        let octets = rings * (ring + (u64::from(stride) << log2_ring_size));
        Some(Self {
            c2s_rings,
            s2c_rings,
            log2_ring_size,
            buffer_size,
            stride,
            region_size: u32::try_from(octets).ok()?,
        })
    }

    /// Returns the octets of the region.
    #[must_use]
    pub fn region_size(&self) -> usize {
        self.region_size as usize
    }

    /// Returns the octets of a buffer.
    #[must_use]
    pub fn buffer_size(&self) -> u32 {
        self.buffer_size
    }

    /// Returns the place of a ring in region 0; `None` if the layout has no such ring.
    #[must_use]
    pub fn place(&self, direction: Direction, index: u16) -> Option<RingPlace> {
        let (rings, before) = match direction {
            Direction::ClientToServer => (self.c2s_rings, 0),
            Direction::ServerToClient => (self.s2c_rings, u64::from(self.c2s_rings)),
        };
        if index >= rings {
            return None;
        }
        let number = before + u64::from(index);
        Some(RingPlace {
            direction,
            index,
            region: 0,
            offset: u32::try_from(number * self.ring_stride()).ok()?,
            log2_size: self.log2_ring_size,
        })
    }

    /// Returns the places of all rings: first those from client to server.
    pub fn places(&self) -> impl Iterator<Item = RingPlace> {
        let layout = *self;
        let c2s = (0..self.c2s_rings).map(|index| (Direction::ClientToServer, index));
        let s2c = (0..self.s2c_rings).map(|index| (Direction::ServerToClient, index));
        c2s.chain(s2c)
            .filter_map(move |(direction, index)| layout.place(direction, index))
    }

    fn ring_stride(&self) -> u64 {
        ring_octets(self.log2_ring_size).next_multiple_of(RING_ALIGNMENT)
    }

    pub(super) fn buffers(&self, place: &RingPlace) -> Option<Buffers> {
        let number = u64::from(place.offset) / self.ring_stride();
        let rings = u64::from(self.c2s_rings) + u64::from(self.s2c_rings);
        let start =
            rings * self.ring_stride() + number * (u64::from(self.stride) << self.log2_ring_size);
        Some(Buffers {
            region: 0,
            start: u32::try_from(start).ok()?,
            stride: self.stride,
            size: self.buffer_size,
        })
    }

    /// Writes rings and descriptors into the region. All buffers of rings from server to client are offered.
    ///
    /// To be called before the region is shared.
    ///
    /// # Errors
    /// [`RingError::Place`] if the mapping is shorter than [`Self::region_size`].
    pub fn write(&self, mapping: &Arc<Mapping>) -> Result<(), RingError> {
        let mut places = self.places();
        places
            .try_for_each(|place| self.write_ring(mapping, &place))
            .ok_or(RingError::Place)
    }

    fn write_ring(&self, mapping: &Arc<Mapping>, place: &RingPlace) -> Option<()> {
        let size = 1_u16 << self.log2_ring_size;
        let start = u64::from(place.offset);
        let buffers = self.buffers(place)?;
        let descriptors =
            SharedSlice::<AtomicU64>::new(mapping, start + HEADER, usize::from(size) * 2)?;
        let (pairs, _) = descriptors.as_chunks::<2>();
        for (slot, [first, second]) in (0..size).zip(pairs) {
            let word = filled(buffers.region, buffers.size, false);
            first.store(word.to_le(), Ordering::Relaxed);
            second.store(u64::from(buffers.offset(slot)).to_le(), Ordering::Relaxed);
        }
        // The last buffer has to be there too.
        mapping.span(u64::from(buffers.offset(size - 1)), buffers.size as usize)?;
        let head = match place.direction {
            Direction::ClientToServer => 0,
            Direction::ServerToClient => size,
        };
        let store = |offset, value: u16| {
            let words = SharedSlice::<AtomicU16>::new(mapping, start + offset, 1)?;
            words.first()?.store(value.to_le(), Ordering::Release);
            Some(())
        };
        store(4, 0)?;
        store(6, head)?;
        store(64, 0)?;
        let cookie = SharedSlice::<AtomicU32>::new(mapping, start, 1)?;
        cookie.first()?.store(COOKIE.to_le(), Ordering::Release);
        Some(())
    }
}
