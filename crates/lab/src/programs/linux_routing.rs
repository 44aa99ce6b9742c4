// SPDX-License-Identifier: Apache-2.0
//! The kernel as a router between the tester's two networks, in its own namespace. It has no process: softirqs on the element's CPUs do the
//! work.
//!
//! With VNFs in the chain, frames pass the router several times. Each port at a VNF has its own network, and each port its own routing
//! table (ip-rule(8)): the receiving port determines the next hop of a packet.

use quietwire_base::Deadline;
use quietwire_tester::account::ElementCounts;

use super::forwarder::Forwarder;
use super::kernel;
use super::networks::{TESTER, drawn, sides};
use crate::element::{ElementContext, Plan, Process};
use crate::error::{LabError, io_error};
use crate::own_view::OwnView;
use crate::thread::DeviceThread;
use crate::topology::Encapsulation;
use crate::unavailable::Unavailable;

/// Number of the routing table of port p0; numbers up to 252 are free (ip-route(8)).
const FIRST_TABLE: usize = 100;

#[derive(Debug)]
pub(super) struct LinuxRouting;

/// A port and its peer, which is the next element that does not only forward.
#[derive(Debug, PartialEq, Eq)]
struct Leg {
    port: usize,
    mac: String,
    /// Address with the prefix length of its network.
    address: String,
    peer_address: String,
    peer_mac: String,
    /// Route of the packets that this port sends.
    way: String,
}

/// All ports, in the chain's order. The tester is at the first and at the last port; two other consecutive ports are on the two sides of a
/// VNF.
#[expect(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "a side is 0 or 1, and a port at a VNF is between two others, because each join has two ports"
)]
fn legs(plan: &Plan) -> Vec<Leg> {
    let ports: Vec<usize> = plan.joins.iter().flatten().copied().collect();
    let sides = sides(plan.encapsulation);
    let at_tester = |port: usize, side: usize| Leg {
        port,
        // The tester sends frames to the MAC address of its other port, so the router has that address.
        mac: TESTER[1 - side].to_string(),
        address: sides[side].own.to_owned(),
        peer_address: sides[side].tester.to_owned(),
        peer_mac: TESTER[side].to_string(),
        way: sides[side].network.to_owned(),
    };
    let at_vnf = |at: usize| {
        let other = if at % 2 == 1 { at + 1 } else { at - 1 };
        let [own, next, prefix] = transit(plan.encapsulation, at);
        Leg {
            port: ports[at],
            mac: transit_mac(ports[at]),
            address: format!("{own}{prefix}"),
            way: format!("default via {next}"),
            peer_address: next,
            peer_mac: transit_mac(ports[other]),
        }
    };
    let leg = |(at, port): (usize, &usize)| match at {
        0 => at_tester(*port, 0),
        at if at + 1 == ports.len() => at_tester(*port, 1),
        at => at_vnf(at),
    };
    ports.iter().enumerate().map(leg).collect()
}

/// Addresses at a VNF: the router's own address, the next hop, and their prefix length. The next hop stands for the router's own port on
/// the other side of the VNF and is not configured on any interface, since the kernel accepts no gateway that is itself. The networks are
/// the second half of RFC 2544's, or RFC 5180's.
fn transit(encapsulation: Encapsulation, at: usize) -> [String; 3] {
    match encapsulation {
        Encapsulation::Ipv6 => [
            format!("2001:2:0:ff{at:02x}::1"),
            format!("2001:2:0:ff{at:02x}::2"),
            "/64".to_owned(),
        ],
        _ => [
            format!("198.19.{at}.1"),
            format!("198.19.{at}.2"),
            "/24".to_owned(),
        ],
    }
}

/// Returns the MAC address of a port: locally administered and unique, because addresses of guests have another prefix.
fn transit_mac(port: usize) -> String {
    format!("02:51:57:ff:00:{port:02x}")
}

/// Returns each port with the port that it is joined with.
fn joined(legs: &[Leg]) -> impl Iterator<Item = (&Leg, &Leg)> {
    let (joins, _) = legs.as_chunks::<2>();
    joins
        .iter()
        .flat_map(|[one, other]| [(one, other), (other, one)])
}

/// Returns the number of the routing table of a port.
fn table(port: usize) -> usize {
    FIRST_TABLE.saturating_add(port)
}

/// Arguments of `ip` that route the packets of each port to the port that it is joined with; empty if packets pass once, and are routed by
/// their destination.
fn routes(plan: &Plan) -> Vec<String> {
    let legs = legs(plan);
    if plan.joins.len() < 2 {
        return Vec::new();
    }
    let version = version(plan.encapsulation);
    let of = |(leg, out): (&Leg, &Leg)| {
        let (port, table) = (leg.port, table(leg.port));
        [
            format!("{version} rule add iif p{port} lookup {table}"),
            format!(
                "{version} route add {} dev p{} table {table}",
                out.way, out.port
            ),
        ]
    };
    joined(&legs).flat_map(of).collect()
}

/// Lines of a batch of `ip`: routes to the networks that the tester draws destinations from. They are in the main table if a packet passes
/// once, otherwise in the table of the port that is joined with the tester's.
fn routes_drawn(plan: &Plan) -> Vec<String> {
    let legs = legs(plan);
    let mut joined = joined(&legs);
    let ends = [joined.next(), joined.last()];
    let of = |(side, (out, from)): (usize, (&Leg, &Leg))| {
        let table = match plan.joins.len() {
            1 => String::new(),
            _ => format!(" table {}", table(from.port)),
        };
        let way = format!("via {} dev p{}{table}", out.peer_address, out.port);
        let networks = drawn(plan.encapsulation, side, plan.destinations);
        networks.map(move |network| format!("route add {network} {way}"))
    };
    ends.into_iter()
        .flatten()
        .enumerate()
        .flat_map(of)
        .collect()
}

fn version(encapsulation: Encapsulation) -> &'static str {
    match encapsulation {
        Encapsulation::Ipv6 => "-6",
        _ => "-4",
    }
}

/// Runs `ip` in the namespace.
fn ip(plan: &Plan, context: &mut ElementContext<'_>, words: &str) -> Result<(), LabError> {
    let first = ["ip", "-n", kernel::namespace(plan)?];
    let words: Vec<&str> = first.into_iter().chain(words.split(' ')).collect();
    context.run(&words).map(|_| ())
}

impl Forwarder for LinuxRouting {
    fn probe(&self) -> Result<String, Unavailable> {
        kernel::probe()
    }

    fn start(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let setting = match plan.encapsulation {
            Encapsulation::Ipv6 => "echo 1 >/proc/sys/net/ipv6/conf/all/forwarding",
            // Replies take another path than requests, which a reverse path filter would drop.
            _ => {
                "echo 1 >/proc/sys/net/ipv4/ip_forward; \
                 for each in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 >$each; done"
            }
        };
        kernel::inside(plan, context, &["sh", "-c", setting])
    }

    fn connect(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        let nodad = match plan.encapsulation {
            Encapsulation::Ipv6 => " nodad",
            _ => "",
        };
        for leg in legs(plan) {
            let Leg {
                port, mac, address, ..
            } = &leg;
            ip(plan, context, &format!("link set p{port} address {mac}"))?;
            ip(
                plan,
                context,
                &format!("address add {address} dev p{port}{nodad}"),
            )?;
        }
        Ok(())
    }

    fn program(&mut self, plan: &Plan, context: &mut ElementContext<'_>) -> Result<(), LabError> {
        for leg in legs(plan) {
            let Leg {
                port,
                peer_address,
                peer_mac,
                ..
            } = &leg;
            let neighbour = format!(
                "neighbour replace {peer_address} lladdr {peer_mac} dev p{port} nud permanent"
            );
            ip(plan, context, &neighbour)?;
        }
        for words in routes(plan) {
            ip(plan, context, &words)?;
        }
        let drawn = routes_drawn(plan);
        if drawn.is_empty() {
            return Ok(());
        }
        let batch = plan.directory.join("routes");
        std::fs::write(&batch, drawn.join("\n")).map_err(io_error(&batch, "writing routes"))?;
        let batch = batch.display().to_string();
        let version = version(plan.encapsulation);
        context.run(&[
            "ip",
            "-n",
            kernel::namespace(plan)?,
            version,
            "-batch",
            &batch,
        ])?;
        Ok(())
    }

    fn frames(&self, plan: &Plan, deadline: Deadline) -> Result<ElementCounts, String> {
        kernel::frames(plan, deadline)
    }

    fn own_view(&self, plan: &Plan, deadline: Deadline) -> Result<OwnView, String> {
        kernel::own_view(plan, deadline)
    }

    fn threads(&self, _plan: &Plan) -> Result<Vec<DeviceThread>, String> {
        Ok(Vec::new())
    }

    fn configuration(&self, plan: &Plan) -> Result<Vec<String>, String> {
        let version = version(plan.encapsulation);
        kernel::query_kernel(
            plan,
            &[
                &["address", "show"],
                &[version, "rule", "show"],
                &[version, "route", "show", "table", "all"],
                &[version, "neighbour", "show"],
            ],
        )
    }

    fn processes(&mut self) -> &mut [Process] {
        &mut []
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::tests::plan;
    use super::*;

    fn passed(joins: Vec<[usize; 2]>, encapsulation: Encapsulation) -> Plan {
        Plan {
            joins,
            encapsulation,
            ..plan(Path::new("/nowhere"))
        }
    }

    #[test]
    fn linux_routing_alone_routes_by_addresses() {
        let alone = passed(vec![[0, 1]], Encapsulation::Ipv4);
        let legs = legs(&alone);
        let reported: Vec<&str> = legs.iter().map(|leg| leg.address.as_str()).collect();
        assert_eq!(reported, ["198.18.0.254/24", "198.18.1.254/24"]);
        assert_eq!(legs[0].mac, TESTER[1].to_string());
        assert_eq!(
            (&*legs[1].peer_address, &*legs[1].peer_mac),
            ("198.18.1.1", &*TESTER[1].to_string())
        );
        assert!(routes(&alone).is_empty() && routes_drawn(&alone).is_empty());
        let many = Plan {
            destinations: 2,
            ..alone
        };
        assert_eq!(
            routes_drawn(&many),
            [
                "route add 48.0.0.0/24 via 198.18.0.1 dev p0",
                "route add 48.0.1.0/24 via 198.18.0.1 dev p0",
                "route add 16.0.0.0/24 via 198.18.1.1 dev p1",
                "route add 16.0.1.0/24 via 198.18.1.1 dev p1",
            ]
        );
    }

    #[test]
    fn linux_routing_around_vnfs_routes_by_the_receiving_port() {
        let around = passed(vec![[0, 1], [2, 3], [4, 5]], Encapsulation::Ipv6);
        let legs = legs(&around);
        // Static neighbours on both sides of a VNF.
        assert_eq!(legs[1].address, "2001:2:0:ff01::1/64");
        assert_eq!(legs[1].peer_address, "2001:2:0:ff01::2");
        assert_eq!(legs[2].address, "2001:2:0:ff02::1/64");
        let macs = [1, 2].map(|at: usize| &legs[at].mac);
        assert_eq!([2, 1].map(|at: usize| &legs[at].peer_mac), macs);
        assert_eq!(legs[5].mac, TESTER[0].to_string());
        let routes = routes(&around);
        assert_eq!(routes.len(), 12);
        for line in [
            "-6 rule add iif p0 lookup 100",
            "-6 route add default via 2001:2:0:ff01::2 dev p1 table 100",
            "-6 route add 2001:2::/64 dev p0 table 101",
            "-6 route add default via 2001:2:0:ff03::2 dev p3 table 102",
            "-6 route add default via 2001:2:0:ff02::2 dev p2 table 103",
            "-6 route add 2001:2:0:1::/64 dev p5 table 104",
        ] {
            assert!(
                routes.iter().any(|other| other == line),
                "{line}: {routes:?}"
            );
        }
        let many = Plan {
            destinations: 2,
            ..around
        };
        let drawn = routes_drawn(&many);
        assert_eq!(
            [&drawn[1], &drawn[2]],
            [
                "route add 3fff:20:1::/48 via 2001:2::1 dev p0 table 101",
                "route add 3fff:0:0::/48 via 2001:2:0:1::1 dev p5 table 104",
            ]
        );
        let v4 = passed(vec![[0, 1], [2, 3]], Encapsulation::Ipv4);
        assert_eq!(super::legs(&v4)[2].address, "198.19.2.1/24");
    }
}
