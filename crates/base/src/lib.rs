// SPDX-License-Identifier: Apache-2.0
//! Parts that every other crate may use: classes of errors, deadlines, operations that may block, Unix time, processes and the formats of
//! `/proc` that describe them, lock files, storage through a trait, files that survive a kill, files that others may replace, text files, a
//! checksum, supervised child processes, the search of `PATH`, locations in TOML files, drivers of PCI devices, network interfaces, network
//! namespaces and requests to rtnetlink, connections to Unix sockets, rate limits, random numbers, the size of a burst, idle behaviour of
//! forwarding threads, use of seccomp filters, the list of Prometheus metrics and their text format, a fuzzer and failing storage for tests.
//!
//! Must not depend on any other crate: no packets, no DPDK, no machine.

// Files and messages of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

mod blocking;
mod counter;
mod crc32c;
mod deadline;
pub mod durable;
mod fault;
#[doc(hidden)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "faults of tests: they read nothing from outside"
)]
pub mod faults;
mod file_name;
#[doc(hidden)]
#[allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "the fuzzer of tests: its input is that of the corpus"
)]
pub mod fuzz;
mod idle;
pub mod locate;
mod lock_file;
pub mod metrics;
pub mod net_device;
pub mod netns;
pub mod pci_driver;
pub mod proc;
mod process;
mod program;
pub mod random;
mod rate;
mod regular_file;
pub mod rtnetlink;
mod seccomp;
pub mod storage;
pub mod supervised;
#[doc(hidden)]
pub mod testing;
mod text;
mod unix_stream;
mod unix_time;

pub use blocking::run_within;
pub use counter::Counter;
pub use crc32c::crc32c;
pub use deadline::{Deadline, wait_until};
pub use fault::Fault;
pub use file_name::is_file_name;
pub use idle::{Idle, UnknownIdle};
pub use lock_file::{ENDING_MAX, ENDING_PAUSE, LockError, LockFile, LockOwner};
pub use process::{BootId, ProcessHandle, ProcessId};
pub use program::{find_program, find_program_in, is_program, search_path};
pub use rate::RateLimit;
pub use regular_file::{open_regular, open_regular_with, read_regular, read_up_to};
pub use seccomp::{Seccomp, UnknownSeccomp};
pub use text::{read_text, text_error};
pub use unix_stream::{BoundedStream, StreamSocket, connect_within};
pub use unix_time::{unix_time, unix_time_ns};

/// Maximum number of frames that are processed together.
pub const BURST_MAX: usize = 64;
