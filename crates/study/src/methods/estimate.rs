// SPDX-License-Identifier: Apache-2.0
//! Estimates of the number and duration of trials.

/// Lowest rate of an MLRsearch as a share of the highest, if the file sets none.
pub(crate) const MIN_RATE: f64 = 0.001;

/// Level of confidence intervals, if the file sets none.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Maximum measurement time of a trial with `--quick`, seconds.
pub(crate) const QUICK_DURATION_S: f64 = 0.15;

/// Upper bound of the work; a study usually needs less. For MLRsearch, which noise can prolong, it is the work
/// on a quiet device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Number of trials, if none is invalid.
    pub trials: u32,
    /// Duration of the trials, seconds, without case setups.
    pub duration_s: f64,
}

impl Estimate {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            trials: self.trials.saturating_add(other.trials),
            duration_s: self.duration_s + other.duration_s,
        }
    }

    pub(crate) fn times(self, times: u32) -> Self {
        Self {
            trials: self.trials.saturating_mul(times),
            duration_s: self.duration_s * f64::from(times),
        }
    }
}

/// Returns the trials or actions of a binary search over `from` down to steps of `to`.
pub(crate) fn halvings(from: f64, to: u32) -> f64 {
    (from / f64::from(to)).log2().ceil().max(0.0) + 1.0
}

/// Returns the work of `count` actions with this duration each, seconds.
#[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
pub(crate) fn actions(count: f64, each_s: f64) -> Estimate {
    Estimate {
        trials: count as u32,
        duration_s: count * each_s,
    }
}
