// SPDX-License-Identifier: Apache-2.0
//! Cases computed by hand.

use super::devices::{Device, search};
use super::{config, ratio};
use crate::mlrsearch::load::{Measured, conditional_throughput};
use crate::{
    ConfigError, DurationSums, LoadClass, LossRatio, Method, MlrEnd, MlrGoal, MlrIrregularity,
    MlrSearch, MlrSearchConfig, Outcome, RecordError, Step,
};

/// Returns the goal of ETSI TST 009 with one repeat.
fn tst009() -> MlrGoal {
    MlrGoal {
        duration_sum_s: 120.0,
        exceed_ratio: 0.5,
        ..MlrGoal::rfc2544()
    }
}

/// Returns a goal with 60 s of which a fifth may exceed.
fn fifth() -> MlrGoal {
    MlrGoal {
        loss_ratio: ratio(0.005),
        exceed_ratio: 0.2,
        ..MlrGoal::rfc2544()
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
fn classes_by_the_formula() {
    use LoadClass::{LowerBound, Undecided, UpperBound};
    let fdio = MlrGoal::fdio(LossRatio::ZERO);
    let cases = [
        // RFC 2544: one trial decides. One lost frame in a short trial is enough as well.
        (MlrGoal::rfc2544(), sums(0.0, 0.0, 0.0, 0.0), Undecided),
        (MlrGoal::rfc2544(), sums(60.0, 0.0, 0.0, 0.0), LowerBound),
        (MlrGoal::rfc2544(), sums(0.0, 60.0, 0.0, 0.0), UpperBound),
        (MlrGoal::rfc2544(), sums(0.0, 0.0, 600.0, 0.0), Undecided),
        (MlrGoal::rfc2544(), sums(60.0, 0.0, 600.0, 1.0), UpperBound),
        // Two trials, of which one may lose.
        (tst009(), sums(60.0, 0.0, 0.0, 0.0), LowerBound),
        (tst009(), sums(59.0, 0.0, 0.0, 0.0), Undecided),
        (tst009(), sums(60.0, 60.0, 0.0, 0.0), LowerBound),
        (tst009(), sums(0.0, 60.0, 0.0, 0.0), Undecided),
        (tst009(), sums(0.0, 61.0, 0.0, 0.0), UpperBound),
        // More than the sum was measured, so the ratio counts.
        (tst009(), sums(120.0, 120.0, 0.0, 0.0), LowerBound),
        (tst009(), sums(120.0, 121.0, 0.0, 0.0), UpperBound),
        // Of 15 s in trials of 1.5 s, more than half decides in either direction.
        (fdio.clone(), sums(10.5, 9.0, 0.0, 0.0), LowerBound),
        (fdio.clone(), sums(9.0, 10.5, 0.0, 0.0), Undecided),
        (fdio, sums(9.0, 12.0, 0.0, 0.0), UpperBound),
        // 12 s of 60 s may exceed. Four low-loss seconds in short trials compensate for one high-loss second.
        (fifth(), sums(0.0, 0.0, 0.0, 12.0), Undecided),
        (fifth(), sums(0.0, 0.0, 0.0, 12.1), UpperBound),
        (fifth(), sums(0.0, 0.0, 4.0, 12.1), Undecided),
        (fifth(), sums(0.0, 0.0, 4.0, 13.1), UpperBound),
        // 45 s of 105 s, 42.857 %, and 45 s of 165 s, 27.273 %, exceed 20 %.
        (fifth(), sums(60.0, 45.0, 0.0, 0.0), UpperBound),
        (fifth(), sums(120.0, 45.0, 0.0, 0.0), UpperBound),
        (fifth(), sums(180.0, 45.0, 0.0, 0.0), LowerBound),
    ];
    for (goal, sums, class) in cases {
        assert_eq!(sums.class(&goal), class, "{sums:?} for {goal:?}");
    }
}

#[test]
fn exactly_on_the_loss_ratio_is_low_and_the_final_duration_is_full() {
    let goal = fifth();
    let mut sums = DurationSums::default();
    for (intended_s, loss_ratio) in [(60.0, 0.005), (60.0, 0.0051), (59.9, 0.005), (1.0, 0.006)] {
        let trial = Measured {
            intended_s,
            effective_s: intended_s + 0.5,
            loss_ratio,
        };
        sums.add(&goal, trial);
    }
    assert_eq!(sums, self::sums(60.5, 60.5, 60.4, 1.5));
}

#[test]
fn conditional_throughput_takes_the_worst_trial_that_counts() {
    let trials = |losses: &[f64]| -> Vec<Measured> {
        let trial = |loss_ratio: &f64| Measured {
            intended_s: 60.0,
            effective_s: 60.0,
            loss_ratio: *loss_ratio,
        };
        losses.iter().map(trial).collect()
    };
    let at = |goal: &MlrGoal, losses: &[f64]| conditional_throughput(goal, 1000.0, &trials(losses));
    // Half of 120 s: the better of two trials.
    assert_eq!(at(&tst009(), &[0.5, 0.0]), 1000.0);
    assert_eq!(at(&tst009(), &[0.25]), 750.0);
    // Half of 180 s: the second of three trials.
    assert_eq!(at(&tst009(), &[0.75, 0.25, 0.0]), 750.0);
    // 48 s of 60 s: the first trial is not shorter. 96 s of 120 s: the second counts.
    assert_eq!(at(&fifth(), &[0.25]), 750.0);
    assert_eq!(at(&fifth(), &[0.0, 0.5]), 500.0);
    // No full-length trial, or too few: the missing time counts as lost.
    assert_eq!(at(&tst009(), &[]), 0.0);
    let little = MlrGoal {
        duration_sum_s: 600.0,
        ..tst009()
    };
    assert_eq!(at(&little, &[0.0, 0.0]), 0.0);
    let short = Measured {
        intended_s: 1.0,
        effective_s: 1.0,
        loss_ratio: 0.0,
    };
    assert_eq!(conditional_throughput(&tst009(), 1000.0, &[short]), 0.0);
}

#[test]
fn a_device_of_fixed_capacity_takes_three_loads_beside_the_maximum() {
    let goals = vec![MlrGoal::fdio(LossRatio::ZERO), MlrGoal::fdio(ratio(0.005))];
    let searched = search(&config(goals), Device::of(12e6), 0);
    let mut rates: Vec<f64> = searched
        .history
        .iter()
        .map(|attempt| attempt.request.rate_pps)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    assert_eq!(rates.len(), 4, "{rates:?}");
    // Seven trials of 1.5 s hold and eight lose. The load between is measured for both goals at once.
    assert_eq!(searched.history.len(), 1 + 7 + 8 + 8);
    let [ndr, pdr] = &searched.found.goals[..] else {
        panic!("the configuration has two goals")
    };
    for result in [ndr, pdr] {
        assert_eq!(result.irregularity, None);
    }
    assert_eq!(ndr.upper.unwrap().rate_pps, pdr.lower.unwrap().rate_pps);
    assert!(ndr.lower.unwrap().rate_pps <= 12e6 && ndr.upper.unwrap().rate_pps > 12e6);
    assert!((pdr.conditional_throughput_pps.unwrap() / 12e6 - 1.0).abs() < 1e-6);
}

#[test]
fn the_ends_of_the_range_are_irregular_results() {
    let goals = vec![MlrGoal::fdio(LossRatio::ZERO)];
    let config = config(goals);
    let above = search(&config, Device::of(40e6), 0).found;
    assert_eq!(above.end, MlrEnd::Finished);
    let result = &above.goals[0];
    assert_eq!(result.irregularity, Some(MlrIrregularity::NoUpperBound));
    assert_eq!(result.lower.unwrap().rate_pps, config.max_rate_pps);
    assert_eq!(result.conditional_throughput_pps, Some(config.max_rate_pps));
    let below = search(&config, Device::of(5e3), 0).found;
    assert_eq!(below.end, MlrEnd::Finished);
    let result = &below.goals[0];
    assert_eq!(result.irregularity, Some(MlrIrregularity::NoLowerBound));
    assert_eq!(result.upper.unwrap().rate_pps, config.min_rate_pps);
    assert_eq!(result.conditional_throughput_pps, None);
    // A single rate is a range too.
    let single = MlrSearchConfig {
        min_rate_pps: 1e6,
        max_rate_pps: 1e6,
        ..config
    };
    let held = search(&single, Device::of(1e6), 0).found;
    assert_eq!(held.goals[0].lower.unwrap().rate_pps, 1e6);
}

#[test]
fn a_truncated_search_is_marked_as_such() {
    let goals = vec![MlrGoal::fdio(LossRatio::ZERO)];
    let short = MlrSearchConfig {
        max_trials: 12,
        ..config(goals)
    };
    let found = search(&short, Device::of(12e6), 0).found;
    assert_eq!(found.end, MlrEnd::TrialLimit);
    assert!(found.goals[0].irregularity.is_some());
}

#[test]
fn invalid_trials_are_repeated_and_then_end_the_search() {
    let goals = vec![MlrGoal::fdio(LossRatio::ZERO)];
    let config = MlrSearchConfig {
        max_invalid_repeats: 2,
        ..config(goals)
    };
    let invalid = |reason: &str| Outcome::invalid(reason);
    let mut search = MlrSearch::new(config).unwrap();
    assert_eq!(
        search.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    let Step::Run(first) = search.step() else {
        panic!("ended before the first trial")
    };
    for reason in ["a", "b"] {
        search.record(invalid(reason)).unwrap();
        assert_eq!(search.step(), Step::Run(first));
    }
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let outcome = Outcome::Valid {
            loss_ratio: 0.0,
            effective_duration_s: Some(bad),
        };
        assert!(matches!(
            search.record(outcome),
            Err(RecordError::EffectiveDuration(_))
        ));
    }
    search.record(invalid("c")).unwrap();
    let Step::Done(result) = search.step() else {
        panic!("continued after three invalid trials")
    };
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"mlrsearch""#), "{json}");
    assert!(json.contains(r#""reasons":["a","b","c"]"#), "{json}");
    assert_eq!(
        serde_json::from_str::<crate::SearchResult>(&json).unwrap(),
        result
    );
}

#[test]
fn bad_parameters_are_named() {
    let error = |change: fn(&mut MlrSearchConfig)| {
        let mut config = config(vec![MlrGoal::rfc2544()]);
        change(&mut config);
        MlrSearch::new(config).unwrap_err()
    };
    assert_eq!(error(|c| c.goals.clear()), ConfigError::NoGoals);
    assert_eq!(
        error(|c| c.goals[0].exceed_ratio = 1.0),
        ConfigError::ExceedRatio(1.0)
    );
    assert!(matches!(
        error(|c| c.goals[0].exceed_ratio = f64::NAN),
        ConfigError::ExceedRatio(_)
    ));
    for width in [0.0, 1.0, -0.1] {
        let mut config = config(vec![MlrGoal::rfc2544()]);
        config.goals[0].width = width;
        assert_eq!(config.validate(), Err(ConfigError::Width(width)));
    }
    assert!(matches!(
        error(|c| c.goals[0].initial_trial_duration_s = 61.0),
        ConfigError::InitialOverFinal { .. }
    ));
    for change in [
        (|c: &mut MlrSearchConfig| c.goals[0].final_trial_duration_s = 0.0) as fn(&mut _),
        |c| c.goals[0].duration_sum_s = f64::INFINITY,
        |c| c.goals[0].initial_trial_duration_s = -1.0,
        |c| c.min_rate_pps = 0.0,
        |c| c.max_rate_pps = f64::NAN,
    ] {
        assert!(matches!(error(change), ConfigError::NotPositive { .. }));
    }
    assert!(matches!(
        error(|c| c.min_rate_pps = 1e9),
        ConfigError::BoundsCrossed { .. }
    ));
    assert_eq!(
        error(|c| c.max_trials = 0),
        ConfigError::Zero { name: "max_trials" }
    );
}
