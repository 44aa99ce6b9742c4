// SPDX-License-Identifier: Apache-2.0
//! Isolation of a device under test from the rest of the machine. Cases are a table (`cases.rs`). A case becomes a partition plan of a
//! machine (`plan`), or a reason why the machine does not support it. A plan is applied for the time of a measurement (`applied`). `choice`
//! chooses the isolation of a tester and a device that run already.

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
