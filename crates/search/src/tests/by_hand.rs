// SPDX-License-Identifier: Apache-2.0
//! Single-run searches computed by hand, and misuse.

use super::{drive, invalid, loss_of, rates, single, small};
use crate::{
    ConfigError, LossRatio, Method, Outcome, RecordError, SearchEnd, SearchResult, SingleRun,
    SingleRunConfig, Step,
};

fn on_device(config: SingleRunConfig, capacity_pps: f64) -> SearchResult {
    let mut search = SingleRun::new(config).unwrap();
    drive(&mut search, 100, |_, rate| loss_of(capacity_pps, rate))
}

#[test]
fn last_rate_may_have_failed_and_is_not_the_result() {
    let result = on_device(small(), 19.0);
    // Up by 4 until 22 loses, back to 18, then steps of 2, 1 and 0.5.
    assert_eq!(
        rates(&result),
        [10.0, 14.0, 18.0, 22.0, 18.0, 20.0, 19.0, 19.5]
    );
    let found = single(&result);
    assert_eq!(found.end, SearchEnd::Converged);
    assert_eq!(found.published_pps, Some(19.5));
    assert_eq!(found.published_held, Some(false));
    assert_eq!(found.highest_held_pps, Some(19.0));
    assert_eq!(found.lost_at_or_under_highest_held, 0);
    assert!(!found.is_lower_limit_only());
    assert!(result.history.iter().all(|a| a.request.duration_s == 2.0));
}

#[test]
fn best_of_two_forgives_one_loss_at_each_visit_of_a_rate() {
    let config = SingleRunConfig {
        best_of: 2,
        ..small()
    };
    let mut search = SingleRun::new(config).unwrap();
    // Random losses in the very first trial and in the first trial at 18.
    let result = drive(&mut search, 100, |trial, rate| {
        if trial == 0 || trial == 3 {
            Outcome::lost(0.5)
        } else {
            loss_of(19.0, rate)
        }
    });
    assert_eq!(
        rates(&result),
        [
            10.0, 10.0, 14.0, 18.0, 18.0, 22.0, 22.0, 18.0, 20.0, 20.0, 19.0, 19.5, 19.5
        ]
    );
    assert_eq!(single(&result).highest_held_pps, Some(19.0));
    assert_eq!(single(&result).lost_at_or_under_highest_held, 2);
}

#[test]
fn last_rate_may_have_held_and_then_both_agree() {
    let result = on_device(small(), 19.7);
    assert_eq!(rates(&result).last(), Some(&19.5));
    let found = single(&result);
    assert_eq!(found.published_held, Some(true));
    assert_eq!(found.highest_held_pps, found.published_pps);
}

#[test]
fn loss_at_the_first_rate_goes_down_at_once() {
    let result = on_device(small(), 7.0);
    assert_eq!(rates(&result), [10.0, 6.0, 8.0, 7.0, 7.5]);
    assert_eq!(single(&result).highest_held_pps, Some(7.0));
}

#[test]
fn capacity_out_of_reach_is_no_result() {
    let result = on_device(small(), 1.0);
    assert_eq!(rates(&result), [10.0, 6.0, 4.0, 3.0, 2.5]);
    let found = single(&result);
    assert_eq!(
        found.end,
        SearchEnd::NothingHeldInReach {
            lowest_tried_pps: 2.5
        }
    );
    assert_eq!(found.highest_held_pps, None);
    assert_eq!(found.published_pps, Some(2.5));
    assert_eq!(found.published_held, Some(false));
}

#[test]
fn floor_is_tried_where_the_step_leads_under_it() {
    let config = SingleRunConfig {
        start_step_pps: 20.0,
        min_rate_pps: 2.0,
        ..small()
    };
    let result = on_device(config.clone(), 3.0);
    assert_eq!(rates(&result), [10.0, 2.0, 12.0, 7.0, 4.5, 3.25, 2.625]);
    assert_eq!(single(&result).highest_held_pps, Some(2.625));

    let result = on_device(config, 1.0);
    assert_eq!(rates(&result), [10.0, 2.0]);
    let found = single(&result);
    assert_eq!(found.end, SearchEnd::NothingHeldAtMinRate);
    assert_eq!(found.highest_held_pps, None);
    assert_eq!(found.published_pps, None);
}

#[test]
fn ceiling_is_tried_where_the_step_leads_over_it() {
    let config = SingleRunConfig {
        max_rate_pps: 15.0,
        ..small()
    };
    let result = on_device(config.clone(), 50.0);
    assert_eq!(rates(&result), [10.0, 14.0, 15.0]);
    let found = single(&result);
    assert_eq!(found.end, SearchEnd::HeldAtMaxRate);
    assert_eq!(found.highest_held_pps, Some(15.0));
    assert!(found.is_lower_limit_only());

    let result = on_device(config, 14.5);
    assert_eq!(rates(&result), [10.0, 14.0, 15.0, 11.0, 13.0, 14.0, 14.5]);
    assert_eq!(single(&result).highest_held_pps, Some(14.5));
}

#[test]
fn tolerance_lets_a_little_loss_pass() {
    let config = SingleRunConfig {
        loss_tolerance: LossRatio::new(0.05).unwrap(),
        ..small()
    };
    // Loss of exactly the tolerance up to 20 pps, and slightly more above.
    let mut search = SingleRun::new(config).unwrap();
    let result = drive(&mut search, 100, |_, rate| {
        Outcome::lost(if rate <= 20.0 { 0.05 } else { 0.06 })
    });
    assert_eq!(
        rates(&result),
        [10.0, 14.0, 18.0, 22.0, 18.0, 20.0, 21.0, 20.5]
    );
    assert_eq!(single(&result).highest_held_pps, Some(20.0));
}

#[test]
fn invalid_trials_are_repeated_and_not_held_against_the_device() {
    let mut search = SingleRun::new(small()).unwrap();
    // Two invalid trials at the second rate and one at the last: within the two repeats allowed at each.
    let result = drive(&mut search, 100, |trial, rate| match trial {
        1 | 2 | 9 => invalid("the tester was late"),
        _ => loss_of(19.0, rate),
    });
    assert_eq!(
        rates(&result),
        [
            10.0, 14.0, 14.0, 14.0, 18.0, 22.0, 18.0, 20.0, 19.0, 19.5, 19.5
        ]
    );
    assert_eq!(single(&result).end, SearchEnd::Converged);
    assert_eq!(single(&result).highest_held_pps, Some(19.0));
}

#[test]
fn too_many_invalid_trials_end_the_search_with_their_reasons() {
    let mut search = SingleRun::new(small()).unwrap();
    let result = drive(&mut search, 100, |trial, _| match trial {
        0 => Outcome::lost(0.0),
        n => invalid(&format!("gap {n}")),
    });
    assert_eq!(rates(&result), [10.0, 14.0, 14.0, 14.0]);
    let found = single(&result);
    assert_eq!(
        found.end,
        SearchEnd::InvalidTrials {
            rate_pps: 14.0,
            reasons: vec!["gap 1".into(), "gap 2".into(), "gap 3".into()],
        }
    );
    // Earlier observations still count.
    assert_eq!(found.highest_held_pps, Some(10.0));
    assert_eq!(found.published_pps, None);
}

#[test]
fn the_trial_limit_ends_the_search() {
    let config = SingleRunConfig {
        max_trials: 3,
        ..small()
    };
    let result = on_device(config, 19.0);
    assert_eq!(rates(&result), [10.0, 14.0, 18.0]);
    assert_eq!(single(&result).end, SearchEnd::TrialLimit);
    assert_eq!(single(&result).highest_held_pps, Some(18.0));
}

#[test]
fn a_device_that_contradicts_itself_is_detected() {
    // 18 holds in the linear phase and loses in the binary one.
    let mut search = SingleRun::new(small()).unwrap();
    let result = drive(&mut search, 100, |trial, rate| match trial {
        4 => Outcome::lost(0.1),
        _ => loss_of(19.0, rate),
    });
    assert_eq!(
        rates(&result),
        [10.0, 14.0, 18.0, 22.0, 18.0, 16.0, 17.0, 17.5]
    );
    let found = single(&result);
    assert_eq!(found.highest_held_pps, Some(18.0));
    assert_eq!(found.lost_at_or_under_highest_held, 1);
    assert_eq!(found.published_pps, Some(17.5));
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let mut search = SingleRun::new(small()).unwrap();
    let good = Outcome::lost(0.0);
    assert_eq!(
        search.record(good.clone()),
        Err(RecordError::NothingPending)
    );
    let first = search.step();
    assert_eq!(search.step(), first, "asking twice gives the same request");
    for bad in [-0.1, 1.1, f64::INFINITY] {
        assert_eq!(
            search.record(Outcome::lost(bad)),
            Err(RecordError::LossRatio(bad))
        );
    }
    assert!(search.record(Outcome::lost(f64::NAN)).is_err());
    assert!(search.history().is_empty());
    search.record(good.clone()).unwrap();
    assert_eq!(
        search.record(good.clone()),
        Err(RecordError::NothingPending)
    );
    assert_eq!(search.history().len(), 1);

    let done = drive(&mut search, 100, |_, rate| loss_of(19.0, rate));
    assert_eq!(search.record(good), Err(RecordError::NothingPending));
    assert_eq!(search.step(), Step::Done(done));
}

#[test]
fn bad_parameters_are_named() {
    type Field = fn(&mut SingleRunConfig) -> &mut f64;
    let fields: [(&str, Field); 6] = [
        ("start_rate_pps", |c| &mut c.start_rate_pps),
        ("start_step_pps", |c| &mut c.start_step_pps),
        ("resolution_pps", |c| &mut c.resolution_pps),
        ("trial_duration_s", |c| &mut c.trial_duration_s),
        ("min_rate_pps", |c| &mut c.min_rate_pps),
        ("max_rate_pps", |c| &mut c.max_rate_pps),
    ];
    for (name, field) in fields {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let mut config = small();
            *field(&mut config) = bad;
            let error = SingleRun::new(config).unwrap_err();
            assert!(error.to_string().contains(name), "{name}={bad}: {error}");
        }
    }
    let changed = |change: fn(&mut SingleRunConfig)| {
        let mut config = small();
        change(&mut config);
        SingleRun::new(config).unwrap_err()
    };
    assert!(matches!(
        changed(|c| c.resolution_pps = 4.1),
        ConfigError::ResolutionOverStep { .. }
    ));
    assert!(matches!(
        changed(|c| c.min_rate_pps = 200.0),
        ConfigError::BoundsCrossed { .. }
    ));
    assert!(matches!(
        changed(|c| c.start_rate_pps = 101.0),
        ConfigError::StartOutsideBounds { .. }
    ));
    assert!(matches!(
        changed(|c| c.min_rate_pps = 11.0),
        ConfigError::StartOutsideBounds { .. }
    ));
    assert_eq!(
        changed(|c| c.max_trials = 0),
        ConfigError::Zero { name: "max_trials" }
    );
    assert!(matches!(
        changed(|c| {
            c.max_rate_pps = 1e20;
            c.start_rate_pps = 1e20;
        }),
        ConfigError::StepVanishes { .. }
    ));
}

#[test]
fn the_bound_of_trials_is_that_of_the_worst_case() {
    let unlimited = SingleRunConfig {
        max_trials: 10_000,
        ..small()
    };
    // 10 to 98, 100 and one for rounding; the full step and its halves 2, 1 and 0.5. Together 29, each with two repeats.
    assert_eq!(unlimited.trial_bound(), 87);
    let best_of_four = SingleRunConfig {
        best_of: 4,
        ..unlimited.clone()
    };
    assert_eq!(best_of_four.trial_bound(), 4 * 87);
    // From 50 on, steps of 24: 74, 98, 100 and one more; then 24, 12, 6, 3, 1.5.
    let coarse = SingleRunConfig {
        start_rate_pps: 50.0,
        start_step_pps: 24.0,
        resolution_pps: 3.0,
        max_invalid_repeats: 0,
        ..unlimited
    };
    assert_eq!(coarse.trial_bound(), 10);
    assert_eq!(
        SingleRunConfig {
            max_trials: 9,
            ..coarse
        }
        .trial_bound(),
        9
    );
}

#[test]
fn the_edges_of_parameters_are_allowed() {
    let same_as_step = SingleRunConfig {
        resolution_pps: 4.0,
        ..small()
    };
    assert_eq!(same_as_step.validate(), Ok(()));
    let single_rate = SingleRunConfig {
        min_rate_pps: 10.0,
        max_rate_pps: 10.0,
        ..small()
    };
    assert_eq!(single_rate.validate(), Ok(()));
    // One step so small that rounding absorbs it, and one that is not.
    let step = |start_step_pps| SingleRunConfig {
        start_rate_pps: 1e16,
        max_rate_pps: 1e16,
        start_step_pps,
        ..small()
    };
    assert!(matches!(
        step(1.0).validate(),
        Err(ConfigError::StepVanishes { .. })
    ));
    assert_eq!(step(2.0).validate(), Ok(()));
}

#[test]
fn results_survive_storing() {
    for (capacity, tag) in [(19.0, "converged"), (1.0, "nothing_held_in_reach")] {
        let mut search = SingleRun::new(small()).unwrap();
        let result = drive(&mut search, 100, |trial, rate| match trial {
            1 => invalid("gap"),
            _ => Outcome::lost(if rate <= capacity { 0.0 } else { 0.25 }),
        });
        let json = serde_json::to_string(&result).unwrap();
        assert!(json.contains(r#""method":"single-run""#), "{json}");
        assert!(json.contains(&format!(r#""end":"{tag}""#)), "{json}");
        let back: SearchResult = serde_json::from_str(&json).unwrap();
        assert_eq!(back, result);
    }
}
