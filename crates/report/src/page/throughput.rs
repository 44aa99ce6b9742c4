// SPDX-License-Identifier: Apache-2.0
//! Rates found, forwarded and lost.

use maud::{Markup, html};
use quietwire_study::StudyResults;
use quietwire_tester::Directions;

use super::efficiency::efficiency;
use super::words;
use crate::chart::{Bar, BarGroup, LossView, bars, legend, loss as loss_chart};
use crate::format::{self, THIN};
use crate::summary::{CaseSummary, GoalSummary, SearchOutcome, SizeSummary, Spread};

/// Returns the number of trials at each rate, if it is more than one.
fn best_of(results: &StudyResults) -> Option<u32> {
    let search = results.file.search.as_ref()?;
    search.best_of.filter(|tries| *tries > 1)
}

/// Returns the title of the rates.
fn found(results: &StudyResults) -> &'static str {
    let search = results.file.search.as_ref();
    search.map_or("Forwarded frames", |search| search.method.rate_described())
}

/// Renders rates, both found and forwarded.
pub(super) fn is_wanted(results: &StudyResults) -> bool {
    results.file.search.is_some() || results.file.sweep.is_some()
}

/// Renders the cost per frame, for a study that measures no rates.
pub(super) fn cost(size: &SizeSummary) -> Markup {
    html! {
        @if size.cases.iter().any(|case| case.cycles.is_some()) {
            section {
                h2 { "Cost per frame" }
                table {
                    thead { tr { th scope="col" { "Case" } th.num scope="col" { "Cycles per frame" } } }
                    tbody {
                        @for case in &size.cases {
                            tr {
                                th scope="row" { (case.name) }
                                td.num { (words::cycles(case.cycles.as_ref())) }
                            }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn throughput(results: &StudyResults, size: &SizeSummary) -> Markup {
    let groups = groups(size);
    let both = results.file.traffic.directions == Directions::Both;
    html! {
        section {
            h2 { "Throughput" }
            p.lead {
                (found(results)) ", " (words::frames(size))
                @if both { ", summed over both directions" }
                ". Bars are medians over the rounds; dots are single rounds."
                @if let Some(tries) = best_of(results) {
                    " A rate fails after " (tries) " consecutive trials with too much loss."
                }
                @match size.max_rate_pps {
                    Some(max) => { " 100" (THIN) "% of the load is " (format::rate(max)) "." }
                    None => (of_each(size))
                }
            }
            @if !groups.is_empty() {
                figure { (bars(&groups, "Throughput of each case")) }
            }
            div.scroll role="region" tabindex="0" aria-label="Throughput" { (table(size, results.file.sweep.is_some())) }
            (efficiency(size))
            @let contradicted = contradictions(size);
            @if contradicted > 0 {
                p.note {
                    "In " (contradicted) " searches the device also lost too much at or below the rate that held: "
                    "a different order of trials may give a different rate."
                }
            }
        }
    }
}

/// Renders what 100 % of the load is, if it differs between cases.
fn of_each(size: &SizeSummary) -> Markup {
    let known = size.cases.iter();
    let known = known.filter_map(|case| Some((&case.name, case.max_rate_pps?)));
    let reported: Vec<String> = known
        .map(|(name, rate)| format!("{} for {name}", format::rate(rate)))
        .collect();
    html! {
        @if !reported.is_empty() { " 100" (THIN) "% of the load is " (reported.join(", ")) "." }
    }
}

fn groups(size: &SizeSummary) -> Vec<BarGroup> {
    let mut groups = Vec::new();
    let goals = size.cases.first().map_or(0, |case| case.goals.len());
    for index in 0..goals {
        let bars: Vec<Bar> = size
            .cases
            .iter()
            .enumerate()
            .filter_map(|(case, summary)| goal_bar(case, summary, summary.goals.get(index)?))
            .collect();
        let first = size.cases.first();
        let goal = first.and_then(|case| case.goals.get(index));
        if let Some(goal) = goal.filter(|_| !bars.is_empty()) {
            groups.push(BarGroup {
                title: format!("{}: {}", goal.name, format::allows(goal.loss_ratio)),
                bars,
            });
        }
        groups.extend(side_group(size, index, "best of N", |goal| {
            goal.best_pps.as_ref()
        }));
        groups.extend(side_group(size, index, "single", |goal| {
            goal.single_pps.as_ref()
        }));
    }
    let top: Vec<Bar> = size
        .cases
        .iter()
        .enumerate()
        .filter_map(|(case, summary)| {
            let top = summary.highest_load.as_ref()?;
            Some(Bar {
                case,
                name: summary.name.clone(),
                value: top.forwarding_pps.median,
                values: top.forwarding_pps.values.clone(),
                label: with_unit(&words::highest_load_value(top)),
            })
        })
        .collect();
    if !top.is_empty() {
        groups.push(BarGroup {
            title: "Forwarded at the highest load offered".to_owned(),
            bars: top,
        });
    }
    groups
}

/// Returns the rates beside the worst ones for the goal at an index; none unless a search had both sides.
fn side_group(
    size: &SizeSummary,
    index: usize,
    side: &str,
    rate: fn(&GoalSummary) -> Option<&Spread>,
) -> Option<BarGroup> {
    let goal = size.cases.first()?.goals.get(index)?;
    let bar = |(case, summary): (usize, &CaseSummary)| {
        let rate = rate(summary.goals.get(index)?)?;
        Some(Bar {
            case,
            name: summary.name.clone(),
            value: rate.median,
            values: rate.values.clone(),
            label: with_unit(&format::mpps(rate.median)),
        })
    };
    let bars: Vec<Bar> = size.cases.iter().enumerate().filter_map(bar).collect();
    (!bars.is_empty()).then(|| BarGroup {
        title: format!("{}, {side}: {}", goal.name, format::allows(goal.loss_ratio)),
        bars,
    })
}

fn goal_bar(case: usize, summary: &CaseSummary, goal: &GoalSummary) -> Option<Bar> {
    let rate = goal.rate_pps.as_ref()?;
    let text = words::goal_value(goal);
    Some(Bar {
        case,
        name: summary.name.clone(),
        value: rate.median,
        values: rate.values.clone(),
        label: if rate.median > 0.0 {
            with_unit(&text)
        } else {
            text
        },
    })
}

/// Formats a rate with its share: `6.40 · 97 %` becomes `6.40 Mpps · 97 %`.
fn with_unit(text: &str) -> String {
    match text.split_once(" · ") {
        Some((rate, share)) => format!("{rate}{THIN}Mpps · {share}"),
        None => format!("{text}{THIN}Mpps"),
    }
}

fn table(size: &SizeSummary, has_sweep: bool) -> Markup {
    let baseline = size.cases.first().map_or("", |case| case.name.as_str());
    let goals = size.cases.first().map(|case| &case.goals);
    let has_cycles = size.cases.iter().any(|case| case.cycles.is_some());
    let has_limits = size.cases.iter().any(CaseSummary::has_limits);
    let wire_bits = size.wire_bits();
    html! {
        table {
            thead {
                tr {
                    th rowspan="2" scope="col" { "Case" }
                    @for goal in goals.into_iter().flatten() {
                        th.num colspan="4" scope="colgroup" { (goal.name) ", " (format::allows(goal.loss_ratio)) }
                    }
                    @if has_sweep { th.num colspan="4" scope="colgroup" { "Forwarded at the highest load" } }
                    @if has_cycles { th.num rowspan="2" scope="col" { "Cycles per frame" } }
                    @if has_limits { th rowspan="2" scope="col" { "Limited by" } }
                }
                tr {
                    @for _ in goals.into_iter().flatten() {
                        (column_heads(baseline))
                    }
                    @if has_sweep { (column_heads(baseline)) }
                }
            }
            tbody {
                @for case in &size.cases {
                    tr {
                        th scope="row" { (case.name) }
                        @for goal in &case.goals { (goal_cells(goal, wire_bits)) }
                        @if has_sweep { (top_cells(case, wire_bits)) }
                        @if has_cycles { td.num { (words::cycles(case.cycles.as_ref())) } }
                        @if has_limits { td { (words::limit(case)) } }
                    }
                }
            }
        }
    }
}

fn column_heads(baseline: &str) -> Markup {
    html! {
        th.num.first scope="col" { "Mpps" }
        th.num scope="col" { "Gbit/s on the wire" }
        th.num scope="col" { "rounds" }
        th.num scope="col" { "% of " (baseline) }
    }
}

fn goal_cells(goal: &GoalSummary, wire_bits: Option<f64>) -> Markup {
    let (rate, rounds) = match &goal.rate_pps {
        Some(rate) if rate.median > 0.0 => {
            let at_least = if goal.is_lower_limit_only {
                "≥\u{202f}"
            } else {
                ""
            };
            (
                format!("{at_least}{}", format::mpps(rate.median)),
                words::range_mpps(rate),
            )
        }
        Some(rate) => (words::goal_value(goal), words::range_mpps(rate)),
        None => (words::goal_value(goal), String::new()),
    };
    html! {
        td.num.first { (rate) }
        td.num { (on_wire(goal.rate_pps.as_ref().map(|rate| rate.median), wire_bits)) }
        td.num.dim { (rounds) }
        td.num { (goal_percent(goal)) }
    }
}

fn goal_percent(goal: &GoalSummary) -> String {
    let nothing_held = goal
        .rate_pps
        .as_ref()
        .is_some_and(|rate| rate.median == 0.0);
    match goal.percent_of_baseline {
        Some(percent) => format::percent(percent),
        None if nothing_held => "none".to_owned(),
        None => "–".to_owned(),
    }
}

/// Formats a rate as Gbit/s on the wire.
fn on_wire(rate_pps: Option<f64>, wire_bits: Option<f64>) -> String {
    let bps = rate_pps.zip(wire_bits).map(|(rate, bits)| rate * bits);
    let bps = bps.filter(|bps| *bps > 0.0);
    bps.map_or_else(|| "–".to_owned(), |bps| format::number(bps / 1e9))
}

fn top_cells(case: &CaseSummary, wire_bits: Option<f64>) -> Markup {
    html! {
        @match &case.highest_load {
            Some(top) => {
                td.num.first title={ "offered: " (format::rate(top.offered_pps)) } { (format::mpps(top.forwarding_pps.median)) }
                td.num { (on_wire(Some(top.forwarding_pps.median), wire_bits)) }
                td.num.dim { (words::range_mpps(&top.forwarding_pps)) }
                td.num { (top.percent_of_baseline.map_or_else(|| "–".to_owned(), format::percent)) }
            }
            None => { td.num.first { "not measured" } td {} td {} td.num { "–" } }
        }
    }
}

fn contradictions(size: &SizeSummary) -> usize {
    let outcomes = size
        .cases
        .iter()
        .flat_map(|case| &case.goals)
        .flat_map(|goal| &goal.outcomes);
    outcomes
        .filter(|outcome| matches!(outcome, SearchOutcome::Held { contradictions, .. } if *contradictions > 0))
        .count()
}

pub(super) fn loss(size: &SizeSummary) -> Markup {
    let has_points = size.cases.iter().any(|case| !case.points.is_empty());
    html! {
        section {
            h2 { "Loss against offered load" }
            @if has_points {
                p.lead {
                    "Dots are valid trials; lines join the medians over the rounds at each load of the sweep. A load without valid trials is a gap, "
                    "marked ×. Left: all losses. "
                    "Right: losses up to 0.01" (THIN) "%; a line that ends at the top continues above."
                }
                (legend(size.cases.iter().map(|case| case.name.as_str())))
                div.pair {
                    figure { (loss_chart(&size.cases, LossView::Whole, &format!("whole-{}", size.frame_size))) }
                    figure { (loss_chart(&size.cases, LossView::Small, &format!("small-{}", size.frame_size))) }
                }
            } @else {
                p.none { "There is no valid trial of a search or sweep." }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_on_the_wire_has_preambles_and_gaps() {
        // 14.88 Mpps of 64 octets are 10 Gbit/s.
        assert_eq!(on_wire(Some(1e10 / 672.0), Some(672.0)), "10.0");
        assert_eq!(on_wire(Some(0.0), Some(672.0)), "–");
        assert_eq!(on_wire(Some(1e6), None), "–");
        assert_eq!(on_wire(None, Some(672.0)), "–");
    }
}
