// SPDX-License-Identifier: Apache-2.0
//! Results of the methods other than search, sweep and latency at a low load, separately for each round.

use quietwire_search::procedure::{ProcedureEnd, ProcedureFindings};
use quietwire_search::{
    Findings, ForwardingRateFindings, LatencyLoad, LatencyPlanPoint, LossDistributionFindings,
    RateLosses, RepeatFindings, Sides, SoakEnd, SoakFindings, Statistics, ThroughputSearch,
};
use quietwire_study::{StepKind, StepRecord};
use quietwire_tester::DelayVariation;
use serde::Serialize;

use super::latency::{RoundTrip, of_trials};
use super::steps::Steps;
use crate::error::ReportError;

/// Percentiles of the trials whose losses are reported if there are enough trials, percent.
const LOSS_PERCENTILES: [f64; 5] = [50.0, 75.0, 90.0, 95.0, 99.0];

/// Result of one of these methods in one round.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MethodResult {
    /// Number of the round, from 0.
    pub round: u32,
    /// The figures, tagged with the method's name.
    #[serde(flatten)]
    pub figures: MethodFigures,
}

/// Figures by method.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "method")]
pub enum MethodFigures {
    /// Repeated searches.
    Repeat(RepeatedRates),
    /// Loss of many trials at a few rates.
    LossDistribution {
        /// One entry for each rate, ascending.
        rates: Vec<LossesAtRate>,
    },
    /// Forwarding rate under overload.
    #[serde(rename = "forwarding-rate-at-max-load")]
    ForwardingRate(ForwardingRateFindings),
    /// Latency at the rates that the search found.
    LatencyPlan {
        /// One entry for each load, ascending.
        loads: Vec<LatencyAtLoad>,
    },
    /// Load at which a tiny share of the frames is lost.
    Soak(SoakFindings),
    /// Procedure: bursts, overloads, restarts or addresses.
    Procedure {
        /// Findings; none if the procedure did not run, because the rate that it starts from was not found or is the
        /// highest offered.
        findings: Option<ProcedureFindings>,
        /// Name of the procedure.
        step: StepKind,
        /// Reason of an early end; none if it finished.
        failed: Option<String>,
    },
}

/// Rates of repeated searches, for one goal or side.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RepeatedRates {
    /// Goal, and side if there are two.
    pub name: String,
    /// Result of each search, frames per second; none for a search without one.
    pub results_pps: Vec<Option<f64>>,
    /// Statistics of the searches with a result.
    pub statistics: Option<Statistics>,
    /// Mean number of trials of one search, all goals or sides together.
    pub mean_trials: f64,
    /// Mean duration of one search, seconds, all goals or sides together.
    pub mean_duration_s: f64,
}

/// Loss of the trials at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LossesAtRate {
    /// Rate, frames per second.
    pub rate_pps: f64,
    /// Loss ratios of the valid trials, ascending.
    pub loss_ratios: Vec<f64>,
    /// Trials excluded because the tester failed.
    pub invalid: u32,
    /// Percent of the trials, and the loss ratio that they did not exceed; only those for which there are enough trials.
    pub percentiles: Vec<(f64, f64)>,
}

/// Latency at one load of the plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LatencyAtLoad {
    /// Load, frames per second.
    pub rate_pps: f64,
    /// Name of the load: `NDR`, `step under PDR`, `50 % of PDR`.
    pub stands_for: Vec<String>,
    /// Loss ratio of its trial; none if the tester failed.
    pub loss_ratio: Option<f64>,
    /// Round trips of its valid trial; none if no frame came back.
    #[serde(serialize_with = "super::latency::without_withheld")]
    pub round_trip: Option<RoundTrip>,
}

impl LatencyAtLoad {
    /// Returns the delay variation of its trial, or the reason why there is none, as a clause.
    pub(crate) fn variation(&self) -> Result<&DelayVariation, &'static str> {
        match &self.round_trip {
            Some(trip) if trip.variation.pdv.samples > 0 => Ok(&trip.variation),
            Some(_) => Err("not measured"),
            None if self.loss_ratio.is_none() => Err("the tester failed"),
            None => Err("no frame came back"),
        }
    }
}

/// Returns all results of one case, by step and round.
pub(super) fn method_tables(steps: &Steps<'_>) -> Result<Vec<MethodResult>, ReportError> {
    let mut results = Vec::new();
    for step in steps.iter().filter(|step| step.is_finished) {
        let Some(findings) = &step.findings else {
            results.extend(procedure(step));
            continue;
        };
        let figures = figures(step, findings)?;
        results.extend(figures.into_iter().map(|figures| MethodResult {
            round: step.round,
            figures,
        }));
    }
    Ok(results)
}

/// Returns the result of a step that is not a search.
fn procedure(step: &StepRecord) -> Option<MethodResult> {
    step.kind.is_procedure().then(|| MethodResult {
        round: step.round,
        figures: MethodFigures::Procedure {
            findings: step.procedure.as_ref().map(|found| found.findings.clone()),
            step: step.kind.clone(),
            failed: match step.procedure.as_ref().map(|found| &found.end) {
                Some(ProcedureEnd::Invalid { reasons, .. }) => Some(reasons.join("; ")),
                _ => None,
            },
        },
    })
}

fn figures(step: &StepRecord, findings: &Findings) -> Result<Vec<MethodFigures>, ReportError> {
    Ok(match findings {
        Findings::Repeat(found) => repeated(step, found),
        Findings::LossDistribution(found) => vec![distribution(found)],
        Findings::ForwardingRate(found) => vec![MethodFigures::ForwardingRate((**found).clone())],
        Findings::Soak(found) => vec![MethodFigures::Soak((**found).clone())],
        Findings::LatencyPlan(found) => {
            let loads = found.points.iter().map(|point| at_load(step, point));
            vec![MethodFigures::LatencyPlan {
                loads: loads.collect::<Result<_, _>>()?,
            }]
        }
        _ => Vec::new(),
    })
}

fn repeated(step: &StepRecord, found: &RepeatFindings) -> Vec<MethodFigures> {
    let names = names(step, found);
    let runs = found.runs.len().max(1) as f64;
    let of = |at: usize, name: String| RepeatedRates {
        name,
        results_pps: found
            .runs
            .iter()
            .map(|run| run.results_pps.get(at).copied().flatten())
            .collect(),
        statistics: found.statistics.get(at).copied().flatten(),
        mean_trials: found
            .runs
            .iter()
            .map(|run| f64::from(run.trials))
            .sum::<f64>()
            / runs,
        mean_duration_s: found.runs.iter().map(|run| run.duration_s).sum::<f64>() / runs,
    };
    let names = names.into_iter().enumerate();
    names
        .map(|(at, name)| MethodFigures::Repeat(of(at, name)))
        .collect()
}

/// Returns the names of the results of each run, in their order.
fn names(step: &StepRecord, found: &RepeatFindings) -> Vec<String> {
    let goal = match &step.kind {
        StepKind::Search(goal) => goal.clone(),
        other => other.to_string(),
    };
    match &found.config.search {
        ThroughputSearch::SingleRun(_) => vec![goal],
        ThroughputSearch::BestWorstOfN(config) => match config.sides {
            Sides::Best => vec![format!("{goal}, best of N")],
            Sides::Worst => vec![format!("{goal}, worst of N")],
            Sides::Both => vec![format!("{goal}, best of N"), format!("{goal}, worst of N")],
        },
        ThroughputSearch::MlrSearch(config) => config
            .goals
            .iter()
            .map(|goal| crate::format::allows(goal.loss_ratio.get()))
            .collect(),
    }
}

fn distribution(found: &LossDistributionFindings) -> MethodFigures {
    let of_rate = |rate: &RateLosses| LossesAtRate {
        rate_pps: rate.rate_pps,
        loss_ratios: rate.loss_ratios.clone(),
        invalid: rate.invalid,
        percentiles: LOSS_PERCENTILES
            .into_iter()
            .filter_map(|percent| Some((percent, rate.at(percent / 100.0)?)))
            .collect(),
    };
    let mut rates: Vec<LossesAtRate> = found.rates.iter().map(of_rate).collect();
    rates.sort_by(|one, other| one.rate_pps.total_cmp(&other.rate_pps));
    MethodFigures::LossDistribution { rates }
}

fn at_load(step: &StepRecord, planned: &LatencyPlanPoint) -> Result<LatencyAtLoad, ReportError> {
    let rate_pps = planned.point.rate_pps;
    let trials = step
        .trials
        .iter()
        .filter(|trial| trial.request.offered_rate_pps == rate_pps)
        .map(|trial| (step, trial));
    Ok(LatencyAtLoad {
        rate_pps,
        stands_for: planned.point.stands_for.iter().map(load_name).collect(),
        loss_ratio: planned.loss_ratio,
        round_trip: of_trials(trials)?,
    })
}

/// Returns the name of a load in reports and objectives.
pub(super) fn load_name(load: &LatencyLoad) -> String {
    match load {
        LatencyLoad::Ndr => "NDR".to_owned(),
        LatencyLoad::Pdr => "PDR".to_owned(),
        LatencyLoad::StepUnderNdr => "step under NDR".to_owned(),
        LatencyLoad::StepUnderPdr => "step under PDR".to_owned(),
        LatencyLoad::PartOfNdr { percent } => format!("{percent} % of NDR"),
        LatencyLoad::PartOfPdr { percent } => format!("{percent} % of PDR"),
    }
}

/// Returns why a soak has no full result.
pub(crate) fn soak_end(found: &SoakFindings) -> &'static str {
    match found.end {
        SoakEnd::InvalidTrials { .. } => "the tester failed",
        SoakEnd::Finished if found.is_over_range => "over the highest rate allowed",
        SoakEnd::Finished => "",
    }
}
