// SPDX-License-Identifier: Apache-2.0
//! What a trial says of the calibration that it stands on.

use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;

/// The calibration that a trial stands on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CitedCalibration {
    /// When it was measured, nanoseconds since the Unix epoch.
    pub measured_unix_ns: u64,
    /// The highest clean rate for the trial's frames, frames per second.
    pub clean_rate_pps: f64,
    /// The smallest latency of the loop without a device, nanoseconds.
    pub latency_floor_ns: u64,
    /// The tester's own part of latencies: those of the loop without a device, at the nearest calibrated rate that is not under
    /// the trial's, or else at the highest. Without a histogram; none if the calibration is of a version that did not keep it.
    #[serde(default)]
    pub own: Option<LatencySummary>,
    /// True when the trial offered more than that: then loss may be the tester's.
    pub is_exceeded: bool,
}
