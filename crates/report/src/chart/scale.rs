// SPDX-License-Identifier: Apache-2.0
//! Scales: positions of values in pixels, and positions of ticks.

/// Smallest and largest values of scales. Damaged stores have others, whose steps would be zero or infinite.
const SMALLEST: f64 = 1e-300;
const LARGEST: f64 = 1e300;

/// A linear scale from zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Linear {
    max: f64,
    from_px: f64,
    to_px: f64,
    step: f64,
}

impl Linear {
    /// Returns a scale with zero at `from_px` and the first tick at or above `max` at `to_px`.
    pub(super) fn new(max: f64, from_px: f64, to_px: f64) -> Self {
        let max = if max.is_finite() && max > 0.0 {
            max.clamp(SMALLEST, LARGEST)
        } else {
            1.0
        };
        let step = nice_step(max / 5.0);
        Self {
            // Slightly smaller, so that a rounding error adds no tick.
            max: (max / step - 1e-9).ceil().max(1.0) * step,
            from_px,
            to_px,
            step,
        }
    }

    /// Returns a scale with zero at `from_px`, `max` at `to_px` and ticks up to `max`.
    pub(super) fn exact(max: f64, from_px: f64, to_px: f64) -> Self {
        let rounded = Self::new(max, from_px, to_px);
        Self {
            max: max.clamp(rounded.step, rounded.max),
            ..rounded
        }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        self.from_px + (value / self.max).clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    #[expect(
        clippy::cast_possible_truncation,
        reason = "a scale has few steps, and the cast saturates"
    )]
    pub(super) fn ticks(&self) -> Vec<f64> {
        let count = (self.max / self.step + 1e-6).floor() as u32;
        (0..=count).map(|n| f64::from(n) * self.step).collect()
    }
}

/// Returns 1, 2 or 5 times a power of ten, at or above `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let nice = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|nice| nice * power >= rough * (1.0 - 1e-9));
    nice.unwrap_or(10.0) * power
}

/// A logarithmic scale over whole decades.
#[derive(Clone, Copy, Debug)]
pub(super) struct Log {
    low: i32,
    high: i32,
    from_px: f64,
    to_px: f64,
}

impl Log {
    /// Returns the decades that contain `min` to `max`; `min` is on the side of `from_px`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "decades of floating-point numbers are -324 to 309, and the cast saturates"
    )]
    pub(super) fn new(min: f64, max: f64, from_px: f64, to_px: f64) -> Self {
        let low = min.max(1e-12).log10().floor() as i32;
        let high = (max.max(1e-12).log10() - 1e-9).ceil() as i32;
        Self {
            low,
            high: high.max(low.saturating_add(1)),
            from_px,
            to_px,
        }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let decade = value.max(1e-12).log10();
        let part = (decade - f64::from(self.low)) / (f64::from(self.high) - f64::from(self.low));
        self.from_px + part.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Returns the ticks, which are powers of ten.
    pub(super) fn ticks(&self) -> Vec<f64> {
        (self.low..=self.high).map(|n| 10f64.powi(n)).collect()
    }
}

/// Most decades on each side of zero: all times in nanoseconds.
const DECADES_MAX: i32 = 20;

/// A scale for values of both signs: linear around zero, logarithmic from 10 on. It contains zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct SignedLog {
    /// Decades below and above zero.
    low: i32,
    high: i32,
    from_px: f64,
    to_px: f64,
}

/// Returns the distance from zero in decades, with the sign of the value.
fn signed_decades(value: f64) -> f64 {
    value.signum() * (1.0 + value.abs()).log10()
}

impl SignedLog {
    /// Returns the decades that contain `min`, zero and `max`; `min` is on the side of `from_px`.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "decades of floating-point numbers are -324 to 309, and the cast saturates"
    )]
    pub(super) fn new(min: f64, max: f64, from_px: f64, to_px: f64) -> Self {
        let low = signed_decades(min.min(0.0)).floor() as i32;
        let high = signed_decades(max.max(0.0)).ceil() as i32;
        Self {
            low: low.max(-DECADES_MAX),
            high: high.clamp(1, DECADES_MAX),
            from_px,
            to_px,
        }
    }

    pub(super) fn at(&self, value: f64) -> f64 {
        let part = (signed_decades(value) - f64::from(self.low))
            / (f64::from(self.high) - f64::from(self.low));
        self.from_px + part.clamp(0.0, 1.0) * (self.to_px - self.from_px)
    }

    /// Returns the ticks: zero, and powers of ten with both signs.
    pub(super) fn ticks(&self) -> Vec<f64> {
        let decades = self.low..=self.high;
        let tick = |decade: i32| match decade {
            0 => 0.0,
            _ => f64::from(decade.signum()) * 10f64.powi(decade.abs()),
        };
        decades.map(tick).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_are_round_numbers() {
        assert_eq!(
            Linear::new(6.4, 0.0, 100.0).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0]
        );
        assert_eq!(
            Linear::new(10.0, 0.0, 100.0).ticks(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        assert_eq!(
            Log::new(20.0, 900.0, 0.0, 1.0).ticks(),
            [10.0, 100.0, 1000.0]
        );
        assert_eq!(Log::new(1.0, 1.0, 0.0, 1.0).ticks(), [1.0, 10.0]);
    }

    #[test]
    fn values_of_a_damaged_store_have_few_ticks() {
        for max in [5e-324, 1e-310, 1.7e308, f64::MAX, f64::INFINITY, f64::NAN] {
            for scale in [Linear::new(max, 0.0, 1.0), Linear::exact(max, 0.0, 1.0)] {
                assert!((1..=7).contains(&scale.ticks().len()), "{max}");
                assert!(
                    (0.0..=1.0).contains(&scale.at(0.0)) || max.is_nan(),
                    "{max}"
                );
            }
        }
    }

    #[test]
    fn a_scale_of_both_signs_has_zero_between_them() {
        let scale = SignedLog::new(-50.0, 900.0, 0.0, 100.0);
        assert_eq!(scale.ticks(), [-100.0, -10.0, 0.0, 10.0, 100.0, 1000.0]);
        assert_eq!(scale.at(0.0), 40.0);
        assert_eq!(SignedLog::new(0.0, 0.0, 0.0, 1.0).ticks(), [0.0, 10.0]);
        for (min, max) in [(f64::MIN, f64::MAX), (f64::NAN, f64::NAN)] {
            let scale = SignedLog::new(min, max, 0.0, 1.0);
            assert!((2..=41).contains(&scale.ticks().len()));
        }
    }

    proptest! {
        #[test]
        fn values_of_both_signs_keep_their_order(one in -1e15f64..1e15, other in -1e15f64..1e15) {
            let (low, high) = (one.min(other), one.max(other));
            let scale = SignedLog::new(low, high, 0.0, 1.0);
            prop_assert!(scale.at(low) <= scale.at(high));
            prop_assert!(low >= -1.0 || scale.at(low) < scale.at(0.0));
            prop_assert!(high <= 1.0 || scale.at(high) > scale.at(0.0));
        }

        #[test]
        fn values_of_a_linear_scale_are_within_it(max in 1e-9f64..1e12, part in 0.0f64..1.0) {
            let scale = Linear::new(max, 10.0, 90.0);
            let ticks = scale.ticks();
            prop_assert!((2..=7).contains(&ticks.len()), "{:?}", ticks);
            prop_assert!(ticks[ticks.len() - 1] >= max * (1.0 - 1e-6));
            let at = scale.at(max * part);
            prop_assert!((10.0..=90.0).contains(&at));
        }

        #[test]
        fn decades_hold_their_values(min in 1e-9f64..1e9, times in 1.0f64..1e6) {
            let scale = Log::new(min, min * times, 0.0, 1.0);
            let ticks = scale.ticks();
            prop_assert!(ticks[0] <= min * (1.0 + 1e-9));
            prop_assert!(ticks[ticks.len() - 1] >= min * times * (1.0 - 1e-6));
        }
    }
}
