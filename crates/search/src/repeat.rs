// SPDX-License-Identifier: Apache-2.0
//! The same search many times over: how far apart its results are. The lower the standard deviation, the more a device
//! (and a method) can be relied on.

use serde::{Deserialize, Serialize};

use crate::error::confidence;
use crate::ledger::Ledger;
use crate::{
    Attempt, BestWorst, BestWorstConfig, ConfigError, Findings, Method, MlrSearch, MlrSearchConfig,
    Outcome, RecordError, SearchResult, SingleRun, SingleRunConfig, Statistics, Step,
};

/// The search to repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
pub enum Repeated {
    /// Single runs, whose result is the highest rate that held.
    SingleRun(SingleRunConfig),
    /// Best-of-N, worst-of-N or both: one result a side, best first.
    BestWorstOfN(BestWorstConfig),
    /// MLRsearches: one result a goal, the relevant lower bound.
    #[serde(rename = "mlrsearch")]
    MlrSearch(MlrSearchConfig),
}

impl Repeated {
    fn search(&self) -> Result<Search, ConfigError> {
        Ok(match self {
            Self::SingleRun(config) => Search::SingleRun(SingleRun::new(config.clone())?),
            Self::BestWorstOfN(config) => Search::BestWorst(BestWorst::new(config.clone())?),
            Self::MlrSearch(config) => Search::MlrSearch(MlrSearch::new(config.clone())?),
        })
    }
}

/// Parameters of a [`Repeat`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatConfig {
    /// The search, the same each time.
    pub search: Repeated,
    /// How often. Many more than 10 say something about a device.
    pub runs: u32,
    /// Level of the confidence interval, between 0 and 1: 0.95.
    pub confidence: f64,
}

impl RepeatConfig {
    /// Checks every parameter, those of the search included.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.runs == 0 {
            return Err(ConfigError::Zero { name: "runs" });
        }
        confidence(self.confidence)?;
        self.search.search().map(|_| ())
    }
}

/// One of the searches.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatedRun {
    /// Results in frames per second, one a goal or side; none where that search had no result. One that is only a limit,
    /// since no higher rate was allowed, counts as what was seen to hold.
    pub results_pps: Vec<Option<f64>>,
    /// Trials that it took, invalid ones included.
    pub trials: u32,
    /// Time that its trials asked for, seconds.
    pub duration_s: f64,
    /// Everything that it found.
    pub findings: Findings,
}

/// What a [`Repeat`] found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RepeatFindings {
    /// The parameters it ran with.
    pub config: RepeatConfig,
    /// The searches, in order.
    pub runs: Vec<RepeatedRun>,
    /// Of the results, one a goal or side, over the searches that had one: `count` says how many. None where none had.
    pub statistics: Vec<Option<Statistics>>,
}

#[derive(Clone, Debug)]
enum Search {
    SingleRun(SingleRun),
    BestWorst(BestWorst),
    MlrSearch(MlrSearch),
}

impl Search {
    fn as_method(&self) -> &dyn Method {
        match self {
            Self::SingleRun(search) => search,
            Self::BestWorst(search) => search,
            Self::MlrSearch(search) => search,
        }
    }

    fn method(&mut self) -> &mut dyn Method {
        match self {
            Self::SingleRun(search) => search,
            Self::BestWorst(search) => search,
            Self::MlrSearch(search) => search,
        }
    }
}

/// The same search `runs` times, each from the start and without knowledge of the ones before.
#[derive(Clone, Debug)]
pub struct Repeat {
    config: RepeatConfig,
    /// The search under way.
    search: Search,
    done: Vec<RepeatedRun>,
    /// All trials of all searches.
    ledger: Ledger,
}

impl Repeat {
    /// A method that has not begun.
    ///
    /// # Errors
    /// What [`RepeatConfig::validate`] finds.
    pub fn new(config: RepeatConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            search: config.search.search()?,
            done: Vec::new(),
            ledger: Ledger::default(),
            config,
        })
    }

    /// Puts the search that is through among the others, and starts the next one.
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
        // Its parameters were good for the first one.
        if let Ok(search) = self.config.search.search() {
            self.search = search;
        }
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

/// The rates that a search found.
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
        self.search.as_method().width_pps(rate_pps)
    }

    fn step(&mut self) -> Step {
        while self.done.len() < self.config.runs as usize {
            match self.search.method().step() {
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
        self.search.method().record(outcome.clone())?;
        // The search has judged the outcome; here it is only kept.
        self.ledger.settle(outcome, u32::MAX).map(|_| ())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
