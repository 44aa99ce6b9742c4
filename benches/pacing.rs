// SPDX-License-Identifier: Apache-2.0
//! Precision of the tester's pacing, and cost of a frame in the tester: over a memif link with the tester at both ends, at
//! 10, 50 and 90 % of the highest clean rate.
//!
//! `cargo bench -p quietwire --bench pacing` prints the medians of rounds of 10 seconds each. One CPU sends, receives and
//! checks 64-byte frames, and described frames at the highest possible rate. Goals: the rate is within 0.01 % while the tester
//! runs, 99.9 % of the gaps between bursts are at most as long as a burst, making and checking a frame takes at most 70 cycles,
//! with the ring, and all that the CPU does for a frame half of what it does if frames pass through packet buffers. The error of
//! the rate has two figures: with and without the frames that were due in stalls and not sent later. Gaps in which the tester
//! stalled, and stalls of the host, are counted apart. The client, which owns the buffers, sends. Requires root and a quiet machine.
//! `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::goals::{IN_BUFFERS, IN_PLACE};
use common::lcg::Lcg;
use common::record::{Figure, Point, Run};
use common::{Machine, Options, Spread, Subject, plot, switch};
use quietwire_dpdk::{Eal, PortUri};
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    Calibration, CalibrationOptions, Directions, FrameAccess, FrameSizes, IpVersion,
    LatencySummary, Limits, PERCENTILES, Preparation, Tester, TesterIdle, TesterOptions, Trial,
};

const ROUNDS: u32 = 5;
const SECONDS: f64 = 10.0;
const CPU: u32 = 0;
/// The memif client sends, because it owns the buffers, as the tester does at a device that is the server.
const DIRECTION: Directions = Directions::Reverse;
const TESTER: &str = "quietwire's tester";
/// Gaps at a fraction of the clean rate.
struct Row {
    share: f64,
    /// Relative to the burst time, by percentile.
    gaps: Vec<(f64, Spread)>,
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let rounds = options.rounds(ROUNDS);
    let seconds = options.seconds_or(SECONDS);
    let mut run = common::begin(&options, "pacing", rounds, seconds);
    run.sides.push(switch::side(TESTER));
    let mut turns = options.turns();
    let eal = common::start_dpdk("pacing", 256);
    let [mut tester, mut copying] =
        ACCESSES.map(|(_, name, access)| open(&eal, directory.path(), name, access));
    let wanted = CalibrationOptions {
        frame_sizes: vec![FrameSizes::Fixed(64)],
        directions: DIRECTION,
        ip: IpVersion::V4,
        traffic: None,
        search_s: 0.5,
        pacing_s: seconds,
        steps: CalibrationOptions::STEPS,
        warm_up_s: CalibrationOptions::WARM_UP_S,
    };
    let mut calibrations: Vec<Calibration> = Vec::new();
    for _ in 0..rounds {
        run.turn(&[], |_| {
            let calibration = tester.calibrate(&wanted, |_| ()).unwrap();
            let is_clean = calibration.sizes[0].clean_rate_pps > 0.0;
            assert!(is_clean, "no rate was clean: the machine is not quiet");
            calibrations.push(calibration);
        });
    }
    record(&mut run, &calibrations);
    described(&options, &mut turns, &mut run, &mut tester);
    let testers = [&mut tester, &mut copying];
    accesses(&options, &mut turns, &mut run, testers);
    let shares = shares(&calibrations);
    let rows: Vec<Row> = (0..shares).map(|share| row(&calibrations, share)).collect();
    if let Some(directory) = &options.svg {
        draw(directory, &rows);
    }
    common::finish(&options, run);
}

/// Ways to access frames: the case, the name of the tester's socket and memory, and the option.
const ACCESSES: [(&str, &str, FrameAccess); 2] = [
    (IN_PLACE, "in-place", FrameAccess::InPlace),
    (IN_BUFFERS, "in-buffers", FrameAccess::PacketBuffers),
];

/// Opens a tester at both ends of a memif link.
fn open(eal: &Eal, directory: &Path, name: &str, frame_access: FrameAccess) -> Tester {
    let socket = directory.join(format!("{name}.sock"));
    let port = |name: &str, role: &str| {
        let uri: PortUri = format!("memif:{}?role={role}", socket.display())
            .parse()
            .unwrap();
        (name.to_owned(), uri)
    };
    let options = TesterOptions {
        cpus: vec![CPU],
        realtime_priority: Some(50),
        ring_size: 1024,
        receive_ring_size: quietwire_tester::RECEIVE_RING_SIZE,
        frame_size_max: 1518,
        limits: Limits::default(),
        preparation: Preparation::default(),
        idle: TesterIdle::default(),
        frame_access,
    };
    let ports = [port("a", "server"), port("b", "client")];
    let tester = Tester::open(eal, name, &ports, options).unwrap();
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    tester
}

fn point(group: &str, case: &str) -> Point {
    Point {
        group: group.to_owned(),
        case: case.to_owned(),
        size: None,
        side: TESTER.to_owned(),
    }
}

/// Adds the results of the calibrations, one per round.
fn record(run: &mut Run, calibrations: &[Calibration]) {
    let highest = point("64 B, one CPU", "as fast as is clean");
    for calibration in calibrations {
        let size = &calibration.sizes[0];
        run.add(&highest, Figure::CleanPps, Some(size.clean_rate_pps));
        run.add(&highest, Figure::GenerateCycles, Some(size.generate_cycles));
        run.add(&highest, Figure::CheckCycles, Some(size.check_cycles));
        let together = size.generate_cycles + size.check_cycles;
        run.add(&highest, Figure::MakeAndCheckCycles, Some(together));
    }
    for share in 0..shares(calibrations) {
        for calibration in calibrations {
            let paced = &calibration.sizes[0].pacing[share];
            let percent = format!("{:.0} % of that", paced.share * 100.0);
            let point = point("64 B, one CPU, paced", &percent);
            let far = PERCENTILES.iter().position(|it| (it - 99.9).abs() < 1e-9);
            let far = far.and_then(|index| paced.burst_gaps.percentiles()[index]);
            let over_burst = |gap_ns: u64| gap_ns as f64 / paced.burst_time_ns;
            run.add(&point, Figure::RateError, Some(paced.error_ratio.abs()));
            let running = paced.error_without_stalls_ratio.map(f64::abs);
            run.add(&point, Figure::RateErrorRunning, running);
            run.add(&point, Figure::GapP999, far.map(over_burst));
            let longest = over_burst(paced.burst_gaps.max_ns);
            run.add(&point, Figure::LongestGap, Some(longest));
            let stalled = paced.stalled_gaps.samples as f64;
            run.add(&point, Figure::StalledGaps, Some(stalled));
            let (stalls, stalled_ns) = (paced.host_stalls, paced.host_stall_time_ns);
            run.add(&point, Figure::HostStalls, Some(stalls as f64));
            run.add(&point, Figure::HostStalledUs, Some(stalled_ns as f64 / 1e3));
        }
    }
}

/// Returns the number of loads that all calibrations have.
fn shares(calibrations: &[Calibration]) -> usize {
    let counts = calibrations
        .iter()
        .map(|calibration| calibration.sizes[0].pacing.len());
    counts.min().unwrap_or(0)
}

/// Descriptions of frames, each with its name and text.
const DESCRIBED: [(&str, &str); 5] = [
    ("headers as usual", "[traffic]\nsizes = 64\n"),
    (
        "1,000 flows in turn",
        "[traffic]\nsizes = 64\n[traffic.udp]\nsource = { first = 1024, count = 1000 }\n",
    ),
    (
        "1,000 flows by Zipf",
        "[traffic]\nsizes = 64\n[traffic.udp]\nsource = { first = 1024, count = 1000 }\n\
         [traffic.flows]\ncount = 1000\norder = \"zipf\"\n",
    ),
    (
        "VXLAN, 128 B",
        "[traffic]\nsizes = 128\n[traffic.vxlan]\nvni = 7\n",
    ),
    (
        "payload checked, 128 B",
        "[traffic]\nsizes = 128\nintegrity = true\n",
    ),
];

/// Measures described frames at the highest possible rate, in turns.
fn described(options: &Options, turns: &mut Lcg, run: &mut Run, tester: &mut Tester) {
    let trials = DESCRIBED.map(|(name, text)| {
        let traffic = Traffic::parse(text, Path::new(name)).expect("a description");
        let trial = Trial {
            warm_up_s: 0.1,
            drain_s: 0.1,
            directions: DIRECTION,
            ..Trial::new(1.0, 0.5, FrameSizes::Fixed(64))
        };
        let trial = trial.with_traffic(traffic).expect("no capture");
        (point("described frames, as fast as possible", name), trial)
    });
    let figures = [
        Figure::ReceivedPps,
        Figure::GenerateCycles,
        Figure::CheckCycles,
        Figure::MakeAndCheckCycles,
    ];
    for (point, _) in &trials {
        run.expect(point, &figures);
    }
    for _ in 0..options.rounds(ROUNDS) {
        for index in turns.order(trials.len()) {
            let (point, trial) = &trials[index];
            run.turn(std::slice::from_ref(point), |run| {
                let result = common::unpaced(tester, trial, Subject::Tester);
                let (make, check) = (result.health.generate_cycles, result.health.check_cycles);
                let values = [result.forwarding_rate_pps, make, check, make + check];
                for (figure, value) in figures.into_iter().zip(values) {
                    run.add(point, figure, Some(value));
                }
            });
        }
    }
}

/// Measures all that the CPU does for a frame that it sends and receives, with each way to access frames, in turns.
fn accesses(options: &Options, turns: &mut Lcg, run: &mut Run, testers: [&mut Tester; 2]) {
    let trial = Trial {
        warm_up_s: 0.1,
        drain_s: 0.1,
        directions: DIRECTION,
        ..Trial::new(1.0, 0.5, FrameSizes::Fixed(64))
    };
    let points = ACCESSES.map(|(case, ..)| point("64 B, one CPU, as fast as possible", case));
    for point in &points {
        run.expect(point, &[Figure::ReceivedPps, Figure::CyclesAFrame]);
    }
    let hz = run.machine.ghz * 1e9;
    for _ in 0..options.rounds(ROUNDS) {
        for index in turns.order(points.len()) {
            let point = &points[index];
            let tester = &mut *testers[index];
            run.turn(std::slice::from_ref(point), |run| {
                let result = common::unpaced(tester, &trial, Subject::Tester);
                let rate_pps = result.forwarding_rate_pps;
                run.add(point, Figure::ReceivedPps, Some(rate_pps));
                run.add(point, Figure::CyclesAFrame, Some(hz / rate_pps));
            });
        }
    }
}

fn row(calibrations: &[Calibration], share: usize) -> Row {
    let points = || {
        calibrations
            .iter()
            .map(|calibration| &calibration.sizes[0].pacing[share])
    };
    let over_burst = |pick: &dyn Fn(&LatencySummary) -> Option<u64>| {
        let values: Option<Vec<f64>> = points()
            .map(|point| Some(pick(&point.burst_gaps)? as f64 / point.burst_time_ns))
            .collect();
        values.map(|values| Spread::of(&values))
    };
    let gaps = PERCENTILES
        .into_iter()
        .enumerate()
        .filter_map(|(index, percentile)| {
            Some((percentile, over_burst(&|gaps| gaps.percentiles()[index])?))
        });
    Row {
        share: points().map(|point| point.share).sum::<f64>() / calibrations.len() as f64,
        gaps: gaps.collect(),
    }
}

fn draw(directory: &Path, rows: &[Row]) {
    // One in this many gaps is longer.
    let place = |percentile: f64| (1.0 / (1.0 - percentile / 100.0)).round() as u64;
    let mut series: Vec<plot::Series> = rows
        .iter()
        .map(|row| plot::Series {
            name: format!("{:.0} % of the clean rate", row.share * 100.0),
            points: row
                .gaps
                .iter()
                .map(|(percentile, gap)| (place(*percentile), *gap))
                .collect(),
        })
        .collect();
    let limit = Spread::of(&[1.0]);
    series.push(plot::Series {
        name: "one burst time".to_owned(),
        points: [50.0, 99.9]
            .map(|percentile| (place(percentile), limit))
            .to_vec(),
    });
    let labels = plot::Labels {
        title: "Tester: gaps between bursts, 64-byte frames, one CPU, memif loop",
        below: "one gap in so many is longer",
        left: "gap, burst times",
        unit: 1.0,
    };
    plot::draw(directory, "pacing", &labels, &series);
}
