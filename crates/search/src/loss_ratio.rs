// SPDX-License-Identifier: Apache-2.0
//! Loss ratio goal: the largest part of the offered load that may be lost.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ConfigError;

/// Largest part of the offered frames that may be lost, in \[0, 1). Zero makes a search find the throughput of RFC 1242, section 3.17
/// (NDR), a larger value a partial drop rate (PDR).
///
/// A *goal* is below one, because a rate at which everything may be lost means nothing. A *trial* may lose everything, so its loss ratio
/// ([`crate::Outcome::Valid`]) is in \[0, 1] and does not have this type.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct LossRatio(f64);

impl LossRatio {
    /// No loss at all.
    pub const ZERO: Self = Self(0.0);

    /// Creates a ratio: 0.005 is 0.5 %.
    ///
    /// # Errors
    /// [`ConfigError::LossRatio`] if the value is not a number in \[0, 1).
    pub fn new(ratio: f64) -> Result<Self, ConfigError> {
        if (0.0..1.0).contains(&ratio) {
            // Adding zero turns -0.0 into 0.0, which is printed without a sign.
            Ok(Self(ratio + 0.0))
        } else {
            Err(ConfigError::LossRatio(ratio))
        }
    }

    /// Returns the ratio as a number.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }

    /// Returns true if a trial with loss ratio `loss_ratio` meets this goal. Equality meets it.
    #[must_use]
    pub fn allows(self, loss_ratio: f64) -> bool {
        loss_ratio <= self.0
    }
}

impl TryFrom<f64> for LossRatio {
    type Error = ConfigError;

    fn try_from(ratio: f64) -> Result<Self, Self::Error> {
        Self::new(ratio)
    }
}

impl From<LossRatio> for f64 {
    fn from(ratio: LossRatio) -> Self {
        ratio.0
    }
}

impl fmt::Display for LossRatio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_ratios_below_one_are_goals() {
        for bad in [1.0, 1.5, -0.1, f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(LossRatio::new(bad).is_err(), "{bad} was accepted");
        }
        assert_eq!(LossRatio::new(0.0), Ok(LossRatio::ZERO));
        assert!(LossRatio::new(-0.0).unwrap().get().is_sign_positive());
        let error = LossRatio::new(1.0).unwrap_err().to_string();
        assert!(error.contains("[0, 1)"), "{error}");
    }

    #[test]
    fn exactly_on_the_goal_holds() {
        let goal = LossRatio::new(0.005).unwrap();
        assert!(goal.allows(0.005));
        assert!(!goal.allows(0.005_000_001));
        assert!(LossRatio::ZERO.allows(0.0));
        assert!(!LossRatio::ZERO.allows(f64::MIN_POSITIVE));
    }

    #[test]
    fn reading_checks_the_range_too() {
        assert_eq!(
            serde_json::from_str::<LossRatio>("0.25").unwrap().get(),
            0.25
        );
        assert!(serde_json::from_str::<LossRatio>("1.0").is_err());
        let quarter = LossRatio::new(0.25).unwrap();
        assert_eq!(serde_json::to_string(&quarter).unwrap(), "0.25");
        assert_eq!(
            (f64::from(quarter), quarter.to_string()),
            (0.25, "0.25".to_owned())
        );
    }
}
