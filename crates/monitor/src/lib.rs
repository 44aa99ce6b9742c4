// SPDX-License-Identifier: Apache-2.0
//! Activity of the machine during a trial: CPU time by state, the forwarding threads, interrupts. It is the difference of two
//! snapshots, read below a root directory of the caller. This crate never changes the machine.

mod activity;
mod cpus;
#[cfg(test)]
mod fuzz;
mod interrupts;
mod threads;
mod ticks;

pub use activity::{Activity, MonitorError, Snapshot};
pub use cpus::{CpuActivity, cpu_times};
pub use interrupts::InterruptCount;
pub use threads::ThreadActivity;
