// SPDX-License-Identifier: Apache-2.0
//! `quietwire compare --bisect`: finds the commit of a regression.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;
use quietwire_base::Fault;
use quietwire_report::ComparisonConfig;
use quietwire_study::{BisectError, BisectOptions, Bisected, CommitFinding, JudgedCommit, bisect};

use crate::exit::{CheckFailed, MissingPrerequisite, Usage, stop_on_signals};
use crate::text::{print, say};
use crate::units::parse_positive_duration;

/// Message about the remains of a bisection that is ended by force.
const LEFT: &str = "its worktrees are still being removed";
/// Characters of a hash in texts.
const HASH_SHOWN: usize = 12;

/// Options of a bisection.
#[derive(Debug, Args)]
pub(super) struct BisectArgs {
    /// Find the commit of a regression between a good commit and a bad descendant of it, as GOOD..BAD.
    #[arg(long, value_name = "GOOD..BAD", requires = "command", conflicts_with_all = ["first", "second"])]
    bisect: Option<String>,
    /// Git repository of the commits.
    #[arg(
        long,
        value_name = "DIRECTORY",
        default_value = ".",
        requires = "bisect"
    )]
    repository: PathBuf,
    /// Runs of each of the two compared commits, 1 to 1000; up to four times as many if they do not decide.
    #[arg(long, value_name = "N", default_value_t = 7, requires = "bisect", value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Time limit of each run.
    #[arg(long, value_name = "TIME", default_value = "60m", requires = "bisect", value_parser = parse_positive_duration)]
    timeout: Duration,
    /// A lower value is better. Default: a higher value is better.
    #[arg(long, requires = "bisect")]
    lower_is_better: bool,
    /// Command that prints a number as its last line. It runs in a worktree of the commit.
    #[arg(last = true, value_name = "COMMAND", requires = "bisect")]
    command: Vec<OsString>,
}

impl BisectArgs {
    pub(super) fn is_requested(&self) -> bool {
        self.bisect.is_some()
    }

    pub(super) fn run(&self, config: ComparisonConfig, json: bool) -> Result<()> {
        let range = self.bisect.as_deref().unwrap_or_default();
        let (good, bad) = range.split_once("..").unwrap_or_default();
        if good.is_empty() || bad.is_empty() || bad.starts_with('.') {
            bail!(Usage(format!(
                "--bisect: '{range}' is not a range (give two commits as GOOD..BAD)"
            )));
        }
        let options = BisectOptions {
            repository: self.repository.clone(),
            good: good.to_owned(),
            bad: bad.to_owned(),
            command: self.command.clone(),
            runs: self.runs,
            timeout: self.timeout,
            confidence: config.confidence,
            margin: config.margin,
            is_lower_better: self.lower_is_better,
            stop: stop_on_signals(LEFT)?,
        };
        let found = bisect(&options, &mut |one| say(line(one))).map_err(of_fault)?;
        print(if json {
            serde_json::to_string_pretty(&found)?
        } else {
            text(&found)
        })?;
        if found.suspects.len() == 1 {
            return Ok(());
        }
        bail!(CheckFailed(format!(
            "some commits could not be judged, so {} commits may have the regression (increase --runs, or correct the command for these commits)",
            found.suspects.len()
        )))
    }
}

fn of_fault(error: BisectError) -> anyhow::Error {
    let text = error.to_string();
    match error.fault() {
        Fault::BadInput => Usage(text).into(),
        Fault::MissingPrerequisite => MissingPrerequisite(text).into(),
        Fault::Failed => CheckFailed(text).into(),
    }
}

fn short(hash: &str) -> &str {
    hash.get(..HASH_SHOWN).unwrap_or(hash)
}

/// Describes a commit that was judged, in one line.
fn line(one: &JudgedCommit) -> String {
    let finding = match one.finding {
        CommitFinding::Good => "good",
        CommitFinding::Bad => "bad",
        CommitFinding::Unknown => "unknown",
        CommitFinding::Broken => "broken",
    };
    let details = match (&one.failure, one.effect.ratio, one.effect.limits) {
        (Some(reason), ..) => reason.lines().last().unwrap_or_default().to_owned(),
        (None, Some(ratio), [Some(low), Some(high)]) => format!(
            "{ratio:.3} ({low:.3} to {high:.3}) of the good commit's value, {} runs",
            one.values[1].len()
        ),
        _ => format!("{} runs do not suffice", one.values[1].len()),
    };
    format!(
        "{} {finding}: {details}: {}",
        short(&one.commit.hash),
        one.commit.subject
    )
}

fn text(found: &Bisected) -> String {
    let head = match found.suspects.len() {
        1 => "first bad commit:",
        _ => "commits of which one is the first bad one:",
    };
    let commits = found
        .suspects
        .iter()
        .map(|one| format!("\n{} {}", one.hash, one.subject));
    head.to_owned() + &commits.collect::<String>()
}
