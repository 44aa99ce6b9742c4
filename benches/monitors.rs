// SPDX-License-Identifier: Apache-2.0
//! Cost of the monitors of a study: cycles a frame of the switch with all monitors and with none, in paired rounds.
//!
//! `cargo bench -p quietwire --bench monitors` starts each device several times, as root. Each start has the same number of rounds. In each
//! round, both sides take turns in random order, without a start of the switch between them: starts of the switch differ by more than the
//! monitors cost.
//!
//! The goal is that the cycles of the paired rounds differ by less than 1 % on a switch with two cross-connected `null:` ports. Its
//! forwarding thread generates the frames itself, so no other CPU has a part in its cycles, and there is no tester: the monitors start, the
//! switch runs for a fixed time, and the monitors stop. Trials of a study on memif ports have no goal: the speed of memory that two CPUs
//! share changes from trial to trial, and so do the cycles a frame, by far more than 1 %. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::sleep;
use std::time::Duration;

use common::goals::{MONITORED, WITH_MONITORS, WITHOUT_MONITORS};
use common::lcg::Lcg;
use common::placement::{HELPERS_PRIORITY, helper_cpu};
use common::record::{Figure, Point, Run};
use common::switch::Switch;
use common::turn::is_interrupted;
use common::{DEVICE_CPU, Options, TESTER_CPU};
use quietwire_dpdk::thread::pin;
use quietwire_host::CpuList;
use quietwire_lab::Stop;
use quietwire_study::{
    Bench, CaseMonitors, CaseSpec, LabBench, MonitorTarget, MonitoredDevice, RunningSwitch,
    StudyFile, SwitchProcess, TrialActivity, TrialMonitors,
};
use quietwire_tester::{Directions, FrameSizes, Trial};

const ROUNDS: u32 = 90;
const SECONDS: f64 = 0.5;
/// Starts of each device.
const STARTS: u32 = 5;
const GROUP: &str = "monitors";
/// Sides, with their monitors.
const SIDES: [(&str, CaseMonitors); 2] = [
    (WITH_MONITORS, CaseMonitors::All),
    (WITHOUT_MONITORS, CaseMonitors::None),
];
/// Case without a goal.
const TRIALS: &str = "cross-connect between memif ports, in trials of a study";
/// Maximum number of its rounds.
const TRIAL_ROUNDS: u32 = 20;

/// Returns the study on memif ports.
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

/// Returns a trial of 64-byte frames in one direction, without a schedule: bursts are long.
fn trial(duration_s: f64) -> Trial {
    Trial {
        warm_up_s: 0.1,
        drain_s: 0.05,
        directions: Directions::OneWay,
        ..Trial::new(Trial::UNPACED, duration_s, FrameSizes::Fixed(64))
    }
}

/// Returns the cycles a frame of the switch.
fn cycles(activity: &TrialActivity) -> Option<f64> {
    let counted = activity.elements.first()?.counted.as_ref()?;
    (counted.frames > 0).then(|| counted.cycles as f64 / counted.frames as f64)
}

/// Measures both sides in random order, each in a turn of the run.
fn measure_round(
    measured: &mut Run,
    turns: &mut Lcg,
    case: &str,
    mut measure: impl FnMut(CaseMonitors) -> Option<f64>,
) {
    for side in turns.order(SIDES.len()) {
        let (side, monitors) = SIDES[side];
        let point = Point {
            group: GROUP.to_owned(),
            case: case.to_owned(),
            size: None,
            side: side.to_owned(),
        };
        measured.turn(std::slice::from_ref(&point), |run| {
            let found = measure(monitors);
            run.add(&point, Figure::CyclesAFrame, found);
        });
    }
}

/// Watches a switch for some seconds, as a trial does, and returns its cycles a frame.
fn watch(process: &SwitchProcess, cpus: &CpuList, kind: CaseMonitors, seconds: f64) -> Option<f64> {
    let device = Some(MonitoredDevice::Switch(process));
    let target = MonitorTarget {
        device,
        neighbours: None,
        sampler_cpus: cpus,
        monitors: kind,
    };
    let mut monitors = TrialMonitors::default();
    let mut watch = |seconds| {
        let running = monitors.start(target, seconds).expect("monitors");
        sleep(Duration::from_secs_f64(seconds));
        let observed = running.stop().expect("the end of the monitors");
        observed.activity(device, None)
    };
    // Counters of system calls stay open from trial to trial: they are opened and closed outside of the measured time.
    watch(0.0);
    let activity = watch(seconds);
    assert_eq!(activity.machine.is_some(), kind.is_all(), "the monitors");
    cycles(&activity)
}

/// Measures a switch whose forwarding thread generates all frames itself.
fn measure_null_ports(measured: &mut Run, turns: &mut Lcg, rounds: u32, seconds: f64) {
    // The CPU of the thread that runs the monitors of a study.
    let own: u32 = TESTER_CPU.parse().expect("a number");
    pin(&[own]).expect("the tester's CPU");
    let cpus: CpuList = helper_cpu().parse().expect("a CPU");
    let directory = tempfile::tempdir().expect("a directory");
    for start in 0..STARTS.min(rounds) {
        if is_interrupted() {
            return;
        }
        let switch = Switch::between_null_ports(&directory.path().join(start.to_string()));
        let process = SwitchProcess {
            pid: switch.pid(),
            switch: RunningSwitch::find(&switch.control_socket(), &[]).expect("the switch"),
        };
        // The first frames after a start fill caches.
        watch(&process, &cpus, CaseMonitors::All, seconds);
        for _ in (start..rounds).step_by(STARTS as usize) {
            measure_round(measured, turns, MONITORED, |kind| {
                watch(&process, &cpus, kind, seconds)
            });
        }
    }
}

/// Measures trials of a study, with a tester on another CPU than the forwarding thread's.
fn measure_trials(measured: &mut Run, turns: &mut Lcg, rounds: u32, seconds: f64) {
    let file = study(seconds);
    let stop = Arc::new(AtomicBool::new(false));
    let lab = common::lab_options();
    let mut bench = LabBench::open(&file, lab, Stop::from(&stop)).expect("the lab");
    for start in 0..STARTS.min(rounds) {
        if is_interrupted() {
            break;
        }
        let case = CaseSpec {
            case: file.cases[0].clone(),
            position: 0,
            round: start,
        };
        bench.enter_case(&case).expect("the device starts");
        let mut measure = |kind| {
            bench.set_monitors(kind);
            let result = bench.run(&trial(seconds)).expect("the trial runs");
            cycles(&result.activity)
        };
        // The first trials after a start fill caches.
        measure(CaseMonitors::All);
        for _ in (start..rounds).step_by(STARTS as usize) {
            measure_round(measured, turns, TRIALS, &mut measure);
        }
        bench.leave_case().expect("the device is undone");
    }
    bench.close().expect("the lab is undone");
}

fn main() {
    let options = Options::read();
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds_or(SECONDS);
    let mut measured = common::begin(&options, "monitors", rounds, seconds);
    let helper = helper_cpu();
    measured.helpers = format!(
        "CPU {DEVICE_CPU} forwards. The monitors run on CPU {TESTER_CPU}, with memif ports also the tester. With null ports, the other \
         threads of the switch run on CPU {helper} (SCHED_FIFO {HELPERS_PRIORITY})."
    );
    measured.sides = SIDES
        .iter()
        .map(|(side, _)| common::switch::side(side))
        .collect();
    let mut turns = options.turns();
    if options.wants(MONITORED) {
        measure_null_ports(&mut measured, &mut turns, rounds, seconds);
    }
    if options.wants(TRIALS) {
        let rounds = rounds.min(TRIAL_ROUNDS);
        measure_trials(&mut measured, &mut turns, rounds, seconds);
    }
    common::finish(&options, measured);
}
