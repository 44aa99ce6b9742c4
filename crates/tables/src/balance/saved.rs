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
//!
//! Those of IPv6 are longer:
//!
//! | octets | contents |
//! |---|---|
//! | 0 to 17 | address and port of the client |
//! | 18 to 35 | address and port of the backend |
//! | 36, 37 | as 12, 13 |

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

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};

/// Octets of a record.
pub const SAVED_BALANCED_OCTETS: usize = 14;
/// Octets of a record of IPv6.
pub const SAVED_BALANCED_IPV6_OCTETS: usize = 38;
/// Version of the records. It changes with their contents.
pub const SAVED_BALANCED_VERSION: u16 = 1;

const IS_CLOSING: u8 = 1;
/// Octets of an endpoint of IPv6.
const IPV6_END_OCTETS: usize = 18;

/// A connection of a load balancer, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedBalanced<E = SocketAddrV4> {
    /// The client.
    pub client: E,
    /// Its backend.
    pub backend: E,
    /// TCP: one side has closed or reset the connection.
    pub is_closing: bool,
}

/// A change of a connection of a load balancer, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BalancedChange<E = SocketAddrV4> {
    /// The connection has this state.
    Present(SavedBalanced<E>),
    /// The connection has ended.
    Ended(SavedBalanced<E>),
}

impl SavedBalanced<SocketAddrV4> {
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

fn octets_of(end: SocketAddrV6) -> impl Iterator<Item = u8> {
    end.ip()
        .octets()
        .into_iter()
        .chain(end.port().to_be_bytes())
}

fn end_of(octets: &[u8; IPV6_END_OCTETS]) -> Option<SocketAddrV6> {
    let (address, port) = octets.split_first_chunk::<16>()?;
    let port = u16::from_be_bytes(*port.first_chunk()?);
    Some(SocketAddrV6::new(Ipv6Addr::from(*address), port, 0, 0))
}

impl SavedBalanced<SocketAddrV6> {
    /// Returns the record.
    #[must_use]
    pub fn to_octets(self) -> [u8; SAVED_BALANCED_IPV6_OCTETS] {
        let flags = if self.is_closing { IS_CLOSING } else { 0 };
        let ends = octets_of(self.client).chain(octets_of(self.backend));
        let mut octets = [0; SAVED_BALANCED_IPV6_OCTETS];
        for (place, octet) in octets.iter_mut().zip(ends.chain([flags, 0])) {
            *place = octet;
        }
        octets
    }

    /// Reads a record; `None` if no connection has it. [`crate::changes::Replicate::apply`] checks the backend.
    #[must_use]
    pub fn from_octets(octets: &[u8; SAVED_BALANCED_IPV6_OCTETS]) -> Option<Self> {
        let (client, rest) = octets.split_first_chunk::<IPV6_END_OCTETS>()?;
        let (backend, rest) = rest.split_first_chunk::<IPV6_END_OCTETS>()?;
        let [flags, 0] = *rest else {
            return None;
        };
        if flags & !IS_CLOSING != 0 {
            return None;
        }
        Some(Self {
            client: end_of(client)?,
            backend: end_of(backend)?,
            is_closing: flags & IS_CLOSING != 0,
        })
    }
}
