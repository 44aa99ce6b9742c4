// SPDX-License-Identifier: Apache-2.0
//! Counters of the queues.

use quietwire_base::Counter;

/// Counters of one receive queue, written by its thread only.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct RxCounters {
    pub(super) frames: Counter,
    pub(super) octets: Counter,
    pub(super) errors: Counter,
    pub(super) no_buffers: Counter,
    /// Long frames for which the socket's queue had no space.
    pub(super) lost: Counter,
}

/// Counters of one transmit queue, written by its thread only.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct TxCounters {
    pub(super) frames: Counter,
    pub(super) octets: Counter,
    pub(super) errors: Counter,
}
