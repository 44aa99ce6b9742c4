// SPDX-License-Identifier: Apache-2.0
//! Sums of histograms of times, and their figures.

use super::recorder::{BUCKETS, VALUE_MAX, bounds, bucket};
use super::stored::{StoredCounts, read_histogram};
use super::written::encoded;

/// Number of buckets for all values of 64 bits.
const ALL_BUCKETS: usize = bucket(u64::MAX) + 1;

/// Histogram of times, nanoseconds, to which stored histograms can be added. Its buckets are those of an HdrHistogram with three
/// significant digits, and its figures are those of HdrHistogram, computed from the buckets.
#[derive(Default)]
pub struct TimeHistogram {
    /// Count of each bucket, up to [`ALL_BUCKETS`]. Empty until the first value is recorded.
    counts: Vec<u64>,
    samples: u64,
    /// The lowest and the highest non-empty bucket.
    ends: Option<(usize, usize)>,
    reader: Option<StoredCounts>,
}

impl TimeHistogram {
    /// Records `count` equal values.
    pub fn record(&mut self, value_ns: u64, count: u64) {
        self.add(bucket(value_ns), count);
    }

    /// Adds the values of a histogram in the format of `histogram_v2_base64`.
    ///
    /// # Errors
    /// A sentence: see [`read_histogram`].
    pub fn add_stored(&mut self, text: &str) -> Result<(), String> {
        let mut reader = self.reader.take().unwrap_or_default();
        let added = self.add_with(&mut reader, text);
        self.reader = Some(reader);
        added
    }

    fn add_with(&mut self, reader: &mut StoredCounts, text: &str) -> Result<(), String> {
        if let Some(counts) = reader.read(text, VALUE_MAX, BUCKETS) {
            for (index, count) in counts {
                self.add(*index, *count);
            }
            return Ok(());
        }
        // Damaged, or of another program.
        let histogram = read_histogram(text)?;
        for step in histogram.iter_recorded() {
            let lowest = histogram.lowest_equivalent(step.value_iterated_to());
            self.record(lowest, step.count_at_value());
        }
        Ok(())
    }

    fn add(&mut self, index: usize, count: u64) {
        if count == 0 {
            return;
        }
        if self.counts.is_empty() {
            self.counts = vec![0; ALL_BUCKETS];
        }
        if let Some(slot) = self.counts.get_mut(index) {
            *slot = slot.saturating_add(count);
        }
        self.samples = self.samples.saturating_add(count);
        let (first, last) = self.ends.unwrap_or((index, index));
        self.ends = Some((first.min(index), last.max(index)));
    }

    /// Returns index and count of each non-empty bucket.
    fn occupied(&self) -> impl Iterator<Item = (usize, u64)> {
        let (first, last) = self.ends.unwrap_or_default();
        let counts = self.counts.iter().copied().enumerate();
        let counts = counts.take(last.saturating_add(1)).skip(first);
        counts.filter(|(_, count)| *count > 0)
    }

    /// Returns the number of values.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Returns the smallest value of the lowest non-empty bucket; 0 without values.
    #[must_use]
    pub fn min_ns(&self) -> u64 {
        self.ends.map_or(0, |(first, _)| bounds(first).0)
    }

    /// Returns the largest value of the highest non-empty bucket; 0 without values.
    #[must_use]
    pub fn max_ns(&self) -> u64 {
        self.ends.map_or(0, |(_, last)| largest(last))
    }

    /// Returns the mean, with each value in the middle of its bucket; 0 without values.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        let samples = self.samples as f64;
        self.occupied().fold(0.0, |mean, (index, count)| {
            let (low, width) = bounds(index);
            mean + low.saturating_add(width / 2) as f64 * count as f64 / samples
        })
    }

    /// Returns the values of percentiles, above 0 to 100 and in ascending order, in one pass over the buckets: for each, the largest
    /// value of the first bucket up to which this share of the values lies. 0 without values.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a rank is at most the number of values, and the cast saturates"
    )]
    pub fn at_percentiles(&self, percentiles: &[f64]) -> Vec<u64> {
        let mut values = vec![0; percentiles.len()];
        let ranks = percentiles.iter().map(|percentile| {
            let rank = (percentile / 100.0).min(1.0) * self.samples as f64;
            (rank.ceil() as u64).max(1)
        });
        let mut wanted = ranks.zip(&mut values).peekable();
        let mut passed = 0u64;
        for (index, count) in self.occupied() {
            passed = passed.saturating_add(count);
            while let Some((_, value)) = wanted.next_if(|(rank, _)| *rank <= passed) {
                *value = largest(index);
            }
            if wanted.peek().is_none() {
                break;
            }
        }
        values
    }

    /// Encodes the histogram in the format of `histogram_v2_base64`; empty without values.
    ///
    /// # Errors
    /// A sentence: it has values of more than 18 minutes, or a count does not fit the format.
    pub fn encoded(&self) -> Result<String, String> {
        encoded(self.occupied())
    }
}

/// Returns the largest value of a bucket.
fn largest(index: usize) -> u64 {
    let (low, width) = bounds(index);
    low.saturating_add(width).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
    use proptest::prelude::*;

    use super::*;

    const PERCENTILES: [f64; 10] = [
        0.1, 10.0, 50.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0, 150.0,
    ];

    fn assert_same(times: &TimeHistogram, library: &Histogram<u64>) {
        assert_eq!(times.samples(), library.len());
        assert_eq!(times.min_ns(), library.min());
        assert_eq!(times.max_ns(), library.max());
        assert_eq!(times.mean_ns().to_bits(), library.mean().to_bits());
        let expected = PERCENTILES.map(|percentile| library.value_at_percentile(percentile));
        assert_eq!(times.at_percentiles(&PERCENTILES), expected);
    }

    fn text_of(histogram: &Histogram<u64>) -> String {
        let mut octets = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut octets)
            .unwrap();
        STANDARD.encode(octets)
    }

    proptest! {
        #[test]
        fn figures_are_those_of_the_library(parts in prop::collection::vec((2u32..64, any::<u64>(), 1u64..1 << 40), 1..300)) {
            let (mut times, mut library) = (TimeHistogram::default(), Histogram::new(3).unwrap());
            for (shift, value, count) in parts {
                times.record(value >> shift, count);
                library.record_n(value >> shift, count).unwrap();
            }
            assert_same(&times, &library);
        }

        /// Histograms of this program, of the library with another range, and of programs with fewer digits.
        #[test]
        fn sums_are_those_of_the_library(parts in prop::collection::vec((0u8..4, prop::collection::vec((26u32..64, any::<u64>(), 1u64..1 << 40), 0..40)), 1..8)) {
            let (mut times, mut sum) = (TimeHistogram::default(), Histogram::<u64>::new(3).unwrap());
            for (kind, values) in parts {
                let high = if kind == 0 { VALUE_MAX } else { u64::MAX / 2 };
                let mut library = Histogram::<u64>::new_with_bounds(1, high, 3 - kind / 2).unwrap();
                for (shift, value, count) in values {
                    library.record_n(value >> shift, count).unwrap();
                }
                let text = text_of(&library);
                times.add_stored(&text).unwrap();
                sum.add(read_histogram(&text).unwrap()).unwrap();
            }
            assert_same(&times, &sum);
        }
    }

    #[test]
    fn the_largest_values_have_the_figures_of_the_library() {
        let (mut times, mut library) = (
            TimeHistogram::default(),
            Histogram::<u64>::new_with_bounds(1, u64::MAX, 3).unwrap(),
        );
        for value in [0, 1, VALUE_MAX, VALUE_MAX + 1, u64::MAX - 1] {
            times.record(value, 3);
            library.record_n(value, 3).unwrap();
        }
        let expected = PERCENTILES.map(|percentile| library.value_at_percentile(percentile));
        assert_eq!(times.at_percentiles(&PERCENTILES), expected);
        assert_eq!((times.min_ns(), times.samples()), (0, 15));
        assert!(times.encoded().unwrap_err().contains("of more than"));
    }

    #[test]
    fn without_values_all_figures_are_zero() {
        let mut times = TimeHistogram::default();
        times.record(1000, 0);
        times
            .add_stored(&text_of(&Histogram::new(3).unwrap()))
            .unwrap();
        assert_same(&times, &Histogram::new(3).unwrap());
        assert_eq!(times.encoded(), Ok(String::new()));
    }

    #[test]
    fn a_damaged_histogram_is_an_error_and_changes_nothing() {
        let mut times = TimeHistogram::default();
        times.record(1000, 1);
        for text in ["", "!", "AAAA"] {
            assert!(times.add_stored(text).is_err(), "{text}");
        }
        assert_eq!((times.samples(), times.mean_ns()), (1, 1000.0));
        let mut again = TimeHistogram::default();
        again.add_stored(&times.encoded().unwrap()).unwrap();
        assert_eq!(again.at_percentiles(&[50.0]), [1000]);
    }
}
