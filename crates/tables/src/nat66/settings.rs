// SPDX-License-Identifier: Apache-2.0
//! Settings of NAT66: external addresses, and their numbers.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV6};

use crate::nat::{EXTERNALS_MAX, FORWARDS_MAX, Forward, NatProtocol};

/// Settings of NAT66, beside those of its NAT.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nat66Settings {
    /// External addresses. The addresses of the NAT's pool are their numbers ([`external_number`]).
    pub externals: Vec<Ipv6Addr>,
    /// Maximum number of hosts of the NAT, up to 2^24.
    pub hosts_max: u32,
}

/// Returns what stands for the external address at a position of [`Nat66Settings::externals`] in the pool of the NAT.
#[must_use]
pub fn external_number(position: usize) -> Ipv4Addr {
    Ipv4Addr::from_bits(u32::try_from(position).unwrap_or(u32::MAX))
}

/// Error of the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Nat66SettingsError {
    /// Number of addresses out of range.
    #[error("{0} external addresses are out of range (allowed: 1 to {EXTERNALS_MAX})")]
    Addresses(usize),
    /// An address twice.
    #[error("external address {0} is listed twice")]
    Twice(Ipv6Addr),
    /// Too many forwards.
    #[error("{0} forwards are too many (maximum: {FORWARDS_MAX})")]
    Forwards(usize),
    /// A forward of ICMPv6.
    #[error("forward {0}: only TCP and UDP ports can be forwarded")]
    ForwardProtocol(SocketAddrV6),
    /// A forward to port 0, or from it.
    #[error("forward {0}: port 0 is reserved (allowed: 1 to 65535)")]
    ForwardPort(SocketAddrV6),
    /// A forward whose external address is not of the pool.
    #[error("forward {0}: the address is not an external address of the pool")]
    ForwardAddress(SocketAddrV6),
    /// A forward to an address that no host behind a router has.
    #[error(
        "forward to {0}: the address is not a unicast address of a host (use a global or a unique local one)"
    )]
    ForwardHost(SocketAddrV6),
    /// Two forwards with one external or inside endpoint.
    #[error("forward {external} to {internal}: another forward has one of these endpoints")]
    ForwardTwice {
        /// External endpoint.
        external: SocketAddrV6,
        /// Inside endpoint.
        internal: SocketAddrV6,
    },
}

/// Returns true for an address that a host behind a router can have.
#[must_use]
pub fn is_host(address: Ipv6Addr) -> bool {
    !address.is_multicast()
        && !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_unicast_link_local()
}

impl Nat66Settings {
    /// Returns true if these settings are the other ones with further external addresses behind theirs.
    #[must_use]
    pub fn extends(&self, other: &Self) -> bool {
        self.externals.len() > other.externals.len()
            && self.externals.starts_with(&other.externals)
            && self.hosts_max == other.hosts_max
    }

    /// Checks the addresses, and static forwards of them.
    ///
    /// # Errors
    /// [`Nat66SettingsError`].
    pub fn check(&self, forwards: &[Forward<SocketAddrV6>]) -> Result<(), Nat66SettingsError> {
        let count = self.externals.len();
        if !(1..=EXTERNALS_MAX).contains(&count) {
            return Err(Nat66SettingsError::Addresses(count));
        }
        let mut known = BTreeSet::new();
        if let Some(twice) = self.externals.iter().find(|one| !known.insert(**one)) {
            return Err(Nat66SettingsError::Twice(*twice));
        }
        if forwards.len() > FORWARDS_MAX {
            return Err(Nat66SettingsError::Forwards(forwards.len()));
        }
        let (mut externals, mut internals) = (BTreeSet::new(), BTreeSet::new());
        for forward in forwards {
            let Forward {
                protocol,
                external,
                internal,
            } = *forward;
            if protocol == NatProtocol::Icmp {
                return Err(Nat66SettingsError::ForwardProtocol(external));
            }
            if external.port() == 0 || internal.port() == 0 {
                return Err(Nat66SettingsError::ForwardPort(external));
            }
            if !known.contains(external.ip()) {
                return Err(Nat66SettingsError::ForwardAddress(external));
            }
            if !is_host(*internal.ip()) || internal.scope_id() != 0 {
                return Err(Nat66SettingsError::ForwardHost(internal));
            }
            let is_new = externals.insert((protocol, external));
            if !internals.insert((protocol, internal)) || !is_new {
                return Err(Nat66SettingsError::ForwardTwice { external, internal });
            }
        }
        Ok(())
    }
}
