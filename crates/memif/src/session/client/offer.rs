// SPDX-License-Identifier: Apache-2.0
//! Memory that a client offers, and that a server may refuse.

use crate::message::RingLocation;

/// The memory that a client shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer<F> {
    /// Octets and file of each region.
    pub regions: Vec<(u64, F)>,
    /// Rings, and the eventfds of their interrupts.
    pub rings: Vec<(RingLocation, F)>,
}
