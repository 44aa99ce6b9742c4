// SPDX-License-Identifier: Apache-2.0
//! Counters of the packet path.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter with one writing thread and any number of readers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to the counter. Only the owning thread may call it.
    #[inline(always)]
    pub fn add(&self, count: u64) {
        // There is one writer, so no read-modify-write is needed.
        if count > 0 {
            let now = self.0.load(Ordering::Relaxed);
            self.0.store(now.wrapping_add(count), Ordering::Relaxed);
        }
    }

    /// Sets the counter to a count that the owning thread maintains itself.
    #[inline(always)]
    pub fn set(&self, count: u64) {
        self.0.store(count, Ordering::Relaxed);
    }

    /// Returns the count.
    #[inline(always)]
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
