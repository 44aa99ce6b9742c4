// SPDX-License-Identifier: Apache-2.0
//! Variation of the results of repeated searches of the same quiet device, by method.
//!
//! `cargo bench -p quietwire --bench repeatability` makes 20 searches for the NDR by each method, in turns of random order,
//! so that changes over time affect all methods: on simulated devices, in which no time passes and the same seed gives the
//! same figures, and on the switch over memif. `-- simulated` or `-- switch` selects one kind; the simulated devices require
//! neither root nor a quiet machine. Goal for MLRsearch: at most half of the deviation of single-run. `-- --help` lists the
//! options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::lcg::Lcg;
use common::record::{Figure, Point, Run, Series};
use common::switch::{self, Kind, Switch};
use common::words::grouped;
use common::{Machine, Options};
use plotters::prelude::*;
use quietwire_search::{
    BestWorst, BestWorstConfig, Findings, LossRatio, Method, MlrGoal, MlrSearch, MlrSearchConfig,
    Outcome, Sides, SingleRun, SingleRunConfig, Soak, SoakConfig, Step, TrialRequest,
};
use quietwire_tester::{
    Directions, FrameAccess, FrameSizes, Limits, Preparation, SimOptions, SimulatedDevice, Tester,
    TesterIdle, TesterOptions, TrafficGenerator, Trial,
};

const ROUNDS: u32 = 20;
/// Counted time of a trial, seconds: on the switch short enough that the kernel does not take the CPU away from the
/// real-time tester.
const SIMULATED_TRIAL_S: f64 = 1.0;
const SWITCH_TRIAL_S: f64 = 0.25;
const SWITCH_TRIAL_QUICK_S: f64 = 0.05;
/// Methods with steps end when the step is below this fraction of the maximum rate. MLRsearch's width is 0.5 % of the rate,
/// which is equally fine if the device forwards 40 % of the maximum.
const RESOLUTION: f64 = 0.002;
/// N of best-of-N and worst-of-N.
const OF_N: u32 = 5;
/// Length of a soak in trials, and the loss that it searches for.
const SOAK_TRIALS: f64 = 60.0;
const SOAK_LOSS: f64 = 1e-7;
/// Maximum number of invalid trials in a search.
const INVALID_REPEATS: u32 = 20;
const TRIALS_MAX: u32 = 2000;
const CPU: u32 = 0;
/// Addresses on each side of the switch: with this many, the switch and not the tester is the limit.
const MAC_ADDRESSES: u32 = 10_000;

/// Simulated devices.
const SIMULATED: [(&str, &str); 2] = [
    (
        "simulated, capacity within 2 %",
        "capacity=6.4M,noise=0.02,seed=7",
    ),
    (
        "simulated, capacity within 2 %, a tenth less in every twentieth trial",
        "capacity=6.4M,noise=0.02,band=0.9,band-chance=0.05,seed=7",
    ),
];
const SWITCH: &str = "switch, memif, 20,000 MAC addresses";

/// The methods, the single run first.
const METHODS: [&str; 5] = ["single-run", "best-of-n", "worst-of-n", "mlrsearch", "soak"];

/// Result and cost of a search.
#[derive(Clone, Copy, Debug)]
struct Search {
    /// None if the search found no rate.
    ndr_pps: Option<f64>,
    trials: u32,
    /// Total duration, including warm-ups and drains.
    seconds: f64,
}

/// A device connected to the tester.
struct Bench<'a> {
    generator: &'a mut dyn TrafficGenerator,
    /// Settings that all trials share.
    trial: Trial,
    max_rate_pps: f64,
    /// None for a device in which no time passes.
    pause: Option<Duration>,
}

fn main() {
    let options = Options::read();
    let on_switch = options.wants(SWITCH);
    let _machine = on_switch.then(|| Machine::prepare(&options));
    let rounds = options.rounds(ROUNDS);
    let mut run = common::begin(&options, "repeatability", rounds, SIMULATED_TRIAL_S);
    run.sides.push(switch::side("quietwire"));
    let mut turns = options.turns();
    for (name, written) in SIMULATED {
        if options.wants(name) {
            simulated(rounds, &mut turns, &mut run, name, written);
        }
    }
    if on_switch {
        // Those of the simulated devices stay if the switch cannot be measured.
        run.turn(&[], |run| on_the_switch(&options, &mut turns, run));
    }
    if let Some(directory) = &options.svg {
        draw(directory, &run);
    }
    common::finish(&options, run);
}

fn simulated(rounds: u32, turns: &mut Lcg, run: &mut Run, name: &str, written: &str) {
    let device: SimOptions = written.parse().expect("parameters of a simulated device");
    let max_rate_pps = device.line_rate_pps;
    let mut generator = SimulatedDevice::new(device);
    let bench = Bench {
        generator: &mut generator,
        trial: trial(SIMULATED_TRIAL_S, 0.0, 0.0, 1),
        max_rate_pps,
        pause: None,
    };
    bench.searches(rounds, turns, run, name);
}

/// Measures the bridge with many addresses, one way.
fn on_the_switch(options: &Options, turns: &mut Lcg, run: &mut Run) {
    let directory = tempfile::tempdir().unwrap();
    let space = (MAC_ADDRESSES * 4).to_string();
    let more = ["--bridge", "br0=p0,p1", "--max-entries", &space];
    let device = Switch::start(&directory.path().join("switch"), Kind::Memif, 2, &more);
    let eal = common::start_dpdk("repeatability", 256);
    let ports = [0, 1].map(|port| {
        let uri = device.tester_uri(port).parse().unwrap();
        (format!("p{port}"), uri)
    });
    let tester_options = TesterOptions {
        cpus: vec![CPU],
        realtime_priority: Some(50),
        ring_size: 1024,
        receive_ring_size: quietwire_tester::RECEIVE_RING_SIZE,
        frame_size_max: 64,
        limits: Limits::default(),
        preparation: Preparation::default(),
        idle: TesterIdle::default(),
        frame_access: FrameAccess::default(),
    };
    let mut tester = Tester::open(&eal, "tester", &ports, tester_options).unwrap();
    tester.wait_for_links(Duration::from_secs(10)).unwrap();
    let trial_s = if options.quick {
        SWITCH_TRIAL_QUICK_S
    } else {
        SWITCH_TRIAL_S
    };
    let mut bench = Bench {
        trial: trial(trial_s, 0.05, 0.05, MAC_ADDRESSES),
        max_rate_pps: 1.0,
        pause: Some(Duration::from_millis(75)),
        generator: &mut tester,
    };
    bench.max_rate_pps = bench.highest_rate();
    bench.searches(options.rounds(ROUNDS), turns, run, SWITCH);
}

fn trial(duration_s: f64, warm_up_s: f64, drain_s: f64, mac_addresses: u32) -> Trial {
    Trial {
        warm_up_s,
        drain_s,
        directions: Directions::OneWay,
        mac_addresses,
        ..Trial::new(1.0, duration_s, FrameSizes::Fixed(64))
    }
}

impl Bench<'_> {
    /// Returns the highest rate at which the tester keeps its schedule with this device.
    fn highest_rate(&mut self) -> f64 {
        let unpaced = self.generator.run_unpaced(&self.trial).unwrap();
        let mut rate_pps = unpaced
            .achieved_rate_pps
            .min(unpaced.forwarding_rate_pps * 1.5);
        for _ in 0..INVALID_REPEATS {
            let trials = (0..3).map(|_| self.run(rate_pps, self.trial.duration_s));
            if trials.filter(|(outcome, _)| is_valid(outcome)).count() > 1 {
                return rate_pps;
            }
            rate_pps *= 0.95;
        }
        panic!("the tester keeps no rate before the switch: the machine is not quiet")
    }

    /// Returns the outcome of a trial, and its duration.
    fn run(&mut self, rate_pps: f64, duration_s: f64) -> (Outcome, f64) {
        let began = Instant::now();
        if let Some(pause) = self.pause {
            std::thread::sleep(pause);
        }
        let asked = Trial {
            offered_rate_pps: rate_pps,
            duration_s,
            ..self.trial.clone()
        };
        let result = self.generator.run(&asked).unwrap();
        let around_s = asked.warm_up_s + asked.drain_s;
        let outcome = match result.validity.text() {
            None => Outcome::Valid {
                loss_ratio: result.loss_ratio,
                effective_duration_s: Some(result.elapsed_s + around_s),
            },
            Some(reason) => Outcome::invalid(reason),
        };
        let took_s = match self.pause {
            Some(_) => began.elapsed().as_secs_f64(),
            None => duration_s + around_s,
        };
        (outcome, took_s)
    }

    fn search(&mut self, name: &str) -> Search {
        let mut method = method(name, self.max_rate_pps, self.trial.duration_s);
        let mut seconds = 0.0;
        loop {
            match method.step() {
                Step::Done(result) => {
                    return Search {
                        ndr_pps: found(&result.findings),
                        trials: u32::try_from(result.history.len()).unwrap(),
                        seconds,
                    };
                }
                Step::Run(TrialRequest {
                    rate_pps,
                    duration_s,
                }) => {
                    let (outcome, took_s) = self.run(rate_pps, duration_s);
                    seconds += took_s;
                    method.record(outcome).unwrap();
                }
            }
        }
    }

    /// Runs searches by all methods in turns.
    fn searches(mut self, rounds: u32, turns: &mut Lcg, run: &mut Run, device: &str) {
        let maximum = grouped(self.max_rate_pps.round() as u64);
        let point = |method: &str| Point {
            group: format!(
                "trials of {} s, at most {maximum} frames/s",
                self.trial.duration_s
            ),
            case: device.to_owned(),
            size: None,
            side: method.to_owned(),
        };
        let points = METHODS.map(point);
        for point in &points {
            run.expect(point, &[Figure::NdrPps, Figure::Trials, Figure::SearchS]);
        }
        for _ in 0..rounds {
            for method in turns.order(METHODS.len()) {
                let point = &points[method];
                run.turn(std::slice::from_ref(point), |run| {
                    let search = self.search(METHODS[method]);
                    run.add(point, Figure::NdrPps, search.ndr_pps);
                    run.add(point, Figure::Trials, Some(f64::from(search.trials)));
                    run.add(point, Figure::SearchS, Some(search.seconds));
                });
            }
        }
    }
}

fn is_valid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Valid { .. })
}

/// Returns a new method for the NDR.
fn method(name: &str, max_rate_pps: f64, trial_s: f64) -> Box<dyn Method> {
    let min_rate_pps = max_rate_pps / 1000.0;
    let single = SingleRunConfig {
        start_rate_pps: max_rate_pps / 10.0,
        start_step_pps: max_rate_pps / 10.0,
        resolution_pps: max_rate_pps * RESOLUTION,
        loss_tolerance: LossRatio::ZERO,
        trial_duration_s: trial_s,
        min_rate_pps,
        max_rate_pps,
        best_of: 1,
        max_invalid_repeats: INVALID_REPEATS,
        max_trials: TRIALS_MAX,
    };
    let of_n = |sides| BestWorstConfig {
        search: single.clone(),
        trials: OF_N,
        sides,
    };
    match name {
        "single-run" => Box::new(SingleRun::new(single).unwrap()),
        "best-of-n" => Box::new(BestWorst::new(of_n(Sides::Best)).unwrap()),
        "worst-of-n" => Box::new(BestWorst::new(of_n(Sides::Worst)).unwrap()),
        "mlrsearch" => {
            let goal = MlrGoal {
                final_trial_duration_s: trial_s,
                duration_sum_s: 21.0 * trial_s,
                initial_trial_duration_s: trial_s,
                ..MlrGoal::fdio(LossRatio::ZERO)
            };
            let config = MlrSearchConfig {
                goals: vec![goal],
                min_rate_pps,
                max_rate_pps,
                max_invalid_repeats: INVALID_REPEATS,
                max_trials: TRIALS_MAX,
            };
            Box::new(MlrSearch::new(config).unwrap())
        }
        "soak" => {
            let config = SoakConfig {
                loss_ratio: LossRatio::new(SOAK_LOSS).unwrap(),
                min_rate_pps,
                max_rate_pps,
                first_trial_duration_s: trial_s,
                trial_growth_s: trial_s / 10.0,
                duration_s: SOAK_TRIALS * trial_s,
                max_invalid_repeats: INVALID_REPEATS,
            };
            Box::new(Soak::new(config).unwrap())
        }
        other => panic!("unknown method '{other}'"),
    }
}

/// Returns the rate that a search found, as shown on a study's page.
fn found(findings: &Findings) -> Option<f64> {
    match findings {
        Findings::SingleRun(found) => found.highest_held_pps,
        Findings::BestWorst(found) => {
            let side = found.best.as_ref().or(found.worst.as_ref());
            side.and_then(|side| side.highest_held_pps)
        }
        Findings::MlrSearch(found) => found.goals[0].lower.map(|bound| bound.rate_pps),
        Findings::Soak(found) => found.critical_load.map(|load| load.mean_pps),
        other => panic!("findings of an unexpected method: {other:?}"),
    }
}

/// Draws one dot per search, by method, relative to the mean of the method.
fn draw(directory: &Path, run: &Run) {
    std::fs::create_dir_all(directory).expect("the directory for figures");
    let path = directory.join("repeatability.svg");
    let mut devices: Vec<&str> = Vec::new();
    for series in &run.series {
        if !devices.contains(&series.point.case.as_str()) {
            devices.push(&series.point.case);
        }
    }
    let parts = devices.len().max(1);
    let area = SVGBackend::new(&path, (860, 320 * parts as u32)).into_drawing_area();
    area.fill(&WHITE).expect("the figure is drawn");
    for (device, part) in devices.iter().zip(area.split_evenly((parts, 1))) {
        draw_one(run, device, &part);
    }
    area.present().expect("the figure is written");
}

fn draw_one<'a>(
    run: &Run,
    device: &str,
    area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>,
) {
    let off = METHODS.map(|method| -> Vec<f64> {
        let series = run.find(device, method, Figure::NdrPps);
        let rates = series.map_or_else(Vec::new, Series::values);
        let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
        rates
            .iter()
            .map(|rate| (rate / mean - 1.0) * 100.0)
            .collect()
    });
    let all = off.iter().flatten();
    let reach = all.fold(0.1, |reach: f64, it| reach.max(it.abs())) * 1.1;
    let methods = METHODS.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(device, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..methods - 0.5, -reach..reach)
        .expect("the axes fit");
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(METHODS.len() * 2 + 1)
        .x_label_formatter(&|x| {
            let at = x.round();
            let is_method = (x - at).abs() < 1e-6 && at >= 0.0;
            let method = METHODS.get(at as usize).filter(|_| is_method);
            method.map_or_else(String::new, |method| (*method).to_owned())
        })
        .y_desc("off the mean, %")
        .label_style(("sans-serif", 14))
        .draw()
        .expect("the axes are drawn");
    for (at, values) in off.iter().enumerate() {
        let count = values.len().max(2) as f64;
        // Side by side in the order of the searches, so that equal results do not hide each other.
        let dots = values.iter().enumerate().map(|(index, value)| {
            let place = at as f64 + (index as f64 / (count - 1.0) - 0.5) * 0.6;
            Circle::new((place, *value), 3, RGBColor(0, 90, 170).mix(0.7).filled())
        });
        chart.draw_series(dots).expect("dots are drawn");
    }
}
