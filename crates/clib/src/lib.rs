// SPDX-License-Identifier: Apache-2.0
//! C library: the packet classifier and the connection tracker of `crates/tables` for other data planes. Bursts of packet descriptors in,
//! verdicts out. `include/quietwire.h` is its header.
//!
//! A handle is a number, not a pointer: a wrong handle, and one whose object was destroyed, is an error. No function waits for another
//! thread, and no panic leaves the library.
//!
//! Must not decide anything that `crates/tables` does not, link DPDK, or start a thread. `abi` is the only module with unsafe code: it
//! turns pointers of C into slices.

// Descriptors of other programs: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod abi;
mod classifier;
mod codes;
mod handle;
pub mod layout;
mod status;
mod tracker;

pub use status::Status;
