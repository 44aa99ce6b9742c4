// SPDX-License-Identifier: Apache-2.0
//! Best-of-N, worst-of-N, loss distribution and repeated searches.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{drive, invalid, loss_of, rates, small};
use crate::{
    BestWorst, BestWorstConfig, BestWorstFindings, ConfigError, Findings, LossDistribution,
    LossDistributionConfig, LossDistributionFindings, LossRatio, Method, MlrGoal, MlrSearchConfig,
    Outcome, RecordError, Repeat, RepeatConfig, RepeatFindings, SearchEnd, SearchResult,
    SideFindings, Sides, SingleRunConfig, ThroughputSearch,
};

fn of_n(result: &SearchResult) -> &BestWorstFindings {
    match &result.findings {
        Findings::BestWorst(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

fn config(trials: u32, sides: Sides) -> BestWorstConfig {
    BestWorstConfig {
        search: small(),
        trials,
        sides,
    }
}

/// Returns a device that holds up to 17 and loses above 21. Between them, every second trial at a rate loses; the first one holds.
fn uncertain() -> impl FnMut(usize, f64) -> Outcome {
    let mut observed: BTreeMap<u64, u32> = BTreeMap::new();
    move |_, rate| {
        let count = observed.entry(rate.to_bits()).or_default();
        *count += 1;
        let lost = rate > 21.0 || (rate > 17.0 && (*count).is_multiple_of(2));
        Outcome::lost(if lost { 0.5 } else { 0.0 })
    }
}

#[test]
fn the_best_and_the_worst_bracket_what_a_device_does() {
    let mut both = BestWorst::new(config(2, Sides::Both)).unwrap();
    let result = drive(&mut both, 100, uncertain());
    // Best: 10, 14, 18 hold, 22 loses twice; 18 is known, then 20, 21, 21.5 twice. The step 0.5 is below 1, so the search ends.
    // Worst: 10 and 14 a second time, 18 loses at its second trial; 14 is known; 16, 17, 17.5 loses at its second trial.
    let tried = [
        10.0, 14.0, 18.0, 22.0, 22.0, 20.0, 21.0, 21.5, 21.5, 10.0, 14.0, 18.0, 16.0, 16.0, 17.0,
        17.0, 17.5, 17.5,
    ];
    assert_eq!(rates(&result), tried);
    let found = of_n(&result);
    let best = found.best.as_ref().unwrap();
    assert_eq!(best.end, SearchEnd::Converged);
    assert_eq!(best.highest_held_pps, Some(21.0));
    assert_eq!(
        (best.published_pps, best.published_held),
        (Some(21.5), Some(false))
    );
    let worst = found.worst.as_ref().unwrap();
    assert_eq!(worst.highest_held_pps, Some(17.0));
    assert_eq!(
        (worst.published_pps, worst.published_held),
        (Some(17.5), Some(false))
    );
    // The first trial at each rate held up to 21, as for the best side.
    assert_eq!(found.single, found.best);
    let at_18 = found
        .rates
        .iter()
        .find(|tally| tally.rate_pps == 18.0)
        .unwrap();
    assert_eq!((at_18.held, at_18.lost), (1, 1));
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"best-worst-of-n""#), "{json}");
    assert_eq!(serde_json::from_str::<SearchResult>(&json).unwrap(), result);
}

#[test]
fn one_side_alone_finds_the_same_as_beside_the_other() {
    let alone = |sides| {
        let mut search = BestWorst::new(config(2, sides)).unwrap();
        drive(&mut search, 100, uncertain())
    };
    let (both, best, worst) = (alone(Sides::Both), alone(Sides::Best), alone(Sides::Worst));
    assert_eq!(of_n(&best).best, of_n(&both).best);
    assert_eq!(of_n(&best).worst, None);
    assert_eq!((&of_n(&best).single, &of_n(&worst).single), (&None, &None));
    assert_eq!(of_n(&worst).worst, of_n(&both).worst);
    assert!(both.history.len() < best.history.len() + worst.history.len());
}

#[test]
fn the_single_search_beside_both_sides_is_that_of_the_first_trials() {
    // The first trial above 17 loses, the second one holds up to 21.
    let mut observed: BTreeMap<u64, u32> = BTreeMap::new();
    let device = move |_: usize, rate: f64| {
        let count = observed.entry(rate.to_bits()).or_default();
        *count += 1;
        let lost = rate > 21.0 || (rate > 17.0 && *count == 1);
        Outcome::lost(if lost { 0.5 } else { 0.0 })
    };
    let mut both = BestWorst::new(config(2, Sides::Both)).unwrap();
    let result = drive(&mut both, 100, device);
    let found = of_n(&result);
    let highest = |side: &Option<SideFindings>| side.as_ref().unwrap().highest_held_pps;
    assert_eq!(highest(&found.best), Some(21.0));
    assert_eq!(highest(&found.worst), Some(17.0));
    // 10, 14 and 18 are known to the best side, 16, 17 and 17.5 to the worst side: no further trial is required.
    assert_eq!(found.single, found.worst);
    let json = serde_json::to_value(&result.findings).unwrap();
    assert_eq!(json["single"]["highest_held_pps"], 17.0);
    // Findings of a store without the single search.
    let mut older = json;
    older.as_object_mut().unwrap().remove("single");
    let Findings::BestWorst(older) = serde_json::from_value(older).unwrap() else {
        panic!("findings of another method");
    };
    assert_eq!((&older.best, &older.single), (&found.best, &None));
}

#[test]
fn an_invalid_trial_is_not_the_first_one() {
    let mut both = BestWorst::new(config(1, Sides::Both)).unwrap();
    let result = drive(&mut both, 100, |trial, rate| match trial {
        2 => invalid("gap"),
        _ => loss_of(19.0, rate),
    });
    let found = of_n(&result);
    assert!(found.single.is_some());
    assert_eq!(found.single, found.best);
    assert_eq!(found.single, found.worst);
}

#[test]
fn of_n_names_bad_parameters_and_ends_early_with_a_reason() {
    let error = |config| BestWorst::new(config).unwrap_err();
    assert_eq!(
        error(config(0, Sides::Both)),
        ConfigError::Zero { name: "trials" }
    );
    let mut two_ways = config(2, Sides::Both);
    two_ways.search.best_of = 2;
    assert_eq!(error(two_ways), ConfigError::BestOfBesideTrials(2));
    let mut short = config(2, Sides::Both);
    short.search.max_trials = 4;
    let result = drive(&mut BestWorst::new(short).unwrap(), 4, uncertain());
    let found = of_n(&result);
    for side in [&found.best, &found.worst, &found.single] {
        assert_eq!(side.as_ref().unwrap().end, SearchEnd::TrialLimit);
    }
    let mut search = BestWorst::new(config(2, Sides::Best)).unwrap();
    let result = drive(&mut search, 3, |n, _| invalid(&format!("gap {n}")));
    assert!(matches!(
        &of_n(&result).best.as_ref().unwrap().end,
        SearchEnd::InvalidTrials { reasons, .. } if reasons.len() == 3
    ));
}

#[test]
fn a_side_without_a_rate_reports_the_lowest_tried_one() {
    let of = |change: fn(&mut SingleRunConfig)| {
        let mut config = config(2, Sides::Worst);
        change(&mut config.search);
        let mut search = BestWorst::new(config).unwrap();
        let result = drive(&mut search, 100, |_, _| Outcome::lost(0.5));
        of_n(&result).worst.clone().unwrap()
    };
    let in_reach = of(|_| ());
    let lowest_tried_pps = 2.5;
    assert_eq!(
        in_reach.end,
        SearchEnd::NothingHeldInReach { lowest_tried_pps }
    );
    assert_eq!(
        (in_reach.highest_held_pps, in_reach.published_pps),
        (None, Some(2.5))
    );
    // Rates 10, 6 and 4: the step falls below the resolution and the range ends.
    let at_the_end = of(|search| {
        search.resolution_pps = 4.0;
        search.min_rate_pps = 4.0;
    });
    assert_eq!(at_the_end.end, SearchEnd::NothingHeldAtMinRate);
    assert_eq!(at_the_end.published_pps, Some(4.0));
}

#[test]
fn a_side_counts_the_rates_that_were_lost_under_its_result() {
    let mut config = config(2, Sides::Best);
    config.search.start_step_pps = 20.0;
    config.search.min_rate_pps = 2.0;
    let mut search = BestWorst::new(config).unwrap();
    // 10 is lost, but 2 and then 12 hold. Everything above is lost again.
    let result = drive(&mut search, 100, |_, rate| {
        Outcome::lost(if rate == 2.0 || rate == 12.0 {
            0.0
        } else {
            0.5
        })
    });
    let tried = [
        10.0, 10.0, 2.0, 12.0, 17.0, 17.0, 14.5, 14.5, 13.25, 13.25, 12.625, 12.625,
    ];
    assert_eq!(rates(&result), tried);
    let best = of_n(&result).best.as_ref().unwrap();
    assert_eq!(best.highest_held_pps, Some(12.0));
    assert_eq!(best.lost_at_or_under_highest_held, 1);
}

/// Reference implementation: the search as one loop that calls the device. Each rate is judged once.
fn reference(
    config: &BestWorstConfig,
    holds: &mut dyn FnMut(f64) -> bool,
) -> (Option<f64>, Option<f64>) {
    let search = &config.search;
    let clamp = |rate: f64| rate.clamp(search.min_rate_pps, search.max_rate_pps);
    let (mut rate, mut step, mut highest) =
        (search.start_rate_pps, search.start_step_pps, None::<f64>);
    let mut held = |rate: f64, highest: &mut Option<f64>| {
        let held = holds(rate);
        if held {
            *highest = Some(highest.map_or(rate, |highest| highest.max(rate)));
        }
        held
    };
    while held(rate, &mut highest) {
        if rate >= search.max_rate_pps {
            return (highest, None);
        }
        rate = clamp(rate + step);
    }
    if rate <= search.min_rate_pps && highest.is_none() {
        return (highest, None);
    }
    rate = clamp(rate - step);
    loop {
        let is_held = held(rate, &mut highest);
        if step < search.resolution_pps {
            return (highest, Some(rate));
        }
        step /= 2.0;
        if !is_held && rate <= search.min_rate_pps && highest.is_none() {
            return (highest, None);
        }
        rate = clamp(if is_held { rate + step } else { rate - step });
    }
}

prop_compose! {
    fn searches()(
        max in 10.0..1e6f64,
        floor in 0.001..0.2f64,
        start in 0.0..=1.0f64,
        step in 0.01..0.6f64,
        resolution in 0.01..=1.0f64,
    ) -> SingleRunConfig {
        let min = max * floor;
        SingleRunConfig {
            start_rate_pps: (min + start * (max - min)).min(max),
            start_step_pps: max * step,
            resolution_pps: max * step * resolution,
            min_rate_pps: min,
            max_rate_pps: max,
            max_invalid_repeats: 0,
            max_trials: 100_000,
            ..small()
        }
    }
}

proptest! {
    #[test]
    fn both_sides_follow_the_specification_without_superfluous_trials(
        search in searches(),
        trials in 1..6u32,
        capacity in 0.0..1.2f64,
        spread in 0.0..0.5f64,
        salt in any::<u64>(),
    ) {
        // Whether the n-th trial at a rate holds depends only on the rate and on n.
        let top = search.max_rate_pps;
        let holds = |rate: f64, n: u32| {
            let mixed = (rate.to_bits() ^ salt).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(n * 7);
            let dice = (mixed.wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 40) as f64 / f64::from(1 << 24);
            rate <= top * (capacity + spread * (dice - 0.5))
        };
        let config = BestWorstConfig { search, trials, sides: Sides::Both };
        let mut made: BTreeMap<u64, u32> = BTreeMap::new();
        let bound = config.trial_bound() as usize;
        let mut method = BestWorst::new(config.clone()).unwrap();
        let result = drive(&mut method, bound, |_, rate| {
            let n = made.entry(rate.to_bits()).or_default();
            *n += 1;
            Outcome::lost(if holds(rate, *n - 1) { 0.0 } else { 0.5 })
        });
        for count in made.values() {
            prop_assert!(*count <= trials, "{} trials at one rate", count);
        }
        let found = of_n(&result);
        let mut best = |rate: f64| (0..trials).any(|n| holds(rate, n));
        let mut worst = |rate: f64| (0..trials).all(|n| holds(rate, n));
        let mut single = |rate: f64| holds(rate, 0);
        let sides: [(&mut dyn FnMut(f64) -> bool, _); 3] = [
            (&mut best, &found.best),
            (&mut worst, &found.worst),
            (&mut single, &found.single),
        ];
        for (holds, side) in sides {
            let side = side.as_ref().unwrap();
            let expected = reference(&config, holds);
            prop_assert_eq!((side.highest_held_pps, side.published_pps), expected);
        }
        if trials == 1 {
            prop_assert_eq!(&found.best, &found.worst);
            prop_assert_eq!(&found.best, &found.single);
        }
    }
}

fn distribution(result: &SearchResult) -> &LossDistributionFindings {
    match &result.findings {
        Findings::LossDistribution(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

#[test]
fn losses_are_taken_in_turns_and_reported_by_percentile() {
    let config = LossDistributionConfig::between((30.0, 10.0), 3, 10, 1.0, 1).unwrap();
    assert_eq!(config.rates_pps, [10.0, 20.0, 30.0]);
    let mut method = LossDistribution::new(config.clone()).unwrap();
    // Loss ratios of a rate: 0.0 to 0.9, in descending order. The very first trial is invalid, and so is its repeat.
    let result = drive(&mut method, 100, |trial, rate| match trial {
        0 | 1 => invalid("gap"),
        n if rate == 10.0 => Outcome::lost(n as f64 / 1000.0),
        n => Outcome::lost(0.9 - 0.1 * f64::from(u32::try_from((n - 2) / 3).unwrap())),
    });
    assert_eq!(
        rates(&result)[..7],
        [10.0, 10.0, 20.0, 30.0, 10.0, 20.0, 30.0]
    );
    assert_eq!(result.history.len(), 31);
    let found = distribution(&result);
    assert_eq!(
        (found.rates[0].loss_ratios.len(), found.rates[0].invalid),
        (9, 1)
    );
    let twenty = &found.rates[1];
    assert!(twenty.loss_ratios.is_sorted());
    let near = |part: f64, loss: f64| (twenty.at(part).unwrap() - loss).abs() < 1e-9;
    assert!(near(0.0, 0.0) && near(0.1, 0.0) && near(0.5, 0.4) && near(0.9, 0.8) && near(1.0, 0.9));
    // Ten trials cannot distinguish the 95th percentile from the worst one, nine not the 90th.
    assert_eq!((twenty.at(0.95), twenty.at(0.91)), (None, None));
    assert_eq!(found.rates[0].at(0.9), None);
    assert!(found.rates[0].at(1.0).is_some());
    assert_eq!(
        method.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"loss-distribution""#), "{json}");
}

#[test]
fn a_distribution_names_bad_parameters() {
    let between =
        |ends, rates, trials| LossDistributionConfig::between(ends, rates, trials, 1.0, 0);
    assert_eq!(between((1.0, 2.0), 0, 5), Err(ConfigError::NoRates));
    assert_eq!(
        between((1.0, 2.0), 3, 0),
        Err(ConfigError::Zero { name: "trials" })
    );
    assert!(between((0.0, 2.0), 3, 1).is_err());
    assert!(between((1.0, f64::NAN), 3, 1).is_err());
    assert_eq!(between((2.0, 2.0), 3, 1).unwrap().rates_pps, [2.0]);
    assert_eq!(between((1.0, 2.0), 1, 1).unwrap().rates_pps, [1.0]);
}

fn repeated(result: &SearchResult) -> &RepeatFindings {
    match &result.findings {
        Findings::Repeat(findings) => findings,
        other => panic!("findings of another method: {other:?}"),
    }
}

#[test]
fn repeated_single_runs_have_a_mean_and_a_deviation() {
    let config = RepeatConfig {
        search: ThroughputSearch::SingleRun(small()),
        runs: 3,
        confidence: 0.95,
    };
    let mut method = Repeat::new(config).unwrap();
    assert_eq!(
        method.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    // The device slows down after the first run, and cannot be measured in the third.
    let result = drive(&mut method, 100, |trial, rate| match trial {
        n if n < 8 => loss_of(19.0, rate),
        n if n < 8 + 7 => loss_of(15.0, rate),
        _ => invalid("gap"),
    });
    let found = repeated(&result);
    assert_eq!(found.runs.len(), 3);
    let results: Vec<_> = found.runs.iter().map(|run| run.results_pps[0]).collect();
    assert_eq!(results[2], None);
    let (first, second) = (results[0].unwrap(), results[1].unwrap());
    assert!((18.0..=19.0).contains(&first) && (14.0..=15.0).contains(&second));
    let statistics = found.statistics[0].unwrap();
    assert_eq!(
        (statistics.count, statistics.mean),
        (2, (first + second) / 2.0)
    );
    let deviation = (first - second) / 2f64.sqrt();
    assert!((statistics.standard_deviation.unwrap() - deviation).abs() < 1e-9);
    let trials: u32 = found.runs.iter().map(|run| run.trials).sum();
    assert_eq!(trials as usize, result.history.len());
    assert_eq!(
        found.runs[0].duration_s,
        2.0 * f64::from(found.runs[0].trials)
    );
    assert_eq!(
        method.record(Outcome::lost(0.0)),
        Err(RecordError::NothingPending)
    );
    let json = serde_json::to_string(&result).unwrap();
    assert!(json.contains(r#""method":"repeat""#), "{json}");
    let back: SearchResult = serde_json::from_str(&json).unwrap();
    assert_eq!(repeated(&back).runs, found.runs);
}

#[test]
fn other_searches_are_repeated_with_a_result_for_each_goal_and_side() {
    let of = |search| {
        let config = RepeatConfig {
            search,
            runs: 4,
            confidence: 0.99,
        };
        let mut method = Repeat::new(config).unwrap();
        let result = drive(&mut method, 1000, |_, rate| loss_of(19.0, rate));
        repeated(&result).clone()
    };
    let found = of(ThroughputSearch::BestWorstOfN(config(3, Sides::Both)));
    let goals = vec![
        MlrGoal::fdio(LossRatio::ZERO),
        MlrGoal::fdio(LossRatio::new(0.005).unwrap()),
    ];
    let mlr = MlrSearchConfig {
        goals,
        min_rate_pps: 0.1,
        max_rate_pps: 100.0,
        max_invalid_repeats: 0,
        max_trials: 1000,
    };
    for found in [found, of(ThroughputSearch::MlrSearch(mlr))] {
        assert_eq!(found.statistics.len(), 2);
        for statistics in &found.statistics {
            let statistics = statistics.unwrap();
            assert_eq!(
                (statistics.count, statistics.standard_deviation),
                (4, Some(0.0))
            );
        }
    }
}

#[test]
fn repeating_names_bad_parameters() {
    let error = |change: fn(&mut RepeatConfig)| {
        let mut config = RepeatConfig {
            search: ThroughputSearch::SingleRun(small()),
            runs: 2,
            confidence: 0.95,
        };
        change(&mut config);
        Repeat::new(config).unwrap_err()
    };
    assert_eq!(error(|c| c.runs = 0), ConfigError::Zero { name: "runs" });
    assert_eq!(error(|c| c.confidence = 1.0), ConfigError::Confidence(1.0));
    assert_eq!(error(|c| c.confidence = 0.0), ConfigError::Confidence(0.0));
    assert_eq!(
        error(|c| c.search = ThroughputSearch::SingleRun(SingleRunConfig {
            best_of: 0,
            ..small()
        })),
        ConfigError::Zero { name: "best_of" }
    );
}
