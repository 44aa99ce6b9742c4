// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the loss sweep.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::{ordered, positive};

/// Largest number of rates in one sweep: ten times as many as steps of 0.1 % of the line rate.
pub(super) const RATES_MAX: u32 = 10_000;

/// Parameters of a [`LossSweep`](super::LossSweep).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossSweepConfig {
    /// Rates in trial order, frames per second. Each occurs once.
    pub rates_pps: Vec<f64>,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// Largest number of repeats of an invalid trial before its point is recorded as invalid.
    pub max_invalid_repeats: u32,
}

impl LossSweepConfig {
    /// Returns a sweep with rates from `first_percent` to `last_percent` of `line_rate_pps`, `step_percent` apart. RFC 2544 requires
    /// steps of 10 % or finer, in descending order. The order does not change the meaning of a point, and an ascending sweep shows the
    /// device in its easy range first.
    ///
    /// # Errors
    /// [`ConfigError`] if a value is not finite and above zero, if the first exceeds the last, or if the sweep has more than 10,000
    /// points.
    pub fn of_line_rate(
        line_rate_pps: f64,
        first_percent: f64,
        last_percent: f64,
        step_percent: f64,
        trial_duration_s: f64,
        max_invalid_repeats: u32,
    ) -> Result<Self, ConfigError> {
        positive("line_rate_pps", line_rate_pps)?;
        positive("first_percent", first_percent)?;
        positive("last_percent", last_percent)?;
        positive("step_percent", step_percent)?;
        let percent = |part: f64| line_rate_pps * part / 100.0;
        ordered(percent(first_percent), percent(last_percent))?;
        // The summand compensates for rounding: 1 to 100 in steps of 0.1 must include the last point.
        let steps = ((last_percent - first_percent) / step_percent + 1e-9).floor();
        if steps >= f64::from(RATES_MAX) {
            return Err(ConfigError::TooManyRates {
                points: steps + 1.0,
                limit: RATES_MAX,
            });
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "below the limit, as checked above"
        )]
        let steps = steps as u32;
        let config = Self {
            // Multiplication avoids the accumulated rounding errors of a sum.
            rates_pps: (0..=steps)
                .map(|n| first_percent + f64::from(n) * step_percent)
                .map(|part| percent(part.min(last_percent)))
                .collect(),
            trial_duration_s,
            max_invalid_repeats,
        };
        config.validate()?;
        Ok(config)
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("trial_duration_s", self.trial_duration_s)?;
        if self.rates_pps.is_empty() {
            return Err(ConfigError::NoRates);
        }
        if self.rates_pps.len() > RATES_MAX as usize {
            return Err(ConfigError::TooManyRates {
                points: self.rates_pps.len() as f64,
                limit: RATES_MAX,
            });
        }
        for rate in &self.rates_pps {
            positive("rates_pps", *rate)?;
        }
        let mut sorted = self.rates_pps.clone();
        sorted.sort_by(f64::total_cmp);
        let mut pairs = sorted.iter().zip(sorted.iter().skip(1));
        match pairs.find(|(rate, next)| rate == next) {
            Some((rate, _)) => Err(ConfigError::RepeatedRate(*rate)),
            None => Ok(()),
        }
    }

    /// Returns the largest possible number of trials.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        u32::try_from(self.rates_pps.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.max_invalid_repeats.saturating_add(1))
    }
}

/// Result of a sweep at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Offered load, frames per second.
    pub rate_pps: f64,
    /// The result at this rate.
    pub value: SweepValue,
}

/// Result at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SweepValue {
    /// The loss of the one valid trial.
    Measured {
        /// Lost over offered frames, 0 to 1.
        loss_ratio: f64,
    },
    /// The trial and all its repeats were invalid, so the result is unknown.
    Invalid {
        /// Reason of each trial, oldest first.
        reasons: Vec<String>,
    },
}

/// Findings of a [`LossSweep`](super::LossSweep).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossSweepFindings {
    /// The parameters.
    pub config: LossSweepConfig,
    /// One point per rate, in trial order.
    pub points: Vec<SweepPoint>,
}
