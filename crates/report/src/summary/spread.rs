// SPDX-License-Identifier: Apache-2.0
//! A figure over several rounds or trials.

use quietwire_search::{median, middle_values};
use serde::Serialize;

/// Values of several rounds or repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// Median: the middle value, or the mean of the two middle values if the number of values is even. That mean need not be a measured
    /// value; [`Self::values`] are.
    pub median: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// All values, in the order of measurement.
    pub values: Vec<f64>,
}

impl Spread {
    /// Returns the spread of the values, or none without values.
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        Some(Self {
            median: median(&values)?,
            min: values.iter().copied().min_by(f64::total_cmp)?,
            max: values.iter().copied().max_by(f64::total_cmp)?,
            values,
        })
    }

    /// Returns true if a lower limit of this value is a lower limit of the median as well.
    pub(crate) fn depends_on(&self, limit: f64) -> bool {
        middle_values(&self.values).is_some_and(|[_, upper]| limit <= upper)
    }
}

/// Returns `value` in percent of `base`, if that is defined.
pub(crate) fn percent_of(value: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| value / base * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_of_values_is_the_mean_of_the_two_in_the_middle() {
        let median = |values: &[f64]| Spread::of(values.to_vec()).map(|spread| spread.median);
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0]), Some(7.0));
        assert_eq!(median(&[9.0, 1.0]), Some(5.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
    }

    #[test]
    fn a_median_depends_on_limits_up_to_the_upper_of_the_two_in_the_middle() {
        let even = Spread::of(vec![9.0, 1.0, 4.0, 2.0]).unwrap();
        let depends = [1.0, 2.0, 4.0, 9.0].map(|limit| even.depends_on(limit));
        assert_eq!(depends, [true, true, true, false]);
        let odd = Spread::of(vec![9.0, 1.0, 4.0]).unwrap();
        assert_eq!([4.0, 9.0].map(|limit| odd.depends_on(limit)), [true, false]);
    }
}
