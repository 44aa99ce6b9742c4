// SPDX-License-Identifier: Apache-2.0
//! State of the switch as plain data structures: bridges and their forwarding tables, routes and next hops, neighbours, packet filters,
//! connections, NAT, NAT64, NAT66, ICMP. One folder per feature. Each fast table has a slow, obvious reference implementation that tests
//! compare it with.
//!
//! Forwarding threads read the tables in bursts of frames; one control thread writes them. Must not link DPDK and owns no thread.

// Packets and routes of others: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod arena;
pub mod balance;
pub mod bridge;
pub mod changes;
pub mod classifier;
pub mod connections;
pub mod drops;
pub mod fdb;
pub mod fib;
pub mod filter;
pub mod fragment_order;
mod fragments;
#[cfg(test)]
mod fuzz;
mod hash_index;
pub mod icmp;
mod named;
pub mod nat;
pub mod nat64;
pub mod nat66;
pub mod neighbour;
pub mod nptv6;
pub mod owner;
pub mod port_mask;
mod rate_limit;
pub mod route;
#[cfg(test)]
mod scapy;
pub mod share;
#[cfg(test)]
mod testing;
