// SPDX-License-Identifier: Apache-2.0
//! Comparison of the tester with other generators of frames, without a device: one CPU generates, another one receives.
//!
//! `cargo bench -p quietwire --bench generators` prints the medians of the rounds, and the goals, which are ratios to the peer.
//! 64-byte frames over memif, one way. DPDK's testpmd sends in the modes `txonly` (one flow) and `flowgen` (1,024 flows) to
//! `rxonly`, which counts frames and checks nothing. The tester checks each frame, and counts the cycles of both ends.
//! Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::goals::{MANY_FLOWS, ONE_FLOW, TESTER};
use common::record::{Absent, Figure, Point, Run};
use common::testpmd::{self, Testpmd};
use common::{DEVICE_CPU, Load, Machine, Options, TESTER_CPU, forwarded, switch};

const ROUNDS: u32 = 9;
const GROUP: &str = "64 B, memif, one way";
/// Octets of a frame in memory: without FCS.
const FRAME: &str = "--txpkts=60";

/// A generator with its receiver.
#[derive(Clone, Copy)]
enum Generator {
    /// testpmd in this mode.
    Testpmd(&'static str),
    /// The tester with this number of flows.
    Tester(&'static str),
}

/// Cases, sides and generators. `flowgen` has 1,024 flows unless an option changes that.
const GENERATORS: [(&str, &str, Generator); 4] = [
    (
        ONE_FLOW,
        "testpmd txonly to rxonly",
        Generator::Testpmd("txonly"),
    ),
    (ONE_FLOW, TESTER, Generator::Tester("1")),
    (
        MANY_FLOWS,
        "testpmd flowgen to rxonly",
        Generator::Testpmd("flowgen"),
    ),
    (MANY_FLOWS, TESTER, Generator::Tester("1024")),
];

/// Figures of a turn: received frames per second, and cycles to make and to check a frame, rings included.
const FIGURES: [Figure; 4] = [
    Figure::ReceivedPps,
    Figure::GenerateCycles,
    Figure::CheckCycles,
    Figure::MakeAndCheckCycles,
];

/// Measures a generator in one turn. testpmd counts no cycles.
fn measured(generator: Generator, directory: &Path, seconds: f64) -> [Option<f64>; 4] {
    match generator {
        Generator::Testpmd(mode) => {
            let receiver = Testpmd::receive(&directory.with_extension("rx"));
            let sender = directory.with_extension("tx");
            let _sender = receiver.generate(&sender, mode, &[FRAME]);
            [Some(receiver.received_pps()), None, None, None]
        }
        Generator::Tester(flows) => {
            std::fs::create_dir(directory).unwrap();
            let socket = directory.join("p.sock");
            let ports =
                ["server", "client"].map(|role| format!("memif:{}?role={role}", socket.display()));
            let cpus = format!("{TESTER_CPU},{DEVICE_CPU}");
            let load = Load {
                ports,
                seconds,
                more: &["--cpus", &cpus, "--flows", flows],
                connect: None,
            };
            let result = load.offer();
            let cycles = |key: &str| result["health"][key].as_f64();
            let (make, check) = (cycles("generate_cycles"), cycles("check_cycles"));
            let both = make.zip(check).map(|(make, check)| make + check);
            [Some(forwarded(&result)), make, check, both]
        }
    }
}

fn point(case: &str, side: &str) -> Point {
    Point {
        group: GROUP.to_owned(),
        case: case.to_owned(),
        size: None,
        side: side.to_owned(),
    }
}

/// Returns pktgen as absent.
fn without_pktgen() -> Absent {
    Absent {
        side: "pktgen-dpdk".to_owned(),
        reason: "Debian has no package of it".to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds();
    let mut run = common::begin(&options, "generators", rounds, seconds);
    run.sides = vec![testpmd::side("testpmd"), switch::side(TESTER)];
    run.absent.push(without_pktgen());
    let mut generators = GENERATORS.to_vec();
    generators.retain(|(case, side, _)| options.wants(case) || options.wants(side));
    for (case, side, _) in &generators {
        run.expect(&point(case, side), &FIGURES);
    }
    measure(&options, &mut run, &generators, (rounds, seconds));
    common::finish(&options, run);
}

/// Measures all generators in turns.
fn measure(
    options: &Options,
    run: &mut Run,
    generators: &[(&str, &str, Generator)],
    (rounds, seconds): (u32, f64),
) {
    let directory = tempfile::tempdir().unwrap();
    let mut paths =
        (0..).map(|number: u32| -> PathBuf { directory.path().join(number.to_string()) });
    let mut turns = options.turns();
    for _ in 0..rounds {
        for index in turns.order(generators.len()) {
            let (case, side, generator) = generators[index];
            let path = paths.next().unwrap();
            let values = measured(generator, &path, seconds);
            for (figure, value) in FIGURES.into_iter().zip(values) {
                run.add(&point(case, side), figure, value);
            }
        }
    }
}
