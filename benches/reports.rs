// SPDX-License-Identifier: Apache-2.0
//! Time from the command to the finished page of a study with many trials.
//!
//! `cargo bench -p quietwire --bench reports` makes stores of a simulated device with full latency histograms, which takes some minutes, and
//! reports the time of `quietwire study report --html`. The goal is that 10,000 trials take less than 2 s. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use common::goals::{PAGE, TEN_THOUSAND};
use common::record::{Figure, Point};
use common::{Options, QUIETWIRE};

const ROUNDS: u32 = 5;
const GROUP: &str = "page of a study";
/// Cases and their numbers of trials.
const SIZES: [(&str, u32); 2] = [("1,000 trials", 1000), (TEN_THOUSAND, 10_000)];
/// Rounds of the study.
const STUDY_ROUNDS: u32 = 10;
/// Cases of the study.
const CASES: u32 = 2;

/// Returns a study with this number of trials.
fn study(trials: u32) -> String {
    let repeats = trials / STUDY_ROUNDS / CASES;
    let case = |name: &str| {
        format!("[[case]]\nname = \"{name}\"\nneighbours = \"none\"\nisolation = \"none\"\n")
    };
    format!(
        "name = \"reports\"\ntitle = \"{trials} trials\"\nrounds = {STUDY_ROUNDS}\n\
         [device]\nswitch = \"other\"\ntopology = \"vNet1\"\nlink = \"other\"\n[tester]\ncpu = \"0\"\n\
         [trials]\nduration-s = 1\nmax-rate-pps = 9_000_000\n\
         [latency]\nrate-pps = 100_000\nduration-s = 1\nrepeats = {repeats}\n{}{}",
        case("a"),
        case("b")
    )
}

/// Runs a study on a simulated device; returns its store.
fn store(directory: &Path, trials: u32) -> PathBuf {
    let file = directory.join(format!("{trials}.toml"));
    std::fs::write(&file, study(trials)).expect("the study can be written");
    let store = directory.join(format!("{trials}.sqlite"));
    eprintln!("making a store of {trials} trials");
    let mut command = Command::new(QUIETWIRE);
    command.args(["study", "run"]).arg(&file);
    command.arg("--store").arg(&store);
    command.args(["--tester", "sim:capacity=5M"]);
    run(command.env("XDG_STATE_HOME", directory));
    store
}

fn run(command: &mut Command) {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let output = command.stderr(Stdio::piped()).output();
    let output = output.expect("the program starts");
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}");
}

/// Returns the time of writing a page, seconds.
fn report_s(store: &Path) -> f64 {
    let mut command = Command::new(QUIETWIRE);
    command.args(["study", "report"]).arg(store);
    command.arg("--html").arg(store.with_extension("html"));
    let began = Instant::now();
    run(&mut command);
    began.elapsed().as_secs_f64()
}

fn point(case: &str) -> Point {
    Point {
        group: GROUP.to_owned(),
        case: case.to_owned(),
        size: None,
        side: PAGE.to_owned(),
    }
}

fn main() {
    let options = Options::read();
    let rounds = options.rounds(ROUNDS);
    let mut sizes = SIZES.to_vec();
    sizes.retain(|(case, trials)| options.wants(case) && (!options.quick || *trials <= 1000));
    let directory = tempfile::tempdir().unwrap();
    let stores: Vec<(&str, PathBuf)> = sizes
        .iter()
        .map(|(case, trials)| (*case, store(directory.path(), *trials)))
        .collect();
    let mut measured = common::begin(&options, "reports", rounds, 0.0);
    measured.sides = vec![common::switch::side(PAGE)];
    let mut turns = options.turns();
    for _ in 0..rounds {
        for index in turns.order(stores.len()) {
            let (case, store) = &stores[index];
            let seconds = report_s(store);
            measured.add(&point(case), Figure::ReportS, Some(seconds));
        }
    }
    common::finish(&options, measured);
}
