// SPDX-License-Identifier: Apache-2.0
//! How many trials a step takes, and how long.

/// Lowest rate of an MLRsearch, as a part of the highest, where the file says nothing.
pub(crate) const MIN_RATE: f64 = 0.001;

/// Level of confidence intervals, where the file says nothing.
pub(crate) const CONFIDENCE: f64 = 0.95;

/// Longest counted part of a trial with `--quick`, seconds.
pub(crate) const QUICK_DURATION_S: f64 = 0.15;

/// At most so much is to be done; a study is usually through earlier. For an MLRsearch, which noise can prolong, so much
/// on a quiet device.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Trials, when none is invalid.
    pub trials: u32,
    /// Time that they take, seconds; setting up cases not included.
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

/// Trials or actions of a halving search over `from` down to steps of `to`.
pub(crate) fn halvings(from: f64, to: u32) -> f64 {
    (from / f64::from(to)).log2().ceil().max(0.0) + 1.0
}

/// So many actions of so many seconds each.
pub(crate) fn actions(count: f64, each_s: f64) -> Estimate {
    Estimate {
        trials: count as u32,
        duration_s: count * each_s,
    }
}
