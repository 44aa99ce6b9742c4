// SPDX-License-Identifier: Apache-2.0
//! Finds the commit of a regression: a command prints a value in worktrees of a git repository, and each commit is judged against the good
//! one by the same test as two stores are compared.
//!
//! The values of the good commit and of the judged one alternate, so that a machine that becomes slower meanwhile affects both.

mod commit;
mod error;
mod options;
mod range;
mod values;
mod worktrees;

use serde::Serialize;

use crate::verdict::{RatioEstimate, Sample, ratio_of_medians};
use range::Range;
use values::Runner;
use worktrees::Worktrees;

pub use commit::{BisectCommit, CommitFinding};
pub use error::BisectError;
pub use options::BisectOptions;

/// Most commits of a range.
const COMMITS_MAX: usize = 100_000;

/// A commit that was judged.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct JudgedCommit {
    /// The commit.
    #[serde(flatten)]
    pub commit: BisectCommit,
    /// Result of the comparison of its values.
    pub finding: CommitFinding,
    /// Ratio of its median to that of the good commit, with confidence limits.
    pub effect: RatioEstimate,
    /// Values of the good commit and of this one, in the order in which they were measured.
    pub values: [Vec<f64>; 2],
    /// Why the command failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

/// Result of a bisection.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bisected {
    /// Commits of which one has the regression, the oldest first: exactly one unless some could not be judged.
    pub suspects: Vec<BisectCommit>,
    /// Commits in the order in which they were judged.
    pub judged: Vec<JudgedCommit>,
}

/// Runs of each commit at most, as a multiple of those at first.
const RUNS_FACTOR_MAX: u32 = 4;

/// Returns what an effect says, for a margin.
fn finding(effect: &RatioEstimate, margin: f64, is_lower_better: bool) -> CommitFinding {
    let [low, high] = effect.limits;
    let (is_bad, is_good) = if is_lower_better {
        let most = 1.0 + margin;
        (
            low.is_some_and(|low| low > most),
            high.is_some_and(|high| high <= most),
        )
    } else {
        let least = 1.0 - margin;
        (
            high.is_some_and(|high| high < least),
            low.is_some_and(|low| low >= least),
        )
    };
    match (is_bad, is_good) {
        (true, _) => CommitFinding::Bad,
        (_, true) => CommitFinding::Good,
        _ => CommitFinding::Unknown,
    }
}

/// Returns the ratio of the medians of two lists of values.
fn effect(good: &[f64], judged: &[f64], confidence: f64) -> RatioEstimate {
    let samples = |values: &[f64]| -> Vec<Sample> {
        let numbered = (0_u32..).zip(values);
        numbered
            .map(|(round, value)| Sample::exact(round, 0, *value))
            .collect()
    };
    // Half of the error rate for each limit.
    ratio_of_medians(&samples(judged), &samples(good), (1.0 - confidence) / 2.0)
}

/// Finds the commit of a regression. Calls `judged` after each commit.
///
/// Worktrees are removed at the end, also after errors, signals and kills of this process.
///
/// # Errors
/// [`BisectError`]: see its variants. Worktrees that could not be removed are named in the log.
pub fn bisect(
    options: &BisectOptions,
    judged: &mut dyn FnMut(&JudgedCommit),
) -> Result<Bisected, BisectError> {
    let commits = worktrees::commits(options)?;
    if commits.len() > COMMITS_MAX {
        return Err(BisectError::BadInput(format!(
            "the range has {} commits (maximum: {COMMITS_MAX})",
            commits.len()
        )));
    }
    let worktrees = Worktrees::make(options)?;
    let found = search(options, &worktrees, &commits, judged);
    let removed = worktrees.remove();
    let found = found?;
    removed?;
    Ok(found)
}

fn search(
    options: &BisectOptions,
    worktrees: &Worktrees,
    commits: &[BisectCommit],
    report: &mut dyn FnMut(&JudgedCommit),
) -> Result<Bisected, BisectError> {
    let mut all = Vec::new();
    let mut judge = |index: usize| -> Result<CommitFinding, BisectError> {
        let Some(commit) = commits.get(index) else {
            return Err(BisectError::Failed(format!("there is no commit {index}")));
        };
        let one = judged_commit(options, worktrees, commit)?;
        report(&one);
        let finding = one.finding;
        all.push(one);
        Ok(finding)
    };
    let last = commits.len().saturating_sub(1);
    match judge(last)? {
        CommitFinding::Bad => {}
        finding => return Err(no_regression(finding, &options.bad)),
    }
    let mut range = Range::new(commits.len());
    while let Some(index) = range.next() {
        range.record(index, judge(index)?);
    }
    Ok(Bisected {
        suspects: commits.get(range.suspects()).unwrap_or_default().to_vec(),
        judged: all,
    })
}

fn no_regression(finding: CommitFinding, bad: &str) -> BisectError {
    BisectError::Failed(match finding {
        CommitFinding::Broken => format!("the command fails in {bad} (see its output above)"),
        CommitFinding::Good => {
            format!("{bad} is not worse than the margin, so there is no regression to find")
        }
        CommitFinding::Unknown | CommitFinding::Bad => format!(
            "the values of {bad} do not decide whether it is worse than the margin (increase --runs or --margin)"
        ),
    })
}

/// Measures a commit beside the good one until the values decide, with at most [`RUNS_FACTOR_MAX`] times the runs.
fn judged_commit(
    options: &BisectOptions,
    worktrees: &Worktrees,
    commit: &BisectCommit,
) -> Result<JudgedCommit, BisectError> {
    worktrees.check_out(commit)?;
    let runner = Runner::new(options, worktrees.outputs());
    let mut one = JudgedCommit {
        commit: commit.clone(),
        finding: CommitFinding::Unknown,
        effect: effect(&[], &[], options.confidence),
        values: [Vec::new(), Vec::new()],
        failure: None,
    };
    for _ in 0..RUNS_FACTOR_MAX {
        for _ in 0..options.runs {
            let good = runner.value(worktrees.good())?;
            let good = good.map_err(|reason| {
                BisectError::Failed(format!(
                    "the command fails in the good commit {}: {reason}",
                    options.good
                ))
            })?;
            match runner.value(worktrees.judged())? {
                Ok(value) => {
                    one.values[0].push(good);
                    one.values[1].push(value);
                }
                Err(reason) => {
                    one.finding = CommitFinding::Broken;
                    one.failure = Some(reason);
                    return Ok(one);
                }
            }
        }
        one.effect = effect(&one.values[0], &one.values[1], options.confidence);
        one.finding = finding(&one.effect, options.margin, options.is_lower_better);
        if one.finding != CommitFinding::Unknown {
            break;
        }
    }
    Ok(one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(good: &[f64], judged: &[f64], is_lower_better: bool) -> CommitFinding {
        finding(&effect(good, judged, 0.95), 0.02, is_lower_better)
    }

    #[test]
    fn a_commit_is_judged_by_the_interval_and_the_margin() {
        let around = |middle: f64| -> Vec<f64> {
            (0..7).map(|step| middle + f64::from(step) / 10.0).collect()
        };
        let good = around(100.0);
        assert_eq!(of(&good, &around(80.0), false), CommitFinding::Bad);
        assert_eq!(of(&good, &around(80.0), true), CommitFinding::Good);
        assert_eq!(of(&good, &around(130.0), true), CommitFinding::Bad);
        assert_eq!(of(&good, &around(99.5), false), CommitFinding::Good);
        // Few values decide nothing, and neither do values on both sides of the margin.
        assert_eq!(of(&good[..3], &[50.0; 3], false), CommitFinding::Unknown);
        let wide = [50.0, 60.0, 90.0, 100.0, 110.0, 150.0, 160.0];
        assert_eq!(of(&good, &wide, false), CommitFinding::Unknown);
    }
}
