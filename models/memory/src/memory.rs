// SPDX-License-Identifier: Apache-2.0
//! Memory that several threads of a model share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use loom::cell::UnsafeCell;
use loom::sync::atomic::AtomicU64;

use crate::CACHE_LINE;
use crate::span::Span;

/// Octets of the narrowest word.
const NARROWEST: u64 = 2;

/// A mapping cannot be created. Never happens.
#[derive(Debug)]
pub enum MapError {}

/// Words by their offsets.
type WordMap = BTreeMap<u64, Arc<AtomicU64>>;

/// WordMap and octets. WordMap are in their own storage: no code accesses a place in both ways while threads run.
#[doc(hidden)]
pub struct Memory {
    len: usize,
    words: Mutex<WordMap>,
    /// Octets of the word that each of the narrowest words belongs to; 0 if none was declared there.
    widths: Mutex<Vec<u64>>,
    octets: Mutex<Vec<u8>>,
    /// A cell for each cache line of octets, which reports unordered accesses. Made at the first access, which counts as a write.
    lines: Mutex<BTreeMap<usize, UnsafeCell<()>>>,
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "memory of {} octets", self.len)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn new(len: usize) -> Self {
        let narrowest = usize::try_from(NARROWEST).unwrap_or(1);
        Self {
            len,
            words: Mutex::default(),
            widths: Mutex::new(vec![0; len.div_ceil(narrowest)]),
            octets: Mutex::new(vec![0; len]),
            lines: Mutex::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Declares a word. The last declaration of a place determines its width.
    pub(crate) fn declare(&self, at: u64, octets: u64) {
        let mut widths = lock(&self.widths);
        let first = usize::try_from(at / NARROWEST).unwrap_or(usize::MAX);
        let count = usize::try_from(octets.div_ceil(NARROWEST)).unwrap_or(0);
        for width in widths.iter_mut().skip(first).take(count) {
            *width = octets;
        }
    }

    /// Returns the words that a wider one consists of, each with its bits.
    fn parts(&self, at: u64, octets: u32) -> Vec<(Arc<AtomicU64>, u32, u32)> {
        let octets = u64::from(octets);
        let first = usize::try_from(at / NARROWEST).unwrap_or(usize::MAX);
        let count = usize::try_from(octets.div_ceil(NARROWEST)).unwrap_or(0);
        let widths = lock(&self.widths);
        let width = widths.iter().skip(first).take(count).min().copied();
        let width = width
            .filter(|width| *width > 0)
            .unwrap_or(octets)
            .min(octets);
        drop(widths);
        let mut words = lock(&self.words);
        let mut parts = Vec::new();
        let mut offset = 0;
        while offset < octets {
            let word = words
                .entry(at + offset)
                .or_insert_with(|| Arc::new(AtomicU64::new(0)));
            let shift = u32::try_from(offset * 8).unwrap_or(0);
            let bits = u32::try_from(width * 8).unwrap_or(0);
            parts.push((Arc::clone(word), shift, bits));
            offset += width;
        }
        parts
    }

    /// Makes all declared words. The thread that makes a word must be ordered before all accesses.
    pub(crate) fn make_words(&self) {
        let widths = lock(&self.widths).clone();
        let mut at = 0_u64;
        for width in widths {
            if width > 0 && at.is_multiple_of(width) {
                let octets = u32::try_from(width).unwrap_or(0);
                let _ = self.parts(at, octets);
            }
            at += NARROWEST;
        }
    }

    pub(crate) fn load(&self, at: u64, octets: u32, order: Ordering) -> u64 {
        let parts = self.parts(at, octets);
        let value = |(word, shift, _): (Arc<AtomicU64>, u32, u32)| word.load(order) << shift;
        parts.into_iter().map(value).fold(0, |all, part| all | part)
    }

    pub(crate) fn store(&self, at: u64, octets: u32, value: u64, order: Ordering) {
        for (word, shift, bits) in self.parts(at, octets) {
            word.store((value >> shift) & (u64::MAX >> (64 - bits)), order);
        }
    }

    pub(crate) fn swap(&self, at: u64, octets: u32, value: u64, order: Ordering) -> u64 {
        let mut former = 0;
        for (word, shift, bits) in self.parts(at, octets) {
            let part = (value >> shift) & (u64::MAX >> (64 - bits));
            former |= word.swap(part, order) << shift;
        }
        former
    }

    /// Reports the access to the checker: it fails if another thread accesses one of these octets, and nothing orders both.
    fn touch(&self, start: usize, len: usize, writes: bool) {
        let lines = start / CACHE_LINE..(start + len).div_ceil(CACHE_LINE);
        // No other thread of the model runs while the lock is held: an access to a cell is no point at which threads change.
        let mut cells = lock(&self.lines);
        for line in lines {
            let cell = cells.entry(line).or_insert_with(|| UnsafeCell::new(()));
            if writes {
                cell.with_mut(|_| ());
            } else {
                cell.with(|_| ());
            }
        }
    }

    pub(crate) fn read(&self, start: usize, to: &mut [u8]) {
        self.touch(start, to.len(), false);
        let octets = lock(&self.octets);
        let from = octets.get(start..).unwrap_or_default();
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }

    pub(crate) fn write(&self, start: usize, from: &[u8]) {
        self.touch(start, from.len(), true);
        let mut octets = lock(&self.octets);
        let to = octets.get_mut(start..).unwrap_or_default();
        to.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
    }
}

/// Memory of the model, all zero.
#[derive(Debug)]
pub struct Mapping(Arc<Memory>);

impl Mapping {
    /// Creates memory of `len` octets.
    ///
    /// # Errors
    /// None.
    pub fn create(_name: &str, len: usize) -> Result<(Self, ()), MapError> {
        Ok((Self(Arc::new(Memory::new(len))), ()))
    }

    /// Returns the number of octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len
    }

    /// Returns false.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.len == 0
    }

    /// Returns false.
    #[must_use]
    pub fn has_faulted(&self) -> bool {
        false
    }

    /// Returns `len` octets from `offset` on; `None` if they are not within the mapping.
    #[must_use]
    pub fn span(&self, offset: u64, len: usize) -> Option<Span<'_>> {
        Span::new(&self.0, usize::try_from(offset).ok()?, len)
    }

    /// Makes the words of all slices so far. Call it before threads start.
    pub fn make_words(&self) {
        self.0.make_words();
    }

    pub(crate) fn memory(&self) -> &Arc<Memory> {
        &self.0
    }
}
