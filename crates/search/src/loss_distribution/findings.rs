// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of the loss distribution.

use serde::{Deserialize, Serialize};

use crate::error::positive;
use crate::{ConfigError, LossSweepConfig};

/// Parameters of a [`LossDistribution`](super::LossDistribution).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossDistributionConfig {
    /// Rates in trial order, frames per second. Each occurs once.
    pub rates_pps: Vec<f64>,
    /// N: trials at each rate.
    pub trials: u32,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// Largest number of repeats of an invalid trial before it is left out.
    pub max_invalid_repeats: u32,
}

impl LossDistributionConfig {
    /// Returns `count` evenly spaced rates between two ends, both included: the results of worst-of-N and best-of-N.
    ///
    /// # Errors
    /// [`ConfigError`] if an end is not finite and above zero, or if there are no rates.
    pub fn between(
        ends_pps: (f64, f64),
        rates: u32,
        trials: u32,
        trial_duration_s: f64,
        max_invalid_repeats: u32,
    ) -> Result<Self, ConfigError> {
        let ends_pps = (
            positive("ends_pps", ends_pps.0)?,
            positive("ends_pps", ends_pps.1)?,
        );
        let first = ends_pps.0.min(ends_pps.1);
        let last = ends_pps.0.max(ends_pps.1);
        let parts = f64::from(rates.saturating_sub(1).max(1));
        let mut rates_pps: Vec<f64> = (0..rates)
            .map(|n| first + (last - first) * f64::from(n) / parts)
            .collect();
        // If both ends are equal, there is one rate.
        rates_pps.dedup();
        let config = Self {
            rates_pps,
            trials,
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
        if self.trials == 0 {
            return Err(ConfigError::Zero { name: "trials" });
        }
        LossSweepConfig {
            rates_pps: self.rates_pps.clone(),
            trial_duration_s: self.trial_duration_s,
            max_invalid_repeats: self.max_invalid_repeats,
        }
        .validate()
    }

    /// Returns the largest possible number of trials.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        u32::try_from(self.rates_pps.len())
            .unwrap_or(u32::MAX)
            .saturating_mul(self.trials)
            .saturating_mul(self.max_invalid_repeats.saturating_add(1))
    }
}

/// Losses at one rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RateLosses {
    /// The rate, frames per second.
    pub rate_pps: f64,
    /// Loss ratios of the valid trials, ascending.
    pub loss_ratios: Vec<f64>,
    /// Trials left out because the tester failed repeatedly.
    pub invalid: u32,
}

impl RateLosses {
    /// Returns the loss ratio that the given part of the trials, 0 to 1, did not exceed (nearest rank); 1 gives the worst trial. Returns
    /// `None` if there are too few trials to distinguish it from the worst one: 0.9 requires 10, 0.99 requires 100.
    #[must_use]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a rank is at most the number of trials, and the cast saturates"
    )]
    pub fn at(&self, part: f64) -> Option<f64> {
        let count = self.loss_ratios.len() as f64;
        // The subtrahend compensates for rounding: 0.9 of 10 is rank 9, although 0.9 is not exact in binary.
        let rank = (part * count - 1e-9).ceil().max(1.0);
        let is_borne = part >= 1.0 || count * (1.0 - part) >= 1.0 - 1e-9;
        let index = (rank as usize).saturating_sub(1);
        (is_borne && (0.0..=1.0).contains(&part))
            .then(|| self.loss_ratios.get(index).copied())
            .flatten()
    }
}

/// Findings of a [`LossDistribution`](super::LossDistribution).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossDistributionFindings {
    /// The parameters.
    pub config: LossDistributionConfig,
    /// Losses by rate, in the order of the parameters.
    pub rates: Vec<RateLosses>,
}
