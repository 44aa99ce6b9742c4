// SPDX-License-Identifier: Apache-2.0
//! Repetition of a search, to measure the scatter of its results. The lower the standard deviation, the more reliable are the device and
//! the method.

mod findings;

use crate::error::confidence;
use crate::ledger::Ledger;
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, Reachable, RecordError, RepeatFindings,
    RepeatedRun, SearchResult, Statistics, Step,
};

pub use findings::RepeatConfig;

impl RepeatConfig {
    /// Checks every parameter, including those of the search.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.runs == 0 {
            return Err(ConfigError::Zero { name: "runs" });
        }
        confidence(self.confidence)?;
        Reachable::new(self.search.clone()).map(|_| ())
    }
}

/// Runs of the same search, `runs` times. Each run starts from the beginning, without knowledge of the earlier ones.
#[derive(Clone, Debug)]
pub struct Repeat {
    config: RepeatConfig,
    /// Each search, before its first trial.
    fresh: Reachable,
    /// The search under way.
    search: Reachable,
    done: Vec<RepeatedRun>,
    /// All trials of all searches.
    ledger: Ledger,
}

impl Repeat {
    /// Creates the method.
    ///
    /// # Errors
    /// The error of [`RepeatConfig::validate`].
    pub fn new(config: RepeatConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let fresh = Reachable::new(config.search.clone())?;
        Ok(Self {
            search: fresh.clone(),
            fresh,
            done: Vec::new(),
            ledger: Ledger::default(),
            config,
        })
    }

    /// Returns the method with searches as by [`Reachable::raising`].
    #[must_use]
    pub fn raising(self) -> Self {
        Self {
            search: self.search.raising(),
            fresh: self.fresh.raising(),
            ..self
        }
    }

    /// Stores the result of a search and starts the next one.
    fn turn(&mut self, result: SearchResult) {
        let trials = u32::try_from(result.history.len()).unwrap_or(u32::MAX);
        let duration_s = result
            .history
            .iter()
            .map(|attempt| attempt.request.duration_s)
            .sum();
        self.done.push(RepeatedRun {
            results_pps: results(&result.findings),
            trials,
            duration_s,
            findings: result.findings,
        });
        self.search = self.fresh.clone();
    }

    fn result(&self) -> SearchResult {
        let width = self.done.first().map_or(0, |run| run.results_pps.len());
        let of = |at: usize| {
            let results = self
                .done
                .iter()
                .filter_map(|run| run.results_pps.get(at).copied());
            let values: Vec<f64> = results.flatten().collect();
            Statistics::of(&values, self.config.confidence)
        };
        SearchResult {
            findings: Findings::Repeat(Box::new(RepeatFindings {
                config: self.config.clone(),
                runs: self.done.clone(),
                statistics: (0..width).map(of).collect(),
            })),
            history: self.ledger.history().to_vec(),
        }
    }
}

/// Returns the rates that a search found.
fn results(findings: &Findings) -> Vec<Option<f64>> {
    match findings {
        Findings::SingleRun(found) => vec![found.highest_held_pps],
        Findings::BestWorst(found) => [&found.best, &found.worst]
            .into_iter()
            .flatten()
            .map(|side| side.highest_held_pps)
            .collect(),
        Findings::MlrSearch(found) => found
            .goals
            .iter()
            .map(|goal| goal.lower.map(|bound| bound.rate_pps))
            .collect(),
        _ => Vec::new(),
    }
}

impl Method for Repeat {
    fn name(&self) -> &'static str {
        "repeat"
    }

    fn width_pps(&self, rate_pps: f64) -> Option<f64> {
        self.search.width_pps(rate_pps)
    }

    fn step(&mut self) -> Step {
        while self.done.len() < self.config.runs as usize {
            match self.search.step() {
                Step::Run(request) => return Step::Run(self.ledger.issue(request)),
                Step::Done(result) => self.turn(result),
            }
        }
        Step::Done(self.result())
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        if self.done.len() >= self.config.runs as usize {
            return Err(RecordError::NothingPending);
        }
        self.search.record(outcome.clone())?;
        // The search has judged the outcome; here it is only kept.
        self.ledger.settle(outcome, u32::MAX).map(|_| ())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
