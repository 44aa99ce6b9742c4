// SPDX-License-Identifier: Apache-2.0
//! Fuzz target of messages of the kernel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ipnet::IpNet;
use quietwire_base::fuzz::{check, planted};

use super::netlink;
use super::{KernelTarget, NeighbourMonitor, RouteMonitor};

/// Table and interface that the monitors follow.
const TABLE: u32 = 254;
const INDEX: u32 = 7;

/// Handles any octets as a datagram of the kernel. Only routes of followed tables and neighbours on followed interfaces are reported, and
/// what is withdrawn was reported before.
fn fuzz_netlink(octets: &[u8]) -> bool {
    let mut monitors = (
        RouteMonitor::new(BTreeSet::from([TABLE])).unwrap(),
        NeighbourMonitor::new(BTreeSet::from([INDEX])).unwrap(),
    );
    let mut routes: BTreeMap<IpNet, (u32, KernelTarget)> = BTreeMap::new();
    let mut neighbours: BTreeSet<IpAddr> = BTreeSet::new();
    let mut is_accepted = false;
    let mut events = Vec::new();
    netlink::read(octets, 0, &mut events);
    netlink::read(octets, 0, &mut events);
    let half = events.len() / 2;
    for (number, event) in events.into_iter().enumerate() {
        if number < half {
            monitors.0.handle(event, &mut |event| {
                assert_eq!(event.table, TABLE);
                assert_eq!(event.prefix, event.prefix.trunc());
                is_accepted = true;
                match event.route {
                    Some(route) => drop(routes.insert(event.prefix, route)),
                    None => assert!(routes.remove(&event.prefix).is_some()),
                }
            });
        } else {
            monitors.1.handle(event, &mut |event| {
                assert_eq!(event.index, INDEX);
                is_accepted = true;
                if event.neighbour.is_some() {
                    neighbours.insert(event.address);
                } else {
                    assert!(neighbours.remove(&event.address));
                }
            });
        }
    }
    planted("switch-netlink", || {
        let is_deep = |(metric, target): &(u32, KernelTarget)| match target {
            KernelTarget::Via(ways) => *metric == u32::MAX && ways.len() == 1,
            _ => false,
        };
        routes.len() > 1 && routes.values().any(is_deep)
    });
    is_accepted
}

#[test]
fn messages() {
    check(env!("CARGO_MANIFEST_DIR"), "switch-netlink", fuzz_netlink);
}
