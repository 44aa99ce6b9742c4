// SPDX-License-Identifier: Apache-2.0
//! `quietwire trend`: change points over the stores in a directory.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use quietwire_report::{Trend, TrendConfig, TrendStores};
use quietwire_study::{Store, StoreError};

use crate::exit::{CheckFailed, Usage};
use crate::output::{check_place, make_parent};
use crate::text::{print, print_folded, say};

/// Find changes of each quantity over many stores. Exits with code 1 if a quantity is worse since its last change.
#[derive(Debug, Args)]
pub(crate) struct TrendArgs {
    /// Directory with the stores (*.sqlite).
    directory: PathBuf,
    /// Largest probability of a false change in each quantity, 0.001 to 0.5.
    #[arg(long, value_name = "PROBABILITY", default_value_t = 0.05)]
    error_rate: f64,
    /// Irrelevant change, percent of the value before, 0 to 99.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    margin: f64,
    /// Write the trend as a page (HTML).
    #[arg(long, value_name = "PATH")]
    html: Option<PathBuf>,
    /// Print the trend as JSON.
    #[arg(long)]
    json: bool,
}

/// Ending of the names of stores.
const STORE: &str = "sqlite";

pub(crate) fn run(args: &TrendArgs) -> Result<()> {
    if !(0.001..=0.5).contains(&args.error_rate) {
        bail!(Usage(format!(
            "--error-rate: {} must be 0.001 to 0.5",
            args.error_rate
        )));
    }
    if !(0.0..=99.0).contains(&args.margin) {
        bail!(Usage(format!("--margin: {} must be 0 to 99", args.margin)));
    }
    if let Some(path) = &args.html {
        check_place("--html", path)?;
    }
    let stores = read(&args.directory)?;
    let trend = stores.trend(TrendConfig {
        error_rate: args.error_rate,
        margin: args.margin / 100.0,
    });
    show(args, &trend)?;
    let regressions: Vec<String> = trend
        .series
        .iter()
        .filter(|series| series.regression().is_some())
        .map(|series| format!("{} of {} ({})", series.quantity, series.case, series.study))
        .collect();
    if regressions.is_empty() {
        return Ok(());
    }
    bail!(CheckFailed(format!(
        "worse by more than the margin of {} % since the last change: {}",
        args.margin,
        regressions.join("; ")
    )))
}

fn show(args: &TrendArgs, trend: &Trend) -> Result<()> {
    if args.json {
        print(serde_json::to_string_pretty(trend)?)?;
    } else {
        print_folded(|width| trend.text(width))?;
    }
    if let Some(path) = &args.html {
        make_parent("--html", path)?;
        trend.write_html(path)?;
        say(format!("page:  {}", path.display()));
    }
    Ok(())
}

/// Reads the stores of a directory, one after the other. A file that is no store, or a store that is not readable, is skipped and listed.
///
/// # Errors
/// The directory is not readable or has no store.
fn read(directory: &Path) -> Result<TrendStores> {
    let unreadable = |error: std::io::Error| Usage(format!("{}: {error}", directory.display()));
    let mut paths = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == STORE) {
            paths.push(path);
        }
    }
    paths.sort();
    let mut stores = TrendStores::default();
    for path in paths {
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let results = Store::open_to_read(&path).and_then(|store| store.results_without_series());
        match results {
            Ok(results) => stores
                .add(&name, &results)
                .with_context(|| format!("store {}", path.display()))?,
            Err(error) => stores.skip(reason(&name, &error)),
        }
    }
    if stores.is_empty() {
        bail!(Usage(format!(
            "{}: the directory has no readable store (*.{STORE}) of a complete study (give the directory with the stores)",
            directory.display()
        )));
    }
    Ok(stores)
}

fn reason(name: &str, error: &StoreError) -> String {
    format!("{name}: {error}")
}
