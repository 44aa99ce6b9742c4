// SPDX-License-Identifier: Apache-2.0
//! The vhost-user protocol for network devices, and virtqueues in memory that two processes share.
//!
//! - [`message`]: the codec of the socket; [`features`]: bits and their names.
//! - [`session`]: the state machines of both sides. They have no socket and no clock.
//! - [`address_space`]: a guest's memory, and its translation.
//! - [`ring`]: device side of virtqueues (`vhost` ports).
//! - [`driver`]: driver side of virtqueues (`virtio-user` ports).
//!
//! Must not know mbufs, DPDK, sockets or threads. The peer is considered hostile everywhere: each value from it is read
//! once, checked once and bounded.
#![forbid(unsafe_code)]
// Bytes from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
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

pub mod address_space;
pub mod driver;
pub mod features;
#[cfg(any(test, feature = "fuzz"))]
#[doc(hidden)]
#[allow(
    clippy::arithmetic_side_effects,
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    reason = "code of tests, which may panic"
)]
pub mod fuzz;
pub mod message;
mod narrow;
pub mod ring;
pub mod session;
