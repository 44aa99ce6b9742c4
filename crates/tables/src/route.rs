// SPDX-License-Identifier: Apache-2.0
//! The router: selects next hops of IP packets and rewrites the packets (RFC 1812, RFC 8200).
//!
//! [`decide`] takes a burst of frames as bytes, each with its ingress interface, and returns one decision each. [`rewrite`] applies
//! forwarding to a frame: addresses, time to live, checksum. [`fragments()`] fragments an IPv4 packet. None of them uses packet buffers.
//! The control thread builds their tables: [`Interfaces`] for each generation of the configuration, [`NextHops`] and the tables of
//! [`crate::fib`] once, which it then changes while they are read.
//!
//! A forwarding thread passes other work (neighbour resolution, ICMP errors, packets to the router) to the service thread: [`Punt`] is the
//! reason.

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
pub use interfaces::{Interface, InterfaceBinding, Interfaces, PortInterfaces, Urpf};
pub use kernel_filter::{FILTER_RULES_MAX, FilterRule, KernelFilter};
pub use next_hops::{Buckets, MEMBERS_MAX, Member, NextHop, NextHopError, NextHopWriter, NextHops};
pub use rewrite::{Source, rewrite};
pub use router::{Router, Vrf};
