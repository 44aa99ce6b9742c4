// SPDX-License-Identifier: Apache-2.0
//! Points at which a series changes: Pettitt's test (Applied Statistics 28, 1979, pages 126 to 135), with the distribution of its statistic
//! by permutations instead of the asymptotic one, and binary segmentation.
//!
//! The statistic of a split after `k` values is the number of pairs across it that increase, minus those that decrease. It is computed from
//! ranks, so it makes no assumption about the distribution of the values. Without a change all orders of the values are equally likely.
//! Therefore the probability of a false first change is at most the error rate. A part is tested only if the whole has a change. At the end
//! each change is tested again between its neighbours, because a split of a series with several changes may be between them.

use quietwire_base::random::Random;

/// Number of permutations. The smallest probability that they show is one in 2,000.
const PERMUTATIONS: usize = 1_999;

/// Seed of the permutations: the same values have the same changes each time.
const SEED: u64 = 0x7472_656e_6400;

/// A change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ChangePoint {
    /// Index of the first value after the change.
    pub(super) first_after: usize,
    /// Probability of a statistic at least this large without a change.
    pub(super) p_value: f64,
}

/// Returns the changes of a series, in its order.
pub(super) fn change_points(values: &[f64], error_rate: f64) -> Vec<ChangePoint> {
    let mut found = Vec::new();
    let mut open = vec![(0, values.len())];
    // Each change divides a part into two smaller ones, so this ends.
    while let Some((from, to)) = open.pop() {
        let Some((split, p_value)) = values.get(from..to).and_then(test) else {
            continue;
        };
        if p_value <= error_rate {
            let first_after = from.saturating_add(split);
            found.push(ChangePoint {
                first_after,
                p_value,
            });
            open.push((from, first_after));
            open.push((first_after, to));
        }
    }
    found.sort_by_key(|change| change.first_after);
    refined(values, found, error_rate)
}

/// Tests each change again, on the values between the changes before and after it, and removes the least clear one until all are clear.
fn refined(values: &[f64], mut changes: Vec<ChangePoint>, error_rate: f64) -> Vec<ChangePoint> {
    loop {
        for index in 0..changes.len() {
            let before = index.checked_sub(1).and_then(|index| changes.get(index));
            let from = before.map_or(0, |change| change.first_after);
            let to = changes
                .get(index.saturating_add(1))
                .map_or(values.len(), |change| change.first_after);
            let found = values.get(from..to).and_then(test);
            if let Some(((split, p_value), change)) = found.zip(changes.get_mut(index)) {
                *change = ChangePoint {
                    first_after: from.saturating_add(split),
                    p_value,
                };
            }
        }
        let least = changes
            .iter()
            .enumerate()
            .max_by(|(_, one), (_, other)| one.p_value.total_cmp(&other.p_value))
            .filter(|(_, change)| change.p_value > error_rate);
        match least {
            Some((index, _)) => {
                changes.remove(index);
            }
            None => return changes,
        }
    }
}

/// Returns the clearest split of a part, and the probability of one at least as clear without a change. None if it cannot be split.
fn test(values: &[f64]) -> Option<(usize, f64)> {
    let mut ranks = ranks(values);
    let (split, largest) = clearest(&ranks)?;
    let mut random = Random::new(SEED);
    let mut as_clear = 0_usize;
    for _ in 0..PERMUTATIONS {
        shuffle(&mut ranks, &mut random);
        as_clear = as_clear.saturating_add(usize::from(has_split(&ranks, largest)));
    }
    Some((
        split,
        as_clear.saturating_add(1) as f64 / (PERMUTATIONS + 1) as f64,
    ))
}

/// Returns true if a split has at least this statistic. It is asked for each permutation, and ends at the first such split.
fn has_split(ranks: &[f64], least: f64) -> bool {
    let mean = ranks.len().saturating_add(1) as f64 / 2.0;
    let mut sum = 0.0;
    // Ranks are multiples of a half, so sums are exact. That of all is 0, as is the statistic of no split at all.
    for rank in ranks {
        sum += rank - mean;
        if 2.0 * f64::abs(sum) >= least {
            return true;
        }
    }
    false
}

/// Returns the split with the largest statistic, and that statistic.
fn clearest(ranks: &[f64]) -> Option<(usize, f64)> {
    let mean = ranks.len().saturating_add(1) as f64 / 2.0;
    let mut sum = 0.0;
    let mut best: Option<(usize, f64)> = None;
    for (index, rank) in ranks.iter().enumerate().take(ranks.len().saturating_sub(1)) {
        sum += rank - mean;
        let statistic = 2.0 * f64::abs(sum);
        if best.is_none_or(|(_, largest)| statistic > largest) {
            best = Some((index.saturating_add(1), statistic));
        }
    }
    best
}

/// Returns the rank of each value from 1. Equal values have the mean of their ranks.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<(usize, f64)> = values.iter().copied().enumerate().collect();
    order.sort_by(|(_, one), (_, other)| one.total_cmp(other));
    let mut ranks = vec![0.0; values.len()];
    let mut before = 0_usize;
    // A value that is not equal to itself counts alone.
    for equal in order.chunk_by(|(_, one), (_, other)| one == other) {
        let rank = before as f64 + equal.len().saturating_add(1) as f64 / 2.0;
        for (index, _) in equal {
            if let Some(place) = ranks.get_mut(*index) {
                *place = rank;
            }
        }
        before = before.saturating_add(equal.len());
    }
    ranks
}

/// Brings values into a random order, in which all orders are equally likely (Fisher and Yates).
fn shuffle(values: &mut [f64], random: &mut Random) {
    for last in (1..values.len()).rev() {
        values.swap(last, random.index(last.saturating_add(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns values of a device without a change: even, with collapses, or of two values.
    fn values(kind: u64, seed: u64, count: usize) -> Vec<f64> {
        let mut random = Random::new(seed.wrapping_mul(3).wrapping_add(kind));
        let mut chance = || random.below(1 << 32) as f64 / f64::from(u32::MAX);
        let one = |quantile: f64| match kind {
            0 => 0.97 + 0.06 * quantile,
            1 if quantile < 0.25 => 0.1,
            1 => 1.0 + 0.04 * (quantile - 0.5),
            _ if quantile < 0.5 => 0.5,
            _ => 1.0,
        };
        (0..count).map(|_| one(chance())).collect()
    }

    #[test]
    fn false_changes_are_rarer_than_stated() {
        const REPEATS: u64 = 400;
        for kind in 0..3 {
            for count in [8, 15] {
                let is_found =
                    |seed: &u64| !change_points(&values(kind, *seed, count), 0.05).is_empty();
                let found = (0..REPEATS).filter(is_found).count();
                // 0.05 of 400 are 20. More than 34 have a probability of less than one in a thousand.
                assert!(
                    found <= 34,
                    "kind {kind}, {count} values: {found} false changes"
                );
            }
        }
    }

    #[test]
    fn a_clear_change_is_found_at_its_place() {
        for seed in 0..20 {
            let mut all = values(0, seed, 12);
            all[7..].iter_mut().for_each(|value| *value *= 0.9);
            let found = change_points(&all, 0.05);
            assert_eq!(found.len(), 1, "{all:?}");
            // A value at the edge may be on the other side by chance.
            assert!(found[0].first_after.abs_diff(7) <= 1, "{found:?}");
        }
    }

    #[test]
    fn two_changes_are_found_in_their_order() {
        let mut all = values(0, 1, 36);
        all[12..24].iter_mut().for_each(|value| *value *= 0.8);
        all[24..].iter_mut().for_each(|value| *value *= 0.6);
        let places: Vec<usize> = change_points(&all, 0.05)
            .iter()
            .map(|one| one.first_after)
            .collect();
        assert_eq!(places.len(), 2, "{places:?}");
        assert!(
            places[0].abs_diff(12) <= 1 && places[1].abs_diff(24) <= 1,
            "{places:?}"
        );
    }

    #[test]
    fn few_or_equal_values_have_no_change() {
        assert!(change_points(&[], 0.05).is_empty());
        assert!(change_points(&[1.0], 0.05).is_empty());
        assert!(change_points(&[1.0, 1.0, 1.0, 2.0, 2.0, 2.0], 0.05).is_empty());
        assert!(change_points(&[5.0; 40], 0.05).is_empty());
        let eight = [1.0, 1.1, 1.2, 1.3, 2.0, 2.1, 2.2, 2.3];
        assert_eq!(change_points(&eight, 0.05).len(), 1);
    }

    #[test]
    fn equal_values_share_their_ranks() {
        assert_eq!(ranks(&[3.0, 1.0, 3.0, 2.0]), [3.5, 1.0, 3.5, 2.0]);
        assert_eq!(clearest(&[1.0, 2.0, 3.0, 4.0]), Some((2, 4.0)));
        assert_eq!(clearest(&[1.0]), None);
        assert!(has_split(&[1.0, 2.0, 3.0, 4.0], 4.0));
        assert!(!has_split(&[1.0, 2.0, 3.0, 4.0], 4.5));
        assert!(has_split(&[2.0, 2.0, 2.0], 0.0));
    }
}
