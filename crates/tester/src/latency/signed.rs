// SPDX-License-Identifier: Apache-2.0
//! Histogram of signed values: one histogram for each sign.

use super::recorder::{Recorder, rank};
use super::summary::bears_percentile;

/// Histogram of signed values, nanoseconds.
#[derive(Clone, Debug, Default)]
pub(crate) struct SignedRecorder {
    /// Magnitudes of the negative values.
    pub(super) negative: Recorder,
    /// Values of zero and more.
    pub(super) positive: Recorder,
}

impl SignedRecorder {
    /// Records `count` equal values.
    #[inline(always)]
    pub(crate) fn record(&mut self, value: i64, count: u64) {
        let side = if value < 0 {
            &mut self.negative
        } else {
            &mut self.positive
        };
        side.record(value.unsigned_abs(), count);
    }

    /// Adds the values of another recorder.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.negative.merge(&other.negative);
        self.positive.merge(&other.positive);
    }

    /// Returns the number of values.
    pub(crate) fn samples(&self) -> u64 {
        self.negative
            .samples()
            .saturating_add(self.positive.samples())
    }

    /// Returns true if it holds every value that `other` holds, at least as often.
    #[cfg(test)]
    pub(super) fn holds_all_of(&self, other: &Self) -> bool {
        self.negative.holds_all_of(&other.negative) && self.positive.holds_all_of(&other.positive)
    }

    pub(super) fn at_percentile(&self, percentile: f64) -> Option<i64> {
        let samples = self.samples();
        if !bears_percentile(samples, percentile) {
            return None;
        }
        let (rank, negative) = (rank(samples, percentile), self.negative.samples());
        // The smallest values are the negative ones of the largest magnitudes.
        Some(if rank <= negative {
            let from_end = negative.saturating_sub(rank).saturating_add(1);
            self.negative.at_rank(from_end).cast_signed().wrapping_neg()
        } else {
            let rank = rank.saturating_sub(negative);
            self.positive.at_rank(rank).cast_signed()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::summary::SignedSummary;
    use super::*;

    proptest! {
        #[test]
        fn percentiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(-1_000_000i64..1_000_000, 1..1500)) {
            let mut recorder = SignedRecorder::default();
            for value in &values {
                recorder.record(*value, 1);
            }
            values.sort_unstable();
            let summary = recorder.summary(3).unwrap();
            prop_assert_eq!((summary.min_ns, summary.max_ns), (values[0], values[values.len() - 1]));
            let mean = values.iter().sum::<i64>() as f64 / values.len() as f64;
            prop_assert!((summary.mean_ns - mean).abs() < 1e-6 * (1.0 + mean.abs()));
            for (percentile, beyond, observed) in [(50, 20, summary.p50_ns), (90, 100, summary.p90_ns), (99, 1000, summary.p99_ns)] {
                prop_assert_eq!(observed.is_some(), values.len() >= beyond);
                let Some(observed) = observed else { continue };
                let exact = values[(percentile * values.len()).div_ceil(100) - 1];
                prop_assert!(observed.abs_diff(exact) <= exact.unsigned_abs() / 1000 + 1, "{} for {}", observed, exact);
            }
        }

        #[test]
        fn merging_is_recording_together(
            one in prop::collection::vec(-1000i64..1000, 0..50),
            two in prop::collection::vec(-1000i64..1000, 0..50),
        ) {
            let recorded = |values: &[i64]| {
                let mut recorder = SignedRecorder::default();
                values.iter().for_each(|value| recorder.record(*value, 1));
                recorder
            };
            let both = recorded(&[one.clone(), two.clone()].concat()).summary(5).unwrap();
            let (one, two) = (recorded(&one), recorded(&two));
            let summaries = [one.summary(2).unwrap(), two.summary(3).unwrap()];
            let mut merged = SignedSummary::merged(&summaries).unwrap();
            prop_assert!((merged.mean_ns - both.mean_ns).abs() < 1e-6);
            merged.mean_ns = both.mean_ns;
            prop_assert_eq!(&merged, &both);
            let mut together = one;
            together.merge(&two);
            prop_assert_eq!(together.summary(5).unwrap(), both);
        }
    }
}
