// SPDX-License-Identifier: Apache-2.0
//! Medians, and the variation between rounds.

use super::lcg::Lcg;

/// Median, smallest and largest value of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
}

impl Spread {
    pub(crate) fn of(values: &[f64]) -> Self {
        let sorted = sorted(values);
        Self {
            median: middle(&sorted),
            min: sorted[0],
            max: sorted[sorted.len() - 1],
        }
    }

    /// Returns median and range in a unit: `14.52 (14.40 to 14.71)`; the median alone if all are shown alike.
    pub(crate) fn text(self, unit: f64, decimals: usize) -> String {
        let shown = |value: f64| format!("{:.decimals$}", value / unit);
        let [median, min, max] = [self.median, self.min, self.max].map(shown);
        match min == max {
            true => median,
            false => format!("{median} ({min} to {max})"),
        }
    }
}

/// A figure with an interval that contains the true value with a probability of at least 90 %.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub(crate) struct Estimate {
    pub(crate) value: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// Minimum number of rounds for which an interval of a median has a probability of 90 %.
pub(crate) const ROUNDS_MIN: usize = 5;
/// Maximum probability that the true value is outside the interval.
const OUTSIDE: f64 = 0.1;
/// Number of samples of a bootstrap.
const SAMPLES: usize = 2000;

impl Estimate {
    /// Returns the median of the values. The interval reaches from the k-th smallest to the k-th largest value (order
    /// statistics, binomial with a probability of one half).
    pub(crate) fn of_median(values: &[f64]) -> Self {
        let sorted = sorted(values);
        let cut = values_outside(sorted.len());
        Self {
            value: middle(&sorted),
            low: sorted[cut],
            high: sorted[sorted.len() - 1 - cut],
        }
    }

    /// Returns the ratio of two relative standard deviations, with an interval by bootstrap; `None` if the divisor is 0.
    pub(crate) fn of_deviations(these: &[f64], those: &[f64]) -> Option<Self> {
        let ratio = |these: &[f64], those: &[f64]| {
            let ratio = deviation_ratio(these) / deviation_ratio(those);
            ratio.is_finite().then_some(ratio)
        };
        let value = ratio(these, those)?;
        let mut turns = Lcg::new(1);
        let mut sample = |values: &[f64]| -> Vec<f64> {
            let picked = (0..values.len()).map(|_| values[turns.below(values.len())]);
            picked.collect()
        };
        let ratios = (0..SAMPLES).filter_map(|_| ratio(&sample(these), &sample(those)));
        let ratios = sorted(&ratios.collect::<Vec<_>>());
        let cut = (ratios.len() as f64 * OUTSIDE / 2.0) as usize;
        Some(Self {
            value,
            low: *ratios.get(cut)?,
            high: ratios[ratios.len() - 1 - cut],
        })
    }
}

/// Returns the standard deviation of a sample divided by its mean.
pub(crate) fn deviation_ratio(values: &[f64]) -> f64 {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (squares / (count - 1.0)).sqrt() / mean
}

/// Returns how many values on each side of a sorted sample are outside the interval of the median.
fn values_outside(count: usize) -> usize {
    let mut chance = 0.5_f64.powf(count as f64);
    let (mut below, mut cut) = (0.0, 0);
    for fewer in 0..count / 2 {
        below += chance;
        if 2.0 * below > OUTSIDE {
            break;
        }
        cut = fewer;
        chance *= (count - fewer) as f64 / (fewer + 1) as f64;
    }
    cut
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}

fn middle(sorted: &[f64]) -> f64 {
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
