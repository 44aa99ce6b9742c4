// SPDX-License-Identifier: Apache-2.0
//! `quietwire study`: runs a study file, stores its trials and writes the page.

mod check;
mod chosen;
mod exports;
mod list;
mod pictures;
pub(super) mod progress;
mod verdicts;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use quietwire_base::is_file_name;
use quietwire_lab::{LabOptions, STATE_DIRECTORY, Stop};
use quietwire_report::{Baselines, Report, ReportError, Summary, text_table, unfinished_text};
use quietwire_study::{
    Bench, ConsoleRecord, GeneratorBench, LabBench, OpenMode, RunError, Store, StudyEnd, StudyFile,
    StudyPreview, StudyResults, run_study,
};
use quietwire_tester::TimeStampFile;

use super::chosen_tester::ChosenTester;
use crate::exit::{CheckFailed, MissingPrerequisite, stop_on_signals};
use crate::output::{check_place, make_directory, make_parent, unwritable, write_file};
use crate::text::{fold, print, say, terminal_columns};
use check::RunRequest;
use exports::ExportArgs;
use progress::ProgressView;
use verdicts::VerdictArgs;

/// Run a study file or a ready-made study, or write its page again.
#[derive(Debug, Args)]
pub(crate) struct StudyArgs {
    #[command(subcommand)]
    command: StudyCommand,
}

#[derive(Debug, Subcommand)]
enum StudyCommand {
    List(list::ListArgs),
    Run(RunArgs),
    /// Write page, JSON, table or other files from a store. Measures nothing.
    Report(ReportArgs),
}

/// Run a study: measure its cases, store every trial, write the page.
#[derive(Debug, Args)]
struct RunArgs {
    /// Name of a ready-made study (see `study list`), or a study file (TOML).
    #[arg(value_name = "NAME|FILE")]
    study: String,
    /// Check everything that a run checks, and print which cases would be run, which this machine cannot have, and how long it takes
    /// while no trial is invalid. Measures nothing.
    #[arg(long)]
    dry_run: bool,
    /// Run a short version as a smoke test: one round, short trials, coarse searches. The result is marked, and its figures are
    /// not valid.
    #[arg(long)]
    quick: bool,
    /// Store of all trials (SQLite). Default: NAME.sqlite in the current directory.
    #[arg(long, value_name = "PATH")]
    store: Option<PathBuf>,
    /// Page to write (HTML); its directory is created if missing. Default: NAME.html in the store's directory.
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Continue an interrupted run of the same file from its store.
    #[arg(long, conflicts_with = "fresh")]
    resume: bool,
    /// With --resume: continue even if the machine, the program or a setting of the machine differs from the interrupted run. The store
    /// and the page name the differences.
    #[arg(long, requires = "resume")]
    anyway: bool,
    /// Rename an existing store and start a new one.
    #[arg(long)]
    fresh: bool,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Show the progress of searches on a terminal: rate, loss, latency and time left.
    #[arg(long)]
    progress: bool,
    /// Traffic generator instead of the lab: a simulated device, sim or sim:KEY=VALUE,…, or trex:HOST (docs/tester.md).
    #[arg(long, value_name = "TESTER")]
    tester: Option<ChosenTester>,
    /// Write the transmit and receive time of each frame of the low-rate streams to this pcapng file.
    #[arg(long, value_name = "FILE", conflicts_with = "tester")]
    timestamps: Option<PathBuf>,
    #[command(flatten)]
    verdicts: VerdictArgs,
    /// State directory of labs.
    #[arg(long, value_name = "DIRECTORY", default_value = STATE_DIRECTORY, hide = true)]
    state_directory: PathBuf,
}

#[derive(Debug, Args)]
struct ReportArgs {
    /// Store of a study.
    store: PathBuf,
    /// Page to write (HTML).
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Write the console output of guests to CASE-ROUND-ELEMENT.log in this directory, which is created if missing.
    #[arg(long, value_name = "DIRECTORY")]
    consoles: Option<PathBuf>,
    /// Print the results as JSON instead of a table.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    exports: ExportArgs,
    #[command(flatten)]
    verdicts: VerdictArgs,
}

pub(crate) fn run(args: &StudyArgs) -> Result<()> {
    match &args.command {
        StudyCommand::List(args) => list::run(args),
        StudyCommand::Run(args) => run_study_of(args),
        StudyCommand::Report(args) => {
            args.check_places()?;
            let results = Store::open_to_read(&args.store)?.results()?;
            args.verdicts.check_baseline(&results.file)?;
            if let Some(path) = &args.html {
                make_parent("--html", path)?;
            }
            if let Some(directory) = &args.consoles {
                write_consoles(&results.consoles, directory)?;
            }
            let baselines = args.verdicts.baselines(&results.file);
            let report =
                Report::new(&results, &baselines).map_err(|error| in_store(&args.store, error))?;
            show(&report, &results, args.html.as_deref(), args.json)?;
            args.exports.write(&report)?;
            args.verdicts.write(report.summary())?;
            args.verdicts.conclude(report.summary())
        }
    }
}

impl ReportArgs {
    /// Refuses paths that cannot be written, and pictures that cannot be rendered.
    fn check_places(&self) -> Result<()> {
        if let Some(path) = &self.html {
            check_place("--html", path)?;
        }
        if let Some(directory) = &self.consoles {
            check_place("--consoles", &directory.join(A_CONSOLE))?;
        }
        self.verdicts.check_places()?;
        self.exports.check()
    }
}

/// Name of a file that a directory of consoles may contain.
const A_CONSOLE: &str = "case-1-vnf.log";

/// Writes one file for each guest and each setup of its case.
fn write_consoles(consoles: &[ConsoleRecord], directory: &Path) -> Result<()> {
    make_directory("--consoles", directory)?;
    for console in consoles {
        let (case, element) = (&console.case_name, &console.element);
        let round = console.round.saturating_add(1);
        let name = format!("{case}-{round}-{element}.log");
        if !is_file_name(&name) {
            bail!(CheckFailed(format!(
                "the store has a case '{}' with a guest '{}', whose console would be written to another directory (another program has changed the store)",
                case.escape_default(),
                element.escape_default()
            )));
        }
        let path = directory.join(name);
        write_file("--consoles", &path, &console.output)?;
    }
    let count = consoles.len();
    say(format!("consoles: {count} in {}", directory.display()));
    Ok(())
}

/// Message about the remains of a study that is ended by force.
const LEFT: &str = "its lab and its partition may remain (undo them with `quietwire lab clean`); finished trials are in the store (to continue, repeat the command with --resume)";

fn run_study_of(args: &RunArgs) -> Result<()> {
    let (file, text) = chosen::read(&args.study, args.quick)?;
    let options = LabOptions {
        state_directory: args.state_directory.clone(),
        program: std::env::current_exe().context("path of this program, which runs the switch")?,
    };
    if args.tester.is_none() && !args.dry_run {
        crate::exit::require_root("running a study in a lab")?;
    }
    let wanted = RunRequest {
        store: args.store.as_ref(),
        html: args.html.as_ref(),
        resume: args.resume,
        anyway: args.anyway,
        fresh: args.fresh,
        tester: args.tester.as_ref(),
    };
    let places = check::run(&wanted, &file, &text, &options)?;
    if let Some(path) = &args.timestamps {
        check_place(TIME_STAMPS, path)?;
    }
    args.verdicts.check_places()?;
    args.verdicts.check_baseline(&file)?;
    let baselines = args.verdicts.required_baselines(&file)?;
    if args.dry_run {
        return list::dry_run(&file, &options, args.json);
    }
    let (store_path, html_path) = (places.store, places.html);
    let stop = stop_on_signals(LEFT)?;
    // A store to resume is read before anything is set up. A new store is created only afterwards, so a study whose setup
    // fails leaves no store.
    let begun = (args.resume && store_path.exists())
        .then(|| open_store(args, &store_path, &file, &text))
        .transpose()?;
    let made = begun.as_ref().map_or(Ok(0), made_so_far)?;
    let preview = args
        .tester
        .is_none()
        .then(|| StudyPreview::of(&file, &options));
    let mut bench = open_bench(args, &file, options, made, &stop)?;
    let store = begun
        .map_or_else(|| open_store(args, &store_path, &file, &text), Ok)
        .and_then(|store| make_parent("--html", &html_path).map(|()| store));
    let mut store = match store {
        Ok(store) => store,
        Err(error) => {
            bench.close()?;
            return Err(error);
        }
    };
    if let Some(preview) = &preview {
        say(list::estimate(preview));
    }
    let mut shown = ProgressView::new(&file, args.progress)?;
    let end = run_study(&file, &mut store, bench.bench(), &mut shown, &stop);
    shown.finish();
    let closed = bench.close();
    let concluded = conclude(&store, end, Some(&html_path), args.json, &baselines);
    say(format!("store: {}", store_path.display()));
    let (end, results, summary) = concluded?;
    closed?;
    args.verdicts.write(&summary)?;
    match end {
        StudyEnd::Finished => {
            check_cases(&file, &results)?;
            args.verdicts.conclude(&summary)
        }
        StudyEnd::Interrupted => Err(CheckFailed(format!(
            "the study was interrupted; finished trials are in {} (to continue, repeat the command with --resume instead of --fresh)",
            store_path.display()
        ))
        .into()),
    }
}

/// Returns an error if a case of a finished study has failed, or if all are unavailable.
fn check_cases(file: &StudyFile, results: &StudyResults) -> Result<()> {
    let names = || file.cases.iter().map(|case| case.name.as_str());
    let failed: Vec<&str> = names().filter(|name| results.has_failed(name)).collect();
    if !failed.is_empty() {
        bail!(CheckFailed(format!(
            "{} did not start or failed later, for the reasons above (to try again, repeat the command with --resume instead of --fresh)",
            failed.join(", ")
        )));
    }
    if names().all(|name| results.unavailable(name).is_some()) {
        bail!(MissingPrerequisite(
            "all cases of the study are unavailable on this machine (the reasons are above)"
                .to_owned(),
        ));
    }
    Ok(())
}

/// Option of the file of time stamps.
const TIME_STAMPS: &str = "--timestamps";

/// Creates the file of time stamps.
fn time_stamp_file(path: &Path) -> Result<TimeStampFile> {
    make_parent(TIME_STAMPS, path)?;
    TimeStampFile::create(path).map_err(|error| unwritable(TIME_STAMPS, path, &error))
}

/// Opens the lab, or the generator of `--tester`. `made` is the number of trials and of actions in the store.
fn open_bench(
    args: &RunArgs,
    file: &StudyFile,
    options: LabOptions,
    made: u64,
    stop: &Arc<AtomicBool>,
) -> Result<Opened> {
    let time_stamps = args
        .timestamps
        .as_deref()
        .map(time_stamp_file)
        .transpose()?;
    Ok(match &args.tester {
        None => {
            let mut bench = LabBench::open(file, options, Stop::from(stop))?;
            if let Some(time_stamps) = time_stamps {
                bench.record_time_stamps(time_stamps);
            }
            Opened::Lab(Box::new(bench))
        }
        Some(tester) => Opened::Generator(Box::new(tester.bench(file, made)?)),
    })
}

/// The bench that a study runs on.
enum Opened {
    Lab(Box<LabBench>),
    Generator(Box<GeneratorBench>),
}

impl Opened {
    fn bench(&mut self) -> &mut dyn Bench {
        match self {
            Self::Lab(bench) => bench.as_mut(),
            Self::Generator(bench) => bench.as_mut(),
        }
    }

    fn close(self) -> Result<()> {
        match self {
            Self::Lab(bench) => Ok(bench.close()?),
            Self::Generator(_) => Ok(()),
        }
    }
}

/// Returns the number of trials and of actions of procedures in a store.
fn made_so_far(store: &Store) -> Result<u64> {
    let results = store.results()?;
    let of_step =
        |step: &quietwire_study::StepRecord| step.trials.len().saturating_add(step.actions.len());
    Ok(results.steps.iter().map(of_step).sum::<usize>() as u64)
}

fn open_store(args: &RunArgs, path: &Path, file: &StudyFile, text: &str) -> Result<Store> {
    make_parent("--store", path)?;
    if let Some(name) = args
        .fresh
        .then(|| Store::set_aside(path))
        .transpose()?
        .flatten()
    {
        tracing::info!("existing store renamed to {}", name.display());
    }
    let mode = if args.resume {
        OpenMode::Resume
    } else {
        OpenMode::New
    };
    let mut store = Store::open(path, file, text, mode)?;
    store.set_conditions(check::conditions(args.tester.as_ref())?, args.anyway)?;
    Ok(store)
}

/// Shows what was measured, also if the run failed. Returns the end, the results and their summary of a run that did not.
pub(super) fn conclude(
    store: &Store,
    end: Result<StudyEnd, RunError>,
    html: Option<&Path>,
    json: bool,
    baselines: &Baselines,
) -> Result<(StudyEnd, StudyResults, Summary)> {
    let results = store.results();
    let show_results = |results: &StudyResults| -> Result<Summary> {
        let report = Report::new(results, baselines);
        let report = report.map_err(|error| in_store(store.path(), error))?;
        show(&report, results, html, json)?;
        Ok(report.into_summary())
    };
    match (end, results) {
        (Ok(end), results) => {
            let results = results?;
            let summary = show_results(&results)?;
            Ok((end, results, summary))
        }
        (Err(error), Ok(results)) if has_measured(&results) => {
            if let Err(second) = show_results(&results) {
                say(format!("quietwire: {second:#}"));
            }
            Err(error.into())
        }
        (Err(error), _) => Err(error.into()),
    }
}

fn has_measured(results: &StudyResults) -> bool {
    let mut steps = results.steps.iter();
    steps.any(|step| !step.trials.is_empty() || !step.actions.is_empty())
}

/// Names the store in an error about its contents.
fn in_store(store: &Path, error: ReportError) -> anyhow::Error {
    match error {
        ReportError::Histogram { .. } => {
            anyhow::Error::new(error).context(format!("store {}", store.display()))
        }
        ReportError::Write { .. } => error.into(),
    }
}

fn show(
    report: &Report<'_>,
    results: &StudyResults,
    html: Option<&Path>,
    json: bool,
) -> Result<()> {
    // Results are printed even if the page cannot be written.
    let page = html.map_or(Ok(()), |path| report.write_html(path));
    if json {
        print(serde_json::to_string_pretty(&report.json())?)?;
    } else {
        let width = terminal_columns();
        let table = text_table(report.summary(), width);
        let unfinished = unfinished_text(results, width);
        // Tables fit this width, so only sentences are folded.
        let width = width.map_or(usize::MAX, usize::from);
        let lines = table.trim_end().lines();
        let folded: Vec<String> = lines.map(|line| fold(line, width, 0)).collect();
        print(folded.join("\n"))?;
        if !unfinished.is_empty() {
            print(unfinished.trim_end())?;
        }
    }
    page?;
    if let Some(path) = html {
        say(format!("page:  {}", path.display()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn console(case_name: &str, element: &str) -> ConsoleRecord {
        ConsoleRecord {
            round: 0,
            case_name: case_name.to_owned(),
            element: element.to_owned(),
            output: "booted\n".to_owned(),
        }
    }

    #[test]
    fn consoles_of_a_store_are_written_to_the_directory_only() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("wanted");
        write_consoles(&[console("quiet", "vnf-1")], &wanted).unwrap();
        let path = wanted.join("quiet-1-vnf-1.log");
        assert_eq!(fs::read_to_string(path).unwrap(), "booted\n");

        let outside = directory.path().join("outside");
        let absolute = outside.display().to_string();
        fs::create_dir(wanted.join("a-1-")).unwrap();
        for (case, element) in [
            (absolute.as_str(), "x"),
            ("../outside", "x"),
            ("a", "/../../outside"),
            ("", "\n"),
        ] {
            let error = write_consoles(&[console(case, element)], &wanted).unwrap_err();
            assert!(error.to_string().contains("another directory"), "{error}");
        }
        let mut all: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        all.sort();
        assert_eq!(all, ["wanted"]);
    }
}
