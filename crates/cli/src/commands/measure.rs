// SPDX-License-Identifier: Apache-2.0
//! `quietwire measure`: one method over ports that are up already, or on a simulated device, without a study file.

mod plan;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use quietwire_dpdk::PortUri;
use quietwire_lab::RunningIsolation;
use quietwire_report::{SearchOutcome, Summary};
use quietwire_study::{
    GeneratorBench, OpenMode, Store, StudyEnd, StudyFile, StudyResults, run_study,
};
use quietwire_tester::{FrameSizes, Preparation};

use self::plan::{Assignment, MeasuredMethod, NamedGoal};
use super::chosen_tester::ChosenTester;
use super::device::DeviceArgs;
use super::isolation::IsolationArgs;
use super::own_tester::{LINK_DEADLINE, OwnTesterArgs, cite};
use super::study::progress::Shown;
use super::study::{check_place, make_parent, show};
use crate::exit::{CheckFailed, Usage, on_signals};
use crate::units::{parse_duration, parse_frame_sizes, parse_positive_duration};

/// Measure a device that is running already by one method: a search, a sweep, a soak, bursts and more.
#[derive(Debug, Args)]
pub(crate) struct MeasureArgs {
    /// The method; docs/methods.md says what each asks and gives.
    #[arg(value_enum)]
    method: MeasuredMethod,
    /// Port of the tester, once or twice, as for generate; for address-caching and address-learning-rate three.
    #[arg(long = "port", value_name = "URI", required_unless_present = "tester")]
    ports: Vec<PortUri>,
    /// What measures in place of the built-in tester: sim, a simulated device, with its parameters sim:KEY=VALUE,…, or
    /// trex:HOST (docs/tester.md).
    #[arg(long, value_name = "TESTER", conflicts_with = "ports")]
    tester: Option<ChosenTester>,
    /// What 100 % of the load is, frames per second summed over the ports that send. Default: what the tester itself can
    /// do, by its calibration where that is less than it does now.
    #[arg(long, value_name = "PPS")]
    max_rate_pps: Option<f64>,
    /// A loss ratio to search for, by its name: NDR=0, PDR=0.0001, which are the default. More than once for several.
    #[arg(long = "goal", value_name = "NAME=RATIO")]
    goals: Vec<NamedGoal>,
    /// A key of the method, as in a study file; of another section SECTION.KEY=VALUE, of every goal goal.KEY=VALUE.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    settings: Vec<Assignment>,
    /// Octets with FCS, 64 to 9000, or imix.
    #[arg(long, value_name = "SIZE", default_value = "64", value_parser = parse_frame_sizes)]
    frame_size: FrameSizes,
    /// How long the frames of a trial are counted: 500ms, 10s.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = parse_positive_duration)]
    duration: Duration,
    /// How long the same load runs before anything is counted.
    #[arg(long, value_name = "TIME", default_value = "100ms", value_parser = parse_duration)]
    warm_up: Duration,
    /// How long to go on receiving after the last frame.
    #[arg(long, value_name = "TIME", default_value = "50ms", value_parser = parse_duration)]
    drain: Duration,
    /// Only the first port sends.
    #[arg(long)]
    one_way: bool,
    /// Flows of each port that sends.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    flows: u16,
    #[command(flatten)]
    own: OwnTesterArgs,
    #[command(flatten)]
    isolation: IsolationArgs,
    /// Calibrations that trials are to cite, made by `quietwire tester calibrate`. Default: quietwire/calibration.json in
    /// $XDG_STATE_HOME or ~/.local/state, where it is there.
    #[arg(long, value_name = "FILE", conflicts_with = "tester")]
    calibration: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Keep every trial in this file (SQLite), from which `study report` makes the page again. It must not be there yet.
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Write a page of the result.
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
    /// On a terminal, show the search as it closes in.
    #[arg(long)]
    progress: bool,
}

pub(crate) fn run(args: &MeasureArgs) -> Result<()> {
    if args.tester.is_some() && args.device.is_named() {
        bail!(Usage(
            "--device-control is given, and only the built-in tester tells what its ports counted; leave it or --tester out".to_owned()
        ));
    }
    plan::check_settings(args).map_err(Usage)?;
    let text = plan::text(args);
    let file = StudyFile::parse(&text, Path::new("the options as a study file"))?;
    for (option, path) in [("--store", &args.store), ("--html", &args.html)] {
        if let Some(path) = path {
            check_place(option, path)?;
            make_parent(path)?;
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    on_signals(&stop)?;
    let (mut bench, isolation) = match &args.tester {
        Some(_) if args.isolation.names_device() => {
            bail!(Usage(
                "--device-cpus is for the built-in tester; leave it out with --tester".to_owned()
            ))
        }
        Some(tester) => (tester.bench(&file, 0)?, None),
        None => built_in(args, &file, &stop).map(|(bench, isolation)| (bench, Some(isolation)))?,
    };
    // Without --store the trials are kept only until the result is told.
    let directory = tempfile_directory()?;
    let path = args
        .store
        .clone()
        .unwrap_or_else(|| directory.path().join("measure.sqlite"));
    let mut store = Store::open(&path, &file, &text, OpenMode::New)?;
    let mut shown = Shown::new(&file, args.progress)?;
    let end = run_study(&file, &mut store, &mut bench, &mut shown, &stop);
    shown.finish();
    let undone = isolation.map_or(Ok(()), RunningIsolation::undo);
    let end = end?;
    let results = store.results()?;
    show(&results, args.html.as_deref(), args.json)?;
    undone?;
    match end {
        StudyEnd::Finished => check_found(&results),
        StudyEnd::Interrupted => {
            Err(CheckFailed("interrupted before it was through".to_owned()).into())
        }
    }
}

/// Refuses a result in which the search for a goal ended without a rate.
fn check_found(results: &StudyResults) -> Result<()> {
    let summary = Summary::of(results)?;
    let cases = summary.sizes.iter().flat_map(|size| &size.cases);
    let mut goals = cases.flat_map(|case| &case.goals);
    let Some(goal) = goals.find(|goal| goal.outcomes.contains(&SearchOutcome::TesterFailed)) else {
        return Ok(());
    };
    let trials = || results.steps.iter().flat_map(|step| &step.trials);
    let invalid = || trials().filter_map(|trial| trial.result.validity.text());
    let latest = invalid().next_back();
    Err(CheckFailed(format!(
        "no result for {}: the tester failed in {} of {} trials, the last time because {}; give it a CPU of its own and real-time priority \
         (--cpus, --realtime-priority), or more attempts (--set trials.invalid-repeats=N)",
        goal.name,
        invalid().count(),
        trials().count(),
        latest.as_deref().unwrap_or("of an unknown reason"),
    ))
    .into())
}

/// The built-in tester over the ports given.
fn built_in(
    args: &MeasureArgs,
    file: &StudyFile,
    stop: &Arc<AtomicBool>,
) -> Result<(GeneratorBench, RunningIsolation)> {
    let given = args.ports.len();
    if file.looks_for_addresses() && given != 3 {
        bail!(Usage(format!(
            "{given} ports were given, and this method takes three: one that sends to learned addresses, one where they are, and one that sees what is flooded"
        )));
    }
    if !file.looks_for_addresses() && given > 2 {
        bail!(Usage(format!(
            "{given} ports were given, and a tester has one or two"
        )));
    }
    GeneratorBench::check_without_lab(file)?;
    let cpus = args.own.cpus()?;
    args.isolation.check(&args.own)?;
    args.own.check_machine(&args.ports)?;
    let eal = args.own.start_dpdk(&cpus, &args.ports)?;
    let size_max = args.frame_size.largest();
    let mut tester = args
        .own
        .open(&eal, cpus, &args.ports, size_max, Preparation::default())?;
    on_signals(&tester.abort_flag())?;
    tester.wait_for_links(LINK_DEADLINE)?;
    let device = args.device.find(&args.ports)?;
    let trial_s = (args.warm_up + args.duration + args.drain).as_secs_f64();
    let isolation = args
        .isolation
        .isolate(&args.own, &mut tester, trial_s, stop)?;
    cite(&mut tester, args.calibration.as_ref())?;
    let bench = GeneratorBench::new(file, Box::new(tester))?
        .isolated(isolation.record().clone())
        .with_device(device);
    Ok((bench, isolation))
}

/// A directory that goes away by itself.
fn tempfile_directory() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("quietwire-measure-")
        .tempdir()?)
}
