// SPDX-License-Identifier: Apache-2.0
//! Parameters and findings of searches over conversations.

use serde::{Deserialize, Serialize};

use super::super::conversations::ConversationCounts;
use crate::error::{ordered, positive};
use crate::{ConfigError, LossRatio, SingleRunConfig};

/// Largest number of trials of a search, invalid ones included.
const TRIALS_MAX: u32 = 1000;

/// Quantity that a search over conversations maximises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConversationQuantity {
    /// Connections opened, used and closed per second (RFC 9411, section 7.2).
    ConnectionsPerSecond,
    /// Connections that are open at once (RFC 9411, section 7.5).
    ConcurrentConnections,
    /// Requests answered per second on open connections.
    TransactionsPerSecond,
}

impl ConversationQuantity {
    /// Returns the name of the procedure in kebab case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ConnectionsPerSecond => "connections-per-second",
            Self::ConcurrentConnections => "concurrent-connections",
            Self::TransactionsPerSecond => "transactions-per-second",
        }
    }

    /// Returns the unit of its values.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::ConnectionsPerSecond => "connections per second",
            Self::ConcurrentConnections => "connections",
            Self::TransactionsPerSecond => "transactions per second",
        }
    }
}

/// Parameters of a [`ConversationSearch`](super::ConversationSearch). Values are in the unit of the quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationSearchConfig {
    /// The quantity.
    pub quantity: ConversationQuantity,
    /// Highest value tried.
    pub max: f64,
    /// First value, and step of the linear phase, which the binary phase halves.
    pub step: f64,
    /// Step below which the search ends. For a device that fails above a fixed value and not below it, the result is below that value by
    /// less than this.
    pub resolution: f64,
    /// Largest share of failed attempts of a trial that holds.
    pub failure_ratio: LossRatio,
    /// Duration of the load of a trial, seconds.
    pub duration_s: f64,
    /// Wait after each trial, seconds.
    pub pause_s: f64,
    /// Octets of each answer; `None` for those of the description of the conversations.
    pub answer: Option<u32>,
    /// Open connections that share the transactions. Other quantities do not use it.
    pub connections: u32,
    /// Connections opened per second to reach the number of open connections. Other quantities do not use it.
    pub opening_per_s: f64,
    /// Largest number of valid trials per visit of a value. The value counts as failed only if so many trials in a row fail.
    pub best_of: u32,
    /// Largest number of repeats of an invalid trial before the search ends.
    pub max_invalid_repeats: u32,
}

impl ConversationSearchConfig {
    /// Returns the same search as steps of a rate.
    pub(super) fn steps(&self) -> SingleRunConfig {
        SingleRunConfig {
            start_rate_pps: self.step,
            start_step_pps: self.step,
            resolution_pps: self.resolution,
            loss_tolerance: self.failure_ratio,
            trial_duration_s: self.duration_s,
            min_rate_pps: self.resolution.min(self.step),
            max_rate_pps: self.max,
            best_of: self.best_of,
            max_invalid_repeats: self.max_invalid_repeats,
            max_trials: TRIALS_MAX,
        }
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first [`ConfigError`] found.
    pub fn validate(&self) -> Result<(), ConfigError> {
        positive("max", self.max)?;
        positive("step", self.step)?;
        positive("resolution", self.resolution)?;
        positive("duration_s", self.duration_s)?;
        positive("opening_per_s", self.opening_per_s)?;
        ordered(self.step, self.max)?;
        if self.connections == 0 {
            return Err(ConfigError::Zero {
                name: "connections",
            });
        }
        self.steps().validate()
    }

    /// Returns the largest possible number of trials if none is invalid.
    #[must_use]
    pub fn trial_bound(&self) -> u32 {
        let mut steps = self.steps();
        steps.max_invalid_repeats = 0;
        steps.trial_bound()
    }
}

/// Reason for the end of a [`ConversationSearch`](super::ConversationSearch).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConversationSearchEnd {
    /// The step fell below the resolution, and at least one value held.
    Converged,
    /// The highest value allowed held: the device may do more.
    HeldAtMax,
    /// No value tried held.
    NothingHeld,
    /// A trial and all its repeats were invalid.
    TesterFailed,
    /// The search reached its largest number of trials.
    TrialLimit,
}

/// Findings of a [`ConversationSearch`](super::ConversationSearch).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ConversationSearchFindings {
    /// The parameters.
    pub config: ConversationSearchConfig,
    /// Reason for the end; `None` if the search has not ended.
    pub end: Option<ConversationSearchEnd>,
    /// The result: the highest value of a valid trial that held. `None` if there was none.
    pub highest_held: Option<f64>,
    /// Counts of that trial.
    pub held: Option<ConversationCounts>,
    /// Lowest value of a valid trial that failed.
    pub lowest_failed: Option<f64>,
    /// Counts of that trial.
    pub failed: Option<ConversationCounts>,
    /// Number of valid trials at or below the result that failed. Above zero, the device was inconsistent.
    pub failed_at_or_under_highest_held: u64,
}

impl ConversationSearchFindings {
    /// Returns true if the result is a lower bound, because no higher value was allowed.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.end == Some(ConversationSearchEnd::HeldAtMax)
    }
}
