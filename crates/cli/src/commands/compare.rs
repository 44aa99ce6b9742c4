// SPDX-License-Identifier: Apache-2.0
//! `quietwire compare`: compares the results of two stores.

mod bisection;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::Args;
use quietwire_report::{Comparison, ComparisonConfig};
use quietwire_study::{Store, StudyResults};

use bisection::BisectArgs;

use crate::exit::{CheckFailed, Usage};
use crate::text::{print, print_folded};

/// Compare two stores, or two cases: effect on each quantity, and settings that differ. Exits with code 1 on a regression. With
/// --bisect, find the commit of a regression instead.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Store of the first study: the reference.
    #[arg(required_unless_present = "bisect")]
    first: Option<PathBuf>,
    /// Store of the second study. With --case, default: the first store.
    #[arg(required_unless_present_any = ["bisect", "case"])]
    second: Option<PathBuf>,
    /// Compare these cases of the two stores.
    #[arg(long, value_name = "FIRST=SECOND", conflicts_with = "bisect")]
    case: Option<String>,
    /// Confidence of each interval, above 0.5 and below 1.
    #[arg(long, value_name = "CONFIDENCE", default_value_t = 0.95)]
    confidence: f64,
    /// Irrelevant effect, percent of the first store's value, 0 to 99.
    #[arg(long, value_name = "PERCENT", default_value_t = 2.0)]
    margin: f64,
    /// Print the comparison as JSON.
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    bisection: BisectArgs,
}

pub(crate) fn run(args: &CompareArgs) -> Result<()> {
    if !(args.confidence > 0.5 && args.confidence < 1.0) {
        bail!(Usage(format!(
            "--confidence: {} must be above 0.5 and below 1",
            args.confidence
        )));
    }
    if !(0.0..=99.0).contains(&args.margin) {
        bail!(Usage(format!("--margin: {} must be 0 to 99", args.margin)));
    }
    let config = ComparisonConfig {
        confidence: args.confidence,
        margin: args.margin / 100.0,
    };
    if args.bisection.is_requested() {
        return args.bisection.run(config, args.json);
    }
    let comparison = match (&args.first, &args.second, &args.case) {
        (Some(first), second, Some(pair)) => {
            of_cases([first, second.as_ref().unwrap_or(first)], pair, config)?
        }
        (Some(first), Some(second), None) => {
            let (own, theirs) = (read(first)?, read(second)?);
            Comparison::of(&own, &theirs, config)
                .with_context(|| format!("stores {} and {}", first.display(), second.display()))?
        }
        _ => bail!(Usage(
            "two stores are required (name a second store, or two cases with --case)".to_owned()
        )),
    };
    if args.json {
        print(serde_json::to_string_pretty(&comparison)?)?;
    } else {
        print_folded(|width| comparison.text(width))?;
    }
    if comparison.quantities.is_empty() {
        bail!(CheckFailed(
            "the stores have no quantity of a case in common (compare stores with equal case names, frame sizes and goals)"
                .to_owned()
        ));
    }
    let regressions: Vec<String> = comparison
        .regressions()
        .map(|one| format!("{} of {}", one.quantity, one.cases()))
        .collect();
    if regressions.is_empty() {
        return Ok(());
    }
    bail!(CheckFailed(format!(
        "worse by more than the margin of {} %: {}",
        args.margin,
        regressions.join("; ")
    )))
}

/// Compares a case of each store, given as `FIRST=SECOND`.
fn of_cases(
    [first, second]: [&PathBuf; 2],
    pair: &str,
    config: ComparisonConfig,
) -> Result<Comparison> {
    let Some((case, other)) = pair.split_once('=') else {
        bail!(Usage(format!(
            "--case: '{pair}' is not a pair of cases (use FIRST=SECOND)"
        )));
    };
    let own = read(first)?;
    // Two cases of one store.
    let theirs = if second == first {
        None
    } else {
        Some(read(second)?)
    };
    let results = [&own, theirs.as_ref().unwrap_or(&own)];
    for ((path, results), name) in [first, second].into_iter().zip(results).zip([case, other]) {
        let mut cases = results.file.cases.iter();
        if !cases.any(|known| known.name == name) {
            let names = results.file.cases.iter().map(|known| known.name.as_str());
            bail!(Usage(format!(
                "--case: {} has no case '{name}' (available: {})",
                path.display(),
                names.collect::<Vec<_>>().join(", ")
            )));
        }
    }
    Comparison::of_cases(results, [case, other], config)
        .with_context(|| format!("stores {} and {}", first.display(), second.display()))
}

fn read(path: &Path) -> Result<StudyResults> {
    Ok(Store::open_to_read(path)?.results_without_series()?)
}
