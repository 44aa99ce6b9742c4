// SPDX-License-Identifier: Apache-2.0
//! Results with invalid trials counted as lost, and as held.

use proptest::prelude::*;

use super::{drive, invalid, loss_of, small};
use crate::{
    BestWorst, BestWorstConfig, Findings, LossRatio, Method, MlrGoal, MlrSearch, MlrSearchConfig,
    Outcome, Readings, SearchResult, Sides, SingleRun, SingleRunConfig,
};

/// Constructor of a search, so that a test can start it several times.
type Start = fn() -> Box<dyn Method>;

fn wide() -> SingleRunConfig {
    SingleRunConfig {
        max_trials: 10_000,
        ..small()
    }
}

fn of_n(sides: Sides) -> Box<dyn Method> {
    let config = BestWorstConfig {
        search: wide(),
        trials: 3,
        sides,
    };
    Box::new(BestWorst::new(config).unwrap())
}

fn mlr(exceed_ratio: f64) -> Box<dyn Method> {
    let goal = MlrGoal {
        duration_sum_s: 3.0,
        exceed_ratio,
        width: 0.05,
        ..MlrGoal::fdio(LossRatio::ZERO)
    };
    let config = MlrSearchConfig {
        goals: vec![goal],
        min_rate_pps: 1.0,
        max_rate_pps: 100.0,
        max_invalid_repeats: 3,
        max_trials: 10_000,
    };
    Box::new(MlrSearch::new(config).unwrap())
}

const SEARCHES: [Start; 5] = [
    || Box::new(SingleRun::new(wide()).unwrap()),
    || of_n(Sides::Best),
    || of_n(Sides::Worst),
    || mlr(0.0),
    || mlr(0.5),
];

/// Runs the search on a device that forwards up to 37.3 frames per second, with another outcome for one trial.
fn with(start: Start, trial: usize, outcome: &Outcome) -> SearchResult {
    drive(&mut *start(), 10_000, |at, rate_pps| {
        if at == trial {
            outcome.clone()
        } else {
            loss_of(37.3, rate_pps)
        }
    })
}

fn readings(result: &SearchResult) -> Readings {
    let all = result.findings.readings(&result.history);
    assert_eq!(all.len(), 1);
    all[0]
}

fn found(result: &SearchResult) -> Option<f64> {
    match &result.findings {
        Findings::SingleRun(found) => found.highest_held_pps,
        Findings::BestWorst(found) => {
            let side = found.best.as_ref().or(found.worst.as_ref());
            side.and_then(|side| side.highest_held_pps)
        }
        Findings::MlrSearch(found) => found.goals[0].lower.map(|lower| lower.rate_pps),
        other => panic!("findings of another method: {other:?}"),
    }
}

#[test]
fn without_invalid_trials_both_readings_are_the_result() {
    for start in SEARCHES {
        let result = drive(&mut *start(), 10_000, |_, rate_pps| loss_of(37.3, rate_pps));
        let both = readings(&result);
        assert_eq!(
            (both.all_lost_pps, both.all_held_pps),
            (found(&result), found(&result))
        );
        assert_eq!(both.invalid_trials, 0);
        assert!(!both.differ());
        let width_pps = match result.findings {
            Findings::MlrSearch(_) => 0.05 * found(&result).unwrap(),
            _ => 1.0,
        };
        assert_eq!(both.width_pps, width_pps);
    }
}

/// 10, 14, 18 hold. 22 is invalid, and holds when it is repeated.
#[test]
fn an_invalid_trial_at_a_rate_that_holds_may_have_been_a_loss() {
    let result = with(SEARCHES[0], 3, &invalid("a gap"));
    let both = readings(&result);
    assert_eq!(result.history[3].request.rate_pps, 22.0);
    assert_eq!(both.all_lost_pps, Some(18.0));
    assert_eq!(both.all_held_pps, found(&result));
    assert_eq!((both.invalid_trials, both.width_pps), (1, 1.0));
    assert!(both.differ());
    // With three trials per rate, two others hold at 22.
    let result = with(SEARCHES[1], 3, &invalid("a gap"));
    let both = readings(&result);
    assert_eq!(
        (both.all_lost_pps, both.all_held_pps),
        (found(&result), found(&result))
    );
    assert_eq!(both.invalid_trials, 1);
}

/// 38 exceeds 37.3 and loses; its first trial is invalid.
#[test]
fn an_invalid_trial_at_a_rate_that_loses_may_have_held() {
    let result = with(SEARCHES[0], 7, &invalid("a gap"));
    let both = readings(&result);
    assert_eq!(result.history[7].request.rate_pps, 38.0);
    assert_eq!(both.all_lost_pps, found(&result));
    assert_eq!(both.all_held_pps, Some(38.0));
    assert!(!both.differ(), "{both:?}");
}

#[test]
fn a_search_that_only_has_invalid_trials_has_no_result_when_they_lost() {
    for start in SEARCHES {
        let result = drive(&mut *start(), 100, |_, _| invalid("a gap"));
        let both = readings(&result);
        assert_eq!(both.all_lost_pps, None);
        assert_eq!(both.invalid_trials, result.history.len());
    }
    let result = drive(&mut *SEARCHES[0](), 100, |_, _| invalid("a gap"));
    assert_eq!(readings(&result).all_held_pps, Some(10.0));
    assert!(readings(&result).differ());
}

#[test]
fn both_sides_of_best_and_worst_have_readings() {
    let mut search = of_n(Sides::Both);
    let result = drive(&mut *search, 10_000, |at, rate_pps| match at {
        3 => invalid("a gap"),
        _ => loss_of(37.3, rate_pps),
    });
    let all = result.findings.readings(&result.history);
    let [best, worst] = all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(best.all_lost_pps, best.all_held_pps);
    assert!(worst.all_lost_pps < worst.all_held_pps);
}

proptest! {
    #[test]
    fn a_search_that_sees_the_other_outcome_is_bounded(
        which in 0..SEARCHES.len(),
        trial in 0..12usize,
    ) {
        let start = SEARCHES[which];
        let result = with(start, trial, &invalid("a gap"));
        prop_assume!(result.history.len() > trial);
        let both = readings(&result);
        let number = |rate: Option<f64>| rate.unwrap_or(0.0);
        prop_assert!(both.all_lost_pps <= found(&result) && found(&result) <= both.all_held_pps);
        let lost = with(start, trial, &Outcome::lost(1.0));
        let held = with(start, trial, &Outcome::lost(0.0));
        prop_assert!(number(found(&lost)) >= number(both.all_lost_pps), "{:?} {:?}", lost, both);
        prop_assert!(number(found(&held)) + both.width_pps >= number(both.all_held_pps), "{:?} {:?}", held, both);
    }
}
