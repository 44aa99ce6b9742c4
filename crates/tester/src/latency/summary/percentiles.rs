// SPDX-License-Identifier: Apache-2.0
//! Percentiles, and the number of samples that they require.

/// Percentiles in results, in addition to the largest value.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Samples required beyond a percentile. With fewer, the percentile depends on a few frames.
pub(super) const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// Returns true if at least ten of `samples` samples lie beyond the percentile. The 50th percentile requires 20 samples, the 99th 1000,
/// the 99.99th 100 000.
#[must_use]
pub fn bears_percentile(samples: u64, percentile: f64) -> bool {
    // The subtrahend compensates for rounding: 100 000 samples must be enough for the 99.99th percentile.
    samples as f64 * (1.0 - percentile / 100.0) >= SAMPLES_BEYOND_MIN - 1e-6
}
