// SPDX-License-Identifier: Apache-2.0
//! Octet ranges of a mapping.

use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::CACHE_LINE;
use crate::{copy, sum};

/// A range of octets within a mapping. Created by [`crate::Mapping::span`], which checks the bounds.
///
/// Copies are the only access: another process may change the octets between two reads.
#[derive(Clone, Copy, Debug)]
pub struct Span<'mapping> {
    start: NonNull<u8>,
    len: usize,
    _mapping: PhantomData<&'mapping [u8]>,
}

impl<'mapping> Span<'mapping> {
    /// An empty span.
    pub const EMPTY: Self = Self {
        start: NonNull::dangling(),
        len: 0,
        _mapping: PhantomData,
    };

    /// Creates a span.
    ///
    /// # Safety
    /// The octets are mapped for reading and writing for `'mapping`.
    #[inline(always)]
    pub(crate) unsafe fn new(start: NonNull<u8>, len: usize) -> Self {
        Self {
            start,
            len,
            _mapping: PhantomData,
        }
    }

    /// Returns the number of octets.
    #[inline(always)]
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the span is empty.
    #[inline(always)]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `len` octets from `offset` on; `None` if they are not within the span.
    #[inline(always)]
    #[must_use]
    pub fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        if offset > self.len || len > self.len.wrapping_sub(offset) {
            return None;
        }
        // SAFETY: within this span (checked).
        Some(unsafe { Self::new(self.start.add(offset), len) })
    }

    /// Returns the first `len` octets (all of them if there are fewer), and the rest.
    #[inline(always)]
    #[must_use]
    pub fn split_at(&self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        // SAFETY: both are within this span.
        unsafe {
            (
                Self::new(self.start, len),
                Self::new(self.start.add(len), self.len.wrapping_sub(len)),
            )
        }
    }

    /// Copies octets out of the span until one side ends; returns how many were copied.
    #[inline(always)]
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let length = self.len.min(to.len());
        // SAFETY: both have `length` octets; `to` is a private buffer, which overlaps no mapping.
        unsafe { copy::copy(self.start.as_ptr(), to.as_mut_ptr(), length) };
        length
    }

    /// Copies octets into the span until one side ends; returns how many were copied.
    #[inline(always)]
    pub fn copy_from(&self, from: &[u8]) -> usize {
        let length = self.len.min(from.len());
        // SAFETY: as above.
        unsafe { copy::copy(from.as_ptr(), self.start.as_ptr(), length) };
        length
    }

    /// Returns the first `N` octets; `None` if there are fewer.
    #[inline(always)]
    #[must_use]
    pub fn read_array<const N: usize>(&self) -> Option<[u8; N]> {
        // SAFETY: within the span; any octets are an array of them.
        (N <= self.len).then(|| unsafe { self.start.cast::<[u8; N]>().read() })
    }

    /// Returns `N` octets from `offset` on; `None` if they are not within the span.
    #[inline(always)]
    #[must_use]
    pub fn read_at<const N: usize>(&self, offset: usize) -> Option<[u8; N]> {
        self.sub(offset, N)?.read_array()
    }

    /// Returns the sum of the 32-bit words of the octets, as [`crate::sum_of_words`] does. Each octet is read once.
    #[inline(always)]
    #[must_use]
    pub fn sum_of_words(&self) -> u64 {
        // SAFETY: mapped for reading for `'mapping`.
        unsafe { sum::sum_of_shared(self.start.as_ptr(), self.len) }
    }

    /// Writes the first `N` octets without a call. Returns false if there are fewer.
    #[inline(always)]
    pub fn write_array<const N: usize>(&self, octets: [u8; N]) -> bool {
        if N > self.len {
            return false;
        }
        // SAFETY: within the span; the mapping is writable.
        unsafe { self.start.cast::<[u8; N]>().write(octets) };
        true
    }

    /// Writes `N` octets from `offset` on without a call. Returns false if they are not within the span.
    #[inline(always)]
    pub fn write_at<const N: usize>(&self, offset: usize, octets: [u8; N]) -> bool {
        self.sub(offset, N)
            .is_some_and(|place| place.write_array(octets))
    }

    /// Sets all octets from `offset` on to zero.
    pub fn clear_from(&self, offset: usize) {
        const ZEROS: [u8; 256] = [0; 256];
        let mut rest = self.split_at(offset).1;
        while !rest.is_empty() {
            let written = rest.copy_from(&ZEROS);
            rest = rest.split_at(written).1;
        }
    }

    /// Asks the processor to load the span's cache lines, up to the one of octet `limit`.
    #[inline(always)]
    pub fn prefetch(&self, limit: usize) {
        for offset in (0..self.len.min(limit)).step_by(CACHE_LINE) {
            copy::prefetch_address(self.start.as_ptr().wrapping_add(offset));
        }
    }

    /// Asks the processor to load the cache line of octet `offset`. Harmless if the span has no such octet.
    #[inline(always)]
    pub fn prefetch_at(&self, offset: usize) {
        copy::prefetch_address(self.start.as_ptr().wrapping_add(offset));
    }

    /// As [`Self::prefetch_at`], for writing.
    #[inline(always)]
    pub fn prefetch_write_at(&self, offset: usize) {
        copy::prefetch_write(self.start.as_ptr().wrapping_add(offset));
    }

    /// Asks the processor to load the span's cache lines for writing, up to the one of octet `limit`.
    #[inline(always)]
    pub fn prefetch_write(&self, limit: usize) {
        for offset in (0..self.len.min(limit)).step_by(CACHE_LINE) {
            copy::prefetch_write(self.start.as_ptr().wrapping_add(offset));
        }
    }
}
