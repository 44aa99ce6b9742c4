// SPDX-License-Identifier: Apache-2.0
//! Application measurements: TCP throughput and round trips of an echo service.

use maud::{Markup, html};

use crate::format::{self, THIN};
use crate::summary::{Applications, SizeSummary, Spread};

/// Renders the section. Returns nothing if the study measured no applications.
pub(super) fn applications(size: &SizeSummary) -> Markup {
    if size.cases.iter().all(|case| case.applications.is_none()) {
        return html! {};
    }
    html! {
        section {
            h2 { "Application throughput and round trips" }
            p.lead { "TCP throughput by iperf3 in each direction, and round trips of a UDP echo with one request at a time. Medians over the rounds, with their range." }
            div.scroll role="region" tabindex="0" aria-label="Application throughput and round trips" {
                table {
                    thead {
                        tr {
                            th scope="col" { "Case" }
                            th.num scope="col" { "TCP up, Gbit/s" }
                            th.num scope="col" { "rounds" }
                            th.num scope="col" { "TCP down, Gbit/s" }
                            th.num scope="col" { "rounds" }
                            th.num scope="col" { "Mean round trip" }
                            th.num scope="col" { "shortest" }
                            th.num scope="col" { "p99" }
                            th.num scope="col" { "longest" }
                        }
                    }
                    tbody {
                        @for case in &size.cases {
                            tr {
                                th scope="row" { (case.name) }
                                @match &case.applications {
                                    Some(observed) => (cells(observed)),
                                    None => { td colspan="8" { "not measured" } }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}

fn cells(observed: &Applications) -> Markup {
    html! {
        @for rate in [&observed.tcp_up_bps, &observed.tcp_down_bps] {
            td.num { (gbps(rate.median)) }
            td.num.dim { (range(rate)) }
        }
        td.num { (format::time_ns(observed.echo_mean_ns.median)) }
        td.num { (format::time_ns(observed.echo_min_ns as f64)) }
        td.num { (observed.echo_p99_ns.as_ref().map_or_else(|| "–".to_owned(), |p99| format::time_ns(p99.median))) }
        td.num { (format::time_ns(observed.echo_max_ns as f64)) }
    }
}

fn range(rate: &Spread) -> String {
    format!("{} to {}", gbps(rate.min), gbps(rate.max))
}

/// Formats a rate as a number of Gbit/s.
pub(crate) fn gbps(rate_bps: f64) -> String {
    format::number(rate_bps / 1e9)
}

/// Formats one case: `9.41 Gbit/s up, 9.40 down, mean round trip 31 µs`.
pub(crate) fn sentence(observed: &Applications) -> String {
    format!(
        "TCP {}{THIN}Gbit/s up, {} down, mean round trip {}",
        gbps(observed.tcp_up_bps.median),
        gbps(observed.tcp_down_bps.median),
        format::time_ns(observed.echo_mean_ns.median)
    )
}
