// SPDX-License-Identifier: Apache-2.0
//! Rankings of switches.

use maud::{Markup, html};

use super::words;
use crate::format;
use crate::summary::{RankedCase, Ranking, SizeSummary};

pub(super) fn rankings(size: &SizeSummary) -> Markup {
    html! {
        @if !size.rankings.is_empty() {
            section {
                h2 { "Ranking" }
                p.lead {
                    "Only switches over the same links are compared. A rate that the tester limited (≥) has no rank: the switch may forward "
                    "more than any other. Cycles per frame are those that the device counts itself, and in addition its CPU time divided by "
                    "the forwarded frames, which is measured in the same way for all devices."
                }
                @for ranking in &size.rankings {
                    h3 { (title(ranking)) }
                    div.scroll {
                        table {
                            thead {
                                tr {
                                    th.num scope="col" { "Rank" }
                                    th scope="col" { "Case" }
                                    th.num scope="col" { "Mpps" }
                                    th.num scope="col" { "rounds" }
                                    th.num scope="col" { "Cycles per frame, own account" }
                                    th.num scope="col" { "Cycles per frame, CPU time" }
                                    th scope="col" { "Limited by" }
                                }
                            }
                            tbody {
                                @for case in &ranking.cases { (row(case)) }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Returns the goal and what the cases have in common.
fn title(ranking: &Ranking) -> String {
    let mut parts = vec![
        format!("{} over {}", ranking.goal, ranking.links),
        ranking.topology.clone(),
        ranking.encapsulation.clone(),
    ];
    let counts = [
        (ranking.mac_addresses, "MAC addresses"),
        (ranking.ip_destinations, "IP destinations"),
        (u32::from(ranking.flows), "flows"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 1) {
        let count = format::grouped(u64::from(count));
        parts.push(format!("{count} {what} each way"));
    }
    parts.join(", ")
}

fn row(case: &RankedCase) -> Markup {
    let rate = match &case.rate_pps {
        Some(rate) if case.is_at_least => format!("≥\u{202f}{}", format::mpps(rate.median)),
        Some(rate) => format::mpps(rate.median),
        None => "–".to_owned(),
    };
    let rounds = case.rate_pps.as_ref().map(words::range_mpps);
    let limit = case.limited_by.map_or("–", |limiter| limiter.word());
    html! {
        tr {
            td.num { (case.rank.map_or_else(|| "–".to_owned(), |rank| rank.to_string())) }
            th scope="row" { (case.name) }
            td.num { (rate) }
            td.num.dim { (rounds.unwrap_or_default()) }
            td.num { (words::cycles(case.cycles.as_ref())) }
            td.num { (words::cycles(case.cpu_cycles.as_ref())) }
            td { (limit) }
        }
    }
}
