// SPDX-License-Identifier: Apache-2.0
//! Forwarding tables: the next hop of the longest prefix that a destination has (RFC 1812, section 5.2.4.3; RFC 4291,
//! section 2.3).
//!
//! Each table has two ends. Forwarding threads share [`Ipv4Fib`] or [`Ipv6Fib`]: they look up bursts without a lock and
//! in a bounded number of steps. One writer ([`Ipv4Routes`], [`Ipv6Routes`]) changes the table meanwhile: a look-up answers
//! with what was there before a change or after it, never with nothing in between.
//!
//! What the writer takes out may still be looked at: it is put to use again only when every forwarding thread has ended
//! the burst that it was at. The writer is told of that by numbers of epochs (`set_epoch`, `reclaim`).
//!
//! Next hops are numbers from 1 to [`NEXT_HOP_MAX`]; [`NO_ROUTE`] stands for none.

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

/// The highest number of a next hop.
pub const NEXT_HOP_MAX: u32 = (1 << 24) - 1;
/// What a look-up answers where there is no route.
pub const NO_ROUTE: u32 = 0;

/// Why a table could not be changed. It is as it was before.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FibError {
    /// Not the number of a next hop.
    #[error("{0} is not the number of a next hop, 1 to {NEXT_HOP_MAX}")]
    NextHop(u32),
    /// The table has no room.
    #[error(
        "the forwarding table of the VRF is full, and {0} does not fit; delete routes, or merge neighbouring prefixes"
    )]
    Full(ipnet::IpNet),
    /// The machine has no memory.
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
