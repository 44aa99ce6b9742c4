// SPDX-License-Identifier: Apache-2.0
//! Counters of the queues.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of one receive queue, written by its thread only.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RxCounters {
    pub(super) frames: AtomicU64,
    pub(super) octets: AtomicU64,
    pub(super) errors: AtomicU64,
    pub(super) no_buffers: AtomicU64,
    /// Long frames for which the socket's queue had no space.
    pub(super) lost: AtomicU64,
}

/// Counters of one transmit queue, written by its thread only.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct TxCounters {
    pub(super) frames: AtomicU64,
    pub(super) octets: AtomicU64,
    pub(super) errors: AtomicU64,
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
pub(super) fn add(counter: &AtomicU64, count: u64) {
    counter.store(
        counter.load(Ordering::Relaxed).wrapping_add(count),
        Ordering::Relaxed,
    );
}
