// SPDX-License-Identifier: Apache-2.0
//! Checks of the traffic beside the conversations: rates, and source addresses, which differ by kind.

use std::net::IpAddr;

use quietwire_base::locate::{At, LocatedFault};

use super::description::{
    ADDRESSES_MAX, Connections, RATE_MAX, TransportProtocol, fault, last_address, outside,
};
use super::fragments::{FRAGMENTS, OCTETS};

/// One kind of traffic.
struct Kind {
    key: &'static str,
    rate: f64,
    first: IpAddr,
    count: u32,
}

impl Connections {
    /// Returns the first error in the tables of the traffic beside the conversations.
    pub(super) fn fault_of_background(&self) -> Option<LocatedFault> {
        let mut ranges = vec![
            ("client", self.client.address, self.client.count),
            ("server", self.server.address, self.server.count),
        ];
        for kind in self.kinds().into_iter().flatten() {
            if let Some(fault) = self.fault_of_kind(&kind, &ranges) {
                return Some(fault);
            }
            ranges.push((kind.key, kind.first, kind.count));
        }
        self.fault_of_ports().or_else(|| self.fault_of_fragments())
    }

    fn kinds(&self) -> [Option<Kind>; 3] {
        let is_ipv4 = self.server.address.is_ipv4();
        [
            self.flood.as_ref().map(|flood| Kind {
                key: "flood",
                rate: flood.rate,
                first: flood.first_address(is_ipv4),
                count: flood.count,
            }),
            self.illegal.as_ref().map(|illegal| Kind {
                key: "illegal",
                rate: illegal.rate,
                first: illegal.first_address(is_ipv4),
                count: illegal.count,
            }),
            self.fragments.as_ref().map(|fragments| Kind {
                key: "fragments",
                rate: fragments.rate,
                first: fragments.first_address(is_ipv4),
                count: fragments.count,
            }),
        ]
    }

    /// Returns the first error of a kind, whose addresses must be in none of these ranges.
    fn fault_of_kind(
        &self,
        kind: &Kind,
        ranges: &[(&'static str, IpAddr, u32)],
    ) -> Option<LocatedFault> {
        let Kind {
            key,
            rate,
            first,
            count,
        } = *kind;
        let at = |inner| [At::Key(key), At::Key(inner)];
        if !(rate > 0.0 && rate <= RATE_MAX) {
            return fault(
                &at("rate"),
                format!("rate is {rate} (must be above 0 and at most {RATE_MAX})"),
            );
        }
        if let Some(mut fault) = outside("count", count, (1, ADDRESSES_MAX)) {
            fault.path.insert(0, At::Key(key));
            return Some(fault);
        }
        if first.is_ipv4() != self.server.address.is_ipv4() {
            return fault(
                &at("address"),
                format!("{key} and server have addresses of different versions"),
            );
        }
        let Some(last) = last_address(first, count) else {
            return fault(
                &at("address"),
                format!("{count} addresses from {first} on exceed the address space"),
            );
        };
        for (other, address, count) in ranges {
            let overlaps = |end_of: IpAddr| end_of >= first && last >= *address;
            if last_address(*address, *count).is_some_and(overlaps) {
                return fault(
                    &at("address"),
                    format!("the sources {first} to {last} include addresses of the {other}"),
                );
            }
        }
        None
    }

    /// Returns the fault of a flood of SYNs, or of illegal SYNs, without a port.
    fn fault_of_ports(&self) -> Option<LocatedFault> {
        let mut mix = self.mix.iter();
        if mix.any(|entry| entry.protocol == TransportProtocol::Tcp) {
            return None;
        }
        if self.flood.is_some() {
            return fault(
                &[At::Key("flood")],
                "a flood of SYNs requires an entry of the mix over TCP",
            );
        }
        let illegal = self.illegal.as_ref()?;
        match illegal.port {
            Some(_) => None,
            None => fault(
                &[At::Key("illegal")],
                "illegal SYNs require a port, or an entry of the mix over TCP",
            ),
        }
    }

    fn fault_of_fragments(&self) -> Option<LocatedFault> {
        let fragments = self.fragments.as_ref()?;
        let wrong = outside("fragments", fragments.fragments, FRAGMENTS)
            .or_else(|| outside("octets", fragments.octets, OCTETS));
        if let Some(mut fault) = wrong {
            fault.path.insert(0, At::Key("fragments"));
            return Some(fault);
        }
        if !fragments.octets.is_multiple_of(8) {
            return fault(
                &[At::Key("fragments"), At::Key("octets")],
                format!("octets is {} (must be a multiple of 8)", fragments.octets),
            );
        }
        let mut mix = self.mix.iter();
        let is_used = mix
            .any(|entry| entry.protocol == TransportProtocol::Udp && entry.port == fragments.port);
        match is_used {
            true => fault(
                &[At::Key("fragments"), At::Key("port")],
                format!("port {} is used by an entry of the mix", fragments.port),
            ),
            false => None,
        }
    }
}
