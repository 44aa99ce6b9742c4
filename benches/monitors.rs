// SPDX-License-Identifier: Apache-2.0
//! Cost of the monitors of a study: cycles a frame of the switch with all monitors and with none, in paired trials.
//!
//! `cargo bench -p quietwire --bench monitors` starts the device of a study several times, as root. Each start has the same number of rounds.
//! In each round, both sides take turns in random order, without a start of the switch between them: starts of the switch differ by more
//! than the monitors cost. The goal is that the cycles of the paired trials differ by less than 1 % without a schedule, where bursts are
//! long. At a fixed rate, bursts of one or two frames vary from trial to trial, and the cycles a frame with them: these rows have no goal.
//! Cycles are those that the switch counts: they are valid even if the tester is the limit. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use common::goals::{MONITORED, WITH_MONITORS, WITHOUT_MONITORS};
use common::record::{Figure, Point};
use common::{DEVICE_CPU, Options, QUIETWIRE, TESTER_CPU};
use quietwire_lab::{LabOptions, Stop};
use quietwire_study::{Bench, CaseMonitors, CaseSpec, LabBench, StudyFile};
use quietwire_tester::{Directions, FrameSizes, IpVersion, LatencyStart, Trial};

const ROUNDS: u32 = 100;
const SECONDS: f64 = 0.3;
/// Starts of the switch.
const STARTS: u32 = 5;
const GROUP: &str = "monitors";
/// Sides, with their monitors.
const SIDES: [(&str, CaseMonitors); 2] = [
    (WITH_MONITORS, CaseMonitors::All),
    (WITHOUT_MONITORS, CaseMonitors::None),
];
/// Cases and their rates, frames per second.
const CASES: [(&str, f64); 2] = [
    (MONITORED, Trial::UNPACED),
    (
        "cross-connect between memif ports, 1,000,000 frames per second",
        1e6,
    ),
];

/// Returns the study, whose device is measured.
fn study(seconds: f64) -> StudyFile {
    let text = format!(
        "name = \"monitors\"\ntitle = \"Cost of monitors\"\n\
         [device]\nswitch = \"quietwire\"\ntopology = \"vNet1\"\nlink = \"memif\"\n\
         forwarding-cpus = \"{DEVICE_CPU}\"\nservice-cpus = \"{TESTER_CPU}\"\ncontrol-cpus = \"{TESTER_CPU}\"\n\
         [tester]\ncpu = \"{TESTER_CPU}\"\n\
         [trials]\nduration-s = {seconds}\nmax-rate-pps = 1_000_000\n[sweep]\nloads-percent = [100]\n\
         [[case]]\nname = \"quiet\"\nneighbours = \"none\"\nisolation = \"pinned\"\n"
    );
    StudyFile::parse(&text, Path::new("monitors.toml")).expect("a study")
}

/// Returns a trial of 64-byte frames in one direction.
fn trial(offered_rate_pps: f64, duration_s: f64) -> Trial {
    Trial {
        offered_rate_pps,
        duration_s,
        warm_up_s: 0.1,
        drain_s: 0.05,
        frame_sizes: FrameSizes::Fixed(64),
        directions: Directions::OneWay,
        flows: 1,
        mac_addresses: 1,
        destinations: 1,
        ip: IpVersion::V4,
        low_rate_pps: 0.0,
        reflected: false,
        latency_start: LatencyStart::Sent,
        rate_tolerance_pps: None,
        traffic: None,
    }
}

/// Returns the cycles a frame of the switch in a trial.
fn cycles(bench: &mut LabBench, trial: &Trial) -> Option<f64> {
    let measured = bench.run(trial).expect("the trial runs");
    let counted = measured.activity.elements.first()?.counted.as_ref()?;
    (counted.frames > 0).then(|| counted.cycles as f64 / counted.frames as f64)
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
    let seconds = options.seconds_or(SECONDS);
    let mut measured = common::begin(&options, "monitors", rounds, seconds);
    measured.sides = SIDES
        .iter()
        .map(|(side, _)| common::switch::side(side))
        .collect();
    let file = study(seconds);
    let directory = tempfile::tempdir().expect("a directory");
    let lab = LabOptions {
        state_directory: directory.path().to_owned(),
        program: PathBuf::from(QUIETWIRE),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut bench = LabBench::open(&file, lab, Stop::from(&stop)).expect("the lab");
    let mut turns = options.turns();
    for start in 0..STARTS.min(rounds) {
        let case = CaseSpec {
            case: file.cases[0].clone(),
            position: 0,
            round: start,
        };
        bench.enter_case(&case).expect("the device starts");
        // The first trials after a start fill caches.
        cycles(&mut bench, &trial(Trial::UNPACED, seconds));
        for _ in (start..rounds).step_by(STARTS as usize) {
            for case in turns.order(CASES.len()) {
                let (case, rate_pps) = CASES[case];
                for side in turns.order(SIDES.len()) {
                    let (side, monitors) = SIDES[side];
                    bench.set_monitors(monitors);
                    let point = point(case, side);
                    measured.turn(std::slice::from_ref(&point), |run| {
                        let found = cycles(&mut bench, &trial(rate_pps, seconds));
                        run.add(&point, Figure::CyclesAFrame, found);
                    });
                }
            }
        }
        bench.leave_case().expect("the device is undone");
    }
    bench.close().expect("the lab is undone");
    common::finish(&options, measured);
}
