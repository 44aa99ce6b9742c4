// SPDX-License-Identifier: Apache-2.0
//! Sequence of loads, computed by hand. The goal's width is a half, so that a step halves or doubles the load.

use super::ratio;
use crate::mlrsearch::load::Measured;
use crate::mlrsearch::table::Table;
use crate::{
    DurationSums, LossRatio, Method, MlrEnd, MlrFindings, MlrGoal, MlrIrregularity, MlrSearch,
    MlrSearchConfig, Outcome, Step,
};

/// Returns a goal for which one trial of 1 s decides.
fn halves(loss_ratio: LossRatio) -> MlrGoal {
    MlrGoal {
        final_trial_duration_s: 1.0,
        duration_sum_s: 1.0,
        loss_ratio,
        exceed_ratio: 0.0,
        width: 0.5,
        initial_trial_duration_s: 1.0,
    }
}

/// Returns the rates tried from 1 to `max_rate_pps` on a device that forwards `passed(rate)`, and the result.
fn tried(
    goal: MlrGoal,
    max_rate_pps: f64,
    max_trials: u32,
    passed: impl Fn(f64) -> f64,
) -> (Vec<f64>, MlrFindings) {
    let config = MlrSearchConfig {
        goals: vec![goal],
        min_rate_pps: 1.0,
        max_rate_pps,
        max_invalid_repeats: 0,
        max_trials,
    };
    let mut search = MlrSearch::new(config).unwrap();
    let mut rates = Vec::new();
    loop {
        match search.step() {
            Step::Run(request) => {
                rates.push(request.rate_pps);
                let loss_ratio = 1.0 - passed(request.rate_pps) / request.rate_pps;
                search.record(Outcome::lost(loss_ratio)).unwrap();
            }
            Step::Done(result) => match result.findings {
                crate::Findings::MlrSearch(found) => return (rates, found),
                other => panic!("findings of another method: {other:?}"),
            },
        }
    }
}

fn assert_near(rates: &[f64], expected: &[f64]) {
    assert_eq!(rates.len(), expected.len(), "{rates:?}");
    for (rate, expected) in rates.iter().zip(expected) {
        assert!((rate / expected - 1.0).abs() < 1e-9, "{rates:?}");
    }
}

#[test]
fn without_a_lower_bound_five_steps_go_down_and_then_all_the_way() {
    // A tenth is lost at every load, so the forwarding rate always suggests a load less than a step away.
    let (rates, found) = tried(halves(LossRatio::ZERO), 1024.0, 100, |rate| 0.9 * rate);
    assert_near(&rates, &[1024.0, 512.0, 256.0, 128.0, 64.0, 32.0, 1.0]);
    assert_eq!(rates[6], 1.0);
    assert_eq!(found.end, MlrEnd::Finished);
    let irregularity = found.goals[0].irregularity;
    assert_eq!(irregularity, Some(MlrIrregularity::NoLowerBound));
}

#[test]
fn between_bounds_steps_go_off_the_one_that_was_measured_last_and_no_farther_than_the_middle() {
    let middle = (32.0f64 * 1024.0).sqrt();
    let lower = (32.0 * middle / 2.0).sqrt();
    // With loss, nothing passes, so the first step goes to the end of the range.
    let (rates, found) = tried(halves(LossRatio::ZERO), 1024.0, 100, |rate| {
        if rate < 60.0 { rate } else { 0.0 }
    });
    let up = [1024.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0];
    assert_near(&rates[..7], &up);
    // Five steps up, then the middle. It is lost, so a step down, and then to the middle, which is nearer.
    assert_near(&rates[7..], &[middle, middle / 2.0, lower]);
    assert_eq!(found.goals[0].irregularity, None);
}

#[test]
fn a_search_that_ends_between_far_bounds_is_not_narrowed() {
    let (rates, found) = tried(halves(LossRatio::ZERO), 1024.0, 2, |rate| {
        if rate < 60.0 { rate } else { 0.0 }
    });
    assert_eq!(rates, [1024.0, 1.0]);
    let irregularity = found.goals[0].irregularity;
    assert_eq!(irregularity, Some(MlrIrregularity::NotNarrowed));
}

#[test]
fn the_forwarding_rate_suggests_a_load_half_a_width_below() {
    // A fifth may be lost: 64 and 80 have the same forwarding rate, and 64 is four fifths of 80.
    let capacity = 64.0;
    let (rates, _) = tried(halves(ratio(0.2)), 1024.0, 100, |rate| rate.min(capacity));
    assert_near(&rates, &[1024.0, 80.0 / 2f64.sqrt(), 160.0 / 2f64.sqrt()]);
}

#[test]
fn loads_less_than_four_widths_apart_tell_nothing_of_overload() {
    let first = 4.0 / 2f64.sqrt();
    let middle = (32.0 * first * 1024.0).sqrt();
    let (rates, _) = tried(halves(LossRatio::ZERO), 1024.0, 9, |rate| {
        if rate == 1024.0 { 4.0 } else { rate.min(200.0) }
    });
    assert!((rates[7] / middle - 1.0).abs() < 1e-9, "{rates:?}");
    // Less than a width above the lower bound, but more than half a width: worth a trial.
    assert!(200.0 / 2f64.sqrt() < 64.0 * first);
    assert_near(&rates[8..], &[200.0 / 2f64.sqrt()]);
}

#[test]
fn bounds_a_width_apart_are_narrow_at_any_rate() {
    let tenth = MlrGoal {
        width: 0.1,
        ..halves(LossRatio::ZERO)
    };
    for scale in [1.0, 1e-3, 1e6] {
        assert!(tenth.is_narrow(9.0 * scale, 10.0 * scale));
        assert!(!tenth.is_narrow(8.999 * scale, 10.0 * scale));
        // A step down from a load is the lowest load that is narrow.
        let lower = 10.0 * scale * (-tenth.log_width()).exp();
        assert!(tenth.is_narrow(lower, 10.0 * scale));
        assert!(!tenth.is_narrow(lower * (1.0 - 1e-6), 10.0 * scale));
    }
}

fn sums(full_low_s: f64, full_high_s: f64, short_low_s: f64, short_high_s: f64) -> DurationSums {
    DurationSums {
        full_low_s,
        full_high_s,
        short_low_s,
        short_high_s,
    }
}

#[test]
fn a_load_leans_to_what_most_of_its_trials_say() {
    let half = MlrGoal {
        duration_sum_s: 120.0,
        exceed_ratio: 0.5,
        ..MlrGoal::rfc2544()
    };
    let leans_low = |sums: DurationSums| sums.leans_low(&half);
    assert!(leans_low(sums(0.0, 0.0, 3.0, 3.0)) && !leans_low(sums(0.0, 0.0, 2.0, 3.0)));
    assert!(leans_low(sums(3.0, 2.0, 3.0, 4.0)) && !leans_low(sums(2.0, 2.0, 3.0, 4.0)));
    assert!(!leans_low(sums(10.0, 4.0, 3.0, 10.0)));
    // If the class is certain, it decides.
    assert!(leans_low(sums(60.0, 50.0, 0.0, 0.0)) && !leans_low(sums(0.0, 61.0, 90.0, 0.0)));
}

#[test]
fn the_margin_is_the_duration_that_would_change_the_verdict_of_a_load() {
    let goal = |exceed_ratio| MlrGoal {
        exceed_ratio,
        ..MlrGoal::rfc2544()
    };
    let margin = |exceed_ratio, sums: DurationSums| sums.margin_s(&goal(exceed_ratio));
    // Equal amounts of both kinds.
    assert_eq!(margin(0.5, sums(3.0, 1.0, 2.0, 4.0)), 0.0);
    // A quarter may exceed: high-loss seconds weigh three times as much as low-loss ones.
    assert_eq!(
        margin(0.25, sums(3.0, 5.0, 2.0, 6.0)),
        11.0 * 0.75 - 5.0 * 0.25
    );
    assert_eq!(
        margin(0.25, sums(30.0, 0.0, 14.0, 4.0)),
        44.0 * 0.25 - 4.0 * 0.75
    );
}

#[test]
fn trials_are_numbered_over_the_whole_table() {
    let goals = [halves(LossRatio::ZERO)];
    let mut table = Table::default();
    let trial = |loss_ratio| Measured {
        intended_s: 1.0,
        effective_s: 1.0,
        loss_ratio,
    };
    for (rate_pps, loss_ratio) in [(30.0, 0.5), (10.0, 0.0), (20.0, 0.0), (10.0, 0.0)] {
        table.add(&goals, rate_pps, trial(loss_ratio));
    }
    let bounds = table.relevant(&goals[0], 0);
    let (lower, upper) = (bounds.lower.unwrap(), bounds.upper.unwrap());
    assert_eq!((lower.rate_pps, lower.last_trial), (20.0, 3));
    assert_eq!((upper.rate_pps, upper.last_trial), (30.0, 1));
    assert_eq!(table.above(lower).unwrap().rate_pps, 30.0);
    assert!(table.above(upper).is_none());
}
