// SPDX-License-Identifier: Apache-2.0
//! Forwarding rate of the bridge with many ports: between two of them while the others are connected and idle, and between
//! all of them in pairs.
//!
//! `cargo bench -p quietwire --bench ports_scale` prints the medians of rounds in which all cases take turns. One forwarding
//! CPU, 64-byte frames, memif, one MAC address behind each port. Requires root and a quiet machine. `-- --help` lists the
//! options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::record::{Figure, Point};
use common::switch::{self, Kind, Switch};
use common::{DEADLINE, Machine, Options, Subject};
use quietwire_dpdk::{Eal, Mempool, Port, PortOptions, PortUri, StartedPort};
use quietwire_tester::{
    Directions, FrameAccess, FrameSizes, Limits, Preparation, Tester, TesterIdle, TesterOptions,
    Trial,
};

const PORTS: [usize; 5] = [2, 4, 8, 16, 32];
const PORTS_QUICK: [usize; 2] = [2, 16];
const ROUNDS: u32 = 5;
const CPU: u32 = 0;
const QUIETWIRE: &str = "quietwire";

/// Ports between which frames are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spreading {
    /// From the first to the second.
    Two,
    /// In both directions in each pair.
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

    fn short(self) -> &'static str {
        match self {
            Self::Two => "two busy",
            Self::All => "all busy",
        }
    }

    fn directions(self) -> Directions {
        match self {
            Self::Two => Directions::OneWay,
            Self::All => Directions::Both,
        }
    }
}

/// The benchmark process, which is also the tester: it also holds idle ports.
struct Bench {
    eal: Eal,
    options: Options,
    runs: u32,
}

impl Bench {
    /// Returns the forwarded frames per second, and cycles per frame.
    fn rate(&mut self, directory: &Path, spreading: Spreading, ports: usize) -> (f64, Option<f64>) {
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
        (self.offer(busy, spreading), switch.cycles_a_frame())
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
            receive_ring_size: quietwire_tester::RECEIVE_RING_SIZE,
            frame_size_max: 1518,
            limits: Limits::default(),
            preparation: Preparation::default(),
            idle: TesterIdle::default(),
            frame_access: FrameAccess::default(),
        };
        let pool = format!("tester{}", self.runs);
        let mut tester = Tester::open(&self.eal, &pool, ports, options).unwrap();
        tester.wait_for_links(Duration::from_secs(10)).unwrap();
        let trial = Trial {
            warm_up_s: 0.2,
            drain_s: 0.2,
            directions: spreading.directions(),
            // The rate is not used, but must be valid.
            ..Trial::new(1.0, self.options.seconds(), FrameSizes::Fixed(64))
        };
        common::unpaced(&mut tester, &trial, Subject::Device).forwarding_rate_pps
    }
}

fn point(spreading: Spreading, ports: usize) -> Point {
    Point {
        group: spreading.name().to_owned(),
        case: format!("{ports} ports, {}", spreading.short()),
        size: Some(ports as u64),
        side: QUIETWIRE.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "ports_scale", rounds, seconds);
    run.sides.push(switch::side(QUIETWIRE));
    let eal = common::start_dpdk("ports-scale", 512);
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
    for (spreading, ports) in &cases {
        let figures = [Figure::ForwardedPps, Figure::CyclesAFrame];
        run.expect(&point(*spreading, *ports), &figures);
    }
    let mut turns = options.turns();
    let mut bench = Bench {
        eal,
        options: options.clone(),
        runs: 0,
    };
    for _ in 0..rounds {
        for case in turns.order(cases.len()) {
            let (spreading, ports) = cases[case];
            let point = point(spreading, ports);
            run.turn(std::slice::from_ref(&point), |run| {
                let (rate, cycles) = bench.rate(directory.path(), spreading, ports);
                run.add(&point, Figure::ForwardedPps, Some(rate));
                run.add(&point, Figure::CyclesAFrame, cycles);
            });
        }
    }
    common::finish(&options, run);
}
