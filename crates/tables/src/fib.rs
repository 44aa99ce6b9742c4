// SPDX-License-Identifier: Apache-2.0
//! Forwarding tables: longest prefix match of a destination (RFC 1812, section 5.2.4.3; RFC 4291, section 2.3).
//!
//! Each table has two sides. Forwarding threads share [`Ipv4Fib`] or [`Ipv6Fib`]: they look up bursts without a lock and in a bounded
//! number of steps. One writer ([`Ipv4Routes`], [`Ipv6Routes`]) changes the table concurrently: a look-up returns the result before or
//! after a change, never an intermediate gap.
//!
//! Readers may still use memory that the writer has freed. It is reused only once every forwarding thread has finished the burst it was
//! processing. Epoch numbers show the writer when (`set_epoch`, `reclaim`).
//!
//! Next hops are numbers from 1 to [`NEXT_HOP_MAX`]; [`NO_ROUTE`] means no route.

mod ipv4;
mod ipv6;
#[cfg(any(test, feature = "reference"))]
mod reference;
#[cfg(test)]
mod tests;

pub use crate::arena::{Epoch, NoMemory};
pub use ipv4::{Ipv4Fib, Ipv4Routes};
pub use ipv6::{Ipv6Fib, Ipv6Routes};
#[cfg(any(test, feature = "reference"))]
pub use reference::ReferenceFib;

/// Maximum next hop number.
pub const NEXT_HOP_MAX: u32 = (1 << 24) - 1;
/// Result of a look-up without a route.
pub const NO_ROUTE: u32 = 0;

/// Error of changing a table. The table stays unchanged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// Next hop number out of range.
    #[error("next hop number {0} is out of range (allowed: 1 to {NEXT_HOP_MAX})")]
    NextHop(u32),
    /// The table is full.
    #[error(
        "no space for {0}: the forwarding table of the VRF is full (delete routes, or aggregate prefixes)"
    )]
    Full(ipnet::IpNet),
    /// Out of memory.
    #[error(transparent)]
    Memory(#[from] NoMemory),
}

fn check(next_hop: u32) -> Result<(), FibError> {
    if (1..=NEXT_HOP_MAX).contains(&next_hop) {
        Ok(())
    } else {
        Err(FibError::NextHop(next_hop))
    }
}
