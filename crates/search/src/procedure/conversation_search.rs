// SPDX-License-Identifier: Apache-2.0
//! Searches over conversations (RFC 9411, sections 7.2 and 7.5): the highest rate of connections or transactions, or the largest number
//! of open connections, at which no more attempts fail than the goal allows.

mod findings;

use super::action::{Action, Observation};
use super::conversations::{ConversationCounts, ConversationLoad, ConversationTrial};
use super::progress::Progress;
use super::result::{PerformedAction, ProcedureFindings, ProcedureResult};
use super::step::{Procedure, ProcedureStep};
use crate::{
    ConfigError, Findings, Method, Outcome, Reachable, RecordError, SearchEnd, Step,
    ThroughputSearch,
};

pub use findings::{
    ConversationQuantity, ConversationSearchConfig, ConversationSearchEnd,
    ConversationSearchFindings,
};

/// Search over conversations, by the steps of a [`crate::SingleRun`].
#[derive(Clone, Debug)]
pub struct ConversationSearch {
    config: ConversationSearchConfig,
    search: Reachable,
    progress: Progress,
    held: Option<(f64, ConversationCounts)>,
    failed: Option<(f64, ConversationCounts)>,
    /// Values of all valid trials that failed.
    failures: Vec<f64>,
    end: Option<ConversationSearchEnd>,
}

impl ConversationSearch {
    /// Creates a search.
    ///
    /// # Errors
    /// The error of [`ConversationSearchConfig::validate`].
    pub fn new(config: ConversationSearchConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let steps = ThroughputSearch::SingleRun(config.steps());
        Ok(Self {
            search: Reachable::new(steps)?,
            // The search itself counts invalid trials.
            progress: Progress::new(u32::MAX),
            held: None,
            failed: None,
            failures: Vec::new(),
            end: None,
            config,
        })
    }

    /// Returns the load with this value.
    #[expect(clippy::cast_possible_truncation, reason = "the cast saturates")]
    fn load(&self, value: f64) -> ConversationLoad {
        let config = &self.config;
        match config.quantity {
            ConversationQuantity::ConnectionsPerSecond => {
                ConversationLoad::Connections { per_s: value }
            }
            ConversationQuantity::ConcurrentConnections => ConversationLoad::Open {
                connections: value.round().max(1.0) as u32,
                opening_per_s: config.opening_per_s,
            },
            ConversationQuantity::TransactionsPerSecond => ConversationLoad::Transactions {
                connections: config.connections,
                per_s: value,
            },
        }
    }

    /// Returns the findings of the search so far.
    pub(super) fn found(&self) -> ConversationSearchFindings {
        let highest_held = self.held.as_ref().map(|(value, _)| *value);
        let under = |value: &&f64| highest_held.is_some_and(|held| **value <= held);
        ConversationSearchFindings {
            config: self.config.clone(),
            end: self.end,
            highest_held,
            held: self.held.as_ref().map(|(_, counts)| counts.clone()),
            lowest_failed: self.failed.as_ref().map(|(value, _)| *value),
            failed: self.failed.as_ref().map(|(_, counts)| counts.clone()),
            failed_at_or_under_highest_held: self.failures.iter().filter(under).count() as u64,
        }
    }

    /// Returns the actions so far.
    pub(super) fn history(&self) -> &[PerformedAction] {
        self.progress.history()
    }

    fn findings(&self) -> ProcedureFindings {
        let found = Box::new(self.found());
        match self.config.quantity {
            ConversationQuantity::ConnectionsPerSecond => {
                ProcedureFindings::ConnectionsPerSecond(found)
            }
            ConversationQuantity::ConcurrentConnections => {
                ProcedureFindings::ConcurrentConnections(found)
            }
            ConversationQuantity::TransactionsPerSecond => {
                ProcedureFindings::TransactionsPerSecond(found)
            }
        }
    }

    /// Keeps the counts of a valid trial.
    fn keep(&mut self, value: f64, counts: ConversationCounts) {
        let holds = self.config.failure_ratio.allows(counts.failure_ratio());
        if !holds {
            self.failures.push(value);
        }
        let kept = if holds {
            &mut self.held
        } else {
            &mut self.failed
        };
        let is_better = kept.as_ref().is_none_or(|(known, _)| {
            if holds {
                value >= *known
            } else {
                value < *known
            }
        });
        if is_better {
            *kept = Some((value, counts));
        }
    }

    /// Ends the search if its steps are over.
    fn end_if_over(&mut self, last: Option<Action>) {
        let Step::Done(result) = self.search.step() else {
            return;
        };
        let Findings::SingleRun(found) = result.findings else {
            return;
        };
        self.end = Some(match found.end {
            SearchEnd::Converged => ConversationSearchEnd::Converged,
            SearchEnd::HeldAtMaxRate => ConversationSearchEnd::HeldAtMax,
            SearchEnd::NothingHeldAtMinRate | SearchEnd::NothingHeldInReach { .. } => {
                ConversationSearchEnd::NothingHeld
            }
            SearchEnd::TrialLimit => ConversationSearchEnd::TrialLimit,
            SearchEnd::InvalidTrials { reasons, .. } => {
                if let Some(action) = last {
                    self.progress.give_up(action, reasons);
                }
                ConversationSearchEnd::TesterFailed
            }
        });
    }

    /// Returns the result of a search that has ended.
    pub(super) fn result(&mut self) -> Option<Box<ProcedureResult>> {
        match self.step() {
            ProcedureStep::Done(result) => Some(result),
            ProcedureStep::Do(_) => None,
        }
    }
}

impl Procedure for ConversationSearch {
    fn name(&self) -> &'static str {
        self.config.quantity.name()
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let (duration_s, pause_s, answer) = (config.duration_s, config.pause_s, config.answer);
        let next = match self.search.step() {
            Step::Run(request) => Some(Action::Converse(ConversationTrial {
                load: self.load(request.rate_pps),
                duration_s,
                pause_s,
                answer,
            })),
            Step::Done(_) => None,
        };
        let findings = self.findings();
        self.progress.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        let pending = self.progress.pending();
        let (outcome, counts) = match &observation {
            Observation::Conversed(counts) => (
                Outcome::lost(counts.failure_ratio()),
                Some((**counts).clone()),
            ),
            Observation::Invalid {
                reason,
                achieved_per_s,
            } => (
                Outcome::Invalid {
                    reason: reason.clone(),
                    achieved_rate_pps: *achieved_per_s,
                },
                None,
            ),
            // The progress refuses any other observation.
            _ => (Outcome::invalid("another observation"), None),
        };
        self.progress.settle(observation)?;
        self.search.record(outcome)?;
        if let (Some(Action::Converse(trial)), Some(counts)) = (pending, counts) {
            self.keep(trial.load.value(), counts);
        }
        self.end_if_over(pending);
        Ok(())
    }
}
