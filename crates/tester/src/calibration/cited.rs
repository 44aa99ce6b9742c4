// SPDX-License-Identifier: Apache-2.0
//! Calibration data cited by a trial.

use serde::{Deserialize, Serialize};

use crate::latency::LatencySummary;

/// The calibration that a trial cites.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CitedCalibration {
    /// Time of the measurement, nanoseconds since the Unix epoch.
    pub measured_unix_ns: u64,
    /// Highest clean rate with the trial's frames, frames per second.
    pub clean_rate_pps: f64,
    /// Smallest latency of the loop without a device, nanoseconds.
    pub latency_floor_ns: u64,
    /// The tester's own part of latencies, without a histogram: the latencies of the loop without a device, at the nearest calibrated
    /// rate not below the trial's, or at the highest one. `None` if the calibration was made by a version that did not store it.
    #[serde(default)]
    pub own: Option<LatencySummary>,
    /// True if the trial's rate exceeds the clean rate. Loss may then be the tester's.
    pub is_exceeded: bool,
}
