// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the loss sweep.

use serde::{Deserialize, Serialize};

use crate::ConfigError;
use crate::error::{ordered, positive};

/// Most rates in one sweep: ten times what steps of 0.1 % of line rate make.
pub(super) const RATES_MAX: u32 = 10_000;

/// Parameters of a [`LossSweep`](super::LossSweep).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossSweepConfig {
    /// Rates in the order they are tried, frames per second, each once.
    pub rates_pps: Vec<f64>,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// How often one trial is repeated because it was invalid, before its point is recorded as invalid.
    pub max_invalid_repeats: u32,
}

impl LossSweepConfig {
    /// Rates from `first_percent` to `last_percent` of `line_rate_pps`, `step_percent` apart. RFC 2544 asks for steps
    /// of 10 % or finer, and goes downwards; the order does not change what a point means, and upwards shows the
    /// device in its easy range first.
    ///
    /// # Errors
    /// [`ConfigError`] for anything not finite and above zero, for a first above the last, and for a step so fine that
    /// the sweep would have more than 10,000 points.
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
        // A hair more than exact, so that 1 to 100 in steps of 0.1 does not lose its last point to rounding.
        let steps = ((last_percent - first_percent) / step_percent + 1e-9).floor();
        if steps >= f64::from(RATES_MAX) {
            return Err(ConfigError::TooManyRates {
                points: steps + 1.0,
                limit: RATES_MAX,
            });
        }
        let config = Self {
            // Multiplied, not summed: errors of rounding don't pile up.
            rates_pps: (0..=steps as u32)
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
        match sorted.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(ConfigError::RepeatedRate(pair[0])),
            None => Ok(()),
        }
    }

    /// Most trials that the sweep can take, whatever the outcomes.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        u32::try_from(self.rates_pps.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.max_invalid_repeats.saturating_add(1))
    }
}

/// What a sweep saw at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SweepPoint {
    /// Offered load, frames per second.
    pub rate_pps: f64,
    /// What was seen there.
    pub value: SweepValue,
}

/// What is known at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum SweepValue {
    /// The loss of the one valid trial.
    Measured {
        /// Lost over offered frames, 0 to 1.
        loss_ratio: f64,
    },
    /// The trial and all its repeats were invalid; nothing is known at this rate.
    Invalid {
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
}

/// What a [`LossSweep`](super::LossSweep) found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossSweepFindings {
    /// The parameters it ran with.
    pub config: LossSweepConfig,
    /// One point for each rate, in the order they were tried.
    pub points: Vec<SweepPoint>,
}
