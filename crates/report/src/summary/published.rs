// SPDX-License-Identifier: Apache-2.0
//! What was measured, as ratios beside those that others published.

use quietwire_study::{PublishedFigure, StudyResults};
use serde::Serialize;

use super::case::CaseSummary;

/// One published configuration, and what answers to it here.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PublishedRow {
    /// The configuration, as it was published.
    pub configuration: String,
    /// The published number in its own terms, and whether it is a loss or a gain; none where the file does not say.
    pub quantity: Option<String>,
    /// Where it stands in the source; none where the file does not say.
    pub place: Option<String>,
    /// Its throughput over that of the other configuration, from and to.
    pub throughput: Option<[f64; 2]>,
    /// Its mean round trip over that of the other configuration, from and to.
    pub round_trip: Option<[f64; 2]>,
    /// What was measured; none where nothing answers to it.
    pub measured: Option<MeasuredRatios>,
    /// Why nothing does.
    pub unanswered: Option<String>,
}

/// One case over another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MeasuredRatios {
    /// The case.
    pub case: String,
    /// The case that it is set against.
    pub against: String,
    /// Rates of the goals, in their order; none where one of the two has no rate.
    pub goals: Vec<Option<f64>>,
    /// What was forwarded at the highest load.
    pub highest_load: Option<f64>,
    /// Mean round trips: of the echo where applications were measured, else of frames at a low load.
    pub round_trip: Option<f64>,
    /// TCP throughput up and down, where applications were measured.
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

/// The ratios, or why there are none.
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
    let trip = |case: &CaseSummary| case.round_trip.as_ref().map(|trip| trip.mean_ns);
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
