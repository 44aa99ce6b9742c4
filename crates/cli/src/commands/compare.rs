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

/// Compare two stores: effect on each quantity, and settings that differ. Exits with code 1 on a regression. With --bisect, find
/// the commit of a regression instead.
#[derive(Debug, Args)]
pub(crate) struct CompareArgs {
    /// Store of the first study: the reference.
    #[arg(required_unless_present = "bisect")]
    first: Option<PathBuf>,
    /// Store of the second study.
    #[arg(required_unless_present = "bisect")]
    second: Option<PathBuf>,
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
    let (first, second) = match (&args.first, &args.second) {
        _ if args.bisection.is_requested() => {
            return args.bisection.run(config, args.json);
        }
        (Some(first), Some(second)) => (first, second),
        _ => bail!(Usage("two stores are required".to_owned())),
    };
    let (own, theirs) = (read(first)?, read(second)?);
    let comparison = Comparison::of(&own, &theirs, config)
        .with_context(|| format!("stores {} and {}", first.display(), second.display()))?;
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
        .map(|one| format!("{} of {}", one.quantity, one.case))
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

fn read(path: &Path) -> Result<StudyResults> {
    Ok(Store::open_to_read(path)?.results_without_series()?)
}
