// SPDX-License-Identifier: Apache-2.0
//! The sources of `crates/tables`, compiled for a model checker. Their own tests are left out: atomics of a model exist in a model only.

#[cfg(not(test))]
#[path = "../../../crates/tables/src"]
mod sources {
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
    pub(crate) mod fragments;
    pub(crate) mod hash_index;
    pub mod icmp;
    mod named;
    pub mod nat;
    pub mod nat64;
    pub mod nat66;
    pub mod neighbour;
    pub mod nptv6;
    pub mod owner;
    pub mod port_mask;
    pub(crate) mod rate_limit;
    pub mod route;
    pub mod share;
}

#[cfg(not(test))]
pub use sources::*;
