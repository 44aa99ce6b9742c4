// SPDX-License-Identifier: Apache-2.0
//! Properties of every goal on every device.

use proptest::prelude::*;

use super::devices::{Device, Searched, search};
use super::{config, ratio};
use crate::mlrsearch::load::Measured;
use crate::{
    DurationSums, LoadClass, MlrEnd, MlrGoal, MlrGoalResult, MlrIrregularity, MlrSearchConfig,
    Outcome,
};

prop_compose! {
    fn goals()(
        final_s in 1.0..60.0f64,
        sums in 0.5..10.0f64,
        loss_ratio in prop_oneof![Just(0.0), 0.0..0.1f64],
        exceed_ratio in prop_oneof![Just(0.0), Just(0.5), 0.0..0.9f64],
        width in 0.001..0.2f64,
        initial in 0.02..=1.0f64,
    ) -> MlrGoal {
        MlrGoal {
            final_trial_duration_s: final_s,
            duration_sum_s: final_s * sums,
            loss_ratio: ratio(loss_ratio),
            exceed_ratio,
            width,
            initial_trial_duration_s: final_s * initial,
        }
    }
}

prop_compose! {
    fn devices()(
        capacity_pps in 1e3..40e6f64,
        noise in prop_oneof![Just(0.0), 0.0..0.2f64],
        band in 0.1..1.0f64,
        band_chance in prop_oneof![Just(0.0), 0.0..1.0f64],
        degrades in prop_oneof![Just(0.0), 0.0..2.0f64],
        base_loss in prop_oneof![Just(0.0), 0.0..1.0f64],
        bursts_per_s in prop_oneof![Just(0.0), 0.0..1.0f64],
    ) -> Device {
        Device { capacity_pps, noise, band, band_chance, degrades, base_loss, bursts_per_s }
    }
}

/// Returns the classes of all loads, derived from the history alone.
fn classes(goal: &MlrGoal, searched: &Searched) -> Vec<(f64, LoadClass)> {
    let mut rates: Vec<f64> = searched
        .history
        .iter()
        .map(|a| a.request.rate_pps)
        .collect();
    rates.sort_by(f64::total_cmp);
    rates.dedup();
    let class = |rate: f64| {
        let mut sums = DurationSums::default();
        for attempt in searched
            .history
            .iter()
            .filter(|a| a.request.rate_pps == rate)
        {
            if let Outcome::Valid {
                loss_ratio,
                effective_duration_s,
            } = attempt.outcome
            {
                sums.add(
                    goal,
                    Measured {
                        intended_s: attempt.request.duration_s,
                        effective_s: effective_duration_s.unwrap(),
                        loss_ratio,
                    },
                );
            }
        }
        sums.class(goal)
    };
    rates.into_iter().map(|rate| (rate, class(rate))).collect()
}

/// Checks the bounds by an implementation that follows the words of the document.
fn check_bounds(searched: &Searched, result: &MlrGoalResult) -> Result<(), TestCaseError> {
    let classes = classes(&result.goal, searched);
    let of = |wanted| move |(rate, class): &(f64, LoadClass)| (*class == wanted).then_some(*rate);
    let upper = classes
        .iter()
        .filter_map(of(LoadClass::UpperBound))
        .reduce(f64::min);
    let lower = classes
        .iter()
        .filter_map(of(LoadClass::LowerBound))
        .filter(|rate| upper.is_none_or(|upper| *rate < upper))
        .reduce(f64::max);
    prop_assert_eq!(result.upper.map(|bound| bound.rate_pps), upper);
    prop_assert_eq!(result.lower.map(|bound| bound.rate_pps), lower);
    if let (Some(lower), Some(passed)) = (lower, result.conditional_throughput_pps) {
        // The throughput at a lower bound loses no more than the goal permits.
        prop_assert!(passed <= lower);
        prop_assert!(passed >= lower * (1.0 - result.goal.loss_ratio.get()) * (1.0 - 1e-12));
    }
    prop_assert_eq!(lower.is_some(), result.conditional_throughput_pps.is_some());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn every_goal_is_reached_or_its_range_is_through(
        goals in prop::collection::vec(goals(), 1..4),
        device in devices(),
        seed in any::<u64>(),
    ) {
        let config = config(goals);
        let searched = search(&config, device, seed);
        prop_assert_eq!(&searched.found.end, &MlrEnd::Finished);
        for attempt in &searched.history {
            let request = attempt.request;
            prop_assert!((config.min_rate_pps..=config.max_rate_pps).contains(&request.rate_pps));
        }
        for result in &searched.found.goals {
            check_bounds(&searched, result)?;
            match result.irregularity {
                None => {
                    let (lower, upper) = (result.lower.unwrap(), result.upper.unwrap());
                    let gap = upper.rate_pps - lower.rate_pps;
                    prop_assert!(gap > 0.0);
                    prop_assert!(gap <= result.goal.width * upper.rate_pps * (1.0 + 1e-9));
                }
                Some(MlrIrregularity::NoLowerBound) => {
                    prop_assert_eq!(result.upper.unwrap().rate_pps, config.min_rate_pps);
                }
                Some(MlrIrregularity::NoUpperBound) => {
                    prop_assert_eq!(result.lower.unwrap().rate_pps, config.max_rate_pps);
                }
                Some(MlrIrregularity::NotNarrowed) => prop_assert!(false, "{:?}", result),
            }
        }
    }

    #[test]
    fn cut_short_it_still_reports_only_what_was_observed(
        goals in prop::collection::vec(goals(), 1..4),
        device in devices(),
        seed in any::<u64>(),
        max_trials in 1..40u32,
    ) {
        let config = MlrSearchConfig { max_trials, ..config(goals) };
        let searched = search(&config, device, seed);
        prop_assert!(searched.history.len() <= max_trials as usize);
        for result in &searched.found.goals {
            check_bounds(&searched, result)?;
        }
    }

    #[test]
    fn finds_a_fixed_capacity(
        goal in goals(),
        capacity_pps in 1e5..25e6f64,
        seed in any::<u64>(),
    ) {
        let result = &search(&config(vec![goal.clone()]), Device::of(capacity_pps), seed).found.goals[0];
        let just_holds = capacity_pps / (1.0 - goal.loss_ratio.get());
        // Loss consists of whole frames.
        let slack = 1.0 / goal.initial_trial_duration_s;
        prop_assert!(result.lower.unwrap().rate_pps <= just_holds + slack);
        prop_assert!(result.upper.unwrap().rate_pps > just_holds - slack);
        prop_assert_eq!(result.irregularity, None);
    }
}
