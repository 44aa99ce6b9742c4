// SPDX-License-Identifier: Apache-2.0
//! A search that lowers its maximum rate if the tester cannot reach it.
//!
//! The rate that a tester reaches changes with the machine. A search that insists on a rate which is out of reach ends without a
//! result, although it could report a lower bound.

use crate::ledger::Ledger;
use crate::{
    Attempt, BestWorst, ConfigError, Method, MlrSearch, Outcome, RecordError, SearchResult,
    SingleRun, Step, ThroughputSearch, TrialRequest,
};

/// Trials at one rate in which the tester missed the rate, one after the other, before the maximum is lowered.
const MISSED_TRIALS: u32 = 5;
/// Most times that the maximum of one search is lowered.
const LOWERED_MAX: u32 = 4;
/// New maximum as a share of the highest rate that the tester achieved in the trials that missed their rate.
const ACHIEVED_SHARE: f64 = 0.95;
/// New maximum as a share of the missed rate, at most.
const MISSED_SHARE: f64 = 0.9;

/// A search for the throughput with a maximum rate that the tester reaches.
///
/// After five trials in a row in which the tester missed their rate (fewer, if fewer repeats are allowed), the search starts
/// again with a lower maximum: 95 % of the highest rate that the tester achieved in them, at most 90 % of the missed one. A
/// search lowers its maximum up to four times. Its findings have the last maximum; its history has all trials.
#[derive(Clone, Debug)]
pub struct Reachable {
    config: ThroughputSearch,
    search: Search,
    /// All trials.
    ledger: Ledger,
    missed: Missed,
    lowered: u32,
}

/// The last trials, if the tester missed their rate.
#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    in_a_row: u32,
    /// Highest rate achieved in them, frames per second.
    achieved_pps: f64,
}

#[derive(Clone, Debug)]
enum Search {
    SingleRun(SingleRun),
    BestWorst(BestWorst),
    MlrSearch(MlrSearch),
}

impl Search {
    fn new(config: &ThroughputSearch) -> Result<Self, ConfigError> {
        Ok(match config {
            ThroughputSearch::SingleRun(config) => Self::SingleRun(SingleRun::new(config.clone())?),
            ThroughputSearch::BestWorstOfN(config) => {
                Self::BestWorst(BestWorst::new(config.clone())?)
            }
            ThroughputSearch::MlrSearch(config) => Self::MlrSearch(MlrSearch::new(config.clone())?),
        })
    }

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

impl Reachable {
    /// Creates a search that has not begun.
    ///
    /// # Errors
    /// Those of the search's parameters.
    pub fn new(config: ThroughputSearch) -> Result<Self, ConfigError> {
        Ok(Self {
            search: Search::new(&config)?,
            ledger: Ledger::default(),
            missed: Missed::default(),
            lowered: 0,
            config,
        })
    }

    /// Counts the trials in a row that missed their rate. Returns true if that is enough to lower the maximum.
    fn count(&mut self, outcome: &Outcome) -> bool {
        let Outcome::Invalid {
            achieved_rate_pps: Some(achieved_pps),
            ..
        } = outcome
        else {
            self.missed = Missed::default();
            return false;
        };
        self.missed.in_a_row = self.missed.in_a_row.saturating_add(1);
        self.missed.achieved_pps = self.missed.achieved_pps.max(*achieved_pps);
        let allowed = self.config.max_invalid_repeats().saturating_add(1);
        self.missed.in_a_row >= MISSED_TRIALS.min(allowed) && self.lowered < LOWERED_MAX
    }

    /// Starts again under a rate that the tester missed. Without a rate left to search, nothing changes.
    fn lower(&mut self, missed_pps: f64) {
        let achieved_pps = self.missed.achieved_pps * ACHIEVED_SHARE;
        let max_rate_pps = achieved_pps.min(missed_pps * MISSED_SHARE);
        self.missed = Missed::default();
        let lowered = self.config.with_max_rate(max_rate_pps);
        if let Ok(search) = Search::new(&lowered) {
            self.config = lowered;
            self.search = search;
            self.lowered = self.lowered.saturating_add(1);
        }
    }
}

impl Method for Reachable {
    fn name(&self) -> &'static str {
        self.search.as_method().name()
    }

    fn width_pps(&self, rate_pps: f64) -> Option<f64> {
        self.search.as_method().width_pps(rate_pps)
    }

    fn step(&mut self) -> Step {
        match self.search.method().step() {
            Step::Run(request) => Step::Run(self.ledger.issue(request)),
            Step::Done(result) => Step::Done(SearchResult {
                findings: result.findings,
                history: self.ledger.history().to_vec(),
            }),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        self.search.method().record(outcome.clone())?;
        let is_missed = self.count(&outcome);
        // The search has judged the outcome; here it is only kept.
        let (TrialRequest { rate_pps, .. }, _) = self.ledger.settle(outcome, u32::MAX)?;
        if is_missed {
            self.lower(rate_pps);
        }
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
