// SPDX-License-Identifier: Apache-2.0
//! A search that lowers its maximum rate if the tester cannot reach it, and raises it if the device forwards all of it.
//!
//! The rate that a tester reaches changes with the machine. A search that insists on a rate which is out of reach ends without a
//! result, although it could report a lower bound. A maximum rate that was measured while the machine was slow makes a lower bound of a
//! rate that the search could find.

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

/// Factor by which a maximum rate that held is raised, and the highest number of times in one search.
const RAISE: f64 = 1.5;
const RAISED_MAX: u32 = 2;
/// Least factor by which a maximum rate is raised again after the tester missed a higher one.
const LEAST_RAISE: f64 = 1.02;

/// A search for the throughput with a maximum rate that the tester reaches.
///
/// After five trials in a row in which the tester missed their rate (fewer, if fewer repeats are allowed), the search starts
/// again with a lower maximum: 95 % of the highest rate that the tester achieved in them, at most 90 % of the missed one. A
/// search lowers its maximum up to four times. Its findings have the last maximum; its history has all trials.
///
/// If its maximum rate was measured ([`Self::raising`]), a search whose maximum held continues up to 1.5 times the rate, up to twice, unless
/// the maximum was lowered before. If the tester fails above a maximum that held, the result is the one without the raise.
#[derive(Clone, Debug)]
pub struct Reachable {
    config: ThroughputSearch,
    search: Search,
    /// All trials.
    ledger: Ledger,
    missed: Missed,
    lowered: u32,
    /// Number of times that the maximum may still be raised.
    raises_left: u32,
    /// The search whose maximum held, before the maximum was raised.
    held: Option<Held>,
}

/// A finished search whose maximum rate held.
#[derive(Clone, Debug)]
struct Held {
    search: Search,
    max_rate_pps: f64,
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

    fn held_at_max_rate(&self) -> bool {
        match self {
            Self::SingleRun(search) => search.held_at_max_rate(),
            Self::BestWorst(search) => search.held_at_max_rate(),
            Self::MlrSearch(search) => search.held_at_max_rate(),
        }
    }

    fn is_cut_short(&self) -> bool {
        match self {
            Self::SingleRun(search) => search.is_cut_short(),
            Self::BestWorst(search) => search.is_cut_short(),
            Self::MlrSearch(search) => search.is_cut_short(),
        }
    }

    fn raise_max_rate(&mut self, max_rate_pps: f64) {
        match self {
            Self::SingleRun(search) => search.raise_max_rate(max_rate_pps),
            Self::BestWorst(search) => search.raise_max_rate(max_rate_pps),
            Self::MlrSearch(search) => search.raise_max_rate(max_rate_pps),
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
            raises_left: 0,
            held: None,
            config,
        })
    }

    /// Returns the search with a maximum rate that may be raised, because it was measured.
    #[must_use]
    pub fn raising(self) -> Self {
        Self {
            raises_left: RAISED_MAX,
            ..self
        }
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
        if let Some(held) = &self.held {
            self.raises_left = 0;
            self.lowered = self.lowered.saturating_add(1);
            self.search = held.search.clone();
            if max_rate_pps > held.max_rate_pps * LEAST_RAISE {
                self.search.raise_max_rate(max_rate_pps);
            }
            return;
        }
        let lowered = self.config.with_max_rate(max_rate_pps);
        if let Ok(search) = Search::new(&lowered) {
            self.config = lowered;
            self.search = search;
            self.lowered = self.lowered.saturating_add(1);
        }
    }

    /// Raises a maximum rate that held, and returns to it if the search above it ended without a result.
    fn raise_or_return(&mut self) {
        if let Some(held) = self.held.as_ref().filter(|_| self.search.is_cut_short()) {
            self.search = held.search.clone();
            self.raises_left = 0;
        }
        if self.raises_left == 0 || self.lowered > 0 || !self.search.held_at_max_rate() {
            return;
        }
        self.raises_left = self.raises_left.saturating_sub(1);
        let max_rate_pps = match &self.held {
            Some(held) => held.max_rate_pps * RAISE,
            None => self.config.max_rate_pps(),
        };
        self.held = Some(Held {
            search: self.search.clone(),
            max_rate_pps,
        });
        self.search.raise_max_rate(max_rate_pps * RAISE);
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
        self.raise_or_return();
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
