// SPDX-License-Identifier: Apache-2.0
//! Memory of one queue's inflight region, in words.

use quietwire_memory::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use quietwire_memory::{Mapping, SharedSlice};

use crate::narrow::low_u16;

/// `version` of a region in use; 0 for a new one.
pub(super) const VERSION: u16 = 1;

/// Memory that tracks the chains of one queue.
#[derive(Clone, Debug)]
pub struct InflightRegion {
    pub(super) mapping: Arc<Mapping>,
    pub(super) offset: u64,
}

impl InflightRegion {
    /// Returns the region at an offset of a mapping, which must be at an address that is a multiple of 8. Its length is
    /// [`inflight_region_len`](super::inflight_region_len), checked when a queue is started.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            offset,
        }
    }

    pub(super) fn words(&self, len: usize) -> Option<InflightWords> {
        SharedSlice::new(&self.mapping, self.offset, len).map(InflightWords)
    }
}

/// Words that only this device is expected to write.
#[derive(Debug)]
pub(super) struct InflightWords(pub(super) SharedSlice<AtomicU64>);

impl InflightWords {
    pub(super) fn get(&self, at: usize) -> u64 {
        let word = self
            .0
            .get(at)
            .map_or(0, |word| word.load(Ordering::Acquire));
        u64::from_le(word)
    }

    /// Writes a word after all previous writes (release).
    pub(super) fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value.to_le(), Ordering::Release);
        }
    }
}

/// Returns 16 bits of a word.
pub(super) fn field(word: u64, bit: u32) -> u16 {
    low_u16(word >> bit)
}
