// SPDX-License-Identifier: Apache-2.0
//! Mappings as records of a fixed size, for a standby.
//!
//! A record is of version [`SAVED_MAPPING_VERSION`]. All numbers are in network order:
//!
//! | octets | contents |
//! |---|---|
//! | 0 | number of the protocol in [`NatProtocol::ALL`] |
//! | 1 | flags: 1 if the other side of a TCP mapping has answered |
//! | 2 to 3 | inside port |
//! | 4 to 7 | inside address |
//! | 8 to 11 | external address |
//! | 12 to 13 | external port |
//! | 14 to 17 | remote address that the mapping depends on, or that filtering permits to reach it; 0 if there is none |
//! | 18 to 19 | remote port that the mapping depends on; 0 if it depends on none |

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

use super::names::NatProtocol;

/// Octets of a record.
pub const SAVED_MAPPING_OCTETS: usize = 20;
/// Version of the records, and of [those of IPv6 hosts](super::SavedMappingIpv6). It changes with their contents, and with the numbers of protocols.
pub const SAVED_MAPPING_VERSION: u16 = 2;

const IS_ANSWERED: u8 = 1;

/// A mapping, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedMapping {
    /// Protocol.
    pub protocol: NatProtocol,
    /// TCP: the other side has answered.
    pub is_answered: bool,
    /// Inside endpoint.
    pub internal: SocketAddrV4,
    /// External endpoint.
    pub external: SocketAddrV4,
    /// Remote endpoint that the mapping depends on. Address and port are 0 if it does not depend on them. With address-dependent filtering,
    /// each permitted remote address has a separate record, behind the record of the mapping without an address.
    pub remote: SocketAddrV4,
}

/// A change of a mapping, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingChange<S = SavedMapping> {
    /// The mapping is there.
    Present(S),
    /// The mapping has ended.
    Ended(S),
}

impl<S> MappingChange<S> {
    /// Returns the mapping.
    #[must_use]
    pub const fn saved(&self) -> &S {
        match self {
            Self::Present(saved) | Self::Ended(saved) => saved,
        }
    }

    /// Returns true if the mapping is there.
    pub(crate) const fn is_present(&self) -> bool {
        matches!(self, Self::Present(_))
    }

    /// Returns the same change of another mapping.
    #[must_use]
    pub fn of<T>(&self, saved: T) -> MappingChange<T> {
        match self {
            Self::Present(_) => MappingChange::Present(saved),
            Self::Ended(_) => MappingChange::Ended(saved),
        }
    }
}

impl SavedMapping {
    /// Returns the record.
    #[must_use]
    pub const fn to_octets(self) -> [u8; SAVED_MAPPING_OCTETS] {
        let [a, b] = self.internal.port().to_be_bytes();
        let [c, d, e, f] = self.internal.ip().octets();
        let [g, h, i, j] = self.external.ip().octets();
        let [k, l] = self.external.port().to_be_bytes();
        let [m, n, o, p] = self.remote.ip().octets();
        let [q, r] = self.remote.port().to_be_bytes();
        let flags = if self.is_answered { IS_ANSWERED } else { 0 };
        let protocol = self.protocol as u8;
        [
            protocol, flags, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r,
        ]
    }

    /// Reads a record; `None` if no mapping has it. [`crate::changes::Replicate::apply`] checks the endpoints.
    #[must_use]
    pub fn from_octets(octets: &[u8; SAVED_MAPPING_OCTETS]) -> Option<Self> {
        let [
            protocol,
            flags,
            a,
            b,
            c,
            d,
            e,
            f,
            g,
            h,
            i,
            j,
            k,
            l,
            remote @ ..,
        ] = *octets;
        let [m, n, o, p, q, r] = remote;
        if flags & !IS_ANSWERED != 0 {
            return None;
        }
        let end = |address: [u8; 4], port: [u8; 2]| {
            SocketAddrV4::new(Ipv4Addr::from(address), u16::from_be_bytes(port))
        };
        let protocol = NatProtocol::ALL.get(usize::from(protocol)).copied()?;
        let remote = end([m, n, o, p], [q, r]);
        // A port without an address, and the port of an echo.
        let may_have_port = !remote.ip().is_unspecified() && protocol != NatProtocol::Icmp;
        if remote.port() != 0 && !may_have_port {
            return None;
        }
        Some(Self {
            protocol,
            is_answered: flags & IS_ANSWERED != 0,
            internal: end([c, d, e, f], [a, b]),
            external: end([g, h, i, j], [k, l]),
            remote,
        })
    }
}
