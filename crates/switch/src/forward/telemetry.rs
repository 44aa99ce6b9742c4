// SPDX-License-Identifier: Apache-2.0
//! Instrumentation of a forwarding thread: cycles per step, captures and traces.

use std::sync::Arc;

use quietwire_dpdk::{Burst, cycles};

use crate::counters::{Step, ThreadCounters};
use crate::observe::{CaptureTap, Tracer};
use quietwire_tables::bridge::{self, Ingress};
use quietwire_tables::filter::Verdicts;
use quietwire_tables::route;

/// Clock of a thread, its counters, and its watchers.
#[derive(Debug)]
pub(crate) struct Telemetry {
    counters: Arc<ThreadCounters>,
    /// End of the previous step and start of the current one.
    last: u64,
    /// A capture or a trace is active.
    watched: bool,
    capture: Option<Box<CaptureTap>>,
    trace: Option<Box<Tracer>>,
}

impl Telemetry {
    pub(super) fn new(counters: Arc<ThreadCounters>) -> Self {
        Self {
            counters,
            last: cycles::now(),
            watched: false,
            capture: None,
            trace: None,
        }
    }

    /// Ends the current step and attributes its cycles to `step`. Every tick belongs to exactly one step.
    #[inline(always)]
    pub(super) fn lap(&mut self, step: Step) {
        if cfg!(feature = "without-cycles") {
            return;
        }
        let now = cycles::now();
        let spent = now.wrapping_sub(self.last);
        self.last = now;
        self.counters.steps.of(step).cycles.add(spent);
    }

    /// Ends a step that processed this number of frames.
    #[inline(always)]
    pub(super) fn lap_of(&mut self, step: Step, frames: usize) {
        self.count(step, frames);
        self.lap(step);
    }

    /// Returns the end of the last step.
    #[inline(always)]
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Counts frames of a step that is not over yet.
    #[inline(always)]
    pub(super) fn count(&self, step: Step, frames: usize) {
        if cfg!(feature = "without-cycles") {
            return;
        }
        let counters = self.counters.steps.of(step);
        counters.bursts.add(1);
        counters.frames.add(frames as u64);
    }
}

/// Events for watchers. Not called while no watcher is active.
impl Telemetry {
    /// Returns true while a capture or a trace is active.
    #[inline(always)]
    pub(super) const fn is_watched(&self) -> bool {
        self.watched
    }

    pub(super) fn set_capture(
        &mut self,
        capture: Option<Box<CaptureTap>>,
    ) -> Option<Box<CaptureTap>> {
        let former = std::mem::replace(&mut self.capture, capture);
        self.watched = self.capture.is_some() || self.trace.is_some();
        former
    }

    pub(super) fn set_trace(&mut self, trace: Option<Box<Tracer>>) -> Option<Box<Tracer>> {
        let former = std::mem::replace(&mut self.trace, trace);
        self.watched = self.capture.is_some() || self.trace.is_some();
        former
    }

    #[cold]
    #[inline(never)]
    pub(super) fn received(&mut self, port: u16, queue: u16, burst: &Burst) {
        if let Some(capture) = &mut self.capture {
            capture.received(port, burst);
        }
        if let Some(trace) = &mut self.trace {
            trace.received(port, queue, burst);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn filtered(&mut self, burst: &Burst, verdicts: &Verdicts) {
        if let Some(trace) = &mut self.trace {
            trace.filtered(burst, verdicts);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn bridged(&mut self, from: Ingress, burst: &Burst, decisions: &[bridge::Decision]) {
        if let Some(trace) = &mut self.trace {
            trace.bridged(from, burst, decisions);
        }
    }

    #[cold]
    #[inline(never)]
    pub(super) fn routed(&mut self, burst: &Burst, from: &[u16], decisions: &route::Decisions) {
        if let Some(trace) = &mut self.trace {
            trace.routed(burst, from, decisions);
        }
    }

    /// Records that a frame is copied to another buffer.
    #[inline]
    pub(super) fn copied(&mut self, from: usize, to: usize) {
        if let Some(trace) = &mut self.trace {
            trace.copied(from, to);
        }
    }

    /// Records that a burst is offered to a driver or, through a ring, to another thread. [`Self::sent`] follows.
    #[cold]
    #[inline(never)]
    pub(super) fn offered(&mut self, port: u16, is_ring: bool, burst: &Burst) {
        if let Some(capture) = self.capture.as_mut().filter(|_| !is_ring) {
            capture.offered(port, burst);
        }
        if let Some(trace) = &mut self.trace {
            trace.offered(port, is_ring, burst);
        }
    }

    /// Records that the first `count` frames of the offered burst were accepted.
    #[cold]
    #[inline(never)]
    pub(super) fn sent(&mut self, port: u16, count: usize) {
        if let Some(capture) = &mut self.capture {
            capture.sent(port, count);
        }
        if let Some(trace) = &mut self.trace {
            trace.sent(port, count);
        }
    }

    /// Records that the copy of a frame waits in another buffer. [`Self::adopt`] continues with it.
    #[cold]
    #[inline(never)]
    pub(super) fn held(&mut self, from: usize, to: usize) {
        if let Some(trace) = &mut self.trace {
            trace.held(from, to);
        }
    }

    /// Records a burst before it is handed over to the thread that owns its connections.
    #[cold]
    #[inline(never)]
    pub(super) fn hand_over(&mut self, burst: &Burst) {
        if let Some(trace) = &mut self.trace {
            trace.hand_over(burst);
        }
    }

    /// Records frames for which the ring to that thread had no space.
    #[cold]
    #[inline(never)]
    pub(super) fn not_handed_over(&mut self, burst: &Burst) {
        if let Some(trace) = &mut self.trace {
            trace.not_handed_over(burst);
        }
    }

    /// Records a burst of another thread before it is sent.
    #[cold]
    #[inline(never)]
    pub(super) fn adopt(&mut self, burst: &Burst) {
        if let Some(trace) = &mut self.trace {
            trace.adopt(burst);
        }
    }

    /// Completes the records of a burst.
    #[cold]
    #[inline(never)]
    pub(super) fn finish(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.finish();
        }
    }
}
