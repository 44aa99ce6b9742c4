// SPDX-License-Identifier: Apache-2.0
//! Observation of frames in a running switch: captures, which copy received and sent frames, and traces, which follow some frames through
//! every step.
//!
//! Forwarding threads have a `CaptureTap` or a `Tracer` only while a watcher is active; otherwise the cost is one branch per burst. They
//! allocate nothing and never wait. Events that a watcher does not read in time are counted as missed. `watch` is the control thread's
//! side. It ends a watch whose results are not read for a while.

mod capture;
mod describe;
mod filter;
mod request;
mod session;
mod trace;
mod watch;

pub(crate) use capture::CaptureTap;
pub use capture::Directions;
pub use filter::Filter;
pub use request::{
    CaptureStarted, Captured, CapturedFrame, TraceEvent, TraceStarted, Traced, WatchRequest,
};
pub(crate) use session::Watches;
pub(crate) use trace::{ServiceOutcome, Tracer};
