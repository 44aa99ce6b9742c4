// SPDX-License-Identifier: Apache-2.0
//! The round trip at a low load.

use maud::{Markup, html};

use crate::chart::{legend, percentiles as percentile_chart, range};
use crate::format::{self, grouped};
use crate::summary::{CaseSummary, RoundTrip, SizeSummary};

pub(super) fn round_trip(size: &SizeSummary) -> Markup {
    let load = size.cases.iter().find_map(|case| case.round_trip.as_ref());
    html! {
        section {
            h2 { "Round trip" }
            @match load {
                None => p.none { "No valid latency trial is there." },
                Some(trip) => {
                    p.lead {
                        "The time from the tester through the device back to the tester, of every frame, at a low load of "
                        (format::rate(trip.offered_pps)) ". It holds the tester's own share. Marks are means, lines reach from the smallest to the largest."
                    }
                    figure { (range(&size.cases)) }
                    div.scroll { (table(size)) }
                }
            }
        }
    }
}

fn table(size: &SizeSummary) -> Markup {
    let baseline = size.cases.first().map_or("", |case| case.name.as_str());
    html! {
        table {
            thead {
                tr {
                    th rowspan="2" scope="col" { "Case" }
                    th.num colspan="2" scope="colgroup" { "Smallest" }
                    th.num colspan="3" scope="colgroup" { "Mean" }
                    th.num colspan="3" scope="colgroup" { "Largest" }
                    th.num rowspan="2" scope="col" { "Lost" }
                    th.num rowspan="2" scope="col" { "Frames" }
                    th.num rowspan="2" scope="col" { "Trials" }
                }
                tr {
                    th.num.first scope="col" { "time" }
                    th.num scope="col" { "% of " (baseline) }
                    th.num.first scope="col" { "all frames" }
                    th.num scope="col" { "trials" }
                    th.num scope="col" { "% of " (baseline) }
                    th.num.first scope="col" { "of all" }
                    th.num scope="col" { "middle trial" }
                    th.num scope="col" { "% of " (baseline) }
                }
            }
            tbody {
                @for case in &size.cases { (row(case)) }
            }
        }
    }
}

fn row(case: &CaseSummary) -> Markup {
    let Some(trip) = &case.round_trip else {
        return html! { tr { th scope="row" { (case.name) } td.dim colspan="11" { "no valid latency trial" } } };
    };
    let share = |pick: fn((f64, f64, f64)) -> f64| {
        trip.percent_of_baseline
            .map_or_else(|| "–".to_owned(), |shares| format::percent(pick(shares)))
    };
    html! {
        tr {
            th scope="row" { (case.name) }
            td.num.first { (format::time_ns(trip.min_ns as f64)) }
            td.num { (share(|shares| shares.0)) }
            td.num.first { (format::time_ns(trip.mean_ns)) }
            td.num.dim { (trial_means(trip)) }
            td.num { (share(|shares| shares.1)) }
            td.num.first { (format::time_ns(trip.max_ns as f64)) }
            td.num.dim { (format::time_ns(trip.trial_maxima_ns.median)) }
            td.num { (share(|shares| shares.2)) }
            td.num.first { (format::loss(trip.loss_ratio)) }
            td.num { (grouped(trip.frames)) }
            td.num { (trip.trials) }
        }
    }
}

fn trial_means(trip: &RoundTrip) -> String {
    format!(
        "{} to {}",
        format::time_ns(trip.trial_means_ns.min),
        format::time_ns(trip.trial_means_ns.max)
    )
}

pub(super) fn percentiles(size: &SizeSummary) -> Markup {
    let trips = || {
        size.cases
            .iter()
            .filter_map(|case| case.round_trip.as_ref())
    };
    let Some(longest) = trips().max_by_key(|trip| trip.percentiles.len()) else {
        return html! {};
    };
    html! {
        section {
            h2 { "Latency percentiles" }
            p.lead {
                "The same frames in order. A percentile is shown where at least ten frames lie beyond it: fewer would be luck. "
                "The largest is one frame."
            }
            (legend(size.cases.iter().map(|case| case.name.as_str())))
            figure { (percentile_chart(&size.cases)) }
            div.scroll {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            @for value in &longest.percentiles {
                                th.num scope="col" { "p" (value.percentile) }
                            }
                            th.num scope="col" { "largest" }
                        }
                    }
                    tbody {
                        @for case in &size.cases {
                            @if let Some(trip) = &case.round_trip {
                                tr {
                                    th scope="row" { (case.name) }
                                    @for column in 0..longest.percentiles.len() {
                                        td.num { (percentile(trip, column)) }
                                    }
                                    td.num { (format::time_ns(trip.max_ns as f64)) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn percentile(trip: &RoundTrip, column: usize) -> String {
    match trip.percentiles.get(column) {
        Some(value) => format::time_ns(value.latency_ns as f64),
        None => "too few frames".to_owned(),
    }
}
