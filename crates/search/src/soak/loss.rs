// SPDX-License-Identifier: Apache-2.0
//! Growth of the loss with the load: two shapes, after PLRsearch (draft-vpolak-bmwg-plrsearch, "Fitting Functions").
//!
//! Loads and losses are parts of the maximum rate. Both shapes have a capacity and a spread, lose nothing at load zero, and lose
//! everything above the capacity far above it. They differ in the thickness of their tails.

use serde::{Deserialize, Serialize};

/// Shape of the loss function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// The loss probability decreases exponentially below the capacity.
    Stretch,
    /// The loss probability decreases like a normal distribution.
    Erf,
}

impl Shape {
    /// Returns the loss at a load.
    pub(super) fn lost(self, load: f64, capacity: f64, spread: f64) -> f64 {
        let bend = |x: f64| match self {
            Self::Stretch => softplus(x),
            Self::Erf => normal_plus(x),
        };
        let lost = spread * (bend((load - capacity) / spread) - bend(-capacity / spread));
        lost.clamp(0.0, load)
    }

    /// Returns the load with this loss ratio.
    pub(super) fn critical_load(self, loss_ratio: f64, capacity: f64, spread: f64) -> f64 {
        // The loss ratio grows with the load. If even the smallest load loses more, the result is zero.
        let (mut low, mut high) = (0.0, (capacity + spread) / (1.0 - loss_ratio));
        for _ in 0..45 {
            let middle = (low + high) / 2.0;
            if self.lost(middle, capacity, spread) <= loss_ratio * middle {
                low = middle;
            } else {
                high = middle;
            }
        }
        low
    }
}

/// Returns ln(1 + e^x), exact in both tails.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Returns the same bend for the normal distribution: the integral of (1 + erf) / 2 up to x.
fn normal_plus(x: f64) -> f64 {
    x.max(0.0) + integral_erfc(x.abs()) / 2.0
}

/// Returns the integral of erfc from x, which is not negative, to infinity (Abramowitz and Stegun, 7.2).
fn integral_erfc(x: f64) -> f64 {
    let density = 2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp();
    if x >= 1.0 {
        density * integral_erfc_by_density(x)
    } else {
        density / 2.0 - x * (1.0 - erf_series(x))
    }
}

/// Returns the integral of erfc from x, as a multiple of the density of erfc at x, for x from 1 on. It uses the downward recurrence of
/// the repeated integrals (Abramowitz and Stegun, 7.2.5), by their ratios. All terms are positive, so nothing cancels in the tail.
fn integral_erfc_by_density(x: f64) -> f64 {
    // The larger x is, the sooner the recurrence forgets its initial values.
    let terms = if x >= 3.0 { 20 } else { 100 };
    // Ratio of each repeated integral to the one repeated once less.
    let (mut above, mut here) = (0.0, 0.0);
    for n in (1..=terms).rev().map(f64::from) {
        (above, here) = (here, 0.5 / (x + n * here));
    }
    // Product of integral over erfc, and erfc over its density.
    above * here
}

/// Returns erf by its power series, for x below 1.
fn erf_series(x: f64) -> f64 {
    let mut power = x;
    let mut sum = x;
    for n in 1..40 {
        power *= -x * x / f64::from(n);
        sum += power / (2.0 * f64::from(n) + 1.0);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_integral_of_erfc_is_that_of_the_tables() {
        // Computed with 40 digits.
        for (x, value) in [
            (0.0, 0.564_189_583_547_756_3),
            (0.1, 0.469_822_094_996_296_96),
            (0.5, 0.199_641_228_374_245_67),
            (0.9, 0.068_201_678_300_730_26),
            (0.99, 0.051_848_427_819_079_6),
            (1.0, 0.050_254_541_660_012_22),
            (1.2, 0.026_048_947_377_332_033),
            (2.0, 9.780_227_149_514_952e-4),
            (2.7, 2.226_398_208_815_589_2e-5),
            (3.0, 3.355_034_977_617_603e-6),
            (6.0, 1.746_641_687_469_763e-18),
            (20.0, 1.345_614_871_819_044_7e-177),
        ] {
            let ours = integral_erfc(x);
            assert!(
                (ours / value - 1.0).abs() < 1e-10,
                "{x}: {ours} and {value}"
            );
        }
    }

    /// Returns the loss as the integral of the loss probability (Simpson), for the logistic function and the normal distribution.
    #[test]
    fn the_loss_is_the_chance_to_lose_summed_up_over_the_load() {
        let logistic = |x: f64| 1.0 / (1.0 + (-x).exp());
        let normal = |x: f64| {
            if x < 0.0 {
                (1.0 - erf_series(-x)) / 2.0
            } else {
                f64::midpoint(1.0, erf_series(x))
            }
        };
        // The series of erf is accurate up to 1, so the load ends one spread above the capacity.
        for (load, capacity, spread) in [(0.4, 0.3, 0.35), (0.3, 0.5, 0.6), (1.0, 0.7, 0.9)] {
            for (shape, chance) in [
                (Shape::Stretch, &logistic as &dyn Fn(f64) -> f64),
                (Shape::Erf, &normal),
            ] {
                let steps = 200;
                let step = load / f64::from(steps);
                let at = |n: i32| chance((f64::from(n) * step - capacity) / spread);
                let inner: f64 = (1..steps).map(|n| f64::from(2 + 2 * (n % 2)) * at(n)).sum();
                let area = (at(0) + inner + at(steps)) * step / 3.0;
                let ours = shape.lost(load, capacity, spread);
                assert!((ours - area).abs() < 1e-9, "{shape:?}: {ours} and {area}");
            }
        }
    }

    #[test]
    fn no_more_is_lost_than_the_load_and_no_less_than_nothing() {
        for shape in [Shape::Stretch, Shape::Erf] {
            assert_eq!(shape.lost(0.0, 0.5, 0.1), 0.0);
            // Far below the capacity, the bend has no visible effect.
            assert!(shape.lost(0.1, 0.9, 0.01) < 1e-30);
            // Far above it, everything above the capacity is lost.
            assert!((shape.lost(0.9, 0.4, 0.01) - 0.5).abs() < 1e-12);
        }
    }

    #[test]
    fn a_critical_load_is_found_up_to_the_highest_loss_and_is_none_where_every_load_loses_more() {
        for shape in [Shape::Stretch, Shape::Erf] {
            for (ratio, capacity, spread) in [(0.9, 0.01, 1.0), (0.9, 0.5, 1e-3), (0.5, 0.3, 0.2)] {
                let load = shape.critical_load(ratio, capacity, spread);
                let observed = shape.lost(load, capacity, spread) / load;
                assert!(
                    (observed / ratio - 1.0).abs() < 1e-9,
                    "{shape:?}: {observed} and {ratio}"
                );
            }
            assert!(shape.critical_load(1e-7, 0.01, 1.0) < 1e-9);
        }
    }

    proptest! {
        #[test]
        fn the_part_that_is_lost_grows_with_the_load(
            erf in any::<bool>(), capacity in 0.01..1.5f64, spread in 1e-4..0.5f64, load in 0.01..1.0f64,
        ) {
            let shape = if erf { Shape::Erf } else { Shape::Stretch };
            let part = |load: f64| shape.lost(load, capacity, spread) / load;
            prop_assert!(part(load) <= part(load * 1.01) + 1e-12);
            // Far above the capacity, everything above it is lost, except for the correction at load zero.
            let far = capacity + 40.0 * spread;
            prop_assert!(shape.lost(far, capacity, spread) <= far - capacity + 1e-9);
        }

        #[test]
        fn the_critical_load_loses_what_was_asked(
            erf in any::<bool>(), capacity in 0.1..1.5f64, part in 1e-3..0.05f64, exponent in -7.0..-1.0f64,
        ) {
            let shape = if erf { Shape::Erf } else { Shape::Stretch };
            let ratio = 10f64.powf(exponent);
            let spread = part * capacity;
            let load = shape.critical_load(ratio, capacity, spread);
            let observed = shape.lost(load, capacity, spread) / load;
            prop_assert!((observed / ratio - 1.0).abs() < 1e-3, "{} {}", observed, ratio);
        }
    }
}
