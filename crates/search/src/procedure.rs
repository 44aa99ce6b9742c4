// SPDX-License-Identifier: Apache-2.0
//! Methods that require more than plain trials: bursts, restarts, address learning, connections. They are state machines like the
//! searches. Each requests an [`Action`] and receives an [`Observation`].

mod action;
mod address_caching;
mod address_learning_rate;
mod back_to_back;
mod bisection;
#[cfg(test)]
mod buffer_time;
mod conversation_runs;
mod conversation_search;
#[cfg(test)]
mod conversation_tests;
mod conversations;
mod progress;
mod reset;
mod result;
mod step;
mod system_recovery;
#[cfg(test)]
mod tests;

pub use action::{Action, Observation, RestartKind};
pub use address_caching::{AddressCaching, AddressCachingConfig, AddressCachingFindings};
pub use address_learning_rate::{
    AddressLearningRate, AddressLearningRateConfig, AddressLearningRateFindings,
};
pub use back_to_back::{BackToBack, BackToBackConfig, BackToBackFindings};
pub use conversation_runs::{
    ConnectionThroughput, ConnectionThroughputConfig, ConnectionThroughputFindings,
    TransactionLatency, TransactionLatencyConfig, TransactionLatencyFindings, TransactionRate,
};
pub use conversation_search::{
    ConversationQuantity, ConversationSearch, ConversationSearchConfig, ConversationSearchEnd,
    ConversationSearchFindings,
};
pub use conversations::{ConversationCounts, ConversationLoad, ConversationTrial, TimeSummary};
pub use reset::{Outage, Reset, ResetConfig, ResetFindings};
pub use result::{PerformedAction, ProcedureEnd, ProcedureFindings, ProcedureResult};
pub use step::{Procedure, ProcedureStep};
pub use system_recovery::{SystemRecovery, SystemRecoveryConfig, SystemRecoveryFindings};
