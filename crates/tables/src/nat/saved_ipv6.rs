// SPDX-License-Identifier: Apache-2.0
//! Mappings of NAT66 and NAT64 as records of a fixed size, for a standby and for saved files. Hosts have their addresses there, because the
//! numbers of another switch are others. IPv4 addresses are IPv4-mapped addresses (RFC 4291, section 2.5.5.2).
//!
//! A record is of version [`SAVED_MAPPING_VERSION`](super::SAVED_MAPPING_VERSION). All numbers are in network order:
//!
//! | octets | contents |
//! |---|---|
//! | 0 | number of the protocol in [`NatProtocol::ALL`] |
//! | 1 | flags: 1 if the other side of a TCP mapping has answered |
//! | 2 to 19 | inside address and port |
//! | 20 to 37 | external address and port |

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

use super::names::NatProtocol;
use super::saved::SavedMapping;

/// Octets of a record.
pub const SAVED_MAPPING_IPV6_OCTETS: usize = 38;

const IS_ANSWERED: u8 = 1;

/// A mapping of NAT66 or NAT64, for a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SavedMappingIpv6 {
    /// Protocol.
    pub protocol: NatProtocol,
    /// TCP: the other side has answered.
    pub is_answered: bool,
    /// Inside endpoint.
    pub internal: SocketAddrV6,
    /// External endpoint.
    pub external: SocketAddrV6,
}

impl SavedMapping {
    /// Returns the mapping of hosts that have these addresses in place of numbers.
    pub(crate) fn with_addresses(
        &self,
        internal: Ipv6Addr,
        external: Ipv6Addr,
    ) -> SavedMappingIpv6 {
        SavedMappingIpv6 {
            protocol: self.protocol,
            is_answered: self.is_answered,
            internal: SocketAddrV6::new(internal, self.internal.port(), 0, 0),
            external: SocketAddrV6::new(external, self.external.port(), 0, 0),
        }
    }
}

fn octets_of(end: SocketAddrV6) -> impl Iterator<Item = u8> {
    let address = end.ip().octets().into_iter();
    address.chain(end.port().to_be_bytes())
}

/// Reads an endpoint from the front.
fn take_end(octets: &mut &[u8]) -> Option<SocketAddrV6> {
    let (address, rest) = octets.split_first_chunk::<16>()?;
    let (port, rest) = rest.split_first_chunk::<2>()?;
    *octets = rest;
    let address = Ipv6Addr::from(*address);
    Some(SocketAddrV6::new(address, u16::from_be_bytes(*port), 0, 0))
}

impl SavedMappingIpv6 {
    /// Returns the record.
    #[must_use]
    pub fn to_octets(self) -> [u8; SAVED_MAPPING_IPV6_OCTETS] {
        let flags = if self.is_answered { IS_ANSWERED } else { 0 };
        let head = [self.protocol as u8, flags].into_iter();
        let all = head.chain(octets_of(self.internal));
        let all = all.chain(octets_of(self.external));
        let mut octets = [0; SAVED_MAPPING_IPV6_OCTETS];
        for (place, octet) in octets.iter_mut().zip(all) {
            *place = octet;
        }
        octets
    }

    /// Returns the mapping of a NAT whose addresses are these numbers.
    pub(crate) fn with_numbers(&self, internal: u32, external: u32) -> SavedMapping {
        let end = |number: u32, port| SocketAddrV4::new(Ipv4Addr::from_bits(number), port);
        SavedMapping {
            protocol: self.protocol,
            is_answered: self.is_answered,
            internal: end(internal, self.internal.port()),
            external: end(external, self.external.port()),
            remote: end(0, 0),
        }
    }

    /// Reads a record; `None` if no mapping has it. [`ReplicateIpv6::apply`](super::ReplicateIpv6::apply) checks the endpoints.
    #[must_use]
    pub fn from_octets(octets: &[u8; SAVED_MAPPING_IPV6_OCTETS]) -> Option<Self> {
        let (&[protocol, flags], mut rest) = octets.split_first_chunk::<2>()?;
        if flags & !IS_ANSWERED != 0 {
            return None;
        }
        Some(Self {
            protocol: NatProtocol::ALL.get(usize::from(protocol)).copied()?,
            is_answered: flags & IS_ANSWERED != 0,
            internal: take_end(&mut rest)?,
            external: take_end(&mut rest)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn records_are_read_as_they_are_written(octets in prop::collection::vec(any::<u8>(), SAVED_MAPPING_IPV6_OCTETS)) {
            let octets: [u8; SAVED_MAPPING_IPV6_OCTETS] = octets.try_into().unwrap();
            if let Some(saved) = SavedMappingIpv6::from_octets(&octets) {
                prop_assert_eq!(saved.to_octets(), octets);
            }
        }
    }

    #[test]
    fn records_have_the_octets_of_the_format() {
        let saved = SavedMappingIpv6 {
            protocol: NatProtocol::Udp,
            is_answered: true,
            internal: "[fd00:1::5]:258".parse().unwrap(),
            external: "[2001:db8::1]:772".parse().unwrap(),
        };
        let mut expected = vec![1, 1];
        expected.extend(saved.internal.ip().octets());
        expected.extend([1, 2]);
        expected.extend(saved.external.ip().octets());
        expected.extend([3, 4]);
        let mut octets = saved.to_octets();
        assert_eq!(octets[..], expected);
        assert_eq!(SavedMappingIpv6::from_octets(&octets), Some(saved));
        octets[1] = 2;
        assert_eq!(SavedMappingIpv6::from_octets(&octets), None);
        octets[..2].copy_from_slice(&[3, 0]);
        assert_eq!(SavedMappingIpv6::from_octets(&octets), None);
    }
}
