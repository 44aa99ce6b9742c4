// SPDX-License-Identifier: Apache-2.0
//! Connections of a load balancer as records of a fixed size, for a standby.
//!
//! A record is of version [`SAVED_BALANCED_VERSION`]. All numbers are in network order:
//!
//! | octets | contents |
//! |---|---|
//! | 0 to 5 | address and port of the client |
//! | 6 to 11 | address and port of the backend |
//! | 12 | flags: 1 if one side of TCP has closed or reset the connection |
//! | 13 | 0 |

// Records from outside: no cast loses a value, no index is unchecked, and no arithmetic overflows.
#![cfg_attr(
    not(test),
    deny(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

use std::net::{Ipv4Addr, SocketAddrV4};

/// Octets of a record.
pub const SAVED_BALANCED_OCTETS: usize = 14;
/// Version of the records. It changes with their contents.
pub const SAVED_BALANCED_VERSION: u16 = 1;

const IS_CLOSING: u8 = 1;

/// A connection of a load balancer, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedBalanced {
    /// The client.
    pub client: SocketAddrV4,
    /// Its backend.
    pub backend: SocketAddrV4,
    /// TCP: one side has closed or reset the connection.
    pub is_closing: bool,
}

/// A change of a connection of a load balancer, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancedChange {
    /// The connection has this state.
    Present(SavedBalanced),
    /// The connection has ended.
    Ended(SavedBalanced),
}

impl SavedBalanced {
    /// Returns the record.
    #[must_use]
    pub const fn to_octets(self) -> [u8; SAVED_BALANCED_OCTETS] {
        let [a, b, c, d] = self.client.ip().octets();
        let [e, f] = self.client.port().to_be_bytes();
        let [g, h, i, j] = self.backend.ip().octets();
        let [k, l] = self.backend.port().to_be_bytes();
        let flags = if self.is_closing { IS_CLOSING } else { 0 };
        [a, b, c, d, e, f, g, h, i, j, k, l, flags, 0]
    }

    /// Reads a record; `None` if no connection has it. [`crate::changes::Replicate::apply`] checks the backend.
    #[must_use]
    pub fn from_octets(octets: &[u8; SAVED_BALANCED_OCTETS]) -> Option<Self> {
        let [a, b, c, d, e, f, g, h, i, j, k, l, flags, 0] = *octets else {
            return None;
        };
        if flags & !IS_CLOSING != 0 {
            return None;
        }
        let end = |address: [u8; 4], port: [u8; 2]| {
            SocketAddrV4::new(Ipv4Addr::from(address), u16::from_be_bytes(port))
        };
        Some(Self {
            client: end([a, b, c, d], [e, f]),
            backend: end([g, h, i, j], [k, l]),
            is_closing: flags & IS_CLOSING != 0,
        })
    }
}
