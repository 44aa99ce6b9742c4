// SPDX-License-Identifier: Apache-2.0
//! Watching frames of a running switch: captures, which copy frames as they come and go, and traces, which follow some of
//! them through every step.
//!
//! Forwarding threads have a `CaptureTap` or a `Tracer` only while somebody watches; otherwise this costs them one
//! branch a burst. They allocate nothing and wait for nobody: what a watcher does not take in time is counted as missed.
//! `watch` is the control thread's side; it ends by itself when nobody has asked for its results for a while.

mod capture;
mod filter;
mod request;
mod session;
mod trace;
mod watch;
mod words;

pub(crate) use capture::CaptureTap;
pub use capture::Directions;
pub use filter::Filter;
pub use request::{
    CaptureStarted, Captured, CapturedFrame, TraceEvent, TraceStarted, Traced, WatchRequest,
};
pub(crate) use session::Watches;
pub(crate) use trace::{Served, Tracer};
