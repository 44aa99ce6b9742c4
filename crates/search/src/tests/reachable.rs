// SPDX-License-Identifier: Apache-2.0
//! Searches with testers that do not reach every rate, and with devices that forward more than the maximum rate.

use proptest::prelude::*;

use super::{drive, invalid, loss_of, rates, single, small};
use crate::{
    BestWorst, BestWorstConfig, Findings, LossRatio, Method, MlrGoal, MlrIrregularity, MlrSearch,
    MlrSearchConfig, Outcome, Reachable, Repeat, RepeatConfig, SearchEnd, Sides, SingleRun,
    SingleRunConfig, ThroughputSearch,
};

/// A tester that reaches this rate, and achieves it if asked for more.
fn reached(most_pps: f64, rate_pps: f64, otherwise: Outcome) -> Outcome {
    if rate_pps <= most_pps {
        return otherwise;
    }
    Outcome::Invalid {
        reason: "the rate was missed".to_owned(),
        achieved_rate_pps: Some(most_pps),
    }
}

/// Steps of 10 from 10 to 100.
fn steps() -> SingleRunConfig {
    SingleRunConfig {
        start_step_pps: 10.0,
        max_invalid_repeats: 10,
        ..small()
    }
}

fn goal() -> MlrGoal {
    MlrGoal {
        width: 0.05,
        ..MlrGoal::fdio(LossRatio::ZERO)
    }
}

fn mlrsearch() -> MlrSearchConfig {
    MlrSearchConfig {
        goals: vec![goal()],
        min_rate_pps: 1.0,
        max_rate_pps: 100.0,
        max_invalid_repeats: 10,
        max_trials: 1000,
    }
}

#[test]
fn a_rate_out_of_reach_lowers_the_maximum() {
    let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
    let result = drive(&mut search, 100, |_, rate| {
        reached(60.0, rate, Outcome::lost(0.0))
    });
    assert_eq!(search.history(), result.history);
    let found = single(&result);
    assert_eq!(found.end, SearchEnd::HeldAtMaxRate);
    assert_eq!(found.highest_held_pps, Some(57.0));
    assert_eq!(found.config.max_rate_pps, 57.0);
    // Up to 60, five trials at 70, and the same way again up to the new maximum.
    let first = [10.0, 20.0, 30.0, 40.0, 50.0, 60.0];
    let missed = [70.0; 5];
    let again = [10.0, 20.0, 30.0, 40.0, 50.0, 57.0];
    assert_eq!(rates(&result), [&first[..], &missed, &again].concat());
}

#[test]
fn the_maximum_falls_by_a_tenth_at_least() {
    let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
    // Just under 70: the tester achieves nearly what it was asked for.
    let result = drive(&mut search, 100, |_, rate| {
        reached(69.9, rate, Outcome::lost(0.0))
    });
    assert_eq!(single(&result).highest_held_pps, Some(63.0));
}

#[test]
fn fewer_repeats_lower_the_maximum_rate_sooner() {
    let config = SingleRunConfig {
        max_invalid_repeats: 2,
        ..steps()
    };
    let mut search = Reachable::new(ThroughputSearch::SingleRun(config)).unwrap();
    let result = drive(&mut search, 100, |_, rate| {
        reached(60.0, rate, Outcome::lost(0.0))
    });
    let missed = rates(&result).into_iter().filter(|rate| *rate > 60.0);
    assert_eq!(missed.count(), 3);
    assert_eq!(single(&result).end, SearchEnd::HeldAtMaxRate);
}

#[test]
fn a_device_slower_than_the_tester_has_the_plain_result() {
    let plain = drive(&mut SingleRun::new(steps()).unwrap(), 100, |_, rate| {
        loss_of(33.0, rate)
    });
    let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
    let result = drive(&mut search, 100, |_, rate| {
        reached(60.0, rate, loss_of(33.0, rate))
    });
    assert_eq!(rates(&result), rates(&plain));
    assert_eq!(result.findings, plain.findings);
}

#[test]
fn a_valid_trial_or_another_failure_begins_the_count_again() {
    for between in [Outcome::lost(0.0), invalid("a gap")] {
        let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
        let mut missed = 0;
        let result = drive(&mut search, 200, |_, rate| {
            if rate < 70.0 || missed == 4 {
                missed = 0;
                return between.clone();
            }
            missed += 1;
            reached(60.0, rate, Outcome::lost(0.0))
        });
        // Never five in a row, so the maximum stays.
        assert_eq!(single(&result).config.max_rate_pps, 100.0);
    }
}

#[test]
fn the_maximum_is_lowered_four_times_at_most() {
    let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
    let result = drive(&mut search, 100, |_, rate| {
        // A tester that always achieves a little less than it is asked for.
        reached(0.0, rate, Outcome::lost(0.0)).clone()
    });
    assert!(matches!(
        single(&result).end,
        SearchEnd::InvalidTrials { .. }
    ));
    let mut search = Reachable::new(ThroughputSearch::SingleRun(steps())).unwrap();
    let result = drive(&mut search, 100, |_, rate_pps| Outcome::Invalid {
        reason: "the rate was missed".to_owned(),
        achieved_rate_pps: Some(rate_pps * 0.99),
    });
    let found = single(&result);
    assert!(matches!(found.end, SearchEnd::InvalidTrials { .. }));
    assert!(
        (found.config.max_rate_pps - 10.0 * 0.9f64.powi(4)).abs() < 1e-9,
        "{found:?}"
    );
    // Five at each of four rates, and all eleven at the last.
    assert_eq!(rates(&result).len(), 4 * 5 + 11);
}

#[test]
fn of_n_and_mlrsearch_end_at_the_lowered_maximum_too() {
    let config = BestWorstConfig {
        search: steps(),
        trials: 2,
        sides: Sides::Both,
    };
    let mut search = Reachable::new(ThroughputSearch::BestWorstOfN(config)).unwrap();
    assert_eq!(search.name(), "best-worst-of-n");
    let result = drive(&mut search, 200, |_, rate| {
        reached(60.0, rate, Outcome::lost(0.0))
    });
    let Findings::BestWorst(found) = &result.findings else {
        panic!("{:?}", result.findings);
    };
    for side in [&found.best, &found.worst] {
        let side = side.as_ref().unwrap();
        assert_eq!(side.end, SearchEnd::HeldAtMaxRate);
        assert_eq!(side.highest_held_pps, Some(57.0));
    }

    let mut search = Reachable::new(ThroughputSearch::MlrSearch(mlrsearch())).unwrap();
    assert_eq!(search.width_pps(40.0), Some(2.0));
    let result = drive(&mut search, 200, |_, rate| {
        reached(60.0, rate, Outcome::lost(0.0))
    });
    let Findings::MlrSearch(found) = &result.findings else {
        panic!("{:?}", result.findings);
    };
    let goal = &found.goals[0];
    assert_eq!(goal.irregularity, Some(MlrIrregularity::NoUpperBound));
    assert_eq!(goal.lower.map(|bound| bound.rate_pps), Some(57.0));
}

/// Returns the three methods, up to a rate of 100.
fn methods() -> [ThroughputSearch; 3] {
    let of_n = BestWorstConfig {
        search: steps(),
        trials: 2,
        sides: Sides::Both,
    };
    [
        ThroughputSearch::SingleRun(steps()),
        ThroughputSearch::BestWorstOfN(of_n),
        ThroughputSearch::MlrSearch(mlrsearch()),
    ]
}

/// Returns the rate that a search found, and true if it is a lower limit only.
fn result_of(findings: &Findings) -> (f64, bool) {
    match findings {
        Findings::SingleRun(found) => (
            found.highest_held_pps.unwrap(),
            found.end == SearchEnd::HeldAtMaxRate,
        ),
        Findings::BestWorst(found) => {
            let worst = found.worst.as_ref().unwrap();
            let is_limit = worst.end == SearchEnd::HeldAtMaxRate;
            (worst.highest_held_pps.unwrap(), is_limit)
        }
        Findings::MlrSearch(found) => {
            let goal = &found.goals[0];
            let is_limit = goal.irregularity == Some(MlrIrregularity::NoUpperBound);
            (goal.lower.unwrap().rate_pps, is_limit)
        }
        other => panic!("findings of another method: {other:?}"),
    }
}

/// Returns what a search finds that may raise its maximum, with a tester and a device of these rates.
fn raised(config: ThroughputSearch, tester_pps: f64, device_pps: f64) -> (f64, bool) {
    let mut search = Reachable::new(config).unwrap().raising();
    let result = drive(&mut search, 500, |_, rate| {
        reached(tester_pps, rate, loss_of(device_pps, rate))
    });
    assert_eq!(search.history(), result.history);
    result_of(&result.findings)
}

#[test]
fn a_maximum_that_held_is_raised_until_the_device_loses() {
    for config in methods() {
        // 100 held because the device was slow while the maximum was measured.
        let (rate_pps, is_limit) = raised(config.clone(), 1e3, 137.0);
        assert!(
            !is_limit && (129.0..=137.0).contains(&rate_pps),
            "{rate_pps}"
        );
        // It is raised twice, by half each time.
        let (rate_pps, is_limit) = raised(config.clone(), 1e3, 210.0);
        assert!(
            !is_limit && (198.0..=210.0).contains(&rate_pps),
            "{rate_pps}"
        );
        assert_eq!(raised(config.clone(), 1e3, 1e3), (225.0, true));
        // A device that loses below the maximum has the plain result.
        let plain = drive(
            &mut Reachable::new(config.clone()).unwrap(),
            500,
            |_, rate| loss_of(33.0, rate),
        );
        assert_eq!(raised(config, 1e3, 33.0), result_of(&plain.findings));
    }
}

#[test]
fn a_tester_that_fails_above_the_maximum_leaves_what_held() {
    for config in methods() {
        // The tester achieves 101 above the maximum: nothing to gain.
        assert_eq!(raised(config.clone(), 101.0, 1e3), (100.0, true));
        // It achieves 140, of which 95 % are the new maximum, unless a tenth of the missed rate is more.
        let (rate_pps, is_limit) = raised(config.clone(), 140.0, 1e3);
        assert!(
            is_limit && (126.0..=135.0).contains(&rate_pps),
            "{rate_pps}"
        );
        // Trials fail for another reason than the rate.
        let mut search = Reachable::new(config).unwrap().raising();
        let result = drive(&mut search, 500, |_, rate| {
            if rate > 100.0 {
                return invalid("a gap");
            }
            Outcome::lost(0.0)
        });
        assert_eq!(result_of(&result.findings), (100.0, true));
    }
}

#[test]
fn a_maximum_that_was_lowered_is_not_raised() {
    for config in methods() {
        assert_eq!(raised(config, 60.0, 1e3), (57.0, true));
    }
}

#[test]
fn each_search_of_a_repetition_raises_its_maximum() {
    let mut repeat = Repeat::new(RepeatConfig {
        search: ThroughputSearch::SingleRun(steps()),
        runs: 3,
        confidence: 0.95,
    })
    .unwrap()
    .raising();
    let result = drive(&mut repeat, 500, |_, rate| loss_of(137.0, rate));
    let Findings::Repeat(found) = &result.findings else {
        panic!("{:?}", result.findings);
    };
    assert_eq!(found.runs.len(), 3);
    for run in &found.runs {
        assert_eq!(run.results_pps, found.runs[0].results_pps);
        assert!(run.results_pps[0].unwrap() > 130.0);
    }
}

/// Valid trials, and trials that are invalid for other reasons than the rate.
fn scripts() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::lost(0.0)),
        3 => (0.0..=1.0f64).prop_map(Outcome::lost),
        2 => "[a-c]".prop_map(Outcome::invalid),
    ];
    prop::collection::vec(outcome, 1..60)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn without_missed_rates_the_search_is_the_plain_one(script in scripts(), method in 0..3) {
        let of_n = BestWorstConfig { search: steps(), trials: 3, sides: Sides::Both };
        let (mut plain, repeated): (Box<dyn Method>, _) = match method {
            0 => (Box::new(SingleRun::new(steps()).unwrap()), ThroughputSearch::SingleRun(steps())),
            1 => (Box::new(BestWorst::new(of_n.clone()).unwrap()), ThroughputSearch::BestWorstOfN(of_n)),
            _ => (
                Box::new(MlrSearch::new(mlrsearch()).unwrap()),
                ThroughputSearch::MlrSearch(mlrsearch()),
            ),
        };
        let device = |trial: usize, _: f64| script[trial % script.len()].clone();
        let expected = drive(plain.as_mut(), 5000, device);
        let mut search = Reachable::new(repeated).unwrap();
        prop_assert_eq!(drive(&mut search, 5000, device), expected);
    }
}
