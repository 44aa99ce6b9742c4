// SPDX-License-Identifier: Apache-2.0
//! Size of a trial with full histograms, and their lossless storage.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use proptest::prelude::*;
use quietwire_tester::{LatencySummary, TrialResult};

use super::super::compact;
use super::*;
use crate::bench::Measured;

/// Maximum growth of a store for each trial, octets.
const GROWTH_MAX: u64 = 50_000;
/// Number of trials of each device: enough that what a run adds besides its trials is below 1 kB for each.
const TRIALS: u32 = 20;
/// Frames of a trial: ten seconds at 200 000 a second, each measured.
const FRAMES: f64 = 2e6;

/// A component of a distribution of times, nanoseconds.
#[derive(Clone, Copy)]
enum Times {
    /// Log-normal around this value, with this deviation.
    Around(f64, f64),
    /// Exponential with this mean.
    Waiting(f64),
    /// Uniform from 0 to this value.
    Within(f64),
}

impl Times {
    fn density(self, at: f64) -> f64 {
        match self {
            Self::Around(middle, deviation) => {
                let off = (at / middle).ln() / deviation;
                (-off * off / 2.0).exp() / (at * deviation * (2.0 * std::f64::consts::PI).sqrt())
            }
            Self::Waiting(mean) => (-at / mean).exp() / mean,
            Self::Within(longest) => f64::from(u8::from(at < longest)) / longest,
        }
    }
}

/// Random numbers, the same in each run (SplitMix64).
struct Rng(u64);

impl Rng {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a random count with this mean, by the Poisson distribution or its normal approximation.
    fn count(&mut self, mean: f64) -> u64 {
        if mean > 30.0 {
            let normal = (0..12).map(|_| self.uniform()).sum::<f64>() - 6.0;
            return (mean + mean.sqrt() * normal).round() as u64;
        }
        let (end, mut product, mut count) = ((-mean).exp(), self.uniform(), 0);
        while product > end {
            product *= self.uniform();
            count += 1;
        }
        count
    }
}

/// Returns the tester's histogram of random times of this distribution.
fn histogram(parts: &[(f64, Times)], frames: f64, rng: &mut Rng) -> String {
    let empty = Histogram::<u64>::new_with_bounds(1, (1 << 40) - 1, 3).unwrap();
    let mut histogram = empty.clone();
    for bucket in empty.iter_all() {
        let value = bucket.value_iterated_to();
        let low = empty.lowest_equivalent(value);
        let (width, middle) = ((value - low + 1) as f64, (low + value).max(1) as f64 / 2.0);
        let density: f64 = parts
            .iter()
            .map(|(part, times)| part * times.density(middle))
            .sum();
        let count = rng.count(frames * width * density);
        if count > 0 {
            histogram.record_n(value, count).unwrap();
        }
    }
    encoded(&histogram)
}

fn encoded(histogram: &Histogram<u64>) -> String {
    let mut octets = Vec::new();
    V2DeflateSerializer::new()
        .serialize(histogram, &mut octets)
        .unwrap();
    STANDARD.encode(octets)
}

/// Returns a trial with this distribution of latencies, and this one of differences between delays of consecutive frames.
fn measured(latency: &[(f64, Times)], change: &[(f64, Times)], rng: &mut Rng) -> Measured {
    let mut bench = SimulatedBench::new(rng.0, 0);
    let case = small().cases[0].clone();
    bench
        .enter_case(&crate::CaseSpec {
            case,
            position: 0,
            round: 0,
        })
        .unwrap();
    let mut measured = bench.run(&trial()).unwrap();
    let result = &mut measured.result;
    let summary = |histogram| LatencySummary {
        histogram_v2_base64: histogram,
        ..LatencySummary::default()
    };
    result.latency = summary(histogram(latency, FRAMES, rng));
    result.variation.pdv = summary(histogram(latency, FRAMES, rng));
    let ipdv = &mut result.variation.ipdv;
    ipdv.histogram_v2_base64 = histogram(change, FRAMES / 2.0, rng);
    ipdv.negative_histogram_v2_base64 = histogram(change, FRAMES / 2.0, rng);
    result.health.burst_gaps = summary(histogram(&[(1.0, Times::Around(1e3, 0.05))], 6e4, rng));
    measured
}

fn size(path: &Path) -> u64 {
    ["", "-wal"]
        .map(|suffix| std::fs::metadata(format!("{}{suffix}", path.display())))
        .into_iter()
        .flatten()
        .map(|file| file.len())
        .sum()
}

/// Returns the growth of a store for each such trial, octets.
fn growth(kinds: &[Measured]) -> u64 {
    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    store.begin_run(&environment()).unwrap();
    let step = store
        .step_id(0, "quiet", Default::default(), &crate::StepKind::Sweep)
        .unwrap();
    drop(store);
    let before = size(&path);
    let mut store = open(&path, OpenMode::Resume).unwrap();
    store.begin_run(&environment()).unwrap();
    for (sequence, measured) in (0..TRIALS).zip(kinds.iter().cycle()) {
        store.add_trial(step, sequence, &trial(), measured).unwrap();
    }
    let read = store.trials_of(step).unwrap();
    for (read, measured) in read.iter().zip(kinds.iter().cycle()) {
        assert_eq!(
            (&read.result, &read.activity),
            (&measured.result, &measured.activity)
        );
    }
    drop(store);
    (size(&path) - before) / u64::from(TRIALS)
}

#[test]
fn a_store_grows_by_less_than_50_kb_a_trial_with_full_histograms() {
    use Times::{Around, Waiting, Within};
    let mut rng = Rng(1);
    for (name, latency, change) in [
        (
            "quiet",
            &[(0.99, Around(2e3, 0.3)), (0.01, Waiting(5e4))][..],
            &[(0.99, Waiting(700.0)), (0.01, Waiting(5e4))][..],
        ),
        ("loaded", &[(1.0, Waiting(2e4))], &[(1.0, Waiting(2e4))]),
        (
            "wide",
            &[(1.0, Around(2e4, 1.5))],
            &[(1.0, Around(2e4, 1.5))],
        ),
        (
            "disturbed",
            &[(0.4, Around(5e3, 1.0)), (0.6, Within(4e6))],
            &[(0.3, Around(5e3, 1.0)), (0.7, Within(4e6))],
        ),
    ] {
        let kinds: Vec<Measured> = (0..4)
            .map(|_| measured(latency, change, &mut rng))
            .collect();
        let growth = growth(&kinds);
        let as_text = serde_json::to_string(&kinds[0].result).unwrap().len();
        println!("{name}: {growth} octets a trial, of which the result was {as_text} as text");
        assert!(growth < GROWTH_MAX, "{name}: {growth}");
        // The histograms are as full as intended.
        assert!(growth > 20_000, "{name}: {growth}");
    }
}

/// Returns results with these texts as histograms.
fn with_texts(texts: [&str; 9]) -> TrialResult {
    let mut rng = Rng(3);
    let mut result = measured(&[(1.0, Times::Waiting(1e3))], &[], &mut rng).result;
    let [a, b, c, d, e, f, g, h, i] = texts.map(str::to_owned);
    result.latency.histogram_v2_base64 = a;
    result.variation.ipdv.histogram_v2_base64 = b;
    result.variation.ipdv.negative_histogram_v2_base64 = c;
    result.variation.pdv.histogram_v2_base64 = d;
    result.low_rate.latency.histogram_v2_base64 = e;
    result.low_rate.variation.ipdv.histogram_v2_base64 = f;
    result.low_rate.variation.ipdv.negative_histogram_v2_base64 = g;
    result.low_rate.variation.pdv.histogram_v2_base64 = h;
    result.health.burst_gaps.histogram_v2_base64 = i;
    result
}

#[test]
fn no_histogram_stays_in_the_text_and_each_comes_back_to_its_place() {
    let texts: Vec<String> = (1..=9)
        .map(|value| {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            // Every second one is short enough to stay text.
            let buckets = if value % 2 == 0 { 1 } else { 2000 };
            for bucket in 0..buckets {
                histogram
                    .record_n(value + bucket, 1 + bucket * bucket % 1009)
                    .unwrap();
            }
            encoded(&histogram)
        })
        .collect();
    let result = with_texts(std::array::from_fn(|index| texts[index].as_str()));
    let mut bare = result.clone();
    let packed = compact::take_out(&mut bare).unwrap();
    let text = serde_json::to_string(&bare).unwrap();
    assert_eq!(
        text.matches("histogram_v2_base64\":\"\"").count(),
        text.matches("histogram_v2_base64").count(),
    );
    compact::put_back(&packed, &mut bare).unwrap();
    assert_eq!(bare, result);
}

#[test]
fn histograms_in_other_formats_are_stored_unchanged() {
    // One is a histogram with different bounds and digits.
    let mut other = Histogram::<u64>::new_with_bounds(100, 90_000, 2).unwrap();
    (0..5000u64).for_each(|value| other.record(value * 17).unwrap());
    let text = encoded(&other);
    let result = with_texts([
        "",
        "AAAA",
        "no base64!",
        "",
        "\u{1F980}",
        "====",
        "a",
        &text,
        "x",
    ]);
    let mut bare = result.clone();
    let packed = compact::take_out(&mut bare).unwrap();
    compact::put_back(&packed, &mut bare).unwrap();
    assert_eq!(bare, result);
}

#[test]
fn damaged_histograms_are_reported_and_never_invented() {
    let mut rng = Rng(5);
    let mut bare = measured(
        &[(1.0, Times::Waiting(1e3))],
        &[(1.0, Times::Waiting(1e3))],
        &mut rng,
    )
    .result;
    let packed = compact::take_out(&mut bare).unwrap();
    for end in [0, 1, 5, packed.len() / 2, packed.len() - 1] {
        assert!(
            compact::put_back(&packed[..end], &mut bare.clone()).is_err(),
            "{end}"
        );
    }
    let longer = [&packed[..], &[0]].concat();
    assert!(compact::put_back(&longer, &mut bare.clone()).is_err());
    let mut other = packed.clone();
    other[0] = 77;
    assert!(compact::put_back(&other, &mut bare.clone()).is_err());

    let (_directory, path) = scratch();
    let mut store = open(&path, OpenMode::New).unwrap();
    store.begin_run(&environment()).unwrap();
    let step = store
        .step_id(0, "quiet", Default::default(), &crate::StepKind::Sweep)
        .unwrap();
    let whole = measured(&[(1.0, Times::Waiting(1e3))], &[], &mut rng);
    store.add_trial(step, 0, &trial(), &whole).unwrap();
    drop(store);
    pragma(&path, "UPDATE trial SET histograms = x'0201'");
    let error = Store::open_to_read(&path).unwrap().results().unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
    assert!(error.to_string().contains("histograms"), "{error}");
}

proptest! {
    // Each trial has nine histograms.
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn every_histogram_comes_back(values in prop::collection::vec((0..(1u64 << 40), 1..u64::from(u32::MAX)), 0..300)) {
        let mut histogram = Histogram::<u64>::new_with_bounds(1, (1 << 40) - 1, 3).unwrap();
        for (value, count) in values {
            histogram.record_n(value, count).unwrap();
        }
        let text = encoded(&histogram);
        let result = with_texts([&text; 9]);
        let mut bare = result.clone();
        let packed = compact::take_out(&mut bare).unwrap();
        compact::put_back(&packed, &mut bare).unwrap();
        prop_assert_eq!(bare, result);
    }
}
