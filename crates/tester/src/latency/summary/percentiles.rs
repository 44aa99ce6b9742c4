// SPDX-License-Identifier: Apache-2.0
//! Percentiles, and the samples that they take.

/// Percentiles that are told, beside the largest.
pub const PERCENTILES: [f64; 5] = [50.0, 90.0, 99.0, 99.9, 99.99];

/// Samples that have to lie beyond a percentile before it is told: fewer are a few frames' luck.
pub(super) const SAMPLES_BEYOND_MIN: f64 = 10.0;

/// True when `samples` bear the percentile: ten of them at least lie beyond it. So the 50th takes 20 samples, the 99th
/// 1000, the 99.99th 100 000.
#[must_use]
pub fn bears_percentile(samples: u64, percentile: f64) -> bool {
    // A hair less than exact, so that 100 000 samples bear the 99.99th in floating point as well.
    samples as f64 * (1.0 - percentile / 100.0) >= SAMPLES_BEYOND_MIN - 1e-6
}
