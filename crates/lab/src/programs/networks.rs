// SPDX-License-Identifier: Apache-2.0
//! The tester's two networks, between which routers route.

use std::net::Ipv4Addr;

use quietwire_packet::MacAddress;
use quietwire_tester::DESTINATIONS_MAX;

use crate::topology::Encapsulation;

/// MAC addresses of the tester's first and second port (docs/tester.md).
pub(super) const TESTER: [MacAddress; 2] = [
    MacAddress::from_u64(0x0200_0000_0000),
    MacAddress::from_u64(0x0201_0000_0000),
];

/// First of the IPv4 destinations that the tester draws (docs/tester.md, `--destinations`).
const FIRST_V4: u32 = 0x1000_0000;

/// One side: its network, the router's address, and the tester's address, for which no ARP request is sent.
pub(super) struct Side {
    pub(super) network: &'static str,
    pub(super) own: &'static str,
    pub(super) tester: &'static str,
}

/// Networks of RFC 2544, appendix C.2.2, and of RFC 5180, section 8, between which the tester sends frames.
pub(super) fn sides(encapsulation: Encapsulation) -> [Side; 2] {
    match encapsulation {
        Encapsulation::Ipv6 => [
            Side {
                network: "2001:2::/64",
                own: "2001:2::fe/64",
                tester: "2001:2::1",
            },
            Side {
                network: "2001:2:0:1::/64",
                own: "2001:2:0:1::fe/64",
                tester: "2001:2:0:1::1",
            },
        ],
        _ => [
            Side {
                network: "198.18.0.0/24",
                own: "198.18.0.254/24",
                tester: "198.18.0.1",
            },
            Side {
                network: "198.18.1.0/24",
                own: "198.18.1.254/24",
                tester: "198.18.1.1",
            },
        ],
    }
}

/// Networks behind a side of the tester, 0 or 1, from which its other port draws `count` IP destinations (docs/tester.md,
/// `--destinations`). `None` for one destination, which is on the side's own network.
pub(super) fn drawn(
    encapsulation: Encapsulation,
    side: usize,
    count: u32,
) -> impl Iterator<Item = String> {
    // The first port sends to networks from 16.0.0.0 or 3fff:: on, the second to those from 48.0.0.0 or 3fff:20:: on.
    let first = if side == 0 { DESTINATIONS_MAX } else { 0 };
    let count = if count > 1 { count } else { 0 };
    (first..first.saturating_add(count)).map(move |number| match encapsulation {
        Encapsulation::Ipv6 => format!("3fff:{:x}:{:x}::/48", number >> 16, number & 0xffff),
        _ => format!(
            "{}/24",
            Ipv4Addr::from_bits(FIRST_V4.saturating_add(number << 8))
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_the_networks_that_the_other_port_draws() {
        let of = |encapsulation, side, count| -> Vec<String> {
            drawn(encapsulation, side, count).collect()
        };
        assert!(of(Encapsulation::Ipv4, 1, 1).is_empty());
        assert_eq!(
            of(Encapsulation::Ipv4, 1, 2),
            ["16.0.0.0/24", "16.0.1.0/24"]
        );
        assert_eq!(
            of(Encapsulation::Ipv4, 0, 2),
            ["48.0.0.0/24", "48.0.1.0/24"]
        );
        assert_eq!(
            of(Encapsulation::Ipv6, 1, 2),
            ["3fff:0:0::/48", "3fff:0:1::/48"]
        );
        assert_eq!(
            of(Encapsulation::Ipv6, 0, 2),
            ["3fff:20:0::/48", "3fff:20:1::/48"]
        );
        let last = drawn(Encapsulation::Ipv4, 0, DESTINATIONS_MAX).last();
        assert_eq!(last.as_deref(), Some("79.255.255.0/24"));
    }
}
