// SPDX-License-Identifier: Apache-2.0
//! The guest's memory: regions, and the translation of addresses from a guest or a front end.
//!
//! Three kinds of addresses lead to the same octets (vhost-user, "Memory access"): guest addresses in descriptors, user
//! addresses (those of the front end) in ring messages, and I/O virtual addresses in both if VIRTIO_F_ACCESS_PLATFORM is
//! negotiated. None of them is trusted: a [`Piece`] is the only result, and lies within one region.

mod iotlb;

use quietwire_memory::atomic::AtomicU8;
use std::sync::Arc;

use quietwire_memory::{Mapping, SharedSlice, Span, Word};

pub use iotlb::{IOTLB_ENTRIES_MAX, Iotlb, Permission};

/// Maximum number of regions of an address space (quietwire's limit; QEMU's is 8 without configurable slots, usually 32 with
/// them).
pub const REGIONS_MAX: usize = 32;

/// Consecutive guest memory in a mapping. One cache line.
#[derive(Debug)]
#[repr(align(64))]
pub struct Region {
    guest: u64,
    user: u64,
    /// Offset of the first octet in the mapping.
    offset: u64,
    octets: SharedSlice<AtomicU8>,
}

impl Region {
    /// Returns a region of `len` octets at a guest and a user address; `None` if it is empty, exceeds the mapping, or an
    /// address overflows.
    #[must_use]
    pub fn new(
        guest: u64,
        user: u64,
        len: u64,
        mapping: &Arc<Mapping>,
        offset: u64,
    ) -> Option<Self> {
        let last = len.checked_sub(1)?;
        guest.checked_add(last)?;
        user.checked_add(last)?;
        let octets = SharedSlice::new(mapping, offset, usize::try_from(len).ok()?)?;
        Some(Self {
            guest,
            user,
            offset,
            octets,
        })
    }

    /// Returns the guest address of the first octet.
    #[must_use]
    pub fn guest_address(&self) -> u64 {
        self.guest
    }

    /// Returns the number of octets.
    #[inline(always)]
    fn len(&self) -> u64 {
        self.octets.len() as u64
    }

    /// Returns the offset of a guest address and the octets from there on.
    #[inline(always)]
    fn find_guest(&self, guest: u64) -> Option<(u64, u64)> {
        let offset = guest.wrapping_sub(self.guest);
        let rest = self.len().checked_sub(offset)?;
        (rest > 0).then_some((offset, rest))
    }

    #[inline(always)]
    fn near(&self, index: usize) -> CachedRegion<'_> {
        CachedRegion {
            guest: self.guest,
            octets: self
                .octets
                .span(0, self.octets.len())
                .unwrap_or(Span::EMPTY),
            index,
        }
    }

    /// Returns the offset of a user address and the octets from there on.
    #[inline(always)]
    fn find_user(&self, user: u64) -> Option<(u64, u64)> {
        let offset = user.wrapping_sub(self.user);
        let rest = self.len().checked_sub(offset)?;
        (rest > 0).then_some((offset, rest))
    }
}

/// A region, in values that remain in registers during a loop. A loop reads values behind a reference again after each
/// access to shared memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CachedRegion<'a> {
    guest: u64,
    octets: Span<'a>,
    index: usize,
}

impl<'a> CachedRegion<'a> {
    const EMPTY: Self = Self {
        guest: 0,
        octets: Span::EMPTY,
        index: 0,
    };

    /// Returns the index of the region.
    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self.index
    }

    /// Returns true if the region contains a guest address.
    #[inline(always)]
    pub(crate) fn has(self, address: u64) -> bool {
        self.offset(address) < self.octets.len()
    }

    /// Returns `len` octets at a guest address; `None` if the region lacks one of them.
    #[inline(always)]
    pub(crate) fn octets(self, address: u64, len: usize) -> Option<Span<'a>> {
        self.octets.sub(self.offset(address), len)
    }

    /// Asks the processor to load the cache line at a guest address. No effect if the region lacks it.
    #[inline(always)]
    pub(crate) fn prefetch(self, address: u64) {
        self.octets.prefetch_at(self.offset(address));
    }

    /// As [`Self::prefetch`], to write there.
    #[inline(always)]
    pub(crate) fn prefetch_write(self, address: u64) {
        self.octets.prefetch_write_at(self.offset(address));
    }

    #[inline(always)]
    fn offset(self, address: u64) -> usize {
        usize::try_from(address.wrapping_sub(self.guest)).unwrap_or(usize::MAX)
    }
}

/// Reason why regions do not form an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressSpaceError {
    /// More than [`REGIONS_MAX`] regions.
    #[error("memory table: {0} regions exceed the limit of {REGIONS_MAX}")]
    TooMany(usize),
    /// Two regions share guest or user addresses.
    #[error("memory table: regions {0} and {1} overlap")]
    Overlap(usize, usize),
}

/// Direction of an access by the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// The device reads the octets.
    Read,
    /// The device writes to the octets.
    Write,
}

/// Octets within one region. Made by translation only, which checks the bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    region: u32,
    len: u32,
    offset: u64,
}

impl Piece {
    pub(crate) const EMPTY: Self = Self {
        region: 0,
        len: 0,
        offset: 0,
    };

    /// Returns the number of octets.
    #[inline(always)]
    #[must_use]
    pub fn len(self) -> u32 {
        self.len
    }

    /// Returns true if the piece is empty.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Returns the piece without its first octets; empty if it has no more.
    #[inline(always)]
    #[must_use]
    pub fn skip(self, octets: u32) -> Self {
        let octets = octets.min(self.len);
        Self {
            region: self.region,
            len: self.len.saturating_sub(octets),
            offset: self.offset.saturating_add(u64::from(octets)),
        }
    }
}

/// The result of a translation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Translation {
    /// The octets from the address on: all, or fewer if their region ends before.
    Piece(Piece),
    /// No region has the address.
    Outside,
    /// The IOTLB lacks the address, or this access to it. The front end may add it.
    Miss(Miss),
}

/// An address that is missing in the IOTLB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miss {
    /// I/O virtual address.
    pub iova: u64,
    /// True for an access that writes.
    pub write: bool,
}

/// A part of a ring: its location in a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingPart<'a> {
    region: &'a Region,
    offset: u64,
}

impl RingPart<'_> {
    /// Returns the words from octet `offset` of the part on; `None` if the region ends before, or they are not aligned.
    pub(crate) fn words<W: Word>(&self, offset: u64, len: usize) -> Option<SharedSlice<W>> {
        let start = self.offset.checked_add(offset)?;
        let end = start.checked_add(SharedSlice::<W>::octets(len)? as u64)?;
        if end > self.region.len() {
            return None;
        }
        SharedSlice::new(
            self.region.octets.mapping(),
            self.region.offset.checked_add(start)?,
            len,
        )
    }

    /// Returns the guest address of the part.
    pub(crate) fn guest_address(&self) -> u64 {
        self.region.guest.wrapping_add(self.offset)
    }
}

/// Reason why a part of a ring is not at its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartError {
    Outside,
    Miss(Miss),
}

/// The memory that a front end shares. Clones are cheap and share the regions.
#[derive(Clone, Debug)]
pub struct AddressSpace {
    regions: Arc<[Region]>,
    iotlb: Option<Arc<Iotlb>>,
}

impl AddressSpace {
    /// Returns an address space of these regions. With `iotlb`, guest addresses are I/O virtual addresses.
    ///
    /// # Errors
    /// [`AddressSpaceError`]: too many regions, or two that overlap.
    pub fn new(regions: Vec<Region>, iotlb: Option<Arc<Iotlb>>) -> Result<Self, AddressSpaceError> {
        if regions.len() > REGIONS_MAX {
            return Err(AddressSpaceError::TooMany(regions.len()));
        }
        let overlap = |a: u64, a_len: u64, b: u64, b_len: u64| {
            b.wrapping_sub(a) < a_len || a.wrapping_sub(b) < b_len
        };
        for (first, a) in regions.iter().enumerate() {
            let others = regions.iter().enumerate();
            for (second, b) in others.skip(first.saturating_add(1)) {
                if overlap(a.guest, a.len(), b.guest, b.len())
                    || overlap(a.user, a.len(), b.user, b.len())
                {
                    return Err(AddressSpaceError::Overlap(first, second));
                }
            }
        }
        Ok(Self {
            regions: regions.into(),
            iotlb,
        })
    }

    /// Returns the regions.
    #[must_use]
    pub fn regions(&self) -> &[Region] {
        &self.regions
    }

    /// Returns the IOTLB, if guest addresses are I/O virtual addresses.
    #[must_use]
    pub fn iotlb(&self) -> Option<&Arc<Iotlb>> {
        self.iotlb.as_ref()
    }

    /// Returns true if an access found a page of a region missing (see [`Mapping::has_faulted`]).
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        has_faulted(&self.regions)
    }

    /// Returns a translator with private caches.
    #[must_use]
    pub fn translator(&self) -> Translator {
        Translator {
            regions: Arc::clone(&self.regions),
            iotlb: self.iotlb.clone(),
            last: 0,
            hit: iotlb::Hit::NONE,
        }
    }

    /// Returns the part of a ring at an address: a user address, or an I/O virtual address with an IOTLB. The part lies in
    /// one region, and with an IOTLB in entries that continue one another.
    pub(crate) fn ring_part(
        &self,
        address: u64,
        len: usize,
        access: Access,
    ) -> Result<RingPart<'_>, PartError> {
        let user = match &self.iotlb {
            None => address,
            Some(iotlb) => iotlb_range(iotlb, address, len as u64, access)?,
        };
        self.translate_user(user, len).ok_or(PartError::Outside)
    }

    /// Returns the location of `len` octets at a user address, all in one region.
    fn translate_user(&self, user: u64, len: usize) -> Option<RingPart<'_>> {
        self.regions.iter().find_map(|region| {
            let (offset, rest) = region.find_user(user)?;
            (len as u64 <= rest).then_some(RingPart { region, offset })
        })
    }
}

/// Returns the user address of a range of I/O virtual addresses whose entries have to continue one another.
fn iotlb_range(iotlb: &Iotlb, iova: u64, len: u64, access: Access) -> Result<u64, PartError> {
    let write = access == Access::Write;
    let mut start = None;
    let mut done = 0u64;
    // Each iteration moves to another entry; the table limits their number.
    for _ in 0..=IOTLB_ENTRIES_MAX {
        let at = iova.checked_add(done).ok_or(PartError::Outside)?;
        let hit = iotlb.find(at).filter(|hit| hit.allows(write));
        let (user, rest) = hit
            .and_then(|hit| hit.translate(at))
            .ok_or(PartError::Miss(Miss { iova: at, write }))?;
        let first = *start.get_or_insert(user);
        if user != u64::wrapping_add(first, done) {
            return Err(PartError::Outside);
        }
        done = done.saturating_add(rest);
        if done >= len {
            return Ok(first);
        }
    }
    Err(PartError::Outside)
}

#[inline(always)]
fn has_faulted(regions: &[Region]) -> bool {
    regions
        .iter()
        .any(|region| region.octets.mapping().has_faulted())
}

/// A translator of guest addresses for one ring, which caches the locations of the last ones.
#[derive(Debug)]
pub struct Translator {
    regions: Arc<[Region]>,
    iotlb: Option<Arc<Iotlb>>,
    /// Region of the last address.
    last: usize,
    /// IOTLB entry of the last address.
    hit: iotlb::Hit,
}

impl Translator {
    /// Returns true if guest addresses are I/O virtual addresses.
    #[must_use]
    pub fn has_iotlb(&self) -> bool {
        self.iotlb.is_some()
    }

    /// Returns true if an access found a page of a region missing.
    #[inline(always)]
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        has_faulted(&self.regions)
    }

    /// Translates the first of `len` octets at a guest address, and those after it that are in the same region.
    #[inline]
    pub fn translate_guest(&mut self, address: u64, len: u32, access: Access) -> Translation {
        if self.iotlb.is_some() {
            return self.translate_iova(address, len, access);
        }
        match self.find(|region| region.find_guest(address)) {
            Some((region, offset, rest)) => Translation::Piece(piece(region, offset, rest, len)),
            None => Translation::Outside,
        }
    }

    /// Returns the region of the last address; an empty one if there is an IOTLB.
    #[inline(always)]
    pub(crate) fn near(&self) -> CachedRegion<'_> {
        match self.regions.get(self.last) {
            Some(region) if self.iotlb.is_none() => region.near(self.last),
            _ => CachedRegion::EMPTY,
        }
    }

    /// Returns the region that contains a guest address; an empty one if none does, or if there is an IOTLB.
    #[cold]
    #[inline(never)]
    pub(crate) fn cache_region(&self, address: u64) -> CachedRegion<'_> {
        if self.iotlb.is_some() {
            return CachedRegion::EMPTY;
        }
        let mut regions = self.regions.iter().enumerate();
        regions
            .find(|(_, region)| region.find_guest(address).is_some())
            .map_or(CachedRegion::EMPTY, |(index, region)| region.near(index))
    }

    /// Returns the region in which a loop that stopped at a guest address continues; `None` if it stopped for another reason
    /// than `near` lacking the address, or if no region contains it.
    #[inline(always)]
    pub(crate) fn other_region(
        &self,
        near: CachedRegion<'_>,
        address: u64,
    ) -> Option<CachedRegion<'_>> {
        if near.has(address) {
            return None;
        }
        Some(self.cache_region(address)).filter(|region| region.has(address))
    }

    /// Makes [`Self::near`] return this region from now on.
    #[inline(always)]
    pub(crate) fn stay(&mut self, index: usize) {
        self.last = index;
    }

    #[inline(always)]
    fn find(
        &mut self,
        in_region: impl Fn(&Region) -> Option<(u64, u64)>,
    ) -> Option<(usize, u64, u64)> {
        if let Some((offset, rest)) = self.regions.get(self.last).and_then(&in_region) {
            return Some((self.last, offset, rest));
        }
        let found = self
            .regions
            .iter()
            .enumerate()
            .find_map(|(index, region)| in_region(region).map(|(at, rest)| (index, at, rest)));
        if let Some((index, ..)) = found {
            self.last = index;
        }
        found
    }

    fn translate_iova(&mut self, iova: u64, len: u32, access: Access) -> Translation {
        let write = access == Access::Write;
        let miss = Translation::Miss(Miss { iova, write });
        let Some(iotlb) = &self.iotlb else {
            return miss;
        };
        if !iotlb.is_current(&self.hit) || self.hit.translate(iova).is_none() {
            let Some(hit) = iotlb.find(iova) else {
                return miss;
            };
            self.hit = hit;
        }
        let hit = self.hit;
        let Some((user, rest)) = hit.translate(iova).filter(|_| hit.allows(write)) else {
            return miss;
        };
        match self.find(|region| region.find_user(user)) {
            Some((region, offset, more)) => {
                Translation::Piece(piece(region, offset, more.min(rest), len))
            }
            None => Translation::Outside,
        }
    }

    /// Returns the octets of a piece.
    #[inline(always)]
    #[must_use]
    pub fn span(&self, piece: Piece) -> Option<Span<'_>> {
        self.regions
            .get(piece.region as usize)?
            .octets
            .span(piece.offset, piece.len as usize)
    }

    /// Returns the guest address of a piece, even with an IOTLB.
    #[inline(always)]
    #[must_use]
    pub(crate) fn guest_address(&self, piece: Piece) -> Option<u64> {
        let region = self.regions.get(piece.region as usize)?;
        Some(region.guest.wrapping_add(piece.offset))
    }
}

/// Returns the piece of at most `len` octets.
#[inline(always)]
#[expect(
    clippy::cast_possible_truncation,
    reason = "the number of a region, of which a front end has at most some hundred"
)]
fn piece(region: usize, offset: u64, rest: u64, len: u32) -> Piece {
    Piece {
        region: region as u32,
        len: u32::try_from(rest).map_or(len, |rest| rest.min(len)),
        offset,
    }
}

#[cfg(test)]
#[path = "address_space/tests.rs"]
mod tests;
