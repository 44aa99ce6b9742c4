// SPDX-License-Identifier: Apache-2.0
//! What the bridge forwards with many ports: between two of them while the others are connected and idle, and between all of
//! them in pairs.
//!
//! `cargo bench -p quietwire --bench ports_scale` prints the medians of rounds in which each is measured in turn. One
//! forwarding CPU, 64-byte frames, memif, one MAC address behind each port. Wants root and a quiet machine. `-- --help` lists
//! the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::switch::{Kind, Switch};
use common::{DEADLINE, Machine, Options, Spread, plot};
use quietwire_dpdk::{Eal, Mempool, Port, PortOptions, PortUri, StartedPort};
use quietwire_tester::{
    Directions, FrameSizes, IpVersion, Limits, Preparation, Tester, TesterOptions, Trial,
};

const PORTS: [usize; 5] = [2, 4, 8, 16, 32];
const PORTS_QUICK: [usize; 2] = [2, 16];
const ROUNDS: u32 = 5;
const CPU: u32 = 0;

/// Between which ports frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spreading {
    /// From the first to the second.
    Two,
    /// Both ways in each pair.
    All,
}

const SPREADINGS: [Spreading; 2] = [Spreading::Two, Spreading::All];

impl Spreading {
    fn name(self) -> &'static str {
        match self {
            Self::Two => "from one port to another, the rest idle",
            Self::All => "both ways between all ports, in pairs",
        }
    }

    fn directions(self) -> Directions {
        match self {
            Self::Two => Directions::OneWay,
            Self::All => Directions::Both,
        }
    }
}

#[derive(Debug, serde::Serialize)]
struct Row {
    traffic: &'static str,
    ports: usize,
    forwarded_pps: Spread,
}

/// The tester is this very process: it holds ports that do nothing, too.
struct Bench {
    eal: Eal,
    options: Options,
    runs: u32,
}

impl Bench {
    /// Frames forwarded a second.
    fn rate(&mut self, directory: &Path, spreading: Spreading, ports: usize) -> f64 {
        self.runs += 1;
        let directory = directory.join(self.runs.to_string());
        let names: Vec<String> = (0..ports).map(|port| format!("p{port}")).collect();
        let bridge = format!("br0={}", names.join(","));
        let more = ["--bridge", &bridge, "--memory-mib", "512"];
        let switch = Switch::start(&directory, Kind::Memif, ports, &more);
        let uris: Vec<(String, PortUri)> = names
            .into_iter()
            .enumerate()
            .map(|(number, name)| (name, switch.tester_uri(number).parse().unwrap()))
            .collect();
        let busy = match spreading {
            Spreading::Two => 2,
            Spreading::All => ports,
        };
        let (busy, idle) = uris.split_at(busy);
        let pool = format!("idle{}", self.runs);
        let pool = Mempool::new(
            &self.eal,
            &pool,
            4096,
            PortOptions::new("", 1518).data_room(),
        );
        let _idle = self.connect(idle, &pool.unwrap());
        self.offer(busy, spreading)
    }

    fn connect(&self, ports: &[(String, PortUri)], pool: &Mempool) -> Vec<StartedPort> {
        let open = |(name, uri): &(String, PortUri)| {
            let port = Port::open(&self.eal, uri, &PortOptions::new(name, 1518), pool);
            port.unwrap().start().unwrap()
        };
        let ports: Vec<StartedPort> = ports.iter().map(open).collect();
        common::wait_until("links", DEADLINE, || {
            ports.iter().all(|port| port.handle.link_is_up())
        });
        ports
    }

    fn offer(&self, ports: &[(String, PortUri)], spreading: Spreading) -> f64 {
        let options = TesterOptions {
            cpus: vec![CPU],
            realtime_priority: Some(50),
            ring_size: 1024,
            frame_size_max: 1518,
            limits: Limits::default(),
            preparation: Preparation::default(),
        };
        let pool = format!("tester{}", self.runs);
        let mut tester = Tester::open(&self.eal, &pool, ports, options).unwrap();
        tester.wait_for_links(Duration::from_secs(10)).unwrap();
        let result = tester.run_unpaced(&Trial {
            // Not used, and has to be a rate.
            offered_rate_pps: 1.0,
            duration_s: f64::from(self.options.seconds()),
            warm_up_s: 0.5,
            drain_s: 0.2,
            frame_sizes: FrameSizes::Fixed(64),
            directions: spreading.directions(),
            flows: 1,
            mac_addresses: 1,
            destinations: 1,
            ip: IpVersion::V4,
            low_rate_pps: 0.0,
            reflected: false,
            traffic: None,
        });
        result.unwrap().forwarding_rate_pps
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let eal = common::start_dpdk("ports-scale", 512);
    let circumstances = common::circumstances(&options, ROUNDS);
    let sizes = if options.quick {
        &PORTS_QUICK[..]
    } else {
        &PORTS
    };
    let cases: Vec<(Spreading, usize)> = SPREADINGS
        .into_iter()
        .filter(|spreading| options.wants(spreading.name()))
        .flat_map(|spreading| sizes.iter().map(move |ports| (spreading, *ports)))
        .collect();
    let mut rates = vec![Vec::new(); cases.len()];
    let rounds = options.rounds(ROUNDS);
    let mut bench = Bench {
        eal,
        options: options.clone(),
        runs: 0,
    };
    for _ in 0..rounds {
        for ((spreading, ports), rates) in cases.iter().zip(&mut rates) {
            rates.push(bench.rate(directory.path(), *spreading, *ports));
        }
    }
    let rows: Vec<Row> = cases
        .iter()
        .zip(&rates)
        .map(|((spreading, ports), rates)| Row {
            traffic: spreading.name(),
            ports: *ports,
            forwarded_pps: Spread::of(rates),
        })
        .collect();
    if options.json {
        let document =
            serde_json::json!({ "bench": "ports_scale", "run": circumstances, "rows": rows });
        println!("{document:#}");
    } else {
        print(&rows);
    }
    if let Some(directory) = &options.svg {
        draw(directory, &rows);
    }
}

fn print(rows: &[Row]) {
    println!("| 64 B, ports | traffic | forwarded, Mpps: median | min | max |");
    println!("|---|---|---|---|---|");
    for row in rows {
        let Row { ports, traffic, .. } = row;
        println!("| {ports} | {traffic} | {} |", row.forwarded_pps.mpps());
    }
}

fn draw(directory: &Path, rows: &[Row]) {
    let series: Vec<plot::Series> = SPREADINGS
        .into_iter()
        .map(|spreading| {
            let name = spreading.name();
            let of = rows.iter().filter(|row| row.traffic == name);
            plot::Series {
                name: name.to_owned(),
                points: of
                    .map(|row| (row.ports as u64, row.forwarded_pps))
                    .collect(),
            }
        })
        .filter(|series| !series.points.is_empty())
        .collect();
    let labels = plot::Labels {
        title: "Bridge: 64-byte frames, one forwarding CPU, memif",
        below: "ports",
        left: "forwarded, Mpps",
        unit: 1e6,
    };
    plot::draw(directory, "ports_scale", &labels, &series);
}
