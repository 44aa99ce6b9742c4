// SPDX-License-Identifier: Apache-2.0
//! The memif protocol, version 2.0: packets between two processes of one machine through shared memory.
//!
//! - [`message`]: the codec of the control channel, a Unix socket of type SEQPACKET.
//! - [`session`]: the control channel's state machines for both roles. They have no socket and no clock.
//! - [`ring`]: the rings in shared memory, both ends, in both roles.
//!
//! Must not know mbufs, DPDK, sockets or threads. The peer is considered hostile everywhere: each value from it is read
//! once, checked once and bounded.
//!
//! The *client* owns the memory and connects; the *server* listens. A ring carries frames one way: client to server (C2S)
//! or server to client (S2C).
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
pub mod ring;
pub mod session;
