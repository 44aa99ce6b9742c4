// SPDX-License-Identifier: Apache-2.0
//! MLRsearch (RFC 9971): several loss ratio goals in one search, with short trials summed up to a duration.

mod findings;
mod goal;
mod load;
mod select;
mod table;
#[cfg(test)]
mod tests;

use self::load::{Measured, conditional_throughput};
use self::select::Selector;
use self::table::{Load, Table};
use crate::ledger::{Ledger, Verdict};
use crate::{
    Attempt, ConfigError, Findings, Method, Outcome, RecordError, SearchResult, Step, TrialRequest,
};

pub use findings::{MlrBound, MlrEnd, MlrFindings, MlrGoalResult, MlrIrregularity};
pub use goal::{MlrGoal, MlrSearchConfig};
pub use load::{DurationSums, LoadClass};

/// Multiple loss ratio search (RFC 9971): the controller.
///
/// Every trial counts for all goals. The goals are served in turn, those with the longest trials first. For each goal, the search uses
/// the apparent class of each load by its trials so far. While the apparent bounds are too far apart, a load between them gets one short
/// trial. Once they are close enough, more trials confirm the classes, or change one, and the search continues from there.
///
/// A new load between the bounds is chosen by the forwarding rate in the last trial with too much loss, by a few steps of one width from
/// the bound that was measured last, or by halving the gap.
#[derive(Clone, Debug)]
pub struct MlrSearch {
    config: MlrSearchConfig,
    table: Table,
    selectors: Vec<Selector>,
    ledger: Ledger,
    /// The next trial; `None` if the search has ended.
    next: Option<TrialRequest>,
    end: Option<MlrEnd>,
}

impl MlrSearch {
    /// Creates a search.
    ///
    /// # Errors
    /// The error of [`MlrSearchConfig::validate`].
    pub fn new(config: MlrSearchConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut search = Self {
            selectors: Selector::in_turn(&config.goals),
            table: Table::default(),
            ledger: Ledger::default(),
            next: None,
            end: None,
            config,
        };
        search.choose();
        Ok(search)
    }

    /// Returns true if the search ended without an upper bound of one of its goals, because the maximum rate held.
    pub(crate) fn held_at_max_rate(&self) -> bool {
        let has_held = |(index, goal)| {
            let irregularity = self.goal_result(index, goal).irregularity;
            irregularity == Some(MlrIrregularity::NoUpperBound)
        };
        self.end == Some(MlrEnd::Finished) && self.config.goals.iter().enumerate().any(has_held)
    }

    /// Continues a search whose maximum rate held up to a higher one, frames per second.
    pub(crate) fn raise_max_rate(&mut self, max_rate_pps: f64) {
        self.config.max_rate_pps = max_rate_pps;
        self.end = None;
        self.choose();
    }

    /// Returns true if invalid trials or their number ended the search.
    pub(crate) fn is_cut_short(&self) -> bool {
        !matches!(self.end, None | Some(MlrEnd::Finished))
    }

    /// Sets the next trial: the first one that a goal requires.
    fn choose(&mut self) {
        let (config, table) = (&self.config, &self.table);
        self.next = self
            .selectors
            .iter_mut()
            .find_map(|selector| selector.next(config, table));
        if self.next.is_none() {
            self.end = Some(MlrEnd::Finished);
        }
    }

    fn goal_result(&self, index: usize, goal: &MlrGoal) -> MlrGoalResult {
        let bounds = self.table.relevant(goal, index);
        let bound = |load: &Load| MlrBound {
            rate_pps: load.rate_pps,
            sums: load.sums_of(index),
        };
        let irregularity = match (bounds.lower, bounds.upper) {
            (None, _) => Some(MlrIrregularity::NoLowerBound),
            (Some(_), None) => Some(MlrIrregularity::NoUpperBound),
            (Some(lower), Some(upper)) if goal.is_narrow(lower.rate_pps, upper.rate_pps) => None,
            (Some(_), Some(_)) => Some(MlrIrregularity::NotNarrowed),
        };
        MlrGoalResult {
            goal: goal.clone(),
            lower: bounds.lower.map(bound),
            upper: bounds.upper.map(bound),
            conditional_throughput_pps: bounds
                .lower
                .map(|load| conditional_throughput(goal, load.rate_pps, &load.trials)),
            irregularity,
        }
    }

    fn result(&self, end: MlrEnd) -> SearchResult {
        let goals = self.config.goals.iter().enumerate();
        let findings = MlrFindings {
            config: self.config.clone(),
            end,
            goals: goals
                .map(|(index, goal)| self.goal_result(index, goal))
                .collect(),
        };
        SearchResult {
            findings: Findings::MlrSearch(findings),
            history: self.ledger.history().to_vec(),
        }
    }
}

/// Returns the relevant lower bound of each goal, in frames per second, if every invalid trial had lost this part of its frames.
pub(crate) fn relevant_lower_pps(
    config: &MlrSearchConfig,
    history: &[Attempt],
    invalid_loss_ratio: f64,
) -> Vec<Option<f64>> {
    let mut table = Table::default();
    for attempt in history {
        let (loss_ratio, effective_s) = match attempt.outcome {
            Outcome::Valid {
                loss_ratio,
                effective_duration_s,
            } => (loss_ratio, effective_duration_s),
            Outcome::Invalid { .. } => (invalid_loss_ratio, None),
        };
        let trial = Measured::of(&attempt.request, loss_ratio, effective_s);
        table.add(&config.goals, attempt.request.rate_pps, trial);
    }
    let goals = config.goals.iter().enumerate();
    goals
        .map(|(index, goal)| Some(table.relevant(goal, index).lower?.rate_pps))
        .collect()
}

impl Method for MlrSearch {
    fn name(&self) -> &'static str {
        "mlrsearch"
    }

    fn width_pps(&self, rate_pps: f64) -> Option<f64> {
        let widths = self.config.goals.iter().map(|goal| goal.width * rate_pps);
        widths.reduce(f64::min)
    }

    fn step(&mut self) -> Step {
        match (&self.end, self.next) {
            (None, Some(request)) => Step::Run(self.ledger.issue(request)),
            (end, _) => Step::Done(self.result(end.clone().unwrap_or(MlrEnd::Finished))),
        }
    }

    fn record(&mut self, outcome: Outcome) -> Result<(), RecordError> {
        let effective_s = match outcome {
            Outcome::Valid {
                effective_duration_s,
                ..
            } => effective_duration_s,
            Outcome::Invalid { .. } => None,
        };
        let (request, verdict) = self
            .ledger
            .settle(outcome, self.config.max_invalid_repeats)?;
        match verdict {
            Verdict::Loss(loss_ratio) => {
                let trial = Measured::of(&request, loss_ratio, effective_s);
                self.table.add(&self.config.goals, request.rate_pps, trial);
                self.choose();
            }
            Verdict::Repeat => {}
            Verdict::GiveUp => {
                self.end = Some(MlrEnd::InvalidTrials {
                    rate_pps: request.rate_pps,
                    reasons: self.ledger.invalid_reasons(),
                });
            }
        }
        if self.end.is_none() && self.ledger.history().len() >= self.config.max_trials as usize {
            self.end = Some(MlrEnd::TrialLimit);
        }
        Ok(())
    }

    fn history(&self) -> &[Attempt] {
        self.ledger.history()
    }
}
