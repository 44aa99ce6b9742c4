// SPDX-License-Identifier: Apache-2.0
//! Verdicts about the objectives of a study, from stored results alone.

use std::collections::BTreeMap;
use std::path::PathBuf;

use quietwire_study::{
    Case, Direction, FrameSize, Judgement, NeighboursIn, Objective, Rule, Sample, StudyResults,
    Unit, Verdict, judge, judge_against_baseline, judge_ratio,
};
use serde::Serialize;

use super::activity::neighbours;
use super::profile::{TrialProfile, of_worst};
use super::samples::samples;
use super::steps::Steps;
use crate::error::ReportError;
use crate::format;

/// Neighbours with less than this share of the time of their CPUs show little about isolation.
pub(crate) const STARVED: f64 = 0.05;

/// Results of baselines by their paths in the study file, or why they cannot be read.
pub type Baselines = BTreeMap<PathBuf, Result<StudyResults, String>>;

/// Verdict about an objective at one frame size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ObjectiveVerdict {
    /// Title of the objective.
    pub name: String,
    /// Case.
    pub case: String,
    /// Octets with FCS, or `imix`.
    pub frame_size: String,
    /// Name of the quantity: `p99 latency`.
    pub quantity: String,
    /// Case or store that a ratio refers to; none for an absolute bound.
    pub against: Option<String>,
    /// Unit of bound, median and limits.
    pub unit: Unit,
    /// Rule.
    pub rule: Option<Rule>,
    /// Verdict and its grounds.
    #[serde(flatten)]
    pub judgement: Judgement,
    /// Profile of the worst trial, if the verdict is *fail*. None if no single trial is the worst.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<TrialProfile>,
}

impl ObjectiveVerdict {
    /// Formats a value in the unit of the objective.
    #[must_use]
    pub fn value_text(&self, value: f64) -> String {
        value_text(self.unit, value)
    }

    /// Formats the frame size: `64 octets`, or `imix`.
    #[must_use]
    pub fn frames_text(&self) -> String {
        match self.frame_size.parse::<u16>() {
            Ok(octets) => format!("{octets} octets"),
            Err(_) => self.frame_size.clone(),
        }
    }

    /// Formats the bound: `at least 0.98 of quiet-partitioned`.
    #[must_use]
    pub fn bound_text(&self) -> String {
        let Some(rule) = self.rule else {
            return String::new();
        };
        let bound = self.value_text(rule.bound);
        let words = match rule.direction {
            Direction::AtLeast => "at least",
            Direction::AtMost => "at most",
        };
        match &self.against {
            Some(against) => format!("{words} {bound} of {against}"),
            None => format!("{words} {bound}"),
        }
    }

    /// Formats how many values meet the bound: `5 of 5`; empty if values are not compared with the bound one by one.
    #[must_use]
    pub fn count_text(&self) -> String {
        let judgement = &self.judgement;
        if judgement.values == 0 || judgement.is_of_medians {
            return String::new();
        }
        format!("{} of {}", judgement.meeting, judgement.values)
    }

    /// Formats the median and its confidence interval: `0.993 (0.985 to 1.01)`; empty if neither is known. Ratios to 0 have no value.
    #[must_use]
    pub fn found_text(&self) -> String {
        let [low, high] = self.judgement.limits;
        let interval = match (low, high) {
            (Some(low), Some(high)) => {
                format!("{} to {}", self.value_text(low), self.value_text(high))
            }
            (Some(low), None) => format!("at least {}", self.value_text(low)),
            (None, Some(high)) => format!("at most {}", self.value_text(high)),
            (None, None) if self.judgement.infinite > 0 => "above a reference of 0".to_owned(),
            (None, None) => String::new(),
        };
        match (self.judgement.median, interval.is_empty()) {
            (Some(median), false) => format!("{} ({interval})", self.value_text(median)),
            (Some(median), true) => self.value_text(median),
            (None, _) => interval,
        }
    }
}

/// Formats a value with its unit.
pub(crate) fn value_text(unit: Unit, value: f64) -> String {
    match unit {
        Unit::FramesPerSecond => format::rate(value),
        Unit::LossRatio => format::loss(value),
        Unit::Nanoseconds if value < 0.0 => format!("−{}", format::time_ns(-value)),
        Unit::Nanoseconds => format::time_ns(value),
        Unit::Seconds => format::time_ns(value * 1e9),
        Unit::ConnectionsPerSecond => format::with_unit(value, "connections/s"),
        Unit::Connections => format::with_unit(value, "connections"),
        Unit::TransactionsPerSecond => format::with_unit(value, "transactions/s"),
        Unit::BitsPerSecond => format::bits(value),
        // Three digits after the point: bounds such as 0.98 are close to one.
        Unit::Ratio => format!("{value:.3}"),
    }
}

/// Judges every objective, at each of its frame sizes.
pub(super) fn verdicts(
    results: &StudyResults,
    baselines: &Baselines,
) -> Result<Vec<ObjectiveVerdict>, ReportError> {
    let mut all = Vec::new();
    for objective in &results.file.objectives {
        for size in &results.file.traffic.frame_sizes {
            if objective.frame_size.is_none_or(|only| only == *size) {
                all.push(of_objective(results, baselines, objective, *size)?);
            }
        }
    }
    Ok(all)
}

fn of_objective(
    results: &StudyResults,
    baselines: &Baselines,
    objective: &Objective,
    size: FrameSize,
) -> Result<ObjectiveVerdict, ReportError> {
    let against = against_text(objective);
    let mut verdict = ObjectiveVerdict {
        name: String::new(),
        case: objective.case.clone(),
        frame_size: size.to_string(),
        quantity: objective.measure().to_string(),
        against,
        unit: objective.unit(),
        rule: objective.rule(),
        judgement: judged(results, baselines, objective, size)?,
        profile: None,
    };
    if verdict.judgement.verdict == Verdict::Fail {
        let mut cases = results.file.cases.iter();
        let case = cases.find(|case| case.name == objective.case);
        verdict.profile = case.and_then(|case| of_worst(results, size, case, &objective.measure()));
    }
    verdict.name = objective.name.clone().unwrap_or_else(|| {
        format!(
            "{} of {} {}",
            verdict.quantity,
            verdict.case,
            verdict.bound_text()
        )
    });
    Ok(verdict)
}

fn against_text(objective: &Objective) -> Option<String> {
    let case = objective.against.as_ref();
    match (&objective.baseline, case) {
        (Some(path), Some(case)) => Some(format!("{case} in {}", path.display())),
        (Some(path), None) => Some(path.display().to_string()),
        (None, case) => case.cloned(),
    }
}

fn judged(
    results: &StudyResults,
    baselines: &Baselines,
    objective: &Objective,
    size: FrameSize,
) -> Result<Judgement, ReportError> {
    if results.file.quick {
        return Ok(Judgement::undecided(
            "--quick shortened the study, and its figures are not valid",
        ));
    }
    let find = |results: &StudyResults, name: &str| -> Option<Case> {
        let mut cases = results.file.cases.iter();
        cases.find(|case| case.name == name).cloned()
    };
    let (Some(rule), Some(case)) = (objective.rule(), find(results, &objective.case)) else {
        return Ok(Judgement::undecided("the study has no such case"));
    };
    let measure = objective.measure();
    let values = |results: &StudyResults, case: &Case| samples(results, size, case, &measure);
    let own = values(results, &case)?;
    let judgement = match (&objective.baseline, &objective.against) {
        (Some(path), _) => {
            let baseline = match baselines.get(path) {
                Some(Ok(baseline)) => baseline,
                Some(Err(reason)) => return Ok(Judgement::undecided(reason.as_str())),
                None => {
                    return Ok(Judgement::undecided(format!(
                        "the baseline {} was not read",
                        path.display()
                    )));
                }
            };
            let name = objective.against.as_ref().unwrap_or(&objective.case);
            let Some(other) = find(baseline, name) else {
                return Ok(Judgement::undecided(format!(
                    "the baseline {} has no case '{name}'",
                    path.display()
                )));
            };
            if !baseline.file.traffic.frame_sizes.contains(&size) {
                return Ok(Judgement::undecided(format!(
                    "the baseline {} has no frames of {size} octets",
                    path.display()
                )));
            }
            let others = values(baseline, &other)?;
            let judgement = judge_against_baseline(&rule, &own, &others);
            doubted(judgement, results, &case, size, Some((baseline, &other)))
        }
        (None, Some(name)) => {
            let Some(other) = find(results, name) else {
                return Ok(Judgement::undecided(format!(
                    "the study has no case '{name}'"
                )));
            };
            let others: Vec<Sample> = values(results, &other)?;
            let judgement = judge_ratio(&rule, &own, &others);
            doubted(judgement, results, &case, size, Some((results, &other)))
        }
        (None, None) => {
            let judgement = judge(&rule, &own);
            doubted(judgement, results, &case, size, None)
        }
    };
    Ok(judgement)
}

/// Removes verdicts that starved neighbours explain: a *pass* of a case whose neighbours hardly ran, and a *fail* against a case whose
/// neighbours hardly ran.
fn doubted(
    judgement: Judgement,
    results: &StudyResults,
    case: &Case,
    size: FrameSize,
    against: Option<(&StudyResults, &Case)>,
) -> Judgement {
    let own = starved(results, case, size);
    let other = against.and_then(|(results, case)| starved(results, case, size));
    let judgement = match own {
        Some(reason) => judgement.without(Verdict::Pass, &reason),
        None => judgement,
    };
    match other {
        Some(reason) => judgement.without(Verdict::Fail, &reason),
        None => judgement,
    }
}

fn starved(results: &StudyResults, case: &Case, size: FrameSize) -> Option<String> {
    if case.neighbours == NeighboursIn::None {
        return None;
    }
    let steps: Steps<'_> = results
        .steps
        .iter()
        .filter(|step| step.case_name == case.name && step.frame_size == size)
        .collect();
    let trials: Vec<_> = steps.iter().flat_map(|step| &step.trials).collect();
    let actions = steps.iter().flat_map(|step| &step.actions);
    let share = neighbours(&trials, actions)?.share.median;
    (share < STARVED).then(|| {
        format!(
            "the neighbours of {} got only {} of their CPUs",
            case.name,
            format::percent(share * 100.0)
        )
    })
}
