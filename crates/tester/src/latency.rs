// SPDX-License-Identifier: Apache-2.0
//! Latency and its variation, recorded on the packet path in nanoseconds.
//!
//! The buckets are those of an HdrHistogram, so the stored histogram is the recorded one, and histograms of CPUs and trials can be added.
//!
//! Delay variation is that of RFC 5481: between consecutive packets of a stream (IPDV, section 4.1, signed) and relative to the smallest
//! delay of the interval (PDV, section 4.2). Results contain both twice: from every frame, and from a low-rate stream.

#[cfg(test)]
mod beside_python;
mod delays;
#[cfg(test)]
mod figures;
mod microseconds;
mod own;
mod recorder;
mod samples;
mod signed;
mod stored;
mod summary;
mod times;
mod written;

use std::num::{NonZeroU64, NonZeroU128};

pub(crate) use delays::Delays;
pub use microseconds::histogram_in_us;
pub use own::{is_bound, withhold, withhold_bounds};
pub(crate) use recorder::Recorder;
pub(crate) use samples::{Sample, Samples};
pub(crate) use signed::SignedRecorder;
pub use stored::{HISTOGRAM_DIGITS_MAX, read_histogram};
pub use summary::{
    DelayVariation, LatencySummary, LowRateStreams, PERCENTILES, SignedSummary, bears_percentile,
};
pub use times::TimeHistogram;

/// Conversion of time stamp counter ticks to nanoseconds with one multiplication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Nanoseconds per tick, times 2^32.
    factor: u64,
}

impl Scale {
    pub(crate) fn new(ticks_per_second: u64) -> Self {
        let ticks_per_second = NonZeroU64::new(ticks_per_second).unwrap_or(NonZeroU64::MIN);
        let factor = (1_000_000_000_u128 << 32) / NonZeroU128::from(ticks_per_second);
        Self {
            factor: u64::try_from(factor).unwrap_or(u64::MAX),
        }
    }

    /// Returns nanoseconds, rounded down. The error is at most one part in a thousand million for counters of 0.25 GHz and more.
    #[inline(always)]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "64 bits of nanoseconds are 584 years"
    )]
    pub(crate) fn ns(self, ticks: u64) -> u64 {
        (u128::from(ticks).wrapping_mul(u128::from(self.factor)) >> 32) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_become_nanoseconds() {
        let scale = Scale::new(2_600_000_000);
        for (ticks, ns) in [(0, 0), (26, 9), (27, 10), (2_600_000_001, 1_000_000_000)] {
            assert!(scale.ns(ticks).abs_diff(ns) <= 1, "{ticks}");
        }
        assert_eq!(
            Scale::new(1_000_000_000).ns(u64::from(u32::MAX)),
            u64::from(u32::MAX)
        );
        let day = 2_600_000_000 * 86_400;
        assert!(scale.ns(day).abs_diff(86_400_000_000_000) < 86_400);
    }
}
