// SPDX-License-Identifier: Apache-2.0
//! Layout of a client's rings and buffers.

use std::sync::Arc;

use quietwire_memory::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use quietwire_memory::{CACHE_LINE, Mapping, SharedSlice};

use super::descriptor::{Buffers, filled};
use super::{COOKIE, HEADER, LONGEST, RingError, ring_octets};
use crate::message::{Direction, MAX_LOG2_RING_SIZE, RingLocation};

/// Alignment of rings, so that no two share a pair of cache lines: processors load lines in pairs.
const RING_ALIGNMENT: u64 = 128;

/// The layout of a client's memory: one region with all rings, and one buffer for each of their slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    c2s_rings: u16,
    s2c_rings: u16,
    sizes: RingSizes,
    buffer_size: u32,
    /// Distance of two consecutive buffers, octets.
    stride: u32,
    region_size: u32,
}

/// The logarithms of the numbers of descriptors of the rings of either direction, at most 14.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingSizes {
    /// Number of rings from client to server.
    pub c2s: u8,
    /// Number of rings from server to client.
    pub s2c: u8,
}

impl RingSizes {
    /// Returns the same size for both directions.
    #[must_use]
    pub const fn both(log2_size: u8) -> Self {
        Self {
            c2s: log2_size,
            s2c: log2_size,
        }
    }

    /// Returns the size of the rings of a direction.
    #[must_use]
    pub const fn of(self, direction: Direction) -> u8 {
        match direction {
            Direction::ClientToServer => self.c2s,
            Direction::ServerToClient => self.s2c,
        }
    }

    /// Returns the sizes, limited to this one.
    #[must_use]
    pub fn at_most(self, log2_size: u8) -> Self {
        Self {
            c2s: self.c2s.min(log2_size),
            s2c: self.s2c.min(log2_size),
        }
    }
}

/// Returns the distance of two consecutive rings of the same size, octets.
fn ring_stride(log2_size: u8) -> u64 {
    ring_octets(log2_size).next_multiple_of(RING_ALIGNMENT)
}

/// Returns the octets of consecutive rings of the same size.
fn rings_octets(rings: u16, log2_size: u8) -> u64 {
    u64::from(rings).saturating_mul(ring_stride(log2_size))
}

impl Layout {
    /// Returns the layout for this many rings of these sizes, with buffers of `buffer_size` octets (1 to 65,535). `None` if
    /// a size is out of range or the region would exceed 4 GiB, the limit of 32-bit offsets.
    #[must_use]
    pub fn new(c2s_rings: u16, s2c_rings: u16, sizes: RingSizes, buffer_size: u32) -> Option<Self> {
        if sizes.c2s.max(sizes.s2c) > MAX_LOG2_RING_SIZE
            || !(1..=LONGEST).contains(&buffer_size)
            || (c2s_rings == 0 && s2c_rings == 0)
        {
            return None;
        }
        // An odd number of cache lines: with a power of two, the first lines of all buffers would compete for a few sets of
        // each cache.
        const LINE: u32 = 64;
        const _: () = assert!(LINE as usize == CACHE_LINE);
        let stride = buffer_size.div_ceil(LINE) | 1;
        let stride = stride.saturating_mul(LINE);
        let octets = |rings: u16, log2_size: u8| {
            let buffers = u64::from(stride) << log2_size;
            u64::from(rings).saturating_mul(ring_stride(log2_size).saturating_add(buffers))
        };
        let octets = octets(c2s_rings, sizes.c2s).saturating_add(octets(s2c_rings, sizes.s2c));
        Some(Self {
            c2s_rings,
            s2c_rings,
            sizes,
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

    /// Returns the location of a ring in region 0; `None` if the layout has no such ring.
    #[must_use]
    pub fn place(&self, direction: Direction, index: u16) -> Option<RingLocation> {
        let (rings, before) = match direction {
            Direction::ClientToServer => (self.c2s_rings, 0),
            Direction::ServerToClient => {
                (self.s2c_rings, rings_octets(self.c2s_rings, self.sizes.c2s))
            }
        };
        if index >= rings {
            return None;
        }
        let log2_size = self.sizes.of(direction);
        let offset = rings_octets(index, log2_size).saturating_add(before);
        Some(RingLocation {
            direction,
            index,
            region: 0,
            offset: u32::try_from(offset).ok()?,
            log2_size,
        })
    }

    /// Returns the locations of all rings, first those from client to server.
    pub fn places(&self) -> impl Iterator<Item = RingLocation> {
        let layout = *self;
        let c2s = (0..self.c2s_rings).map(|index| (Direction::ClientToServer, index));
        let s2c = (0..self.s2c_rings).map(|index| (Direction::ServerToClient, index));
        c2s.chain(s2c)
            .filter_map(move |(direction, index)| layout.place(direction, index))
    }

    pub(super) fn buffers(&self, place: &RingLocation) -> Option<Buffers> {
        let of_buffers = |rings: u16, log2_size: u8| {
            let octets = u64::from(self.stride) << log2_size;
            u64::from(rings).saturating_mul(octets)
        };
        let before = match place.direction {
            Direction::ClientToServer => [of_buffers(place.index, self.sizes.c2s), 0],
            Direction::ServerToClient => [
                of_buffers(self.c2s_rings, self.sizes.c2s),
                of_buffers(place.index, self.sizes.s2c),
            ],
        };
        let rings = [
            rings_octets(self.c2s_rings, self.sizes.c2s),
            rings_octets(self.s2c_rings, self.sizes.s2c),
        ];
        let parts = rings.into_iter().chain(before);
        let start = parts.fold(0, u64::saturating_add);
        Some(Buffers {
            region: 0,
            start: u32::try_from(start).ok()?,
            stride: self.stride,
            size: self.buffer_size,
        })
    }

    /// Writes rings and descriptors into the region. All buffers of rings from server to client are offered.
    ///
    /// Must be called before the region is shared.
    ///
    /// # Errors
    /// [`RingError::Location`] if the mapping is shorter than [`Self::region_size`].
    pub fn write(&self, mapping: &Arc<Mapping>) -> Result<(), RingError> {
        let mut places = self.places();
        places
            .try_for_each(|place| self.write_ring(mapping, &place))
            .ok_or(RingError::Location)
    }

    fn write_ring(&self, mapping: &Arc<Mapping>, place: &RingLocation) -> Option<()> {
        let size = 1_u16 << place.log2_size;
        let start = u64::from(place.offset);
        let buffers = self.buffers(place)?;
        let words = usize::from(size).saturating_mul(2);
        let descriptors =
            SharedSlice::<AtomicU64>::new(mapping, start.checked_add(HEADER)?, words)?;
        let (pairs, _) = descriptors.as_chunks::<2>();
        for (slot, [first, second]) in (0..size).zip(pairs) {
            let word = filled(buffers.region, buffers.size, false);
            first.store(word.to_le(), Ordering::Relaxed);
            second.store(u64::from(buffers.offset(slot)).to_le(), Ordering::Relaxed);
        }
        // The mapping must contain the last buffer too.
        let last = buffers.offset(size.saturating_sub(1));
        mapping.span(u64::from(last), buffers.size as usize)?;
        let head = match place.direction {
            Direction::ClientToServer => 0,
            Direction::ServerToClient => size,
        };
        let store = |offset: u64, value: u16| {
            let words = SharedSlice::<AtomicU16>::new(mapping, start.checked_add(offset)?, 1)?;
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
