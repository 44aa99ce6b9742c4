// SPDX-License-Identifier: Apache-2.0
//! All monitors, each in a file of its own.

pub(crate) mod cpus;
pub(crate) mod energy;
pub(crate) mod frequency;
pub(crate) mod interrupts;
pub(crate) mod kvm;
pub(crate) mod kvm_exit_reasons;
pub(crate) mod l2_misses;
pub(crate) mod memory;
pub(crate) mod numa;
pub(crate) mod perf_events;
pub(crate) mod placement;
pub(crate) mod resctrl;
pub(crate) mod softirqs;
pub(crate) mod system_call_counts;
pub(crate) mod system_calls;
pub(crate) mod temperature;
pub(crate) mod threads;
pub(crate) mod throttling;
pub(crate) mod uncore;
