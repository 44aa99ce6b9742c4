// SPDX-License-Identifier: Apache-2.0
//! Soak: the load at which a tiny part is lost over a long time, by probabilistic loss ratio search (PLRsearch,
//! draft-vpolak-bmwg-plrsearch).

mod loss;
#[cfg(test)]
mod oracle;
mod posterior;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use self::loss::Shape;
use self::posterior::{Posterior, Seen};
use crate::error::{ordered, positive};
use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, LossRatio, Method, Outcome, RecordError, SearchResult, Step,
    TrialRequest,
};

/// Where the next loads are, in standard deviations from the mean: on both sides, more often above, where losses tell.
const OFFSETS: [f64; 4] = [0.0, 1.0, -1.0, 2.0];

/// Parameters of a [`Soak`]. Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakConfig {
    /// The part that may be lost at the critical load, above zero: 1e-7.
    pub loss_ratio: LossRatio,
    /// Rate under which nothing is ever offered.
    pub min_rate_pps: f64,
    /// Rate over which nothing is ever offered.
    pub max_rate_pps: f64,
    /// Length of the first trial, seconds.
    pub first_trial_duration_s: f64,
    /// Every valid trial is longer than the one before by so much, seconds.
    pub trial_growth_s: f64,
    /// The soak ends when its valid trials were so long together, seconds.
    pub duration_s: f64,
    /// How often one trial is repeated because it was invalid, before all is given up.
    pub max_invalid_repeats: u32,
}

impl SoakConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("loss_ratio", self.loss_ratio.get())?;
        positive("min_rate_pps", self.min_rate_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        positive("first_trial_duration_s", self.first_trial_duration_s)?;
        positive("trial_growth_s", self.trial_growth_s)?;
        positive("duration_s", self.duration_s)?;
        ordered(self.min_rate_pps, self.max_rate_pps)?;
        Ok(())
    }
}

/// How a [`Soak`] ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SoakEnd {
    /// The time was up.
    Finished,
    /// A trial and all its repeats were invalid: the tester failed, not the device.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
}

/// An estimate, frames per second.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CriticalLoad {
    /// Its mean.
    pub mean_pps: f64,
    /// Its standard deviation.
    pub deviation_pps: f64,
}

/// What a [`Soak`] found. An estimate, not a rate that was seen to hold.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SoakFindings {
    /// The parameters it ran with.
    pub config: SoakConfig,
    /// How it ended.
    pub end: SoakEnd,
    /// The critical load: the mean of both shapes; the deviation has how far apart they are in it. None without a valid
    /// trial.
    pub critical_load: Option<CriticalLoad>,
    /// By the shape with exponential tails.
    pub stretch: Option<CriticalLoad>,
    /// By the shape with normal tails.
    pub erf: Option<CriticalLoad>,
    /// True when the estimate is over the highest rate allowed: there the device was not seen to lose enough.
    pub is_over_range: bool,
    /// Valid trials.
    pub trials: u32,
    /// How long they were together, seconds.
    pub trials_s: f64,
}

/// Soak. The first trial is at the highest rate, the second at what came through; from there on each is near the critical
/// load as it is known so far, and longer than the one before.
///
/// Unlike PLRsearch's own programs, which draw samples, this one sums over a grid: the same outcomes always give the same
/// search.
#[derive(Clone, Debug)]
pub struct Soak {
    config: SoakConfig,
    ledger: Ledger,
    seen: Vec<Seen>,
    trials_s: f64,
    stretch: Posterior,
    erf: Posterior,
    end: Option<SoakEnd>,
}

impl Soak {
    /// A soak that has not begun.
    ///
    /// # Errors
    /// What [`SoakConfig::validate`] finds.
    pub fn new(config: SoakConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let ratio = config.loss_ratio.get();
        Ok(Self {
            ledger: Ledger::default(),
            seen: Vec::new(),
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

    /// Both shapes with the same weight.
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
        let rate_pps = match self.seen.as_slice() {
            [] => config.max_rate_pps,
            [first] => config.max_rate_pps * (first.load - first.lost / first.frames_of_max),
            seen => {
                let critical = self.critical_load();
                critical.mean_pps + OFFSETS[seen.len() % OFFSETS.len()] * critical.deviation_pps
            }
        };
        rate_pps.clamp(config.min_rate_pps, config.max_rate_pps)
    }

    fn result(&self, end: SoakEnd) -> SearchResult {
        let has_seen = !self.seen.is_empty();
        let critical = has_seen.then(|| self.critical_load());
        SearchResult {
            findings: Findings::Soak(Box::new(SoakFindings {
                config: self.config.clone(),
                end,
                critical_load: critical,
                stretch: has_seen.then(|| self.estimate(&self.stretch)),
                erf: has_seen.then(|| self.estimate(&self.erf)),
                is_over_range: critical.is_some_and(|critical| {
                    !(..=self.config.max_rate_pps).contains(&critical.mean_pps)
                }),
                trials: u32::try_from(self.seen.len()).unwrap_or(u32::MAX),
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
        let grown_s = self.config.trial_growth_s * self.seen.len() as f64;
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
                self.seen.push(Seen {
                    load: request.rate_pps / self.config.max_rate_pps,
                    frames_of_max: self.config.max_rate_pps * request.duration_s,
                    lost: loss_ratio * request.rate_pps * request.duration_s,
                });
                self.stretch.add(&self.seen);
                self.erf.add(&self.seen);
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
