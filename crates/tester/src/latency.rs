// SPDX-License-Identifier: Apache-2.0
//! Latency of every frame: recorded in clock ticks on the packet path, told in nanoseconds afterwards.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};

use crate::trial::LatencySummary;

/// Bits of precision: values are kept to one part in 1024, three significant digits.
const PRECISION_BITS: u32 = 10;
const LINEAR: u64 = 1 << PRECISION_BITS;
/// Largest value told apart, ticks: about 26 s at 2.6 GHz. Larger ones count as this.
const VALUE_MAX: u64 = (1 << 36) - 1;
const BUCKETS: usize = (37 - PRECISION_BITS as usize) << PRECISION_BITS;

/// A histogram with constant relative precision, cheap enough to record every frame.
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
fn bucket(value: u64) -> usize {
    let shift = (u64::BITS - value.leading_zeros()).saturating_sub(PRECISION_BITS + 1);
    ((u64::from(shift) << PRECISION_BITS) + (value >> shift)) as usize
}

/// Smallest value of a bucket, and the number of values it stands for.
fn bounds(bucket: usize) -> (u64, u64) {
    let bucket = bucket as u64;
    if bucket < 2 * LINEAR {
        return (bucket, 1);
    }
    let shift = (bucket >> PRECISION_BITS) - 1;
    (((bucket & (LINEAR - 1)) + LINEAR) << shift, 1 << shift)
}

impl Recorder {
    /// Records `count` frames of the same latency, in ticks.
    #[inline(always)]
    pub(crate) fn record(&mut self, ticks: u64, count: u64) {
        let value = ticks.min(VALUE_MAX);
        if let Some(slot) = self.counts.get_mut(bucket(value)) {
            *slot += count;
        }
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.sum += u128::from(value) * u128::from(count);
        self.samples += count;
    }

    /// Adds what another recorder holds.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.sum += other.sum;
        self.samples += other.samples;
    }

    /// The summary in nanoseconds. Minimum, mean and maximum are exact, percentiles to one part in 1000.
    ///
    /// # Errors
    /// A sentence, when the histogram cannot be built or encoded.
    pub(crate) fn summary(&self, ticks_per_second: u64) -> Result<LatencySummary, String> {
        if self.samples == 0 {
            return Ok(LatencySummary::default());
        }
        let to_ns = |ticks: u64| {
            (u128::from(ticks) * 1_000_000_000 / u128::from(ticks_per_second.max(1))) as u64
        };
        let mut histogram = Histogram::<u64>::new(3).map_err(|error| error.to_string())?;
        for (index, count) in self
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let (low, width) = bounds(index);
            let middle = (low + width / 2).clamp(self.min, self.max);
            histogram
                .record_n(to_ns(middle), *count)
                .map_err(|error| error.to_string())?;
        }
        let mut encoded = Vec::new();
        V2DeflateSerializer::new()
            .serialize(&histogram, &mut encoded)
            .map_err(|error| format!("the latency histogram could not be encoded: {error}"))?;
        let at = |quantile: f64| {
            histogram
                .value_at_quantile(quantile)
                .clamp(to_ns(self.min), to_ns(self.max))
        };
        Ok(LatencySummary {
            samples: self.samples,
            min_ns: to_ns(self.min),
            mean_ns: self.sum as f64 / self.samples as f64 * 1e9 / ticks_per_second as f64,
            p50_ns: at(0.5),
            p90_ns: at(0.9),
            p99_ns: at(0.99),
            p99_9_ns: at(0.999),
            p99_99_ns: at(0.9999),
            max_ns: to_ns(self.max),
            histogram_v2_base64: STANDARD.encode(encoded),
        })
    }
}

#[cfg(test)]
mod tests {
    use hdrhistogram::serialization::Deserializer;
    use proptest::prelude::*;

    use super::*;

    const GHZ: u64 = 1_000_000_000;

    proptest! {
        #[test]
        fn a_bucket_holds_its_value_to_one_part_in_a_thousand(value in 0..=VALUE_MAX) {
            let index = bucket(value);
            prop_assert!(index < BUCKETS);
            let (low, width) = bounds(index);
            prop_assert!(low <= value && value < low + width);
            prop_assert!(width - 1 <= value / LINEAR);
        }

        #[test]
        fn percentiles_are_those_of_the_sorted_values(mut values in prop::collection::vec(1u64..10_000_000, 1..500)) {
            let mut recorder = Recorder::default();
            for value in &values {
                recorder.record(*value, 1);
            }
            values.sort_unstable();
            let summary = recorder.summary(GHZ).unwrap();
            prop_assert_eq!(summary.min_ns, values[0]);
            prop_assert_eq!(summary.max_ns, values[values.len() - 1]);
            for (quantile, seen) in [(0.5, summary.p50_ns), (0.9, summary.p90_ns), (0.99, summary.p99_ns)] {
                let rank = ((quantile * values.len() as f64).ceil() as usize).max(1) - 1;
                let exact = values[rank] as f64;
                prop_assert!((seen as f64 - exact).abs() <= exact * 0.003 + 2.0, "{} for {}", seen, exact);
            }
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
        one.merge(&two);
        assert_eq!(one.summary(GHZ), both.summary(GHZ));
    }

    #[test]
    fn the_encoded_histogram_can_be_read_back() {
        let mut recorder = Recorder::default();
        recorder.record(1_000, 10);
        recorder.record(u64::MAX, 1);
        let summary = recorder.summary(GHZ).unwrap();
        let bytes = STANDARD.decode(&summary.histogram_v2_base64).unwrap();
        let read: Histogram<u64> = Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .unwrap();
        assert_eq!(read.len(), summary.samples);
        assert_eq!(summary.max_ns, VALUE_MAX);
        assert_eq!(
            Recorder::default().summary(GHZ).unwrap(),
            LatencySummary::default()
        );
    }
}
