// SPDX-License-Identifier: Apache-2.0
//! What a procedure found.

use serde::{Deserialize, Serialize};

use super::action::{Action, Observation};
use super::address_caching::AddressCachingFindings;
use super::address_learning_rate::AddressLearningRateFindings;
use super::back_to_back::BackToBackFindings;
use super::reset::ResetFindings;
use super::system_recovery::SystemRecoveryFindings;

/// How a procedure ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "end")]
pub enum ProcedureEnd {
    /// Everything was done.
    Finished,
    /// An action and all its repeats were invalid: the tester failed, not the device.
    Invalid {
        /// The action.
        action: Action,
        /// Reason of each failure, oldest first.
        reasons: Vec<String>,
    },
}

/// An action and what was seen of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PerformedAction {
    /// What was asked.
    pub action: Action,
    /// What was seen.
    pub observation: Observation,
}

/// What a procedure found, with everything that was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProcedureResult {
    /// How it ended.
    pub end: ProcedureEnd,
    /// The findings, tagged with the method's name.
    pub findings: ProcedureFindings,
    /// Everything that was done, in order.
    pub history: Vec<PerformedAction>,
}

/// Findings by method. The tag is [`Procedure::name`](super::Procedure::name).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
#[non_exhaustive]
pub enum ProcedureFindings {
    /// Of [`BackToBack`](super::BackToBack).
    BackToBack(BackToBackFindings),
    /// Of [`SystemRecovery`](super::SystemRecovery).
    SystemRecovery(SystemRecoveryFindings),
    /// Of [`Reset`](super::Reset).
    Reset(ResetFindings),
    /// Of [`AddressCaching`](super::AddressCaching).
    AddressCaching(AddressCachingFindings),
    /// Of [`AddressLearningRate`](super::AddressLearningRate).
    AddressLearningRate(AddressLearningRateFindings),
}
