// SPDX-License-Identifier: Apache-2.0
//! How far apart searches of one and the same quiet device end, by each method.
//!
//! `cargo bench -p quietwire --bench repeatability` makes 20 searches for the NDR by each method, in turns, so that what
//! changes over time meets all methods; on simulated devices, where no time passes and the same figures come out each time,
//! and on the switch over memif. `-- simulated` or `-- switch` keeps to one kind; the simulated ones need neither root nor a
//! quiet machine. What is asked of MLRsearch: half of the single run's deviation or less. `-- --help` lists the options.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::path::Path;
use std::time::{Duration, Instant};

use common::switch::{Kind, Switch};
use common::{Machine, Options};
use plotters::prelude::*;
use quietwire_search::{
    BestWorst, BestWorstConfig, Findings, LossRatio, Method, MlrGoal, MlrSearch, MlrSearchConfig,
    Outcome, Sides, SingleRun, SingleRunConfig, Soak, SoakConfig, Statistics, Step, TrialRequest,
};
use quietwire_tester::{
    Directions, FrameSizes, IpVersion, Limits, Preparation, SimOptions, SimulatedDevice, Tester,
    TesterOptions, TrafficGenerator, Trial, Validity,
};

const ROUNDS: u32 = 20;
/// How long frames are counted in one trial, seconds: on the switch short enough that the kernel leaves a real-time tester
/// its CPU throughout.
const SIMULATED_TRIAL_S: f64 = 1.0;
const SWITCH_TRIAL_S: f64 = 0.25;
const SWITCH_TRIAL_QUICK_S: f64 = 0.05;
/// The step of the methods that step ends under this part of the maximum rate; MLRsearch's width is 0.5 % of the rate, which
/// is as fine where the device forwards 40 % of the maximum.
const RESOLUTION: f64 = 0.002;
/// N of best-of-N and worst-of-N.
const OF_N: u32 = 5;
/// A soak is as long as so many trials; the loss that it looks for.
const SOAK_TRIALS: f64 = 60.0;
const SOAK_LOSS: f64 = 1e-7;
/// Trials that the tester itself spoils, before a search is given up.
const INVALID_REPEATS: u32 = 20;
const TRIALS_MAX: u32 = 2000;
/// MLRsearch's deviation over the single run's, at most.
const GOAL: f64 = 0.5;
const CPU: u32 = 0;
/// Addresses on either side of the switch: with so many, it and not the tester is the limit.
const MAC_ADDRESSES: u32 = 10_000;

/// Devices made of arithmetic.
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

/// What one search found and took.
#[derive(Clone, Copy, Debug, serde::Serialize)]
struct Search {
    /// None where it found nothing.
    ndr_pps: Option<f64>,
    trials: u32,
    /// From its beginning to its end, warm-ups and drains included.
    seconds: f64,
}

/// One method on one device.
#[derive(Debug, serde::Serialize)]
struct Row {
    method: &'static str,
    searches: Vec<Search>,
    /// Of the rates that were found.
    ndr_pps: Option<Statistics>,
    deviation_ratio: Option<f64>,
    mean_trials: f64,
    mean_seconds: f64,
}

/// All methods on one device.
#[derive(Debug, serde::Serialize)]
struct Table {
    device: String,
    max_rate_pps: f64,
    trial_s: f64,
    rows: Vec<Row>,
    /// MLRsearch's deviation over the single run's.
    mlrsearch_to_single_run: Option<f64>,
}

/// A device with the tester before it.
struct Bench<'a> {
    generator: &'a mut dyn TrafficGenerator,
    /// What is the same in all trials.
    trial: Trial,
    max_rate_pps: f64,
    /// None for one in which no time passes.
    pause: Option<Duration>,
}

fn main() {
    let options = Options::read();
    let mut tables: Vec<Table> = SIMULATED
        .into_iter()
        .filter(|(name, _)| options.wants(name))
        .map(|(name, written)| simulated(&options, name, written))
        .collect();
    if options.wants(SWITCH) {
        tables.push(switch(&options));
    }
    report(&options, &tables);
}

fn simulated(options: &Options, name: &str, written: &str) -> Table {
    let device: SimOptions = written.parse().expect("parameters of a simulated device");
    let max_rate_pps = device.line_rate_pps;
    let mut generator = SimulatedDevice::new(device);
    let bench = Bench {
        generator: &mut generator,
        trial: trial(SIMULATED_TRIAL_S, 0.0, 0.0, 1),
        max_rate_pps,
        pause: None,
    };
    bench.table(options, name)
}

/// The bridge with many addresses, one way.
fn switch(options: &Options) -> Table {
    let _machine = Machine::prepare(options);
    let directory = tempfile::tempdir().unwrap();
    let room = (MAC_ADDRESSES * 4).to_string();
    let more = ["--bridge", "br0=p0,p1", "--max-entries", &room];
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
        frame_size_max: 64,
        limits: Limits::default(),
        preparation: Preparation::default(),
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
    bench.table(options, SWITCH)
}

fn trial(duration_s: f64, warm_up_s: f64, drain_s: f64, mac_addresses: u32) -> Trial {
    Trial {
        offered_rate_pps: 1.0,
        duration_s,
        warm_up_s,
        drain_s,
        frame_sizes: FrameSizes::Fixed(64),
        directions: Directions::OneWay,
        flows: 1,
        mac_addresses,
        destinations: 1,
        ip: IpVersion::V4,
        low_rate_pps: 0.0,
        reflected: false,
        traffic: None,
    }
}

impl Bench<'_> {
    /// The highest rate at which the tester keeps its schedule before this device.
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

    /// What a trial tells, and how long it took.
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
        let outcome = match result.validity {
            Validity::Valid => Outcome::Valid {
                loss_ratio: result.loss_ratio,
                effective_duration_s: Some(result.elapsed_s + around_s),
            },
            Validity::Invalid(reasons) => Outcome::Invalid {
                reason: reasons.join("; "),
            },
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

    fn table(mut self, options: &Options, device: &str) -> Table {
        let mut searches = vec![Vec::new(); METHODS.len()];
        for _ in 0..options.rounds(ROUNDS) {
            for (name, searches) in METHODS.iter().zip(&mut searches) {
                searches.push(self.search(name));
            }
        }
        let rows: Vec<Row> = METHODS
            .into_iter()
            .zip(searches)
            .map(|(method, searches)| Row::of(method, searches))
            .collect();
        let deviation = |name: &str| {
            let row = rows.iter().find(|row| row.method == name)?;
            row.deviation_ratio
        };
        let single_run = deviation(METHODS[0]).filter(|deviation| *deviation > 0.0);
        Table {
            device: device.to_owned(),
            max_rate_pps: self.max_rate_pps,
            trial_s: self.trial.duration_s,
            mlrsearch_to_single_run: deviation("mlrsearch")
                .zip(single_run)
                .map(|(ours, theirs)| ours / theirs),
            rows,
        }
    }
}

fn is_valid(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Valid { .. })
}

/// A method for the NDR that has not begun.
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
        other => panic!("no method is called {other}"),
    }
}

/// The rate that a search found: what a study's page shows.
fn found(findings: &Findings) -> Option<f64> {
    match findings {
        Findings::SingleRun(found) => found.highest_held_pps,
        Findings::BestWorst(found) => {
            let side = found.best.as_ref().or(found.worst.as_ref());
            side.and_then(|side| side.highest_held_pps)
        }
        Findings::MlrSearch(found) => found.goals[0].lower.map(|bound| bound.rate_pps),
        Findings::Soak(found) => found.critical_load.map(|load| load.mean_pps),
        other => panic!("findings of a method that was not asked: {other:?}"),
    }
}

impl Row {
    fn of(method: &'static str, searches: Vec<Search>) -> Self {
        let rates: Vec<f64> = searches.iter().filter_map(|it| it.ndr_pps).collect();
        let ndr_pps = Statistics::of(&rates, 0.95);
        let mean = |of: fn(&Search) -> f64| {
            searches.iter().map(of).sum::<f64>() / searches.len().max(1) as f64
        };
        Self {
            deviation_ratio: ndr_pps.and_then(|it| Some(it.standard_deviation? / it.mean)),
            ndr_pps,
            mean_trials: mean(|it| f64::from(it.trials)),
            mean_seconds: mean(|it| it.seconds),
            method,
            searches,
        }
    }

    fn cells(&self, single_run: Option<f64>) -> String {
        let Some(ndr) = &self.ndr_pps else {
            return format!("| {} | nothing was found | | | | | | |", self.method);
        };
        let mpps = |rate_pps: f64| format!("{:.3}", rate_pps / 1e6);
        let percent = self
            .deviation_ratio
            .map_or_else(|| "-".to_owned(), |it| format!("{:.3} %", it * 100.0));
        let part = self.deviation_ratio.zip(single_run).map_or_else(
            || "-".to_owned(),
            |(it, single)| format!("{:.2}", it / single),
        );
        format!(
            "| {} | {} | {} | {} | {percent} | {part} | {:.1} | {:.1} |",
            self.method,
            mpps(ndr.mean),
            mpps(ndr.min),
            mpps(ndr.max),
            self.mean_trials,
            self.mean_seconds,
        )
    }
}

fn report(options: &Options, tables: &[Table]) {
    if options.json {
        let document = serde_json::json!({
            "bench": "repeatability",
            "rounds": options.rounds(ROUNDS),
            "goal": GOAL,
            "tables": tables,
        });
        println!("{document:#}");
    } else {
        tables.iter().for_each(|table| print(options, table));
    }
    if let Some(directory) = &options.svg {
        draw(directory, tables);
    }
}

fn print(options: &Options, table: &Table) {
    println!(
        "{}: {} searches by each method, trials of {} s, maximum {:.3} Mpps",
        table.device,
        options.rounds(ROUNDS),
        table.trial_s,
        table.max_rate_pps / 1e6
    );
    println!(
        "| method | NDR, Mpps: mean | min | max | standard deviation | of the single run's | trials | seconds |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    let single_run = table.rows[0].deviation_ratio.filter(|it| *it > 0.0);
    for row in &table.rows {
        println!("{}", row.cells(single_run));
    }
    match table.mlrsearch_to_single_run {
        Some(ratio) => println!(
            "mlrsearch's deviation is {ratio:.2} of the single run's, {GOAL} is asked: {}",
            if ratio <= GOAL { "met" } else { "not met" }
        ),
        None => println!("the single runs all found the same: there is nothing to compare"),
    }
    println!();
}

/// One dot a search, by methods, as a part of the mean of all that the method found.
fn draw(directory: &Path, tables: &[Table]) {
    std::fs::create_dir_all(directory).expect("the directory for figures");
    let path = directory.join("repeatability.svg");
    let area = SVGBackend::new(&path, (860, 320 * tables.len().max(1) as u32)).into_drawing_area();
    area.fill(&WHITE).expect("the figure is drawn");
    for (table, part) in tables
        .iter()
        .zip(area.split_evenly((tables.len().max(1), 1)))
    {
        draw_one(table, &part);
    }
    area.present().expect("the figure is written");
}

fn draw_one<'a>(table: &Table, area: &DrawingArea<SVGBackend<'a>, plotters::coord::Shift>) {
    let off = |row: &Row| -> Vec<f64> {
        let mean = row.ndr_pps.map_or(1.0, |ndr| ndr.mean);
        let rates = row.searches.iter().filter_map(|it| it.ndr_pps);
        rates.map(|rate| (rate / mean - 1.0) * 100.0).collect()
    };
    let all = table.rows.iter().flat_map(off);
    let reach = all.fold(0.1, |reach: f64, it| reach.max(it.abs())) * 1.1;
    let methods = table.rows.len() as f64;
    let mut chart = ChartBuilder::on(area)
        .caption(&table.device, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(36)
        .y_label_area_size(64)
        .build_cartesian_2d(-0.5..methods - 0.5, -reach..reach)
        .expect("the axes fit");
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(table.rows.len() * 2 + 1)
        .x_label_formatter(&|x| {
            let at = x.round();
            let is_method = (x - at).abs() < 1e-6 && at >= 0.0;
            let row = table.rows.get(at as usize).filter(|_| is_method);
            row.map_or_else(String::new, |row| row.method.to_owned())
        })
        .y_desc("off the mean, %")
        .label_style(("sans-serif", 14))
        .draw()
        .expect("the axes are drawn");
    for (at, row) in table.rows.iter().enumerate() {
        let values = off(row);
        let count = values.len().max(2) as f64;
        // Side by side in the order in which they were made, so that those that agree do not hide each other.
        let dots = values.iter().enumerate().map(|(index, value)| {
            let place = at as f64 + (index as f64 / (count - 1.0) - 0.5) * 0.6;
            Circle::new((place, *value), 3, RGBColor(0, 90, 170).mix(0.7).filled())
        });
        chart.draw_series(dots).expect("dots are drawn");
    }
}
