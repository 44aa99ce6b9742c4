// SPDX-License-Identifier: Apache-2.0
//! Round trips at a low load.

use maud::{Markup, html};
use quietwire_tester::{DelayVariation, PERCENTILES, TesterIdle};

use crate::chart::{legend, percentiles as percentile_chart, range};
use crate::format::{self, grouped};
use crate::summary::{CaseSummary, RoundTrip, SizeSummary};

pub(super) fn round_trip(size: &SizeSummary, idle: TesterIdle) -> Markup {
    let load = size.cases.iter().find_map(|case| case.round_trip.as_ref());
    html! {
        section {
            h2 { "Round trip" }
            @match load {
                None => p.none { "No valid latency trial received a frame." },
                Some(trip) => {
                    p.lead {
                        "The time of every frame from the tester through the device and back to the tester, at a low load of "
                        (format::rate(trip.offered_pps)) ". Marks are means; lines extend from the minimum to the maximum. "
                        @if idle == TesterIdle::Sleep {
                            "The tester sleeps between bursts: all times include the time until it wakes up. "
                        }
                        (own_part(trip))
                    }
                    figure { (range(&size.cases)) }
                    div.scroll role="region" tabindex="0" aria-label="Round trips" { (table(size)) }
                }
            }
        }
    }
}

/// Renders the share of the tester in all latencies, as far as it is known.
fn own_part(trip: &RoundTrip) -> Markup {
    html! {
        @match trip.own {
            Some(own) => {
                "All times include the latency of the tester itself. Its calibration measured " (format::time_ns(own.min_ns as f64)) ", "
                (format::time_ns(own.mean_ns)) " and " (format::time_ns(own.max_ns as f64)) " (minimum, mean, maximum). "
                "A time of which more than a tenth may be latency of the tester is withheld: < marks its upper bound."
            }
            None => {
                "All times include the latency of the tester itself, which is unknown because the tester is not calibrated."
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
                    th.num scope="col" { "median of trials" }
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
        return html! { tr { th scope="row" { (case.name) } td.dim colspan="11" { "no valid latency trial received a frame" } } };
    };
    let shown = |share: Option<f64>| share.map_or_else(|| "–".to_owned(), format::percent);
    let [min, mean, max] = trip.percent_of_baseline.map(shown);
    let own_max_ns = trip.own.map(|own| own.max_ns as f64);
    html! {
        tr {
            th scope="row" { (case.name) }
            td.num.first { (trip.min_text()) }
            td.num { (min) }
            td.num.first { (trip.mean_text()) }
            td.num.dim { (trial_means(trip)) }
            td.num { (mean) }
            td.num.first { (trip.max_text()) }
            td.num.dim { (format::latency_ns(trip.trial_maxima_ns.median, own_max_ns)) }
            td.num { (max) }
            td.num.first { (format::loss(trip.loss_ratio)) }
            td.num { (grouped(trip.frames)) }
            td.num { (trip.trials) }
        }
    }
}

fn trial_means(trip: &RoundTrip) -> String {
    let own_ns = trip.own.map(|own| own.mean_ns);
    format!(
        "{} to {}",
        format::latency_ns(trip.trial_means_ns.min, own_ns),
        format::latency_ns(trip.trial_means_ns.max, own_ns)
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
                "Percentiles of the same frames. A percentile is shown if at least ten frames lie beyond it. "
                "The maximum is a single frame."
            }
            (legend(size.cases.iter().map(|case| case.name.as_str())))
            figure { (percentile_chart(&size.cases)) }
            div.scroll role="region" tabindex="0" aria-label="Latency percentiles" {
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
                                    td.num { (trip.max_text()) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Renders delay variation, if trials measured it.
pub(super) fn variation(size: &SizeSummary) -> Markup {
    let trips = || {
        size.cases
            .iter()
            .filter_map(|case| Some((case.name.as_str(), case.round_trip.as_ref()?)))
    };
    if trips().all(|(_, trip)| trip.variation.pdv.samples == 0) {
        return html! {};
    }
    html! {
        section {
            h2 { "Delay variation" }
            p.lead {
                "Of the same trials (RFC 5481). IPDV is the latency of a frame minus that of the frame sent before it in the same flow, "
                "with its sign; it is undefined if either frame was lost. PDV is the latency of a frame minus the minimum of its trial. "
                "Measured on every frame, and on additional streams of a few frames per second."
            }
            div.scroll role="region" tabindex="0" aria-label="Delay variation" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th scope="col" { "Frames" }
                            th scope="col" { "What" }
                            th.num scope="col" { "smallest" }
                            @for percentile in PERCENTILES { th.num scope="col" { "p" (percentile) } }
                            th.num scope="col" { "p100" }
                            th.num scope="col" { "Values" }
                            th.num scope="col" { "Undefined" }
                        }
                    }
                    tbody {
                        @for (case, trip) in trips() {
                            (variation_rows(case, "every", &trip.variation))
                            (variation_rows(case, "low-rate", &trip.low_rate_variation))
                        }
                    }
                }
            }
        }
    }
}

fn variation_rows(case: &str, frames: &str, variation: &DelayVariation) -> Markup {
    let (ipdv, pdv) = (&variation.ipdv, &variation.pdv);
    if pdv.samples == 0 {
        return html! {};
    }
    let signed = |ns: Option<i64>| ns.map_or_else(|| "–".to_owned(), format::signed_time_ns);
    let plain = |ns: u64| format::time_ns(ns as f64);
    html! {
        tr {
            th scope="row" rowspan="2" { (case) }
            td rowspan="2" { (frames) }
            td { "IPDV" }
            td.num { (signed((ipdv.samples > 0).then_some(ipdv.min_ns))) }
            @for value in ipdv.percentiles() { td.num { (signed(value)) } }
            td.num { (signed((ipdv.samples > 0).then_some(ipdv.max_ns))) }
            td.num { (grouped(ipdv.samples)) }
            td.num { (grouped(ipdv.undefined)) }
        }
        tr {
            td { "PDV" }
            td.num { (plain(pdv.min_ns)) }
            @for value in pdv.percentiles() {
                td.num { (value.map_or_else(|| "–".to_owned(), plain)) }
            }
            td.num { (plain(pdv.max_ns)) }
            td.num { (grouped(pdv.samples)) }
            td.num { "–" }
        }
    }
}

fn percentile(trip: &RoundTrip, column: usize) -> String {
    match trip.percentiles.get(column) {
        Some(value) => value.text(),
        None => "too few frames".to_owned(),
    }
}
