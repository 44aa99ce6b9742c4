// SPDX-License-Identifier: Apache-2.0
//! Measured ratios next to published ones.

use quietwire_study::{PublishedFigure, StudyResults};
use serde::Serialize;

use super::case::CaseSummary;

/// A published configuration and its counterpart in this study.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedRow {
    /// Configuration, in the words of the source.
    pub configuration: String,
    /// Published number in its own terms, and whether it is a loss or a gain; none if the file does not say.
    pub quantity: Option<String>,
    /// Place in the source; none if the file does not say.
    pub place: Option<String>,
    /// Throughput relative to the other configuration, minimum and maximum.
    pub throughput: Option<[f64; 2]>,
    /// Mean round trip relative to the other configuration, minimum and maximum.
    pub round_trip: Option<[f64; 2]>,
    /// Measured ratios; none without a corresponding case.
    pub measured: Option<MeasuredRatios>,
    /// Why there is no corresponding case.
    pub unanswered: Option<String>,
}

/// One case relative to another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRatios {
    /// The case.
    pub case: String,
    /// Case that it is compared with.
    pub against: String,
    /// Rates of the goals, in their order; none if one of the two cases has no rate.
    pub goals: Vec<Option<f64>>,
    /// Forwarding rate at the highest load.
    pub highest_load: Option<f64>,
    /// Mean round trips: of the echo if applications were measured, otherwise of frames at a low load.
    pub round_trip: Option<f64>,
    /// TCP throughput up and down, if applications were measured.
    pub tcp: Option<[f64; 2]>,
}

pub(super) fn rows(results: &StudyResults, cases: &[CaseSummary]) -> Vec<PublishedRow> {
    let figures = results.file.published.iter();
    let figures = figures.flat_map(|published| &published.figures);
    figures.map(|figure| row(results, cases, figure)).collect()
}

fn row(results: &StudyResults, cases: &[CaseSummary], figure: &PublishedFigure) -> PublishedRow {
    let answer = answer(results, cases, figure);
    PublishedRow {
        configuration: figure.configuration.clone(),
        quantity: figure.quantity.clone(),
        place: figure.place.clone(),
        throughput: figure.throughput.map(|ratio| ratio.bounds()),
        round_trip: figure.round_trip.map(|ratio| ratio.bounds()),
        unanswered: answer.as_ref().err().cloned(),
        measured: answer.ok(),
    }
}

/// Returns the ratios, or why there are none.
fn answer(
    results: &StudyResults,
    cases: &[CaseSummary],
    figure: &PublishedFigure,
) -> Result<MeasuredRatios, String> {
    let Some(name) = &figure.case else {
        let why = figure.otherwise.as_deref();
        return Err(why.unwrap_or("not in this study").to_owned());
    };
    let first = results.file.cases.first().map(|case| &case.name);
    let against = figure.against.as_ref().or(first).unwrap_or(name);
    let found = |name: &String| {
        let case = cases.iter().find(|case| case.name == *name);
        case.ok_or_else(|| match results.unavailable(name) {
            Some(why) => format!("{name} is unavailable on this machine: {why}"),
            None => format!("{name} was not measured"),
        })
    };
    let (case, base) = (found(name)?, found(against)?);
    let over = |value: Option<f64>, base: Option<f64>| {
        let (value, base) = (value?, base?);
        (value > 0.0 && base > 0.0).then(|| value / base)
    };
    let goals = case.goals.iter().zip(&base.goals).map(|(goal, base)| {
        let rate = |goal: &super::GoalSummary| goal.rate_pps.as_ref().map(|rate| rate.median);
        over(rate(goal), rate(base))
    });
    let top = |case: &CaseSummary| {
        let top = case.highest_load.as_ref();
        top.map(|top| top.forwarding_pps.median)
    };
    let echo = |case: &CaseSummary| case.applications.as_ref().map(|it| it.echo_mean_ns.median);
    let trip = |case: &CaseSummary| case.round_trip.as_ref()?.known_ns()[1];
    let tcp = |of: fn(&super::Applications) -> f64| {
        over(
            case.applications.as_ref().map(of),
            base.applications.as_ref().map(of),
        )
    };
    let up = tcp(|it| it.tcp_up_bps.median);
    let down = tcp(|it| it.tcp_down_bps.median);
    Ok(MeasuredRatios {
        case: name.clone(),
        against: against.clone(),
        goals: goals.collect(),
        highest_load: over(top(case), top(base)),
        round_trip: over(echo(case), echo(base)).or(over(trip(case), trip(base))),
        tcp: up.zip(down).map(|(up, down)| [up, down]),
    })
}
