// SPDX-License-Identifier: Apache-2.0
//! Activity of the machine during a trial: CPU time by state, threads, interrupts, memory, energy and more. It is the difference of two
//! snapshots, read below a root directory of the caller. [`settings`] has the settings of the machine that affect results. This crate never
//! changes the machine.
//!
//! Each monitor is a file of `monitors`. [`offers`] lists those that a machine offers.

// Text and octets of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod activity;
mod files;
#[cfg(test)]
mod fuzz;
mod monitor;
mod monitors;
mod settings;
#[cfg(test)]
mod tests;
mod ticks;

pub use activity::{Activity, Edge, MonitorError, Snapshot, offers};
pub use monitor::{Offer, Owner, Unavailable, Watched};
pub use monitors::cpus::{CpuActivity, cpu_times};
pub use monitors::energy::DomainEnergy;
pub use monitors::frequency::CpuFrequency;
pub use monitors::interrupts::{InterruptCount, InterruptLine};
pub use monitors::kvm::GuestExits;
pub use monitors::kvm_exit_reasons::{ExitReasons, ExitSampler, exit_reason_offer};
pub use monitors::memory::MemoryActivity;
pub use monitors::numa::NodeAllocations;
pub use monitors::perf_events::{CpuEvents, EventCounters, event_offers};
pub use monitors::placement::ProcessMemory;
pub use monitors::resctrl::ClassActivity;
pub use monitors::softirqs::SoftirqCount;
pub use monitors::system_call_counts::{SystemCallCounters, SystemCallCounts, system_call_offer};
pub use monitors::system_calls::{SystemCallSampler, SystemCallSamples};
pub use monitors::temperature::ZoneTemperature;
pub use monitors::threads::ThreadActivity;
pub use monitors::throttling::CpuThrottling;
pub use monitors::uncore::{UncoreCounters, UncoreEvents, UncoreKind, uncore_offers};
pub use settings::{MachineSetting, settings};
