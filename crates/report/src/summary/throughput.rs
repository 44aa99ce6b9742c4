// SPDX-License-Identifier: Apache-2.0
//! Rates found by searches, and loss against load.

mod rates;

use std::ops::Range;

use quietwire_search::{
    Attempt, Findings, MlrEnd, MlrIrregularity, Readings, SearchEnd, SideFindings,
};
use quietwire_study::{Goal, StepKind, StepRecord, TrialRecord};
use quietwire_tester::TrialResult;

use super::case::CaseSummary;
use super::cycles::element_of;
use super::spread::Spread;
use super::steps::{Steps, of_kind};

pub use rates::{GoalSummary, HighestLoad, LossPoint, SearchOutcome, SweepPoint};

/// Returns the summaries of the goals of one case, in the order of the goals.
///
/// A rate that held for a goal also holds for any goal that allows more loss. If the search for the latter ended below, its
/// outcome is replaced by that of the former, round by round.
pub(super) fn of_goals<'a>(
    steps: &Steps<'_>,
    goals: impl Iterator<Item = &'a Goal>,
) -> Vec<GoalSummary> {
    let goals: Vec<&Goal> = goals.collect();
    let found: Vec<Searched> = goals
        .iter()
        .enumerate()
        .map(|(index, goal)| outcomes(steps, index, goal))
        .collect();
    let summaries = goals.iter().zip(&found).map(|(goal, own)| {
        let mut own = own.clone();
        for (stricter, theirs) in goals.iter().zip(&found) {
            if stricter.loss_ratio < goal.loss_ratio {
                raise_to_stricter(&mut own.outcomes, &theirs.outcomes);
                lift_readings(&mut own.readings, &theirs.readings);
                lift_rates(&mut own.best_pps, &theirs.best_pps);
                lift_rates(&mut own.single_pps, &theirs.single_pps);
            }
        }
        summary(goal, own)
    });
    summaries.collect()
}

/// Outcomes of the searches for one goal, and the readings with their invalid trials counted; one of each for each search.
#[derive(Clone, Debug, Default)]
struct Searched {
    outcomes: Vec<SearchOutcome>,
    readings: Vec<Option<Readings>>,
    /// Rate of the best side of each outcome, frames per second; none unless both sides were searched, and if the tester failed.
    best_pps: Vec<Option<f64>>,
    /// Rate by the first trials of each outcome, frames per second; none as for the best side.
    single_pps: Vec<Option<f64>>,
}

/// Raises rates to those of a stricter goal in the same round.
fn lift_rates(own: &mut [Option<f64>], stricter: &[Option<f64>]) {
    for (own, stricter) in own.iter_mut().zip(stricter) {
        if let (Some(own_pps), Some(stricter_pps)) = (own, stricter) {
            *own_pps = own_pps.max(*stricter_pps);
        }
    }
}

/// Raises readings to those of a stricter goal in the same round.
fn lift_readings(own: &mut [Option<Readings>], stricter: &[Option<Readings>]) {
    for (own, stricter) in own.iter_mut().zip(stricter) {
        if let (Some(own), Some(stricter)) = (own, stricter) {
            let higher = |one: Option<f64>, other| one.into_iter().chain(other).reduce(f64::max);
            let before = (own.all_lost_pps, own.all_held_pps);
            own.all_lost_pps = higher(own.all_lost_pps, stricter.all_lost_pps);
            own.all_held_pps = higher(own.all_held_pps, stricter.all_held_pps);
            // A raised reading depends on the invalid trials of the stricter goal.
            if before != (own.all_lost_pps, own.all_held_pps) {
                own.invalid_trials = own.invalid_trials.max(stricter.invalid_trials);
            }
        }
    }
}

/// Replaces outcomes that are below those of a stricter goal in the same round. If the tester failed in the goal's own search, the rate of
/// the stricter goal is a lower bound.
fn raise_to_stricter(own: &mut [SearchOutcome], stricter: &[SearchOutcome]) {
    for (own, stricter) in own.iter_mut().zip(stricter) {
        let Some(proven) = stricter.counted_rate().filter(|rate| *rate > 0.0) else {
            continue;
        };
        if *own == SearchOutcome::TesterFailed {
            *own = SearchOutcome::AtLeast { rate_pps: proven };
        } else if own.counted_rate().is_some_and(|rate| proven > rate) {
            *own = match *stricter {
                SearchOutcome::Held {
                    rate_pps,
                    contradictions,
                } => SearchOutcome::Held {
                    rate_pps,
                    // Trials that ended the goal's own search below.
                    contradictions: contradictions.saturating_add(1),
                },
                other => other,
            };
        }
    }
}

fn outcomes(steps: &Steps<'_>, index: usize, goal: &Goal) -> Searched {
    let mut all = Searched::default();
    let alone = StepKind::Search(goal.name.clone());
    for kind in [&alone, &StepKind::Goals] {
        for step in of_kind(steps, kind) {
            let attempts = step.attempts();
            for run in each_run(step) {
                let (outcome, readings) = match (kind, run.findings) {
                    (_, None) => (SearchOutcome::Unfinished, None),
                    (StepKind::Goals, Some(findings)) => (
                        outcome_of_goal(findings, index),
                        of_run(&attempts, &run, findings).get(index).copied(),
                    ),
                    // If there are two sides, the worst one, which is the last.
                    (_, Some(findings)) => (
                        outcome(step, findings),
                        of_run(&attempts, &run, findings).last().copied(),
                    ),
                };
                let trials = step.trials.get(run.trials.clone()).unwrap_or_default();
                all.outcomes.push(outcome.achieved(trials, goal.loss_ratio));
                let rate_of = |side: Option<&SideFindings>| {
                    let outcome = of_side(step, side?).achieved(trials, goal.loss_ratio);
                    outcome.counted_rate()
                };
                let [best, single] = run.findings.map_or([None; 2], beside_worst);
                all.best_pps.push(rate_of(best));
                all.single_pps.push(rate_of(single));
                all.readings.push(readings);
            }
        }
    }
    all
}

/// Returns the readings of one search of a step.
fn of_run(attempts: &[Attempt], run: &Run<'_>, findings: &Findings) -> Vec<Readings> {
    let own = attempts.get(run.trials.clone()).unwrap_or_default();
    findings.readings(own)
}

impl SearchOutcome {
    /// Returns the outcome with the achieved rate of the tester: that of the trial that held with the lowest one.
    fn achieved(mut self, trials: &[TrialRecord], loss_ratio: f64) -> Self {
        if let Self::Held { rate_pps, .. } | Self::AtLeast { rate_pps } = &mut self {
            let held = trials.iter().filter(|trial| {
                trial.request.offered_rate_pps == *rate_pps
                    && trial.result.is_valid()
                    && trial.result.loss_ratio <= loss_ratio
            });
            let achieved = held.map(|trial| trial.result.achieved_rate_pps);
            *rate_pps = achieved.reduce(f64::min).unwrap_or(*rate_pps);
        }
        self
    }
}

fn summary(goal: &Goal, searched: Searched) -> GoalSummary {
    let Searched {
        outcomes,
        readings,
        best_pps,
        single_pps,
    } = searched;
    let rates = outcomes.iter().filter_map(|outcome| outcome.counted_rate());
    let rate_pps = Spread::of(rates.collect());
    let is_limit = |outcome: &SearchOutcome, rate: &Spread| matches!(outcome, SearchOutcome::AtLeast { rate_pps } if rate.depends_on(*rate_pps));
    let is_lower_limit_only = rate_pps
        .as_ref()
        .is_some_and(|rate| outcomes.iter().any(|outcome| is_limit(outcome, rate)));
    GoalSummary {
        name: goal.name.clone(),
        loss_ratio: goal.loss_ratio,
        outcomes,
        readings,
        rate_pps,
        best_pps: Spread::of(best_pps.into_iter().flatten().collect()),
        single_pps: Spread::of(single_pps.into_iter().flatten().collect()),
        is_lower_limit_only,
        percent_of_baseline: None,
    }
}

/// A search of a step.
struct Run<'a> {
    /// None if the step is not finished.
    findings: Option<&'a Findings>,
    /// Range of its trials in the step.
    trials: Range<usize>,
}

/// Returns the search of a step, or each of its repeats.
fn each_run(step: &StepRecord) -> Vec<Run<'_>> {
    let Some(Findings::Repeat(found)) = step.findings.as_ref().filter(|_| step.is_finished) else {
        return vec![Run {
            findings: step.findings.as_ref().filter(|_| step.is_finished),
            trials: 0..step.trials.len(),
        }];
    };
    let mut first = 0_usize;
    let runs = found.runs.iter().map(|run| {
        let trials = first..first.saturating_add(run.trials as usize);
        first = trials.end;
        Run {
            findings: Some(&run.findings),
            trials,
        }
    });
    runs.collect()
}

fn outcome(step: &StepRecord, findings: &Findings) -> SearchOutcome {
    match findings {
        Findings::SingleRun(found) => of_rate(
            &found.end,
            found.highest_held_pps,
            found.lost_at_or_under_highest_held,
            step,
        ),
        Findings::BestWorst(found) => match found.worst.as_ref().or(found.best.as_ref()) {
            Some(side) => of_side(step, side),
            None => SearchOutcome::Unfinished,
        },
        _ => SearchOutcome::Unfinished,
    }
}

fn of_side(step: &StepRecord, side: &SideFindings) -> SearchOutcome {
    of_rate(
        &side.end,
        side.highest_held_pps,
        side.lost_at_or_under_highest_held,
        step,
    )
}

/// Returns the best side of a search of both sides, and its search by the first trials.
fn beside_worst(findings: &Findings) -> [Option<&SideFindings>; 2] {
    match findings {
        Findings::BestWorst(found) if found.worst.is_some() => {
            [found.best.as_ref(), found.single.as_ref()]
        }
        _ => [None; 2],
    }
}

/// Returns the outcome of the goal at `index` in a search for all goals.
fn outcome_of_goal(findings: &Findings, index: usize) -> SearchOutcome {
    let Findings::MlrSearch(found) = findings else {
        return SearchOutcome::Unfinished;
    };
    let Some(goal) = found.goals.get(index) else {
        return SearchOutcome::Unfinished;
    };
    match (&found.end, goal.irregularity, goal.lower, goal.upper) {
        (_, None, Some(lower), _) => SearchOutcome::Held {
            rate_pps: lower.rate_pps,
            contradictions: 0,
        },
        (MlrEnd::InvalidTrials { .. }, ..) => SearchOutcome::TesterFailed,
        (MlrEnd::Finished, Some(MlrIrregularity::NoUpperBound), Some(lower), _) => {
            SearchOutcome::AtLeast {
                rate_pps: lower.rate_pps,
            }
        }
        (MlrEnd::Finished, Some(MlrIrregularity::NoLowerBound), _, Some(upper)) => {
            SearchOutcome::NothingHeld {
                lowest_tried_pps: upper.rate_pps,
            }
        }
        _ => SearchOutcome::Unfinished,
    }
}

fn of_rate(
    end: &SearchEnd,
    highest_held_pps: Option<f64>,
    contradictions: u32,
    step: &StepRecord,
) -> SearchOutcome {
    let lowest_tried_pps = step
        .trials
        .iter()
        .filter(|trial| trial.result.is_valid())
        .map(|trial| trial.request.offered_rate_pps)
        .reduce(f64::min);
    match (end, highest_held_pps) {
        (SearchEnd::InvalidTrials { .. }, _) => SearchOutcome::TesterFailed,
        (SearchEnd::TrialLimit, _) => SearchOutcome::Unfinished,
        (SearchEnd::HeldAtMaxRate, Some(rate_pps)) => SearchOutcome::AtLeast { rate_pps },
        (_, Some(rate_pps)) => SearchOutcome::Held {
            rate_pps,
            contradictions,
        },
        (_, None) => match lowest_tried_pps {
            Some(lowest_tried_pps) => SearchOutcome::NothingHeld { lowest_tried_pps },
            None => SearchOutcome::TesterFailed,
        },
    }
}

/// Returns the loads of the sweep with the trials at each, in ascending order.
fn loads<'a>(steps: &'a Steps<'_>) -> Vec<(f64, Vec<&'a TrialRecord>)> {
    let mut loads: Vec<(f64, Vec<_>)> = Vec::new();
    for trial in of_kind(steps, &StepKind::Sweep).flat_map(|step| &step.trials) {
        let load = trial.request.offered_rate_pps;
        match loads.iter_mut().find(|(known, _)| *known == load) {
            Some((_, trials)) => trials.push(trial),
            None => loads.push((load, vec![trial])),
        }
    }
    loads.sort_by(|one, other| one.0.total_cmp(&other.0));
    loads
}

pub(super) fn sweep(steps: &Steps<'_>) -> Vec<SweepPoint> {
    let of_load = |(load_pps, all): (f64, Vec<&TrialRecord>)| {
        let valid = || all.iter().filter(|trial| trial.result.is_valid());
        let known = |figure: fn(&TrialRecord) -> Option<f64>| {
            Spread::of(valid().filter_map(|trial| figure(trial)).collect())
        };
        let spread = |figure: fn(&TrialResult) -> f64| {
            Spread::of(valid().map(|trial| figure(&trial.result)).collect())
        };
        SweepPoint {
            load_pps,
            offered_pps: spread(|result| result.achieved_rate_pps)
                .map_or(load_pps, |achieved| achieved.median),
            loss_ratio: spread(|result| result.loss_ratio),
            forwarding_pps: spread(|result| result.forwarding_rate_pps),
            latency_p99_ns: known(|trial| trial.result.latency.p99_ns.map(|ns| ns as f64)),
            device_cpus: known(device_cpus),
            lost_frames: valid().map(|trial| trial.result.lost_frames).sum(),
            offered_frames: valid().map(|trial| trial.result.offered_frames).sum(),
            trials: all.len(),
            valid_trials: valid().count(),
        }
    };
    loads(steps).into_iter().map(of_load).collect()
}

/// Returns the CPU time of the device per second.
fn device_cpus(trial: &TrialRecord) -> Option<f64> {
    let elapsed_s = trial.activity.machine.as_ref()?.elapsed_s;
    let element = element_of(trial)?;
    (elapsed_s > 0.0).then(|| element.cpu_time_s / elapsed_s)
}

/// Sets the highest load of each case: the highest at which all cases with the same 100 % had a valid trial. Cases at different loads
/// cannot be compared.
pub(super) fn set_highest_loads(cases: &mut [CaseSummary]) {
    let highest: Vec<Option<HighestLoad>> = cases
        .iter()
        .map(|case| {
            let alike = cases
                .iter()
                .filter(|other| other.max_rate_pps == case.max_rate_pps);
            let sweeps: Vec<&[SweepPoint]> = alike.map(|other| &other.sweep[..]).collect();
            highest_common(&case.sweep, &sweeps)
        })
        .collect();
    for (case, highest) in cases.iter_mut().zip(highest) {
        case.highest_load = highest;
    }
}

/// Returns the highest load with valid trials in this sweep and in all other sweeps with loads.
fn highest_common(own: &[SweepPoint], others: &[&[SweepPoint]]) -> Option<HighestLoad> {
    own.iter().rev().find_map(|point| {
        let mut others = others.iter().filter(|sweep| !sweep.is_empty());
        let have_all = others.all(|sweep| has_valid(sweep, point.load_pps));
        Some(HighestLoad {
            offered_pps: point.offered_pps,
            forwarding_pps: point.forwarding_pps.clone().filter(|_| have_all)?,
            percent_of_baseline: None,
        })
    })
}

fn has_valid(sweep: &[SweepPoint], load: f64) -> bool {
    sweep
        .iter()
        .any(|point| point.load_pps == load && point.forwarding_pps.is_some())
}

pub(super) fn points(steps: &Steps<'_>) -> Vec<LossPoint> {
    steps
        .iter()
        .filter(|step| !matches!(step.kind, StepKind::Latency | StepKind::LatencyPlan))
        .flat_map(|step| &step.trials)
        .filter(|trial| trial.result.is_valid())
        .map(|trial| LossPoint {
            offered_pps: trial.result.achieved_rate_pps,
            loss_ratio: trial.result.loss_ratio,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_of_the_best_side_is_raised_to_that_of_the_same_round() {
        let mut own = [Some(1.0), None, Some(3.0)];
        lift_rates(&mut own, &[Some(2.0), Some(9.0), Some(2.0)]);
        assert_eq!(own, [Some(2.0), None, Some(3.0)]);
    }

    #[test]
    fn the_highest_load_is_common_to_all_cases() {
        let sweep = |valid: &[(f64, f64)], invalid: &[f64]| {
            let mut points: Vec<SweepPoint> = valid
                .iter()
                .map(|(load_pps, forwarded)| SweepPoint {
                    load_pps: *load_pps,
                    offered_pps: *load_pps,
                    loss_ratio: Spread::of(vec![0.0]),
                    forwarding_pps: Spread::of(vec![*forwarded]),
                    latency_p99_ns: None,
                    device_cpus: None,
                    lost_frames: 0,
                    offered_frames: 1_000_000,
                    trials: 1,
                    valid_trials: 1,
                })
                .collect();
            points.extend(invalid.iter().map(|load_pps| SweepPoint {
                load_pps: *load_pps,
                offered_pps: *load_pps,
                loss_ratio: None,
                forwarding_pps: None,
                latency_p99_ns: None,
                device_cpus: None,
                lost_frames: 0,
                offered_frames: 0,
                trials: 1,
                valid_trials: 0,
            }));
            points
        };
        let whole = sweep(&[(1e6, 1e6), (2e6, 1.5e6)], &[]);
        let cut = sweep(&[(1e6, 0.9e6)], &[2e6]);
        let none = sweep(&[], &[]);
        let found = |own: &[SweepPoint], others: &[&[SweepPoint]]| {
            highest_common(own, others).map(|top| (top.offered_pps, top.forwarding_pps.median))
        };
        assert_eq!(found(&whole, &[&whole, &none]), Some((2e6, 1.5e6)));
        assert_eq!(found(&whole, &[&whole, &cut]), Some((1e6, 1e6)));
        assert_eq!(found(&cut, &[&whole, &cut]), Some((1e6, 0.9e6)));
        assert_eq!(found(&none, &[&whole, &none]), None);
    }

    #[test]
    fn no_goal_is_below_a_stricter_one() {
        let held = |rate_pps| SearchOutcome::Held {
            rate_pps,
            contradictions: 0,
        };
        let ndr = [
            held(1.45e6),
            held(1e6),
            SearchOutcome::TesterFailed,
            SearchOutcome::AtLeast { rate_pps: 9e6 },
            held(5e6),
            SearchOutcome::NothingHeld {
                lowest_tried_pps: 1e6,
            },
        ];
        let mut pdr = [
            held(0.38e6),
            held(2e6),
            held(3e6),
            SearchOutcome::NothingHeld {
                lowest_tried_pps: 1e6,
            },
            SearchOutcome::TesterFailed,
            SearchOutcome::TesterFailed,
        ];
        raise_to_stricter(&mut pdr, &ndr);
        assert_eq!(
            pdr,
            [
                SearchOutcome::Held {
                    rate_pps: 1.45e6,
                    contradictions: 1
                },
                held(2e6),
                held(3e6),
                SearchOutcome::AtLeast { rate_pps: 9e6 },
                SearchOutcome::AtLeast { rate_pps: 5e6 },
                // Even the lowest rate did not hold for the stricter goal.
                SearchOutcome::TesterFailed,
            ]
        );
    }
}
