// SPDX-License-Identifier: Apache-2.0
//! Verdicts by hand, and their error rates on simulated devices.

use proptest::prelude::*;
use quietwire_base::random::fraction;
use quietwire_search::{
    Findings, LossRatio, Method as _, Outcome, SingleRun, SingleRunConfig, Step,
};

use super::*;

const AT_LEAST_98: Rule = Rule {
    direction: Direction::AtLeast,
    bound: 0.98,
    error_rate: 0.05,
};

fn exact(values: &[f64]) -> Vec<Sample> {
    let numbered = (0..).zip(values);
    numbered
        .map(|(round, value)| Sample::exact(round, 0, *value))
        .collect()
}

fn verdict_of(values: &[f64]) -> Verdict {
    judge(&AT_LEAST_98, &exact(values)).verdict
}

#[test]
fn five_values_alike_decide_and_four_do_not() {
    assert_eq!(verdict_of(&[0.99; 5]), Verdict::Pass);
    assert_eq!(verdict_of(&[0.98; 5]), Verdict::Pass);
    assert_eq!(verdict_of(&[0.97; 5]), Verdict::Fail);
    assert_eq!(
        verdict_of(&[0.99, 0.99, 0.99, 0.99, 0.97]),
        Verdict::Unknown
    );
    let few = judge(&AT_LEAST_98, &exact(&[0.99; 4]));
    assert_eq!(few.verdict, Verdict::Unknown);
    assert!(few.reason.unwrap().contains("requires at least 5"));
    // Seven of eight: 9 of 256 outcomes.
    assert_eq!(
        verdict_of(&[1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0, 1.0]),
        Verdict::Pass
    );
}

#[test]
fn the_reason_counts_the_values() {
    let mixed = judge(&AT_LEAST_98, &exact(&[0.99, 0.99, 0.97, 0.99, 0.97]));
    assert_eq!((mixed.meeting, mixed.violating), (3, 2));
    assert_eq!(mixed.median, Some(0.99));
    assert_eq!(mixed.limits, [Some(0.97), Some(0.99)]);
    assert_eq!(
        mixed.reason.unwrap(),
        "3 of 5 values meet the bound, 2 do not: 5 alike are required (increase rounds)"
    );
}

#[test]
fn limits_count_if_they_decide_and_missing_values_never() {
    let at_least = |rate| Sample::within(0, 0, Some(rate), None);
    let below = |rate| Sample::within(0, 0, Some(0.0), Some(rate));
    let of = |sample: Sample| judge(&AT_LEAST_98, &vec![sample; 5]);
    assert_eq!(of(at_least(1.0)).verdict, Verdict::Pass);
    assert_eq!(of(below(0.5)).verdict, Verdict::Fail);
    let open = of(at_least(0.9));
    assert_eq!(open.verdict, Verdict::Unknown);
    assert!(open.reason.unwrap().contains("only limits are known of 5"));
    assert_eq!(of(below(1.5)).verdict, Verdict::Unknown);

    let mut samples = exact(&[1.0; 5]);
    samples[2] = Sample::missing(2, 0, "the tester failed");
    let judgement = judge(&AT_LEAST_98, &samples);
    assert_eq!(judgement.verdict, Verdict::Unknown);
    assert_eq!(
        judgement.reason.unwrap(),
        "1 of 5 values is missing: the tester failed"
    );
}

#[test]
fn ratios_are_of_the_same_round_and_keep_limits() {
    let own = [
        Sample::exact(0, 0, 9.0),
        Sample::within(1, 0, Some(9.0), None),
        Sample::exact(2, 0, 9.0),
        Sample::missing(3, 0, "why"),
    ];
    let other = [
        Sample::within(2, 0, Some(10.0), None),
        Sample::exact(1, 0, 10.0),
        Sample::exact(0, 0, 10.0),
        Sample::exact(3, 0, 10.0),
    ];
    let ratios = |own: &[Sample], other: &[Sample]| ratios(Direction::AtLeast, own, other);
    let found = ratios(&own, &other);
    assert_eq!(found[0].value(), Some(0.9));
    assert_eq!((found[1].low, found[1].high), (Some(0.9), None));
    assert_eq!((found[2].low, found[2].high), (None, Some(0.9)));
    assert_eq!(found[3].missing.as_deref(), Some("why"));
    assert!(ratios(&own[..1], &[])[0].missing.is_some());
    // A ratio to nothing is no number.
    let nothing = ratios(&own[..1], &[Sample::exact(0, 0, 0.0)]);
    assert_eq!((nothing[0].low, nothing[0].high), (None, None));
}

/// Twice the reference at most.
const AT_MOST_TWICE: Rule = Rule {
    direction: Direction::AtMost,
    bound: 2.0,
    error_rate: 0.05,
};

#[test]
fn beside_a_reference_of_zero_only_zero_meets_an_upper_bound() {
    let zeros = exact(&[0.0; 5]);
    let of = |values: &[f64]| judge_ratio(&AT_MOST_TWICE, &exact(values), &zeros);
    let equal = of(&[0.0; 5]);
    assert_eq!((equal.verdict, equal.meeting), (Verdict::Pass, 5));
    assert_eq!((equal.median, equal.infinite), (Some(0.0), 0));
    let above = of(&[1e-9; 5]);
    assert_eq!((above.verdict, above.violating), (Verdict::Fail, 5));
    assert_eq!((above.median, above.infinite), (None, 5));
    assert_eq!(above.limits, [None, None]);
    let mixed = of(&[0.0, 0.0, 0.0, 0.1, 0.1]);
    assert_eq!((mixed.meeting, mixed.violating), (3, 2));
    assert_eq!(mixed.verdict, Verdict::Unknown);
    assert_eq!(mixed.median, Some(0.0));
    // A reference of which only an upper limit is known may be above zero.
    let open = vec![Sample::within(0, 0, Some(0.0), Some(1.0)); 5];
    let own = vec![Sample::exact(0, 0, 0.1); 5];
    let judgement = judge_ratio(&AT_MOST_TWICE, &own, &open);
    assert_eq!((judgement.meeting, judgement.violating), (0, 0));
    // A value of 0 meets every upper bound, whatever the reference is.
    let zero = vec![Sample::exact(0, 0, 0.0); 5];
    for other in [&open, &vec![Sample::exact(0, 0, 0.2); 5]] {
        assert_eq!(
            judge_ratio(&AT_MOST_TWICE, &zero, other).verdict,
            Verdict::Pass
        );
    }
    // A ratio of rates to a rate of zero decides nothing.
    let rates = judge_ratio(&AT_LEAST_98, &exact(&[1.0; 5]), &zeros);
    assert_eq!((rates.verdict, rates.infinite), (Verdict::Unknown, 0));
}

#[test]
fn a_baseline_of_zero_is_met_by_zero_only() {
    let baseline = exact(&[0.0; 6]);
    let of = |value: f64| judge_against_baseline(&AT_MOST_TWICE, &exact(&[value; 6]), &baseline);
    let equal = of(0.0);
    assert_eq!((equal.verdict, equal.infinite), (Verdict::Pass, 0));
    assert_eq!(equal.limits, [Some(0.0), Some(0.0)]);
    let above = of(0.01);
    assert_eq!((above.verdict, above.infinite), (Verdict::Fail, 1));
    assert_eq!((above.median, above.limits), (None, [None, None]));
    // Most rounds of the baseline lost frames, but not enough of them for a limit above zero.
    let mostly = exact(&[0.0, 0.1, 0.1, 0.1, 0.1, 0.1]);
    let judgement = judge_against_baseline(&AT_MOST_TWICE, &exact(&[0.3; 6]), &mostly);
    assert_eq!(judgement.limits, [Some(0.3 / 0.1), None]);
    assert_eq!(judgement.verdict, Verdict::Fail);
    let rates = judge_against_baseline(&AT_LEAST_98, &exact(&[1.0; 6]), &baseline);
    assert_eq!((rates.verdict, rates.infinite), (Verdict::Unknown, 0));
}

#[test]
fn a_doubt_removes_the_verdict_that_it_explains_and_no_other() {
    let pass = judge(&AT_LEAST_98, &exact(&[1.0; 5]));
    let doubted = pass.clone().without(Verdict::Pass, "starved");
    assert_eq!(doubted.verdict, Verdict::Unknown);
    assert_eq!(doubted.reason.as_deref(), Some("starved"));
    assert_eq!(pass.clone().without(Verdict::Fail, "starved"), pass);
}

proptest! {
    #[test]
    fn a_stricter_bound_never_turns_fail_into_pass(
        values in prop::collection::vec(0.5f64..1.5, 0..30),
        bound in 0.5f64..1.5,
        stricter in 0.0f64..0.5,
    ) {
        let of = |bound| judge(&Rule { bound, ..AT_LEAST_98 }, &exact(&values)).verdict;
        prop_assert!(!(of(bound) == Verdict::Fail && of(bound + stricter) == Verdict::Pass));
        prop_assert!(!(of(bound + stricter) == Verdict::Pass && of(bound) != Verdict::Pass));
    }

    #[test]
    fn both_directions_agree(values in prop::collection::vec(0.5f64..1.5, 0..30), bound in 0.5f64..1.5) {
        let rule = |direction| Rule { direction, bound, error_rate: 0.05 };
        let least = judge(&rule(Direction::AtLeast), &exact(&values)).verdict;
        let most = judge(&rule(Direction::AtMost), &exact(&values)).verdict;
        let is_equal_to_bound = values.contains(&bound);
        prop_assert!(is_equal_to_bound || (least == Verdict::Pass) == (most == Verdict::Fail));
    }
}

/// Spread of a simulated device's capacity from round to round. Each has the median 1.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Uniform, ±3 %.
    Even,
    /// One round in four collapses to a tenth.
    Collapsing,
    /// Half of the rounds are slightly above the median, the others far below.
    TwoPoints,
    /// Heavy tails on both sides.
    HeavyTailed,
}

const NOISES: [Noise; 4] = [
    Noise::Even,
    Noise::Collapsing,
    Noise::TwoPoints,
    Noise::HeavyTailed,
];

impl Noise {
    /// Returns a factor by a probability.
    fn factor(self, quantile: f64) -> f64 {
        match self {
            Self::Even => 0.97 + 0.06 * quantile,
            Self::Collapsing if quantile < 0.25 => 0.1,
            Self::Collapsing => 0.99 + 0.02 * (quantile - 0.25) * 2.0,
            Self::TwoPoints if quantile < 0.5 => 0.2 + 0.2 * quantile,
            Self::TwoPoints => 1.0 + 1e-3 * (quantile - 0.5),
            Self::HeavyTailed => (0.02 * (std::f64::consts::PI * (quantile - 0.5)).tan())
                .clamp(-3.0, 3.0)
                .exp(),
        }
    }
}

/// Returns the highest rate without loss that a search finds on a simulated device: its capacity differs in each round, and a little in
/// each trial.
fn found_rate(noise: Noise, seed: u64, round: u64) -> f64 {
    let capacity = 5e6 * noise.factor(fraction(seed, round * 1000));
    let mut search = SingleRun::new(SingleRunConfig {
        start_rate_pps: 1e6,
        start_step_pps: 2e6,
        resolution_pps: 2e4,
        loss_tolerance: LossRatio::ZERO,
        trial_duration_s: 1.0,
        min_rate_pps: 2e4,
        max_rate_pps: 200e6,
        best_of: 2,
        max_invalid_repeats: 3,
        max_trials: 300,
    })
    .unwrap();
    let mut trial = 0;
    loop {
        match search.step() {
            Step::Run(request) => {
                trial += 1;
                let wobble = 0.995 + 0.01 * fraction(seed, round * 1000 + trial);
                let loss_ratio = (1.0 - capacity * wobble / request.rate_pps).max(0.0);
                search.record(Outcome::lost(loss_ratio)).unwrap();
            }
            Step::Done(result) => {
                let Findings::SingleRun(found) = result.findings else {
                    panic!("findings of another method");
                };
                return found.highest_held_pps.unwrap_or(0.0);
            }
        }
    }
}

/// Repeats of each simulated verdict.
const REPEATS: u64 = 1_000;

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Returns the share of false verdicts of 1,000 simulated studies with this number of rounds.
fn false_ratio(is_false: impl Fn(u64) -> bool) -> f64 {
    (0..REPEATS).filter(|study| is_false(*study)).count() as f64 / REPEATS as f64
}

#[test]
fn verdicts_on_simulated_devices_are_false_less_often_than_stated() {
    for noise in NOISES {
        // The true median of the found rate: the bound at which a false verdict is most likely.
        let truth = median((0..8_001).map(|n| found_rate(noise, 99, n)).collect());
        for rounds in [5u64, 8, 11] {
            let study = |number: u64, bound: f64| {
                let rates = (0..rounds).map(|round| found_rate(noise, 7, number * rounds + round));
                let samples = exact(&rates.collect::<Vec<_>>());
                judge(
                    &Rule {
                        bound,
                        ..AT_LEAST_98
                    },
                    &samples,
                )
                .verdict
            };
            let wrong = [
                // The bound is met by half of all rounds: a fail is false.
                false_ratio(|number| study(number, truth) == Verdict::Fail),
                // It is met by less than half of them: a pass is false.
                false_ratio(|number| study(number, truth * 1.0001) == Verdict::Pass),
            ];
            assert!(
                wrong.iter().all(|ratio| *ratio <= AT_LEAST_98.error_rate),
                "{noise:?}, {rounds} rounds: {wrong:?}"
            );
        }
    }
}

#[test]
fn ratios_on_simulated_devices_are_judged_falsely_less_often_than_stated() {
    for noise in NOISES {
        // Both cases of a round share what else the machine does.
        let pair = |seed: u64, round: u64| {
            let machine = 0.7 + 0.3 * fraction(seed + 5, round);
            let quiet = machine * found_rate(Noise::Even, seed, round);
            let noisy = machine * found_rate(noise, seed + 1, round);
            [noisy, quiet]
        };
        let all = (0..8_001).map(|round| pair(99, round));
        let truth = median(all.map(|[noisy, quiet]| noisy / quiet).collect());
        let rounds = 5;
        let study = |number: u64, bound: f64| {
            let of = |at: usize| {
                let values = (0..rounds).map(|round| pair(7, number * rounds + round)[at]);
                exact(&values.collect::<Vec<_>>())
            };
            judge_ratio(
                &Rule {
                    bound,
                    ..AT_LEAST_98
                },
                &of(0),
                &of(1),
            )
            .verdict
        };
        let wrong = [
            false_ratio(|number| study(number, truth) == Verdict::Fail),
            false_ratio(|number| study(number, truth * 1.0001) == Verdict::Pass),
        ];
        assert!(
            wrong.iter().all(|ratio| *ratio <= AT_LEAST_98.error_rate),
            "{noise:?}: {wrong:?}"
        );
    }
}

#[test]
fn baselines_of_simulated_devices_are_judged_falsely_less_often_than_stated() {
    for noise in NOISES {
        for other in NOISES {
            let truth = {
                let of =
                    |noise, seed| median((0..4_001).map(|n| found_rate(noise, seed, n)).collect());
                of(noise, 99) / of(other, 98)
            };
            let study = |number: u64, bound: f64| {
                let of = |noise, seed, rounds: u64| {
                    let rates = (0..rounds).map(|n| found_rate(noise, seed, number * rounds + n));
                    exact(&rates.collect::<Vec<_>>())
                };
                let rule = Rule {
                    bound,
                    ..AT_LEAST_98
                };
                judge_against_baseline(&rule, &of(noise, 7, 6), &of(other, 8, 7)).verdict
            };
            let wrong = [
                false_ratio(|number| study(number, truth) == Verdict::Fail),
                false_ratio(|number| study(number, truth * 1.0001) == Verdict::Pass),
            ];
            assert!(
                wrong.iter().all(|ratio| *ratio <= AT_LEAST_98.error_rate),
                "{noise:?} against {other:?}: {wrong:?}"
            );
        }
    }
}

#[test]
fn clear_differences_are_found() {
    let study = |number: u64, bound: f64| {
        let rates = (0..5).map(|round| found_rate(Noise::Even, 3, number * 5 + round));
        let samples = exact(&rates.collect::<Vec<_>>());
        judge(
            &Rule {
                bound,
                ..AT_LEAST_98
            },
            &samples,
        )
        .verdict
    };
    assert!((0..200).all(|number| study(number, 4.6e6) == Verdict::Pass));
    assert!((0..200).all(|number| study(number, 5.4e6) == Verdict::Fail));
}

#[test]
fn too_few_values_for_a_baseline_are_reported_with_the_number_required() {
    let few = judge_against_baseline(&AT_LEAST_98, &exact(&[1.0; 3]), &exact(&[1.0; 3]));
    assert_eq!(few.verdict, Verdict::Unknown);
    assert!(few.reason.unwrap().contains("6 of each suffice"));
    let enough = judge_against_baseline(&AT_LEAST_98, &exact(&[1.0; 6]), &exact(&[1.0; 6]));
    assert_eq!(enough.verdict, Verdict::Pass);
    assert_eq!(enough.limits, [Some(1.0), Some(1.0)]);
}
