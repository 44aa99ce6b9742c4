// SPDX-License-Identifier: Apache-2.0
//! Comparison of the tester with other generators of frames, without a device: one CPU generates, another one receives.
//!
//! `cargo bench -p quietwire --bench generators` prints the medians of the rounds, and the goals, which are ratios to the peer.
//! 64-byte frames over memif, one way, from the client, which owns the buffers. DPDK's testpmd sends in the modes `txonly` (one flow) and
//! `flowgen` (1,024 flows) to `rxonly`, which counts frames and checks nothing. The tester checks each frame, and counts the cycles of
//! both ends. It also sends and receives with as many CPUs as the machine has, up to four, each with a pair of queues at both ends.
//! Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use common::goals::{FOUR_CPUS, MANY_FLOWS, ONE_CPU, ONE_FLOW, TESTER, TWO_CPUS};
use common::record::{Absent, Figure, Point, Run};
use common::testpmd::{self, Testpmd};
use common::{DEVICE_CPU, Load, Machine, Options, TESTER_CPU, WITHOUT_DEVICE, forwarded, switch};

const ROUNDS: u32 = 9;
const GROUP: &str = "64 B, memif, one way";
const SCALED: &str = "64 B, memif, both ways, both ends on the same CPUs";

/// A generator with its receiver.
#[derive(Clone, Copy)]
enum Generator {
    /// testpmd in this mode.
    Testpmd(&'static str),
    /// The tester with this number of flows.
    Tester(&'static str),
    /// The tester with this number of CPUs.
    Scaled(u32),
}

impl Generator {
    /// Returns the name of the table that the generator is in.
    fn group(self) -> &'static str {
        match self {
            Self::Testpmd(_) | Self::Tester(_) => GROUP,
            Self::Scaled(_) => SCALED,
        }
    }
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

/// The tester with several CPUs: cases and their numbers.
const CPUS: [(&str, u32); 3] = [(ONE_CPU, 1), (TWO_CPUS, 2), (FOUR_CPUS, 4)];

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
            let _sender = receiver.generate(&sender, mode);
            [Some(receiver.received_pps()), None, None, None]
        }
        Generator::Tester(flows) => {
            let cpus = format!("{TESTER_CPU},{DEVICE_CPU}");
            let more = [
                &WITHOUT_DEVICE[..],
                &["--cpus", cpus.as_str(), "--flows", flows],
            ]
            .concat();
            of_tester(directory, (1, seconds), &more)
        }
        Generator::Scaled(count) => {
            let cpus = format!("0-{}", count - 1);
            let more = [
                "--cpus",
                cpus.as_str(),
                "--flows",
                "1024",
                "--direction",
                "both",
            ];
            of_tester(directory, (count, seconds), &more)
        }
    }
}

/// Measures the tester over links with this number of queues.
fn of_tester(directory: &Path, (queues, seconds): (u32, f64), more: &[&str]) -> [Option<f64>; 4] {
    std::fs::create_dir(directory).unwrap();
    let socket = directory.join("p.sock");
    let ports = ["server", "client"]
        .map(|role| format!("memif:{}?role={role}&queues={queues}", socket.display()));
    let load = Load {
        ports,
        seconds,
        more,
        connect: None,
    };
    let result = load.offer_to_itself();
    let cycles = |key: &str| result["health"][key].as_f64();
    let (make, check) = (cycles("generate_cycles"), cycles("check_cycles"));
    let both = make.zip(check).map(|(make, check)| make + check);
    [Some(forwarded(&result)), make, check, both]
}

fn point(case: &str, side: &str, generator: Generator) -> Point {
    Point {
        group: generator.group().to_owned(),
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
    let there = CPUS
        .into_iter()
        .filter(|(_, count)| *count <= common::cpus());
    generators.extend(there.map(|(case, count)| (case, TESTER, Generator::Scaled(count))));
    generators.retain(|(case, side, _)| options.wants(case) || options.wants(side));
    for (case, side, generator) in &generators {
        run.expect(&point(case, side, *generator), &FIGURES);
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
            let point = point(case, side, generator);
            run.turn(std::slice::from_ref(&point), |run| {
                let values = measured(generator, &path, seconds);
                for (figure, value) in FIGURES.into_iter().zip(values) {
                    run.add(&point, figure, value);
                }
            });
        }
    }
}
