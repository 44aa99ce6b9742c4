// SPDX-License-Identifier: Apache-2.0
//! Chains that the device has taken and not returned, in memory that the front end keeps while the device restarts
//! (vhost-user, "Inflight I/O tracking").
//!
//! The regions consist of words of 64 bits here, whose fields are those of the specification in the order of their offsets.
//! The device writes to them and reads them once, at its start: the front end, which shares them, may write to them too.

mod packed;
mod split;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quietwire_memory::{CACHE_LINE, Mapping, SharedSlice};

pub(crate) use packed::{PackedDescriptor, PackedInflight};
pub(crate) use split::SplitInflight;

/// `version` of a region in use; 0 for a new one.
const VERSION: u16 = 1;

/// Returns the octets of the region of one queue. Regions follow one another.
#[must_use]
pub const fn inflight_region_len(size: u16, is_packed: bool) -> u64 {
    let words = if is_packed {
        packed::HEADER_WORDS + packed::ENTRY_WORDS * size as usize
    } else {
        split::HEADER_WORDS + split::ENTRY_WORDS * size as usize
    };
    (words * size_of::<u64>()).next_multiple_of(CACHE_LINE) as u64
}

/// The memory in which the chains of one queue are tracked.
#[derive(Clone, Debug)]
pub struct InflightRegion {
    mapping: Arc<Mapping>,
    offset: u64,
}

impl InflightRegion {
    /// Returns the region at an offset of a mapping, which has to begin at an address that is a multiple of 8. Its length
    /// is [`inflight_region_len`], checked when a queue is started.
    #[must_use]
    pub fn new(mapping: &Arc<Mapping>, offset: u64) -> Self {
        Self {
            mapping: Arc::clone(mapping),
            offset,
        }
    }

    fn words(&self, len: usize) -> Option<Words> {
        SharedSlice::new(&self.mapping, self.offset, len).map(Words)
    }
}

/// Words that only this device is expected to write.
#[derive(Debug)]
struct Words(SharedSlice<AtomicU64>);

impl Words {
    fn get(&self, at: usize) -> u64 {
        let word = self
            .0
            .get(at)
            .map_or(0, |word| word.load(Ordering::Acquire));
        u64::from_le(word)
    }

    /// Writes a word after all that were written before.
    fn set(&self, at: usize, value: u64) {
        if let Some(word) = self.0.get(at) {
            word.store(value.to_le(), Ordering::Release);
        }
    }
}

/// Returns 16 bits of a word.
fn field(word: u64, bit: u32) -> u16 {
    (word >> bit) as u16
}

#[cfg(test)]
mod tests;
