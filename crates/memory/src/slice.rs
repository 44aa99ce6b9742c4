// SPDX-License-Identifier: Apache-2.0
//! Arrays of atomics in a mapping: rings, indices, bitmaps.

use std::ops::Deref;
use std::ptr::NonNull;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

use crate::copy;
use crate::mapping::Mapping;
use crate::span::Span;
use crate::word;

mod sealed {
    pub trait Sealed {}
}

/// An atomic integer, or a group of them. Every bit pattern is valid, and other processes may write at any time.
pub trait Word: sealed::Sealed + Send + Sync + 'static {}

macro_rules! words {
    ($($word:ty),*) => {$(
        impl sealed::Sealed for $word {}
        impl Word for $word {}
    )*};
}
words!(AtomicU8, AtomicU16, AtomicU32, AtomicU64);
words!([AtomicU32; 2], [AtomicU64; 2]);

/// An array of atomics within a mapping, which it keeps mapped.
#[derive(Debug)]
pub struct SharedSlice<W> {
    start: NonNull<W>,
    len: usize,
    mapping: Arc<Mapping>,
}

// SAFETY: a shared view of atomics, which any thread may use; the mapping may be unmapped by any thread.
unsafe impl<W: Word> Send for SharedSlice<W> {}
// SAFETY: as above.
unsafe impl<W: Word> Sync for SharedSlice<W> {}

impl<W: Word> SharedSlice<W> {
    /// Returns `len` words from octet `offset` of a mapping on; `None` if they are not within it or not aligned.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: usize) -> Option<Self> {
        let octets = Self::octets(len)?;
        let start = mapping.address(offset, octets)?.cast::<W>();
        start.is_aligned().then(|| Self {
            start,
            len,
            mapping: Arc::clone(mapping),
        })
    }

    /// Returns the octets of `len` words; `None` if they exceed the address space.
    #[must_use]
    pub const fn octets(len: usize) -> Option<usize> {
        len.checked_mul(size_of::<W>())
    }

    /// Returns the mapping that the words lie in.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// Asks the processor to load the cache line of word `index`. No effect if the slice has no such word.
    #[inline(always)]
    pub fn prefetch(&self, index: usize) {
        copy::prefetch_address(self.start.as_ptr().wrapping_add(index).cast());
    }

    /// As [`Self::prefetch`], for writing.
    #[inline(always)]
    pub fn prefetch_write(&self, index: usize) {
        copy::prefetch_write(self.start.as_ptr().wrapping_add(index).cast());
    }
}

impl SharedSlice<AtomicU8> {
    /// Returns `len` octets from octet `offset` of this slice on; `None` if they are not within it.
    #[inline(always)]
    #[must_use]
    pub fn span(&self, offset: u64, len: usize) -> Option<Span<'_>> {
        let whole = self.len as u64;
        if offset > whole || len as u64 > whole.wrapping_sub(offset) {
            return None;
        }
        // SAFETY: within this slice (checked), which keeps its mapping and is borrowed.
        Some(unsafe { Span::new(self.start.cast::<u8>().add(word::index(offset)), len) })
    }
}

impl<W: Word> Deref for SharedSlice<W> {
    type Target = [W];

    #[inline(always)]
    fn deref(&self) -> &[W] {
        // SAFETY: mapped for as long as `mapping` is held, within it and aligned (checked by `new`); atomics may be changed
        // by others while they are borrowed.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}
