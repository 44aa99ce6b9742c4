// SPDX-License-Identifier: Apache-2.0
//! The document's own example (RFC 9971, "Example Search"): four goals, one load, six points in time.
//!
//! Two cells differ from the printed table. At points 5 and 6, it classifies the load as a lower bound for the fourth goal. The
//! document's pseudocode gives an upper bound, because 42.857 % and 27.273 % exceed the permitted 20 %.

use super::ratio;
use crate::mlrsearch::load::{Measured, conditional_throughput};
use crate::{DurationSums, LoadClass, MlrGoal};

const LOAD_PPS: f64 = 1e6;

fn goal(final_s: f64, sum_s: f64, loss_ratio: f64, exceed_ratio: f64) -> MlrGoal {
    MlrGoal {
        final_trial_duration_s: final_s,
        duration_sum_s: sum_s,
        loss_ratio: ratio(loss_ratio),
        exceed_ratio,
        width: 0.005,
        initial_trial_duration_s: final_s,
    }
}

/// Returns the goals "RFC2544", "TST009", "1s final" and "20% exceed".
fn goals() -> [MlrGoal; 4] {
    [
        goal(60.0, 60.0, 0.0, 0.0),
        goal(60.0, 120.0, 0.0, 0.5),
        goal(1.0, 120.0, 0.005, 0.5),
        goal(60.0, 60.0, 0.005, 0.2),
    ]
}

/// Trials added at a point, and the columns of its table.
struct Point {
    /// Number of trials, their length in seconds, and their loss ratio.
    added: (usize, f64, f64),
    /// Rows "Full-length high-loss sum", "Full-length low-loss sum", "Short high-loss sum", "Short low-loss sum" in
    /// seconds, and "Classification Result", by goals.
    columns: [([f64; 4], LoadClass); 4],
}

fn points() -> [Point; 6] {
    use LoadClass::{LowerBound as L, Undecided as U, UpperBound as H};
    let of = |added, columns| Point { added, columns };
    [
        of(
            (59, 1.0, 0.0),
            [
                ([0.0, 0.0, 0.0, 59.0], U),
                ([0.0, 0.0, 0.0, 59.0], U),
                ([0.0, 59.0, 0.0, 0.0], U),
                ([0.0, 0.0, 0.0, 59.0], U),
            ],
        ),
        of(
            (1, 1.0, 0.01),
            [
                ([0.0, 0.0, 1.0, 59.0], H),
                ([0.0, 0.0, 1.0, 59.0], U),
                ([1.0, 59.0, 0.0, 0.0], U),
                ([0.0, 0.0, 1.0, 59.0], U),
            ],
        ),
        of(
            (59, 1.0, 0.01),
            [
                ([0.0, 0.0, 60.0, 59.0], H),
                ([0.0, 0.0, 60.0, 59.0], U),
                ([60.0, 59.0, 0.0, 0.0], U),
                ([0.0, 0.0, 60.0, 59.0], H),
            ],
        ),
        of(
            (1, 1.0, 0.0),
            [
                ([0.0, 0.0, 60.0, 60.0], H),
                ([0.0, 0.0, 60.0, 60.0], U),
                ([60.0, 60.0, 0.0, 0.0], L),
                ([0.0, 0.0, 60.0, 60.0], H),
            ],
        ),
        of(
            (1, 60.0, 0.001),
            [
                ([60.0, 0.0, 60.0, 60.0], H),
                ([60.0, 0.0, 60.0, 60.0], U),
                ([60.0, 120.0, 0.0, 0.0], L),
                ([0.0, 60.0, 60.0, 60.0], H),
            ],
        ),
        of(
            (1, 60.0, 0.0),
            [
                ([60.0, 60.0, 60.0, 60.0], H),
                ([60.0, 60.0, 60.0, 60.0], L),
                ([60.0, 180.0, 0.0, 0.0], L),
                ([0.0, 120.0, 60.0, 60.0], H),
            ],
        ),
    ]
}

/// Returns all trials up to each point.
fn trials_by_points() -> Vec<Vec<Measured>> {
    let mut trials = Vec::new();
    let up_to = |point: Point| {
        let (count, intended_s, loss_ratio) = point.added;
        let trial = Measured {
            intended_s,
            effective_s: intended_s,
            loss_ratio,
        };
        trials.extend(std::iter::repeat_n(trial, count));
        trials.clone()
    };
    points().into_iter().map(up_to).collect()
}

#[test]
fn sums_and_classes_are_those_of_the_example_in_the_document() {
    for (number, (point, trials)) in points().iter().zip(trials_by_points()).enumerate() {
        for (goal, (sums, class)) in goals().iter().zip(point.columns) {
            let mut added = DurationSums::default();
            trials.iter().for_each(|trial| added.add(goal, *trial));
            let [full_high_s, full_low_s, short_high_s, short_low_s] = sums;
            let printed = DurationSums {
                full_low_s,
                full_high_s,
                short_low_s,
                short_high_s,
            };
            assert_eq!(added, printed, "point {}, {goal:?}", number + 1);
            assert_eq!(added.class(goal), class, "point {}, {goal:?}", number + 1);
        }
    }
}

#[test]
fn conditional_throughputs_are_those_of_the_example_in_the_document() {
    let trials = trials_by_points().pop().unwrap();
    let [_, tst009, one_second, fifth] = goals();
    for (goal, printed_pps) in [
        (tst009, 1_000_000.0),
        (one_second, 1_000_000.0),
        (fifth, 999_000.0),
    ] {
        assert_eq!(
            conditional_throughput(&goal, LOAD_PPS, &trials),
            printed_pps
        );
    }
}
