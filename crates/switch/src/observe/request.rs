// SPDX-License-Identifier: Apache-2.0
//! What watchers ask on the control socket, and what they are answered.

use serde::{Deserialize, Serialize};

use super::capture::Directions;
use super::filter::Filter;

/// What a watcher asks. A capture or a trace that is not read for 10 seconds ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum WatchRequest {
    /// Begins to copy frames; there is one capture at a time. The answer is a [`CaptureStarted`].
    StartCapture {
        /// Which frames.
        #[serde(default)]
        filter: Filter,
        /// Which way.
        #[serde(default)]
        directions: Directions,
        /// Octets of each to keep at most.
        snap_length: u32,
    },
    /// Takes what was captured. The answer is a [`Captured`].
    ReadCapture {
        /// Which capture.
        id: u64,
    },
    /// Ends it.
    StopCapture {
        /// Which capture.
        id: u64,
    },
    /// Begins to follow frames; there is one trace at a time. The answer is a [`TraceStarted`].
    StartTrace {
        /// Which frames.
        #[serde(default)]
        filter: Filter,
        /// How many, 1 to 10000.
        count: u32,
    },
    /// Takes what has happened to them. The answer is a [`Traced`].
    ReadTrace {
        /// Which trace.
        id: u64,
    },
    /// Ends it.
    StopTrace {
        /// Which trace.
        id: u64,
    },
}

/// A capture has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaptureStarted {
    /// Its number.
    pub id: u64,
    /// Octets of a frame that are kept at most.
    pub snap_length: u32,
    /// Names of ports.
    pub ports: Vec<String>,
}

/// A frame that was captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CapturedFrame {
    /// When: nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the port.
    pub port: String,
    /// It went out; otherwise it came in.
    pub is_outward: bool,
    /// Octets that it had, without FCS.
    pub length: u32,
    /// Those that were kept, as base64 (RFC 4648, section 4).
    pub octets: String,
}

/// Frames that were captured since the last time, in the order of their times within each thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Captured {
    /// The frames.
    pub frames: Vec<CapturedFrame>,
    /// Frames that were to be captured since the start and could not, as they came faster than they were read.
    pub missed: u64,
    /// There is more to be read.
    pub more: bool,
}

/// A trace has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceStarted {
    /// Its number.
    pub id: u64,
}

/// Something that happened to a frame that is followed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Which frame, from 1.
    pub packet: u32,
    /// When: nanoseconds since 1970 (UTC).
    pub time_ns: u64,
    /// Name of the thread.
    pub thread: String,
    /// Where it is: `receive`, `bridge`, `route`, `send`, `relay`, `service` or `drop`.
    pub step: String,
    /// What was done there.
    pub what: String,
    /// What the frame is then, where that was looked at.
    pub frame: Option<String>,
}

/// What happened to frames since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traced {
    /// Events, in the order of their times.
    pub events: Vec<TraceEvent>,
    /// Frames that were chosen since the start.
    pub chosen: u32,
    /// Events that there was no room for.
    pub missed: u64,
}
