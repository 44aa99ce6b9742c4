// SPDX-License-Identifier: Apache-2.0
//! Requests of watchers on the control socket, and the replies.

use serde::{Deserialize, Serialize};

use super::capture::Directions;
use super::filter::Filter;

/// A request of a watcher. A capture or a trace that is not read for 10 s ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WatchRequest {
    /// Starts the capture; only one can run at a time. The reply is a [`CaptureStarted`].
    StartCapture {
        /// Frames to capture.
        #[serde(default)]
        filter: Filter,
        /// Directions to capture.
        #[serde(default)]
        directions: Directions,
        /// Maximum number of octets per frame.
        snap_length: u32,
    },
    /// Reads captured frames. The reply is a [`Captured`].
    ReadCapture {
        /// Number of the capture.
        id: u64,
    },
    /// Stops a capture.
    StopCapture {
        /// Number of the capture.
        id: u64,
    },
    /// Starts the trace; only one can run at a time. The reply is a [`TraceStarted`].
    StartTrace {
        /// Frames to trace.
        #[serde(default)]
        filter: Filter,
        /// Number of frames, 1 to 10000.
        count: u32,
    },
    /// Reads trace events. The reply is a [`Traced`].
    ReadTrace {
        /// Number of the trace.
        id: u64,
    },
    /// Stops a trace.
    StopTrace {
        /// Number of the trace.
        id: u64,
    },
}

/// Reply to the start of a capture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStarted {
    /// Number of the capture.
    pub id: u64,
    /// Maximum number of octets per frame.
    pub snap_length: u32,
    /// Names of ports.
    pub ports: Vec<String>,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedFrame {
    /// Timestamp, nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the port.
    pub port: String,
    /// True for a sent frame, false for a received frame.
    pub is_outward: bool,
    /// Length of the frame without FCS, octets.
    pub length: u32,
    /// Captured octets, as base64 (RFC 4648, section 4).
    pub octets: String,
}

/// Frames captured since the last read, ordered by time within each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The frames.
    pub frames: Vec<CapturedFrame>,
    /// Frames missed since the start, because they arrived faster than they were read.
    pub missed: u64,
    /// More frames are available.
    pub more: bool,
}

/// Reply to the start of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStarted {
    /// Number of the trace.
    pub id: u64,
}

/// An event of a traced frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Number of the frame, from 1.
    pub packet: u32,
    /// Timestamp, nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the thread.
    pub thread: String,
    /// The step: `receive`, `filter`, `bridge`, `route`, `send`, `relay`, `service` or `drop`.
    pub step: String,
    /// The result of the step.
    pub what: String,
    /// Description of the frame at this step, if it was examined.
    pub frame: Option<String>,
}

/// Trace events since the last read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Events, in the order of their times.
    pub events: Vec<TraceEvent>,
    /// Number of frames selected since the start.
    pub chosen: u32,
    /// Number of events lost because the buffer was full.
    pub missed: u64,
}
