// SPDX-License-Identifier: Apache-2.0
//! Medians, and their confidence limits by order statistics. They hold for every distribution of independent values: no variance, symmetry or
//! common shape is assumed, and equal values are allowed (H. A. David and H. N. Nagaraja, *Order Statistics*, section 7.1).

/// Returns the probability of at least `successes` successes in `trials` trials of probability one half.
///
/// It is the error rate of the claim that more than half of all values have a property, if `successes` of `trials` values have it (sign
/// test, one-sided).
#[must_use]
pub fn sign_test(trials: usize, successes: usize) -> f64 {
    if successes == 0 {
        return 1.0;
    }
    // Logarithms: two to the power of -1100 is no number that a float represents.
    let ln_of_all = trials as f64 * std::f64::consts::LN_2;
    let mut ln_ways = 0.0_f64;
    let mut sum = 0.0;
    // From all successes downwards, so that small terms are added first.
    for failures in 0..=trials.saturating_sub(successes) {
        if failures > 0 {
            let ways = trials.saturating_sub(failures).saturating_add(1);
            ln_ways += (ways as f64).ln() - (failures as f64).ln();
        }
        sum += (ln_ways - ln_of_all).exp();
    }
    if successes > trials {
        0.0
    } else {
        sum.min(1.0)
    }
}

/// Returns the probability that the value of a rank, from 1, is above the median: that fewer values than the rank are below it.
fn below_rank(values: usize, rank: usize) -> f64 {
    sign_test(values, values.saturating_add(1).saturating_sub(rank))
}

/// Returns the largest rank, from 1, whose value in ascending order is above the median with a probability of at most `error_rate`. By
/// symmetry the value of that rank from above is below the median with that probability. `None` if there are too few values.
#[must_use]
pub fn median_rank(values: usize, error_rate: f64) -> Option<usize> {
    let error = |rank: usize| below_rank(values, rank);
    (1..=values.div_ceil(2))
        .take_while(|rank| error(*rank) <= error_rate)
        .last()
}

/// Returns the two values in the middle of the ascending order, which are the same if the number of values is odd. `None` without values.
#[must_use]
pub fn middle_values(values: &[f64]) -> Option<[f64; 2]> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let lower = sorted.get(sorted.len().checked_sub(1)? / 2)?;
    let upper = sorted.get(sorted.len() / 2)?;
    Some([*lower, *upper])
}

/// Returns the median: of an even number of values, the mean of the two in the middle. `None` without values.
#[must_use]
pub fn median(values: &[f64]) -> Option<f64> {
    middle_values(values).map(|[lower, upper]| f64::midpoint(lower, upper))
}

/// Ranks of the values that bound two medians at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoRanks {
    /// Rank in the first sample, from 1.
    pub first: usize,
    /// Rank in the second sample, from 1.
    pub second: usize,
}

/// Returns ranks of two independent samples for which at most `error_rate` is the probability that the value of the rank from below is above
/// the median of the first sample, or that of the rank from above is below the median of the second one. `None` if there are too few
/// values.
///
/// The choice depends on the sizes of the samples only, never on the values.
#[must_use]
pub fn two_ranks(first: usize, second: usize, error_rate: f64) -> Option<TwoRanks> {
    let mut best: Option<(f64, TwoRanks)> = None;
    for rank in 1..=median_rank(first, error_rate)? {
        let own = below_rank(first, rank);
        // Independent samples: both limits hold with the product of their probabilities.
        let left = 1.0 - (1.0 - error_rate) / (1.0 - own);
        let Some(other) = median_rank(second, left) else {
            break;
        };
        let share = (rank as f64 / first as f64).min(other as f64 / second as f64);
        if best.is_none_or(|(known, _)| share > known) {
            let ranks = TwoRanks {
                first: rank,
                second: other,
            };
            best = Some((share, ranks));
        }
    }
    best.map(|(_, ranks)| ranks)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_sign_test_is_that_of_the_tables() {
        let known = [
            (5, 5, 1.0 / 32.0),
            (4, 4, 1.0 / 16.0),
            (8, 7, 9.0 / 256.0),
            (10, 9, 11.0 / 1024.0),
            (3, 0, 1.0),
            (3, 4, 0.0),
            (0, 0, 1.0),
        ];
        for (trials, successes, error) in known {
            assert!((sign_test(trials, successes) - error).abs() < 1e-12);
        }
        // About 1.64 standard deviations above the mean, with the correction for whole numbers.
        assert!((sign_test(10_000, 5_083) - 0.0495).abs() < 0.001);
        assert!(sign_test(5_000, 5_000) < 1e-300);
    }

    #[test]
    fn limits_of_medians_have_the_published_ranks() {
        // Two-sided 95 %: 2.5 % on each side (David and Nagaraja's table: 6 values at least).
        let at_2_5 = [(5, None), (6, Some(1)), (9, Some(2)), (20, Some(6))];
        for (values, rank) in at_2_5 {
            assert_eq!(median_rank(values, 0.025), rank, "{values}");
        }
        assert_eq!(median_rank(4, 0.05), None);
        assert_eq!(median_rank(5, 0.05), Some(1));
        assert_eq!(median_rank(0, 0.05), None);
    }

    #[test]
    fn two_medians_need_more_values_than_one() {
        assert_eq!(two_ranks(5, 5, 0.05), None);
        let ranks = |first, second| Some(TwoRanks { first, second });
        assert_eq!(two_ranks(5, 6, 0.05), ranks(1, 1));
        assert_eq!(two_ranks(6, 6, 0.05), ranks(1, 1));
        assert_eq!(two_ranks(6, 6, 0.025), None);
        assert_eq!(two_ranks(6, 7, 0.025), ranks(1, 1));
        assert_eq!(two_ranks(0, 9, 0.05), None);
        // Of equally near ranks, the first one is the lowest.
        assert_eq!(two_ranks(8, 8, 0.05), ranks(1, 2));
        assert_eq!(two_ranks(11, 6, 0.05), ranks(2, 1));
    }

    proptest! {
        #[test]
        fn both_limits_together_keep_the_error_rate(first in 1usize..80, second in 1usize..80, error_rate in 0.001f64..0.3) {
            if let Some(ranks) = two_ranks(first, second, error_rate) {
                let own = sign_test(first, first + 1 - ranks.first);
                let other = sign_test(second, second + 1 - ranks.second);
                prop_assert!(1.0 - (1.0 - own) * (1.0 - other) <= error_rate + 1e-12);
            }
        }

        #[test]
        fn no_other_ranks_within_the_error_rate_are_nearer_to_both_medians(first in 1usize..40, second in 1usize..40, error_rate in 0.01f64..0.3) {
            let nearness = |ranks: TwoRanks| {
                (ranks.first as f64 / first as f64).min(ranks.second as f64 / second as f64)
            };
            let kept = |values: usize, rank: usize| 1.0 - sign_test(values, values + 1 - rank);
            let pairs = (1..=first).flat_map(|own| (1..=second).map(move |other| (own, other)));
            let allowed = pairs.filter(|(own, other)| 1.0 - kept(first, *own) * kept(second, *other) <= error_rate - 1e-12);
            let best = allowed
                .map(|(first, second)| nearness(TwoRanks { first, second }))
                .max_by(f64::total_cmp);
            let chosen = two_ranks(first, second, error_rate).map(nearness);
            prop_assert!(chosen.unwrap_or_default() >= best.unwrap_or_default() - 1e-9, "{chosen:?} instead of {best:?}");
        }

        #[test]
        fn more_successes_are_less_likely(trials in 0usize..400, successes in 0usize..400) {
            prop_assert!(sign_test(trials, successes) >= sign_test(trials, successes + 1));
        }
    }
}
