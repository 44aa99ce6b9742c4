// SPDX-License-Identifier: Apache-2.0
//! Configuration of quietwire's routers. A chain has the networks of the tester's two ports at its ends, and one network between each two of
//! its routers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;
use quietwire_packet::MacAddress;

use super::networks::drawn;
use crate::element::Plan;
use crate::guest::agent::protocol::Routing;
use crate::router_tables::RouterTables;
use crate::topology::{Encapsulation, LENGTH_MAX, Program, RouterPlace};

/// First address of the networks between routers, the second half of RFC 2544's (appendix C.2.2).
const BETWEEN_V4: u32 = 0xc613_0000;
/// Addresses of such a network.
const SIZE_V4: u32 = 64;
/// Fourth word of the first such IPv6 network, of those of RFC 5180, section 8.
const BETWEEN_V6: u16 = 0x1000;
/// MAC address of the tester's first port (docs/tester.md).
const MAC_TESTER: u64 = 0x0200_0000_0000;
/// Prefix of MAC addresses between routers: locally administered, different from those of the tester and of guests.
const MAC_BETWEEN: u64 = 0x02fe_0000_0000;

/// An end of a network: a router's port, or the tester's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    address: IpNet,
    mac: MacAddress,
}

/// Returns both ends of a network of a chain with this number of routers: the end nearer to the start of the chain first. Network 0 is that
/// of the tester's first port, and network `count` that of its second one.
fn network(
    encapsulation: Encapsulation,
    RouterPlace { chain, count, .. }: RouterPlace,
    index: usize,
) -> Result<[End; 2], String> {
    let number = |value: usize| u16::try_from(value).map_err(|error| error.to_string());
    // The tester's ports have numbers, which are parts of its addresses (docs/tester.md).
    let first = chain.saturating_mul(2);
    let ports = [number(first)?, number(first.saturating_add(1))?];
    let port = match index {
        0 => Some(ports[0]),
        index if index == count => Some(ports[1]),
        _ => None,
    };
    let Some(port) = port else {
        let before = chain.saturating_mul(LENGTH_MAX as usize);
        let number = number(before.saturating_add(index))?;
        let host = |host: u16| between(encapsulation, number, host);
        let mac = |host: u64| MacAddress::from_u64(MAC_BETWEEN | (u64::from(number) << 8) | host);
        return Ok([
            End {
                address: host(1)?,
                mac: mac(1),
            },
            End {
                address: host(2)?,
                mac: mac(2),
            },
        ]);
    };
    let [own, peer] = [port, port ^ 1].map(tester_mac);
    let tester = End {
        address: at_tester(encapsulation, port, 1)?,
        mac: own,
    };
    // The tester sends frames to the MAC address of its own other port.
    let router = End {
        address: at_tester(encapsulation, port, 0xfe)?,
        mac: peer,
    };
    Ok(match index {
        0 => [tester, router],
        _ => [router, tester],
    })
}

/// Returns the MAC address of a port of the tester.
fn tester_mac(port: u16) -> MacAddress {
    MacAddress::from_u64(MAC_TESTER.saturating_add(u64::from(port) << 32))
}

fn net(address: IpAddr, v4: u8, v6: u8) -> Result<IpNet, String> {
    let length = if address.is_ipv4() { v4 } else { v6 };
    IpNet::new(address, length).map_err(|error| error.to_string())
}

/// Returns an address of the network of a port of the tester.
fn at_tester(encapsulation: Encapsulation, port: u16, host: u8) -> Result<IpNet, String> {
    let address: IpAddr = match encapsulation {
        Encapsulation::Ipv6 => Ipv6Addr::new(0x2001, 2, 0, port, 0, 0, 0, u16::from(host)).into(),
        _ => {
            let port = u8::try_from(port).map_err(|error| error.to_string())?;
            Ipv4Addr::new(198, 18, port, host).into()
        }
    };
    net(address, 24, 64)
}

/// Returns an address of a network between two routers.
fn between(encapsulation: Encapsulation, number: u16, host: u16) -> Result<IpNet, String> {
    let address: IpAddr = match encapsulation {
        Encapsulation::Ipv6 => Ipv6Addr::new(
            0x2001,
            2,
            0,
            BETWEEN_V6.saturating_add(number),
            0,
            0,
            0,
            host,
        )
        .into(),
        _ => {
            let first = BETWEEN_V4.saturating_add(u32::from(number).saturating_mul(SIZE_V4));
            Ipv4Addr::from_bits(first.saturating_add(u32::from(host))).into()
        }
    };
    net(address, 26, 64)
}

/// Returns the MAC address of port 0 or 1 of a router.
pub(super) fn mac(plan: &Plan, port: usize) -> Option<MacAddress> {
    let at = plan.router.index.saturating_add(port);
    let ends = network(plan.encapsulation, plan.router, at).ok()?;
    // Port 0 is the farther end of its network, port 1 the nearer one.
    match port {
        0 => Some(ends[1].mac),
        1 => Some(ends[0].mac),
        _ => None,
    }
}

/// Returns the addresses, neighbours and routes of a router: to the other networks of its chain, and to those from which the tester draws
/// `destinations` IP destinations.
///
/// # Errors
/// A chain or a place out of range.
pub(super) fn routing(plan: &Plan, destinations: u32) -> Result<Routing, String> {
    let (encapsulation, place) = (plan.encapsulation, plan.router);
    let network = |index: usize| network(encapsulation, place, index);
    let ends = [
        network(place.index)?,
        network(place.index.saturating_add(1))?,
    ];
    let [own, next] = [[ends[0][1], ends[1][0]], [ends[0][0], ends[1][1]]];
    let mut routing = Routing::default();
    for (port, (own, next)) in own.iter().zip(next).enumerate() {
        let gateway = next.address.addr();
        let others = match port {
            0 => 0..place.index,
            _ => place.index.saturating_add(2)..place.count.saturating_add(1),
        };
        routing.addresses.insert(port, vec![own.address]);
        for other in others {
            let [end, _] = network(other)?;
            routing.routes.push((end.address.trunc(), gateway));
        }
        for prefix in drawn(encapsulation, port, destinations) {
            let prefix = prefix
                .parse()
                .map_err(|_| format!("{prefix} is no network"))?;
            routing.routes.push((prefix, gateway));
        }
        routing.neighbours.push((port, gateway, next.mac));
    }
    Ok(routing)
}

/// Returns the configuration file of a router, without its ports.
///
/// # Errors
/// As [`routing`].
pub(super) fn config(plan: &Plan, destinations: u32) -> Result<String, String> {
    let tables = RouterTables::of(&routing(plan, destinations)?, |port| mac(plan, port));
    let tables = toml::to_string(&tables).map_err(|error| error.to_string())?;
    let own = match (&plan.config, plan.program) {
        (Some(own), _) => own.clone(),
        (None, Program::Nat) => nat(plan)?,
        (None, _) => String::new(),
    };
    // Keys of the top level precede tables.
    Ok(format!("{own}\n{tables}"))
}

/// Ports of a block of a NAT, and blocks of a host: a host may use all ports of the address, because the tester's flows are of one host.
const BLOCK_SIZE: u16 = 8064;
const BLOCKS: u16 = 8;

/// Returns the default configuration of a NAT. It translates the frames of both ports of the tester: those that leave by the other port of
/// the router get the address of that port.
fn nat(plan: &Plan) -> Result<String, String> {
    let network = |index: usize| network(plan.encapsulation, plan.router, index);
    let [first, _] = network(0)?;
    let [_, last] = network(plan.router.count)?;
    let instance = |name: &str, interface: usize, inside: End| {
        format!(
            "[[nat]]\nname = \"{name}\"\ninterface = \"i{interface}\"\nsources = [\"{}\"]\nblock-size = {BLOCK_SIZE}\nblocks-per-host = {BLOCKS}\n",
            inside.address.trunc()
        )
    };
    Ok(instance("forth", 1, first) + &instance("back", 0, last))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use quietwire_switch::config::Settings;

    use super::super::check_config;
    use super::super::tests::plan;
    use super::*;

    fn router(index: usize, count: usize) -> Plan {
        Plan {
            program: Program::QuietwireRouter,
            encapsulation: Encapsulation::Ipv4,
            router: RouterPlace {
                chain: 0,
                index,
                count,
            },
            ..plan(Path::new("/lab"))
        }
    }

    fn routes(routing: &Routing) -> Vec<String> {
        let routes = routing.routes.iter();
        routes
            .map(|(prefix, gateway)| format!("{prefix} {gateway}"))
            .collect()
    }

    #[test]
    fn a_router_alone_is_between_the_testers_two_networks() {
        let only = router(0, 1);
        let of = routing(&only, 3).unwrap();
        let own: Vec<String> = of.addresses.values().map(|of| of[0].to_string()).collect();
        assert_eq!(own, ["198.18.0.254/24", "198.18.1.254/24"]);
        let neighbours: Vec<String> = of
            .neighbours
            .iter()
            .map(|(port, address, mac)| format!("{port} {address} {mac}"))
            .collect();
        assert_eq!(
            neighbours,
            [
                "0 198.18.0.1 02:00:00:00:00:00",
                "1 198.18.1.1 02:01:00:00:00:00"
            ]
        );
        let macs = [0, 1, 2].map(|port| mac(&only, port).map(|mac| mac.to_string()));
        assert_eq!(
            macs,
            [
                Some("02:01:00:00:00:00".to_owned()),
                Some("02:00:00:00:00:00".to_owned()),
                None
            ]
        );
        let routes = routes(&of);
        assert_eq!(routes.len(), 6);
        assert_eq!(routes[3], "16.0.0.0/24 198.18.1.1");
        let v6 = Plan {
            encapsulation: Encapsulation::Ipv6,
            ..only
        };
        let of = routing(&v6, 1).unwrap();
        let own: Vec<String> = of.addresses.values().map(|of| of[0].to_string()).collect();
        assert_eq!(own, ["2001:2::fe/64", "2001:2:0:1::fe/64"]);
    }

    #[test]
    fn routers_of_a_chain_have_a_network_between_each_two() {
        for encapsulation in [Encapsulation::Ipv4, Encapsulation::Ipv6] {
            for chain in [0, 3, 31] {
                let place = |index| RouterPlace {
                    chain,
                    index,
                    count: 3,
                };
                let plans = [0, 1, 2].map(|index| Plan {
                    encapsulation,
                    router: place(index),
                    ..router(index, 3)
                });
                let routings = plans.each_ref().map(|plan| routing(plan, 1).unwrap());
                for at in 0..2 {
                    let (near, far) = (&routings[at], &routings[at + 1]);
                    let [left, right] = [near.addresses[&1][0], far.addresses[&0][0]];
                    assert_eq!(left.trunc(), right.trunc());
                    // Each is the neighbour of the other, by the MAC address of its interface.
                    assert_eq!(
                        near.neighbours[1],
                        (1, right.addr(), mac(&plans[at + 1], 0).unwrap())
                    );
                    assert_eq!(
                        far.neighbours[0],
                        (0, left.addr(), mac(&plans[at], 1).unwrap())
                    );
                }
                // Each router reaches every network of the chain.
                for routing in &routings {
                    let own = routing.addresses.values().map(|of| of[0].trunc());
                    let reached: std::collections::BTreeSet<_> = own
                        .chain(routing.routes.iter().map(|(prefix, _)| *prefix))
                        .collect();
                    assert_eq!(reached.len(), 4, "{routing:?}");
                    for (_, gateway) in &routing.routes {
                        let mut neighbours = routing.neighbours.iter();
                        assert!(neighbours.any(|(_, address, _)| address == gateway));
                    }
                }
            }
        }
    }

    #[test]
    fn chains_share_no_network() {
        let mut known = std::collections::BTreeSet::new();
        for chain in 0..32 {
            let place = RouterPlace {
                chain,
                index: 0,
                count: 32,
            };
            for index in 0..=32 {
                let [near, far] = network(Encapsulation::Ipv4, place, index).unwrap();
                assert_eq!(near.address.trunc(), far.address.trunc());
                assert!(known.insert(near.address.trunc()), "{near:?}");
                assert_ne!(near.mac, far.mac);
            }
        }
    }

    #[test]
    fn a_nat_translates_the_frames_of_both_ports_of_the_tester() {
        for (index, count) in [(0, 1), (0, 2), (1, 2)] {
            let nat = Plan {
                program: Program::Nat,
                ..router(index, count)
            };
            assert_eq!(check_config(&nat), Ok(()));
            let text = config(&nat, 1).unwrap();
            let read = Settings::parse(Path::new("c"), &text).unwrap();
            let of = |at: usize| read.nats.as_ref().unwrap()[at].value.clone();
            let reported = [of(0), of(1)].map(|one| (one.interface, one.sources[0].to_string()));
            assert_eq!(
                reported,
                [("i1", "198.18.0.0/24"), ("i0", "198.18.1.0/24")]
                    .map(|(interface, net)| (interface.to_owned(), net.to_owned()))
            );
        }
    }

    #[test]
    fn a_configuration_of_its_own_precedes_the_tables_of_a_router() {
        let own = "rule-default = \"drop\"\n[[nat]]\nname = \"n\"\ninterface = \"i1\"";
        for program in [Program::Nat, Program::QuietwireRouter] {
            let nat = Plan {
                program,
                config: Some(own.to_owned()),
                ..router(0, 2)
            };
            assert_eq!(check_config(&nat), Ok(()));
            let text = config(&nat, 1).unwrap();
            let read = Settings::parse(Path::new("c"), &text).unwrap();
            assert_eq!(read.interfaces.unwrap().len(), 2);
            assert_eq!(read.nats.unwrap().len(), 1);
            assert_eq!(read.routes.unwrap().len(), 1);
            assert!(read.rule_default.is_some());
        }
    }
}
