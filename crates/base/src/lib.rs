// SPDX-License-Identifier: Apache-2.0
//! What every other crate may need: whose fault an error is, deadlines, processes and the formats of `/proc` that name them, lock
//! files, child processes that end in time, the search of `PATH`, places in TOML files, rate limits, the size of a burst, what a
//! forwarding thread does without frames, a fuzzer for tests.
//!
//! Must not know anything above it: no packets, no DPDK, no machine.

mod deadline;
mod fault;
#[doc(hidden)]
pub mod fuzz;
mod idle;
pub mod locate;
mod lock_file;
pub mod proc;
mod process;
mod program;
mod rate;
pub mod supervised;

pub use deadline::{Deadline, wait_until};
pub use fault::Fault;
pub use idle::{Idle, UnknownIdle};
pub use lock_file::{ENDING_MAX, ENDING_PAUSE, LockError, LockFile, LockOwner};
pub use process::ProcessId;
pub use program::{find_program, find_program_in, is_program};
pub use rate::RateLimit;

/// The most frames that are handled together.
pub const BURST_MAX: usize = 64;
