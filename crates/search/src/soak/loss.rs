// SPDX-License-Identifier: Apache-2.0
//! How loss may grow with the load: two shapes, after PLRsearch (draft-vpolak-bmwg-plrsearch, "Fitting Functions").
//!
//! Loads and losses are parts of the maximum rate. Both shapes have a capacity and a spread, lose nothing at no load, and
//! lose all that is over the capacity far above it; they differ in how thin their tails are.

use serde::{Deserialize, Serialize};

/// A shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Shape {
    /// Chances to lose fall exponentially under the capacity.
    Stretch,
    /// They fall as a normal distribution does.
    Erf,
}

impl Shape {
    /// What is lost of a load.
    pub(super) fn lost(self, load: f64, capacity: f64, spread: f64) -> f64 {
        let bend = |x: f64| match self {
            Self::Stretch => softplus(x),
            Self::Erf => normal_plus(x),
        };
        let lost = spread * (bend((load - capacity) / spread) - bend(-capacity / spread));
        lost.clamp(0.0, load)
    }

    /// The load of which this part is lost.
    pub(super) fn critical_load(self, loss_ratio: f64, capacity: f64, spread: f64) -> f64 {
        // The part that is lost grows with the load; where even the smallest load loses more, this ends at none.
        let (mut low, mut high) = (0.0, (capacity + spread) / (1.0 - loss_ratio));
        for _ in 0..45 {
            let middle = (low + high) / 2.0;
            if self.lost(middle, capacity, spread) > loss_ratio * middle {
                high = middle;
            } else {
                low = middle;
            }
        }
        low
    }
}

/// ln(1 + e^x), exact in both tails.
fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// The same bend made of the normal distribution: the integral of (1 + erf) / 2 up to x.
fn normal_plus(x: f64) -> f64 {
    x.max(0.0) + integral_erfc(x.abs()) / 2.0
}

/// The integral of erfc from x, which is not negative, to infinity (Abramowitz and Stegun, 7.2).
fn integral_erfc(x: f64) -> f64 {
    let density = (-x * x).exp() / std::f64::consts::PI.sqrt();
    if x < 1.0 {
        return density - x * (1.0 - erf_series(x));
    }
    // The recurrence of the repeated integrals, downwards: all terms are positive, so nothing cancels in the tail.
    let (mut above, mut here) = (0.0, 1e-200);
    let mut scale = 0.0;
    // The further out, the sooner the recurrence forgets what it began with.
    let terms = (100.0 / (x * x)).clamp(14.0, 100.0) as u32;
    for n in (1..=terms).rev() {
        let below = 2.0 * f64::from(n + 1) * above + 2.0 * x * here;
        (above, here) = (here, below);
        if here > 1e200 {
            (above, here) = (above * 1e-200, here * 1e-200);
        }
        scale = above;
    }
    // `here` now stands for erfc, `above` for its integral; one more step gives twice the density.
    let twice_density = 2.0 * above + 2.0 * x * here;
    scale / twice_density * 2.0 * density
}

/// erf by its power series, for x under 1.
fn erf_series(x: f64) -> f64 {
    let mut power = x;
    let mut sum = x;
    for n in 1..40 {
        power *= -x * x / f64::from(n);
        sum += power / f64::from(2 * n + 1);
    }
    2.0 / std::f64::consts::PI.sqrt() * sum
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_integral_of_erfc_is_that_of_the_tables() {
        // From printed values of erfc, and further out by the asymptotic series.
        let near = |x: f64, value: f64| {
            let ours = integral_erfc(x);
            assert!((ours / value - 1.0).abs() < 1e-6, "{x}: {ours} and {value}");
        };
        near(0.0, 0.564_189_583_5);
        near(0.5, 0.199_641_228_3);
        near(1.0, 0.050_254_541_7);
        near(2.0, 0.000_978_022_7);
        for x in [10.0f64, 20.0] {
            let first = (-x * x).exp() / (2.0 * std::f64::consts::PI.sqrt() * x * x);
            let y = 1.0 / (x * x);
            near(
                x,
                first * (1.0 - 1.5 * y + 3.75 * y * y - 13.125 * y.powi(3)),
            );
        }
        assert!((integral_erfc(1.0 - 1e-12) - integral_erfc(1.0)).abs() < 1e-11);
    }

    proptest! {
        #[test]
        fn the_part_that_is_lost_grows_with_the_load(
            erf in any::<bool>(), capacity in 0.01..1.5f64, spread in 1e-4..0.5f64, load in 0.01..1.0f64,
        ) {
            let shape = if erf { Shape::Erf } else { Shape::Stretch };
            let part = |load: f64| shape.lost(load, capacity, spread) / load;
            prop_assert!(part(load) <= part(load * 1.01) + 1e-12);
            // Far over the capacity all that is over it is lost, but for what the bend at no load takes off.
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
            let seen = shape.lost(load, capacity, spread) / load;
            prop_assert!((seen / ratio - 1.0).abs() < 1e-3, "{} {}", seen, ratio);
        }
    }
}
