// SPDX-License-Identifier: Apache-2.0
//! Loss distribution: N trials at each of a few rates, mostly those between worst-of-N and best-of-N, by percentile.

mod findings;

use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{LossDistributionConfig, LossDistributionFindings, RateLosses};

/// Loss distribution: all rates are gone through N times, in turns, so that what changes over time meets all of them.
#[derive(Clone, Debug)]
pub struct LossDistribution {
    config: LossDistributionConfig,
    ledger: Ledger,
    rates: Vec<RateLosses>,
    /// Trials settled so far, left-out ones included.
    settled: usize,
}

impl LossDistribution {
    /// A method that has not begun.
    ///
    /// # Errors
    /// What [`LossDistributionConfig::validate`] finds.
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

    /// Which rate is tried now; none when all is done.
    fn position(&self) -> Option<usize> {
        let all = self.rates.len() * self.config.trials as usize;
        (self.settled < all).then(|| self.settled % self.rates.len())
    }
}

impl Method for LossDistribution {
    fn name(&self) -> &'static str {
        "loss-distribution"
    }

    fn step(&mut self) -> Step {
        match self.position() {
            Some(at) => Step::Run(self.ledger.issue(TrialRequest {
                rate_pps: self.rates[at].rate_pps,
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
        let at = self.settled % self.rates.len();
        let rate = &mut self.rates[at];
        match verdict {
            Verdict::Repeat => return Ok(()),
            Verdict::Loss(loss_ratio) => {
                let rank = rate.loss_ratios.partition_point(|seen| *seen <= loss_ratio);
                rate.loss_ratios.insert(rank, loss_ratio);
            }
            Verdict::GiveUp => {
                rate.invalid += 1;
                self.ledger.forgive();
            }
        }
        self.settled += 1;
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
