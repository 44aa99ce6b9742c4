// SPDX-License-Identifier: Apache-2.0
//! Two builds of the switch in turns: this one, and another whose binary `QUIETWIRE_OTHER_BUILD` names.
//!
//! What counting cycles costs, for one:
//!
//! ```text
//! cargo build --release --features without-cycles --target-dir target/without-cycles
//! QUIETWIRE_OTHER_BUILD=$PWD/target/without-cycles/release/quietwire cargo bench -p quietwire --bench builds
//! ```
//!
//! One forwarding CPU, 64-byte frames one way. The tester is that of this build for both. In each round, cases come in random
//! order, and so do the two builds of a case, one right after the other. "Cycles a frame" are ticks of the time stamp counter
//! that the forwarding thread spent on each frame, by the switch's own account: they count even if the tester is the limit.
//! Requires root and a quiet machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use common::switch::{Kind, Link, Switch};
use common::{Load, Machine, Options, QUIETWIRE, Spread};

const ROUNDS: u32 = 9;

/// What is forwarded.
struct Case {
    name: &'static str,
    link: Link,
    switch_options: &'static [&'static str],
    tester_options: &'static [&'static str],
}

const CROSS_CONNECT: &[&str] = &["--cross-connect", "p0,p1"];
const BRIDGE: &[&str] = &["--bridge", "br0=p0,p1"];
const MEMIF: Link = link(Kind::Memif, 1, false);

const fn link(kind: Kind, queues: u16, is_packed: bool) -> Link {
    Link {
        kind,
        queues,
        is_packed,
    }
}

const fn case(
    name: &'static str,
    link: Link,
    switch_options: &'static [&'static str],
    tester_options: &'static [&'static str],
) -> Case {
    Case {
        name,
        link,
        switch_options,
        tester_options,
    }
}

/// With several queues, each has a flow of its own.
const CASES: [Case; 8] = [
    case("memif, cross-connect", MEMIF, CROSS_CONNECT, &[]),
    case(
        "memif with 4 queues, cross-connect",
        link(Kind::Memif, 4, false),
        CROSS_CONNECT,
        &["--flows", "4"],
    ),
    case(
        "memif, bridge, 2 MAC addresses",
        MEMIF,
        BRIDGE,
        &["--mac-addresses", "1"],
    ),
    case(
        "memif, bridge, 20,000 MAC addresses",
        MEMIF,
        BRIDGE,
        &["--mac-addresses", "10000"],
    ),
    case(
        "vhost-user, cross-connect",
        link(Kind::VhostUser, 1, false),
        CROSS_CONNECT,
        &[],
    ),
    case(
        "vhost-user with 4 queues, cross-connect",
        link(Kind::VhostUser, 4, false),
        CROSS_CONNECT,
        &["--flows", "4"],
    ),
    case(
        "vhost-user with packed rings, cross-connect",
        link(Kind::VhostUser, 1, true),
        CROSS_CONNECT,
        &[],
    ),
    case(
        "vhost-user with packed rings and 4 queues, cross-connect",
        link(Kind::VhostUser, 4, true),
        CROSS_CONNECT,
        &["--flows", "4"],
    ),
];

#[derive(Clone, Copy, Debug)]
struct Measured {
    forwarded_pps: f64,
    cycles: f64,
    port_cycles: f64,
}

#[derive(Debug, serde::Serialize)]
struct Row {
    case: &'static str,
    build: &'static str,
    forwarded_pps: Spread,
    cycles_a_frame: Spread,
    /// Of receiving and sending alone.
    port_cycles_a_frame: Spread,
    /// Medians of the rounds' ratios of this build to the other.
    to_other: Option<Ratios>,
}

#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Ratios {
    forwarded: Spread,
    cycles: Spread,
    port_cycles: Spread,
}

/// Turns whose order nobody chose: a generator of numbers whose seed is the time.
struct Turns(u64);

impl Turns {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        Self(now.as_nanos() as u64 | 1)
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            // Knuth's constants for 64 bits; the upper bits are the random ones.
            let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
            self.0 = next.wrapping_add(1_442_695_040_888_963_407);
            items.swap(last, (self.0 >> 33) as usize % (last + 1));
        }
    }
}

struct Bench<'a> {
    options: &'a Options,
    directory: PathBuf,
    runs: u32,
}

impl Bench<'_> {
    fn measure(&mut self, binary: &Path, case: &Case) -> Measured {
        self.runs += 1;
        let directory = self.directory.join(self.runs.to_string());
        let switch = Switch::of_build(binary, &directory, case.link, 2, case.switch_options);
        let forwarded_pps = Load {
            ports: [0, 1].map(|port| switch.tester_uri(port)),
            seconds: self.options.seconds(),
            more: case.tester_options,
        }
        .rate();
        Measured {
            forwarded_pps,
            cycles: switch.cycles_a_frame().unwrap(),
            port_cycles: switch.port_cycles_a_frame().unwrap(),
        }
    }
}

fn spread(measured: &[Measured], value: fn(&Measured) -> f64) -> Spread {
    let values: Vec<f64> = measured.iter().map(value).collect();
    Spread::of(&values)
}

fn ratio(these: &[Measured], those: &[Measured], value: fn(&Measured) -> f64) -> Spread {
    let pairs = these.iter().zip(those);
    let ratios: Vec<f64> = pairs
        .map(|(this, that)| value(this) / value(that))
        .collect();
    Spread::of(&ratios)
}

fn row(case: &Case, build: &'static str, of: &[Measured], to: Option<&[Measured]>) -> Row {
    Row {
        case: case.name,
        build,
        forwarded_pps: spread(of, |one| one.forwarded_pps),
        cycles_a_frame: spread(of, |one| one.cycles),
        port_cycles_a_frame: spread(of, |one| one.port_cycles),
        to_other: to.map(|to| Ratios {
            forwarded: ratio(of, to, |one| one.forwarded_pps),
            cycles: ratio(of, to, |one| one.cycles),
            port_cycles: ratio(of, to, |one| one.port_cycles),
        }),
    }
}

fn main() {
    let options = Options::read();
    let Some(other) = std::env::var_os("QUIETWIRE_OTHER_BUILD").map(PathBuf::from) else {
        eprintln!(
            "builds: QUIETWIRE_OTHER_BUILD names no binary to compare with; nothing was measured"
        );
        return;
    };
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench {
        options: &options,
        directory: directory.path().to_owned(),
        runs: 0,
    };
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| options.wants(case.name))
        .collect();
    // Of each case, this build's rounds and the other's.
    let mut measured = vec![[const { Vec::new() }; 2]; cases.len()];
    let mut turns = Turns::new();
    let mut order: Vec<usize> = (0..cases.len()).collect();
    let mut builds = [0, 1];
    for _ in 0..options.rounds(ROUNDS) {
        turns.shuffle(&mut order);
        for &case in &order {
            turns.shuffle(&mut builds);
            for build in builds {
                let binary = [Path::new(QUIETWIRE), &other][build];
                measured[case][build].push(bench.measure(binary, cases[case]));
            }
        }
    }
    let pairs = cases.iter().zip(&measured);
    let rows: Vec<Row> = pairs
        .flat_map(|(case, [this, that])| {
            [
                row(case, "other", that, None),
                row(case, "this", this, Some(that)),
            ]
        })
        .collect();
    if options.json {
        let document = serde_json::json!({
            "bench": "builds",
            "run": common::circumstances(&options, ROUNDS),
            "rows": rows,
        });
        println!("{document:#}");
        return;
    }
    print(&rows);
}

fn print(rows: &[Row]) {
    println!(
        "| 64 B, one way | build | forwarded, Mpps: median | min | max | to other | cycles a frame: median | to other | of those, ports: median | to other |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for row in rows {
        let [forwarded, cycles, ports] = row.to_other.map_or_else(Default::default, |to| {
            [to.forwarded, to.cycles, to.port_cycles].map(|spread| format!("{:.3}", spread.median))
        });
        println!(
            "| {} | {} | {} | {forwarded} | {:.1} | {cycles} | {:.1} | {ports} |",
            row.case,
            row.build,
            row.forwarded_pps.mpps(),
            row.cycles_a_frame.median,
            row.port_cycles_a_frame.median,
        );
    }
}
