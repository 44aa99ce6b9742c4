// SPDX-License-Identifier: Apache-2.0
//! The account of a trial's loss: each lost frame is put to a place, by the counters of the device and of the tester.
//!
//! A device's counters are read before and after a trial. They hold all of it, so that they are reconciled with what the tester's
//! ports counted over the same time, and then reduced to the counted part.

mod counts;
mod places;
mod reconcile;
#[cfg(test)]
mod tests;
mod totals;

pub use counts::{
    DeviceCounts, DeviceLayout, DropCounter, DropStage, ElementCounts, PortAt, PortCounts, UnitDrop,
};
pub use places::{Accounted, Difference, DifferenceKind, LossAccount, LossReason, Place};
pub use reconcile::account;
pub use totals::PortTotals;
