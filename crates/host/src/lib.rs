// SPDX-License-Identifier: Apache-2.0
//! Host partitioning: inventory, planning, applying, verification and rollback. All files are below a root directory that the
//! caller gives, so recorded machines serve as test data. Independent of DPDK.

// Text and files of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod apply;
mod boot_parameters;
pub mod cards;
pub mod cpu;
pub mod cpuset;
pub mod doctor;
pub mod drawing;
pub mod emulation;
pub mod files;
#[cfg(test)]
mod fuzz;
pub mod inventory;
pub mod jitter;
pub mod journal;
#[cfg(any(test, feature = "machines"))]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "descriptions of machines are in the code of tests and benchmarks, and their numbers are small"
)]
pub mod machines;
mod noted;
pub mod partition;
mod pci_driver;
pub mod privileges;
pub mod proc;
pub mod recording;
pub mod render;
pub mod resctrl;
pub mod roles;
pub mod settings;
pub mod tasks;
pub mod threads;
mod tree;
pub mod verify;
pub mod vfio;

pub use cpu::{CpuId, CpuList, CpuSequence};
