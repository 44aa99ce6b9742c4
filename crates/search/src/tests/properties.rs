// SPDX-License-Identifier: Apache-2.0
//! Properties of every search, for all parameters and devices.

use proptest::prelude::*;

use super::{drive, loss_of, rates, reference, single};
use crate::{LossRatio, Outcome, SearchEnd, SingleRun, SingleRunConfig};

/// Returns a strategy for valid parameters of every kind: steps larger than the range, floors close to the start, ceilings at the start.
fn configs() -> impl Strategy<Value = SingleRunConfig> {
    (
        (1.0..1e4f64, 0.0..1.0f64, 0.0..1.0f64),
        (0.01..1.5f64, 0.001..=1.0f64),
        prop_oneof![Just(0.0), 0.0..0.1f64],
        (0u32..4, 1u32..4, prop_oneof![1u32..40, Just(100_000u32)]),
    )
        .prop_map(
            |((min, span, start), (step, resolution), tolerance, (repeats, best_of, trials))| {
                let max = min + span * 1e6;
                let start_step_pps = (step * max).max(1e-3);
                SingleRunConfig {
                    start_rate_pps: (min + start * (max - min)).clamp(min, max),
                    start_step_pps,
                    resolution_pps: resolution * start_step_pps,
                    loss_tolerance: LossRatio::new(tolerance).unwrap(),
                    trial_duration_s: 1.0,
                    min_rate_pps: min,
                    max_rate_pps: max,
                    best_of,
                    max_invalid_repeats: repeats,
                    max_trials: trials,
                }
            },
        )
}

/// Returns a strategy for arbitrary devices, as a cyclic list of outcomes.
fn scripts() -> impl Strategy<Value = Vec<Outcome>> {
    let outcome = prop_oneof![
        4 => Just(Outcome::lost(0.0)),
        3 => (0.0..=1.0f64).prop_map(Outcome::lost),
        1 => (0.0..0.1f64).prop_map(Outcome::lost),
        1 => "[a-c]".prop_map(Outcome::invalid),
    ];
    prop::collection::vec(outcome, 1..60)
}

/// Returns a capacity by its position in the range, which may lie slightly outside.
fn capacity(config: &SingleRunConfig, position: f64) -> f64 {
    let span = config.max_rate_pps - config.min_rate_pps;
    (config.min_rate_pps + position * span).max(0.5 * config.min_rate_pps)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn each_trial_follows_the_specification(config in configs(), script in scripts()) {
        let mut device = |trial: usize, _| script[trial % script.len()].clone();
        let expected = reference::run(&config, &mut device);
        let mut search = SingleRun::new(config).unwrap();
        let result = drive(&mut search, 100_000, device);
        prop_assert_eq!(rates(&result), expected.rates);
        let found = single(&result);
        prop_assert_eq!(&found.end, &expected.end);
        prop_assert_eq!(found.highest_held_pps, expected.highest_held);
        prop_assert_eq!(found.published_pps, expected.published);
    }

    #[test]
    fn keeps_its_bounds_on_any_device(config in configs(), script in scripts()) {
        let mut search = SingleRun::new(config.clone()).unwrap();
        let bound = config.trial_bound();
        prop_assert!(bound <= config.max_trials);
        // `drive` fails if the bound is exceeded.
        let result = drive(&mut search, bound as usize, |trial, _| {
            script[trial % script.len()].clone()
        });
        for rate in rates(&result) {
            prop_assert!(rate >= config.min_rate_pps && rate <= config.max_rate_pps, "{}", rate);
        }
        let mut in_a_row = 0;
        for attempt in &result.history {
            in_a_row = match attempt.outcome {
                Outcome::Invalid { .. } => in_a_row + 1,
                Outcome::Valid { .. } => 0,
            };
            prop_assert!(in_a_row <= config.max_invalid_repeats + 1);
        }
        let holds = |rate: f64| result.history.iter().any(|attempt| {
            attempt.request.rate_pps == rate
                && matches!(attempt.outcome, Outcome::Valid { loss_ratio, .. }
                    if loss_ratio <= config.loss_tolerance.get())
        });
        let found = single(&result);
        prop_assert!(found.highest_held_pps.is_none_or(holds), "result never seen to hold");
        prop_assert_eq!(found.published_pps.is_some(), found.published_held.is_some());
        match found.end {
            SearchEnd::Converged | SearchEnd::HeldAtMaxRate => {
                prop_assert!(found.highest_held_pps.is_some());
            }
            SearchEnd::NothingHeldAtMinRate | SearchEnd::NothingHeldInReach { .. } => {
                prop_assert!(found.highest_held_pps.is_none());
            }
            SearchEnd::InvalidTrials { .. } | SearchEnd::TrialLimit => {}
        }
    }

    #[test]
    fn finds_the_capacity_of_a_fixed_device(config in configs(), position in -0.1..1.1f64) {
        let config = SingleRunConfig { max_trials: 100_000, loss_tolerance: LossRatio::ZERO, ..config };
        let capacity = capacity(&config, position);
        let mut search = SingleRun::new(config.clone()).unwrap();
        let result = drive(&mut search, 100_000, |_, rate| loss_of(capacity, rate));
        let found = single(&result);
        prop_assert_eq!(found.lost_at_or_under_highest_held, 0);
        match &found.end {
            SearchEnd::HeldAtMaxRate => {
                prop_assert!(capacity >= config.max_rate_pps);
                prop_assert_eq!(found.highest_held_pps, Some(config.max_rate_pps));
            }
            SearchEnd::Converged => {
                let held = found.highest_held_pps.unwrap();
                prop_assert!(held <= capacity);
                // One part in a billion covers the rounding of sums of steps.
                let slack = capacity * 1e-9;
                prop_assert!(capacity - held < config.resolution_pps + slack, "{} {}", held, capacity);
            }
            SearchEnd::NothingHeldAtMinRate => prop_assert!(capacity < config.min_rate_pps),
            SearchEnd::NothingHeldInReach { lowest_tried_pps } => {
                prop_assert!(capacity < *lowest_tried_pps);
                let reach = config.start_rate_pps - 2.0 * config.start_step_pps;
                let slack = config.resolution_pps + config.start_rate_pps * 1e-9;
                prop_assert!(capacity < reach + slack, "{} was in reach of {}", capacity, reach);
            }
            other => prop_assert!(false, "a fixed device ended with {:?}", other),
        }
    }
}
