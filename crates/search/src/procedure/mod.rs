// SPDX-License-Identifier: Apache-2.0
//! Methods that take more than plain trials: bursts, restarts, addresses to learn. State machines as the searches are,
//! that ask for an [`Action`] and are told an [`Observation`].

mod action;
mod address_caching;
mod address_learning_rate;
mod back_to_back;
mod bisection;
#[cfg(test)]
mod buffer_time;
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
pub use reset::{Outage, Reset, ResetConfig, ResetFindings};
pub use result::{PerformedAction, ProcedureEnd, ProcedureFindings, ProcedureResult};
pub use step::{Procedure, ProcedureStep};
pub use system_recovery::{SystemRecovery, SystemRecoveryConfig, SystemRecoveryFindings};
