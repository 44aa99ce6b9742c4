// SPDX-License-Identifier: Apache-2.0
//! Soak: search for the load with a very small loss ratio over a long time, by probabilistic loss ratio search (PLRsearch,
//! draft-vpolak-bmwg-plrsearch).

mod findings;
mod loss;
#[cfg(test)]
mod oracle;
mod posterior;
#[cfg(test)]
mod tests;

use self::loss::Shape;
use self::posterior::{Posterior, ValidTrial};
use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{CriticalLoad, SoakConfig, SoakEnd, SoakFindings};

/// Offsets of the next loads from the mean, in standard deviations. They are on both sides, more often above, where losses are more
/// informative.
const OFFSETS: [f64; 4] = [0.0, 1.0, -1.0, 2.0];

/// Soak. The first trial is at the highest rate, the second at the forwarding rate of the first. Every later trial is near the current
/// estimate of the critical load, and longer than the one before.
///
/// The programs of PLRsearch draw samples. This implementation sums over a grid, so that the same outcomes always give the same search.
#[derive(Clone, Debug)]
pub struct Soak {
    config: SoakConfig,
    ledger: Ledger,
    observed: Vec<ValidTrial>,
    trials_s: f64,
    stretch: Posterior,
    erf: Posterior,
    end: Option<SoakEnd>,
}

impl Soak {
    /// Creates a soak.
    ///
    /// # Errors
    /// The error of [`SoakConfig::validate`].
    pub fn new(config: SoakConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let ratio = config.loss_ratio.get();
        Ok(Self {
            ledger: Ledger::default(),
            observed: Vec::new(),
            trials_s: 0.0,
            stretch: Posterior::new(Shape::Stretch, ratio),
            erf: Posterior::new(Shape::Erf, ratio),
            end: None,
            config,
        })
    }

    fn estimate(&self, posterior: &Posterior) -> CriticalLoad {
        let critical = posterior.critical();
        CriticalLoad {
            mean_pps: critical.mean * self.config.max_rate_pps,
            deviation_pps: critical.deviation * self.config.max_rate_pps,
        }
    }

    /// Returns the estimate of both shapes with equal weight.
    fn critical_load(&self) -> CriticalLoad {
        let (one, other) = (self.estimate(&self.stretch), self.estimate(&self.erf));
        let variance = (one.deviation_pps.powi(2) + other.deviation_pps.powi(2)) / 2.0
            + ((one.mean_pps - other.mean_pps) / 2.0).powi(2);
        CriticalLoad {
            mean_pps: (one.mean_pps + other.mean_pps) / 2.0,
            deviation_pps: variance.sqrt(),
        }
    }

    fn next_rate(&self) -> f64 {
        let config = &self.config;
        let rate_pps = match self.observed.as_slice() {
            [] => config.max_rate_pps,
            [first] => config.max_rate_pps * (first.load - first.lost / first.frames_of_max),
            observed => {
                let critical = self.critical_load();
                let turn = observed.len().checked_rem(OFFSETS.len());
                let offset = turn.and_then(|turn| OFFSETS.get(turn).copied());
                critical.mean_pps + offset.unwrap_or_default() * critical.deviation_pps
            }
        };
        rate_pps.clamp(config.min_rate_pps, config.max_rate_pps)
    }

    fn result(&self, end: SoakEnd) -> SearchResult {
        let has_trials = !self.observed.is_empty();
        let critical = has_trials.then(|| self.critical_load());
        SearchResult {
            findings: Findings::Soak(Box::new(SoakFindings {
                config: self.config.clone(),
                end,
                critical_load: critical,
                stretch: has_trials.then(|| self.estimate(&self.stretch)),
                erf: has_trials.then(|| self.estimate(&self.erf)),
                is_over_range: critical.is_some_and(|critical| {
                    !(..=self.config.max_rate_pps).contains(&critical.mean_pps)
                }),
                trials: u32::try_from(self.observed.len()).unwrap_or(u32::MAX),
                trials_s: self.trials_s,
            })),
            history: self.ledger.history().to_vec(),
        }
    }
}

impl Method for Soak {
    fn name(&self) -> &'static str {
        "soak"
    }

    fn step(&mut self) -> Step {
        if let Some(end) = &self.end {
            return Step::Done(self.result(end.clone()));
        }
        let grown_s = self.config.trial_growth_s * self.observed.len() as f64;
        Step::Run(self.ledger.issue(TrialRequest {
            rate_pps: self.next_rate(),
            duration_s: self.config.first_trial_duration_s + grown_s,
        }))
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let (request, verdict) = self
            .ledger
            .settle(outcome, self.config.max_invalid_repeats)?;
        match verdict {
            Verdict::Repeat => {}
            Verdict::GiveUp => {
                self.end = Some(SoakEnd::InvalidTrials {
                    rate_pps: request.rate_pps,
                    reasons: self.ledger.invalid_reasons(),
                });
            }
            Verdict::Loss(loss_ratio) => {
                self.observed.push(ValidTrial {
                    load: request.rate_pps / self.config.max_rate_pps,
                    frames_of_max: self.config.max_rate_pps * request.duration_s,
                    lost: loss_ratio * request.rate_pps * request.duration_s,
                });
                self.stretch.add(&self.observed);
                self.erf.add(&self.observed);
                self.trials_s += request.duration_s;
                if self.trials_s >= self.config.duration_s {
                    self.end = Some(SoakEnd::Finished);
                }
            }
        }
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
