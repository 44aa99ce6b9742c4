// SPDX-License-Identifier: Apache-2.0
//! Repeated trials with conversations at one load (RFC 9411, sections 7.3 and 7.4): throughput of established connections, and
//! transaction latency.

mod findings;

use super::action::{Action, Observation};
use super::conversation_search::{ConversationSearch, ConversationSearchFindings};
use super::conversations::{ConversationCounts, ConversationLoad, ConversationTrial};
use super::progress::{ObservationVerdict, Progress};
use super::result::{ProcedureEnd, ProcedureFindings};
use super::step::{Procedure, ProcedureStep};
use crate::{ConfigError, RecordError, Statistics};

pub use findings::{
    ConnectionThroughputConfig, ConnectionThroughputFindings, TransactionLatencyConfig,
    TransactionLatencyFindings, TransactionRate,
};

/// Share of idle time below which the tester may have been the limit.
const TESTER_IDLE_MIN: f64 = 0.01;

/// Throughput of established connections: transfers over a number of connections, with repetitions.
#[derive(Clone, Debug)]
pub struct ConnectionThroughput {
    config: ConnectionThroughputConfig,
    progress: Progress,
    runs: Vec<ConversationCounts>,
}

impl ConnectionThroughput {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`ConnectionThroughputConfig::validate`].
    pub fn new(config: ConnectionThroughputConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
            runs: Vec::new(),
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let rates: Vec<f64> = self.runs.iter().map(|run| run.received_bps).collect();
        let is_busy =
            |run: &ConversationCounts| run.tester_idle_ratio.is_some_and(|it| it < TESTER_IDLE_MIN);
        ProcedureFindings::ConnectionThroughput(Box::new(ConnectionThroughputFindings {
            received_bps: Statistics::of(&rates, self.config.confidence),
            is_limit: self.runs.iter().any(is_busy),
            runs: self.runs.clone(),
            config: self.config.clone(),
        }))
    }
}

impl Procedure for ConnectionThroughput {
    fn name(&self) -> &'static str {
        "connection-throughput"
    }

    fn step(&mut self) -> ProcedureStep {
        let config = &self.config;
        let is_due = self.runs.len() < config.repeats as usize;
        let next = is_due.then_some(Action::Converse(ConversationTrial {
            load: ConversationLoad::Transfer {
                connections: config.connections,
                transactions: config.transactions,
            },
            duration_s: config.duration_s,
            pause_s: config.pause_s,
            answer: config.answer,
        }));
        let findings = self.findings();
        self.progress.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        if let ObservationVerdict::Valid(Observation::Conversed(counts)) =
            self.progress.settle(observation)?
        {
            self.runs.push(*counts);
        }
        Ok(())
    }
}

/// Transaction latency at a rate, which is given or a share of the highest rate that a search finds.
#[derive(Clone, Debug)]
pub struct TransactionLatency {
    config: TransactionLatencyConfig,
    progress: Progress,
    /// The search, while it runs.
    search: Option<ConversationSearch>,
    searched: Option<ConversationSearchFindings>,
    /// Rate of the trials; `None` until the search has found it, or if it finds none.
    per_s: Option<f64>,
    runs: Vec<ConversationCounts>,
}

impl TransactionLatency {
    /// Creates a procedure.
    ///
    /// # Errors
    /// The error of [`TransactionLatencyConfig::validate`].
    pub fn new(config: TransactionLatencyConfig) -> Result<Self, ConfigError> {
        config.validate()?;
        let (per_s, search) = match &config.rate {
            TransactionRate::Fixed { per_s } => (Some(*per_s), None),
            TransactionRate::Found { search, .. } => {
                (None, Some(ConversationSearch::new((**search).clone())?))
            }
        };
        Ok(Self {
            progress: Progress::new(config.max_invalid_repeats),
            search,
            searched: None,
            per_s,
            runs: Vec::new(),
            config,
        })
    }

    fn findings(&self) -> ProcedureFindings {
        let running = self.search.as_ref().map(ConversationSearch::found);
        ProcedureFindings::TransactionLatency(Box::new(TransactionLatencyFindings {
            config: self.config.clone(),
            per_s: self.per_s,
            search: self.searched.clone().or(running),
            runs: self.runs.clone(),
        }))
    }

    /// Takes the rate from the search if it has ended.
    fn end_search(&mut self) {
        let Some(search) = &mut self.search else {
            return;
        };
        let Some(result) = search.result() else {
            return;
        };
        let found = search.found();
        self.progress.adopt(search.history().to_vec());
        if let ProcedureEnd::Invalid { action, reasons } = result.end {
            self.progress.give_up(action, reasons);
        }
        if let TransactionRate::Found { percent, .. } = &self.config.rate {
            self.per_s = found.highest_held.map(|highest| highest * percent / 100.0);
        }
        self.searched = Some(found);
        self.search = None;
    }
}

impl Procedure for TransactionLatency {
    fn name(&self) -> &'static str {
        "transaction-latency"
    }

    fn step(&mut self) -> ProcedureStep {
        if let Some(search) = &mut self.search
            && let ProcedureStep::Do(action) = search.step()
        {
            return ProcedureStep::Do(action);
        }
        let config = &self.config;
        let per_s = self
            .per_s
            .filter(|_| self.runs.len() < config.repeats as usize);
        let next = per_s.map(|per_s| {
            Action::Converse(ConversationTrial {
                load: ConversationLoad::Transactions {
                    connections: config.connections,
                    per_s,
                },
                duration_s: config.duration_s,
                pause_s: config.pause_s,
                answer: config.answer,
            })
        });
        let findings = self.findings();
        self.progress.step(next, || findings)
    }

    fn record(&mut self, observation: Observation) -> Result<(), RecordError> {
        if let Some(search) = &mut self.search {
            search.record(observation)?;
            self.end_search();
            return Ok(());
        }
        if let ObservationVerdict::Valid(Observation::Conversed(counts)) =
            self.progress.settle(observation)?
        {
            self.runs.push(*counts);
        }
        Ok(())
    }
}
