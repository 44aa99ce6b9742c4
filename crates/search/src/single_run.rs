// SPDX-License-Identifier: Apache-2.0
//! Linear steps up to the first loss, then halved steps around it: one search, one trial or the best of a few a rate.

use serde::{Deserialize, Serialize};

use crate::error::{ordered, positive};
use crate::ledger::{Ledger, Verdict};
use crate::walk::{Walk, WalkEnd};
use crate::{
    Attempt, ConfigError, Findings, LossRatio, Method, Outcome, RecordError, SearchResult, Step,
    TrialRequest,
};

/// Parameters of a [`SingleRun`]. Rates are frames per second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleRunConfig {
    /// First rate to try.
    pub start_rate_pps: f64,
    /// Step of the linear phase, and the one that the binary phase halves. A capacity under
    /// `start_rate_pps - 2 * start_step_pps` is out of the method's reach: a start rate no larger than the step
    /// puts the whole range down to `min_rate_pps` within it.
    pub start_step_pps: f64,
    /// The search stops once its step is under this. The rate found is then less than this under the capacity
    /// of a device that loses above a fixed rate and not below it.
    pub resolution_pps: f64,
    /// Loss at or under which a trial holds: zero for NDR, more for PDR.
    pub loss_tolerance: LossRatio,
    /// Length of every trial, seconds.
    pub trial_duration_s: f64,
    /// Rate under which nothing is ever offered.
    pub min_rate_pps: f64,
    /// Rate over which nothing is ever offered: line rate, or what the tester itself can send.
    pub max_rate_pps: f64,
    /// Most valid trials at one visit of a rate: the rate is taken as lost only once so many in a row have lost too much.
    /// One is the published single run, more its best-of-N.
    pub best_of: u32,
    /// How often one trial is repeated because it was invalid, before the search is given up.
    pub max_invalid_repeats: u32,
    /// Most trials in the whole search, invalid ones included.
    pub max_trials: u32,
}

impl SingleRunConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("start_rate_pps", self.start_rate_pps)?;
        positive("start_step_pps", self.start_step_pps)?;
        positive("resolution_pps", self.resolution_pps)?;
        positive("trial_duration_s", self.trial_duration_s)?;
        positive("min_rate_pps", self.min_rate_pps)?;
        positive("max_rate_pps", self.max_rate_pps)?;
        for (name, count) in [("max_trials", self.max_trials), ("best_of", self.best_of)] {
            if count == 0 {
                return Err(ConfigError::Zero { name });
            }
        }
        ordered(self.min_rate_pps, self.max_rate_pps)?;
        if !(self.min_rate_pps..=self.max_rate_pps).contains(&self.start_rate_pps) {
            return Err(ConfigError::StartOutsideBounds {
                start_rate_pps: self.start_rate_pps,
                min_rate_pps: self.min_rate_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        if self.resolution_pps > self.start_step_pps {
            return Err(ConfigError::ResolutionOverStep {
                resolution_pps: self.resolution_pps,
                start_step_pps: self.start_step_pps,
            });
        }
        if self.max_rate_pps + self.start_step_pps <= self.max_rate_pps {
            return Err(ConfigError::StepVanishes {
                start_step_pps: self.start_step_pps,
                max_rate_pps: self.max_rate_pps,
            });
        }
        Ok(())
    }

    /// Most trials that a search with these parameters can take, whatever the outcomes: for estimates of time
    /// and for progress bars. Never over `max_trials`.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        let linear = ((self.max_rate_pps - self.start_rate_pps) / self.start_step_pps).ceil() + 1.0;
        // One at the unhalved step, then one for each halving until the step is under the resolution.
        let binary = (self.start_step_pps / self.resolution_pps).log2().floor() + 2.0;
        let repeats = (f64::from(self.max_invalid_repeats) + 1.0) * f64::from(self.best_of);
        // A rounding error more in the linear phase is one trial more.
        let bound = (linear + 1.0 + binary) * repeats;
        // The cast saturates.
        (bound as u32).min(self.max_trials)
    }
}

/// How a [`SingleRun`] ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum SearchEnd {
    /// The step came under the resolution and at least one rate held.
    Converged,
    /// The highest rate allowed held: the capacity is at least that.
    HeldAtMaxRate,
    /// Not even the lowest rate allowed held: no result.
    NothingHeldAtMinRate,
    /// The step came under the resolution and no rate tried had held: no result. The capacity is under the
    /// method's reach; start lower, or with a larger step.
    NothingHeldInReach {
        /// Lowest rate that was tried.
        lowest_tried_pps: f64,
    },
    /// A trial and all its repeats were invalid: the tester failed, not the device.
    InvalidTrials {
        /// Rate of those trials.
        rate_pps: f64,
        /// Reason of each, oldest first.
        reasons: Vec<String>,
    },
    /// `max_trials` trials were run before the step came under the resolution.
    TrialLimit,
}

/// What a [`SingleRun`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SingleRunFindings {
    /// The parameters it ran with.
    pub config: SingleRunConfig,
    /// How it ended.
    pub end: SearchEnd,
    /// The result: the highest rate at which a valid trial lost no more than the tolerance. None when no trial did.
    pub highest_held_pps: Option<f64>,
    /// Valid trials at that rate or a lower one that lost *more* than the tolerance: more than zero means that the
    /// device contradicted itself, and that the result would not have been found by another order of trials.
    pub lost_at_or_under_highest_held: u32,
    /// The rate at which the method, as published, stops and which it calls the result: the last one tried, which may
    /// itself have lost too much. None when the search ended before the step came under the resolution.
    pub published_pps: Option<f64>,
    /// Whether the trial at `published_pps` held. None where that is none.
    pub published_held: Option<bool>,
}

impl SingleRunFindings {
    /// True when the capacity may be higher than the result, because a higher rate was not allowed.
    #[must_use]
    pub fn is_lower_limit_only(&self) -> bool {
        self.end == SearchEnd::HeldAtMaxRate
    }
}

/// Single-run search, as used for published virtual-switch results: steps of `start_step_pps` up while trials hold; at
/// the first that does not, one step down; from there halved steps, up after a trial that held and down after one that
/// lost too much, until the step is under the resolution.
///
/// Where the text asks for a rate beyond a bound, the bound is tried instead; a trial that holds at `max_rate_pps` in
/// the linear phase ends the search, and so does one that loses at `min_rate_pps` when nothing held before. An invalid
/// trial is repeated at the same rate. Its known weakness is that consecutive searches of a software data plane
/// disagree: see the other methods before calling one run *the* throughput.
#[derive(Clone, Debug)]
pub struct SingleRun {
    config: SingleRunConfig,
    walk: Walk,
    ledger: Ledger,
    /// Valid trials that lost too much since the search came to the present rate.
    losses_here: u32,
    /// Rate and success of the last trial, once the method itself has stopped.
    published: Option<(f64, bool)>,
    end: Option<SearchEnd>,
}

impl SingleRun {
    /// A search that has not begun.
    ///
    /// # Errors
    /// What [`SingleRunConfig::validate`] finds.
    pub fn new(config: SingleRunConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            walk: Walk::new(&config),
            ledger: Ledger::default(),
            losses_here: 0,
            published: None,
            end: None,
            config,
        })
    }

    /// Rates of valid trials that satisfy the tolerance (`held`) or don't.
    fn valid_rates(&self, held: bool) -> impl Iterator<Item = f64> + '_ {
        self.ledger
            .history()
            .iter()
            .filter(move |attempt| match attempt.outcome {
                Outcome::Valid { loss_ratio, .. } => {
                    self.config.loss_tolerance.allows(loss_ratio) == held
                }
                Outcome::Invalid { .. } => false,
            })
            .map(|attempt| attempt.request.rate_pps)
    }

    fn highest_held(&self) -> Option<f64> {
        self.valid_rates(true).reduce(f64::max)
    }

    /// Takes one valid trial at the present rate: a loss is first tried again, as often as best-of-N allows.
    fn judge(&mut self, held: bool) -> Option<SearchEnd> {
        self.losses_here += u32::from(!held);
        if !held && self.losses_here < self.config.best_of {
            return None;
        }
        self.losses_here = 0;
        self.advance(held)
    }

    /// The published method, for the verdict on the present rate. Some when the search is over.
    fn advance(&mut self, held: bool) -> Option<SearchEnd> {
        let rate_pps = self.walk.rate_pps();
        match self.walk.advance(&self.config, held)? {
            WalkEnd::HeldAtMaxRate => Some(SearchEnd::HeldAtMaxRate),
            WalkEnd::NothingHeldAtMinRate => Some(SearchEnd::NothingHeldAtMinRate),
            WalkEnd::Stopped { held } => {
                self.published = Some((rate_pps, held));
                Some(self.converged())
            }
        }
    }

    fn converged(&self) -> SearchEnd {
        if self.highest_held().is_some() {
            return SearchEnd::Converged;
        }
        let rate_pps = self.walk.rate_pps();
        if rate_pps <= self.config.min_rate_pps {
            return SearchEnd::NothingHeldAtMinRate;
        }
        let lowest = self.valid_rates(false).reduce(f64::min);
        SearchEnd::NothingHeldInReach {
            lowest_tried_pps: lowest.unwrap_or(rate_pps),
        }
    }

    fn result(&self, end: SearchEnd) -> SearchResult {
        let highest_held_pps = self.highest_held();
        let lost = self
            .valid_rates(false)
            .filter(|rate| highest_held_pps.is_some_and(|held| *rate <= held))
            .count();
        let findings = SingleRunFindings {
            config: self.config.clone(),
            end,
            highest_held_pps,
            lost_at_or_under_highest_held: u32::try_from(lost).unwrap_or(u32::MAX),
            published_pps: self.published.map(|(rate, _)| rate),
            published_held: self.published.map(|(_, held)| held),
        };
        SearchResult {
            findings: Findings::SingleRun(findings),
            history: self.ledger.history().to_vec(),
        }
    }
}

impl Method for SingleRun {
    fn name(&self) -> &'static str {
        "single-run"
    }

    fn width_pps(&self, _rate_pps: f64) -> Option<f64> {
        Some(self.config.resolution_pps)
    }

    fn step(&mut self) -> Step {
        match &self.end {
            Some(end) => Step::Done(self.result(end.clone())),
            None => Step::Run(self.ledger.issue(TrialRequest {
                rate_pps: self.walk.rate_pps(),
                duration_s: self.config.trial_duration_s,
            })),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let (request, verdict) = self
            .ledger
            .settle(outcome, self.config.max_invalid_repeats)?;
        self.end = match verdict {
            Verdict::Loss(loss_ratio) => self.judge(self.config.loss_tolerance.allows(loss_ratio)),
            Verdict::Repeat => None,
            Verdict::GiveUp => Some(SearchEnd::InvalidTrials {
                rate_pps: request.rate_pps,
                reasons: self.ledger.invalid_reasons(),
            }),
        };
        if self.end.is_none() && self.ledger.history().len() >= self.config.max_trials as usize {
            self.end = Some(SearchEnd::TrialLimit);
        }
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
