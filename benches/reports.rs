// SPDX-License-Identifier: Apache-2.0
//! Time from the command to the finished page of a study with many trials, and time in which the state of a study with a million trials is
//! read.
//!
//! `cargo bench -p quietwire --bench reports` makes stores of a simulated device with full latency histograms, which takes some minutes,
//! and reports the time of `quietwire study report --html`. The goal is that 10,000 trials take less than 2 s. Then it copies the rows of a
//! store to a million, without their large columns, and reports the time of what `quietwire serve` asks each second: numbers of trials and
//! steps, and the latest trial. These queries read indexes and single rows. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use common::goals::{PAGE, TEN_THOUSAND};
use common::record::{Figure, Point};
use common::{Options, QUIETWIRE};
use quietwire_study::Store;
use rusqlite::Connection;

const ROUNDS: u32 = 5;
const GROUP: &str = "page of a study";
/// Cases and their numbers of trials.
const SIZES: [(&str, u32); 2] = [("1,000 trials", 1000), (TEN_THOUSAND, 10_000)];
/// Case of the store whose state is read, and how often it has the trials of the smallest store.
const MILLION: &str = "1,000,000 trials";
const COPIES: u32 = 1000;
/// Side of that case.
const STATE: &str = "state of a study";
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

/// Copies the rows of the trials of a store, without their large columns. The last row is whole, because it is shown.
fn enlarge(store: &Path) {
    let columns = "step_id, sequence, run_id, stored_unix_ns, is_valid, offered_rate_pps, forwarding_rate_pps, loss_ratio, \
                   request_json, result_json, histograms, activity_zstd";
    let own = "run_id, stored_unix_ns, is_valid, offered_rate_pps, forwarding_rate_pps, loss_ratio";
    let last = COPIES - 1;
    let statements = format!(
        "WITH RECURSIVE copy (number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM copy WHERE number < {last}) \
         INSERT INTO trial ({columns}) \
         SELECT step_id, sequence + 1000000 * number, {own}, '{{}}', '{{}}', x'', x'' FROM copy, trial; \
         INSERT INTO trial ({columns}) \
         SELECT step_id, sequence + 1000000 * {COPIES}, {own}, request_json, result_json, histograms, activity_zstd \
         FROM trial WHERE id = 1;"
    );
    let connection = Connection::open(store).expect("the store opens");
    connection
        .execute_batch(&statements)
        .expect("the trials are copied");
}

/// Returns the time of reading the state of a study, seconds.
fn state_s(store: &Path) -> f64 {
    let began = Instant::now();
    let state = Store::open_to_read(store).and_then(|store| store.overview());
    let seconds = began.elapsed().as_secs_f64();
    let state = state.expect("the store has a state");
    assert!(state.trials >= 1_000_000 && state.latest.is_some());
    seconds
}

fn point(case: &str, side: &str) -> Point {
    Point {
        group: GROUP.to_owned(),
        case: case.to_owned(),
        size: None,
        side: side.to_owned(),
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
    measured.sides = vec![common::switch::side(PAGE), common::switch::side(STATE)];
    let has_million = options.wants(MILLION) && !options.quick;
    let million = has_million.then(|| {
        let apart = directory.path().join("million");
        std::fs::create_dir(&apart).expect("the directory can be made");
        let store = store(&apart, SIZES[0].1);
        eprintln!("making a store of {MILLION}");
        enlarge(&store);
        store
    });
    let mut turns = options.turns();
    for _ in 0..rounds {
        for index in turns.order(stores.len()) {
            let (case, store) = &stores[index];
            let point = point(case, PAGE);
            measured.turn(std::slice::from_ref(&point), |run| {
                run.add(&point, Figure::ReportS, Some(report_s(store)));
            });
        }
        if let Some(store) = &million {
            let point = point(MILLION, STATE);
            measured.turn(std::slice::from_ref(&point), |run| {
                run.add(&point, Figure::StateS, Some(state_s(store)));
            });
        }
    }
    common::finish(&options, measured);
}
