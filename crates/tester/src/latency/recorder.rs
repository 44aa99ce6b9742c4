// SPDX-License-Identifier: Apache-2.0
//! A histogram with constant relative precision, cheap enough to record every frame.

use super::summary::bears_percentile;
use crate::narrow::{index, whole};

/// Bits of precision: values are accurate to one part in 1024, three significant digits. The buckets are those of an HdrHistogram with
/// three digits.
const PRECISION_BITS: u32 = 10;
const VALUE_BITS: u32 = 40;
/// Largest value distinguished, nanoseconds: about 18 minutes. Larger values count as this one.
pub(super) const VALUE_MAX: u64 = (1 << VALUE_BITS) - 1;
/// Number of buckets.
pub(super) const BUCKETS: usize = bucket(VALUE_MAX) + 1;

/// Histogram of values, nanoseconds.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    counts: Box<[u64]>,
    min: u64,
    max: u64,
    sum: u128,
    samples: u64,
}

impl Default for Recorder {
    fn default() -> Self {
        Self {
            counts: vec![0; BUCKETS].into_boxed_slice(),
            min: u64::MAX,
            max: 0,
            sum: 0,
            samples: 0,
        }
    }
}

#[inline(always)]
pub(super) const fn bucket(value: u64) -> usize {
    let bits = u64::BITS.wrapping_sub(value.leading_zeros());
    let shift = bits.saturating_sub(PRECISION_BITS + 1) as u64;
    index((shift << PRECISION_BITS).wrapping_add(value >> shift))
}

/// Returns the smallest value of a bucket, and the number of values that the bucket covers.
pub(super) fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    // Each of the first 2048 buckets covers one value.
    let shift = (bucket >> PRECISION_BITS).saturating_sub(1);
    let low = bucket.saturating_sub(shift << PRECISION_BITS) << shift;
    (low, 1 << shift)
}

impl Recorder {
    /// Records `count` equal values.
    #[inline(always)]
    pub(crate) fn record(&mut self, value: u64, count: u64) {
        let value = value.min(VALUE_MAX);
        if let Some(slot) = self.counts.get_mut(bucket(value)) {
            *slot = slot.wrapping_add(count);
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        // Below 2^104.
        let sum = u128::from(value).wrapping_mul(u128::from(count));
        self.sum = self.sum.wrapping_add(sum);
        self.samples = self.samples.wrapping_add(count);
    }

    /// Adds the values of another recorder.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine = mine.saturating_add(*theirs);
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum = self.sum.saturating_add(other.sum);
        self.samples = self.samples.saturating_add(other.samples);
    }

    /// Adds the values of a histogram with the same buckets, of which these have values: index and count of each. Its smallest and largest
    /// value are exact.
    pub(super) fn add_counts(&mut self, counts: &[(usize, u64)], (min, max): (u64, u64)) {
        for (index, count) in counts {
            if let Some(slot) = self.counts.get_mut(*index) {
                *slot = slot.saturating_add(*count);
            }
            let sum = u128::from(bounds(*index).0).saturating_mul(u128::from(*count));
            self.sum = self.sum.saturating_add(sum);
            self.samples = self.samples.saturating_add(*count);
        }
        if !counts.is_empty() {
            self.min = self.min.min(min);
            self.max = self.max.max(max);
        }
    }

    /// Returns the values minus the smallest one: packet delay variation (RFC 5481, section 4.2). Smallest, mean and largest are exact;
    /// the others have the error of the values, one part in 1000 of a value.
    pub(crate) fn above_minimum(&self) -> Self {
        let mut above = Self::default();
        if self.samples == 0 {
            return above;
        }
        for (index, count) in self.occupied() {
            let (low, width) = bounds(index);
            let middle = low.saturating_add(width / 2).clamp(self.min, self.max);
            above.record(middle.saturating_sub(self.min), count);
        }
        above.set_ends(0, self.max.saturating_sub(self.min));
        let least = u128::from(self.min).saturating_mul(u128::from(self.samples));
        above.sum = self.sum.saturating_sub(least);
        above
    }

    /// Returns true if it holds every value that `other` holds, at least as often.
    #[cfg(test)]
    pub(super) fn holds_all_of(&self, other: &Self) -> bool {
        self.counts
            .iter()
            .zip(&other.counts)
            .all(|(mine, theirs)| mine >= theirs)
    }

    /// Returns the number of values.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the sum of the values.
    pub(crate) fn sum(&self) -> u128 {
        self.sum
    }

    /// Returns the largest value since the previous call; 0 without values. [`Self::raise_max`] restores the largest of all.
    pub(crate) fn take_max(&mut self) -> u64 {
        std::mem::take(&mut self.max)
    }

    /// Sets the largest value to at least `max`, which was recorded.
    pub(crate) fn raise_max(&mut self, max: u64) {
        self.max = self.max.max(max);
    }

    /// Returns the smallest and the largest value; `None` without values.
    pub(super) fn ends(&self) -> Option<(u64, u64)> {
        (self.samples > 0).then_some((self.min, self.max))
    }

    /// Sets the exact ends if the values recorded were bucket values.
    pub(super) fn set_ends(&mut self, min: u64, max: u64) {
        if self.samples > 0 {
            self.min = min;
            self.max = max;
        }
    }

    /// Returns the index of each non-empty bucket, and its count.
    pub(super) fn occupied(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        let counts = self.counts.iter().copied().enumerate();
        counts.filter(|(_, count)| *count > 0)
    }

    /// Returns the smallest value of each non-empty bucket, and its count.
    #[cfg(test)]
    pub(super) fn counts(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.occupied()
            .map(|(index, count)| (bounds(index).0, count))
    }

    /// Returns the `rank`-th smallest value, from 1, to one part in 1000; the largest value for higher ranks.
    pub(super) fn at_rank(&self, rank: u64) -> u64 {
        let mut passed = 0;
        for (index, count) in self.occupied() {
            passed = count.saturating_add(passed);
            if passed >= rank {
                let (low, width) = bounds(index);
                let high = low.saturating_add(width.saturating_sub(1));
                return high.clamp(self.min, self.max);
            }
        }
        self.max
    }

    /// Returns the value of a percentile; `None` without enough samples.
    pub(super) fn at_percentile(&self, percentile: f64) -> Option<u64> {
        bears_percentile(self.samples, percentile)
            .then(|| self.at_rank(rank(self.samples, percentile)))
    }
}

/// Returns the rank, from 1, of a percentile among `samples` sorted samples (nearest rank).
pub(super) fn rank(samples: u64, percentile: f64) -> u64 {
    let exact = samples as f64 * (percentile / 100.0);
    // The subtrahend compensates for rounding: 99 % of 1000 must be 990 even if it is computed as 990.0000000000001.
    whole((exact - 1e-6).ceil()).clamp(1, samples.max(1))
}

#[cfg(test)]
mod tests {
    mod exact;

    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::super::summary::LatencySummary;
    use super::*;

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_one_part_in_a_thousand(value in 0..=VALUE_MAX) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            let (low, width) = bounds(index);
            prop_assert!(low <= value && value < low + width);
            prop_assert!(width - 1 <= value / 1024);
        }

        #[test]
        fn buckets_are_those_of_an_hdr_histogram(value in 1..=VALUE_MAX) {
            let histogram = Histogram::<u64>::new_with_bounds(1, VALUE_MAX, 3).unwrap();
            let (low, width) = bounds(bucket(value));
            prop_assert_eq!(histogram.lowest_equivalent(value), low);
            prop_assert_eq!(histogram.highest_equivalent(value), low + width - 1);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(1u64..10_000_000, 1..2000)) {
            let mut recorder = Recorder::default();
            for value in &values {
                recorder.record(*value, 1);
            }
            values.sort_unstable();
            let summary = recorder.summary().unwrap();
            prop_assert_eq!(summary.min_ns, values[0]);
            prop_assert_eq!(summary.max_ns, values[values.len() - 1]);
            for (percentile, beyond, observed) in [
                (50, 20, summary.p50_ns),
                (90, 100, summary.p90_ns),
                (99, 1000, summary.p99_ns),
                (99, 10_000, summary.p99_9_ns),
            ] {
                prop_assert_eq!(observed.is_some(), values.len() >= beyond);
                let Some(observed) = observed else { continue };
                let exact = values[(percentile * values.len()).div_ceil(100) - 1];
                prop_assert!(exact <= observed && observed <= exact + exact / 1000 + 1, "{} for {}", observed, exact);
            }
        }

        #[test]
        fn above_the_minimum_is_each_value_less_the_smallest(values in prop::collection::vec(1u64..2000, 1..100)) {
            let (mut recorder, mut expected) = (Recorder::default(), Recorder::default());
            let min = values.iter().min().copied().unwrap();
            for value in &values {
                recorder.record(*value, 1);
                expected.record(*value - min, 1);
            }
            prop_assert_eq!(recorder.above_minimum().summary(), expected.summary());
        }
    }

    #[test]
    fn merging_is_recording_together() {
        let (mut one, mut two, mut both) = (
            Recorder::default(),
            Recorder::default(),
            Recorder::default(),
        );
        for value in [5, 700, 123_456] {
            one.record(value, 2);
            both.record(value, 2);
        }
        two.record(9_999_999, 1);
        both.record(9_999_999, 1);
        let summaries = [one.summary().unwrap(), two.summary().unwrap()];
        assert_eq!(LatencySummary::merged(&summaries), both.summary());
        one.merge(&two);
        assert_eq!(one.summary(), both.summary());
        assert_eq!(LatencySummary::merged([]), Ok(LatencySummary::default()));
    }

    #[test]
    fn the_encoded_histogram_has_every_count() {
        let mut recorder = Recorder::default();
        recorder.record(0, 3);
        recorder.record(1_000_000_007, 10);
        recorder.record(u64::MAX, 1);
        let summary = recorder.summary().unwrap();
        let bytes = STANDARD.decode(&summary.histogram_v2_base64).unwrap();
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        let counts = read.iter_recorded();
        let counts: Vec<_> = counts
            .map(|step| {
                (
                    read.lowest_equivalent(step.value_iterated_to()),
                    step.count_at_value(),
                )
            })
            .collect();
        assert_eq!(counts, recorder.counts().collect::<Vec<_>>());
        assert_eq!(read.len(), summary.samples);
        assert_eq!(summary.max_ns, VALUE_MAX);
        assert_eq!(
            Recorder::default().summary().unwrap(),
            LatencySummary::default()
        );
    }

    #[test]
    fn a_damaged_histogram_is_reported() {
        let mut summary = LatencySummary {
            samples: 1,
            histogram_v2_base64: "AAAA".to_owned(),
            ..LatencySummary::default()
        };
        assert!(LatencySummary::merged([&summary]).is_err());
        summary.histogram_v2_base64 = "!".to_owned();
        assert!(LatencySummary::merged([&summary]).is_err());
    }
}
