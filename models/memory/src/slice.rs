// SPDX-License-Identifier: Apache-2.0
//! Arrays of atomics in a mapping.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use crate::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};
use crate::memory::{Mapping, Memory};
use crate::span::Span;

/// An atomic integer, or a group of them.
pub trait Word: Sized + 'static {
    /// Octets.
    const OCTETS: usize;

    /// Returns the word at an offset.
    #[doc(hidden)]
    fn at(memory: &Arc<Memory>, at: u64) -> Self;

    /// Declares the width of the word at an offset.
    #[doc(hidden)]
    fn declare(memory: &Memory, at: u64);
}

macro_rules! words {
    ($($word:ty: $octets:literal),*) => {$(
        impl Word for $word {
            const OCTETS: usize = $octets;

            fn at(memory: &Arc<Memory>, at: u64) -> Self {
                <$word>::at(memory, at)
            }

            fn declare(memory: &Memory, at: u64) {
                if $octets > 1 {
                    memory.declare(at, $octets);
                }
            }
        }
    )*};
}
words!(AtomicU8: 1, AtomicU16: 2, AtomicU32: 4, AtomicU64: 8);

impl<W: Word> Word for [W; 2] {
    const OCTETS: usize = 2 * W::OCTETS;

    fn at(memory: &Arc<Memory>, at: u64) -> Self {
        [W::at(memory, at), W::at(memory, at + W::OCTETS as u64)]
    }

    fn declare(memory: &Memory, at: u64) {
        W::declare(memory, at);
        W::declare(memory, at + W::OCTETS as u64);
    }
}

/// An array of atomics within a mapping.
#[derive(Debug)]
pub struct SharedSlice<W> {
    start: u64,
    len: usize,
    mapping: Arc<Mapping>,
    /// Made at the first use: most arrays of octets are only copied from and to.
    words: OnceLock<Box<[W]>>,
}

impl<W: Word> SharedSlice<W> {
    /// Returns `len` words from octet `offset` of a mapping on; `None` if they are not within it or not aligned.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64, len: usize) -> Option<Self> {
        let octets = Self::octets(len)?;
        mapping.span(offset, octets)?;
        // As for the alignment of real words.
        let alignment = (W::OCTETS as u64).min(8);
        if !offset.is_multiple_of(alignment) {
            return None;
        }
        for at in (0..octets as u64).step_by(W::OCTETS) {
            W::declare(mapping.memory(), offset + at);
        }
        Some(Self {
            start: offset,
            len,
            mapping: Arc::clone(mapping),
            words: OnceLock::new(),
        })
    }

    /// Returns the octets of `len` words.
    #[must_use]
    pub const fn octets(len: usize) -> Option<usize> {
        len.checked_mul(W::OCTETS)
    }

    /// Returns the number of words.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no words.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the mapping that the words lie in.
    #[must_use]
    pub fn mapping(&self) -> &Arc<Mapping> {
        &self.mapping
    }

    /// No effect.
    pub fn prefetch(&self, _index: usize) {}

    /// No effect.
    pub fn prefetch_write(&self, _index: usize) {}
}

impl SharedSlice<AtomicU8> {
    /// Returns `len` octets from octet `offset` of this slice on; `None` if they are not within it.
    #[must_use]
    pub fn span(&self, offset: u64, len: usize) -> Option<Span<'_>> {
        let whole = self.len as u64;
        if offset > whole || len as u64 > whole - offset {
            return None;
        }
        self.mapping.span(self.start + offset, len)
    }
}

impl<W: Word> Deref for SharedSlice<W> {
    type Target = [W];

    fn deref(&self) -> &[W] {
        self.words.get_or_init(|| {
            let at = |index: usize| self.start + (index * W::OCTETS) as u64;
            (0..self.len)
                .map(|index| W::at(self.mapping.memory(), at(index)))
                .collect()
        })
    }
}
