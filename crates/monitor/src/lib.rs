// SPDX-License-Identifier: Apache-2.0
//! What the machine did during a trial: CPU time by state, the threads that forward, interrupts. Two snapshots and
//! what lies between them; read below a root directory given by the caller. Never changes the machine.

mod activity;
mod cpus;
mod interrupts;
mod threads;
mod ticks;

pub use activity::{Activity, MonitorError, Snapshot};
pub use cpus::{CpuActivity, cpu_times};
pub use interrupts::InterruptCount;
pub use threads::ThreadActivity;
