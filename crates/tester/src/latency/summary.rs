// SPDX-License-Identifier: Apache-2.0
//! Summaries of latencies and their variation, and the merging of several trials.

mod percentiles;

use serde::{Deserialize, Serialize};

use super::recorder::{BUCKETS, Recorder, VALUE_MAX};
use super::signed::SignedRecorder;
use super::stored::{StoredCounts, read_histogram};
use super::written::encoded;

pub use percentiles::{PERCENTILES, bears_percentile};

/// Distribution of non-negative times, nanoseconds. All fields are zero if `samples` is zero.
///
/// Smallest, mean and largest are exact, percentiles accurate to one part in 1000. A percentile is `None` if fewer than ten samples lie
/// beyond it ([`bears_percentile`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Number of frames measured.
    pub samples: u64,
    /// Smallest value.
    pub min_ns: u64,
    /// Arithmetic mean.
    pub mean_ns: f64,
    /// 50th percentile.
    pub p50_ns: Option<u64>,
    /// 90th percentile.
    pub p90_ns: Option<u64>,
    /// 99th percentile.
    pub p99_ns: Option<u64>,
    /// 99.9th percentile.
    pub p99_9_ns: Option<u64>,
    /// 99.99th percentile.
    pub p99_99_ns: Option<u64>,
    /// Largest value.
    pub max_ns: u64,
    /// Histogram of nanoseconds, HdrHistogram V2 compressed, base64; empty without samples.
    pub histogram_v2_base64: String,
}

/// Distribution of signed times, nanoseconds. All fields are zero if `samples` is zero. For accuracy and missing percentiles, see
/// [`LatencySummary`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SignedSummary {
    /// Number of values measured.
    pub samples: u64,
    /// Number of undefined values: one frame of the pair did not arrive (RFC 3393, section 2.3), or arrived too long after the other to
    /// be paired.
    pub undefined: u64,
    /// Smallest value, usually negative.
    pub min_ns: i64,
    /// Arithmetic mean. It is close to zero whatever the device does, because the extra delay of a frame appears with the opposite sign
    /// in the next difference.
    pub mean_ns: f64,
    /// 50th percentile.
    pub p50_ns: Option<i64>,
    /// 90th percentile.
    pub p90_ns: Option<i64>,
    /// 99th percentile.
    pub p99_ns: Option<i64>,
    /// 99.9th percentile.
    pub p99_9_ns: Option<i64>,
    /// 99.99th percentile.
    pub p99_99_ns: Option<i64>,
    /// Largest value.
    pub max_ns: i64,
    /// Histogram of the values of zero and more, HdrHistogram V2 compressed, base64; empty if there are none.
    pub histogram_v2_base64: String,
    /// Histogram of the magnitudes of the negative values, in the same format.
    pub negative_histogram_v2_base64: String,
}

/// Delay variation (RFC 5481).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DelayVariation {
    /// Inter-packet delay variation (section 4.1): a frame's delay minus that of the preceding frame of its stream.
    pub ipdv: SignedSummary,
    /// Packet delay variation (section 4.2): a frame's delay minus the smallest delay of its stream in this trial.
    pub pdv: LatencySummary,
}

/// Results of the low-rate streams, one from each transmitting port, that run in parallel to the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LowRateStreams {
    /// Rate of one stream, frames per second; 0 if there were none.
    pub rate_pps: f64,
    /// Frames offered. The counters of the load include them.
    pub offered_frames: u64,
    /// Frames of `offered_frames` that were received.
    pub received_frames: u64,
    /// Latency of these frames.
    pub latency: LatencySummary,
    /// Delay variation, from consecutive frames of a stream.
    pub variation: DelayVariation,
}

/// Returns for each of [`PERCENTILES`] whether it lies in the part of the schedule that was not sent in time, `missed_ratio` from 0 to 1.
/// The frames that the tester left out or sent late are those that would have waited longest.
fn beyond_sent(missed_ratio: f64) -> [bool; PERCENTILES.len()] {
    // The subtrahend compensates for rounding: 1 % must reach the 99th percentile.
    PERCENTILES.map(|percentile| missed_ratio >= 1.0 - percentile / 100.0 - 1e-9)
}

/// Records the percentiles that a summary withholds although it has enough samples.
fn note_withheld<T>(
    is_withheld: &mut [bool; PERCENTILES.len()],
    samples: u64,
    percentiles: [Option<T>; PERCENTILES.len()],
) {
    let percentiles = PERCENTILES.into_iter().zip(percentiles);
    for (is_withheld, (percentile, value)) in is_withheld.iter_mut().zip(percentiles) {
        *is_withheld |= value.is_none() && bears_percentile(samples, percentile);
    }
}

fn withhold<T>(
    percentiles: [&mut Option<T>; PERCENTILES.len()],
    is_withheld: [bool; PERCENTILES.len()],
) {
    for (value, is_withheld) in percentiles.into_iter().zip(is_withheld) {
        if is_withheld {
            *value = None;
        }
    }
}

impl LatencySummary {
    /// Removes the percentiles that lie in the part of the schedule that was not sent in time, `missed_ratio` of it.
    pub(crate) fn withheld_beyond(mut self, missed_ratio: f64) -> Self {
        withhold(self.percentiles_mut(), beyond_sent(missed_ratio));
        self
    }

    fn percentiles_mut(&mut self) -> [&mut Option<u64>; PERCENTILES.len()] {
        [
            &mut self.p50_ns,
            &mut self.p90_ns,
            &mut self.p99_ns,
            &mut self.p99_9_ns,
            &mut self.p99_99_ns,
        ]
    }

    /// Returns the percentiles of [`PERCENTILES`], in their order.
    #[must_use]
    pub fn percentiles(&self) -> [Option<u64>; 5] {
        [
            self.p50_ns,
            self.p90_ns,
            self.p99_ns,
            self.p99_9_ns,
            self.p99_99_ns,
        ]
    }

    /// Merges the samples of several summaries, from their histograms.
    ///
    /// # Errors
    /// A sentence, if a histogram cannot be decoded.
    pub fn merged<'all>(parts: impl IntoIterator<Item = &'all Self>) -> Result<Self, String> {
        let (mut all, mut stored) = (Recorder::default(), StoredCounts::default());
        let mut sum_ns = 0.0;
        let mut is_withheld = [false; PERCENTILES.len()];
        for part in parts {
            note_withheld(&mut is_withheld, part.samples, part.percentiles());
            let ends = (part.min_ns, part.max_ns);
            add_stored(&mut all, &mut stored, &part.histogram_v2_base64, ends)?;
            sum_ns += part.mean_ns * part.samples as f64;
        }
        let mut merged = all.summary()?;
        withhold(merged.percentiles_mut(), is_withheld);
        if merged.samples > 0 {
            merged.mean_ns = sum_ns / merged.samples as f64;
        }
        Ok(merged)
    }
}

impl SignedSummary {
    /// Removes percentiles; see [`LatencySummary::withheld_beyond`].
    pub(crate) fn withheld_beyond(mut self, missed_ratio: f64) -> Self {
        withhold(self.percentiles_mut(), beyond_sent(missed_ratio));
        self
    }

    fn percentiles_mut(&mut self) -> [&mut Option<i64>; PERCENTILES.len()] {
        [
            &mut self.p50_ns,
            &mut self.p90_ns,
            &mut self.p99_ns,
            &mut self.p99_9_ns,
            &mut self.p99_99_ns,
        ]
    }

    /// Returns the percentiles of [`PERCENTILES`], in their order.
    #[must_use]
    pub fn percentiles(&self) -> [Option<i64>; 5] {
        [
            self.p50_ns,
            self.p90_ns,
            self.p99_ns,
            self.p99_9_ns,
            self.p99_99_ns,
        ]
    }

    /// Merges the values of several summaries, from their histograms.
    ///
    /// # Errors
    /// A sentence, if a histogram cannot be decoded.
    pub fn merged<'all>(parts: impl IntoIterator<Item = &'all Self>) -> Result<Self, String> {
        let (mut all, mut stored) = (SignedRecorder::default(), StoredCounts::default());
        let (mut sum_ns, mut undefined) = (0.0, 0);
        let mut is_withheld = [false; PERCENTILES.len()];
        for part in parts {
            undefined = part.undefined.saturating_add(undefined);
            sum_ns += part.mean_ns * part.samples as f64;
            note_withheld(&mut is_withheld, part.samples, part.percentiles());
            let negative = [part.max_ns, part.min_ns].map(|end| end.min(0).unsigned_abs());
            let positive = [part.min_ns, part.max_ns].map(|end| end.max(0).unsigned_abs());
            for (recorder, text, ends) in [
                (
                    &mut all.negative,
                    &part.negative_histogram_v2_base64,
                    negative,
                ),
                (&mut all.positive, &part.histogram_v2_base64, positive),
            ] {
                add_stored(recorder, &mut stored, text, ends.into())?;
            }
        }
        let mut merged = all.summary(undefined)?;
        withhold(merged.percentiles_mut(), is_withheld);
        if merged.samples > 0 {
            merged.mean_ns = sum_ns / merged.samples as f64;
        }
        Ok(merged)
    }
}

impl DelayVariation {
    /// Removes percentiles; see [`LatencySummary::withheld_beyond`].
    pub(crate) fn withheld_beyond(self, missed_ratio: f64) -> Self {
        Self {
            ipdv: self.ipdv.withheld_beyond(missed_ratio),
            pdv: self.pdv.withheld_beyond(missed_ratio),
        }
    }

    /// Merges the variation of several trials. IPDV pairs no frames of different trials, and PDV refers to the smallest delay of each
    /// trial.
    ///
    /// # Errors
    /// A sentence, if a histogram cannot be decoded.
    pub fn merged<'all>(
        parts: impl IntoIterator<Item = &'all Self> + Clone,
    ) -> Result<Self, String> {
        Ok(Self {
            ipdv: SignedSummary::merged(parts.clone().into_iter().map(|part| &part.ipdv))?,
            pdv: LatencySummary::merged(parts.into_iter().map(|part| &part.pdv))?,
        })
    }
}

impl Recorder {
    /// Returns the summary.
    ///
    /// # Errors
    /// A sentence, if the histogram cannot be encoded.
    pub(crate) fn summary(&self) -> Result<LatencySummary, String> {
        let Some((min_ns, max_ns)) = self.ends() else {
            return Ok(LatencySummary::default());
        };
        Ok(LatencySummary {
            samples: self.samples(),
            min_ns,
            mean_ns: self.sum() as f64 / self.samples() as f64,
            p50_ns: self.at_percentile(50.0),
            p90_ns: self.at_percentile(90.0),
            p99_ns: self.at_percentile(99.0),
            p99_9_ns: self.at_percentile(99.9),
            p99_99_ns: self.at_percentile(99.99),
            max_ns,
            histogram_v2_base64: encode(self)?,
        })
    }
}

impl SignedRecorder {
    /// Returns the summary. `undefined` is the number of pairs without a value.
    ///
    /// # Errors
    /// A sentence, if a histogram cannot be encoded.
    pub(crate) fn summary(&self, undefined: u64) -> Result<SignedSummary, String> {
        let (negative, positive) = (self.negative.ends(), self.positive.ends());
        let magnitude = |value: u64| value.cast_signed();
        let min_ns = negative
            .map(|(_, max)| magnitude(max).wrapping_neg())
            .or(positive.map(|(min, _)| magnitude(min)));
        let max_ns = positive
            .map(|(_, max)| magnitude(max))
            .or(negative.map(|(min, _)| magnitude(min).wrapping_neg()));
        let sum = self.positive.sum() as f64 - self.negative.sum() as f64;
        Ok(SignedSummary {
            samples: self.samples(),
            undefined,
            min_ns: min_ns.unwrap_or(0),
            mean_ns: sum / self.samples().max(1) as f64,
            p50_ns: self.at_percentile(50.0),
            p90_ns: self.at_percentile(90.0),
            p99_ns: self.at_percentile(99.0),
            p99_9_ns: self.at_percentile(99.9),
            p99_99_ns: self.at_percentile(99.99),
            max_ns: max_ns.unwrap_or(0),
            histogram_v2_base64: encode(&self.positive)?,
            negative_histogram_v2_base64: encode(&self.negative)?,
        })
    }
}

/// Encodes a recorder's counts as an HdrHistogram; empty if there are none.
fn encode(recorder: &Recorder) -> Result<String, String> {
    encoded(recorder.occupied())
        .map_err(|reason| format!("cannot encode the latency histogram: {reason}"))
}

/// Adds the values of a histogram that [`encode`] encoded, with its exact ends. A stored histogram may be damaged.
fn add_stored(
    all: &mut Recorder,
    stored: &mut StoredCounts,
    text: &str,
    (min, max): (u64, u64),
) -> Result<(), String> {
    if text.is_empty() {
        return Ok(());
    }
    let has_range = min <= max && max <= VALUE_MAX;
    match stored.read(text, VALUE_MAX, BUCKETS) {
        Some(counts) if has_range => all.add_counts(counts, (min, max)),
        // Damaged, or of another program.
        _ => all.merge(&decode(text, min, max)?),
    }
    Ok(())
}

/// Decodes a recorder that [`encode`] encoded, with its exact ends. A stored histogram may be damaged.
fn decode(text: &str, min: u64, max: u64) -> Result<Recorder, String> {
    let mut recorder = Recorder::default();
    if text.is_empty() {
        return Ok(recorder);
    }
    let unreadable = |reason: String| format!("cannot decode a latency histogram: {reason}");
    let histogram = read_histogram(text).map_err(unreadable)?;
    if min > max || max > VALUE_MAX {
        return Err(unreadable(format!(
            "its ends, {min} and {max} ns, are not a range up to {VALUE_MAX} ns"
        )));
    }
    let mut counts = histogram.iter_recorded().map(|step| step.count_at_value());
    if counts.try_fold(0, u64::checked_add).is_none() {
        return Err(unreadable("it has too many samples".to_owned()));
    }
    for step in histogram.iter_recorded() {
        recorder.record(
            histogram.lowest_equivalent(step.value_iterated_to()),
            step.count_at_value(),
        );
    }
    recorder.set_ends(min, max);
    Ok(recorder)
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use quietwire_base::fuzz::{check, planted};

    use super::*;

    #[test]
    fn nothing_merged_has_a_mean_of_zero() {
        let merged = SignedSummary::merged([]).unwrap();
        assert_eq!((merged.samples, merged.mean_ns), (0, 0.0));
    }

    /// Two trials. In one of them, 1 % of the schedule was not sent.
    #[test]
    fn withheld_percentiles_stay_withheld_in_a_merged_summary() {
        let (mut delays, mut variation) = (Recorder::default(), SignedRecorder::default());
        delays.record(1000, 200_000);
        variation.record(-5, 200_000);
        let (whole, full_variation) = (delays.summary().unwrap(), variation.summary(0).unwrap());
        let cut = whole.clone().withheld_beyond(0.01);
        let cut_variation = full_variation.clone().withheld_beyond(0.01);
        let expected = [true, true, false, false, false];
        assert_eq!(cut.percentiles().map(|it| it.is_some()), expected);
        for parts in [[&whole, &cut], [&cut, &whole]] {
            let merged = LatencySummary::merged(parts).unwrap();
            assert_eq!(merged.percentiles().map(|it| it.is_some()), expected);
        }
        for parts in [
            [&full_variation, &cut_variation],
            [&cut_variation, &full_variation],
        ] {
            let merged = SignedSummary::merged(parts).unwrap();
            assert_eq!(merged.percentiles().map(|it| it.is_some()), expected);
        }
        let merged = LatencySummary::merged([&whole, &whole]).unwrap();
        assert!(merged.percentiles().iter().all(Option::is_some));
    }

    #[test]
    fn a_damaged_summary_is_an_error() {
        let mut recorder = Recorder::default();
        recorder.record(1000, 200_000);
        let whole = recorder.summary().unwrap();
        let reversed = LatencySummary {
            min_ns: 1001,
            ..whole.clone()
        };
        let late = LatencySummary {
            max_ns: VALUE_MAX + 1,
            ..whole.clone()
        };
        for damaged in [&reversed, &late] {
            let error = LatencySummary::merged([&whole, damaged]).unwrap_err();
            assert!(error.contains("are not a range"), "{error}");
        }
        let mut variation = SignedRecorder::default();
        variation.record(-1000, 200_000);
        let variation = SignedSummary {
            min_ns: i64::MIN,
            ..variation.summary(0).unwrap()
        };
        assert!(SignedSummary::merged([&variation]).is_err());
    }

    #[test]
    fn sums_of_large_counts_saturate_or_are_an_error() {
        const LARGE: u64 = i64::MAX as u64;
        let mut recorder = Recorder::default();
        recorder.record(1000, LARGE);
        let large = recorder.summary().unwrap();
        // The format of histograms limits the count of a bucket.
        assert!(LatencySummary::merged([&large, &large, &large]).is_err());
        let mut variation = SignedRecorder::default();
        for value in [-1000, 1000, 2000] {
            variation.record(value, LARGE);
        }
        let merged = variation.summary(u64::MAX).unwrap();
        assert_eq!((merged.samples, merged.p50_ns), (u64::MAX, Some(1000)));
        let undefined = SignedSummary {
            undefined: u64::MAX,
            ..SignedSummary::default()
        };
        let merged = SignedSummary::merged([&undefined, &undefined]).unwrap();
        assert_eq!(merged.undefined, u64::MAX);
    }

    /// Parses any lines as summaries of latencies and of their variation, and merges them.
    fn fuzz_latency(octets: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(octets) else {
            return false;
        };
        let lines = || text.lines().take(8);
        let parts: Vec<LatencySummary> = lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let signed: Vec<SignedSummary> = lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .collect();
        let variation = SignedSummary::merged(&signed);
        if let Ok(merged) = &variation {
            assert!(merged.min_ns <= merged.max_ns);
        }
        let Ok(merged) = LatencySummary::merged(&parts) else {
            return false;
        };
        let mut percentiles = merged.percentiles().into_iter().flatten();
        assert!(percentiles.all(|value| (merged.min_ns..=merged.max_ns).contains(&value)));
        planted("tester-latency", || {
            parts.len() > 1 && merged.max_ns > 10_000_000_000
        });
        merged.samples > 0 || variation.is_ok_and(|variation| variation.samples > 0)
    }

    #[test]
    fn fuzz_latencies() {
        check(env!("CARGO_MANIFEST_DIR"), "tester-latency", fuzz_latency);
    }

    /// Decodes any octets as a histogram. What is accepted is the same after it was encoded.
    fn fuzz_histogram(octets: &[u8]) -> bool {
        let mut stored = StoredCounts::default();
        let text = STANDARD.encode(octets);
        let Ok(recorder) = decode(&text, 0, VALUE_MAX) else {
            assert_eq!(stored.read(&text, VALUE_MAX, BUCKETS), None);
            return false;
        };
        let again = encode(&recorder).and_then(|text| decode(&text, 0, VALUE_MAX));
        let mut again = again.unwrap();
        assert!(again.holds_all_of(&recorder) && recorder.holds_all_of(&again));
        assert!(recorder.summary().is_ok());
        // Without the library, the counts are the same.
        let mut added = Recorder::default();
        for text in [text, encode(&recorder).unwrap()] {
            add_stored(&mut added, &mut stored, &text, (0, VALUE_MAX)).unwrap();
        }
        again.merge(&recorder);
        assert!(added.holds_all_of(&again) && again.holds_all_of(&added));
        assert_eq!(added.samples(), again.samples());
        planted("tester-histogram", || {
            recorder.counts().count() > 3
                && recorder
                    .counts()
                    .any(|(value, count)| value > 1_000_000 && count > 10_000)
        });
        recorder.samples() > 0
    }

    #[test]
    fn fuzz_histograms() {
        check(
            env!("CARGO_MANIFEST_DIR"),
            "tester-histogram",
            fuzz_histogram,
        );
    }
}
