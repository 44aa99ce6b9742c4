// SPDX-License-Identifier: Apache-2.0
//! Connections of the tester without a device: both ends on one CPU, over memif.
//!
//! `cargo bench -p quietwire --bench connections` prints the connections per second, each with handshake, checked request,
//! checked answer and close, and the number of connections that were open at once. Both ends of 4,000,000 connections
//! require up to 2 GiB of memory. Requires root and a quiet machine. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::Path;
use std::process::Command;

use common::goals::{OPEN_AT_ONCE, SHORT_CONNECTIONS, TESTER};
use common::record::{Figure, Point};
use common::{Machine, Options, QUIETWIRE, RING_SIZE, TESTER_CPU, switch};
use serde_json::Value;

const ROUNDS: u32 = 5;
/// Seconds of a measurement of short connections.
const SECONDS: f64 = 5.0;
/// Both ends, with space for all connections and for those in TIME-WAIT.
const ENDS: &str =
    "open-max = 4194304\n[connections.client]\ncount = 1000\n[connections.server]\ncount = 10\n";

/// Measurement of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    /// Connections as fast as the tester can open and close them.
    Short,
    /// Connections that stay open.
    Open,
}

const CASES: [Case; 2] = [Case::Short, Case::Open];

impl Case {
    fn name(self) -> &'static str {
        match self {
            Self::Short => SHORT_CONNECTIONS,
            Self::Open => OPEN_AT_ONCE,
        }
    }

    fn figure(self) -> Figure {
        match self {
            Self::Short => Figure::ConnectionsPs,
            Self::Open => Figure::OpenConnections,
        }
    }

    fn point(self) -> Point {
        Point {
            group: "both ends on one CPU, memif".to_owned(),
            case: self.name().to_owned(),
            size: None,
            side: TESTER.to_owned(),
        }
    }

    /// Returns the description, and the times of `--duration` and `--drain`, seconds.
    fn load(self, options: &Options) -> (String, [f64; 2]) {
        match self {
            // More than one CPU can open: the schedule never waits.
            Self::Short => {
                let mix = "[[connections.mix]]\nname = \"short\"\nport = 80\nrequest = 64\nanswer = 128\n";
                let text = format!("[connections]\nrate = 3000000.0\n{ENDS}{mix}");
                (text, [options.seconds_or(SECONDS), 10.0])
            }
            // All are open before the first one ends.
            Self::Open => {
                let (number, think_s) = if options.quick {
                    (400_000, 4.0)
                } else {
                    (4_000_000, 40.0)
                };
                let text = format!(
                    "[connections]\nconcurrent = {number}\nrate = 300000.0\nidle-timeout-ms = 90000.0\n{ENDS}\
                     [[connections.mix]]\nname = \"open\"\nport = 80\nrequest = 64\nanswer = 128\ntransactions = 2\n\
                     think-ms = {:.1}\n",
                    think_s * 1e3
                );
                (text, [think_s - 1.0, 2.0 * think_s])
            }
        }
    }

    /// Returns the measured quantity; `None` if connections failed.
    fn measure(self, directory: &Path, options: &Options) -> Option<f64> {
        let (text, times) = self.load(options);
        let result = run(directory, &text, times);
        let client = &result["client"];
        let has_failures = client["failed"].as_object()?.values().next().is_some();
        if has_failures {
            eprintln!("connections failed: {}", client["failed"]);
            return None;
        }
        match self {
            Self::Short => client["sustained"]["completed_rate"].as_f64(),
            Self::Open => client["open_largest"].as_f64(),
        }
    }
}

/// Runs the tester with both ends of a link. Returns its result.
fn run(directory: &Path, text: &str, [duration_s, drain_s]: [f64; 2]) -> Value {
    fs::create_dir(directory).unwrap();
    let file = directory.join("connections.toml");
    fs::write(&file, text).unwrap();
    let mut command = Command::new(QUIETWIRE);
    command.args(["generate", "--json", "--isolation", "none"]);
    command.args(["--cpus", TESTER_CPU, "--ring-size", RING_SIZE]);
    let socket = directory.join("p.sock");
    for role in ["server", "client"] {
        let port = format!("memif:{}?role={role}", socket.display());
        command.args(["--port", &port]);
    }
    command.arg("--connections").arg(&file);
    for (option, seconds) in [("--duration", duration_s), ("--drain", drain_s)] {
        command.args([option, &format!("{:.0}ms", seconds * 1e3)]);
    }
    let output = command.output().expect("the tester runs");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| {
        let errors = String::from_utf8_lossy(&output.stderr);
        panic!("the tester failed: {errors}")
    })
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds_or(SECONDS);
    let mut run = common::begin(&options, "connections", rounds, seconds);
    run.sides.push(switch::side(TESTER));
    let mut cases = CASES.to_vec();
    cases.retain(|case| options.wants(case.name()));
    for case in &cases {
        run.expect(&case.point(), &[case.figure()]);
    }
    let directory = tempfile::tempdir().unwrap();
    let mut turns = options.turns();
    for round in 0..rounds {
        for index in turns.order(cases.len()) {
            let case = cases[index];
            let own = directory.path().join(format!("{round}-{index}"));
            let point = case.point();
            run.turn(std::slice::from_ref(&point), |run| {
                run.add(&point, case.figure(), case.measure(&own, &options));
            });
        }
    }
    common::finish(&options, run);
}
