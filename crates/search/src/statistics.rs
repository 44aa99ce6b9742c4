// SPDX-License-Identifier: Apache-2.0
//! Mean, sample standard deviation, and Student's confidence interval of the mean.

use std::f64::consts::{FRAC_PI_2, PI};

use serde::{Deserialize, Serialize};

/// Statistics of a sample, with a confidence interval of the mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Sample size.
    pub count: u32,
    /// Mean.
    pub mean: f64,
    /// Smallest value.
    pub min: f64,
    /// Largest value.
    pub max: f64,
    /// Sample standard deviation (divided by the sample size minus one); `None` for a single value.
    pub standard_deviation: Option<f64>,
    /// Confidence level of the interval, 0 to 1, such as 0.95.
    pub confidence: f64,
    /// Half width of the confidence interval of the mean, assuming normally distributed values (Student's t); `None` for a single value.
    pub half_interval: Option<f64>,
}

impl Statistics {
    /// Returns the statistics of `values`; `None` if there are none. `confidence` is between 0 and 1.
    #[must_use]
    pub fn of(values: &[f64], confidence: f64) -> Option<Self> {
        let count = u32::try_from(values.len())
            .ok()
            .filter(|count| *count > 0)?;
        let n = f64::from(count);
        let mean = values.iter().sum::<f64>() / n;
        // The second pass keeps digits that a sum of squares would lose.
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        let standard_deviation = (count > 1).then(|| (squares / (n - 1.0)).sqrt());
        let half_interval = standard_deviation.map(|deviation| {
            let degrees = count.saturating_sub(1);
            student_t_quantile(0.5 + confidence / 2.0, degrees) * deviation / n.sqrt()
        });
        Some(Self {
            count,
            mean,
            min: values.iter().copied().fold(f64::INFINITY, f64::min),
            max: values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            standard_deviation,
            confidence,
            half_interval,
        })
    }
}

/// Returns the quantile of Student's t with these degrees of freedom, for a probability from 0.5 to below 1.
fn student_t_quantile(probability: f64, degrees: u32) -> f64 {
    // Every t is the tangent of an angle below 90 degrees. The angle is bisected to the last digit.
    let (mut low, mut high) = (0.0, FRAC_PI_2);
    let t = |angle: f64| f64::from(degrees).sqrt() * angle.tan();
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if probability <= student_t_below(t(middle), degrees) {
            high = middle;
        } else {
            low = middle;
        }
    }
    t(high)
}

/// Returns the probability that Student's t is below `t`, which is not negative: the finite sums for integer degrees of freedom
/// (Abramowitz and Stegun, 26.7.3 and 26.7.4).
fn student_t_below(t: f64, degrees: u32) -> f64 {
    let nu = f64::from(degrees);
    let angle = (t / nu.sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = degrees % 2 == 1;
    // The powers of the cosine go up to nu - 2. The factors are 2/3, 4/5 and so on for odd degrees, 1/2, 3/4 and so on for even ones.
    let (mut term, first) = if is_odd { (cosine, 3) } else { (1.0, 2) };
    let mut sum = if degrees == 1 { 0.0 } else { term };
    for k in (first..degrees.saturating_sub(1)).step_by(2).map(f64::from) {
        term *= cosine * cosine * (k - 1.0) / k;
        sum += term;
    }
    let within = if is_odd {
        2.0 / PI * (angle + sine * sum)
    } else {
        sine * sum
    };
    0.5 + within / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        // Two-sided 95 % and 99 % quantiles from a printed table.
        let table = [
            (1, 12.7062, 63.6567),
            (2, 4.3027, 9.9248),
            (3, 3.1824, 5.8409),
            (4, 2.7764, 4.6041),
            (5, 2.5706, 4.0321),
            (9, 2.2622, 3.2498),
            (10, 2.2281, 3.1693),
            (19, 2.0930, 2.8609),
            (30, 2.0423, 2.7500),
            (99, 1.9842, 2.6264),
            (120, 1.9799, 2.6174),
        ];
        for (degrees, at_95, at_99) in table {
            for (probability, t) in [(0.975, at_95), (0.995, at_99)] {
                let ours = student_t_quantile(probability, degrees);
                assert!((ours - t).abs() < 5.1e-5, "{degrees}: {ours} and {t}");
            }
        }
        assert!(student_t_quantile(0.5, 7).abs() < 1e-12);
    }

    /// Returns the integral of the density (Simpson), without its constant, which cancels out.
    fn below_by_area(t: f64, degrees: u32) -> f64 {
        let density =
            |x: f64| (1.0 + x * x / f64::from(degrees)).powf(-f64::from(degrees + 1) / 2.0);
        let area = |to: f64| {
            let steps = 20_000;
            let step = to / f64::from(steps);
            let inner: f64 = (1..steps)
                .map(|n| f64::from(2 + 2 * (n % 2)) * density(f64::from(n) * step))
                .sum();
            (density(0.0) + inner + density(to)) * step / 3.0
        };
        0.5 + 0.5 * area(t) / area(2_000.0)
    }

    #[test]
    fn probabilities_are_the_area_under_the_density() {
        for degrees in [3, 4, 5, 8, 9, 20, 33] {
            for t in [0.1, 0.7, 1.5, 3.0, 6.0] {
                let (ours, area) = (student_t_below(t, degrees), below_by_area(t, degrees));
                assert!(
                    (ours - area).abs() < 1e-5,
                    "{degrees} {t}: {ours} and {area}"
                );
            }
        }
    }

    #[test]
    fn a_sample_by_hand() {
        // Deviations -2, -1, 0, 1, 2: variance 10 / 4.
        let found = Statistics::of(&[8.0, 9.0, 10.0, 11.0, 12.0], 0.95).unwrap();
        assert_eq!(
            (found.count, found.mean, found.min, found.max),
            (5, 10.0, 8.0, 12.0)
        );
        assert!((found.standard_deviation.unwrap() - 2.5f64.sqrt()).abs() < 1e-12);
        assert!((found.half_interval.unwrap() - 2.7764 * (2.5f64 / 5.0).sqrt()).abs() < 1e-4);
        let single = Statistics::of(&[3.0], 0.95).unwrap();
        assert_eq!((single.mean, single.standard_deviation), (3.0, None));
        assert_eq!(single.half_interval, None);
        assert_eq!(Statistics::of(&[], 0.95), None);
        let same = Statistics::of(&[0.1; 7], 0.95).unwrap();
        assert!(same.standard_deviation.unwrap() < 1e-15);
    }
}
