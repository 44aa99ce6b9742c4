// SPDX-License-Identifier: Apache-2.0
//! Comparison of two builds of the switch, in turns: this one, and another whose binary `QUIETWIRE_OTHER_BUILD` names.
//!
//! For example, to measure the cost of counting cycles:
//!
//! ```text
//! cargo build --release --features without-cycles --target-dir target/without-cycles
//! QUIETWIRE_OTHER_BUILD=$PWD/target/without-cycles/release/quietwire cargo bench -p quietwire --bench builds
//! ```
//!
//! `QUIETWIRE_OTHER_BUILD_IS` describes the other build in a few words, for the stored run.
//!
//! One forwarding CPU, 64-byte frames one way. Both sides use the tester of this build. In each round, cases come in random
//! order, and so do the two builds of a case, one right after the other. Without another build, nothing is measured. "Cycles
//! a frame" are time stamp counter cycles that the forwarding thread spent on each frame, by the switch's own counters: they
//! are valid even if the tester is the limit. Requires root and a quiet machine.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::record::{Absent, Figure, Point, Run};
use common::switch::{self, Kind, Link, Switch};
use common::{Load, Machine, Options, QUIETWIRE};

const ROUNDS: u32 = 9;

/// A case to measure.
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
        is_client: false,
    }
}

/// Returns a link with the switch as the client: builds before version 0.2.0 serve only one ring per direction.
const fn client(queues: u16) -> Link {
    Link {
        is_client: true,
        ..link(Kind::Memif, queues, false)
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

/// With several queues, each has a separate flow.
const CASES: [Case; 8] = [
    case("memif, cross-connect", MEMIF, CROSS_CONNECT, &[]),
    case(
        "memif with 4 queues, cross-connect",
        client(4),
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

/// Sides of a run.
const BUILDS: [&str; 2] = ["this build", "other build"];

struct Bench<'a> {
    options: &'a Options,
    directory: PathBuf,
    runs: u32,
}

impl Bench<'_> {
    fn measure(&mut self, run: &mut Run, binary: &Path, case: &Case, point: &Point) {
        self.runs += 1;
        let directory = self.directory.join(self.runs.to_string());
        let switch = Switch::of_build(binary, &directory, case.link, 2, case.switch_options);
        let connect = || switch.connect();
        let rate = Load {
            ports: [0, 1].map(|port| switch.tester_uri(port)),
            seconds: self.options.seconds(),
            more: case.tester_options,
            connect: case.link.is_client.then_some(&connect as &dyn Fn()),
        }
        .rate();
        run.add(point, Figure::ForwardedPps, Some(rate));
        run.add(point, Figure::CyclesAFrame, switch.cycles_a_frame());
        let of_ports = switch.port_cycles_a_frame();
        run.add(point, Figure::PortCyclesAFrame, of_ports);
    }
}

fn point(case: &Case, build: &str) -> Point {
    Point {
        group: "64 B, one way".to_owned(),
        case: case.name.to_owned(),
        size: None,
        side: build.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "builds", rounds, seconds);
    let Some(other) = std::env::var_os("QUIETWIRE_OTHER_BUILD").map(PathBuf::from) else {
        run.absent.extend(BUILDS.map(|build| Absent {
            side: build.to_owned(),
            reason: "QUIETWIRE_OTHER_BUILD names no binary to compare with".to_owned(),
        }));
        return common::finish(&options, run);
    };
    run.sides.push(switch::side(BUILDS[0]));
    let about = std::env::var("QUIETWIRE_OTHER_BUILD_IS");
    let mut side = switch::side(BUILDS[1]);
    side.built = about.unwrap_or_else(|_| "unknown".to_owned());
    run.sides.push(side);
    let cases: Vec<&Case> = CASES
        .iter()
        .filter(|case| options.wants(case.name))
        .collect();
    for case in &cases {
        for build in BUILDS {
            let cycles = [Figure::CyclesAFrame, Figure::PortCyclesAFrame];
            let figures = [&[Figure::ForwardedPps], &cycles[..]].concat();
            run.expect(&point(case, build), &figures);
        }
    }
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench {
        options: &options,
        directory: directory.path().to_owned(),
        runs: 0,
    };
    let mut turns = options.turns();
    let binaries = [Path::new(QUIETWIRE), &other];
    for _ in 0..rounds {
        for case in turns.order(cases.len()) {
            for build in turns.order(BUILDS.len()) {
                let point = point(cases[case], BUILDS[build]);
                run.turn(std::slice::from_ref(&point), |run| {
                    bench.measure(run, binaries[build], cases[case], &point);
                });
            }
        }
    }
    common::finish(&options, run);
}
