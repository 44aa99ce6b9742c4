// SPDX-License-Identifier: Apache-2.0
//! Octet ranges of a mapping. An access that nothing orders with another thread's ends the model with an error.

use std::sync::Arc;

use crate::memory::Memory;

/// A range of octets within a mapping.
#[derive(Clone, Copy, Debug)]
pub struct Span<'mapping> {
    memory: Option<&'mapping Memory>,
    start: usize,
    len: usize,
}

impl<'mapping> Span<'mapping> {
    /// An empty span.
    pub const EMPTY: Self = Self {
        memory: None,
        start: 0,
        len: 0,
    };

    pub(crate) fn new(memory: &'mapping Arc<Memory>, start: usize, len: usize) -> Option<Self> {
        let end = start.checked_add(len)?;
        (end <= memory.len()).then_some(Self {
            memory: Some(memory),
            start,
            len,
        })
    }

    /// Returns the number of octets.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the span is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `len` octets from `offset` on; `None` if they are not within the span.
    #[must_use]
    pub fn sub(&self, offset: usize, len: usize) -> Option<Self> {
        if offset > self.len || len > self.len - offset {
            return None;
        }
        Some(Self {
            memory: self.memory,
            start: self.start + offset,
            len,
        })
    }

    /// Returns the first `len` octets (all of them if there are fewer), and the rest.
    #[must_use]
    pub fn split_at(&self, len: usize) -> (Self, Self) {
        let len = len.min(self.len);
        let part = |start, len| Self {
            memory: self.memory,
            start,
            len,
        };
        (
            part(self.start, len),
            part(self.start + len, self.len - len),
        )
    }

    /// Copies octets out of the span until one side ends; returns how many were copied.
    pub fn copy_to(&self, to: &mut [u8]) -> usize {
        let length = self.len.min(to.len());
        if let (Some(memory), Some(to)) = (self.memory, to.get_mut(..length)) {
            memory.read(self.start, to);
        }
        length
    }

    /// Copies octets into the span until one side ends; returns how many were copied.
    pub fn copy_from(&self, from: &[u8]) -> usize {
        let length = self.len.min(from.len());
        if let (Some(memory), Some(from)) = (self.memory, from.get(..length)) {
            memory.write(self.start, from);
        }
        length
    }

    /// Returns the first `N` octets; `None` if there are fewer.
    #[must_use]
    pub fn read_array<const N: usize>(&self) -> Option<[u8; N]> {
        let mut octets = [0; N];
        (N <= self.len).then(|| {
            self.copy_to(&mut octets);
            octets
        })
    }

    /// Writes the first `N` octets. Returns false if there are fewer.
    pub fn write_array<const N: usize>(&self, octets: [u8; N]) -> bool {
        N <= self.len && self.copy_from(&octets) == N
    }

    /// Writes `N` octets from `offset` on. Returns false if they are not within the span.
    pub fn write_at<const N: usize>(&self, offset: usize, octets: [u8; N]) -> bool {
        self.sub(offset, N)
            .is_some_and(|place| place.write_array(octets))
    }

    /// Sets all octets from `offset` on to zero.
    pub fn clear_from(&self, offset: usize) {
        let rest = self.split_at(offset).1;
        rest.copy_from(&vec![0; rest.len()]);
    }

    /// No effect.
    pub fn prefetch(&self, _limit: usize) {}

    /// No effect.
    pub fn prefetch_at(&self, _offset: usize) {}

    /// No effect.
    pub fn prefetch_write_at(&self, _offset: usize) {}

    /// No effect.
    pub fn prefetch_write(&self, _limit: usize) {}
}
