// SPDX-License-Identifier: Apache-2.0
//! Packets of the router itself about packets that NAT64 has translated: a forwarding thread translates them back.

use std::net::IpAddr;

use quietwire_packet::MacAddress;
use quietwire_tables::nat64::Prefix64;

/// An interface, and its MAC address.
pub(crate) type Ingress = (u16, MacAddress);

/// Addresses of an instance of NAT64.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nat64Addresses {
    /// Number of the VRF.
    pub(crate) vrf: u16,
    /// External addresses.
    pub(crate) externals: Vec<u32>,
    pub(crate) prefix: Prefix64,
    /// The interface that IPv4 packets to external addresses come from.
    pub(crate) outside: Ingress,
    /// An interface that IPv6 packets to the prefix come from.
    pub(crate) inside: Ingress,
}

impl Nat64Addresses {
    /// Returns the interface that a packet to this address has to come from, if it is translated.
    pub(super) fn ingress(&self, vrf: u16, to: IpAddr) -> Option<Ingress> {
        let (is_translated, ingress) = match to {
            IpAddr::V4(to) => (self.externals.contains(&to.to_bits()), self.outside),
            IpAddr::V6(to) => (self.prefix.contains(to.to_bits()), self.inside),
        };
        (is_translated && self.vrf == vrf).then_some(ingress)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_to_external_addresses_and_to_the_prefix_are_translated() {
        let outside = (1, MacAddress([2, 0, 0, 0, 0, 1]));
        let inside = (2, MacAddress([2, 0, 0, 0, 0, 2]));
        let addresses = Nat64Addresses {
            vrf: 3,
            externals: vec![0xc633_6401],
            prefix: Prefix64::new("64:ff9b::/96".parse().unwrap()).unwrap(),
            outside,
            inside,
        };
        for (vrf, to, ingress) in [
            (3, "198.51.100.1", Some(outside)),
            (3, "198.51.100.2", None),
            (4, "198.51.100.1", None),
            (3, "64:ff9b::1", Some(inside)),
            (3, "64:ff9b:1::1", None),
            (0, "64:ff9b::1", None),
        ] {
            assert_eq!(addresses.ingress(vrf, to.parse().unwrap()), ingress, "{to}");
        }
    }
}
