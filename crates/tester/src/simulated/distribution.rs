// SPDX-License-Identifier: Apache-2.0
//! Distribution of simulated times.

use super::options::SimOptions;
use crate::error::TesterError;
use crate::latency::{LatencySummary, Recorder};
use crate::narrow::whole;

/// Number of equal parts of the distribution in the histogram.
const SLICES: u64 = 400;

/// Returns the mean latency of the device at a share of its capacity, nanoseconds.
pub(super) fn latency_ns(options: &SimOptions, load: f64) -> f64 {
    let load = load.min(0.98);
    options.latency_s * 1e9 * (1.0 + load * load / (1.0 - load))
}

/// Returns a skewed distribution with this mean.
pub(super) fn summary(mean_ns: f64, frames: u64) -> Result<LatencySummary, TesterError> {
    let mut recorder = Recorder::default();
    let slices = SLICES.min(frames);
    let mut left = frames;
    for slice in 0..slices {
        let quantile = (slice as f64 + 0.5) / slices as f64;
        let value_ns = mean_ns * (0.55 - 0.45 * (1.0 - quantile).ln());
        // At least one slice is left.
        let slices_left = slices.saturating_sub(slice);
        let count = left.checked_div(slices_left).unwrap_or(0);
        recorder.record(whole(value_ns), count);
        left = left.saturating_sub(count);
    }
    recorder.summary().map_err(TesterError::Result)
}
