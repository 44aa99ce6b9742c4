// SPDX-License-Identifier: Apache-2.0
//! Single-run search: linear steps up to the first loss, then halved steps around it, with one trial or best-of-N at each rate.

mod findings;

use crate::ledger::{Ledger, Verdict};
use crate::walk::{Walk, WalkEnd};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{SearchEnd, SingleRunConfig, SingleRunFindings};

/// Single-run search, as used for published virtual-switch results. The rate increases in steps of `start_step_pps` while trials hold. At
/// the first trial that does not, it decreases by one step. From there, the step is halved each time: up after a trial that held, down
/// after one that lost too much, until the step is below the resolution.
///
/// If the method requires a rate beyond a bound, the bound is tried instead. A trial that holds at `max_rate_pps` in the linear phase
/// ends the search, and so does one that loses at `min_rate_pps` if nothing held before. An invalid trial is repeated at the same rate.
///
/// A known weakness is that consecutive searches of a software data plane disagree. See the other methods before you call one run *the*
/// throughput.
#[derive(Clone, Debug)]
pub struct SingleRun {
    config: SingleRunConfig,
    walk: Walk,
    ledger: Ledger,
    /// Number of valid trials that lost too much since the search came to the current rate.
    losses_here: u32,
    /// Rate and success of the last trial, once the method itself has ended.
    published: Option<(f64, bool)>,
    end: Option<SearchEnd>,
}

impl SingleRun {
    /// Creates a search.
    ///
    /// # Errors
    /// The error of [`SingleRunConfig::validate`].
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

    /// Returns true if the search ended because its maximum rate held.
    pub(crate) fn held_at_max_rate(&self) -> bool {
        self.end == Some(SearchEnd::HeldAtMaxRate)
    }

    /// Continues a search whose maximum rate held up to a higher one, frames per second.
    pub(crate) fn raise_max_rate(&mut self, max_rate_pps: f64) {
        self.config.max_rate_pps = max_rate_pps;
        self.walk.continue_up(&self.config);
        self.end = None;
    }

    /// Returns true if invalid trials or their number ended the search.
    pub(crate) fn is_cut_short(&self) -> bool {
        matches!(
            self.end,
            Some(SearchEnd::InvalidTrials { .. } | SearchEnd::TrialLimit)
        )
    }

    /// Returns the rates of valid trials that satisfy the tolerance (`held`), or of those that do not.
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

    /// Records a valid trial at the current rate. A loss is repeated as often as best-of-N permits.
    fn record_verdict(&mut self, held: bool) -> Option<SearchEnd> {
        self.losses_here = self.losses_here.saturating_add(u32::from(!held));
        if !held && self.losses_here < self.config.best_of {
            return None;
        }
        self.losses_here = 0;
        self.advance(held)
    }

    /// Advances the published method by the verdict on the current rate. Returns the reason if the search ends.
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
            Verdict::Loss(loss_ratio) => {
                self.record_verdict(self.config.loss_tolerance.allows(loss_ratio))
            }
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
