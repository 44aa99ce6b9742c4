// SPDX-License-Identifier: Apache-2.0
//! What the router forwards with many routes, and how long they take to load.
//!
//! `cargo bench -p quietwire --bench route_scale` prints, for 1 to 2,000,000 IPv4 routes of /24 and 1 to 500,000 IPv6 routes of
//! /48, the forwarding rate with the smallest frames (64 octets; 84 with IPv6) to destinations drawn uniformly at random, as
//! the median of rounds taken in turn. One forwarding CPU; memif. Wants root and a quiet machine. `-- --help` lists the
//! options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

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
    fn only_destination(self) -> &'static str {
        match self {
            Self::V4 => "198.18.0.0/15",
            Self::V6 => "2001:2::/48",
        }
    }

    /// The network that the tester numbers so.
    fn network(self, number: u32) -> String {
        match self {
            Self::V4 => format!("{}/24", Ipv4Addr::from_bits(0x1000_0000 + (number << 8))),
            Self::V6 => {
                let bits = (0x3fff << 112) | (u128::from(number) << 80);
                format!("{}/48", Ipv6Addr::from_bits(bits))
            }
        }
    }

    /// A line for each route.
    fn routes(self, count: u32) -> String {
        let way = format!("{},b0", self.addresses()[2]);
        if count == 1 {
            return format!("{} {way}\n", self.only_destination());
        }
        let mut text = String::new();
        for number in 0..count {
            writeln!(text, "{} {way}", self.network(number)).unwrap();
        }
        text
    }
}

/// What was measured with so many routes.
#[derive(Debug, serde::Serialize)]
struct Row {
    ip: &'static str,
    routes: u32,
    forwarded_pps: Spread,
    loaded_s: Spread,
}

/// Starts a router with so many routes; its forwarding rate, and how long the routes took to load in seconds.
fn measure(directory: &Path, ip: Ip, routes: u32, seconds: u32) -> (f64, f64) {
    let switch = Switch::start(directory, Kind::Memif, 2, &[]);
    set_up(&switch, ip);
    let file = directory.join("routes");
    fs::write(&file, ip.routes(routes)).unwrap();
    let began = Instant::now();
    assert!(switch.command(&["add", "routes", file.to_str().unwrap()]));
    let loaded_s = began.elapsed().as_secs_f64();
    let destinations = routes.to_string();
    let load = Load {
        ports: [0, 1].map(|port| switch.tester_uri(port)),
        seconds,
        more: &["--ip", ip.number(), "--destinations", &destinations],
    };
    (load.rate(), loaded_s)
}

/// The tester's addresses: its ports speak to 02:01:… and 02:00:….
fn set_up(switch: &Switch, ip: Ip) {
    let [a, b, neighbour] = ip.addresses();
    for (name, port, address, mac) in [
        ("a0", "p0", a, "02:01:00:00:00:00"),
        ("b0", "p1", b, "02:00:00:00:00:00"),
    ] {
        let add = ["add", "interface", name, "--port", port];
        let with = ["--address", address, "--mac", mac];
        assert!(switch.command(&[&add[..], &with[..]].concat()), "{name}");
    }
    let add = ["add", "neighbour", "b0", neighbour, "02:01:00:00:00:00"];
    assert!(switch.command(&add), "the neighbour");
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
    let sizes = sizes(&options);
    let mut rates = vec![Vec::new(); sizes.len()];
    let mut loads = vec![Vec::new(); sizes.len()];
    for round in 0..options.rounds(ROUNDS) {
        // One at a time: they share a CPU.
        for (index, (ip, routes)) in sizes.iter().enumerate() {
            let own = directory.path().join(format!("{round}-{index}"));
            let (rate, loaded_s) = measure(&own, *ip, *routes, options.seconds());
            rates[index].push(rate);
            loads[index].push(loaded_s);
            fs::remove_dir_all(&own).unwrap();
        }
    }
    let rows: Vec<Row> = sizes
        .iter()
        .zip(rates.iter().zip(&loads))
        .map(|((ip, routes), (rates, loads))| Row {
            ip: ip.name(),
            routes: *routes,
            forwarded_pps: Spread::of(rates),
            loaded_s: Spread::of(loads),
        })
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

fn of_ip(rows: &[Row], ip: Ip) -> Vec<&Row> {
    rows.iter().filter(|row| row.ip == ip.name()).collect()
}

fn print(rows: &[Row]) {
    for ip in [Ip::V4, Ip::V6] {
        let rows = of_ip(rows, ip);
        let Some(first) = rows.first() else {
            continue;
        };
        let name = ip.name();
        println!(
            "| {name} routes | forwarded, Mpps: median | min | max | to one route | loaded in, s |"
        );
        println!("|---|---|---|---|---|---|");
        for row in &rows {
            println!(
                "| {} | {} | {:.2} | {:.2} |",
                grouped(u64::from(row.routes)),
                row.forwarded_pps.mpps(),
                row.forwarded_pps.median / first.forwarded_pps.median,
                row.loaded_s.median,
            );
        }
        println!();
    }
}

fn draw(directory: &Path, rows: &[Row]) {
    let series: Vec<plot::Series> = [Ip::V4, Ip::V6]
        .into_iter()
        .map(|ip| {
            let points = of_ip(rows, ip).into_iter();
            plot::Series {
                name: ip.name().to_owned(),
                points: points
                    .map(|row| (u64::from(row.routes), row.forwarded_pps))
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
