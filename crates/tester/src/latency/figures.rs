// SPDX-License-Identifier: Apache-2.0
//! Figures of latency and its variation, computed by hand.

use super::{
    DelayVariation, Delays, LatencySummary, Recorder, Sample, Samples, SignedRecorder,
    SignedSummary, bears_percentile,
};
use crate::tracker::{Arrival, Trackers, WINDOW_MIN};

fn recorded(values: impl IntoIterator<Item = u64>) -> Recorder {
    let mut recorder = Recorder::default();
    values
        .into_iter()
        .for_each(|value| recorder.record(value, 1));
    recorder
}

fn signed(values: impl IntoIterator<Item = i64>) -> SignedRecorder {
    let mut recorder = SignedRecorder::default();
    values
        .into_iter()
        .for_each(|value| recorder.record(value, 1));
    recorder
}

#[test]
fn a_percentile_takes_ten_samples_beyond_it() {
    for (percentile, samples) in [
        (50.0, 20),
        (90.0, 100),
        (99.0, 1000),
        (99.9, 10_000),
        (99.99, 100_000),
    ] {
        assert!(bears_percentile(samples, percentile), "{percentile}");
        assert!(!bears_percentile(samples - 1, percentile), "{percentile}");
    }
    assert!(!bears_percentile(0, 50.0));
}

#[test]
fn signed_percentiles_cross_zero_where_the_values_do() {
    let summary = signed(-500..500).summary(7).unwrap();
    assert_eq!(
        summary.percentiles(),
        [Some(-1), Some(399), Some(489), None, None]
    );
    assert_eq!((summary.min_ns, summary.max_ns), (-500, 499));
    assert_eq!((summary.mean_ns, summary.undefined), (-0.5, 7));
    let summary = signed(-600..400).summary(0).unwrap();
    assert_eq!(summary.percentiles()[..2], [Some(-101), Some(299)]);
    let summary = signed(-950..50).summary(0).unwrap();
    assert_eq!(
        summary.percentiles()[..3],
        [Some(-451), Some(-51), Some(39)]
    );
}

#[test]
fn values_of_one_sign_have_both_ends_on_its_side() {
    let ends = |values: &[i64]| {
        let summary = signed(values.iter().copied()).summary(0).unwrap();
        (summary.min_ns, summary.mean_ns, summary.max_ns)
    };
    assert_eq!(ends(&[-5, -2]), (-5, -3.5, -2));
    assert_eq!(ends(&[9, 3]), (3, 6.0, 9));
    assert_eq!(ends(&[]), (0, 0.0, 0));
}

#[test]
fn zero_is_no_negative_value() {
    let summary = signed([0, 0]).summary(0).unwrap();
    assert!(summary.negative_histogram_v2_base64.is_empty());
    assert_eq!((summary.min_ns, summary.max_ns), (0, 0));
}

#[test]
fn percentiles_are_withheld_from_where_the_schedule_was_not_sent() {
    let whole = recorded(0..200_000).summary().unwrap();
    let kept = |unsent_ratio| {
        let cut = whole.clone().withheld_beyond(unsent_ratio);
        cut.percentiles().map(|value| value.is_some())
    };
    assert_eq!(kept(0.0), [true; 5]);
    assert_eq!(kept(0.000_09), [true; 5]);
    assert_eq!(kept(0.0001), [true, true, true, true, false]);
    assert_eq!(kept(0.009_9), [true, true, true, false, false]);
    assert_eq!(kept(0.01), [true, true, false, false, false]);
    assert_eq!(kept(0.1), [true, false, false, false, false]);
    assert_eq!(kept(0.5), [false; 5]);
    assert_eq!(kept(1.0), [false; 5]);
    let cut = whole.withheld_beyond(0.01);
    assert_eq!((cut.samples, cut.max_ns), (200_000, 199_999));
}

#[test]
fn summaries_that_bear_no_percentile_may_bear_it_together() {
    let part = recorded([5; 15]).summary().unwrap();
    assert_eq!(part.p50_ns, None);
    let merged = LatencySummary::merged([&part, &LatencySummary::default(), &part]).unwrap();
    assert_eq!((merged.samples, merged.p50_ns), (30, Some(5)));
    let part = signed([-5; 15]).summary(1).unwrap();
    let merged = SignedSummary::merged([&part, &SignedSummary::default(), &part]).unwrap();
    assert_eq!((merged.samples, merged.p50_ns), (30, Some(-5)));
    assert_eq!(merged.undefined, 2);
}

#[test]
fn means_of_merged_summaries_are_exact() {
    // The histograms have an accuracy of one part in 1000.
    let one = recorded([1_000_001, 1_000_002, 1_000_003])
        .summary()
        .unwrap();
    let two = recorded([3_000_006]).summary().unwrap();
    let merged = LatencySummary::merged([&one, &two]).unwrap();
    assert_eq!(merged.mean_ns, 1_500_003.0);
    assert_eq!((merged.min_ns, merged.max_ns), (1_000_001, 3_000_006));
    let one = signed([-1_000_001, -1_000_003]).summary(0).unwrap();
    let two = signed([5_000_003, 1]).summary(0).unwrap();
    let merged = SignedSummary::merged([&one, &two]).unwrap();
    assert_eq!(merged.mean_ns, 750_000.0);
    assert_eq!((merged.min_ns, merged.max_ns), (-1_000_003, 5_000_003));
}

#[test]
fn variations_of_trials_are_merged_and_withheld_in_both_parts() {
    let of = |shift: i64| DelayVariation {
        ipdv: signed((0..20).map(|value| value - shift))
            .summary(1)
            .unwrap(),
        pdv: recorded(0..20).summary().unwrap(),
    };
    let merged = DelayVariation::merged(&[of(0), of(15)]).unwrap();
    assert_eq!((merged.ipdv.samples, merged.pdv.samples), (40, 40));
    assert_eq!((merged.ipdv.min_ns, merged.ipdv.undefined), (-15, 2));
    assert_eq!(merged.pdv.p50_ns, Some(9));
    let withheld = merged.withheld_beyond(0.5);
    assert_eq!((withheld.ipdv.samples, withheld.pdv.samples), (40, 40));
    assert_eq!((withheld.ipdv.p50_ns, withheld.pdv.p50_ns), (None, None));
}

#[test]
fn samples_of_several_lists_are_one_list() {
    let list = |sequences: [u32; 2]| {
        let mut samples = Samples::with_capacity(2);
        for sequence in sequences {
            samples.add(Sample {
                port: 3,
                sequence,
                delay_ns: 100 + u64::from(sequence) * u64::from(sequence),
            });
        }
        samples
    };
    let mut samples = list([2, 0]);
    samples.merge(&list([3, 1]));
    assert_eq!((samples.len(), samples.of_port(0).len()), (4, 0));
    // Delays 100, 101, 104, 109.
    let ipdv = samples.of_port(3).ipdv().summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns, ipdv.max_ns), (3, 1, 5));
    assert_eq!(ipdv.mean_ns, 3.0);
}

#[test]
fn delays_of_flows_are_kept_apart() {
    let (mut delays, mut trackers) = (Delays::new(3), Trackers::new(3, WINDOW_MIN));
    let mut even = 0;
    for sequence in 0..600 {
        for flow in 0..3usize {
            let arrival = trackers.record(flow, sequence).unwrap();
            let tracker = trackers.get(flow).unwrap();
            // Each flow's delay grows by a different step.
            let delay_ns = 10_000 * flow as u64 + u64::from(sequence) * (flow as u64 + 1);
            even += delays.record(flow, tracker, sequence, arrival, delay_ns);
        }
    }
    delays.record_even(even);
    let ipdv = delays.ipdv.summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns, ipdv.max_ns), (3 * 599, 1, 3));
    assert_eq!(ipdv.mean_ns, 2.0);
}

#[test]
fn differences_are_counted_as_zero_only_where_they_are() {
    let (mut delays, mut trackers) = (Delays::new(1), Trackers::new(1, WINDOW_MIN));
    let mut record = |sequence, delay_ns| {
        let arrival = trackers.record(0, sequence).unwrap();
        assert_eq!(arrival, Arrival::InOrder);
        let tracker = trackers.get(0).unwrap();
        delays.record(0, tracker, sequence, arrival, delay_ns)
    };
    assert_eq!([record(0, 10), record(1, 14), record(2, 14)], [0, 0, 1]);
    // No pair spans the lost frame 3.
    assert_eq!([record(4, 14), record(5, 20)], [0, 0]);
    delays.record_even(0);
    let ipdv = delays.ipdv.summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns, ipdv.max_ns), (2, 4, 6));
    delays.record_even(3);
    let ipdv = delays.ipdv.summary(0).unwrap();
    assert_eq!((ipdv.samples, ipdv.min_ns), (5, 0));
}
