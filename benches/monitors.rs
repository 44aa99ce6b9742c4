// SPDX-License-Identifier: Apache-2.0
//! Cost of the monitors of a study: cycles a frame of the switch with all monitors and with none, in paired trials at the same rate.
//!
//! `cargo bench -p quietwire --bench monitors` runs a study of two cases in each round, in random order, as root. The goal is that the
//! medians of the paired rounds differ by less than 1 %. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::process::{Command, Stdio};

use common::goals::{MONITORED, WITH_MONITORS, WITHOUT_MONITORS};
use common::record::{Figure, Point};
use common::{DEVICE_CPU, Options, QUIETWIRE, TESTER_CPU};
use serde_json::Value;

const ROUNDS: u32 = 15;
const SECONDS: f64 = 2.0;
const GROUP: &str = "monitors";
/// Sides, with the key of their case.
const SIDES: [(&str, &str); 2] = [(WITH_MONITORS, "all"), (WITHOUT_MONITORS, "none")];
/// Rate, frames per second: far below the limits of switch and tester on any machine, so that bursts are alike.
const RATE_PPS: u32 = 500_000;

/// Returns a study with both cases in this order.
fn study(order: &[usize], seconds: f64) -> String {
    let case = |index: &usize| {
        let (_, key) = SIDES[*index];
        format!(
            "[[case]]\nname = \"{key}\"\nneighbours = \"none\"\nisolation = \"pinned\"\nmonitors = \"{key}\"\n"
        )
    };
    let cases: String = order.iter().map(case).collect();
    format!(
        "name = \"monitors\"\ntitle = \"Cost of monitors\"\n\
         [device]\nswitch = \"quietwire\"\ntopology = \"vNet1\"\nlink = \"memif\"\n\
         forwarding-cpus = \"{DEVICE_CPU}\"\nservice-cpus = \"{TESTER_CPU}\"\ncontrol-cpus = \"{TESTER_CPU}\"\n\
         [tester]\ncpu = \"{TESTER_CPU}\"\n\
         [trials]\nduration-s = {seconds}\nmax-rate-pps = {RATE_PPS}\n[sweep]\nloads-percent = [100]\n{cases}"
    )
}

/// Runs a study; returns its results.
fn results(directory: &Path, text: &str) -> Value {
    let file = directory.join("monitors.toml");
    std::fs::write(&file, text).expect("the study can be written");
    let mut command = Command::new(QUIETWIRE);
    command
        .args(["study", "run", "--fresh", "--json"])
        .arg(&file);
    command
        .arg("--store")
        .arg(directory.join("monitors.sqlite"));
    command.env("XDG_STATE_HOME", directory);
    command.stdin(Stdio::null());
    let output = command.output().expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Returns the cycles a frame of a case; none if its trials are invalid.
fn cycles(results: &Value, case: &str) -> Option<f64> {
    let cases = results.pointer("/summary/sizes/0/cases")?.as_array()?;
    let case = cases.iter().find(|one| one["name"] == case)?;
    let cycles = &case["cycles"];
    if cycles["cycle_source"] != "counted" {
        return None;
    }
    cycles.pointer("/cycles/median")?.as_f64()
}

fn point(side: &str) -> Point {
    Point {
        group: GROUP.to_owned(),
        case: MONITORED.to_owned(),
        size: None,
        side: side.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds_or(SECONDS);
    let mut measured = common::begin(&options, "monitors", rounds, seconds);
    measured.sides = SIDES
        .iter()
        .map(|(side, _)| common::switch::side(side))
        .collect();
    let directory = tempfile::tempdir().expect("a directory");
    let mut turns = options.turns();
    for _ in 0..rounds {
        let text = study(&turns.order(SIDES.len()), seconds);
        let found = results(directory.path(), &text);
        for (side, key) in SIDES {
            measured.add(&point(side), Figure::CyclesAFrame, cycles(&found, key));
        }
    }
    common::finish(&options, measured);
}
