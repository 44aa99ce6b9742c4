// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate of the router with many routes, and the time to load them.
//!
//! `cargo bench -p quietwire --bench route_scale` prints, for 1 to 2,000,000 IPv4 routes of /24 and 1 to 500,000 IPv6 routes
//! of /48, the forwarding rate with the smallest frames (64 octets; 84 with IPv6) to destinations drawn uniformly at random.
//! Each size has separate rounds, in which all routers take turns in random order, including quietwire with one route: the
//! other rates are compared with its rate within a round. One forwarding CPU; memif. If `scripts/build-l3fwd` has built it,
//! `dpdk-l3fwd` is measured with as many routes, with both of its kinds of tables. VPP (if `vpp` and `vppctl` are in PATH) is measured
//! with up to 200,000 IPv4 routes. Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use common::l3fwd::{self, L3fwd, Lookup};
use common::lcg::Lcg;
use common::record::{Absent, Figure, Point, Run};
use common::switch::{self, Kind, Switch};
use common::vpp::{self, Vpp};
use common::words::{VPP, grouped};
use common::{Load, Machine, Options};

const IPV4_ROUTES: [u32; 4] = [1, 20_000, 200_000, 2_000_000];
const IPV6_ROUTES: [u32; 3] = [1, 20_000, 500_000];
const QUICK_MAX: u32 = 20_000;
const ROUNDS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ip {
    V4,
    V6,
}

impl Ip {
    fn name(self) -> &'static str {
        match self {
            Self::V4 => "IPv4",
            Self::V6 => "IPv6",
        }
    }

    /// Returns the version as an option value of the tester.
    fn number(self) -> &'static str {
        match self {
            Self::V4 => "4",
            Self::V6 => "6",
        }
    }

    /// Returns the addresses of the two interfaces, and the neighbour behind the second.
    fn addresses(self) -> [&'static str; 3] {
        match self {
            Self::V4 => ["192.0.2.1/24", "198.51.100.1/24", "198.51.100.2"],
            Self::V6 => ["2001:db8:1::1/64", "2001:db8:2::1/64", "2001:db8:2::2"],
        }
    }

    /// Returns the tester's only destination.
    fn only_destination(self) -> (IpAddr, u8) {
        match self {
            Self::V4 => (Ipv4Addr::new(198, 18, 0, 0).into(), 15),
            Self::V6 => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48),
        }
    }

    /// Returns the network with this number in the tester's order.
    fn network(self, number: u32) -> (IpAddr, u8) {
        match self {
            Self::V4 => (Ipv4Addr::from_bits(0x1000_0000 + (number << 8)).into(), 24),
            Self::V6 => {
                let bits = (0x3fff << 112) | (u128::from(number) << 80);
                (Ipv6Addr::from_bits(bits).into(), 48)
            }
        }
    }

    /// Returns the networks that have routes.
    fn networks(self, count: u32) -> Box<dyn Iterator<Item = (IpAddr, u8)>> {
        if count == 1 {
            return Box::new(std::iter::once(self.only_destination()));
        }
        Box::new((0..count).map(move |number| self.network(number)))
    }

    /// Returns a line for each route.
    fn routes(self, count: u32) -> String {
        let way = format!("{},b0", self.addresses()[2]);
        let mut text = String::new();
        for (address, length) in self.networks(count) {
            writeln!(text, "{address}/{length} {way}").unwrap();
        }
        text
    }
}

const QUIETWIRE: &str = "quietwire";

/// Results of one start of a router.
struct Measured {
    rate: f64,
    loaded_s: f64,
    cycles_a_frame: Option<f64>,
    route_cycles: Option<f64>,
}

/// Starts a router with this many routes and measures its forwarding rate.
fn measure(directory: &Path, ip: Ip, routes: u32, seconds: f64) -> Measured {
    let switch = Switch::start(directory, Kind::Memif, 2, &[]);
    let [a, b, neighbour] = ip.addresses();
    switch.route_between([a, b], neighbour);
    let file = directory.join("routes");
    fs::write(&file, ip.routes(routes)).unwrap();
    let began = Instant::now();
    assert!(switch.command(&["add", "routes", file.to_str().unwrap()]));
    let loaded_s = began.elapsed().as_secs_f64();
    let ports = [0, 1].map(|port| switch.tester_uri(port));
    Measured {
        rate: rate(ports, ip, routes, seconds),
        loaded_s,
        cycles_a_frame: switch.cycles_a_frame(),
        route_cycles: switch.route_cycles_a_frame(),
    }
}

/// Starts VPP with this many routes and measures it in the same way.
fn measure_vpp(directory: &Path, ip: Ip, routes: u32, seconds: f64) -> Measured {
    let vpp = Vpp::start(directory, &[], "");
    let [a, b, neighbour] = ip.addresses();
    vpp.route_between([a, b], neighbour);
    let began = Instant::now();
    vpp.add_routes(neighbour, ip.networks(routes));
    let loaded_s = began.elapsed().as_secs_f64();
    let destinations = routes.to_string();
    let more = ["--ip", ip.number(), "--destinations", &destinations];
    Measured {
        rate: vpp.with_load(seconds, &more, |load| load.rate()),
        loaded_s,
        cycles_a_frame: vpp.cycles_a_frame(),
        route_cycles: vpp.route_cycles_a_frame(),
    }
}

fn rate(ports: [String; 2], ip: Ip, routes: u32, seconds: f64) -> f64 {
    let destinations = routes.to_string();
    let more = ["--ip", ip.number(), "--destinations", &destinations];
    let load = Load {
        ports,
        seconds,
        more: &more,
        connect: None,
    };
    load.rate()
}

/// A router that takes turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Router {
    Quietwire,
    /// quietwire with one route, for any size.
    WithOneRoute,
    Peer(Lookup),
    Vpp,
}

impl Router {
    fn side(self) -> &'static str {
        match self {
            Self::Quietwire => QUIETWIRE,
            Self::WithOneRoute => "quietwire, 1 route",
            Self::Peer(lookup) => lookup.peer(),
            Self::Vpp => VPP,
        }
    }

    fn figures(self) -> &'static [Figure] {
        match self {
            Self::Peer(_) => &[Figure::ForwardedPps],
            _ => &[
                Figure::ForwardedPps,
                Figure::CyclesAFrame,
                Figure::RouteCyclesAFrame,
                Figure::LoadedS,
            ],
        }
    }
}

/// Number and kind of routes, and the routers measured with them.
struct Size {
    ip: Ip,
    routes: u32,
    routers: Vec<Router>,
}

impl Size {
    fn new(ip: Ip, routes: u32, has_peer: bool) -> Self {
        let mut routers = vec![Router::Quietwire];
        if routes > 1 {
            routers.push(Router::WithOneRoute);
        }
        let peers = Lookup::ALL.into_iter();
        let peers = peers.filter(|lookup| has_peer && lookup.takes(ip == Ip::V4, routes));
        routers.extend(peers.map(Router::Peer));
        if vpp::is_installed() && ip == Ip::V4 && routes <= vpp::ROUTES_MAX {
            routers.push(Router::Vpp);
        }
        Self {
            ip,
            routes,
            routers,
        }
    }

    fn point(&self, router: Router) -> Point {
        let (ip, routes) = (self.ip.name(), grouped(u64::from(self.routes)));
        Point {
            group: format!("{ip} routes, one way"),
            case: format!("{ip}, {routes}"),
            size: Some(u64::from(self.routes)),
            side: router.side().to_owned(),
        }
    }

    /// Starts the peers, which load their routes once and are stopped until their turn.
    fn peers(&self, directory: &Path) -> Vec<(Lookup, L3fwd)> {
        let lookups = self.routers.iter().filter_map(|router| match router {
            Router::Peer(lookup) => Some(*lookup),
            _ => None,
        });
        let program = l3fwd::program();
        let start = |lookup: Lookup| {
            let program = program.as_deref().expect("it was built");
            let own = directory.join(format!("{}-{}", lookup.name(), self.ip.name()));
            let networks = self.ip.networks(self.routes);
            (lookup, L3fwd::start(program, &own, lookup, networks))
        };
        lookups.map(start).collect()
    }

    fn rounds(&self, directory: &Path, options: &Options, turns: &mut Lcg, run: &mut Run) {
        let mut peers = Vec::new();
        // If it fails, the turns of the peers fail.
        run.turn(&[], |_| peers = self.peers(directory));
        let Self { ip, routes, .. } = *self;
        let seconds = options.seconds();
        for round in 0..options.rounds(ROUNDS) {
            for index in turns.order(self.routers.len()) {
                let router = self.routers[index];
                let point = self.point(router);
                let own = directory.join(format!("{round}-{index}"));
                run.turn(std::slice::from_ref(&point), |run| {
                    let measured = match router {
                        Router::Quietwire => measure(&own, ip, routes, seconds),
                        Router::WithOneRoute => measure(&own, ip, 1, seconds),
                        Router::Vpp => measure_vpp(&own, ip, routes, seconds),
                        Router::Peer(lookup) => {
                            let mut peers = peers.iter();
                            let found = peers.find(|(name, _)| *name == lookup);
                            let (_, peer) = found.expect("the peer has started");
                            let rate = peer.measured(|ports| rate(ports, ip, routes, seconds));
                            run.add(&point, Figure::ForwardedPps, Some(rate));
                            return;
                        }
                    };
                    run.add(&point, Figure::ForwardedPps, Some(measured.rate));
                    run.add(&point, Figure::CyclesAFrame, measured.cycles_a_frame);
                    run.add(&point, Figure::RouteCyclesAFrame, measured.route_cycles);
                    run.add(&point, Figure::LoadedS, Some(measured.loaded_s));
                });
            }
        }
    }
}

fn sizes(options: &Options, has_peer: bool) -> Vec<Size> {
    let all = IPV4_ROUTES.map(|routes| (Ip::V4, routes)).into_iter();
    let all = all.chain(IPV6_ROUTES.map(|routes| (Ip::V6, routes)));
    let wanted = all
        .filter(|(ip, routes)| options.wants(ip.name()) && !(options.quick && *routes > QUICK_MAX));
    wanted
        .map(|(ip, routes)| Size::new(ip, routes, has_peer))
        .collect()
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "route_scale", rounds, seconds);
    run.sides.push(switch::side(QUIETWIRE));
    let has_peer = l3fwd::program().is_some();
    for lookup in Lookup::ALL {
        if has_peer {
            run.sides.push(l3fwd::side(lookup));
        } else {
            run.absent.push(Absent {
                side: lookup.peer().to_owned(),
                reason: "scripts/build-l3fwd has not built it".to_owned(),
            });
        }
    }
    let sizes = sizes(&options, has_peer);
    let has_vpp = sizes.iter().any(|size| size.routers.contains(&Router::Vpp));
    vpp::declare(&mut run, has_vpp, "a static neighbour");
    for size in &sizes {
        for router in &size.routers {
            run.expect(&size.point(*router), router.figures());
        }
    }
    let mut turns = options.turns();
    for index in turns.order(sizes.len()) {
        let own = directory.path().join(index.to_string());
        fs::create_dir(&own).unwrap();
        sizes[index].rounds(&own, &options, &mut turns, &mut run);
        fs::remove_dir_all(&own).unwrap();
    }
    common::finish(&options, run);
}
