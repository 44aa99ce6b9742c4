// SPDX-License-Identifier: Apache-2.0
//! How evenly the tester sends, and what a frame costs it: over a memif link whose two ends are its own, at 10, 50 and 90 % of
//! the highest rate at which it is clean.
//!
//! `cargo bench -p quietwire --bench pacing` prints the medians of rounds of 10 seconds each. One CPU sends, receives and
//! looks at 64-byte frames, and at described ones as fast as it can. What is asked of the tester: the rate within 0.01 %, 99.9 % of the gaps between bursts no longer
//! than one burst lasts, and making and checking a frame in fewer than 150 cycles. Wants root and a quiet machine.
//! `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::Duration;

use common::{Machine, Options, Spread, plot};
use quietwire_dpdk::PortUri;
use quietwire_tester::traffic::Traffic;
use quietwire_tester::{
    Calibration, CalibrationOptions, Directions, FrameSizes, IpVersion, LatencySummary, Limits,
    PERCENTILES, Preparation, Tester, TesterOptions, Trial,
};

const ROUNDS: u32 = 3;
const SECONDS: u32 = 10;
const CPU: u32 = 0;
/// How far the rate may be off.
const ERROR_MAX: f64 = 1e-4;
/// Cycles of making and checking a frame at most.
const CYCLES_MAX: f64 = 150.0;

/// What was seen at one share of the clean rate.
#[derive(Debug, serde::Serialize)]
struct Row {
    share: f64,
    asked_pps: Spread,
    /// Without its sign.
    error_ratio: Spread,
    burst_time_ns: Spread,
    /// Gaps over the burst time, by percentile.
    gaps: Vec<(f64, Spread)>,
    longest_gap: Spread,
}

fn main() {
    let options = Options::read();
    let _machine = Machine::prepare(&options);
    let directory = tempfile::tempdir().unwrap();
    let eal = common::start_dpdk("pacing", 256);
    let socket = directory.path().join("loop.sock");
    let port = |name: &str, role: &str| {
        let uri: PortUri = format!("memif:{}?role={role}", socket.display())
            .parse()
            .unwrap();
        (name.to_owned(), uri)
    };
    let tester_options = TesterOptions {
        cpus: vec![CPU],
        realtime_priority: Some(50),
        ring_size: 1024,
        frame_size_max: 1518,
        limits: Limits::default(),
        preparation: Preparation::default(),
    };
    let ports = [port("a", "server"), port("b", "client")];
    let mut tester = Tester::open(&eal, "tester", &ports, tester_options).unwrap();
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    let wanted = CalibrationOptions {
        frame_sizes: vec![FrameSizes::Fixed(64)],
        directions: Directions::OneWay,
        ip: IpVersion::V4,
        traffic: None,
        search_s: 0.5,
        pacing_s: f64::from(options.seconds_or(SECONDS)),
    };
    let calibrations: Vec<Calibration> = (0..options.rounds(ROUNDS))
        .map(|_| tester.calibrate(&wanted, |_| ()).unwrap())
        .filter(|calibration| calibration.sizes[0].clean_rate_pps > 0.0)
        .collect();
    assert!(
        !calibrations.is_empty(),
        "no rate was clean in any round: the machine is not quiet"
    );
    let described = described(&options, &mut tester);
    report(&options, &calibrations, &described);
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

/// What described frames cost the tester, as fast as it can.
#[derive(Debug, serde::Serialize)]
struct Described {
    name: &'static str,
    received_pps: Spread,
    generate_cycles: Spread,
    check_cycles: Spread,
}

fn described(options: &Options, tester: &mut Tester) -> Vec<Described> {
    let trials = DESCRIBED.map(|(name, text)| {
        let traffic = Traffic::parse(text, Path::new(name)).expect("a description");
        let trial = Trial {
            offered_rate_pps: 1.0,
            duration_s: 0.5,
            warm_up_s: 0.1,
            drain_s: 0.1,
            frame_sizes: FrameSizes::Fixed(64),
            directions: Directions::OneWay,
            flows: 1,
            mac_addresses: 1,
            destinations: 1,
            ip: IpVersion::V4,
            low_rate_pps: 0.0,
            reflected: false,
            traffic: None,
        };
        (name, trial.with_traffic(traffic).expect("no capture"))
    });
    let mut seen = vec![Vec::new(); trials.len()];
    for _ in 0..options.rounds(ROUNDS) {
        for ((_, trial), seen) in trials.iter().zip(&mut seen) {
            std::thread::sleep(Duration::from_millis(75));
            let result = tester.run_unpaced(trial).unwrap();
            let health = &result.health;
            seen.push([
                result.forwarding_rate_pps,
                health.generate_cycles,
                health.check_cycles,
            ]);
        }
    }
    trials
        .iter()
        .zip(&seen)
        .map(|((name, _), seen)| {
            let of = |at: usize| Spread::of(&seen.iter().map(|it| it[at]).collect::<Vec<_>>());
            Described {
                name,
                received_pps: of(0),
                generate_cycles: of(1),
                check_cycles: of(2),
            }
        })
        .collect()
}

fn print_described(rows: &[Described]) {
    println!(
        "| described frames | cycles to make | to check | together, of {CYCLES_MAX:.0} | Mpps: median | min | max |"
    );
    println!("|---|---|---|---|---|---|---|");
    for row in rows {
        let [make, check] = [row.generate_cycles.median, row.check_cycles.median];
        println!(
            "| {} | {make:.0} | {check:.0} | {:.0} | {} |",
            row.name,
            make + check,
            row.received_pps.mpps()
        );
    }
}

fn report(options: &Options, calibrations: &[Calibration], described: &[Described]) {
    let of = |part: fn(&Calibration) -> f64| {
        Spread::of(&calibrations.iter().map(part).collect::<Vec<_>>())
    };
    let clean_pps = of(|calibration| calibration.sizes[0].clean_rate_pps);
    let make = of(|calibration| calibration.sizes[0].generate_cycles);
    let check = of(|calibration| calibration.sizes[0].check_cycles);
    let hz = calibrations[0].ticks_per_second as f64;
    let shares = calibrations
        .iter()
        .map(|calibration| calibration.sizes[0].pacing.len())
        .min()
        .unwrap_or(0);
    let rows: Vec<Row> = (0..shares).map(|share| row(calibrations, share)).collect();
    if options.json {
        let document = serde_json::json!({
            "bench": "pacing",
            "rounds": calibrations.len(),
            "seconds": options.seconds_or(SECONDS),
            "clean_pps": clean_pps,
            "generate_cycles": make,
            "check_cycles": check,
            "rows": rows,
            "described": described,
        });
        println!("{document:#}");
    } else {
        println!(
            "64 B, one CPU, clean up to {} Mpps (median | min | max)",
            clean_pps.mpps()
        );
        println!(
            "cycles a frame: {:.0} to make and {:.0} to check, {:.0} of {CYCLES_MAX:.0}; {:.0} with both drivers",
            make.median,
            check.median,
            make.median + check.median,
            hz / clean_pps.median,
        );
        print(&rows);
        print_described(described);
    }
    if let Some(directory) = &options.svg {
        draw(directory, &rows);
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
        asked_pps: Spread::of(&points().map(|point| point.asked_pps).collect::<Vec<_>>()),
        error_ratio: Spread::of(
            &points()
                .map(|point| point.error_ratio.abs())
                .collect::<Vec<_>>(),
        ),
        burst_time_ns: Spread::of(
            &points()
                .map(|point| point.burst_time_ns)
                .collect::<Vec<_>>(),
        ),
        gaps: gaps.collect(),
        longest_gap: over_burst(&|gaps| Some(gaps.max_ns)).expect("a gap"),
    }
}

fn print(rows: &[Row]) {
    println!(
        "| load | Mpps | rate off by: median | max | of {:.2} % | 99.9 % of gaps, burst times: median | max | of 1 | longest |",
        ERROR_MAX * 100.0
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    let verdict = |is_met: bool| if is_met { "met" } else { "not met" };
    for row in rows {
        let far = row.gaps.iter().find(|(percentile, _)| *percentile == 99.9);
        let gaps = far.map_or_else(
            || "too few | too few | not met".to_owned(),
            |(_, gaps)| {
                format!(
                    "{:.3} | {:.3} | {}",
                    gaps.median,
                    gaps.max,
                    verdict(gaps.median <= 1.0)
                )
            },
        );
        println!(
            "| {:.0} % | {:.3} | {:.5} % | {:.5} % | {} | {gaps} | {:.1} |",
            row.share * 100.0,
            row.asked_pps.median / 1e6,
            row.error_ratio.median * 100.0,
            row.error_ratio.max * 100.0,
            verdict(row.error_ratio.median <= ERROR_MAX),
            row.longest_gap.median,
        );
    }
}

fn draw(directory: &Path, rows: &[Row]) {
    // One gap in so many is longer.
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
