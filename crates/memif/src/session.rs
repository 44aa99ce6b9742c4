// SPDX-License-Identifier: Apache-2.0
//! The control channel as state machines: messages in, actions out. No socket, no clock.
//!
//! `F` is the caller's type of a file descriptor. A caller must carry out actions in order. After an error the session is
//! over: send [`SessionError::message`] and close the socket. A caller ends sessions that take too long.
//!
//! ```text
//! client                     server
//!                     <--    HELLO        Greeting
//! INIT                -->                 Server
//!                     <--    ACK
//! ADD_REGION (fd)     -->
//!                     <--    ACK
//! ADD_RING (fd)       -->
//!                     <--    ACK          for each region and ring
//! CONNECT             -->
//!                     <--    CONNECTED
//! DISCONNECT         <-->    DISCONNECT   at any time
//! ```

mod client;
mod server;

mod action;
#[cfg(test)]
mod tests;

use crate::message::{Message, Reason};

pub use action::{Action, Actions, Limits, SessionError};
pub use client::{Client, ClientConfig, Offer};
pub use server::{Greeting, Server, ServerConfig};

/// Returns the message that ends a connection without an error.
#[must_use]
pub fn goodbye(reason: &str) -> Message {
    Message::Disconnect {
        code: 0,
        reason: Reason::truncated(reason),
    }
}
