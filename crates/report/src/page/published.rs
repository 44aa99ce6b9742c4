// SPDX-License-Identifier: Apache-2.0
//! Published figures next to the measured ones, as ratios.

use maud::{Markup, html};
use quietwire_study::StudyResults;

use crate::format;
use crate::summary::{PublishedRow, SizeSummary};

/// Renders the section. Returns nothing if the study file has no published figures.
pub(super) fn published(results: &StudyResults, size: &SizeSummary) -> Markup {
    let Some(known) = &results.file.published else {
        return html! {};
    };
    let goals: Vec<&str> = results
        .file
        .search
        .iter()
        .flat_map(|search| search.goals.iter().map(|goal| goal.name.as_str()))
        .collect();
    let has_tcp = results.file.application.is_some();
    let columns = goals.len().saturating_add(if has_tcp { 2 } else { 0 });
    html! {
        section {
            h2 { "Comparison with published figures" }
            p.lead { "Each configuration in percent of another one, as published and as measured here in the corresponding cases. Compare ratios only: absolute rates depend on the machine." }
            div.scroll role="region" tabindex="0" aria-label="Comparison with published figures" {
                table {
                    thead {
                        tr {
                            th rowspan="2" scope="col" { "Configuration" }
                            th.num colspan=(columns.saturating_add(2)) scope="colgroup" { "Throughput" }
                            th.num colspan="2" scope="colgroup" { "Mean round trip" }
                            th rowspan="2" scope="col" { "Here" }
                        }
                        tr {
                            th.num.first scope="col" { "published" }
                            @if has_tcp { th.num scope="col" { "measured, TCP up" } th.num scope="col" { "TCP down" } }
                            @for goal in &goals { th.num scope="col" { "measured, " (goal) } }
                            th.num scope="col" { "measured, highest load" }
                            th.num.first scope="col" { "published" }
                            th.num scope="col" { "measured" }
                        }
                    }
                    tbody {
                        @for row in &size.published { (of_row(row, goals.len(), has_tcp)) }
                    }
                }
            }
            p.note { "Published: " @if let Some(title) = &known.title { cite { (title) } ". " } (known.source) }
            p.note { "Differences: " (known.differs) }
        }
    }
}

fn of_row(row: &PublishedRow, goals: usize, has_tcp: bool) -> Markup {
    let percent = |ratio: Option<f64>| {
        ratio.map_or_else(|| "–".to_owned(), |ratio| format::percent(ratio * 100.0))
    };
    html! {
        tr {
            th scope="row" {
                (row.configuration)
                @let stated: Vec<&str> = row.quantity.iter().chain(&row.place).map(String::as_str).collect();
                @if !stated.is_empty() { div.dim { (stated.join("; ")) } }
            }
            td.num.first { (bounds(row.throughput)) }
            @match &row.measured {
                Some(measured) => {
                    @if has_tcp { @for ratio in measured.tcp.map_or([None; 2], |both| both.map(Some)) { td.num { (percent(ratio)) } } }
                    @for index in 0..goals { td.num { (percent(measured.goals.get(index).copied().flatten())) } }
                    td.num { (percent(measured.highest_load)) }
                    td.num.first { (bounds(row.round_trip)) }
                    td.num { (percent(measured.round_trip)) }
                    td { (measured.case) @if measured.case != measured.against { " against " (measured.against) } }
                }
                None => {
                    @for _ in 0..=goals.saturating_add(if has_tcp { 2 } else { 0 }) { td.num.dim { "–" } }
                    td.num.first { (bounds(row.round_trip)) }
                    td.num.dim { "–" }
                    td.dim { (row.unanswered.as_deref().unwrap_or_default()) }
                }
            }
        }
    }
}

/// Formats a range: `60 %`, `98 to 99 %`, or a dash.
pub(crate) fn bounds(ratio: Option<[f64; 2]>) -> String {
    match ratio {
        None => "–".to_owned(),
        Some([low, high]) if low == high => format::percent(low * 100.0),
        Some([low, high]) => format!(
            "{} to {}",
            format::number(low * 100.0),
            format::percent(high * 100.0)
        ),
    }
}
