// SPDX-License-Identifier: Apache-2.0
//! Active captures and traces, owned by the control thread.

use std::sync::Arc;
use std::time::Instant;

use quietwire_base::unix_time_ns;
use quietwire_dpdk::cycles;

use super::capture::{CaptureReader, Directions};
use super::filter::FrameMatcher;
use super::trace::{SharedTrace, TraceReader};

/// Common state of a capture or a trace.
#[derive(Debug)]
pub(super) struct Lease {
    pub(super) id: u64,
    pub(super) read: Instant,
    /// Start, ns on the wall clock; `start_ticks` is the same moment in cycles of the time stamp counter.
    start_ns: u64,
    start_ticks: u64,
}

impl Lease {
    pub(super) fn new(id: u64) -> Self {
        Self {
            id,
            read: Instant::now(),
            start_ns: unix_time_ns(),
            start_ticks: cycles::now(),
        }
    }

    pub(super) fn time_ns(&self, ticks: u64) -> u64 {
        let since = u128::from(ticks.saturating_sub(self.start_ticks));
        let hz = u128::from(cycles::hz().max(1));
        let since_ns = since.saturating_mul(1_000_000_000).checked_div(hz);
        let since_ns = u64::try_from(since_ns.unwrap_or_default()).unwrap_or(u64::MAX);
        self.start_ns.saturating_add(since_ns)
    }
}

#[derive(Debug)]
pub(super) struct Capture {
    pub(super) lease: Lease,
    pub(super) matcher: Arc<FrameMatcher>,
    pub(super) directions: Directions,
    pub(super) snap_length: usize,
    pub(super) readers: Vec<CaptureReader>,
}

#[derive(Debug)]
pub(super) struct Trace {
    pub(super) lease: Lease,
    pub(super) common: SharedTrace,
    /// Readers with names of their threads.
    pub(super) readers: Vec<(String, TraceReader)>,
}

/// Active watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    pub(super) last_id: u64,
    pub(super) capture: Option<Capture>,
    pub(super) trace: Option<Trace>,
}

impl Watches {
    /// Returns true while frames are captured.
    pub(crate) const fn has_capture(&self) -> bool {
        self.capture.is_some()
    }

    /// Returns true while frames are traced.
    pub(crate) const fn has_trace(&self) -> bool {
        self.trace.is_some()
    }
}
