// SPDX-License-Identifier: Apache-2.0
//! What the router forwards with many routes, and how long they take to load.
//!
//! `cargo bench -p quietwire --bench route_scale` prints, for 1 to 2,000,000 IPv4 routes of /24 and 1 to 500,000 IPv6 routes of
//! /48, the forwarding rate with the smallest frames (64 octets; 84 with IPv6) to destinations drawn uniformly at random, as
//! the median of rounds taken in turn. One forwarding CPU; memif. Beside it, where `scripts/build-l3fwd` has built it, is
//! `dpdk-l3fwd` with as many routes, with both of its kinds of tables. Wants root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use common::l3fwd::{self, L3fwd, Lookup};
use common::switch::{Kind, Switch};
use common::{Load, Machine, Options, Spread, grouped, plot};

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

    /// The version as the tester takes it.
    fn number(self) -> &'static str {
        match self {
            Self::V4 => "4",
            Self::V6 => "6",
        }
    }

    /// Addresses of the two interfaces, and the neighbour behind the second.
    fn addresses(self) -> [&'static str; 3] {
        match self {
            Self::V4 => ["192.0.2.1/24", "198.51.100.1/24", "198.51.100.2"],
            Self::V6 => ["2001:db8:1::1/64", "2001:db8:2::1/64", "2001:db8:2::2"],
        }
    }

    /// Where the tester of one destination sends to.
    fn only_destination(self) -> (IpAddr, u8) {
        match self {
            Self::V4 => (Ipv4Addr::new(198, 18, 0, 0).into(), 15),
            Self::V6 => (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0).into(), 48),
        }
    }

    /// The network that the tester numbers so.
    fn network(self, number: u32) -> (IpAddr, u8) {
        match self {
            Self::V4 => (Ipv4Addr::from_bits(0x1000_0000 + (number << 8)).into(), 24),
            Self::V6 => {
                let bits = (0x3fff << 112) | (u128::from(number) << 80);
                (Ipv6Addr::from_bits(bits).into(), 48)
            }
        }
    }

    /// Networks to have routes to.
    fn networks(self, count: u32) -> Box<dyn Iterator<Item = (IpAddr, u8)>> {
        if count == 1 {
            return Box::new(std::iter::once(self.only_destination()));
        }
        Box::new((0..count).map(move |number| self.network(number)))
    }

    /// A line for each route.
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

/// What was measured with so many routes.
#[derive(Debug, serde::Serialize)]
struct Row {
    router: &'static str,
    ip: &'static str,
    routes: u32,
    forwarded_pps: Spread,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded_s: Option<Spread>,
    /// Ticks of the time stamp counter that the forwarding thread spent on each frame it received, by its own account.
    #[serde(skip_serializing_if = "Option::is_none")]
    cycles_a_frame: Option<Spread>,
}

/// What one start of quietwire's router showed.
struct Measured {
    rate: f64,
    loaded_s: f64,
    cycles_a_frame: Option<f64>,
}

/// Starts a router with so many routes, and has it forward.
fn measure(directory: &Path, ip: Ip, routes: u32, seconds: u32) -> Measured {
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
    }
}

fn rate(ports: [String; 2], ip: Ip, routes: u32, seconds: u32) -> f64 {
    let destinations = routes.to_string();
    let more = ["--ip", ip.number(), "--destinations", &destinations];
    let load = Load {
        ports,
        seconds,
        more: &more,
    };
    load.rate()
}

/// The peer with so many routes, by how it looks them up.
fn peers(directory: &Path, ip: Ip, routes: u32) -> Vec<(Lookup, L3fwd)> {
    let Some(program) = l3fwd::program() else {
        return Vec::new();
    };
    Lookup::ALL
        .into_iter()
        .filter(|lookup| lookup.takes(ip == Ip::V4, routes))
        .map(|lookup| {
            let own = directory.join(format!("l3fwd-{}-{}-{routes}", lookup.name(), ip.name()));
            let networks = ip.networks(routes);
            (lookup, L3fwd::start(&program, &own, lookup, networks))
        })
        .collect()
}

/// All routers with so many routes, in turns.
fn size(options: &Options, directory: &Path, ip: Ip, routes: u32) -> Vec<Row> {
    let peers = peers(directory, ip, routes);
    let (mut rates, mut loads, mut cycles) = (Vec::new(), Vec::new(), Vec::new());
    let mut of_peers = vec![Vec::new(); peers.len()];
    for round in 0..options.rounds(ROUNDS) {
        let own = directory.join(format!("{}-{routes}-{round}", ip.name()));
        let measured = measure(&own, ip, routes, options.seconds());
        rates.push(measured.rate);
        loads.push(measured.loaded_s);
        cycles.extend(measured.cycles_a_frame);
        fs::remove_dir_all(&own).unwrap();
        for ((_, peer), rates) in peers.iter().zip(&mut of_peers) {
            rates.push(peer.measured(|ports| rate(ports, ip, routes, options.seconds())));
        }
    }
    let row = |router, rates: &[f64], loaded_s| Row {
        router,
        ip: ip.name(),
        routes,
        forwarded_pps: Spread::of(rates),
        loaded_s,
        cycles_a_frame: None,
    };
    let own = Row {
        cycles_a_frame: (!cycles.is_empty()).then(|| Spread::of(&cycles)),
        ..row(QUIETWIRE, &rates, Some(Spread::of(&loads)))
    };
    let others = peers.iter().zip(&of_peers);
    std::iter::once(own)
        .chain(others.map(|((lookup, _), rates)| row(lookup.peer(), rates, None)))
        .collect()
}

fn sizes(options: &Options) -> Vec<(Ip, u32)> {
    let all = IPV4_ROUTES.map(|routes| (Ip::V4, routes)).into_iter();
    all.chain(IPV6_ROUTES.map(|routes| (Ip::V6, routes)))
        .filter(|(ip, routes)| options.wants(ip.name()) && !(options.quick && *routes > QUICK_MAX))
        .collect()
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let circumstances = common::circumstances(&options, ROUNDS);
    if l3fwd::program().is_none() {
        eprintln!("no dpdk-l3fwd: scripts/build-l3fwd builds it; quietwire is measured alone");
    }
    let rows: Vec<Row> = sizes(&options)
        .into_iter()
        .flat_map(|(ip, routes)| size(&options, directory.path(), ip, routes))
        .collect();
    if options.json {
        let document =
            serde_json::json!({ "bench": "route_scale", "run": circumstances, "rows": rows });
        println!("{document:#}");
    } else {
        print(&rows);
    }
    if let Some(directory) = &options.svg {
        draw(directory, &rows);
    }
}

fn of(rows: &[Row], router: &str, ip: Ip) -> Vec<(u32, Spread)> {
    rows.iter()
        .filter(|row| row.ip == ip.name() && row.router == router)
        .map(|row| (row.routes, row.forwarded_pps))
        .collect()
}

fn print(rows: &[Row]) {
    for ip in [Ip::V4, Ip::V6] {
        let name = ip.name();
        let rows = || rows.iter().filter(|row| row.ip == name);
        if rows().next().is_none() {
            continue;
        }
        println!(
            "| {name} routes | router | forwarded, Mpps: median | min | max | to one route | cycles a frame: median | loaded in, s |"
        );
        println!("|---|---|---|---|---|---|---|---|");
        for row in rows() {
            let first = rows().find(|first| first.router == row.router);
            let one = first.map_or(f64::NAN, |first| first.forwarded_pps.median);
            println!(
                "| {} | {} | {} | {:.2} | {} | {} |",
                grouped(u64::from(row.routes)),
                row.router,
                row.forwarded_pps.mpps(),
                row.forwarded_pps.median / one,
                row.cycles_a_frame
                    .map_or(String::new(), |cycles| format!("{:.0}", cycles.median)),
                row.loaded_s
                    .map_or(String::new(), |loaded_s| format!("{:.2}", loaded_s.median)),
            );
        }
        println!();
    }
}

fn draw(directory: &Path, rows: &[Row]) {
    let routers = || std::iter::once(QUIETWIRE).chain(Lookup::ALL.map(Lookup::peer));
    let series: Vec<plot::Series> = [Ip::V4, Ip::V6]
        .into_iter()
        .flat_map(|ip| routers().map(move |router| (router, ip)))
        .map(|(router, ip)| {
            let points = of(rows, router, ip).into_iter();
            plot::Series {
                name: format!("{router}, {}", ip.name()),
                points: points
                    .map(|(routes, rate)| (u64::from(routes), rate))
                    .collect(),
            }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let labels = plot::Labels {
        title: "Router: smallest frames, one forwarding CPU, memif",
        below: "routes",
        left: "forwarded, Mpps",
        unit: 1e6,
    };
    plot::draw(directory, "route_scale", &labels, &series);
}
