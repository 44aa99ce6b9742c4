// SPDX-License-Identifier: Apache-2.0
//! Conversations over TCP and UDP: the tester opens connections, sends requests, checks answers, and closes, with a TCP of its own.
//!
//! The ends are state machines without clock and input: they accept frames with the time of their arrival, and have packets to send. One
//! part drives them over the tester's ports.

// Frames and text from outside: no cast loses or adds a sign.
#![cfg_attr(not(test), deny(clippy::cast_sign_loss, clippy::cast_possible_wrap))]

mod background;
mod client;
mod description;
mod drive;
mod end;
mod expected_nat;
mod flood;
mod flooding;
mod fragmenting;
mod fragments;
mod illegal;
#[cfg(test)]
mod kernel_tests;
mod methods;
mod nat;
mod octets;
mod outcome;
mod pattern;
mod piece;
mod piece_count;
mod plan;
mod request;
mod result;
mod server;
mod session;
mod sources;
mod table;
mod tcp;
#[cfg(test)]
mod tests;
mod udp;
mod wire;

pub use description::{
    ADDRESSES_MAX, ClientSide, Connections, Conversation, MIX_MAX, OPEN_MAX, RATE_MAX, Role,
    ServerSide, Size, TransportProtocol,
};
pub use expected_nat::{ExpectedNat, NatCheckReport, NatFault, NatViolation, PoolRange};
pub use flood::{Flood, FloodResult};
pub use fragments::{ArrivedFragments, Fragments, FragmentsResult};
pub use illegal::{Illegal, IllegalResult};
pub use methods::{ConversationLoad, ConversationOutcome, ConversationRun};
pub(crate) use methods::{FRAGMENTED_LOST, ILLEGAL_FORWARDED};
pub use nat::{PoolAddress, TranslationReport};
pub use outcome::{ConversationEnd, FailureCause};
pub use result::{
    ClientResult, ConnectionHealth, ConnectionResult, MixResult, ServerResult, SustainedRates,
    TcpResult,
};
#[cfg(test)]
pub(crate) use tcp::feed as feed_segments;
#[cfg(test)]
pub(crate) use tests::{Delivery, run_through};

/// Adds 1 to a counter.
fn count(counter: &mut u64) {
    add(counter, 1);
}

/// Adds to a counter.
fn add(counter: &mut u64, count: u64) {
    *counter = counter.saturating_add(count);
}
