// SPDX-License-Identifier: Apache-2.0
//! The tester's two networks, between which routers route.

use crate::guest::agent::protocol::Routing;
use crate::topology::Encapsulation;

/// MAC addresses that the tester's first and second port have (docs/tester.md).
pub(super) const TESTER: [&str; 2] = ["02:00:00:00:00:00", "02:01:00:00:00:00"];

/// The MAC address that a router's first or second port has: the tester's frames go to that of its own other port.
pub(super) fn router_mac(port: usize) -> Option<&'static str> {
    TESTER.iter().rev().nth(port).copied()
}

/// Of each side: its network, the router's own address, and the tester's, which nobody asks for.
pub(super) struct Side {
    pub(super) network: &'static str,
    pub(super) own: &'static str,
    pub(super) tester: &'static str,
}

/// Networks of RFC 2544, appendix C.2.2, and of RFC 5180, section 8: those that the tester's frames go between.
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

/// How a router between them is set up.
///
/// # Errors
/// None, as long as the addresses above are addresses.
pub(super) fn routing(encapsulation: Encapsulation) -> Result<Routing, String> {
    let mut routing = Routing::default();
    for (port, side) in sides(encapsulation).iter().enumerate() {
        let wrong = |what: &str| format!("{what} is no address");
        let own = side.own.parse().map_err(|_| wrong(side.own))?;
        let tester = side.tester.parse().map_err(|_| wrong(side.tester))?;
        let mac = TESTER[port].parse().map_err(|_| wrong(TESTER[port]))?;
        routing.addresses.insert(port, vec![own]);
        routing.neighbours.push((port, tester, mac));
    }
    Ok(routing)
}
