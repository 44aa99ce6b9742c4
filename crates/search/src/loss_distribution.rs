// SPDX-License-Identifier: Apache-2.0
//! Loss distribution: N trials at each of several rates, usually those between worst-of-N and best-of-N, evaluated by percentile.

mod findings;

use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{LossDistributionConfig, LossDistributionFindings, RateLosses};

/// Loss distribution: N rounds over all rates, so that changes over time affect all rates.
#[derive(Clone, Debug)]
pub struct LossDistribution {
    config: LossDistributionConfig,
    ledger: Ledger,
    rates: Vec<RateLosses>,
    /// Number of trials settled so far, including those left out.
    settled: usize,
}

impl LossDistribution {
    /// Creates a loss distribution.
    ///
    /// # Errors
    /// The error of [`LossDistributionConfig::validate`].
    pub fn new(config: LossDistributionConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let rates = config.rates_pps.iter().map(|rate_pps| RateLosses {
            rate_pps: *rate_pps,
            loss_ratios: Vec::new(),
            invalid: 0,
        });
        Ok(Self {
            rates: rates.collect(),
            ledger: Ledger::default(),
            settled: 0,
            config,
        })
    }

    /// Returns the index of the current rate; `None` if all trials are done.
    fn position(&self) -> Option<usize> {
        let rates = self.rates.len();
        let all = rates.saturating_mul(self.config.trials as usize);
        self.settled
            .checked_rem(rates)
            .filter(|_| self.settled < all)
    }
}

impl Method for LossDistribution {
    fn name(&self) -> &'static str {
        "loss-distribution"
    }

    fn step(&mut self) -> Step {
        match self.position().and_then(|at| self.rates.get(at)) {
            Some(rate) => Step::Run(self.ledger.issue(TrialRequest {
                rate_pps: rate.rate_pps,
                duration_s: self.config.trial_duration_s,
            })),
            None => Step::Done(SearchResult {
                findings: Findings::LossDistribution(LossDistributionFindings {
                    config: self.config.clone(),
                    rates: self.rates.clone(),
                }),
                history: self.ledger.history().to_vec(),
            }),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let (_, verdict) = self
            .ledger
            .settle(outcome, self.config.max_invalid_repeats)?;
        let at = self.position().ok_or(RecordError::NothingPending)?;
        let rate = self.rates.get_mut(at);
        let rate = rate.ok_or(RecordError::NothingPending)?;
        match verdict {
            Verdict::Repeat => return Ok(()),
            Verdict::Loss(loss_ratio) => {
                let rank = rate
                    .loss_ratios
                    .partition_point(|observed| *observed <= loss_ratio);
                rate.loss_ratios.insert(rank, loss_ratio);
            }
            Verdict::GiveUp => {
                rate.invalid = rate.invalid.saturating_add(1);
                self.ledger.discard_failure();
            }
        }
        self.settled = self.settled.saturating_add(1);
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
