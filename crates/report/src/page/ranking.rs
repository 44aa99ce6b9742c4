// SPDX-License-Identifier: Apache-2.0
//! Rankings of switches.

use maud::{Markup, html};

use super::words;
use crate::format;
use crate::summary::{CpuRate, CyclesPerFrame, RankedCase, Ranking, SizeSummary};

pub(super) fn rankings(size: &SizeSummary) -> Markup {
    html! {
        @if !size.rankings.is_empty() {
            section {
                h2 { "Ranking" }
                p.lead {
                    "Only switches over the same links are compared. A rate that the tester limited (≥) has no rank: the switch may forward "
                    "more than any other. Cycles per frame are those that the device counts itself, and in addition its CPU time divided by "
                    "the forwarded frames, which is measured in the same way for all devices. VPP counts the empty polls of its input node "
                    "together with its frames, so its account has a figure without this node, and one with it. The rate at a full "
                    "CPU is the number of forwarded frames per second of that CPU time."
                }
                @for ranking in &size.rankings {
                    h3 { (title(ranking)) }
                    div.scroll role="region" tabindex="0" aria-label=(title(ranking)) {
                        table {
                            thead { (head()) }
                            tbody {
                                @for case in &ranking.cases { (row(case)) }
                            }
                        }
                    }
                    @for sentence in accounts(ranking) { p.dim { (sentence) } }
                }
            }
        }
    }
}

/// Names of the columns.
pub(crate) const HEADER: [&str; 8] = [
    "Rank",
    "Case",
    "Mpps",
    "rounds",
    "Cycles per frame, own account",
    "Cycles per frame, CPU time",
    "Mpps at a full CPU",
    "Limited by",
];

fn head() -> Markup {
    let [rank, case, numbers @ .., limit] = HEADER;
    html! {
        tr {
            th.num scope="col" { (rank) }
            th scope="col" { (case) }
            @for number in numbers { th.num scope="col" { (number) } }
            th scope="col" { (limit) }
        }
    }
}

/// Returns the goal and the common properties of the cases.
pub(crate) fn title(ranking: &Ranking) -> String {
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

/// Returns a sentence with the work that the devices' own accounts include, and one with the cases whose devices have none; each only if
/// such cases exist.
pub(crate) fn accounts(ranking: &Ranking) -> Vec<String> {
    let sentences = [known_accounts(ranking), unknown_accounts(ranking)];
    sentences.into_iter().flatten().collect()
}

/// Returns a sentence with the work that the devices' own accounts include, and the cases with the same; none if no device has one.
fn known_accounts(ranking: &Ranking) -> Option<String> {
    let mut accounts: Vec<(&str, Vec<&str>)> = Vec::new();
    for case in &ranking.cases {
        let Some(includes) = case.cycles_include.as_deref() else {
            continue;
        };
        let name = case.name.as_str();
        match accounts.iter_mut().find(|(other, _)| *other == includes) {
            Some((_, names)) => names.push(name),
            None => accounts.push((includes, vec![name])),
        }
    }
    let accounts = accounts
        .iter()
        .map(|(includes, names)| format!("{}: {includes}", names.join(", ")));
    let accounts: Vec<String> = accounts.collect();
    (!accounts.is_empty()).then(|| format!("Own accounts: {}.", accounts.join("; ")))
}

/// Returns a sentence with the cases whose devices have no account of their own, and the reasons; none if all have one.
fn unknown_accounts(ranking: &Ranking) -> Option<String> {
    let reasons = ranking.cases.iter().filter_map(|case| {
        let reason = case.cycles_unavailable.as_ref()?;
        Some(format!("{} ({reason})", case.name))
    });
    let reasons: Vec<String> = reasons.collect();
    (!reasons.is_empty()).then(|| format!("Own account unknown: {}.", reasons.join("; ")))
}

/// Returns the cells of a case, in the order of [`HEADER`].
pub(crate) fn cells(case: &RankedCase) -> [String; 8] {
    let rate = match &case.rate_pps {
        Some(rate) if case.is_at_least => format!("≥\u{202f}{}", format::mpps(rate.median)),
        Some(rate) => format::mpps(rate.median),
        None => "–".to_owned(),
    };
    let rounds = case.rate_pps.as_ref().map(words::range_mpps);
    let limit = case.limited_by.map_or("–", |limiter| limiter.word());
    [
        case.rank
            .map_or_else(|| "–".to_owned(), |rank| rank.to_string()),
        case.name.clone(),
        rate,
        rounds.unwrap_or_default(),
        case.cycles
            .as_ref()
            .map_or_else(|| "unknown".to_owned(), CyclesPerFrame::text),
        words::cycles(case.cpu_cycles.as_ref()),
        case.cpu_rate
            .as_ref()
            .map_or_else(|| "–".to_owned(), CpuRate::text),
        limit.to_owned(),
    ]
}

fn row(case: &RankedCase) -> Markup {
    let [
        rank,
        name,
        rate,
        rounds,
        cycles,
        cpu_cycles,
        cpu_rate,
        limit,
    ] = cells(case);
    html! {
        tr {
            td.num { (rank) }
            th scope="row" { (name) }
            td.num { (rate) }
            td.num.dim { (rounds) }
            td.num { (cycles) }
            td.num { (cpu_cycles) }
            td.num { (cpu_rate) }
            td { (limit) }
        }
    }
}
