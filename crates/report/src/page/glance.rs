// SPDX-License-Identifier: Apache-2.0
//! Results at a glance: one row for each case. It replaces the sentences if a study has many cases.

use maud::{Markup, html};

use super::words;
use crate::format;
use crate::summary::{CaseSummary, SizeSummary};

pub(super) fn glance(size: &SizeSummary) -> Markup {
    let goals = || size.cases.first().into_iter().flat_map(|case| &case.goals);
    let has_round_trip = size.cases.iter().any(|case| case.round_trip.is_some());
    let has_cycles = size.cases.iter().any(|case| case.cycles.is_some());
    let has_limits = size.cases.iter().any(CaseSummary::has_limits);
    html! {
        div.scroll role="region" tabindex="0" aria-label="Results of all cases" {
            table.glance {
                thead {
                    tr {
                        th scope="col" { "Case" }
                        @for goal in goals() {
                            th.num scope="col" { (goal.name) ", " (format::allows(goal.loss_ratio)) ", Mpps" }
                        }
                        @if has_round_trip { th.num scope="col" { "Mean round trip" } }
                        @if has_cycles { th.num scope="col" { "Cycles per frame" } }
                        @if has_limits { th scope="col" { "Limited by" } }
                    }
                }
                tbody {
                    @for case in &size.cases {
                        (row(case, has_round_trip, has_cycles, has_limits))
                    }
                }
            }
        }
    }
}

fn row(case: &CaseSummary, has_round_trip: bool, has_cycles: bool, has_limits: bool) -> Markup {
    let round_trip = case.round_trip.as_ref().map(words::mean_round_trip);
    html! {
        tr {
            th scope="row" { (case.name) }
            @for goal in &case.goals { td.num { (words::goal_value(goal)) } }
            @if has_round_trip { td.num { (round_trip.unwrap_or_else(|| "–".to_owned())) } }
            @if has_cycles { td.num { (words::cycles(case.cycles.as_ref())) } }
            @if has_limits { td { (words::limit(case)) } }
        }
    }
}
