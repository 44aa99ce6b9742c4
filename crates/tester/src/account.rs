// SPDX-License-Identifier: Apache-2.0
//! Account of a trial's loss: assigns each lost frame to a place, by the counters of the device and of the tester.
//!
//! The device's counters are read before and after a trial, so they cover the whole trial. They are reconciled with the counters of the
//! tester's ports over the same time, and then reduced to the counted part.

mod counts;
mod places;
mod reconcile;
#[cfg(test)]
mod tests;
mod totals;

pub use counts::{
    DeviceCounts, DeviceLayout, DropCounter, DropStage, ElementCounts, PortAt, PortCounts, UnitDrop,
};
pub use places::{Accounted, Difference, DifferenceKind, LossAccount, LossPlace, LossReason};
pub use reconcile::account;
pub use totals::PortTotals;
