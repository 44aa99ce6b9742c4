// SPDX-License-Identifier: Apache-2.0
//! Isolation: what keeps the rest of the machine away from a device under test. Cases are a table (`cases.rs`); what one
//! does to a machine is a partition plan (`plan`), or a reason why the machine cannot have it; a plan is applied for as long
//! as something is measured (`applied`). What can be isolated around a tester and a device that run already is chosen in `choice`.

mod applied;
mod cases;
mod choice;
mod classes;
mod plan;
#[cfg(test)]
mod tests;

pub use applied::Applied;
pub(crate) use applied::{running_machine, take_back_left};
pub use cases::{IsolationCase, IsolationPart, isolation_cases};
pub use choice::IsolationLevel;
pub(crate) use choice::{Choice, choose};
pub use plan::Setup;
