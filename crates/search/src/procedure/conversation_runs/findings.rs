// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of repeated trials with conversations.

use serde::{Deserialize, Serialize};

use super::super::conversation_search::{ConversationSearchConfig, ConversationSearchFindings};
use super::super::conversations::{ConversationCounts, TimeSummary};
use crate::error::{confidence, positive};
use crate::{ConfigError, Statistics, median};

/// Parameters of a [`ConnectionThroughput`](super::ConnectionThroughput).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionThroughputConfig {
    /// Connections that are open at a time.
    pub connections: u32,
    /// Requests of a connection, one after the other.
    pub transactions: u32,
    /// Octets of each answer; `None` for those of the description of the conversations.
    pub answer: Option<u32>,
    /// Number of trials.
    pub repeats: u32,
    /// Duration of a trial, seconds.
    pub duration_s: f64,
    /// Wait after each trial, seconds.
    pub pause_s: f64,
    /// Confidence level of the interval of the mean, between 0 and 1.
    pub confidence: f64,
    /// Largest number of repeats of an invalid trial before the procedure ends.
    pub max_invalid_repeats: u32,
}

/// Checks that no count is zero.
fn above_zero<const N: usize>(counts: [(&'static str, u32); N]) -> Result<(), ConfigError> {
    let mut counts = counts.into_iter();
    match counts.find(|(_, count)| *count == 0) {
        Some((name, _)) => Err(ConfigError::Zero { name }),
        None => Ok(()),
    }
}

impl ConnectionThroughputConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("duration_s", self.duration_s)?;
        confidence(self.confidence)?;
        above_zero([
            ("connections", self.connections),
            ("transactions", self.transactions),
            ("repeats", self.repeats),
        ])
    }
}

/// Findings of a [`ConnectionThroughput`](super::ConnectionThroughput).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConnectionThroughputFindings {
    /// The parameters.
    pub config: ConnectionThroughputConfig,
    /// Payload that the clients received and checked, bits per second. The mean is the result. `None` before the first trial.
    pub received_bps: Option<Statistics>,
    /// True if the tester had almost no idle time in a trial, so that it may have been the limit.
    pub is_limit: bool,
    /// Counts of the valid trials.
    pub runs: Vec<ConversationCounts>,
}

/// Rate of the transactions whose latency is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "rate")]
pub enum TransactionRate {
    /// A given rate.
    Fixed {
        /// Transactions per second.
        per_s: f64,
    },
    /// A share of the highest rate that a search finds before (RFC 9411, section 7.4, uses half).
    Found {
        /// Share, percent.
        percent: f64,
        /// The search.
        search: Box<ConversationSearchConfig>,
    },
}

/// Parameters of a [`TransactionLatency`](super::TransactionLatency).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransactionLatencyConfig {
    /// Rate of the trials.
    pub rate: TransactionRate,
    /// Open connections that share the transactions.
    pub connections: u32,
    /// Octets of each answer; `None` for those of the description of the conversations.
    pub answer: Option<u32>,
    /// Number of trials.
    pub repeats: u32,
    /// Duration of a trial, seconds.
    pub duration_s: f64,
    /// Wait after each trial, seconds.
    pub pause_s: f64,
    /// Largest number of repeats of an invalid trial before the procedure ends.
    pub max_invalid_repeats: u32,
}

impl TransactionLatencyConfig {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match &self.rate {
            TransactionRate::Fixed { per_s } => {
                positive("per_s", *per_s)?;
            }
            TransactionRate::Found { percent, search } => {
                positive("percent", *percent)?;
                search.validate()?;
            }
        }
        positive("duration_s", self.duration_s)?;
        above_zero([("connections", self.connections), ("repeats", self.repeats)])
    }
}

/// Findings of a [`TransactionLatency`](super::TransactionLatency).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TransactionLatencyFindings {
    /// The parameters.
    pub config: TransactionLatencyConfig,
    /// Transactions per second of the trials; `None` if the search found no rate.
    pub per_s: Option<f64>,
    /// Findings of the search; `None` without one.
    pub search: Option<ConversationSearchFindings>,
    /// Counts and times of the valid trials.
    pub runs: Vec<ConversationCounts>,
}

impl TransactionLatencyFindings {
    /// Returns one figure of a distribution as the median over the trials, nanoseconds; `None` if no trial has it.
    #[must_use]
    pub fn median_ns(
        &self,
        times: fn(&ConversationCounts) -> Option<TimeSummary>,
        figure: fn(&TimeSummary) -> Option<f64>,
    ) -> Option<f64> {
        let summaries = self.runs.iter().filter_map(times);
        let figures: Vec<f64> = summaries.filter_map(|it| figure(&it)).collect();
        median(&figures)
    }
}
