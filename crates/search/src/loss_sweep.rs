// SPDX-License-Identifier: Apache-2.0
//! Frame loss rate sweep (RFC 2544, section 26.3): one trial at each rate of a list.

mod findings;

use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{LossSweepConfig, LossSweepFindings, SweepPoint, SweepValue};

/// Frame loss rate sweep: one trial at each rate of a list. An invalid trial is repeated. After the last repeat, the point is recorded as
/// invalid and the sweep continues.
#[derive(Clone, Debug)]
pub struct LossSweep {
    config: LossSweepConfig,
    points: Vec<SweepPoint>,
    ledger: Ledger,
}

impl LossSweep {
    /// Creates a sweep.
    ///
    /// # Errors
    /// The error of [`LossSweepConfig::validate`].
    pub fn new(config: LossSweepConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            config,
            points: Vec::new(),
            ledger: Ledger::default(),
        })
    }
}

impl Method for LossSweep {
    fn name(&self) -> &'static str {
        "loss-sweep"
    }

    fn step(&mut self) -> Step {
        match self.config.rates_pps.get(self.points.len()) {
            Some(rate_pps) => Step::Run(self.ledger.issue(TrialRequest {
                rate_pps: *rate_pps,
                duration_s: self.config.trial_duration_s,
            })),
            None => Step::Done(SearchResult {
                findings: Findings::LossSweep(LossSweepFindings {
                    config: self.config.clone(),
                    points: self.points.clone(),
                }),
                history: self.ledger.history().to_vec(),
            }),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let (request, verdict) = self
            .ledger
            .settle(outcome, self.config.max_invalid_repeats)?;
        let value = match verdict {
            Verdict::Repeat => return Ok(()),
            Verdict::Loss(loss_ratio) => SweepValue::Measured { loss_ratio },
            Verdict::GiveUp => {
                let reasons = self.ledger.invalid_reasons();
                self.ledger.discard_failure();
                SweepValue::Invalid { reasons }
            }
        };
        self.points.push(SweepPoint {
            rate_pps: request.rate_pps,
            value,
        });
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
