// SPDX-License-Identifier: Apache-2.0
//! `quietwire measure`: one method through a running device or on a simulated device, without a study file.

mod arguments;
mod plan;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use quietwire_base::read_text;
use quietwire_lab::RunningIsolation;
use quietwire_report::{Baselines, SearchOutcome, Summary};
use quietwire_search::procedure::ProcedureEnd;
use quietwire_study::{
    FileError, GeneratorBench, OpenMode, Store, StudyEnd, StudyFile, StudyResults, run_study,
};
use quietwire_tester::Preparation;
use quietwire_tester::connections::Connections;

use super::own_tester::{LINK_DEADLINE, check_time_stamps, load_calibrations, record_time_stamps};
use super::study::conclude;
use super::study::progress::ProgressView;
use crate::exit::{CheckFailed, ISOLATION_LEFT, Usage, stop_on_signals};
use crate::output::{check_place, make_parent};

pub(crate) use arguments::MeasureArgs;

/// Returns the error of a study file that options describe. It names the option, because users do not see the file.
fn of_options(error: FileError) -> anyhow::Error {
    match error {
        FileError::Wrong { key, message, .. } if key.is_empty() => Usage(message).into(),
        FileError::Wrong { key, message, .. } => {
            Usage(format!("{}: {message}", plan::option_of(&key))).into()
        }
        error @ FileError::Unreadable { .. } => error.into(),
    }
}

pub(crate) fn run(args: &MeasureArgs) -> Result<()> {
    if args.tester.is_some() && args.device.is_named() {
        bail!(Usage(
            "--device-control requires the built-in tester, whose port counters it needs (remove it or --tester)".to_owned()
        ));
    }
    plan::check_settings(args).map_err(Usage)?;
    let mut text = plan::text(args);
    if let Some(path) = &args.connections {
        text.push_str(&described(path)?);
    }
    let file = StudyFile::parse(&text, Path::new("options")).map_err(of_options)?;
    for (option, path) in [("--store", &args.store), ("--html", &args.html)] {
        if let Some(path) = path {
            check_place(option, path)?;
            make_parent(option, path)?;
        }
    }
    check_time_stamps(args.timestamps.as_ref())?;
    let stop = stop_on_signals(ISOLATION_LEFT)?;
    let (mut bench, isolation) = match &args.tester {
        Some(_) if args.isolation.names_device() => {
            bail!(Usage(
                "--device-cpus requires the built-in tester (remove it or --tester)".to_owned()
            ))
        }
        Some(tester) => (tester.bench(&file, 0)?, None),
        None => built_in(args, &file, &stop).map(|(bench, isolation)| (bench, Some(isolation)))?,
    };
    // Without --store, the trials are deleted after the result is printed.
    let directory = tempfile_directory()?;
    let path = args
        .store
        .clone()
        .unwrap_or_else(|| directory.path().join("measure.sqlite"));
    let mut store = Store::open(&path, &file, &text, OpenMode::New)?;
    let mut shown = ProgressView::new(&file, args.progress)?;
    let end = run_study(&file, &mut store, &mut bench, &mut shown, &stop);
    shown.finish();
    let undone = isolation.map_or(Ok(()), RunningIsolation::undo);
    let shown = conclude(
        &store,
        end,
        args.html.as_deref(),
        args.json,
        &Baselines::new(),
    );
    let (end, results, summary) = shown?;
    undone?;
    match end {
        StudyEnd::Finished => check_found(&results, &summary),
        StudyEnd::Interrupted => {
            Err(CheckFailed("interrupted before the measurement was complete".to_owned()).into())
        }
    }
}

/// Returns the text of a description of connections, after a check that names its lines.
fn described(path: &Path) -> Result<String> {
    Connections::read(path)?;
    let text = read_text(path);
    text.with_context(|| format!("{} cannot be read", path.display()))
}

/// Checks that a result has a rate for each goal, and at least one valid trial.
fn check_found(results: &StudyResults, summary: &Summary) -> Result<()> {
    let mut procedures = results
        .steps
        .iter()
        .filter(|step| step.kind.opens_connections())
        .filter_map(|step| step.procedure.as_ref());
    let ended = procedures.find_map(|procedure| match &procedure.end {
        ProcedureEnd::Invalid { reasons, .. } => Some(reasons),
        ProcedureEnd::Finished => None,
    });
    if let Some(reasons) = ended {
        return Err(CheckFailed(format!(
            "no result: the tester failed {} times in a row, most recently because {} (use a dedicated CPU and real-time priority with \
             --cpus and --realtime-priority, or allow more attempts with --set trials.invalid-repeats=N)",
            reasons.len(),
            reasons.last().map_or("of an unknown reason", String::as_str)
        ))
        .into());
    }
    let cases = summary.sizes.iter().flat_map(|size| &size.cases);
    let mut goals = cases.flat_map(|case| &case.goals);
    let trials = || results.steps.iter().flat_map(|step| &step.trials);
    let has_valid = trials().any(|trial| trial.result.is_valid());
    let failed = goals.find(|goal| goal.outcomes.contains(&SearchOutcome::TesterFailed));
    let of = match failed {
        Some(goal) => format!(" for {}", goal.name),
        None if has_valid || trials().next().is_none() => return Ok(()),
        None => String::new(),
    };
    let invalid = || trials().filter_map(|trial| trial.result.validity.text());
    let latest = invalid().next_back();
    Err(CheckFailed(format!(
        "no result{of}: the tester failed in {} of {} trials, most recently because {} (use a dedicated CPU and real-time priority with \
         --cpus and --realtime-priority, or allow more attempts with --set trials.invalid-repeats=N)",
        invalid().count(),
        trials().count(),
        latest.as_deref().unwrap_or("of an unknown reason"),
    ))
    .into())
}

/// Opens the built-in tester on the given ports.
fn built_in(
    args: &MeasureArgs,
    file: &StudyFile,
    stop: &Arc<AtomicBool>,
) -> Result<(GeneratorBench, RunningIsolation)> {
    let given = args.ports.len();
    if file.measures_addresses() && given != 3 {
        bail!(Usage(format!(
            "--port: {given} ports given, but this method requires three: the sender to learned addresses, the owner of the addresses, and an observer of flooded frames"
        )));
    }
    if !file.measures_addresses() && given > 2 {
        bail!(Usage(format!(
            "--port: {given} ports given, but a tester has one or two (remove the others)"
        )));
    }
    if file.opens_connections() && given != 2 {
        bail!(Usage(format!(
            "--port: {given} ports given, but connections require two: of the client and of the server"
        )));
    }
    GeneratorBench::check_without_lab(file)?;
    let cpus = args.own.cpus()?;
    args.isolation.check(&args.own)?;
    args.own.check_machine(&args.ports)?;
    let eal = args.own.start_dpdk(&cpus, &args.ports)?;
    let mut size_max = args.frame_size.largest();
    if file.opens_connections() {
        size_max = size_max.max(file.conversations().frame_size_max());
    }
    let mut tester = args
        .own
        .open(&eal, cpus, &args.ports, size_max, Preparation::default())?;
    tester.abort_on(stop);
    tester.wait_for_links(LINK_DEADLINE)?;
    let device = args.device.find(&args.ports)?;
    let trial = args.warm_up.saturating_add(args.duration);
    let trial_s = trial.saturating_add(args.drain).as_secs_f64();
    let isolation = args
        .isolation
        .isolate(&args.own, &mut tester, trial_s, stop)?;
    load_calibrations(&mut tester, args.calibration.as_ref())?;
    record_time_stamps(&mut tester, args.timestamps.as_ref())?;
    let bench = GeneratorBench::new(file, Box::new(tester))?
        .isolated(isolation.record().clone())
        .with_device(device);
    Ok((bench, isolation))
}

/// Returns a temporary directory that its drop removes.
fn tempfile_directory() -> Result<tempfile::TempDir> {
    Ok(tempfile::Builder::new()
        .prefix("quietwire-measure-")
        .tempdir()?)
}
