// SPDX-License-Identifier: Apache-2.0
//! The tester's own part of a latency, measured over a loop without a device.
//!
//! A frame gets its time stamp before its burst is written, and its reception is noticed when its port is polled. Both delays are part of
//! every latency.

use super::summary::LatencySummary;

/// If the tester's own part exceeds this share of a latency, the latency is an upper bound of the device's.
const PART_MAX: f64 = 0.1;

impl LatencySummary {
    /// Returns the figures without the histogram.
    #[must_use]
    pub fn without_histogram(&self) -> Self {
        Self {
            histogram_v2_base64: String::new(),
            ..self.clone()
        }
    }

    /// Returns the latency at a percentile, nanoseconds; the largest latency if there are too few samples.
    #[must_use]
    pub fn at_or_max(&self, percentile: f64) -> u64 {
        let known = super::PERCENTILES.into_iter().zip(self.percentiles());
        let at = known
            .filter(|(known, _)| *known >= percentile)
            .find_map(|(_, value)| value);
        at.unwrap_or(self.max_ns)
    }
}

/// Returns true if a latency is only an upper bound of the device's, because more than a tenth of it may be the tester's own. Both values
/// have the same unit.
#[must_use]
pub fn is_bound(latency: f64, own: f64) -> bool {
    own > latency * PART_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_is_the_limit() {
        assert!(!is_bound(10_000.0, 1_000.0));
        assert!(is_bound(10_000.0, 1_001.0));
        assert!(!is_bound(0.0, 0.0));
    }

    #[test]
    fn figures_are_kept_without_the_histogram() {
        let own = LatencySummary {
            samples: 2_000,
            max_ns: 90,
            histogram_v2_base64: "HISTFAAA".to_owned(),
            ..LatencySummary::default()
        };
        let figures = own.without_histogram();
        assert!(figures.histogram_v2_base64.is_empty());
        assert_eq!((figures.samples, figures.max_ns), (2_000, 90));
    }

    #[test]
    fn a_percentile_that_is_not_borne_counts_as_the_largest() {
        let own = LatencySummary {
            samples: 2_000,
            p50_ns: Some(5),
            p90_ns: Some(6),
            p99_ns: Some(7),
            max_ns: 90,
            ..LatencySummary::default()
        };
        let at = [50.0, 90.0, 99.0, 99.9, 99.99, 99.999].map(|it| own.at_or_max(it));
        assert_eq!(at, [5, 6, 7, 90, 90, 90]);
    }
}
