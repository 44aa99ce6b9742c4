// SPDX-License-Identifier: Apache-2.0
//! The router: where an IP packet goes on, and what has to be done to it on the way (RFC 1812, RFC 8200).
//!
//! [`decide`] takes a burst of frames as bytes, each with the interface it came in on, and gives one decision each.
//! [`rewrite`] does to a frame what forwarding does: addresses, time to live, checksum. [`fragments()`] cuts an IPv4 packet.
//! All three know no packet buffers. What they read is made by the control thread: [`Interfaces`] for each generation of
//! the configuration, [`NextHops`] and the tables of [`crate::fib`] once, and changed while they are read.
//!
//! What a forwarding thread does not do itself (neighbours to be found, errors to be sent, packets for the router) it hands
//! to the service thread: [`Punt`] says why.

mod decide;
mod decision;
mod flow_hash;
mod fragment;
mod header;
mod interfaces;
mod kernel_filter;
mod next_hops;
mod plain;
mod resolve;
mod rewrite;
pub mod rib;
mod router;
#[cfg(test)]
mod tests;

pub use decide::decide;
pub use decision::{Adjacency, Decision, DecisionWord, Decisions, Punt, Tally};
pub use fragment::{Fragment, fragments};
pub use interfaces::{Interface, InterfacePlace, Interfaces, PortInterfaces, Urpf};
pub use kernel_filter::{FILTER_RULES_MAX, FilterRule, KernelFilter};
pub use next_hops::{Buckets, MEMBERS_MAX, Member, NextHop, NextHopError, NextHopWriter, NextHops};
pub use rewrite::rewrite;
pub use router::{Router, Vrf};
