// SPDX-License-Identifier: Apache-2.0
//! Result of a procedure.

use serde::{Deserialize, Serialize};

use super::action::{Action, Observation};
use super::address_caching::AddressCachingFindings;
use super::address_learning_rate::AddressLearningRateFindings;
use super::back_to_back::BackToBackFindings;
use super::conversation_runs::{ConnectionThroughputFindings, TransactionLatencyFindings};
use super::conversation_search::ConversationSearchFindings;
use super::reset::ResetFindings;
use super::system_recovery::SystemRecoveryFindings;

/// Reason for the end of a procedure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum ProcedureEnd {
    /// All actions were performed.
    Finished,
    /// An action and all its repeats were invalid because the tester failed.
    Invalid {
        /// The action.
        action: Action,
        /// Reason of each failure, oldest first.
        reasons: Vec<String>,
    },
}

/// Performed action and its observation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformedAction {
    /// The action.
    pub action: Action,
    /// The observation.
    pub observation: Observation,
}

/// Result of a procedure, with all its actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureResult {
    /// Reason for the end.
    pub end: ProcedureEnd,
    /// The findings, tagged with the method's name.
    pub findings: ProcedureFindings,
    /// All actions in order.
    pub history: Vec<PerformedAction>,
}

/// Findings by method. The tag is [`Procedure::name`](super::Procedure::name).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
#[non_exhaustive]
pub enum ProcedureFindings {
    /// Findings of [`BackToBack`](super::BackToBack).
    BackToBack(BackToBackFindings),
    /// Findings of [`SystemRecovery`](super::SystemRecovery).
    SystemRecovery(SystemRecoveryFindings),
    /// Findings of [`Reset`](super::Reset).
    Reset(ResetFindings),
    /// Findings of [`AddressCaching`](super::AddressCaching).
    AddressCaching(AddressCachingFindings),
    /// Findings of [`AddressLearningRate`](super::AddressLearningRate).
    AddressLearningRate(AddressLearningRateFindings),
    /// Findings of a [`ConversationSearch`](super::ConversationSearch) for connections per second.
    ConnectionsPerSecond(Box<ConversationSearchFindings>),
    /// Findings of a [`ConversationSearch`](super::ConversationSearch) for open connections.
    ConcurrentConnections(Box<ConversationSearchFindings>),
    /// Findings of a [`ConversationSearch`](super::ConversationSearch) for transactions per second.
    TransactionsPerSecond(Box<ConversationSearchFindings>),
    /// Findings of [`ConnectionThroughput`](super::ConnectionThroughput).
    ConnectionThroughput(Box<ConnectionThroughputFindings>),
    /// Findings of [`TransactionLatency`](super::TransactionLatency).
    TransactionLatency(Box<TransactionLatencyFindings>),
}
