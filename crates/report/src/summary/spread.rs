// SPDX-License-Identifier: Apache-2.0
//! A figure over several rounds or trials.

use serde::Serialize;

/// Values of several rounds or repeats.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The middle one; of an even number the lower of the two, so that it is one that was seen.
    pub median: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// All, in the order in which they were seen.
    pub values: Vec<f64>,
}

impl Spread {
    /// Of some values; none of none.
    pub(crate) fn of(values: Vec<f64>) -> Option<Self> {
        let mut sorted = values.clone();
        sorted.sort_by(f64::total_cmp);
        let median = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
        Some(Self {
            median,
            min: *sorted.first()?,
            max: *sorted.last()?,
            values,
        })
    }
}

/// `value` in percent of `base`, where that means something.
pub(crate) fn percent_of(value: f64, base: f64) -> Option<f64> {
    (base > 0.0).then(|| value / base * 100.0)
}
