// SPDX-License-Identifier: Apache-2.0
//! Load balancing: connections to a virtual endpoint go to one of several backends, and answers get the virtual endpoint as their source.
//!
//! New connections are distributed by consistent hashing ([`choices`]), so that few of them change their backend when another one comes or
//! goes. Established connections stay with their backend as long as it is up or draining, because each has an entry.
//!
//! Each forwarding thread has its own [`Balancers`], without locks. [`Balancer::new`] makes all allocations, and every operation takes a
//! bounded number of steps. A connection takes 24 octets (IPv6: 48), and its index 8 to 16.
//!
//! All tables are of one IP version, that of their endpoints: IPv4 if none is given. A packet of IPv6 keeps its extension headers. One with
//! a routing header that has segments left, or with authentication, is not translated, as in [`crate::nat66`].

mod backend;
mod balancer;
mod endpoint;
mod maglev;
mod packets;
mod saved;
mod stage;
#[cfg(test)]
mod tests;

pub use backend::{Backend, BackendSet, BackendState, BackendUse};
pub use balancer::{
    BALANCED_MAX, BalanceCounters, BalanceDrop, BalanceError, BalanceSettings, Balancer,
};
pub use endpoint::BalanceEndpoint;
pub use maglev::{CHOICES, choices};
pub use saved::{
    BalancedChange, SAVED_BALANCED_IPV6_OCTETS, SAVED_BALANCED_OCTETS, SAVED_BALANCED_VERSION,
    SavedBalanced,
};
pub use stage::{BalanceOutcome, Balancers};
