// SPDX-License-Identifier: Apache-2.0
//! A run of a benchmark: its conditions, the figures of each round, goals and verdicts; stored as JSON.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub(crate) use super::figure::Figure;
use super::goals::{Goal, Ratio};
use super::spread::{Estimate, ROUNDS_MIN};
pub(crate) use super::verdict::{Bound, Judged, Verdict};

/// The machine of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: u32,
    /// Frequency of the time stamp counter.
    pub(crate) ghz: f64,
    pub(crate) memory_gib: u64,
    pub(crate) is_virtual: bool,
    pub(crate) system: String,
    pub(crate) kernel: String,
    pub(crate) dpdk: String,
    /// Huge pages of 2 MiB during the run; 0 means ordinary pages.
    pub(crate) huge_pages: u64,
    /// Load average of one minute at the start of the run: other work on the machine.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) load: Option<f64>,
}

/// A measured program and its configuration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Side {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Compiler flags and their origin.
    pub(crate) built: String,
    pub(crate) burst: u32,
    /// Other information that a reader requires.
    pub(crate) notes: String,
}

/// Position of a figure in the tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Point {
    /// Cases that one table and one figure show together.
    pub(crate) group: String,
    pub(crate) case: String,
    /// The size on the horizontal axis, if the case has one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(crate) size: Option<u64>,
    pub(crate) side: String,
}

/// One figure of one point, round by round.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Series {
    #[serde(flatten)]
    pub(crate) point: Point,
    pub(crate) figure: Figure,
    /// None for a round without the figure.
    pub(crate) rounds: Vec<Option<f64>>,
}

impl Series {
    pub(crate) fn values(&self) -> Vec<f64> {
        self.rounds.iter().copied().flatten().collect()
    }
}

/// A side that was not measured, and the reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Absent {
    pub(crate) side: String,
    pub(crate) reason: String,
}

/// A run of a benchmark.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) bench: String,
    pub(crate) command: String,
    /// UTC, to the second.
    pub(crate) date: String,
    pub(crate) machine: Machine,
    pub(crate) rounds: u32,
    /// Seconds during which each measurement counted frames.
    pub(crate) seconds: f64,
    /// Seed of the order of turns.
    pub(crate) seed: u32,
    /// Placement of threads that neither forward nor generate.
    pub(crate) helpers: String,
    pub(crate) sides: Vec<Side>,
    pub(crate) absent: Vec<Absent>,
    pub(crate) series: Vec<Series>,
    pub(crate) goals: Vec<Judged>,
    /// Turns that failed: their rounds have no values.
    #[serde(skip)]
    pub(crate) failed: u32,
}

impl Run {
    /// Adds empty figures of a point, so that tables have the order of these calls.
    pub(crate) fn expect(&mut self, point: &Point, figures: &[Figure]) {
        self.series.extend(figures.iter().map(|figure| Series {
            point: point.clone(),
            figure: *figure,
            rounds: Vec::new(),
        }));
    }

    /// Adds a round's figure, rounded to six significant digits.
    pub(crate) fn add(&mut self, point: &Point, figure: Figure, value: Option<f64>) {
        let value = value.map(six_digits);
        let mut series = self.series.iter_mut();
        let found = series.find(|series| series.point == *point && series.figure == figure);
        match found {
            Some(series) => series.rounds.push(value),
            None => self.series.push(Series {
                point: point.clone(),
                figure,
                rounds: vec![value],
            }),
        }
    }

    pub(crate) fn find(&self, case: &str, side: &str, figure: Figure) -> Option<&Series> {
        let mut series = self.series.iter();
        series.find(|series| {
            series.point.case == case && series.point.side == side && series.figure == figure
        })
    }

    /// Returns the verdicts on the goals of this benchmark.
    pub(crate) fn judge(&self, goals: &[Goal]) -> Vec<Judged> {
        let own = goals.iter().filter(|goal| goal.bench == self.bench);
        own.map(|goal| self.judge_one(goal)).collect()
    }

    fn judge_one(&self, goal: &Goal) -> Judged {
        let (estimate, rounds) = match self.estimate(goal) {
            Ok(found) => found,
            Err(reason) => {
                return goal.judged(None, Verdict::Unavailable, Some(reason));
            }
        };
        let (kept, broken) = match goal.bound {
            Bound::AtLeast => (estimate.low >= goal.wanted, estimate.high < goal.wanted),
            Bound::AtMost => (estimate.high <= goal.wanted, estimate.low > goal.wanted),
        };
        let (verdict, reason) = match (rounds < ROUNDS_MIN, kept, broken) {
            (true, ..) => (
                Verdict::NotProven,
                Some(format!("{rounds} rounds; {ROUNDS_MIN} are required")),
            ),
            (_, true, _) => (Verdict::Met, None),
            (_, _, true) => (Verdict::Missed, None),
            _ => (Verdict::NotProven, None),
        };
        goal.judged(Some(estimate), verdict, reason)
    }

    /// Returns the goal's figure and its number of rounds, or the reason why there is none.
    fn estimate(&self, goal: &Goal) -> Result<(Estimate, usize), String> {
        let of = |(case, side): (&str, &str)| {
            let series = self.find(case, side, goal.figure);
            series
                .filter(|series| !series.values().is_empty())
                .ok_or_else(|| {
                    let absent = self.absent.iter().find(|absent| absent.side == side);
                    absent.map_or_else(
                        || "not measured in this run".to_owned(),
                        |absent| absent.reason.clone(),
                    )
                })
        };
        let these = of(goal.of)?;
        let to = match goal.ratio {
            Ratio::Itself => {
                let values = these.values();
                return Ok((Estimate::of_median(&values), values.len()));
            }
            Ratio::Of(to) | Ratio::Deviations(to) => of(to)?,
        };
        if matches!(goal.ratio, Ratio::Deviations(_)) {
            let (these, those) = (these.values(), to.values());
            let estimate = Estimate::of_deviations(&these, &those);
            return estimate
                .map(|estimate| (estimate, these.len().min(those.len())))
                .ok_or_else(|| "all rounds are equal".to_owned());
        }
        let pairs = these.rounds.iter().zip(&to.rounds);
        let ratios: Vec<f64> = pairs
            .filter_map(|(this, that)| Some((*this)? / (*that)?))
            .filter(|ratio| ratio.is_finite())
            .collect();
        if ratios.is_empty() {
            return Err("no round has both".to_owned());
        }
        Ok((Estimate::of_median(&ratios), ratios.len()))
    }

    /// Writes the run to a new file in a directory; returns its path.
    pub(crate) fn store(&self, directory: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(directory)?;
        let date = self.date.replace(['-', ':'], "");
        let path = directory.join(format!("{}-{date}.json", self.bench));
        self.write(&path)?;
        Ok(path)
    }

    /// Writes the run to this file.
    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        write_json(self, path)
    }

    /// Reads a stored run.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let at = |cause: &dyn std::fmt::Display| format!("{}: {cause}", path.display());
        let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
        serde_json::from_str(&text).map_err(|error| at(&error))
    }
}

/// Writes a document to this file.
pub(crate) fn write_json(document: &impl Serialize, path: &Path) -> std::io::Result<()> {
    let mut text = serde_json::to_string_pretty(document)?;
    text.push('\n');
    std::fs::write(path, text)
}

/// Rounds to six significant digits.
fn six_digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}
