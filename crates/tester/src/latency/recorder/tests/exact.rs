// SPDX-License-Identifier: Apache-2.0
//! Buckets at the ends of the powers of two, and figures that must be exact.

use super::super::*;

#[test]
fn every_value_is_in_its_bucket_at_all_powers_of_two() {
    for power in 0..VALUE_BITS {
        for value in [(1u64 << power) - 1, 1 << power, (1 << power) + 1] {
            let (low, width) = bounds(bucket(value));
            assert!(low <= value && value < low + width, "{value}");
            // The next bucket begins at the end of this one.
            assert_eq!(bounds(bucket(value) + 1).0, low + width, "{value}");
        }
    }
    for value in 0..2048 {
        assert_eq!(bounds(bucket(value)), (value, 1));
    }
}

#[test]
fn values_of_more_than_18_minutes_count_as_the_largest() {
    let mut recorder = Recorder::default();
    recorder.record(u64::MAX, 2);
    let (largest, width) = bounds(bucket((1 << 40) - 1));
    assert_eq!(recorder.ends(), Some(((1 << 40) - 1, (1 << 40) - 1)));
    assert_eq!(recorder.counts().collect::<Vec<_>>(), [(largest, 2)]);
    assert_eq!(largest + width, 1 << 40);
}

#[test]
fn percentiles_of_small_values_are_exact() {
    let mut recorder = Recorder::default();
    (1..=1000).for_each(|value| recorder.record(value, 1));
    let summary = recorder.summary().unwrap();
    assert_eq!(
        summary.percentiles(),
        [Some(500), Some(900), Some(990), None, None]
    );
    assert_eq!(summary.mean_ns, 500.5);
    let ranks = [1, 2, 999, 1000, 1001].map(|rank| recorder.at_rank(rank));
    assert_eq!(ranks, [1, 2, 999, 1000, 1000]);
}

#[test]
fn a_percentile_is_the_upper_end_of_its_bucket_and_never_above_the_largest_value() {
    let mut recorder = Recorder::default();
    recorder.record(1_000_000, 1);
    recorder.record(2_000_000, 1);
    // 1,000,000 is in the bucket from 999,936 on, 512 wide.
    assert_eq!(recorder.at_rank(1), 1_000_447);
    assert_eq!(recorder.at_rank(2), 2_000_000);
    assert_eq!(recorder.at_rank(3), 2_000_000);
}

#[test]
fn above_the_minimum_a_bucket_counts_as_its_middle() {
    let mut recorder = Recorder::default();
    recorder.record(1000, 3);
    recorder.record(1_000_000, 2);
    recorder.record(5_000_000, 1);
    let above = recorder.above_minimum();
    // The middle of the bucket is 1,000,192. Minus 1000, it is in the bucket that begins at 998,912.
    let middle = bounds(bucket(999_192)).0;
    assert_ne!(middle, bounds(bucket(998_680)).0);
    assert_eq!(
        above.counts().take(2).collect::<Vec<_>>(),
        [(0, 3), (middle, 2)]
    );
    // Smallest, largest and mean are exact.
    assert_eq!(above.ends(), Some((0, 4_999_000)));
    assert_eq!(above.sum(), 2 * 999_000 + 4_999_000);
}

#[test]
fn a_recorder_without_values_has_no_ends() {
    let mut empty = Recorder::default();
    empty.set_ends(1, 2);
    assert_eq!(empty.ends(), None);
    assert_eq!(empty.above_minimum().ends(), None);
    let mut recorder = Recorder::default();
    recorder.record(100, 1);
    recorder.merge(&empty);
    assert_eq!(recorder.ends(), Some((100, 100)));
}

#[test]
fn ranks_are_those_of_the_nearest_rank_method() {
    let ranks = [
        (1, 50.0, 1),
        (2, 50.0, 1),
        (3, 50.0, 2),
        (1000, 99.0, 990),
        (1001, 99.0, 991),
        (100_000, 99.99, 99_990),
        (10, 100.0, 10),
        (0, 50.0, 1),
    ];
    for (samples, percentile, expected) in ranks {
        assert_eq!(
            rank(samples, percentile),
            expected,
            "{percentile} of {samples}"
        );
    }
}
